"""Tests `torch_policy`, its twin `sonnet_policy`, and `inference` on top of both."""

import os
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow as tf
import torch

from actorQ.environments import base
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import quantization
from actorQ.policy import sonnet_policy
from actorQ.policy import tensorflow_device
from actorQ.policy import torch_policy as policies
from actorQ.wire import messages

ARCHITECTURES = {
    "vector_tanh": architecture_lib.PolicyArchitecture((11,), (32, 24), 3, "tanh"),
    "vector_q": architecture_lib.PolicyArchitecture((4,), (16, 16, 16), 5, "q_values"),
    "pixel_tanh": architecture_lib.PolicyArchitecture((84, 84, 4), (32,), 3, "tanh"),
    "pixel_q": architecture_lib.PolicyArchitecture((84, 84, 4), (32,), 6, "q_values"),
}
IDS = list(ARCHITECTURES)


def random_weights(architecture, seed=0):
    """Random normal weights everywhere: the head's near-zero start would hide any mismatch."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in architecture.parameter_shapes.items():
        scale = 0.3 if len(shape) == 1 else 1.0 / np.sqrt(np.prod(shape[1:]))
        weights[name] = (scale * rng.normal(size=shape)).astype(np.float32)
    return weights


def random_observations(architecture, count=8, seed=0):
    rng = np.random.default_rng([seed, 1])
    if architecture.pixels:
        return rng.integers(0, 256, (count, *architecture.observation_shape), np.uint8)
    return rng.normal(size=(count, *architecture.observation_shape)).astype(np.float32)


def torch_policy(architecture, weights, quantize=32, communication=32):
    """A policy as an actor has it after a message."""
    policy = policies.make_policy(architecture, quantize)
    update = forms.to_actor_form(weights, 0, quantize, communication)
    received = messages.decode(*messages.encode(update))
    state = policies.StateDictTemplate(policy).fill(forms.expand(received))
    policy.load_state_dict(state)
    return policy


def torch_outputs(policy, observations):
    with torch.inference_mode():
        return policy(torch.from_numpy(observations)).numpy()


def numpy_outputs(architecture, weights, observations):
    """The documented function in float64, by loops over the kernel for convolutions."""
    hidden = observations.astype(np.float64)
    if architecture.pixels:
        hidden /= 255.0
        for name, _, filters, kernel, stride in architecture.convolutions:
            weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            size = (hidden.shape[1] - kernel) // stride + 1
            output = np.zeros((len(hidden), size, size, filters)) + bias
            for row in range(kernel):
                for column in range(kernel):
                    patch = hidden[:, row : row + stride * size : stride,
                                   column : column + stride * size : stride]
                    output += patch @ weight[:, :, row, column].T.astype(np.float64)
            hidden = np.maximum(output, 0.0)
        hidden = hidden.reshape(len(hidden), -1)
    for name, _, _ in architecture.linears:
        hidden = hidden @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"]
        if name != "head" or architecture.head == "tanh":
            hidden = np.tanh(hidden)
    return hidden


# --- The architecture ---


def test_architecture_pixels_has_the_layers_of_mnih_2015():
    architecture = ARCHITECTURES["pixel_q"]
    assert architecture.parameter_shapes == {
        "conv_0.weight": (32, 4, 8, 8), "conv_0.bias": (32,),
        "conv_1.weight": (64, 32, 4, 4), "conv_1.bias": (64,),
        "conv_2.weight": (64, 64, 3, 3), "conv_2.bias": (64,),
        "linear_0.weight": (32, 7 * 7 * 64), "linear_0.bias": (32,),
        "head.weight": (6, 32), "head.bias": (6,),
    }


@pytest.mark.parametrize("name", IDS)
def test_architecture_json_round_trips(name):
    architecture = ARCHITECTURES[name]
    back = architecture_lib.PolicyArchitecture.from_json(architecture.to_json())
    assert back == architecture
    assert hash(back) == hash(architecture)


def test_architecture_make_chooses_the_head_by_the_actions():
    discrete = base.EnvironmentSpec((4,), np.dtype(np.float32), num_actions=3)
    assert architecture_lib.make(discrete, (8,)) == architecture_lib.PolicyArchitecture(
        (4,), (8,), 3, "q_values"
    )
    low = np.full(2, -1, np.float32)
    continuous = base.EnvironmentSpec((4,), np.dtype(np.float32), None, low, -low)
    assert architecture_lib.make(continuous, (8,)) == architecture_lib.PolicyArchitecture(
        (4,), (8,), 2, "tanh"
    )


# --- Twins ---


@pytest.mark.parametrize("name", IDS)
def test_policies_with_random_weights_torch_equals_tensorflow(name):
    architecture = ARCHITECTURES[name]
    weights = random_weights(architecture)
    observations = random_observations(architecture)
    sonnet = sonnet_policy.Policy(architecture)
    sonnet.assign(weights)
    by_tensorflow = sonnet(tf.constant(observations)).numpy()
    by_torch = torch_outputs(torch_policy(architecture, weights), observations)
    np.testing.assert_allclose(by_torch, by_tensorflow, atol=1e-5, rtol=1e-5)
    by_numpy = numpy_outputs(architecture, weights, observations)
    np.testing.assert_allclose(by_torch, by_numpy, atol=1e-5, rtol=1e-5)
    assert by_torch.shape == (8, architecture.num_outputs)
    assert by_torch.dtype == np.float32
    assert by_torch.std(axis=0).min() > 1e-3  # Far from a constant, which any twin could match.


@pytest.mark.parametrize("name", IDS)
def test_policies_weights_learner_to_actor_arrive_unchanged(name):
    # The way of a real run: Sonnet's own variables, by name, over both hops.
    architecture = ARCHITECTURES[name]
    sonnet = sonnet_policy.Policy(architecture)
    rng = np.random.default_rng(5)
    for variable in sonnet.variables:
        variable.assign(rng.normal(size=variable.shape) / np.sqrt(np.prod(variable.shape[:-1])))
    variables = {key: variable.numpy() for key, variable in sonnet.named_variables().items()}
    weights = forms.from_sonnet(variables)
    assert {key: array.shape for key, array in weights.items()} == architecture.parameter_shapes
    observations = random_observations(architecture)
    by_torch = torch_outputs(torch_policy(architecture, weights), observations)
    by_tensorflow = sonnet(tf.constant(observations)).numpy()
    np.testing.assert_allclose(by_torch, by_tensorflow, atol=1e-5, rtol=1e-5)


def test_networks_assign_undoes_from_sonnet():
    architecture = ARCHITECTURES["pixel_q"]
    first, second = sonnet_policy.Policy(architecture), sonnet_policy.Policy(architecture)
    variables = {key: value.numpy() for key, value in first.named_variables().items()}
    second.assign(forms.from_sonnet(variables))
    for key, variable in second.named_variables().items():
        np.testing.assert_array_equal(variable.numpy(), variables[key])


def test_networks_named_variables_are_all_there_are():
    policy = sonnet_policy.Policy(ARCHITECTURES["pixel_tanh"])
    named = policy.named_variables()
    assert list(named)[:2] == ["conv_0/w", "conv_0/b"]
    assert list(named)[-2:] == ["head/w", "head/b"]
    assert {id(v) for v in named.values()} == {id(v) for v in policy.trainable_variables}


def test_networks_layers_of_one_shape_start_different():
    variables = sonnet_policy.Policy(
        architecture_lib.PolicyArchitecture((16,), (16, 16, 16), 2, "tanh")
    ).named_variables()
    layers = [variables[f"linear_{index}/w"].numpy() for index in range(3)]
    for index, first in enumerate(layers):
        for second in layers[index + 1 :]:
            assert np.abs(first - second).max() > 1e-3


def test_networks_two_policies_start_different():
    first, second = (sonnet_policy.Policy(ARCHITECTURES["vector_q"]) for _ in range(2))
    for key in ("linear_1/w", "head/w"):
        assert np.any(first.named_variables()[key] != second.named_variables()[key])


def test_networks_equal_tensorflow_seed_gives_equal_weights():
    drawn = []
    for seed in (3, 3, 4):
        tf.random.set_seed(seed)
        policy = sonnet_policy.Policy(ARCHITECTURES["vector_q"])
        drawn.append({key: value.numpy() for key, value in policy.named_variables().items()})
    for key, array in drawn[0].items():
        np.testing.assert_array_equal(array, drawn[1][key])
    assert np.any(drawn[0]["linear_1/w"] != drawn[2]["linear_1/w"])


def test_networks_first_q_values_are_no_linear_function():
    # With weights as small as those of D4PG's policy, tanh is the identity and MountainCar wants
    # several times as many learner steps.
    tf.random.set_seed(0)
    architecture = architecture_lib.PolicyArchitecture((2,), (256,) * 3, 3, "q_values")
    network = sonnet_policy.Policy(architecture)
    observations = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)
    values = network(observations).numpy()
    inputs = np.column_stack([observations, np.ones(500)])
    linear = inputs @ np.linalg.lstsq(inputs, values, rcond=None)[0]
    assert 0.1 < values.std() < 2
    assert (values - linear).std() > 0.05 * values.std()


def test_networks_first_actions_are_near_the_middle():
    architecture = ARCHITECTURES["vector_tanh"]
    actions = sonnet_policy.Policy(architecture)(random_observations(architecture)).numpy()
    assert np.abs(actions).max() < 0.05


@pytest.mark.parametrize(("inverting", "expected"), [
    # Outputs before the tanh: far at the upper bound, in the middle, far at the lower bound.
    (False, {"up": [0, 1, 0], "down": [0, 1, 0]}),
    (True, {"up": [0, 0.5, 1], "down": [1, 0.5, 0]}),
], ids=["tanh", "inverting"])
def test_networks_gradients_leave_a_bound_only_where_they_are_inverted(inverting, expected):
    policy = sonnet_policy.Policy(ARCHITECTURES["vector_tanh"], invert_gradients=inverting)
    bias = policy.named_variables()["head/b"]
    bias.assign([20.0, 0.0, -20.0])
    observations = np.zeros((1, 11), np.float32)  # Nothing comes through the weights: no bias yet.
    for wish, sign in (("up", -1.0), ("down", 1.0)):  # The optimizer descends.
        with tf.GradientTape() as tape:
            actions = policy(observations)
            loss = sign * tf.reduce_sum(actions)
        np.testing.assert_allclose(actions.numpy(), [[1, 0, -1]], atol=1e-6)
        gradient = tape.gradient(loss, bias).numpy()
        np.testing.assert_allclose(gradient, sign * np.array(expected[wish]), atol=1e-6)


# --- Quantized policies ---


@pytest.mark.parametrize(
    ("quantize", "bound"), [(16, 0.005), (8, 0.1)], ids=["fp16", "int8"]
)
@pytest.mark.parametrize("name", IDS)
def test_make_policy_quantized_is_close_to_fp32_but_not_equal(name, quantize, bound):
    architecture = ARCHITECTURES[name]
    weights = random_weights(architecture)
    observations = random_observations(architecture, 32)
    exact = torch_outputs(torch_policy(architecture, weights), observations)
    rough = torch_outputs(torch_policy(architecture, weights, quantize), observations)
    difference = np.abs(rough - exact).max()
    assert 0.0 < difference < bound * max(1.0, np.abs(exact).max())


@pytest.mark.parametrize("quantize", [32, 16, 8])
def test_load_state_dict_new_weights_change_the_outputs(quantize):
    architecture = ARCHITECTURES["vector_tanh"]
    observations = random_observations(architecture)
    policy = policies.make_policy(architecture, quantize)
    template = policies.StateDictTemplate(policy)
    seen = [torch_outputs(policy, observations)]
    for seed in (1, 2, 1):
        update = forms.to_actor_form(random_weights(architecture, seed), seed, quantize)
        policy.load_state_dict(template.fill(forms.expand(update)))
        seen.append(torch_outputs(policy, observations))
    assert np.abs(seen[0] - seen[1]).max() > 0.1
    assert np.abs(seen[1] - seen[2]).max() > 0.1
    np.testing.assert_array_equal(seen[1], seen[3])  # Nothing of the second is left.


@pytest.mark.parametrize(("quantize", "dtype"), [(16, torch.float16), (8, torch.qint8)])
def test_make_policy_every_linear_layer_is_dynamically_quantized(quantize, dtype):
    architecture = ARCHITECTURES["pixel_q"]
    weights = random_weights(architecture)
    policy = torch_policy(architecture, weights, quantize)
    layers = dict(policy.named_children())
    for name, _, _ in architecture.linears:
        assert type(layers[name]) is torch.ao.nn.quantized.dynamic.Linear
        assert layers[name]._packed_params.dtype == dtype
    for name, *_ in architecture.convolutions:
        assert type(layers[name]) is torch.nn.Conv2d


def test_make_policy_int8_weights_are_the_message_per_channel():
    architecture = ARCHITECTURES["vector_tanh"]
    weights = random_weights(architecture)
    policy = torch_policy(architecture, weights, 8)
    for name, _, _ in architecture.linears:
        loaded = policy.get_submodule(name).weight()
        sent = quantization.quantize_int8_channels(weights[f"{name}.weight"])
        assert loaded.dtype == torch.qint8
        assert loaded.qscheme() == torch.per_channel_affine
        assert loaded.q_per_channel_axis() == 0
        np.testing.assert_array_equal(loaded.int_repr().numpy(), sent.values)
        np.testing.assert_array_equal(loaded.q_per_channel_scales().numpy(), sent.scale)
        assert not loaded.q_per_channel_zero_points().any()
        bias = policy.get_submodule(name).bias()
        np.testing.assert_array_equal(bias.detach().numpy(), weights[f"{name}.bias"])


def test_make_policy_fp16_weights_are_rounded_to_half_precision():
    architecture = ARCHITECTURES["vector_tanh"]
    weights = random_weights(architecture)
    policy = torch_policy(architecture, weights, 16)
    loaded = policy.get_submodule("linear_0").weight().detach().numpy()
    np.testing.assert_array_equal(loaded, weights["linear_0.weight"].astype(np.float16))


def test_make_policy_fp16_computes_with_rounded_weights_in_fp32():
    architecture = ARCHITECTURES["vector_q"]
    weights = random_weights(architecture)
    rounded = {
        name: array.astype(np.float16).astype(np.float32) if array.ndim > 1 else array
        for name, array in weights.items()
    }
    observations = random_observations(architecture)
    outputs = torch_outputs(torch_policy(architecture, weights, 16), observations)
    expected = numpy_outputs(architecture, rounded, observations)
    np.testing.assert_allclose(outputs, expected, atol=1e-5, rtol=1e-5)


def int8_layer(hidden, weight, bias):
    """torch's dynamic int8 layer for one observation, in numpy.

    The activations get 7 bits, not 8: fbgemm's `reduce_range` keeps 16-bit sums from saturating.
    """
    low, high = min(float(hidden.min()), 0.0), max(float(hidden.max()), 0.0)
    scale = np.float32((high - low) / 127)
    zero_point = np.rint(-low / scale)
    activations = np.clip(np.rint(hidden / scale) + zero_point, 0, 255).astype(np.int64)
    sums = (activations - int(zero_point)) @ weight.values.T.astype(np.int64)
    return sums * (np.float64(scale) * weight.scale) + bias


@pytest.mark.parametrize("communication", [32, 4])
@pytest.mark.parametrize("seed", range(3))
def test_make_policy_int8_equals_integer_arithmetic_in_numpy(seed, communication):
    architecture = ARCHITECTURES["vector_q"]
    weights = random_weights(architecture, seed)
    policy = torch_policy(architecture, weights, 8, communication)
    tensors = forms.expand(forms.to_actor_form(weights, 0, 8, communication))
    close = []
    for observation in random_observations(architecture, 20, seed):
        hidden = observation.astype(np.float64)
        for name, _, _ in architecture.linears:
            hidden = int8_layer(hidden, tensors[f"{name}.weight"], tensors[f"{name}.bias"])
            if name != "head":
                hidden = np.tanh(hidden).astype(np.float32).astype(np.float64)
        outputs = torch_outputs(policy, observation[None])[0]
        # An activation on a rounding edge may fall to the other side: one step of about 1/64.
        np.testing.assert_allclose(outputs, hidden, atol=0.05)
        close.append(np.allclose(outputs, hidden, atol=2e-5))
    assert np.mean(close) >= 0.8


@pytest.mark.parametrize("quantize", [16, 8])
def test_make_policy_convolutions_compute_with_rounded_weights(quantize):
    architecture = ARCHITECTURES["pixel_q"]
    weights = random_weights(architecture)
    policy = torch_policy(architecture, weights, quantize)
    loaded = policy.get_submodule("conv_1").weight.detach().numpy()
    weight = weights["conv_1.weight"]
    if quantize == 16:
        expected = weight.astype(np.float16).astype(np.float32)
    else:
        scale = np.abs(weight).max(axis=(1, 2, 3), keepdims=True) / np.float32(127)
        expected = np.rint(weight / scale) * scale
    np.testing.assert_allclose(loaded, expected, rtol=1e-6)


@pytest.mark.parametrize("quantize", [32, 16, 8])
def test_state_dict_template_has_the_keys_of_the_policy(quantize):
    architecture = ARCHITECTURES["pixel_tanh"]
    policy = policies.make_policy(architecture, quantize)
    update = forms.to_actor_form(random_weights(architecture), 0, quantize)
    state = policies.StateDictTemplate(policy).fill(forms.expand(update))
    assert list(state) == list(policy.state_dict())


def test_state_dict_template_missing_weights_raise():
    architecture = ARCHITECTURES["vector_tanh"]
    template = policies.StateDictTemplate(policies.make_policy(architecture, 32))
    tensors = random_weights(architecture)
    del tensors["linear_1.bias"]
    with pytest.raises(KeyError, match="linear_1.bias"):
        template.fill(tensors)


# --- Inference backends ---


@pytest.mark.parametrize("name", ["vector_tanh", "vector_q", "pixel_q"])
def test_all_backends_agree_at_32_bits(name):
    architecture = ARCHITECTURES[name]
    weights = random_weights(architecture)
    backends = [inference.make_backend(architecture, 32, mode, batch=4) for mode in
                ("pytorch", "tensorflow", "native")]
    assert isinstance(backends[0], inference.TorchInference)
    assert isinstance(backends[1], inference.TensorFlowInference)
    assert isinstance(backends[2], inference.NativeInference)
    observations = random_observations(architecture, 4)
    expected = numpy_outputs(architecture, weights, observations)
    for backend in backends:
        inference.load_weights(backend, weights, 32)
        outputs = backend(observations)
        assert outputs.shape == (4, architecture.num_outputs)
        assert outputs.dtype == np.float32
        np.testing.assert_allclose(outputs, expected, atol=1e-5, rtol=1e-5)
        assert backend.types == dict.fromkeys(architecture.layer_names, "float32")


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_tensorflow_inference_chooses_its_device(monkeypatch, device):
    # What the learner and its peers do: a GPU that is too new for TensorFlow is left, and without
    # --actor_device_placement=GPU there is none.
    choose = mock.Mock()
    monkeypatch.setattr(tensorflow_device, "choose", choose)
    backend = inference.make_backend(ARCHITECTURES["vector_q"], 32, "tensorflow", device)
    choose.assert_called_once_with(device == "GPU", "inference")
    assert isinstance(backend, inference.TensorFlowInference)


@pytest.mark.parametrize("quantize", [16, 8])
def test_tensorflow_inference_is_fp32_arithmetic_on_dequantized_weights(quantize):
    architecture = ARCHITECTURES["vector_tanh"]
    weights = random_weights(architecture)
    backend = inference.make_backend(architecture, quantize, "tensorflow")
    inference.load_weights(backend, weights, quantize)
    coarse = {}
    for name, array in weights.items():
        if array.ndim == 1:
            coarse[name] = array
        elif quantize == 16:
            coarse[name] = array.astype(np.float16)
        else:
            scale = np.abs(array).max(axis=1, keepdims=True) / np.float32(127)
            coarse[name] = np.rint(array / scale) * scale
    observations = random_observations(architecture)
    outputs = np.concatenate([backend(observation[None]) for observation in observations])
    expected = numpy_outputs(architecture, coarse, observations)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    exact = numpy_outputs(architecture, weights, observations)
    assert np.abs(outputs - exact).max() > 1e-4


@pytest.mark.parametrize("mode", ["pytorch", "tensorflow", "native"])
def test_backend_load_twice_computes_with_the_newer_weights(mode):
    architecture = ARCHITECTURES["vector_q"]
    backend = inference.make_backend(architecture, 32, mode)
    observation = random_observations(architecture, 1)
    for seed in (1, 2):
        weights = random_weights(architecture, seed)
        inference.load_weights(backend, weights, 32)
        expected = numpy_outputs(architecture, weights, observation)
        np.testing.assert_allclose(backend(observation), expected, atol=1e-5)


@pytest.fixture
def three_torch_threads():
    """Gives torch three threads, and later as many as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("three_torch_threads")
def test_backends_leave_the_threads_of_their_process_alone():
    for mode in ("pytorch", "tensorflow", "native"):
        inference.make_backend(ARCHITECTURES["vector_q"], 32, mode)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_torch_threads")
def test_use_one_thread_is_for_the_backend_that_is_used():
    inference.use_one_thread("native")
    assert torch.get_num_threads() == 3
    inference.use_one_thread("pytorch")
    assert torch.get_num_threads() == 1


def test_torch_inference_without_a_gpu_goes_on_with_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    architecture = ARCHITECTURES["vector_q"]
    backend = inference.TorchInference(architecture, 16, "GPU")
    weights = random_weights(architecture)
    inference.load_weights(backend, weights, 16)
    observation = random_observations(architecture, 1)
    expected = numpy_outputs(architecture, weights, observation)
    np.testing.assert_allclose(backend(observation), expected, atol=0.01)
