"""TorchScript files of policies: the same integers, the same actions, normalization included."""

import io
import json
import platform

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import zoo_files
from baseline.deploy import run_policy
from baseline.formats import torchscript
from baseline.quantization import acting_path
from tests.baseline import integer_reference as reference

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*ignores reduce_range:UserWarning"),
]


def load(content):
    extra = {torchscript.METADATA: ""}
    return torch.jit.load(io.BytesIO(content), _extra_files=extra), json.loads(
        extra[torchscript.METADATA]
    )


def play(content, observations):
    """Returns outputs and actions, one observation after the other."""
    policy, _ = load(content)
    with torch.inference_mode():
        results = [policy(torch.from_numpy(each[None])) for each in observations]
    return tuple(np.concatenate([result[part].numpy() for result in results]) for part in (0, 1))


@pytest.mark.parametrize("head", ["argmax", "clip", "scale"])
def test_fp32_acts_as_the_policy_does(head):
    network = reference.dense(head=head)
    observations = reference.observations(network)
    outputs, actions = play(torchscript.export(network, 32), observations)
    expected = acting_path.forward(network, observations).numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    np.testing.assert_allclose(actions, acting_path.to_actions(network, expected), atol=1e-5)
    assert actions.dtype == (np.int64 if head == "argmax" else np.float32)


@pytest.mark.parametrize("granularity", ["paper", "channel"])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.ELU])
def test_8_bits_hold_the_integers_of_the_formula(granularity, activation):
    network = reference.dense(activation)
    content = torchscript.export(network, 8, granularity)
    policy, metadata = load(content)
    assert metadata["bits"] == 8 and metadata["granularity"] == granularity
    packed = [module.packed for module in policy.layers.children() if hasattr(module, "packed")]
    assert len(packed) == len(network.with_weights())
    for each, (_, module) in zip(packed, network.with_weights(), strict=True):
        weights, _ = torch.ops.quantized.linear_unpack(each)
        made = quantization.quantize_affine(
            module.weight.detach().numpy(), 8, per_channel=granularity == "channel"
        )
        np.testing.assert_array_equal(
            weights.int_repr().numpy().astype(int) + 128, made.values
        )
        np.testing.assert_allclose(
            weights.dequantize().numpy(), quantization.dequantize(made), atol=1e-6
        )


@pytest.mark.parametrize("head", ["argmax", "scale"])
def test_8_bits_act_as_weights_of_these_integers_do(head):
    network = reference.dense(head=head)
    observations = reference.observations(network)
    outputs, actions = play(torchscript.export(network, 8), observations)
    expected = acting_path.forward(network, observations).numpy()
    # Inputs have 7 bits on x86.
    assert np.abs(outputs - expected).mean() < 0.02 * np.abs(expected).max()
    if head == "argmax":
        assert (actions == expected.argmax(axis=1)).mean() > 0.9


def test_images_are_taken_as_they_are():
    network = reference.images(padding=1)
    observations = reference.observations(network, 20)
    full = play(torchscript.export(network, 32, image_size=(20, 20)), observations)[0]
    expected = acting_path.forward(network, observations).numpy()
    np.testing.assert_allclose(full, expected, atol=1e-5)
    outputs, _ = play(torchscript.export(network, 8, image_size=(20, 20)), observations)
    assert np.abs(outputs - expected).mean() < 0.05 * np.abs(expected).max()
    policy, _ = load(torchscript.export(network, 8, image_size=(20, 20)))
    assert list(policy.observation_shape) == [3, 20, 20]
    assert policy.observation_dtype == "uint8"


def test_normalization_is_inside():
    network = reference.dense()
    rng = np.random.default_rng(0)
    normalization = zoo_files.Normalization(
        rng.normal(5, 3, 6), rng.uniform(1, 50, 6), 1.0, 2.0, 1e-8
    )
    raw = rng.normal(5, 12, (50, 6)).astype(np.float32)
    outputs, _ = play(
        torchscript.export(network, 32, normalization=normalization), raw
    )
    normal = normalization(raw)
    assert (np.abs(normal) == 2.0).any()
    np.testing.assert_allclose(outputs, acting_path.forward(network, normal).numpy(), atol=1e-5)
    stacked = normalization._replace(
        mean=normalization.mean.reshape(3, 2), variance=normalization.variance.reshape(3, 2)
    )
    again, _ = play(torchscript.export(network, 32, normalization=stacked), raw)
    np.testing.assert_array_equal(again, outputs)


@pytest.fixture(name="arm_kernels")
def fixture_arm_kernels():
    """Torch computes with QNNPACK on ARM; builds for x86 have it as well."""
    before = torch.backends.quantized.engine
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("this build of torch has no QNNPACK")
    torch.backends.quantized.engine = "qnnpack"
    yield
    torch.backends.quantized.engine = before


@pytest.mark.parametrize("granularity", ["paper", "channel"])
def test_the_kernels_of_arm_take_the_same_file(arm_kernels, granularity):
    network = reference.dense()
    observations = reference.observations(network)
    outputs, actions = play(torchscript.export(network, 8, granularity), observations)
    expected = acting_path.forward(network, observations).numpy()
    assert np.abs(outputs - expected).mean() < 0.02 * np.abs(expected).max()
    assert (actions == expected.argmax(axis=1)).mean() > 0.9


def test_the_runner_chooses_the_kernels_of_arm_where_x86s_are_missing(monkeypatch, tmp_path):
    engines = torch.backends.quantized
    monkeypatch.setattr(engines, "engine", engines.engine)
    path = tmp_path / "policy.pt"
    path.write_bytes(torchscript.export(reference.dense(), 8))
    run_policy.Policy(path)
    assert engines.engine != "qnnpack"
    # Torch's builds for ARM use oneDNN unless told otherwise, and it refuses the file.
    if "qnnpack" not in engines.supported_engines:
        pytest.skip("this build of torch has no QNNPACK")
    monkeypatch.setattr(type(engines), "supported_engines", ["qnnpack", "none", "onednn"])
    engines.engine = "onednn"
    run_policy.Policy(path)
    assert engines.engine == "qnnpack"


def test_kernels_of_arm_are_chosen_where_torch_offers_those_of_x86(monkeypatch, tmp_path):
    engines = torch.backends.quantized
    monkeypatch.setattr(engines, "engine", engines.engine)
    if "qnnpack" not in engines.supported_engines:
        pytest.skip("this build of torch has no QNNPACK")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    before = engines.engine
    content = torchscript.export(reference.dense(), 8)
    assert engines.engine == "qnnpack"
    engines.engine = before
    path = tmp_path / "policy.pt"
    path.write_bytes(content)
    run_policy.Policy(path)
    assert engines.engine == "qnnpack"


def test_what_has_no_such_form_is_named():
    network = reference.dense()
    odd = network._replace(layers=(*network.layers, ("odd", nn.PReLU())))
    with pytest.raises(errors.UserError, match="Layer odd, a PReLU, has no TorchScript form"):
        torchscript.export(odd)
    with pytest.raises(errors.UserError, match="no torchscript file of 4 bits.*torchscript: 32, 8"):
        torchscript.export(network, 4)
    with pytest.raises(errors.UserError, match="nothing to export"):
        torchscript.export(network._replace(layers=(("relu", nn.ReLU()),)))
    with torch.no_grad():
        network.with_weights()[1][1].weight[0, 0] = torch.nan
    with pytest.raises(errors.UserError, match="Weights of layer_1 hold NaN"):
        torchscript.export(network)
