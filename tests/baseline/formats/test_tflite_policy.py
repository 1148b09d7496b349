import numpy as np
import pytest
from tensorflow.lite.python import interpreter
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import agreement
from baseline.agents import zoo_files
from baseline.formats import names
from baseline.formats import tflite_graph
from baseline.formats import tflite_layers
from baseline.formats import tflite_policy
from baseline.quantization import acting_path
from tests.baseline import integer_reference as reference
from tests.baseline import players

RESOLVERS = interpreter.OpResolverType
POLICIES = {
    "tanh": lambda: reference.dense(nn.Tanh),
    "relu": lambda: reference.dense(nn.ReLU),
    "elu, continuous": lambda: reference.dense(nn.ELU, head="clip"),
    "relu, squashed": lambda: reference.dense(nn.ReLU, (3, 40, 30, 2), head="scale"),
    "images": reference.images,
    "images, padded": lambda: reference.images(padding=1),
    "images, tanh": lambda: reference.images(tail=nn.Tanh),
}
SIZE = (20, 20)  # The size of the reference's images.


def integers(network, bits=8, per_channel=False):
    return {
        name: quantization.quantize_affine(
            module.weight.detach().numpy(), bits, "nearest",
            per_channel or isinstance(module, nn.Conv2d),
        )
        for name, module in network.with_weights()
    }


def case(policy, bits=8):
    """Returns a policy, its inputs, and the other arguments of `export`."""
    network = POLICIES[policy]()
    inputs = reference.observations(network)
    return network, inputs, reference.calibrate(network, inputs), integers(network, bits)


def export(network, *args, **kwargs):
    return tflite_policy.export(
        network, *args, image_size=SIZE if network.image else None, **kwargs
    )


def opened(content, resolver=RESOLVERS.BUILTIN_WITHOUT_DEFAULT_DELEGATES, batch=None):
    made = interpreter.Interpreter(
        model_content=content, experimental_op_resolver_type=resolver
    )
    if batch is not None:
        details, = made.get_input_details()
        made.resize_tensor_input(details["index"], [batch, *details["shape"][1:]])
    made.allocate_tensors()
    return made


def constants(content):
    made = opened(content)
    return {
        details["name"]: made.get_tensor(details["index"])
        for details in made.get_tensor_details()
        if details["name"].startswith(("layer_", "conv_"))
    }


def computed(network, inputs, ranges, weights, bits=8):
    """Computes linear layers in integers, as the formulas say: int64 sums, then float32."""
    x = inputs
    for name, module in network.layers:
        if not isinstance(module, nn.Linear):
            x = module(torch.from_numpy(x)).numpy()
            continue
        low, high, *own = ranges[name]
        width = own[0] if own else bits
        affine = quantization.affine_map(low, high, width)
        stored = np.clip(np.rint(x / affine.delta) + affine.zero_point, 0, 2**width - 1)
        zeros = np.reshape(weights[name].zero_point, (-1, 1))
        sums = (stored.astype(np.int64) - affine.zero_point) @ (
            weights[name].values.astype(np.int64) - zeros
        ).T
        scale = (weights[name].scale.astype(np.float64) * affine.delta).astype(np.float32)
        x = sums.astype(np.float32) * scale + module.bias.detach().numpy()
    return x


