"""Activation functions, normalizations and joins compute in files what torch computes."""

import numpy as np
import pytest
from torch import nn

from baseline.deploy import exporting
from baseline.deploy import integer_forms
from baseline.formats import names
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import tracing
from tests.baseline import integer_reference as reference

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
# Native files have no form for layers that are neither products nor activations.
GRAPHS = ("onnx", "tflite", "torchscript")
LAYERS = {
    "ReLU6": nn.ReLU6(), "LeakyReLU": nn.LeakyReLU(0.3), "ELU": nn.ELU(0.5), "SELU": nn.SELU(),
    "SiLU": nn.SiLU(), "Mish": nn.Mish(), "GELU": nn.GELU(), "tanh GELU": nn.GELU("tanh"),
    "Sigmoid": nn.Sigmoid(), "Softplus": nn.Softplus(2.0), "Hardtanh": nn.Hardtanh(-0.5, 2.0),
    "LayerNorm": nn.LayerNorm(32), "plain LayerNorm": nn.LayerNorm(32, elementwise_affine=False),
    "Scaled": acting_layers.Scaled(2.0, -1.0),
}


def with_layer(module):
    """Returns a policy with a layer in its middle."""
    network = reference.dense(sizes=(6, 32, 4))
    layers = [(name, module if name == "activation_0" else old) for name, old in network.layers]
    return network._replace(layers=tuple(layers))


def outputs(content, file_format, observations):
    return exporting.one_by_one(exporting.load_file(content, file_format), "output")(observations)


@pytest.mark.parametrize("file_format", GRAPHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_in_fp32_files(layer, file_format):
    network = with_layer(LAYERS[layer])
    observations = 3 * reference.observations(network, 40)
    content = exporting.export_network(
        network, exporting.Settings(file_format, 32, names.scheme(file_format, 32, None)), None
    )
    np.testing.assert_allclose(
        outputs(content, file_format, observations),
        acting_path.forward(network, observations).numpy(), rtol=1e-4, atol=1e-5,
    )


def branches():
    """Returns a policy of images and numbers, whose convolutions have a residual connection."""
    convolution = reference.images(12, padding=1).layers[0][1]
    fields = (tracing.Field("image", (3, 12, 12)), tracing.Field("choice", (2,)))
    layers = (
        ("image", acting_layers.Part(0, (3, 12, 12), 255.0)),
        ("first", convolution), ("relu", nn.ReLU()),
        ("second", nn.Conv2d(8, 8, 3, padding=1)), ("silu", nn.SiLU()),
        ("sum", acting_layers.Add()), ("channels", acting_layers.Concatenate()),
        ("flat", nn.Flatten()), ("choice", acting_layers.Part(432, (2,))),
        ("one_hot", acting_layers.OneHot([3, 2])), ("both", acting_layers.Concatenate()),
        ("norm", nn.LayerNorm(581)), ("last", nn.Linear(581, 6)),
        ("mean", acting_layers.QuantileMean(3)), ("gate", acting_layers.Multiply()),
    )
    sources = {
        "sum": ("relu", "silu"), "channels": ("sum", "second"), "choice": ("observation",),
        "both": ("flat", "one_hot"), "gate": ("mean", "mean"),
    }
    return acting_path.PolicyNetwork(
        layers, "argmax", sources=sources, fields=fields, num_inputs=434
    )


def seen_by_branches(count=60):
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (count, 432))
    choices = np.stack([rng.integers(0, size, count) for size in (3, 2)], axis=1)
    return np.concatenate([pixels, choices], axis=1).astype(np.float32)


def test_branches_fit_together():
    network = branches()
    shapes = {acting_path.OBSERVATION: (434,)}
    for name, module, sources in network.steps():
        shapes[name] = acting_layers.output_shape(name, module, [shapes[s] for s in sources])
    assert shapes["channels"] == (16, 6, 6) and shapes["both"] == (581,)
    output = acting_path.forward(network, seen_by_branches())
    assert tuple(output.shape) == (60, 3) and network.num_outputs == 3


@pytest.mark.parametrize("file_format", ["onnx", "torchscript"])
def test_branches_in_fp32_files(file_format):
    network, observations = branches(), seen_by_branches()
    how = exporting.Settings(file_format, 32, names.scheme(file_format, 32, None))
    content = exporting.export_network(network, how, None)
    expected = acting_path.forward(network, observations).numpy()
    np.testing.assert_allclose(
        outputs(content, file_format, observations), expected, rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("file_format", ["onnx", "tflite"])
def test_branches_in_files_of_integers(file_format):
    network, observations = branches(), seen_by_branches()
    ranges = reference.calibrate(network, observations)
    del ranges[acting_path.OUTPUT]
    content = exporting.export_network(network, exporting.Settings(file_format, 8), ranges)
    found = outputs(content, file_format, observations)
    expected = reference.simulate(
        network, observations, {name: 8 for name, _ in network.with_weights()}, ranges
    )
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02 * np.ptp(expected))
    simulated = integer_forms.simulate(
        network, {name: 8 for name, _ in network.with_weights()}, ranges
    )
    assert (simulated(observations) == found.argmax(axis=1)).mean() > 0.9


@pytest.mark.parametrize("file_format", names.FORMATS)
@pytest.mark.parametrize("head", ["argmaxes", "positive"])
def test_several_actions(head, file_format):
    network = reference.dense(sizes=(6, 16, 5))._replace(
        head=head, sizes=(2, 3) if head == "argmaxes" else ()
    )
    observations = reference.observations(network, 50)
    how = exporting.Settings(file_format, 32, names.scheme(file_format, 32, None))
    content = exporting.export_network(network, how, None)
    expected = acting_path.to_actions(
        network, acting_path.forward(network, observations).numpy()
    )
    found = exporting.one_by_one(exporting.load_file(content, file_format))(observations)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int64 and found.shape == (50, 2 if head == "argmaxes" else 5)


@pytest.mark.parametrize("file_format", GRAPHS)
def test_forbidden_actions_are_not_chosen(file_format):
    dense = reference.dense(sizes=(6, 16, 4))
    layers = (
        ("values", acting_layers.Part(0, (6,))), *dense.layers,
        ("mask", acting_layers.Part(6, (4,))), ("masked", acting_layers.Masked()),
    )
    last = dense.layers[-1][0]
    network = dense._replace(
        layers=layers, num_inputs=10, sources={"mask": ("observation",), "masked": (last, "mask")}
    )
    rng = np.random.default_rng(1)
    masks = np.eye(4, dtype=np.float32)[rng.integers(0, 4, 30)]
    masks[::3] = 1.0
    observations = np.concatenate([reference.observations(dense, 30), masks], axis=1)
    how = exporting.Settings(file_format, 32, names.scheme(file_format, 32, None))
    content = exporting.export_network(network, how, None)
    found = exporting.one_by_one(exporting.load_file(content, file_format))(observations)
    full = acting_path.forward(dense, observations[:, :6]).numpy()
    expected = np.where(masks == 1, full, -np.inf).argmax(axis=1)
    np.testing.assert_array_equal(found, expected)
    assert masks[np.arange(30), found].all()
