"""Each post-training method against a closed form, brute force, or a second implementation."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import acting_path
from baseline.quantization import schemes
from baseline.quantization.methods import action
from baseline.quantization.methods import adaround
from baseline.quantization.methods import awq
from baseline.quantization.methods import folding
from baseline.quantization.methods import gptq
from baseline.quantization.methods import grids
from baseline.quantization.methods import hadamard
from baseline.quantization.methods import layers
from baseline.quantization.methods import pipeline
from baseline.quantization.methods import ranges
from baseline.quantization.methods import smooth

SINGLE = ("mse", "percentile", "bias-correction", "gptq", "awq", "smooth", "hadamard", "adaround",
          "action")


def network(activation=nn.ReLU, head="argmax", seed=0, sizes=(6, 12, 9, 4), between=True):
    """Returns a small acting path with outliers among its weights."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        layer = nn.Linear(inputs, outputs)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
            layer.weight[0, 0] = 3.0
        found.append((f"l{number}", layer))
        if between and number < len(sizes) - 2:
            found.append((f"a{number}", activation()))
    low = high = None
    if head == "scale":
        found.append(("squash", nn.Tanh()))
        low, high = -np.ones(sizes[-1], np.float32), np.ones(sizes[-1], np.float32)
    return acting_path.PolicyNetwork(tuple(found), head, low, high)


def images():
    """Returns a small acting path of convolutions, and states."""
    torch.manual_seed(1)
    path = (
        ("c0", nn.Conv2d(2, 4, 3, stride=2, padding=1)), ("r0", nn.ReLU()),
        ("c1", nn.Conv2d(4, 3, 3)), ("r1", nn.ReLU()), ("f", nn.Flatten()),
        ("l", nn.Linear(3 * 4 * 4, 5)),
    )
    states = np.random.default_rng(1).integers(0, 256, (40, 2, 12, 12)).astype(np.uint8)
    return acting_path.PolicyNetwork(path, "argmax", image=True), states


def states(count=300, size=6, seed=3):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, size)) * np.linspace(0.2, 3, size)).astype(np.float32)


def copied(path):
    return path._replace(layers=copy.deepcopy(path.layers))


def quantized(path, x, bits="4", granularity="paper", method="minmax", group_size=0, tap=None):
    """Returns a quantized copy and its bytes."""
    made = copied(path)
    scheme = schemes.Scheme(bits, granularity=granularity, method=method, group_size=group_size)
    bases = pipeline.transform(made, scheme, x)
    return made, pipeline.quantize(made, scheme, x, bases, tap).num_bytes


def weights(path):
    return {name: module.weight.detach().numpy().copy() for name, module in path.with_weights()}


def output_error(path, made, x):
    wanted, found = acting_path.forward(path, x), acting_path.forward(made, x)
    return float((wanted - found).square().mean())


@pytest.mark.parametrize("granularity", ["paper", "channel"])
@pytest.mark.parametrize("bits", ["2", "3", "8", "16"])
def test_minmax_is_bit_for_bit_the_one_quantizer(bits, granularity):
    for path, x in ((network(), states()), images()):
        expected = copied(path)
        num_bytes = schemes.quantize_weights(
            expected, schemes.Scheme(bits, granularity=granularity)
        )
        made, found_bytes = quantized(path, x, bits, granularity)
        assert found_bytes == num_bytes
        for name, weight in weights(made).items():
            np.testing.assert_array_equal(weight, weights(expected)[name])


