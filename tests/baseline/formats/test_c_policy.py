"""Policies in C compute the integer form bit for bit, and compile without warnings."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import architecture
from actorQ.policy import reference
from baseline.agents import zoo_files
from baseline.deploy import c_player
from baseline.formats import c_header
from baseline.formats import c_policy
from baseline.formats import integer_form
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from tests.baseline import integer_reference

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="There is no C compiler.")
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
WIDE = np.array([0.0, -0.0, 1e-42, -1e-38, 1e-30, 3e38, -3e38, 1.0, -1.0, 0.5, 1e6, -77.7])


def play(tmp_path, form, observations, flags=STRICT):
    """Compiles a form; returns outputs and actions for observations [N, ...]."""
    path = tmp_path / "policy.c"
    path.write_text(c_policy.export(form, ["A test."]).source)
    (tmp_path / "policy.h").write_text(c_header.header(path.read_text()))
    policy = c_player.Policy(path, flags)
    outputs = np.stack([policy(each, "output") for each in observations])
    return outputs, np.stack([policy(each) for each in observations])


def assert_same_bits(tmp_path, form, observations):
    """Compares outputs and actions with the numpy form's."""
    outputs, actions = play(tmp_path, form, observations)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = integer_form.outputs(form, observations)
    np.testing.assert_array_equal(outputs, expected)
    acted = integer_form.actions(form, expected)
    np.testing.assert_array_equal(actions.reshape(acted.shape), acted)
    return expected


def normalization(width):
    rng = np.random.default_rng(5)
    return zoo_files.Normalization(
        rng.normal(size=width), rng.uniform(0.01, 4, width), 1000.0, 5.0, 1e-8
    )


def dense_observations(width=6, count=200):
    found = np.random.default_rng(1).standard_normal((count, width)).astype(np.float32) * 3
    extreme = np.stack([np.roll(WIDE, shift)[:width] for shift in range(12)])
    return np.concatenate([found, extreme.astype(np.float32), np.zeros((1, width), np.float32)])


ACTIVATIONS = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "leaky": lambda: nn.LeakyReLU(0.1),
    "elu": lambda: nn.ELU(0.7), "selu": nn.SELU, "silu": nn.SiLU, "mish": nn.Mish,
    "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU("tanh"), "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid, "softplus": lambda: nn.Softplus(2.0, 15.0),
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.75),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_has_the_bits_of_the_form_and_torchs_values(tmp_path, name):
    network = integer_reference.dense(ACTIVATIONS[name])
    observations = dense_observations()
    ranges = integer_reference.calibrate(network, observations[:200])
    form = integer_form.make(network, 8, ranges)
    assert_same_bits(tmp_path, form, observations)
    module = ACTIVATIONS[name]()
    x = np.concatenate([np.linspace(-30, 30, 4001), WIDE]).astype(np.float32)
    x = x[np.abs(x) < 1e30]  # Beyond, products of torch's are infinite that ours are not.
    mine = integer_form.without_weights(module, [x])
    theirs = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("head", ["argmax", "clip", "scale"])
@pytest.mark.parametrize("granularity", ["paper", "channel"])
@pytest.mark.parametrize("bits", [8, 6, 4, 2])
def test_calibrated_integers(tmp_path, bits, granularity, head):
    network = integer_reference.dense(nn.Tanh, (6, 33, 17, 4), head)
    observations = dense_observations()
    ranges = integer_reference.calibrate(network, observations[:200])
    form = integer_form.make(
        network, bits, ranges, granularity, normalization=normalization(6)
    )
    found = assert_same_bits(tmp_path, form, observations)
    plain = integer_form.make(network, bits, ranges, granularity)
    simulated = integer_reference.simulate(
        network, observations[:200], dict.fromkeys(form.weights, bits), ranges, granularity
    )
    found = integer_form.outputs(plain, observations[:200])
    # A number on the edge of two levels may fall on either side.
    assert np.mean(np.abs(found - simulated) < 1e-5) > 0.97


