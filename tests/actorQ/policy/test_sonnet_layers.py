"""Tests `actorQ.policy.sonnet_layers` and the precisions of `actorQ.policy.sonnet_policy`."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from acme.tf import networks as acme_networks
import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_layers
from actorQ.policy import sonnet_policy

ARCHITECTURES = {
    "vector": architecture_lib.PolicyArchitecture((17,), (128, 128), 6, "tanh"),
    "pixels": architecture_lib.PolicyArchitecture((44, 44, 2), (64,), 4, "q_values"),
}


def randomize(module, seed=0):
    rng = np.random.default_rng(seed)
    for variable in module.variables:
        fan_in = max(1, int(np.prod(variable.shape[:-1])))
        variable.assign(rng.normal(size=variable.shape) / np.sqrt(fan_in))


def observations(architecture, count=32):
    rng = np.random.default_rng(1)
    if architecture.pixels:
        return rng.integers(0, 256, (count, *architecture.observation_shape), np.uint8)
    return rng.normal(size=(count, *architecture.observation_shape)).astype(np.float32)


def twins(name):
    """The same weights in float32 and in bfloat16."""
    architecture = ARCHITECTURES[name]
    exact = sonnet_policy.Policy(architecture)
    rough = sonnet_policy.Policy(architecture, precision=sonnet_layers.BFLOAT16)
    randomize(exact)
    randomize(rough)
    return exact, rough, tf.constant(observations(architecture))


def relative_error(value, expected):
    return np.linalg.norm(value - expected) / np.linalg.norm(expected)


def in_bfloat16(array):
    return tf.cast(tf.cast(array, tf.bfloat16), tf.float32).numpy().astype(np.float64)


def test_linear_in_bfloat16_is_the_product_of_rounded_numbers_plus_an_exact_bias():
    layer = snt.Linear(5)
    inputs = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    layer(inputs)
    layer.b.assign([1000.1, 0.0, 0.0, 0.0, 0.0])  # In bfloat16 this would be 1000.
    output = sonnet_layers.linear(layer, inputs, sonnet_layers.BFLOAT16).numpy()
    product = in_bfloat16(inputs) @ in_bfloat16(layer.w)
    # Of the result; where the processor has no AVX512-BF16, of the sum on the way there, too.
    rounding = 2 * 2**-8 * np.abs(product).max()
    np.testing.assert_allclose(output, product + layer.b.numpy(), atol=rounding)
    assert output.dtype == np.float32


@pytest.mark.parametrize(
    ("inputs", "outputs", "padded"), [(256, 1024, True), (255, 1024, False), (256, 1040, False)]
)
def test_linear_padded_is_the_same_function_and_only_where_rows_meet_in_caches(
    inputs, outputs, padded
):
    layer = snt.Linear(outputs)
    batch = tf.constant(np.random.default_rng(0).normal(size=(3, inputs)).astype(np.float32))
    layer(batch)
    layer.b.assign(np.arange(outputs))
    results = []
    for precision in (sonnet_layers.FLOAT32, sonnet_layers.FLOAT32_PADDED):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            output = sonnet_layers.linear(layer, batch, precision)
            loss = tf.reduce_sum(tf.sin(output))
        results.append([output, *tape.gradient(loss, [batch, layer.w, layer.b])])
    for plain, other in zip(*results, strict=True):
        assert plain.shape == other.shape
        np.testing.assert_allclose(plain, other, atol=2e-4)

    function = tf.function(lambda x: sonnet_layers.linear(layer, x, sonnet_layers.FLOAT32_PADDED))
    operations = function.get_concrete_function(batch).graph.get_operations()
    assert ("Pad" in {operation.type for operation in operations}) == padded


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_policy_in_bfloat16_is_close_to_float32_but_not_the_same(name):
    exact, rough, inputs = twins(name)
    expected, output = exact(inputs), rough(inputs)
    assert output.dtype == tf.float32
    assert 0 < relative_error(output.numpy(), expected.numpy()) < 0.02


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_policy_gradients_in_bfloat16_are_float32_and_close(name):
    gradients = []
    *policies, inputs = twins(name)
    for policy in policies:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(policy(inputs)))
        gradients.append(tape.gradient(loss, policy.trainable_variables))
    for variable, exact, rough in zip(policies[0].trainable_variables, *gradients, strict=True):
        assert rough.dtype == tf.float32
        assert relative_error(rough.numpy(), exact.numpy()) < 0.03, variable.name


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_policy_products_in_bfloat16_are_bfloat16_forward_and_back(name):
    _, rough, inputs = twins(name)

    @tf.function
    def gradient(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(rough(batch))
        return tape.gradient(loss, rough.trainable_variables)

    operations = gradient.get_concrete_function(inputs).graph.get_operations()
    products = [o for o in operations if o.type == "MatMul" or o.type.startswith("Conv2D")]
    types = [o.outputs[0].dtype for o in products]
    # Of every layer three, the head's in float32. The first needs no input gradient (of a matrix
    # product TensorFlow leaves it out by itself, of a convolution only when it optimizes).
    layer_count = len(rough.architecture.linears) + len(rough.architecture.convolutions)
    assert types.count(tf.float32) == 3
    assert types.count(tf.bfloat16) == 3 * (layer_count - 1) - (name == "vector")


def test_policy_names_and_shapes_are_those_of_float32():
    exact, rough, _ = twins("pixels")
    for a, b in zip(exact.variables, rough.variables, strict=True):
        assert (a.name, a.shape, a.dtype) == (b.name, b.shape, b.dtype)
    assert list(exact.named_variables()) == list(rough.named_variables())


def test_policy_compiled_for_acting_is_float32_at_any_precision():
    exact, rough, inputs = twins("vector")
    count = inputs.shape[0]
    np.testing.assert_allclose(
        rough.compile_for(count)(inputs), exact.compile_for(count)(inputs), rtol=0
    )


def test_layer_norm_torso_is_acmes_layer_norm_mlp():
    torso = sonnet_layers.LayerNormTorso((16, 12, 8), 5)
    acmes = acme_networks.LayerNormMLP((16, 12, 8), activate_final=True)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32))
    acmes(inputs)
    randomize(torso)
    assert [v.shape for v in torso.variables] == [v.shape for v in acmes.variables]
    for a, b in zip(torso.variables, acmes.variables, strict=True):
        b.assign(a)
    np.testing.assert_allclose(torso(inputs), acmes(inputs), atol=1e-6)


def test_layer_norm_torso_in_bfloat16_is_close():
    torsos = [sonnet_layers.LayerNormTorso((64, 64, 64), 23, p) for p in ("float32", "bfloat16")]
    inputs = tf.constant(np.random.default_rng(0).normal(size=(9, 23)).astype(np.float32))
    outputs = []
    for torso in torsos:
        randomize(torso)
        outputs.append(torso(inputs).numpy())
    assert 0 < relative_error(outputs[1], outputs[0]) < 0.02
    assert outputs[1].dtype == np.float32