@pytest.mark.parametrize("group_size", [1, 4, 5])
def test_groups_are_rows_of_their_own(group_size):
    path, x = network(sizes=(6, 10, 3)), states()
    made, num_bytes = quantized(path, x, "3", "channel", group_size=group_size)
    expected_bytes = 0
    for name, weight in weights(path).items():
        for start in range(0, weight.shape[1], group_size):
            part = weight[:, start : start + group_size]
            stored = quantization.quantize_affine(part, 3, per_channel=True)
            np.testing.assert_array_equal(
                weights(made)[name][:, start : start + group_size], quantization.dequantize(stored)
            )
            expected_bytes += 5 * len(part)
        expected_bytes += -(-3 * weight.size // 8) + 4 * len(weight)
    assert num_bytes == expected_bytes


@pytest.mark.parametrize("method", SINGLE)
@pytest.mark.parametrize("granularity", ["paper", "channel"])
def test_results_lie_on_a_grid_and_repeat(method, granularity, monkeypatch):
    monkeypatch.setattr(adaround, "STEPS", 40)
    monkeypatch.setattr(action, "FACTORS", (0.6, 0.8))
    path, x = network(), states()
    made, num_bytes = quantized(path, x, "3", granularity, method)
    again, _ = quantized(path, x, "3", granularity, method)
    for name, weight in weights(made).items():
        np.testing.assert_array_equal(weight, weights(again)[name])
        on_grid = method not in ("smooth", "awq", "hadamard") or name != "l0"  # Others fold.
        rows = weight if granularity == "channel" else weight.reshape(1, -1)
        if on_grid:
            assert all(len(np.unique(row)) <= 8 for row in rows)
    assert num_bytes > 0


@pytest.mark.parametrize("bits", [2, 4])
def test_mse_is_the_best_of_all_pairs_of_ends(bits):
    units = np.random.default_rng(0).standard_t(3, (3, 50)).astype(np.float32)
    low, high = ranges.find("mse", units, bits)
    for index, unit in enumerate(units):
        best = np.inf
        for ends in itertools.product(
            [*ranges.FACTORS * unit.min(), unit.min()], [*ranges.FACTORS * unit.max(), unit.max()]
        ):
            delta, zero = quantization.affine_map(*ends, bits)
            values = np.clip(np.rint(unit / delta) + zero, 0, 2**bits - 1)
            errors_of_all = ((values - zero) * delta - unit).astype(np.float64)
            best = min(best, float(np.square(errors_of_all).sum()))
        found = ranges.squared_error(units[[index]], low[[index]], high[[index]], bits)[0]
        assert found == pytest.approx(best, rel=1e-5)
        plain = ranges.squared_error(
            units[[index]], *ranges.find("minmax", units[[index]], bits), bits
        )
        assert found < plain[0]


def test_percentile_is_numpys():
    units = np.random.default_rng(0).normal(size=(2, 5000)).astype(np.float32)
    low, high = ranges.find("percentile", units, 8)
    ordered = np.sort(units, axis=1)
    assert np.all((ordered[:, 4] <= low) & (low <= ordered[:, 5]))  # 0.1 % of 5000.
    assert np.all((ordered[:, -6] <= high) & (high <= ordered[:, -5]))
    positive = np.abs(units)
    assert np.all(ranges.find("percentile", positive, 8)[0] == 0)


def simple_grid(rows, columns, delta=1.0, bits=4):
    shape = (rows, columns)
    return grids.Grid(
        np.full(shape, delta, np.float32), np.full(shape, 2 ** (bits - 1), np.float32), bits
    )


def test_gptq_with_independent_inputs_rounds_to_the_nearest():
    weight = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    grid = simple_grid(5, 7, 0.3)
    for hessian in (np.eye(7), np.diag(np.arange(1.0, 8.0)), np.zeros((7, 7))):
        found = gptq.round_columns(weight, grid, gptq.upper_factor(hessian))
        np.testing.assert_array_equal(found, grid.values(weight))


def test_gptq_by_hand():
    # Both inputs are nearly equal. 0.4 becomes 0, and the second weight takes 0.4 up: 0.8 is 1.
    # w_2 moves by -e H_21 / H_22, with e = w_1 - q_1 the error, here by +0.4 * 0.99 / 1.0.
    hessian = np.array([[1.0, 0.99], [0.99, 1.0]])
    weight = np.array([[0.4, 0.4]], np.float32)
    grid = simple_grid(1, 2)
    found = gptq.round_columns(weight, grid, gptq.upper_factor(hessian)) - grid.zero_point
    np.testing.assert_array_equal(found, [[0.0, 1.0]])
    np.testing.assert_array_equal(grid.values(weight) - grid.zero_point, [[0.0, 0.0]])


def test_gptq_is_the_greedy_solution_of_least_squares():
    rng = np.random.default_rng(2)
    inputs = (rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5))).astype(np.float32)
    weight = rng.normal(size=(3, 5)).astype(np.float32)
    grid = simple_grid(3, 5, 0.25)
    found = gptq.round_columns(weight, grid, gptq.upper_factor(gptq.hessian(inputs)))
    # This second implementation solves for the later columns anew after each column.
    damped = gptq.hessian(inputs)
    damped += gptq.DAMPING * np.diag(damped).mean() * np.eye(5)
    left = weight.astype(np.float64)
    expected = np.empty_like(weight)
    for column in range(5):
        expected[:, column] = grid.values(left)[:, column]
        error = left[:, column] - grid.reals(expected)[:, column]
        left[:, column] -= error
        later = slice(column + 1, None)
        if column < 4:
            solved = np.linalg.solve(damped[later, later], damped[later, column])
            left[:, later] += np.outer(error, solved)
    np.testing.assert_array_equal(found, expected)


