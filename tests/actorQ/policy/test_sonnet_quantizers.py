"""The learner's fake quantizer against the actors' own: integers, scales, outputs and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy import reference
from actorQ.policy import sonnet_policy
from actorQ.policy import sonnet_quantizers
from tests.actorQ.policy.native import test_kernels

ARCHITECTURES = test_kernels.ARCHITECTURES
EACH = pytest.mark.parametrize("name", ARCHITECTURES)
BITS = [16, 8, 4, 3]


def make_policy(architecture, bits, mode="native"):
    """Returns a policy with random weights that computes through the quantizer."""
    policy = sonnet_policy.Policy(
        architecture, quantizer=sonnet_quantizers.make(bits, mode)
    )
    weights = test_kernels.make_weights(architecture)
    policy.assign(weights)
    return policy, weights


@pytest.mark.parametrize("bits", BITS)
@EACH
def test_weights_have_the_actors_integers_and_scales(name, bits):
    policy, weights = make_policy(ARCHITECTURES[name], bits)
    actors = forms.expand(forms.to_actor_form(weights, 0, bits))
    for layer in (*policy._convolutions, *policy._linears):
        numbers = policy._quantizer.weights(layer).numpy()
        axes = (3, 2, 0, 1) if numbers.ndim == 4 else (1, 0)
        tensor = actors[f"{layer.name}.weight"]
        numbers = numbers.transpose(axes)
        np.testing.assert_array_equal(numbers, model_update.to_float32(tensor))
        if bits <= 8:
            scale = tensor.scale
            if scale.ndim == 2:
                scale = np.repeat(scale, quantization.INT4_GROUP, axis=1)[:, : numbers.shape[1]]
            else:
                scale = scale.reshape(-1, *[1] * (numbers.ndim - 1))
            np.testing.assert_array_equal(np.rint(numbers / scale), tensor.values)


@pytest.mark.parametrize("bits", [8, 4, 3])
def test_weights_without_range_and_with_a_huge_one_are_the_actors(bits):
    architecture = architecture_lib.PolicyArchitecture((130,), (3,), 2, architecture_lib.TANH_HEAD)
    policy, weights = make_policy(architecture, bits)
    matrix = weights["linear_0.weight"]
    matrix[0] = 0.0
    matrix[1, :64] = 1e-42  # Below the smallest normal number.
    matrix[1, 64:] = 2.5
    matrix[2] *= 1e30
    policy.assign(weights)
    tensor = forms.expand(forms.to_actor_form(weights, 0, bits))["linear_0.weight"]
    numbers = policy._quantizer.weights(policy._linears[0]).numpy().T
    np.testing.assert_array_equal(numbers, model_update.to_float32(tensor))


@pytest.mark.parametrize("bits", BITS)
@EACH
def test_learners_policy_is_the_one_that_native_actors_compute(name, bits):
    architecture = ARCHITECTURES[name]
    policy, weights = make_policy(architecture, bits)
    observations = test_kernels.make_observations(architecture, 20)
    learned = policy(tf.constant(observations)).numpy()
    backend = inference.make_backend(architecture, bits, "native")
    inference.load_weights(backend, weights, bits)
    acted = np.concatenate([backend(each[None]) for each in observations])
    # A last bit of a product may round an input to its neighbour, one step of 127 or 255.
    np.testing.assert_allclose(learned, acted, atol=5e-3)
    assert np.median(np.abs(learned - acted)) < 2e-6
    exact = reference.forward(architecture, weights, observations)
    if bits < 16 and name != "tiny":  # A single weight is its own scale times 127, 7 or 3.
        assert np.median(np.abs(learned - acted)) < 0.01 * np.median(np.abs(learned - exact))


@EACH
def test_learners_policy_is_the_one_that_torchs_int8_actors_compute(name):
    architecture = ARCHITECTURES[name]
    policy, weights = make_policy(architecture, 8, "pytorch")
    observations = test_kernels.make_observations(architecture, 20)
    learned = policy(tf.constant(observations)).numpy()
    acted = reference.forward(
        architecture, forms.expand(forms.to_actor_form(weights, 0, 8)), observations,
        reference.Activations.AFFINE_7_BITS, together=1,
    )
    np.testing.assert_allclose(learned, acted, atol=5e-3)
    assert np.median(np.abs(learned - acted)) < 1e-5


@pytest.mark.parametrize("bits", [8, 4, 3])
@EACH
def test_learners_policy_is_the_one_that_tensorflows_actors_compute(name, bits):
    architecture = ARCHITECTURES[name]
    policy, weights = make_policy(architecture, bits, "tensorflow")
    observations = test_kernels.make_observations(architecture, 20)
    backend = inference.make_backend(architecture, bits, "tensorflow", batch=20)
    inference.load_weights(backend, weights, bits)
    np.testing.assert_allclose(
        policy(tf.constant(observations)).numpy(), backend(observations), atol=1e-5
    )


@pytest.mark.parametrize("small", [0.0, 1e-35])
@pytest.mark.parametrize("levels", [127, 255])
def test_inputs_have_the_actors_integers(small, levels):
    rng = np.random.default_rng(0)
    inputs = np.abs(rng.normal(size=(50, 30))).astype(np.float32)
    inputs[0] = small
    integers, scale = reference.quantize_activations(inputs, unsigned=levels == 255)
    found = sonnet_quantizers._to_symmetric(tf.constant(inputs), float(levels)).numpy()
    np.testing.assert_array_equal(found, integers.astype(np.float32) * scale[:, None])


@pytest.mark.parametrize("mode", ["native", "pytorch", "tensorflow"])
def test_gradients_pass_the_quantizer_unchanged(mode):
    bits = 8 if mode == "pytorch" else 4
    architecture = architecture_lib.PolicyArchitecture((70,), (5,), 2, architecture_lib.TANH_HEAD)
    policy, _ = make_policy(architecture, bits, mode)
    layer, quantizer = policy._linears[0], policy._quantizer
    inputs = tf.Variable(np.random.default_rng(0).normal(size=(4, 70)).astype(np.float32))
    upstream = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(quantizer.linear(layer, inputs, False) * upstream)
    of_weights, of_bias, of_inputs = tape.gradient(loss, [layer.w, layer.b, inputs])
    # The product's own gradients are those of the quantized numbers.
    quantized = quantizer._inputs(inputs.read_value(), unsigned=False).numpy()
    np.testing.assert_allclose(of_weights, quantized.T @ upstream, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        of_inputs, upstream @ quantizer.weights(layer).numpy().T, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(of_bias, upstream.sum(0), rtol=1e-5)


@EACH
def test_policy_without_quantizer_computes_as_ever(name):
    architecture = ARCHITECTURES[name]
    assert sonnet_quantizers.make(32, "native") is None
    policy, _ = make_policy(architecture, 32)
    observations = tf.constant(test_kernels.make_observations(architecture, 7))
    hidden = observations
    if architecture.pixels:
        hidden = tf.cast(hidden, tf.float32) / 255.0
        for layer in policy._convolutions:
            hidden = tf.nn.relu(layer(hidden))
        hidden = tf.reshape(hidden, (7, -1))
    for layer in policy._linears[:-1]:
        hidden = tf.tanh(layer(hidden))
    hidden = policy._linears[-1](hidden)
    if architecture.head == architecture_lib.TANH_HEAD:
        hidden = tf.tanh(hidden)
    np.testing.assert_array_equal(policy(observations).numpy(), hidden.numpy())
    graph = tf.function(policy).get_concrete_function(observations).graph
    assert not {operation.type for operation in graph.get_operations()} & {"Round", "Rint"}
