"""Learned steps: the paper's formulas, computed by hand, and the integers that they stand for."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import fake_layers
from baseline.quantization import learned_steps
from baseline.quantization import range_starts
from baseline.quantization import schemes


def activations(bits, numbers, percentile=None):
    quantizer = learned_steps.LearnedFakeQuantizer("x", bits, percentile=percentile)
    quantizer(torch.as_tensor(numbers, dtype=torch.float32))
    quantizer.start()
    return quantizer


def set_step(quantizer, step):
    """Makes a step one that a test can compute with."""
    with torch.no_grad():
        quantizer.learned.fill_(math.log(step))
    assert abs(quantizer.ends()[1] / 2 ** (quantizer.bits - quantizer._signed()) - step) < 1e-7


def weights_of(bits, weights, by_row=False, percentile=None):
    quantizer = learned_steps.LearnedWeightFakeQuantizer(
        "w", bits, weights.shape[0] if by_row else None, weights.ndim - 1, percentile=percentile
    )
    quantizer.start_from(weights)
    return quantizer


@pytest.mark.parametrize(
    ("bits", "signed", "expected"),
    [(2, True, (2, 1)), (3, True, (4, 3)), (8, True, (128, 127)), (2, False, (0, 3)),
     (8, False, (0, 255))],
)
def test_bounds_are_the_paper_s(bits, signed, expected):
    assert learned_steps.bounds(bits, signed) == expected


def test_the_first_step_is_twice_the_mean_over_the_root_of_the_most():
    weights = torch.tensor([[1.0, -3.0], [0.0, 4.0]])
    assert float(learned_steps.first_step(weights.flatten(), 4, True)) == pytest.approx(
        2 * 2.0 / math.sqrt(7)
    )
    by_row = learned_steps.first_step(weights, 3, True)
    np.testing.assert_allclose(by_row, [2 * 2.0 / math.sqrt(3), 2 * 2.0 / math.sqrt(3)])
    assert learned_steps.first_step(torch.zeros(2, 3), 3, True).tolist() == [1.0, 1.0]


def test_a_percentile_covers_the_central_numbers():
    numbers = torch.arange(-100.0, 101.0)  # 5 of 200 lie beyond at either end.
    assert float(learned_steps.first_step(numbers, 3, True, 95.0)) == pytest.approx(95.0 / 4)
    assert float(learned_steps.first_step(numbers.abs(), 3, False, 100.0)) == 100.0 / 8


@pytest.mark.parametrize("signed", [True, False])
def test_gradients_are_the_paper_s(signed):
    """Equations 3 and 5 number by number; g = 1 / sqrt(N Qp) as section 2.2 says."""
    step, bits = 0.5, 3
    numbers = [-9.0, -2.1, -1.9, -0.2, 0.0, 0.3, 0.7, 1.4, 1.6, 4.0]
    numbers = numbers if signed else [abs(number) for number in numbers]
    quantizer = activations(bits, [[-1.0] if signed else [1.0]])
    set_step(quantizer, step)
    x = torch.tensor([numbers], requires_grad=True)
    outer = torch.linspace(1.0, 2.0, len(numbers))

    (quantizer(x) * outer).sum().backward()

    negative, positive = (4, 3) if signed else (0, 7)
    of_numbers, of_step = [], 0.0
    for number, factor in zip(numbers, outer.tolist(), strict=True):
        ratio = number / step
        if ratio <= -negative:
            change = -negative
        elif ratio >= positive:
            change = positive
        else:
            change = -ratio + round(ratio)
        of_numbers.append(factor * (-negative < ratio < positive))
        of_step += factor * change
    g = 1.0 / math.sqrt(len(numbers) * positive)
    np.testing.assert_allclose(x.grad[0], of_numbers, rtol=1e-6)
    # The optimizer's number is log(s), with the gradient of s divided by s.
    np.testing.assert_allclose(float(quantizer.learned.grad) * step, g * of_step, rtol=1e-5)


def test_gradient_descent_changes_the_step_as_in_the_paper():
    quantizer = activations(4, [[-1.0, 1.0]])
    set_step(quantizer, 0.25)
    x = torch.tensor([[0.3, -0.7, 9.0]])
    quantizer(x).sum().backward()
    change = sum((round(1.2) - 1.2, round(-2.8) + 2.8, 7))
    torch.optim.SGD([quantizer.learned], lr=1e-4).step()
    low, high = quantizer.ends()
    g = 1.0 / math.sqrt(3 * 7)
    assert (high - low) / 16 - 0.25 == pytest.approx(-1e-4 * g * change, rel=1e-3)


@pytest.mark.parametrize("bits", [2, 8, 16])
def test_adam_changes_steps_of_all_widths_by_the_same_share(bits):
    quantizer = activations(bits, [[-1.0, 1.0]])
    before = quantizer.ends()[1]
    optimizer = torch.optim.Adam([quantizer.learned], lr=0.01)
    quantizer(torch.tensor([[0.3, 1e6]])).sum().backward()
    optimizer.step()
    assert quantizer.ends()[1] / before == pytest.approx(0.99, rel=1e-3)


def test_finite_differences_agree_where_rounding_counts_as_a_constant():
    """The straight-through estimate takes round(u) for u plus a number that stays."""
    generator = torch.Generator().manual_seed(0)
    numbers = 3 * torch.randn(1, 200, generator=generator, dtype=torch.float64)
    step, (negative, positive) = 0.37, learned_steps.bounds(4, True)
    residue = torch.round(numbers / step) - numbers / step

    def surrogate(at):
        ratio = numbers / at
        inside = (ratio > -negative) & (ratio < positive)
        return torch.where(inside, ratio + residue, ratio.clamp(-negative, positive)) * at

    levels = learned_steps.Levels(
        torch.tensor(step, dtype=torch.float64), -negative, positive, 0.0, 0.0
    )
    difference = (surrogate(step + 1e-7) - surrogate(step - 1e-7)) / 2e-7
    found = learned_steps.change_by_step(numbers, levels)
    np.testing.assert_allclose(found, difference, atol=1e-5)
    # Numbers beyond the levels are exact ones: the function itself has this slope.
    beyond = numbers.abs() > 3.2
    np.testing.assert_allclose(
        found[beyond], (levels._replace(delta=levels.delta + 1e-7)(numbers)
                        - levels(numbers))[beyond] / 1e-7, atol=1e-4
    )


def test_rows_have_gradients_of_their_own():
    weights = torch.tensor([[0.3, -9.0, 0.1, 0.2], [5.0, 0.0, -0.4, 1.0]], requires_grad=True)
    quantizer = weights_of(2, weights, by_row=True)
    with torch.no_grad():
        quantizer.learned.copy_(torch.tensor([0.5, 1.0]).log())  # Qp is 1.
    quantizer(weights).sum().backward()
    # -9 lies at -2 steps, 5 and 1 at 1 step.
    first = sum((1 - 0.6, -2, 0 - 0.2, 0 - 0.4))
    second = sum((1, 0, 0 + 0.4, 1))
    expected = np.array([first, second]) / math.sqrt(4) / np.array([0.5, 1.0])
    np.testing.assert_allclose(quantizer.learned.grad, expected, rtol=1e-5)
    np.testing.assert_array_equal(weights.grad, [[1, 0, 1, 1], [0, 1, 1, 0]])


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("low", [-1.3, 0.0])
def test_numbers_are_those_of_the_range_in_files(bits, low):
    rng = np.random.default_rng(bits)
    seen = rng.uniform(low, 2.1, (40, 5)).astype(np.float32)
    quantizer = activations(bits, seen, 99.0)
    x = torch.from_numpy(rng.uniform(-3.0, 3.0, (200, 5)).astype(np.float32))
    player = schemes.ActivationQuantizer(
        schemes.Scheme(str(bits), schemes.WEIGHTS_AND_ACTIVATIONS), {"x": quantizer.ends()}
    )
    assert torch.equal(quantizer(x), player("x", x))
    zero = int(quantization.affine_map(*quantizer.ends(), bits).zero_point)
    assert zero == (2 ** (bits - 1) if low < 0 else 0)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_weights_are_integers_of_their_ranges(bits, by_row):
    weights = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(bits))
    quantizer = weights_of(bits, weights, by_row)
    affine = quantization.affine_map(
        *(end.detach().numpy() for end in quantizer.ends(weights)), bits
    )
    tensor = quantization.QuantizedTensor(
        quantization.affine_values(weights.numpy(), affine, bits), np.atleast_1d(affine.delta),
        affine.zero_point if by_row else int(affine.zero_point), bits,
    )
    np.testing.assert_array_equal(
        quantizer.quantize(weights).detach(), quantization.dequantize(tensor)
    )


def layer_with_steps():
    torch.manual_seed(0)
    layer = nn.Linear(6, 5)
    fake = fake_layers.FakeQuantLinear(
        layer, learned_steps.LearnedFakeQuantizer("input", 4),
        learned_steps.LearnedWeightFakeQuantizer("weights", 4),
    )
    fake(torch.randn(30, 6))
    fake.input_quantizer.start()
    fake.weight_quantizer.start_from(layer.weight)
    return fake


@pytest.mark.parametrize("fused", [False, True])
def test_kept_weights_follow_their_step(fused):
    fake = layer_with_steps()
    steps = [fake.input_quantizer.learned, fake.weight_quantizer.learned]
    assert not {id(step) for step in steps} & {id(one) for one in fake.parameters()}
    optimizer = torch.optim.Adam(steps, lr=0.1, fused=fused)
    if fused:
        fake_layers.note_steps(optimizer)
    x = torch.randn(8, 6)
    with torch.no_grad():
        before = fake(x)
        assert torch.equal(fake(x), before)
    fake(x).square().sum().backward()
    optimizer.step()
    with torch.no_grad():
        after = fake(x)
    assert not torch.equal(after, before)
    assert torch.equal(after, fake(x).detach())  # Which quantizes in any case.


def test_state_survives_saving_and_loading():
    fake, x = layer_with_steps(), torch.randn(9, 6)
    torch.manual_seed(1)
    other = fake_layers.FakeQuantLinear(
        nn.Linear(6, 5), learned_steps.LearnedFakeQuantizer("input", 4),
        learned_steps.LearnedWeightFakeQuantizer("weights", 4),
    )
    other.load_state_dict(fake.state_dict())
    assert other.weight_quantizer.started and other.input_quantizer.started
    assert torch.equal(other(x), fake(x))


def test_numbers_that_are_not_finite_are_told_by_name():
    quantizer = learned_steps.LearnedFakeQuantizer("the input of mu.0", 8)
    quantizer(torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(errors.UserError, match="the input of mu.0: .*NaN"):
        quantizer.start()


def test_the_newest_numbers_are_kept_and_large_batches_are_thinned_evenly():
    recent = range_starts.RecentNumbers()
    recent.add(torch.full((10, 3), 7.0))
    assert recent.kept().tolist() == [7.0] * 30
    columns = torch.arange(12.0).repeat(10_000, 1)  # Every column has a value of its own.
    for _ in range(5):
        recent.add(columns)
    kept = recent.kept()
    assert len(kept) == range_starts.KEPT
    counts = torch.bincount(kept.long(), minlength=12)
    assert counts.min() > 0.8 * counts.max()


@pytest.mark.parametrize("rows", [None, 4])
def test_percentiles_leave_outliers_out(rows):
    x = torch.randn(4, 500, generator=torch.Generator().manual_seed(0))
    x[:, 0] = 1000.0
    low, high = range_starts.central(x if rows else x.flatten(), 99.0)
    assert low.shape == (() if rows is None else (rows,))
    assert float(high.max()) < 4.0 and float(low.min()) > -4.0
    low, high = range_starts.central(x.abs() + 1.0, 99.0)
    assert low.tolist() == [0.0] * 4  # Zero is always in the range.
