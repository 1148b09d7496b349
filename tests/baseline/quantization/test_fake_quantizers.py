"""Fake quantizers: their numbers, their gradients, and what they watch."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import fake_layers
from baseline.quantization import fake_quantizers
from baseline.quantization import schemes

WIDTHS = range(2, 17)


def started(low, high, bits, moving=False):
    quantizer = fake_quantizers.FakeQuantizer("x", bits, moving)
    quantizer.watch(torch.tensor([low, high], dtype=torch.float32))
    quantizer.start()
    return quantizer


def linear(bits=4, moving=False, output=False, inputs=3, outputs=2, cached=True):
    torch.manual_seed(0)
    layer = nn.Linear(inputs, outputs)
    return layer, fake_layers.FakeQuantLinear(
        layer,
        fake_quantizers.FakeQuantizer("input", bits, moving),
        fake_quantizers.WeightFakeQuantizer("weights", bits, moving),
        fake_quantizers.FakeQuantizer("output", bits, moving) if output else None,
        cached,
    )


def start(layer):
    layer.input_quantizer.start()
    layer.weight_quantizer.start()
    if layer.output_quantizer is not None:
        layer.output_quantizer.start()


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize(("low", "high"), [(-1.3, 2.1), (0.0, 0.7), (-3.0, 0.0), (-1e-9, 1e-9)])
def test_numbers_are_those_of_the_formula(bits, low, high):
    rng = np.random.default_rng(bits)
    numbers = rng.uniform(2 * low, 2 * high, 2000).astype(np.float32)  # Half of them outside.
    # Ties, where a product with the inverse of delta would round differently.
    delta, zero_point = quantization.affine_map(np.float32(low), np.float32(high), bits)
    numbers[:500] = (rng.integers(-50, 50, 500) + 0.5).astype(np.float32) * delta
    numbers[:3] = low, 0.0, high

    quantized = started(low, high, bits)(torch.from_numpy(numbers)).numpy()

    affine = quantization.AffineMap(delta, zero_point)
    tensor = quantization.QuantizedTensor(
        quantization.affine_values(numbers, affine, bits), np.atleast_1d(delta), int(zero_point),
        bits,
    )
    np.testing.assert_array_equal(quantized, quantization.dequantize(tensor))
    assert quantized[1] == 0.0


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("rows", [None, 5])
def test_weights_are_those_of_post_training_quantization(bits, rows):
    weights = torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(bits))
    weights[3] = 0.0
    quantizer = fake_quantizers.WeightFakeQuantizer("w", bits, rows=rows, axes=3)
    quantizer.watch(weights)
    quantizer.start()

    expected = quantization.dequantize(
        quantization.quantize_affine(weights.numpy(), bits, per_channel=rows is not None)
    )
    np.testing.assert_array_equal(quantizer(weights).numpy(), expected)


@pytest.mark.parametrize("bits", [2, 5, 8, 16])
def test_activations_are_those_of_the_player_of_quantized_agents(bits):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(bits))
    player = schemes.ActivationQuantizer(
        schemes.Scheme(str(bits), schemes.WEIGHTS_AND_ACTIVATIONS), {"x": (-1.5, 1.25)}
    )

    assert torch.equal(started(-1.5, 1.25, bits)(x), player("x", x))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_quantized_tensors_have_as_many_distinct_values_as_the_width_allows(bits):
    x = torch.linspace(-1.0, 1.0, 10_000)
    quantizer = fake_quantizers.FakeQuantizer("x", bits)

    assert torch.equal(quantizer(x), x)  # It only watches.
    quantizer.start()

    assert len(quantizer(x).unique()) == 2**bits


def test_gradients_pass_inside_the_range_and_not_outside():
    quantizer = started(-1.0, 3.0, 2)  # Steps of 1; the range's ends count as inside.
    x = torch.tensor([-2.0, -1.51, -1.0, -0.2, 0.0, 1.4, 2.9, 3.0, 3.51, 9.0], requires_grad=True)
    scale = torch.arange(1.0, 11.0)

    (quantizer(x) * scale).sum().backward()

    inside = torch.tensor([0, 0, 1, 1, 1, 1, 1, 1, 0, 0])
    assert torch.equal(x.grad, inside * scale)


def test_gradients_of_a_rectifier_s_output_pass_at_zero():
    quantizer = started(0.0, 4.0, 3)
    x = torch.tensor([0.0, 2.0], requires_grad=True)

    quantizer(x).sum().backward()

    assert torch.equal(x.grad, torch.ones(2))


def test_gradients_of_weights_pass_everywhere_so_that_they_can_come_back():
    quantizer = fake_quantizers.WeightFakeQuantizer("w", 2)
    quantizer.watch(torch.tensor([[-1.0, 1.0]]))
    quantizer.start()
    weights = torch.tensor([[-5.0, 0.2], [0.4, 5.0]], requires_grad=True)

    quantized = quantizer(weights)
    (quantized * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()

    assert torch.equal(quantized.detach(), torch.tensor([[-1.0, 0.0], [0.5, 0.5]]))
    assert torch.equal(weights.grad, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def test_monitors_see_the_extremes_of_all_batches_and_zero():
    quantizer = fake_quantizers.FakeQuantizer("x", 8)
    assert (float(quantizer.low), float(quantizer.high)) == (0.0, 0.0)

    for batch in ([0.5, 2.0], [-0.25, 1.0], [1.0, 1.5]):
        quantizer(torch.tensor(batch))

    assert (float(quantizer.low), float(quantizer.high)) == (-0.25, 2.0)


def test_frozen_ranges_stay_and_moving_ones_go_on():
    frozen, moving = started(-1.0, 1.0, 8), started(-1.0, 1.0, 8, moving=True)
    far = torch.tensor([-4.0, 4.0])

    assert float(frozen(far)[0]) == -1.0
    assert float(moving(far)[0]) == -4.0

    assert (float(frozen.low), float(frozen.high)) == (-1.0, 1.0)
    assert (float(moving.low), float(moving.high)) == (-4.0, 4.0)


def test_moving_ranges_of_weights_are_their_own_at_each_time():
    quantizer = fake_quantizers.WeightFakeQuantizer("w", 4, moving=True)
    quantizer.watch(torch.tensor([[-8.0, 8.0]]))
    quantizer.start()
    weights = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))

    for shrunk in (weights, 0.1 * weights):
        expected = quantization.dequantize(quantization.quantize_affine(shrunk.numpy(), 4))
        np.testing.assert_array_equal(quantizer(shrunk).numpy(), expected)


def test_monitors_of_weights_see_what_each_training_pass_used():
    layer, fake = linear()
    fake(torch.ones(1, 3))
    first = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.mul_(3.0)
        fake(torch.ones(1, 3))  # Without gradients: no update has ended here.
    assert float(fake.weight_quantizer.high) == max(float(first.max()), 0.0)

    fake(torch.ones(1, 3))

    assert float(fake.weight_quantizer.high) == layer.weight.max().item()
    assert float(fake.weight_quantizer.low) == layer.weight.min().item()


def test_the_control_watches_and_never_quantizes():
    layer, fake = linear(bits=32, output=True)
    x = torch.tensor([[0.3, -1.7, 2.0]])
    start(fake)

    assert torch.equal(fake(x), layer(x))
    assert float(fake.input_quantizer.high) == 2.0
    assert float(fake.weight_quantizer.high) == layer.weight.max().item()


@pytest.mark.parametrize("bits", [1, 0, -3, 17, 31, 33])
def test_other_widths_are_refused(bits):
    with pytest.raises(errors.UserError, match="2 to 16"):
        fake_quantizers.FakeQuantizer("x", bits)


def test_a_dead_unit_s_range_has_step_1():
    quantizer = started(0.0, 0.0, 2)

    quantized = quantizer(torch.tensor([-3.0, 0.0, 0.4, 0.6, 2.0, 9.0]))

    assert quantized.tolist() == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]


def test_a_constant_tensor_stays_within_a_step():
    quantizer = started(0.7, 0.7, 8)

    assert float(quantizer(torch.tensor(0.7))) == pytest.approx(0.7, abs=0.7 / 256)
    assert float(quantizer(torch.tensor(0.0))) == 0.0


def test_numbers_that_are_not_finite_are_told_by_the_tensor_s_name():
    quantizer = fake_quantizers.FakeQuantizer("the input of mu.0", 8)
    quantizer(torch.tensor([1.0, float("nan")]))

    with pytest.raises(errors.UserError, match="the input of mu.0: .*NaN"):
        quantizer.start()


def test_state_survives_saving_and_loading():
    _, fake = linear(output=True)
    x = torch.randn(6, 3)
    fake(x)
    start(fake)
    _, other = linear(output=True)

    other.load_state_dict(fake.state_dict())

    assert other.weight_quantizer.started and other.input_quantizer.started
    assert torch.equal(other(x), fake(x))
    assert torch.equal(other(9 * x), fake(9 * x))


def test_layers_share_parameters_and_compute_from_quantized_numbers():
    layer, fake = linear(output=True)
    x = torch.randn(8, 3)
    assert torch.equal(fake(x), layer(x))
    start(fake)

    assert fake.weight is layer.weight and fake.bias is layer.bias
    assert [name for name, _ in fake.named_parameters()] == ["weight", "bias"]
    expected = fake.output_quantizer.quantize(
        nn.functional.linear(
            fake.input_quantizer.quantize(x), fake.weight_quantizer.quantize(layer.weight),
            layer.bias,
        )
    )
    assert torch.equal(fake(x), expected)
    plain = fake.plain()
    assert type(plain) is nn.Linear and plain.weight is layer.weight


def test_convolutions_have_a_range_for_each_output_channel():
    layer = nn.Conv2d(2, 4, 3, stride=2, padding=1)
    fake = fake_layers.FakeQuantConv2d(
        layer,
        fake_quantizers.FakeQuantizer("input", 3),
        fake_quantizers.WeightFakeQuantizer("weights", 3, rows=4, axes=3),
    )
    x = torch.randn(2, 2, 7, 7)
    assert torch.equal(fake(x), layer(x))
    fake.input_quantizer.start()
    fake.weight_quantizer.start()

    fake(x).sum().backward()

    assert layer.weight.grad is not None
    weights = fake.weight_quantizer.quantize(layer.weight.detach())
    assert all(len(channel.unique()) <= 8 for channel in weights)
    assert len(weights.unique()) > 8
    plain = fake.plain()
    assert repr(plain) == repr(layer)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adam, torch.optim.RMSprop, torch.optim.SGD,
        functools.partial(torch.optim.Adam, fused=True),
        functools.partial(torch.optim.AdamW, fused=True),
        functools.partial(torch.optim.SGD, fused=True),
    ],
)
def test_kept_weights_are_quantized_anew_after_an_update(optimizer, moving):
    layer, fake = linear(bits=6, moving=moving, inputs=20, outputs=20)
    x = torch.randn(5, 20)
    fake(x)
    start(fake)
    updates = optimizer(layer.parameters(), lr=0.05)
    if updates.defaults.get("fused"):
        fake_layers.note_steps(updates)
    for _ in range(3):
        with torch.no_grad():
            before = fake(x)
            assert torch.equal(fake(x), before)
        updates.zero_grad()
        fake(x).square().sum().backward()
        updates.step()
        with torch.no_grad():
            after = fake(x)
        assert not torch.equal(after, before)
        assert torch.equal(after, fake(x).detach())  # Which quantizes in any case.


def test_weights_of_targets_are_never_kept():
    layer, fake = linear(cached=False, inputs=20, outputs=20)
    x = torch.randn(5, 20)
    fake(x)
    start(fake)
    with torch.no_grad():
        before = fake(x)
        layer.weight.data.mul_(0.5)  # As SB3 does, unseen by torch.
        assert not torch.equal(fake(x), before)


def test_a_range_that_was_watched_before_is_seen_and_one_that_was_given_is_not():
    def watcher(given=(0.0, 0.0)):
        quantizer = fake_quantizers.FakeQuantizer("x", 8)
        quantizer.set_range(*given)
        return quantizer

    pixels = (0.0, 256.0 / 255.0)
    watched = watcher()
    watched.watch(torch.tensor([-1.0, 2.0]))
    for source, given, seen in (
        (watched, (0.0, 0.0), True), (watcher(), (0.0, 0.0), False),
        (watcher(pixels), pixels, False),
    ):
        resumed = watcher(given)
        assert not resumed.seen
        for _ in range(2):  # Of a network and its target.
            resumed.load_state_dict(source.state_dict())
            assert resumed.seen is seen