def test_adaround_is_near_the_best_of_all_roundings():
    rng = np.random.default_rng(4)
    inputs = (rng.normal(size=(100, 8)) @ rng.normal(size=(8, 8))).astype(np.float32)
    weight = rng.normal(size=(1, 8)).astype(np.float32)
    grid = simple_grid(1, 8, 0.5)
    wanted = inputs @ weight.T
    floor = np.floor(weight / grid.delta) + grid.zero_point

    def error(integers):
        return float(((inputs @ grid.reals(integers).T - wanted) ** 2).mean())

    every = [error(floor + np.array(up)) for up in itertools.product((0, 1), repeat=8)]
    found = error(adaround.round_layer(weight, grid, inputs, wanted))
    assert found <= np.percentile(every, 3)
    assert found < error(grid.values(weight))


@pytest.mark.parametrize("make", [lambda: (network(), states()), images])
def test_bias_correction_makes_mean_errors_zero(make):
    path, x = make()
    made, _ = quantized(path, x, "3", method="bias-correction")
    plain, _ = quantized(path, x, "3")
    names = [name for name, _ in path.with_weights()]
    for name in names:
        outputs = [
            dict(one.with_weights())[name](layers.raw_inputs(one, x, [name])[name].clone())
            for one in (path, made, plain)
        ]
        means = [one.detach().transpose(0, 1).flatten(1).mean(dim=1) for one in outputs]
        np.testing.assert_allclose(means[1], means[0], atol=2e-5)
        assert float((means[2] - means[0]).abs().max()) > 1e-3


def test_bias_correction_needs_biases():
    path = acting_path.PolicyNetwork((("l0", nn.Linear(6, 3, bias=False)),), "argmax")
    with pytest.raises(errors.UserError, match="Layer l0 has no bias"):
        quantized(path, states(), method="bias-correction")


@pytest.mark.parametrize("method", ["smooth", "awq", "hadamard"])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.Tanh])
def test_transformations_leave_the_function(method, activation):
    path, x = network(activation), states()
    made = copied(path)
    bases = pipeline.transform(made, schemes.Scheme("4", method=method), x)
    torch.testing.assert_close(
        acting_path.forward(made, x), acting_path.forward(path, x), rtol=1e-4, atol=1e-4
    )
    for name, basis in bases.items():
        weight, inputs = layers.matrix_of(dict(made.with_weights())[name]), layers.inputs(
            made, x, name
        )
        turned = basis.weights(weight)
        if method != "awq":  # Its best exponent may be 0.
            assert not np.allclose(turned, weight)
        np.testing.assert_allclose(
            basis.inputs(inputs) @ turned.T, inputs @ weight.T, rtol=1e-3, atol=1e-3
        )
        np.testing.assert_allclose(basis.original(turned), weight, rtol=1e-4, atol=1e-5)
    scaled = {"l0"} if activation is not nn.Tanh else {"l0", "l1", "l2"}
    assert set(bases) == ({"l0"} if method == "hadamard" else scaled)


