"""Distillation: its losses by hand, what a student becomes, and which round is kept."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.policy import quantization
from baseline.quantization import acting_path
from baseline.quantization import schemes
from baseline.quantization.methods import action
from baseline.quantization.methods import distill
from baseline.quantization.methods import pipeline
from tests.baseline.quantization import test_methods as common


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(distill, "ROUNDS", 3)
    monkeypatch.setattr(distill, "STEPS", 50)


def distilled(path, x, bits="3", granularity="paper", method="distill", group_size=0, tap=None,
              returns=(1.0,), seen=None):
    """Returns a distilled copy, whose plays return these numbers, and what the pipeline says."""
    made = common.copied(path)
    scheme = schemes.Scheme(bits, granularity=granularity, method=method, group_size=group_size)
    bases = pipeline.transform(made, scheme, x)
    numbers = itertools.chain(returns, itertools.repeat(-1.0))

    def play():
        if seen is not None:
            seen.append(common.weights(made))
        return distill.Played(x[::2], next(numbers))

    return made, pipeline.quantize(made, scheme, x, bases, tap, play)


@pytest.mark.parametrize(("granularity", "method", "group_size"), [
    ("paper", "distill", 0), ("channel", "distill", 0), ("channel", "distill", 4),
    ("paper", "smooth,distill", 0), ("channel", "hadamard,distill", 0),
])
@pytest.mark.parametrize("make", [lambda: (common.network(), common.states()), common.images])
def test_results_lie_on_a_grid_and_repeat(make, granularity, method, group_size):
    path, x = make()
    made, outcome = distilled(path, x, "3", granularity, method, group_size)
    again, _ = distilled(path, x, "3", granularity, method, group_size)
    for name, weight in common.weights(made).items():
        np.testing.assert_array_equal(weight, common.weights(again)[name])
    assert (outcome.weight_ranges is None) == (method != "distill" or group_size > 0)
    for name, (low, high) in (outcome.weight_ranges or {}).items():
        weight = common.weights(made)[name]
        by_row = np.ndim(low) > 0
        delta, zero = quantization.affine_map(np.array(low), np.array(high), 3, "nearest")
        integers = weight.reshape(len(weight), -1) / (delta[:, None] if by_row else delta)
        np.testing.assert_allclose(integers, np.rint(integers), atol=1e-4)
        assert integers.min() >= -4 and integers.max() <= 3 and np.all(zero == 4)


@pytest.mark.parametrize("head", ["argmax", "scale"])
def test_a_student_acts_more_like_its_teacher(head, monkeypatch):
    monkeypatch.setattr(distill, "STEPS", 400)
    path, x = common.network(head=head, sizes=(6, 24, 24, 4)), common.states(2000)
    unseen = common.states(1000, seed=8)
    change = action.Change(path, acting_path.forward(path, unseen).numpy())
    usual, _ = common.quantized(path, x, "3", method="bias-correction,action")
    made, _ = distilled(path, x)
    found, before = (
        change(acting_path.forward(one, unseen).numpy()) for one in (made, usual)
    )
    assert found < 0.7 * before


@pytest.mark.parametrize(("returns", "kept", "plays"), [
    ((5.0, 1.0, 3.0, 2.0), 2, 4),  # The second round is the best of three.
    ((5.0, 1.0, 5.0), 2, 3),  # It returns as much as full precision, which ends the rounds.
    ((-7.0, -9.0, -8.5, -8.0), 3, 4),
])
def test_the_best_round_is_kept(returns, kept, plays):
    path, x = common.network(), common.states()
    seen = []
    made, _ = distilled(path, x, returns=returns, seen=seen)
    assert len(seen) == plays
    for name, weight in common.weights(path).items():
        np.testing.assert_array_equal(seen[0][name], weight)  # The first play is full precision's.
        np.testing.assert_array_equal(common.weights(made)[name], seen[kept][name])
        assert not np.array_equal(seen[1][name], seen[2][name])


def test_activations_and_layers_without_bias():
    path = acting_path.PolicyNetwork(
        (("l0", nn.Linear(6, 8, bias=False)), ("r", nn.ReLU()), ("l1", nn.Linear(8, 3))), "argmax"
    )
    x = common.states()
    ranges = {"l0": (-9.0, 9.0), "l1": (0.0, 9.0)}
    scheme = schemes.Scheme("4", schemes.WEIGHTS_AND_ACTIVATIONS)
    tap = schemes.ActivationQuantizer(scheme, ranges)
    made, _ = distilled(path, x, "4", tap=tap)
    assert all(len(np.unique(weight)) <= 16 for weight in common.weights(made).values())
    assert not np.array_equal(common.weights(made)["l0"], common.weights(path)["l0"])


def loss(path, found, aims):
    """Returns the loss and its gradient."""
    found = torch.tensor(found, requires_grad=True)
    aims = torch.tensor(aims)
    value = distill._loss(path, aims)(found, aims)
    value.backward()
    return value.item(), found.grad.numpy()


def test_loss_of_a_discrete_action():
    aims = np.array([[2.0, 0.0], [0.0, 2.0]], np.float32)  # The median lead is 2.
    found = np.array([[2.0, 0.0], [2.0, 0.0]], np.float32)
    high = np.exp(1) / (1 + np.exp(1))
    expected = high * np.log(high / (1 - high)) + (1 - high) * np.log((1 - high) / high)
    value, gradient = loss(common.network(), found, aims)
    assert value == pytest.approx(expected / 2, rel=1e-5)
    assert np.all(gradient[0] == 0) and gradient[1, 0] > 0 > gradient[1, 1]
    masked = [np.append(one, np.full((2, 1), -1e8, np.float32), axis=1) for one in (found, aims)]
    assert loss(common.network(), *masked)[0] == pytest.approx(value)


def test_loss_of_several_discrete_actions():
    aims = np.array([[2.0, 0.0, 1.0, 5.0], [0.0, 2.0, 5.0, 1.0]], np.float32)
    found = aims[::-1].copy()
    parts = acting_path.PolicyNetwork((), "argmaxes", sizes=(2, 2))
    each = [loss(common.network(), found[:, at], aims[:, at])[0] for at in (np.s_[:2], np.s_[2:])]
    assert loss(parts, found, aims)[0] == pytest.approx(sum(each))
    binary = acting_path.PolicyNetwork((), "positive")
    assert loss(binary, aims, aims)[0] == pytest.approx(0, abs=1e-6)
    assert loss(binary, -aims, aims)[0] > 1
    alone = np.zeros((2, 2), np.float32)  # No output leads: there is no temperature.
    assert np.isfinite(loss(common.network(), found[:, :2], alone)[0])


def test_loss_of_continuous_actions():
    low, high = np.array([-1, -2], np.float32), np.array([1, 2], np.float32)
    clip = acting_path.PolicyNetwork((), "clip", low, high)
    aims = np.array([[3.0, 0.0]], np.float32)
    assert loss(clip, np.array([[9.0, 0.0]], np.float32), aims)[0] == 0  # Both act as 1.
    value, gradient = loss(clip, np.array([[-5.0, 1.0]], np.float32), aims)
    assert value == pytest.approx((1.0**2 + 0.25**2) / 2)
    assert gradient[0, 0] < 0 < gradient[0, 1]  # An output beyond its limit still learns.
    endless = acting_path.PolicyNetwork((), "clip", np.float32([-np.inf]), np.float32([np.inf]))
    assert loss(endless, np.array([[2.0]], np.float32), np.array([[0.0]], np.float32))[0] == 4
    scale = common.network(head="scale", sizes=(6, 1))
    assert loss(scale, np.array([[0.5]], np.float32), np.array([[-0.5]], np.float32))[0] == 0.25