@pytest.mark.parametrize("bits", [8, 4])
def test_scales_of_each_observation_are_those_of_actorqs_actors(tmp_path, bits):
    network = integer_reference.dense(nn.Tanh, (6, 130, 70, 4), "scale")
    observations = dense_observations()
    form = integer_form.make(network, bits, None)
    found = assert_same_bits(tmp_path, form, observations)
    own = architecture.PolicyArchitecture((6,), (130, 70), 4, architecture.TANH_HEAD)
    tensors = {}
    for (name, module), (theirs, *_) in zip(network.with_weights(), own.linears, strict=True):
        tensors[f"{theirs}.weight"] = form.weights[name]
        tensors[f"{theirs}.bias"] = module.bias.detach().numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(found, reference.forward(own, tensors, observations))


@pytest.mark.parametrize("bits", [32, 16])
def test_floats_are_near_torchs(tmp_path, bits):
    network = integer_reference.dense(nn.ReLU)
    observations = dense_observations()[:200]
    form = integer_form.make(network, bits, None, normalization=normalization(6))
    outputs, _ = play(tmp_path, form, observations)
    expected = acting_path.forward(network, normalization(6)(observations)).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-5 if bits == 32 else 5e-3)


@pytest.mark.parametrize("bits", [8, 4, 16, 32])
@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("padding", [0, 1])
def test_images(tmp_path, bits, calibrated, padding):
    network = integer_reference.images(padding=padding)
    observations = integer_reference.observations(network, 20)
    ranges = integer_reference.calibrate(network, observations) if calibrated else None
    form = integer_form.make(network, bits, ranges, image_size=(20, 20))
    if bits <= 8:
        assert_same_bits(tmp_path, form, observations)
    else:
        outputs, _ = play(tmp_path, form, observations)
        expected = acting_path.forward(network, observations).numpy()
        np.testing.assert_allclose(outputs, expected, atol=1e-5 if bits == 32 else 5e-3)


def branched():
    """Returns a policy of every kind of layer without weights."""
    torch.manual_seed(3)
    layers = (
        ("numbers", acting_layers.Part(0, [4])),
        ("digits", acting_layers.Part(4, [2])),
        ("codes", acting_layers.OneHot([3, 2])),
        ("scaled", acting_layers.Scaled(0.5, -0.25)),
        ("joined", acting_layers.Concatenate()),
        ("norm", nn.LayerNorm(9)),
        ("left", nn.Linear(9, 12)), ("left_tanh", nn.Tanh()),
        ("right", nn.Linear(9, 12)), ("right_sigmoid", nn.Sigmoid()),
        ("sum", acting_layers.Add()), ("product", acting_layers.Multiply()),
        ("out", nn.Linear(12, 15)), ("mean", acting_layers.QuantileMean(5)),
        ("mask", acting_layers.Part(6, [5])), ("masked", acting_layers.Masked()),
    )
    sources = {
        "numbers": (acting_path.OBSERVATION,), "digits": (acting_path.OBSERVATION,),
        "codes": ("digits",), "scaled": ("numbers",), "joined": ("scaled", "codes"),
        "left": ("norm",), "right": ("norm",), "sum": ("left_tanh", "right_sigmoid"),
        "product": ("sum", "left_tanh"), "mask": (acting_path.OBSERVATION,),
        "masked": ("mean", "mask"),
    }
    return acting_path.PolicyNetwork(layers, "argmax", sources=sources, num_inputs=11)


