"""Files in int8 for TensorFlow Lite Micro, played by its own interpreter and by TFLite's."""

import numpy as np
import pytest
from tensorflow.lite.python import interpreter
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import zoo_files
from baseline.deploy import loading
from baseline.formats import names
from baseline.formats import tflite_micro
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from tests import trained_agents
from tests.baseline import integer_reference as reference
from tests.baseline import players

POLICIES = {
    "relu": lambda: reference.dense(nn.ReLU),
    "tanh": lambda: reference.dense(nn.Tanh),
    "sigmoid": lambda: reference.dense(nn.Sigmoid),
    "relu6, squashed": lambda: reference.dense(nn.ReLU6, (3, 40, 30, 2), head="scale"),
    "elu, continuous": lambda: reference.dense(nn.ELU, head="clip"),
    "leaky relu, continuous": lambda: reference.dense(nn.LeakyReLU, head="clip"),
    "tanh, squashed": lambda: reference.dense(nn.Tanh, (3, 40, 30, 2), head="scale"),
    "images": reference.images,
    "images, padded": lambda: reference.images(padding=1),
    "images, tanh": lambda: reference.images(tail=nn.Tanh),
}
# Kernels whose results TFLite and TensorFlow Lite Micro compute in different ways.
APPROXIMATED = ("tanh", "sigmoid", "elu", "squashed")
SIZE = (20, 20)  # The size of the reference's images.
RESOLVERS = interpreter.OpResolverType
# TensorFlow Lite Micro's kernels take these types as an operator's inputs and output.
INT8, INT32 = np.dtype(np.int8), np.dtype(np.int32)
LEGAL = {
    "FULLY_CONNECTED": ([INT8, INT8, INT32], INT8), "CONV_2D": ([INT8, INT8, INT32], INT8),
    "TANH": ([INT8], INT8), "LOGISTIC": ([INT8], INT8), "ELU": ([INT8], INT8),
    "LEAKY_RELU": ([INT8], INT8), "RESHAPE": ([INT8, INT32], INT8),
    "TRANSPOSE": ([INT8, INT32], INT8), "PADV2": ([INT8, INT32, INT8], INT8),
    "ARG_MAX": ([INT8, INT32], INT32),
}


def ranges_of(network, inputs):
    """Returns the ranges of a network's inputs, and of the outputs that its file has."""
    found = reference.calibrate(network, inputs)
    made = tflite_micro.prepared(network)
    return {**found, acting_path.OUTPUT: reference.calibrate(made, inputs)[acting_path.OUTPUT]}


def case(policy, count=400):
    """Returns a policy, its inputs, their ranges, and its file."""
    network = POLICIES[policy]()
    inputs = reference.observations(network, count)
    ranges = ranges_of(network, inputs)
    return network, inputs, ranges, export(network, ranges)


def export(network, ranges, **kwargs):
    return tflite_micro.export(
        network, ranges, image_size=SIZE if network.image else None, **kwargs
    )