@pytest.mark.parametrize("output", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_export_computes_what_the_simulation_does(policy, output):
    network, inputs, ranges, weights = case(policy)
    if not output:
        del ranges[acting_path.OUTPUT]
    made = players.tflite_player(export(network, ranges, weights))
    bits_of = {name: 8 for name in weights}
    expected = reference.simulate(network, inputs, bits_of, ranges)
    np.testing.assert_allclose(made.output(inputs), expected, atol=1e-6)
    actions = made(inputs)
    wanted = acting_path.to_actions(network, expected.astype(np.float32))
    assert actions.shape == wanted.shape
    assert actions.dtype == (np.int64 if network.head == "argmax" else np.float32)
    close = agreement.compare(wanted, actions, network.low, network.high)
    assert close.alike == 1.0, close


@pytest.mark.parametrize("bits", [2, 3, 5, 7, 8])
def test_export_sums_are_exact_for_every_width(bits):
    network, inputs, ranges, weights = case("relu", bits)
    del ranges[acting_path.OUTPUT]
    made = players.tflite_player(export(network, ranges, weights, bits))
    np.testing.assert_array_equal(
        made.output(inputs), computed(network, inputs, ranges, weights, bits)
    )


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shift", [-1.0, -0.3, 0.3, 1.0])
def test_export_asymmetric_ranges_are_exact(shift, per_channel):
    # Weights without positive ones have zero point 255, those without negative ones 0.
    network = reference.dense(nn.ReLU)
    with torch.no_grad():
        for _, module in network.with_weights():
            module.weight.add_(shift * module.weight.abs().max())
    inputs = reference.observations(network) - shift
    ranges = reference.calibrate(network, inputs)
    del ranges[acting_path.OUTPUT]
    weights = integers(network, 8, per_channel)
    made = players.tflite_player(export(network, ranges, weights))
    np.testing.assert_array_equal(made.output(inputs), computed(network, inputs, ranges, weights))


@pytest.mark.parametrize("ends", [(0.0, 3.0), (-3.0, 0.0), (-0.2, 3.0), (0.0, 0.0)])
def test_export_inputs_beyond_their_range_are_clamped(ends):
    network, inputs, ranges, weights = case("relu")
    del ranges[acting_path.OUTPUT]
    ranges["layer_0"] = ends
    made = players.tflite_player(export(network, ranges, weights))
    inputs = 5 * inputs
    np.testing.assert_array_equal(made.output(inputs), computed(network, inputs, ranges, weights))


@pytest.mark.parametrize("ends", [acting_path.PIXEL_RANGE, (0.0, 1.0), (-0.3, 0.9)], ids=str)
@pytest.mark.parametrize("bits", [2, 4, 7, 8])
def test_pixels_become_the_integers_of_the_formula(bits, ends):
    # In few bits, they lie half-way between two levels.
    affine = quantization.affine_map(*ends, bits)
    graph = tflite_graph.Graph()
    pixels = graph.input("pixels", (-1, 2, 8, 16), np.uint8, acting_path.PIXEL_MAP)
    integers = tflite_layers.to_integers(graph, pixels, affine, bits)
    made = opened(graph.model([pixels], [integers.tensor], "", {}))
    every = np.arange(256, dtype=np.uint8).reshape(1, 2, 8, 16)
    made.set_tensor(made.get_input_details()[0]["index"], every)
    made.invoke()
    stored = made.get_tensor(made.get_output_details()[0]["index"]).astype(int)
    expected = quantization.affine_values(every / 255, affine, bits).astype(int)
    np.testing.assert_array_equal(stored - integers.zero_point, expected - int(affine.zero_point))
    assert stored.shape == every.shape


def test_export_inputs_may_have_bits_of_their_own():
    network, inputs, ranges, weights = case("relu", 3)
    del ranges[acting_path.OUTPUT]
    ranges["layer_0"] = (*ranges["layer_0"], 8)
    ranges["layer_2"] = (*ranges["layer_2"], 5)
    made = players.tflite_player(export(network, ranges, weights, 3))
    expected = computed(network, inputs, ranges, weights, 3)
    np.testing.assert_array_equal(made.output(inputs), expected)
    assert made.metadata["ranges"]["layer_2"][2] == 5


def test_export_a_quantized_output_of_few_bits_has_its_levels():
    network, inputs, ranges, weights = case("relu")
    ranges[acting_path.OUTPUT] = (*ranges[acting_path.OUTPUT], 3)
    outputs = players.tflite_player(export(network, ranges, weights)).output(inputs)
    assert len(np.unique(outputs)) <= 8


@pytest.mark.parametrize("policy", ["tanh", "relu", "images"])
@pytest.mark.parametrize("resolver", [RESOLVERS.AUTO, RESOLVERS.BUILTIN_REF], ids=str)
def test_export_other_kernels_and_delegates_compute_the_same(policy, resolver):
    network, inputs, ranges, weights = case(policy)
    content = export(network, ranges, weights)
    expected = players.tflite_player(content).output(inputs[:7])
    made = opened(content, resolver, 7)
    made.set_tensor(made.get_input_details()[0]["index"], inputs[:7])
    made.invoke()
    outputs = {d["name"]: made.get_tensor(d["index"]) for d in made.get_output_details()}
    np.testing.assert_allclose(outputs[names.OUTPUT], expected, atol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_export_products_are_of_integers(policy):
    network, _, ranges, weights = case(policy)
    made = opened(export(network, ranges, weights))
    types = {d["index"]: d["dtype"] for d in made.get_tensor_details()}
    kinds = [op["op_name"] for op in made._get_ops_details()]
    products = [op for op in made._get_ops_details() if op["op_name"] == "BATCH_MATMUL"]
    assert len(products) >= len(weights)
    for product in products:
        assert [types[index] for index in product["inputs"]] == [np.int8, np.int8]
        assert [types[index] for index in product["outputs"]] == [np.int32]
    assert not {"FULLY_CONNECTED", "CONV_2D", "DELEGATE"} & set(kinds)


@pytest.mark.parametrize("per_channel", [False, True])
def test_export_holds_exactly_the_integers(per_channel):
    network = reference.images()
    ranges = reference.calibrate(network, reference.observations(network))
    weights = integers(network, 8, per_channel)
    found = constants(export(network, ranges, weights))
    for name, tensor in weights.items():
        values, zeros = tensor.values.astype(int), np.atleast_1d(tensor.zero_point)
        if values.ndim == 4:
            values = values.transpose(0, 2, 3, 1)
        elif name == "layer_0":  # Torch flattens with channels first.
            values = values.reshape(len(values), 6, 7, 7).transpose(0, 2, 3, 1)
        values = values.reshape(len(values), -1)
        stored = found[f"{name}.weight"]
        assert stored.dtype == np.int8
        if f"{name}.negative_zero" in found:
            np.testing.assert_array_equal(stored.astype(int) + 128, values)
            np.testing.assert_array_equal(found[f"{name}.negative_zero"], 128 - zeros)
        else:  # There are no zero points.
            np.testing.assert_array_equal(stored, values - zeros[:, None])
    assert "conv_0.negative_zero" in found


def test_export_narrow_weights_need_no_second_product():
    network, _, ranges, weights = case("tanh", 7)
    content = export(network, ranges, weights, 7)
    kinds = [op["op_name"] for op in opened(content)._get_ops_details()]
    assert kinds.count("BATCH_MATMUL") == len(weights)
    found = constants(content)
    for name, tensor in weights.items():
        np.testing.assert_array_equal(
            found[f"{name}.weight"], tensor.values.astype(int) - tensor.zero_point
        )


def test_export_may_normalize_itself():
    network, inputs, _, weights = case("tanh")
    rng = np.random.default_rng(3)
    normalization = zoo_files.Normalization(
        rng.standard_normal(6), rng.uniform(0.1, 4, 6), 10.0, 1.5, 1e-8
    )
    ranges = reference.calibrate(network, normalization(inputs))
    outside = players.tflite_player(export(network, ranges, weights))
    inside = players.tflite_player(export(network, ranges, weights, normalization=normalization))
    assert inside.metadata["normalizes"] and not outside.metadata["normalizes"]
    expected = outside.output(normalization(inputs))
    # float32 and float64 may meet on two sides of a level's edge.
    assert np.mean(np.abs(inside.output(inputs) - expected) < 1e-5) > 0.97


def test_export_natures_network_acts_as_simulated():
    network = reference.nature_cnn()
    inputs = reference.scenes(20)
    ranges = reference.calibrate(network, inputs)
    del ranges[acting_path.OUTPUT]
    weights = integers(network)
    content = tflite_policy.export(network, ranges, weights, image_size=(84, 84))
    made = players.tflite_player(content)
    expected = reference.simulate(network, inputs, {name: 8 for name in weights}, ranges)
    np.testing.assert_allclose(made.output(inputs), expected, atol=1e-5)
    assert len(content) < 1.1 * sum(tensor.values.size for tensor in weights.values())


def test_export_is_deterministic_and_says_what_it_is():
    network, _, ranges, weights = case("elu, continuous")
    content = export(network, ranges, weights)
    assert content == export(network, ranges, weights)
    metadata = players.tflite_player(content).metadata
    assert metadata["layer_bits"] == {name: 8 for name in weights}
    assert metadata["head"] == "clip"
    np.testing.assert_allclose(metadata["low"], network.low)
    signatures = opened(content).get_signature_list()
    assert signatures == {
        "serving_default": {"inputs": ["observation"], "outputs": ["action", "output"]}
    }


def with_layer(module):
    network = reference.dense()
    return network._replace(layers=(*network.layers, ("odd", module)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": with_layer(nn.PReLU())}, "odd, PReLU.*no TFLite form"),
        ({"network": with_layer(nn.Flatten(2))}, "odd flattens other axes"),
        (
            {"network": acting_path.PolicyNetwork((("f", nn.Flatten()),), "argmax")},
            "no layer with weights",
        ),
        ({"network": reference.images()}, "needs their size"),
        ({"bits": 16}, "no TFLite form of 16 bits, which the input of layer_0 has.* 2 to 8"),
        ({"weights": integers(reference.dense(), 9)}, "9 bits, which the weights of layer_0 has"),
        ({"weights": {}}, "no integers for the weights of layer_0"),
        ({"weights": integers(reference.dense(sizes=(6, 5, 4)))}, "have the shape"),
        ({"ranges": {}}, "no range for the input of layer_0"),
        ({"ranges": {"layer_0": (-1.0, 1.0, 16)}}, "16 bits, which the input of layer_0 has"),
        ({"ranges": {"layer_0": (0.0, float("inf"))}}, "Activations of layer_0: .*infinity"),
    ],
)
def test_export_impossible_says_why(change, message):
    network, _, ranges, weights = case("tanh")
    asked = {"network": network, "ranges": ranges, "weights": weights, **change}
    with pytest.raises(errors.UserError, match=message):
        tflite_policy.export(**asked)


def test_export_convolutions_that_do_not_fit_are_refused():
    for first, size, message in (
        (nn.Conv2d(4, 4, 3, groups=2), SIZE, "groups=2"),
        (nn.Conv2d(4, 4, 3), (2, 20), "too small"),
    ):
        network = acting_path.PolicyNetwork(
            (("c", first), ("f", nn.Flatten()), ("l", nn.Linear(4, 2))), "argmax", image=True
        )
        with pytest.raises(errors.UserError, match=message):
            tflite_policy.export(
                network, {"c": (0.0, 1.0), "l": (0.0, 1.0)}, integers(network), image_size=size
            )
    network, _, ranges, weights = case("images")
    with pytest.raises(errors.UserError, match="input of layer_0 is not"):
        tflite_policy.export(network, ranges, weights, image_size=(24, 20))