@pytest.mark.parametrize("bits", [8, 4, 32])
def test_branches_share_buffers_safely(tmp_path, bits):
    network = branched()
    rng = np.random.default_rng(0)
    observations = np.concatenate([
        rng.standard_normal((100, 4)), rng.integers(0, 3, (100, 1)), rng.integers(0, 2, (100, 1)),
        rng.integers(0, 2, (100, 5)),
    ], axis=1).astype(np.float32)
    ranges = integer_reference.calibrate(network, observations)
    form = integer_form.make(network, bits, ranges if bits <= 8 else None)
    if bits == 32:
        outputs, _ = play(tmp_path, form, observations)
        np.testing.assert_allclose(
            outputs, acting_path.forward(network, observations).numpy(), rtol=1e-5, atol=1e-5
        )
    else:
        assert_same_bits(tmp_path, form, observations)


@pytest.mark.parametrize(
    ("head", "sizes"), [("argmaxes", (2, 3)), ("positive", ())]
)
def test_several_discrete_actions(tmp_path, head, sizes):
    network = integer_reference.dense(nn.ReLU, (6, 16, 5))._replace(head=head, sizes=sizes)
    observations = dense_observations()
    ranges = integer_reference.calibrate(network, observations[:200])
    assert_same_bits(tmp_path, integer_form.make(network, 8, ranges), observations)


def test_not_a_number_is_defined(tmp_path):
    network = integer_reference.dense(nn.Tanh)
    ranges = integer_reference.calibrate(network, dense_observations()[:200])
    observations = np.full((1, 6), np.nan, np.float32)
    assert_same_bits(tmp_path, integer_form.make(network, 8, ranges), observations)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("clang", ()), ("arm-none-eabi-gcc", ("-mcpu=cortex-m0", "-mthumb")),
        ("arm-none-eabi-gcc", ("-mcpu=cortex-m4", "-mthumb")),
    ],
)
def test_other_compilers_do_not_warn(tmp_path, command, flags):
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    for bits, network in ((8, branched()), (4, integer_reference.images()), (16, branched())):
        rng = np.random.default_rng(0)
        observations = integer_reference.observations(network, 5) if network.image else (
            rng.integers(0, 2, (5, 11)).astype(np.float32)
        )
        ranges = integer_reference.calibrate(network, observations) if bits <= 8 else None
        form = integer_form.make(network, bits, ranges, image_size=(20, 20))
        path = tmp_path / "policy.c"
        path.write_text(c_policy.export(form, ["A test."]).source)
        subprocess.run(
            [command, *flags, "-std=c99", *STRICT, "-O2", "-c", str(path), "-o", "/dev/null"],
            check=True,
        )


def test_flash_and_ram_are_those_of_the_arrays(tmp_path):
    network = integer_reference.dense(nn.Tanh, (6, 32, 24, 4))
    ranges = integer_reference.calibrate(network, dense_observations()[:200])
    for bits, per_weight in ((8, 1.0), (4, 0.5), (32, 4.0), (16, 2.0)):
        form = integer_form.make(network, bits, ranges if bits <= 8 else None)
        made = c_policy.export(form, [])
        weights = (6 * 32 + 32 * 24 + 24 * 4) * per_weight
        assert weights + 4 * 60 <= made.flash_bytes <= weights + 4 * 60 + 120  # Rows are padded.
        assert made.ram_bytes <= 4 * (32 + 24 + 6) + 2 * 32


def test_comments_cannot_be_ended(tmp_path):
    network = integer_reference.dense(nn.Tanh)
    form = integer_form.make(network, 32, None)
    path = tmp_path / "policy.c"
    path.write_text(c_policy.export(form, ["*/ int x; /*"]).source)
    c_player.Policy(path, STRICT)


def test_layers_without_a_form_are_named():
    network = integer_reference.images()
    layers = tuple(
        (name, nn.Conv2d(3, 9, 4, 2, groups=3) if name == "conv_0" else module)
        for name, module in network.layers
    )
    form = integer_form.Form(
        network._replace(layers=layers), {"conv_0": np.zeros((9, 1, 4, 4), np.float32)}, None, {},
        image_size=(20, 20),
    )
    with pytest.raises(errors.UserError, match="conv_0.*groups"):
        c_policy.export(form, [])