@pytest.mark.parametrize("method", ["smooth", "awq", "hadamard"])
def test_transformations_of_convolutions_leave_the_function(method):
    path, x = images()
    made = copied(path)
    bases = pipeline.transform(made, schemes.Scheme("4", method=method), x)
    torch.testing.assert_close(
        acting_path.forward(made, x), acting_path.forward(path, x), rtol=1e-4, atol=1e-4
    )
    # The second convolution can be folded. The linear layer behind Flatten cannot.
    assert set(bases) == ({"c0"} if method == "hadamard" else {"c0", "l"})


def test_rotations_fold_where_nothing_stands_between():
    path, x = network(between=False), states()
    made = copied(path)
    assert pipeline.transform(made, schemes.Scheme("4", method="hadamard"), x).keys() == {"l0"}
    torch.testing.assert_close(
        acting_path.forward(made, x), acting_path.forward(path, x), rtol=1e-4, atol=1e-4
    )
    assert not np.allclose(weights(made)["l1"], weights(path)["l1"])


def test_layers_that_others_need_too_are_not_folded():
    path = network(sizes=(6, 6, 6, 6))
    sources = {"l2": ("a0",)}  # l1 and l2 share their input.
    path = path._replace(sources=sources)
    before = weights(path)
    assert not folding.fold_scales(path, "l1", np.full(6, 2.0, np.float32))
    for name, weight in weights(path).items():
        np.testing.assert_array_equal(weight, before[name])


def test_integers_of_activations_need_folding():
    scheme = schemes.Scheme("4", schemes.WEIGHTS_AND_ACTIVATIONS, method="smooth")
    with pytest.raises(errors.UserError, match="--scheme=weights"):
        pipeline.transform(network(nn.Tanh), scheme, states())
    assert pipeline.transform(network(nn.ReLU), scheme, states()) == {}


def test_smooth_is_the_papers_formula():
    weight = np.array([[1.0, -4.0], [2.0, 0.0]]).reshape(2, 2, 1)
    found = smooth.scales(np.array([8.0, 1.0]), weight)
    np.testing.assert_allclose(found, [np.sqrt(8 / 2), np.sqrt(1 / 4)])


def test_awq_takes_the_best_exponent():
    rng = np.random.default_rng(5)
    inputs = (rng.normal(size=(200, 6)) * [10, 1, 1, 0.1, 0.1, 1]).astype(np.float32)
    weight = rng.normal(size=(8, 6)).astype(np.float32)
    layout = grids.Layout(8, 6, False)
    sizes = np.abs(inputs).mean(axis=0)
    found = awq.scales(sizes, weight, inputs, layout, 3, 1)

    def error(scales):
        stored = quantization.quantize_affine((weight * scales).astype(np.float32), 3)
        reals = quantization.dequantize(stored) / scales
        return float(((inputs @ (reals - weight).T) ** 2).mean())

    tried = [folding.normalized(sizes.astype(np.float64) ** share) for share in awq.EXPONENTS]
    assert error(found) == pytest.approx(min(map(error, tried)), rel=1e-4)
    assert error(found) < error(np.ones(6))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 24, 27])
def test_hadamard_matrices_are_orthogonal(size):
    found = hadamard.matrix(size)
    np.testing.assert_allclose(found @ found.T, np.eye(size), atol=1e-5)
    largest = 1 << size.bit_length() - 1
    np.testing.assert_allclose(np.abs(found[:largest, :largest]), largest**-0.5, rtol=1e-6)


def test_change_of_discrete_actions():
    path = network()
    wanted = np.array([[2.0, 1.0], [0.0, 1.0]], np.float32)
    change = action.Change(path, wanted)
    assert change(wanted) == 0
    assert change(wanted + 5) == pytest.approx(0)  # Only differences count.
    # Differences to the best: 0, -1 and -1, 0; s^2 = 0.5. One of two actions changed, which costs
    # 1 / s in that state. Its difference moved from -1 to 1.
    found = np.array([[1.0, 2.0], [0.0, 1.0]], np.float32)
    assert change(found) == pytest.approx(0.5 + 0.5 / 0.5**0.5 + 0.1 * (4 / 0.5) / 4)