def opened(content, resolver=RESOLVERS.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
    made = interpreter.Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    made.allocate_tensors()
    return made


def details_by_name(content):
    return {details["name"]: details for details in opened(content).get_tensor_details()}


def actions_of(network, outputs):
    """Returns actions for outputs of a file, which are -1 to 1 where actions are continuous."""
    if network.head == "argmax":
        return outputs.argmax(axis=1)
    return np.clip(
        network.low + (outputs + 1) / 2 * (network.high - network.low), network.low, network.high
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_micro_acts_as_the_simulated_form_does(policy):
    network, inputs, ranges, content = case(policy)
    made = players.micro_player(content)
    simulated = reference.simulate_micro(network, inputs, ranges)
    acted = made(inputs)
    found = agreement.compare(
        actions_of(network, simulated).astype(acted.dtype), acted, network.low, network.high
    )
    assert found.holds, str(found)
    assert acted.dtype == (np.int64 if network.head == "argmax" else np.float32)


@pytest.mark.parametrize("policy", POLICIES)
def test_tflite_and_micro_compute_the_same(policy):
    network, inputs, _, content = case(policy, 100)
    # TFLite has no reference kernel of ELU.
    resolver = [] if policy.startswith("elu") else [RESOLVERS.BUILTIN_REF]
    micro, lite = players.micro_player(content), opened(content, *resolver)
    step = lite.get_output_details()[0]["quantization"][0]
    (taken,) = lite.get_input_details()
    scale, zero = taken["quantization"]
    raw = inputs / (255.0 if network.image else 1.0)
    levels = np.clip(np.rint(raw / scale) + zero, -128, 127).astype(np.int8)
    found = []
    for level in levels:
        lite.set_tensor(taken["index"], level[None])
        lite.invoke()
        details = lite.get_output_details()[0]
        found.append(step * (lite.get_tensor(details["index"])[0].astype(np.float32)
                             - details["quantization"][1]))
    steps = np.abs(np.stack(found) - micro.output(inputs)) / step
    if any(word in policy for word in APPROXIMATED):
        # TFLite has tables of these functions, Micro computes them in fixed point: one level each.
        assert steps.mean() < 0.5 and steps.max() < 4
    else:
        np.testing.assert_allclose(steps, 0, atol=1e-3)


def fixed_point(real):
    """Returns a number as the kernels store it: an int32 fraction, and the exponent of 2."""
    fraction, exponent = np.frexp(real)
    stored = np.rint(fraction * 2.0**31).astype(np.int64)
    return stored, exponent.astype(np.int64)


def scaled(sums, real):
    """Returns sums times numbers below 1, rounded in two steps as the kernels do."""
    stored, exponent = fixed_point(real)
    products = sums * stored
    nudged = products + np.where(products >= 0, 2**30, 1 - 2**30)
    high = np.sign(nudged) * (np.abs(nudged) // 2**31)
    mask = 2**-exponent - 1
    return (high >> -exponent) + ((high & mask) > (mask >> 1) + (high < 0))


def in_integers(content, levels):
    """Returns the levels of the output of linear layers, as the specification says.

    ReLU or tanh is between them, and tanh may be behind the last.
    """
    made = opened(content)
    operators = [
        op for op in made._get_ops_details() if op["op_name"] in ("FULLY_CONNECTED", "TANH")
    ]
    details = {each["index"]: each for each in made.get_tensor_details()}
    x = levels.astype(np.int64)
    for op, following in zip(operators, [*operators[1:], None], strict=True):
        step, zero = details[op["inputs"][0]]["quantization"]
        of_output, zero_after = details[op["outputs"][0]]["quantization"]
        if op["op_name"] == "TANH":
            x = np.clip(np.rint(128 * np.tanh((x - zero) * step)), -128, 127).astype(np.int64)
            continue
        _, weights, bias = op["inputs"]
        sums = (x - zero) @ made.get_tensor(weights).astype(np.int64).T + made.get_tensor(bias)
        scales = details[weights]["quantization_parameters"]["scales"].astype(np.float64)
        x = scaled(sums, float(np.float32(step)) * scales / float(np.float32(of_output)))
        with_relu = following is not None and following["op_name"] == "FULLY_CONNECTED"
        x = np.clip(x + zero_after, max(zero_after, -128) if with_relu else -128, 127)
    return x


def input_levels(content, inputs):
    """Returns observations as the levels of a file's input."""
    step, zero = opened(content).get_input_details()[0]["quantization"]
    return np.clip(np.rint(inputs / step) + zero, -128, 127)


def output_of(content, levels):
    """Returns the numbers that a file's levels stand for."""
    details = {each["name"]: each for each in opened(content).get_output_details()}
    step, zero = details.get(names.OUTPUT, details[names.ACTION])["quantization"]
    return (levels - zero) * step


def test_micro_computes_the_specification_bit_for_bit():
    network, inputs, _, content = case("relu", 300)
    levels = in_integers(content, input_levels(content, inputs))
    np.testing.assert_allclose(
        players.micro_player(content).output(inputs), output_of(content, levels), rtol=1e-6
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_operators_are_those_of_the_specification(policy):
    _, _, _, content = case(policy, 20)
    made = opened(content)
    types = {d["index"]: np.dtype(d["dtype"]) for d in made.get_tensor_details()}
    for operator in made._get_ops_details():
        given, result = LEGAL[operator["op_name"]]
        assert [types[index] for index in operator["inputs"]] == given, operator["op_name"]
        assert [types[index] for index in operator["outputs"]] == [result], operator["op_name"]
    (taken,) = made.get_input_details()
    assert taken["dtype"] == np.int8 and taken["name"] == names.OBSERVATION
    types = {d["name"]: d["dtype"] for d in made.get_output_details()}
    discrete = {names.OUTPUT: np.int8, names.ACTION: np.int32}
    assert types in (discrete, {names.ACTION: np.int8})


@pytest.mark.parametrize("policy", ["relu", "tanh, squashed", "images, padded"])
def test_tensors_have_the_quantization_of_the_specification(policy):
    network, _, ranges, content = case(policy, 20)
    found = details_by_name(content)
    made = opened(content)
    for name, module in network.with_weights():
        quantized = found[f"{name}.weight"]["quantization_parameters"]
        weights = made.get_tensor(found[f"{name}.weight"]["index"])
        outputs = len(module.weight)
        assert quantized["scales"].shape == (outputs,) and quantized["quantized_dimension"] == 0
        assert not np.any(quantized["zero_points"])
        assert weights.min() >= -127
        # Every output uses its scale to the full.
        np.testing.assert_array_equal(np.abs(weights.reshape(outputs, -1).astype(int)).max(1), 127)
        of_input, zero = made._get_tensor_details(
            next(
                op["inputs"][0] for op in made._get_ops_details()
                if found[f"{name}.weight"]["index"] in op["inputs"]
            ), 0,
        )["quantization"]
        bias = found[f"{name}.bias"]["quantization_parameters"]
        np.testing.assert_allclose(bias["scales"], of_input * quantized["scales"], rtol=1e-6)
        assert -128 <= zero <= 127
    first = network.with_weights()[0][0]
    step, zero = reference.affine(*ranges[first], 8)
    (taken,) = made.get_input_details()
    np.testing.assert_allclose(taken["quantization"], (step, zero - 128))
    if policy == "tanh, squashed":
        outputs = [op["outputs"][0] for op in made._get_ops_details() if op["op_name"] == "TANH"]
        assert len(outputs) == 3
        for index in outputs:
            assert made._get_tensor_details(index, 0)["quantization"] == (1 / 128, 0)


def test_relu_is_a_part_of_its_layer():
    _, _, _, content = case("relu", 20)
    assert [op["op_name"] for op in opened(content)._get_ops_details()] == [
        "FULLY_CONNECTED", "FULLY_CONNECTED", "FULLY_CONNECTED", "ARG_MAX"
    ]


@pytest.mark.parametrize("head", ["argmaxes", "positive"])
def test_several_actions(head):
    network = reference.dense(nn.ReLU, sizes=(6, 16, 5))._replace(
        head=head, sizes=(2, 3) if head == "argmaxes" else ()
    )
    inputs = reference.observations(network, 300)
    content = export(network, ranges_of(network, inputs))
    expected = acting_path.to_actions(network, acting_path.forward(network, inputs).numpy())
    for player in (players.tflite_player(content), players.micro_player(content)):
        found = player(inputs)
        assert found.dtype == np.int64
        assert agreement.compare(expected, found).alike > 0.93
        own = acting_path.to_actions(network, player.output(inputs))
        np.testing.assert_array_equal(found, own)


def test_outputs_of_discrete_actions_are_less_their_mean():
    network, inputs, _, content = case("relu", 100)
    full = acting_path.forward(network, inputs).numpy()
    outputs = players.tflite_player(content).output(inputs)
    np.testing.assert_allclose(
        outputs, full - full.mean(axis=1, keepdims=True), atol=0.05 * np.ptp(full)
    )
    # A summand of all outputs costs no precision.
    last = network.with_weights()[-1][1]
    with torch.no_grad():
        last.bias += 100.0
    moved = export(network, ranges_of(network, inputs))
    after = players.tflite_player(moved).output(inputs)
    assert np.mean(np.abs(after - outputs) < 1e-3) > 0.98


def test_bounds_of_any_size_are_reached():
    network = reference.dense(nn.ReLU, head="clip", sizes=(6, 16, 3))
    network = network._replace(
        low=np.array([-1e-3, -5.0, 100.0], np.float32), high=np.array([0.0, 1.0, 300], np.float32)
    )
    inputs = 5 * reference.observations(network)
    acted = players.tflite_player(export(network, ranges_of(network, inputs)))(inputs)
    full = acting_path.to_actions(network, acting_path.forward(network, inputs).numpy())
    assert agreement.compare(full, acted, network.low, network.high).holds
    for end in (network.low, network.high):
        at_end = full == end
        np.testing.assert_array_equal(acted[at_end], full[at_end])
        assert at_end.any()


def test_quantiles_are_a_part_of_the_last_layer():
    dense = reference.dense(nn.ReLU, sizes=(6, 16, 15))
    network = dense._replace(
        layers=(*dense.layers, ("mean", acting_layers.QuantileMean(3)))
    )
    inputs = reference.observations(network, 300)
    content = export(network, ranges_of(network, inputs))
    expected = acting_path.forward(network, inputs).numpy().argmax(axis=1)
    assert (players.tflite_player(content)(inputs) == expected).mean() > 0.93


def test_weights_of_zeros_keep_their_biases():
    network = reference.dense(nn.ReLU, sizes=(6, 16, 3))
    first = network.with_weights()[0][1]
    with torch.no_grad():
        first.weight[:8] = 0.0
        first.weight[8] *= 1e-7
        first.bias[:9] = torch.linspace(0.5, 2, 9)
    inputs = reference.observations(network, 300)
    ranges = ranges_of(network, inputs)
    content = export(network, ranges)
    simulated = reference.simulate_micro(network, inputs, ranges)
    np.testing.assert_allclose(
        players.tflite_player(content).output(inputs), simulated, atol=0.02 * np.ptp(simulated)
    )


def test_integers_of_a_training_stay_where_int8_holds_them():
    network = reference.dense(nn.ReLU)
    steps = {}
    for name, module in network.with_weights():
        with torch.no_grad():
            module.weight[0] += 0.7  # Its integers reach farther than 127 steps from zero.
        stored = quantization.quantize_affine(module.weight.detach().numpy(), 8)
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(quantization.dequantize(stored)))
        steps[name] = stored.scale
    inputs = reference.observations(network)
    content = export(network, ranges_of(network, inputs), steps=steps)
    made, found = opened(content), details_by_name(content)
    kept = 0
    for name, module in network.with_weights()[:-1]:
        scales = found[f"{name}.weight"]["quantization_parameters"]["scales"]
        integers = made.get_tensor(found[f"{name}.weight"]["index"]).astype(np.float64)
        same = scales == steps[name]
        np.testing.assert_allclose(
            (integers * scales[:, None])[same], module.weight.detach().numpy()[same], rtol=1e-6
        )
        kept += same.sum()
        assert not same[0] and same.any()
    assert kept > 40


def test_the_player_normalizes_by_the_metadata():
    network, inputs, _, _ = case("relu")
    rng = np.random.default_rng(3)
    normalization = zoo_files.Normalization(
        rng.standard_normal(6), rng.uniform(0.1, 4, 6), 10.0, 1.5, 1e-8
    )
    ranges = ranges_of(network, normalization(inputs))
    outside = players.tflite_player(export(network, ranges))
    inside = players.tflite_player(export(network, ranges, normalization=normalization))
    expected = outside.output(normalization(inputs))
    # Two ways to round may meet on two sides of a level's edge.
    assert np.mean(inside.output(inputs) == expected) > 0.97
    assert inside.metadata["normalization"]["clip"] == [1.5] * 6
    unclipped = normalization._replace(clip=np.inf)
    far = players.tflite_player(export(network, ranges, normalization=unclipped))
    assert "Infinity" not in str(far.metadata) and far.output(inputs).shape == (400, 4)


def test_the_file_says_what_it_is():
    network, _, ranges, content = case("elu, continuous")
    assert content == export(network, ranges)
    metadata = players.tflite_player(content).metadata
    assert metadata["kernels"] == "micro" and metadata["bits"] == 8
    assert metadata["layer_bits"] == {name: 8 for name, _ in network.with_weights()}
    np.testing.assert_allclose(metadata["low"], network.low)
    assert opened(content).get_signature_list() == {
        "serving_default": {"inputs": ["observation"], "outputs": ["action"]}
    }


def with_layers(*layers, network=None):
    network = network or reference.dense(nn.ReLU)
    return network._replace(layers=(*network.layers[:2], *layers, *network.layers[2:]))


UNBOUNDED = np.full(4, np.inf, np.float32)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (with_layers(("odd", nn.SiLU())), "Layer odd, SiLU.*no form in int8"),
        (with_layers(("odd", nn.LayerNorm(32))), "Layer odd, LayerNorm"),
        (with_layers(("odd", nn.ELU(0.5))), "Layer odd, ELU"),
        (with_layers(("odd", nn.Hardtanh(-2.0, 2.0))), "Layer odd, Hardtanh"),
        (with_layers(("one", nn.Tanh()), ("odd", nn.Tanh())), "Layer odd, Tanh"),
        (reference.dense()._replace(sources={"layer_1": ("layer_0",)}), "Layer layer_1, Linear"),
        (reference.dense(head="clip")._replace(high=UNBOUNDED), "without bounds have no form"),
        (
            acting_path.PolicyNetwork((("f", nn.Flatten()),), "argmax"),
            "no layer with weights",
        ),
    ],
)
def test_what_has_no_form_is_refused_with_the_way_out(network, message):
    with pytest.raises(errors.UserError, match=message) as refused:
        tflite_micro.export(network, {})
    assert "--tflite_kernels=exact" in str(refused.value) or "no layer" in message


def test_ranges_that_do_not_fit_are_refused():
    network, inputs, ranges, _ = case("relu")
    for change, message in (
        ({"layer_1": (0.0, float("nan"))}, "Activations of layer_1: .*NaN"),
        ({"layer_1": (0.0, 1.0, 4)}, "8 bits, and the input of layer_1 has 4"),
    ):
        with pytest.raises(errors.UserError, match=message):
            export(network, {**ranges, **change})
    del ranges[acting_path.OUTPUT]
    with pytest.raises(errors.UserError, match="no range for the output"):
        export(network, ranges)
    groups = acting_path.PolicyNetwork(
        (("c", nn.Conv2d(3, 3, 3, groups=3)), ("f", nn.Flatten()), ("l", nn.Linear(972, 2))),
        "argmax", image=True,
    )
    with pytest.raises(errors.UserError, match="Layer c, Conv2d.*groups=3"):
        export(groups, {})
    small, _, image_ranges, _ = case("images", 2)
    with pytest.raises(errors.UserError, match="Images of 2 x 20 are too small for conv_0"):
        tflite_micro.export(small, image_ranges, image_size=(2, 20))


def test_natures_network_acts_as_simulated():
    network = reference.nature_cnn()
    inputs = reference.scenes(10)
    ranges = ranges_of(network, inputs)
    content = tflite_micro.export(network, ranges, image_size=(84, 84))
    simulated = reference.simulate_micro(network, inputs, ranges)
    found = players.tflite_player(content).output(inputs)
    np.testing.assert_allclose(found, simulated, atol=0.02 * np.ptp(simulated))
    weights = sum(module.weight.numel() for _, module in network.with_weights())
    assert len(content) < 1.05 * weights


# The kernels round a product in two steps, and the simulation in floats rounds once. That changes
# some actions of agents whose actions are nearly as good as each other, or jump.
SENSITIVE = {
    "ddpg/HopperBulletEnv-v0": 0.95, "dqn/CartPole-v1": 0.97, "dqn/LunarLander-v2": 0.95,
    "dqn/MountainCar-v0": 0.97,
}
AGENTS = [
    f"{path.parent.name}/{path.name.removesuffix('_1')}"
    for path in sorted(trained_agents.FOLDER.glob("*/*_1"))
]


@pytest.mark.parametrize("name", AGENTS)
def test_agents_of_the_zoo_act_as_simulated(name):
    agent = loading.load(str(trained_agents.FOLDER / f"{name}_1"))
    network = agent.network
    ranges = calibration.ranges(agent, 1)
    made = tflite_micro.prepared(network)
    states = agreement.visited_states(agent.make_env, agent.act, 1, 1, 300)
    inputs = agent.normalize(states)
    ranges[acting_path.OUTPUT] = reference.calibrate(made, inputs)[acting_path.OUTPUT]
    content = tflite_micro.export(network, ranges, normalization=agent.normalization)
    acted = players.micro_player(content)(states)

    def like(outputs):
        expected = actions_of(network, outputs).astype(acted.dtype)
        return agreement.compare(expected, acted, network.low, network.high)

    integers = like(output_of(content, in_integers(content, input_levels(content, inputs))))
    assert integers.holds, str(integers)
    floats = like(reference.simulate_micro(network, inputs, ranges))
    assert floats.alike >= SENSITIVE.get(name, agreement.LEAST_SHARE), str(floats)