def test_change_of_other_actions():
    wanted = np.array([[0.5, -0.5]], np.float32)
    found = np.array([[0.5, 0.5]], np.float32)
    scale = network(head="scale", sizes=(6, 2))
    assert action.Change(scale, wanted)(found) == pytest.approx(0.5**2 / 2)
    low, high = np.array([-1, -1], np.float32), np.array([0, 1], np.float32)
    clip = acting_path.PolicyNetwork((), "clip", low, high)
    assert action.Change(clip, wanted)(wanted + [[9, 0]]) == 0  # Both are clipped to 0.
    assert action.Change(clip, wanted)(found) == pytest.approx(0.5**2 / 2)
    binary = acting_path.PolicyNetwork((), "positive")
    assert action.Change(binary, wanted)(found) > action.Change(binary, wanted)(2 * wanted)
    parts = acting_path.PolicyNetwork((), "argmaxes", sizes=(2, 2))
    both = np.concatenate([wanted, wanted], axis=1)
    assert action.Change(parts, both)(both) == 0
    assert action.Change(parts, both)(-both) > 1


@pytest.mark.parametrize("head", ["argmax", "scale"])
def test_action_changes_actions_no_more_than_its_candidates(head):
    path, x = network(head=head), states()
    change = action.Change(path, acting_path.forward(path, x).numpy())
    found = {
        method: change(acting_path.forward(quantized(path, x, "3", method=method)[0], x).numpy())
        for method in ("minmax", "mse,gptq", "action")
    }
    assert found["action"] <= found["mse,gptq"]
    assert found["action"] < found["minmax"]


def test_masked_outputs_do_not_count():
    wanted = np.array([[2.0, 1.0, -1e8], [0.0, 1.0, -1e8]], np.float32)
    found = wanted + np.array([[0, 0, 40.0]], np.float32)
    assert action.Change(network(), wanted)(found) == 0


@pytest.mark.parametrize("method", ["gptq", "adaround", "mse,gptq,bias-correction"])
def test_methods_of_outputs_have_smaller_errors_of_outputs(method):
    path, x = network(sizes=(6, 40, 40, 4)), states(800)
    plain = output_error(path, quantized(path, x, "4")[0], x)
    assert output_error(path, quantized(path, x, "4", method=method)[0], x) < 0.6 * plain


def test_patches_times_weights_are_convolutions():
    torch.manual_seed(0)
    x = torch.randn(3, 2, 7, 6)
    for options in ({"padding": 1, "stride": 2}, {"padding": "same"}, {"padding": "valid"},
                    {"dilation": 2, "padding": (2, 0)}):
        module = nn.Conv2d(2, 4, 3, **options)
        rows = layers.patches(module, x)
        expected = nn.functional.conv2d(
            x, module.weight, None, module.stride, module.padding, module.dilation
        ).flatten(2).transpose(1, 2).reshape(-1, 4)
        np.testing.assert_allclose(
            rows @ layers.matrix_of(module).T, expected.detach().numpy(), rtol=1e-4, atol=1e-5
        )


def test_patches_are_thinned(monkeypatch):
    monkeypatch.setattr(layers, "MAX_INPUTS", 50)
    rows = layers.patches(nn.Conv2d(1, 1, 1), torch.arange(400.0).reshape(4, 1, 10, 10))
    assert 40 <= len(rows) <= 60
    assert {int(value) // 100 for value in rows[:, 0]} == {0, 1, 2, 3}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_an_error(bad):
    path = network()
    with torch.no_grad():
        path.layers[0][1].weight[0, 0] = bad
    with pytest.raises(errors.UserError, match="NaN or infinity"):
        quantized(path, states(), method="mse")
