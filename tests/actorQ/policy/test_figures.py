"""The meter's figures against plain loops and closed forms."""

import numpy as np
import pytest

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import figures
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy import reference
from tests.actorQ.policy.native import test_kernels

D4PG = architecture_lib.PolicyArchitecture((5,), (70, 40), 3, architecture_lib.TANH_HEAD)
DQN = architecture_lib.PolicyArchitecture((4,), (32,), 4, architecture_lib.Q_VALUES_HEAD)


def variables_of(weights):
    """Returns the weights with TensorFlow's names and layouts."""
    variables = {}
    for name, array in weights.items():
        layer, kind = name.rsplit(".", 1)
        if kind == "bias":
            variables[f"{layer}/b"] = array
        else:
            axes = (2, 3, 1, 0) if array.ndim == 4 else (1, 0)
            variables[f"{layer}/w"] = np.ascontiguousarray(array.transpose(axes))
    return variables


def test_changed_share_counts_integers_one_by_one():
    weights = test_kernels.make_weights(D4PG)
    moved = {name: array * np.float32(1.001) for name, array in weights.items()}
    before, now = (forms.to_actor_form(each, 1, 8).tensors for each in (weights, moved))
    before, now = figures.sampled_weights(before), figures.sampled_weights(now)
    differing = total = 0
    for name in ("linear_0.weight", "linear_1.weight", "head.weight"):
        old, new = before[name].values.ravel().tolist(), now[name].values.ravel().tolist()
        differing += sum(a != b for a, b in zip(old, new, strict=True))
        total += len(old)
    assert figures.changed_share(before, now) == differing / total
    assert figures.changed_share(before, before) == 0.0


def test_changed_share_sees_no_change_that_scales_alone_take_up():
    weights = test_kernels.make_weights(D4PG)
    doubled = {name: 2 * array for name, array in weights.items()}
    before, now = (
        figures.sampled_weights(forms.to_actor_form(each, 1, 4).tensors)
        for each in (weights, doubled)
    )
    assert figures.changed_share(before, now) == 0.0
    single = figures.sampled_weights(forms.to_actor_form(doubled, 1, 32).tensors)
    full = figures.sampled_weights(forms.to_actor_form(weights, 1, 32).tensors)
    assert figures.changed_share(full, single) > 0.99


@pytest.mark.parametrize(
    ("quantize", "communication"),
    [(32, 32), (16, 32), (8, 32), (4, 32), (3, 32), (8, 4), (32, 6), (4, 2), (3, 2)],
)
def test_weight_errors_are_those_of_the_weights_that_actors_compute_with(quantize, communication):
    weights = test_kernels.make_weights(D4PG)
    update = forms.to_actor_form(weights, 1, quantize, communication)
    sampled = model_update.ModelUpdate(1, update.scheme, figures.sampled_weights(update.tensors))
    found = figures.weight_errors(
        figures.sampled_variables(variables_of(weights)), forms.expand(sampled)
    )
    computed = forms.expand(update)
    assert list(found) == ["linear_0", "linear_1", "head"]
    for layer, error in found.items():
        exact = weights[f"{layer}.weight"].astype(np.float64)
        off = exact - model_update.to_float32(computed[f"{layer}.weight"])
        assert error == pytest.approx(np.sqrt((off**2).sum() / (exact**2).sum()), rel=1e-4)
    assert (max(found.values()) == 0.0) == (quantize == communication == 32)


def test_error_of_a_layer_of_zeros_is_zero():
    zeros = {"head.weight": np.zeros((2, 3), np.float32)}
    tensors = forms.expand(forms.to_actor_form(zeros, 1, 8))
    assert figures.weight_errors(zeros, tensors) == {"head": 0.0}


@pytest.mark.parametrize("bfloat16", [False, True])
def test_both_samples_of_a_large_layer_hold_the_same_few_channels(bfloat16):
    rng = np.random.default_rng(0)
    weights = {
        "conv_0.weight": rng.normal(size=(32, 4, 8, 8)).astype(np.float32),
        "linear_0.weight": rng.normal(size=(500, 900)).astype(np.float32),
        "linear_0.bias": np.ones(500, np.float32),
    }
    variables = variables_of(weights)
    if bfloat16:
        variables = {
            name: model_update.Bfloat16(quantization.to_bfloat16(array).reshape(array.shape))
            for name, array in variables.items()
        }
    update = forms.learner_to_actor_form(variables, 1, 4)
    quantized = figures.sampled_weights(update.tensors)
    sampled = figures.sampled_variables(variables)
    shapes = {"conv_0.weight": (32, 4, 8, 8), "linear_0.weight": (36, 900)}
    assert {name: tensor.values.shape for name, tensor in quantized.items()} == shapes
    assert {name: array.shape for name, array in sampled.items()} == shapes
    errors = figures.weight_errors(
        sampled, forms.expand(model_update.ModelUpdate(1, update.scheme, quantized))
    )
    # If the channels were others, the differences would be as large as the weights.
    assert errors["conv_0"] < 0.02 and errors["linear_0"] < 0.2


def test_action_figures_in_closed_form():
    actions = np.array([[0.0, 1.0], [0.5, -1.0]], np.float32)
    acting = np.array([[0.25, 1.0], [0.5, 0.0]], np.float32)
    assert figures._compare_actions(actions, acting) == {
        "action_distance": 0.3125, "action_distance_max": 1.0, "actions_at_bounds": 0.5,
        "quantized_actions_at_bounds": 0.25,
    }


def test_value_figures_in_closed_form():
    values = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]], np.float32)
    acting = np.array([[0.0, 1.0, 2.0], [9.0, 0.0, 0.0]], np.float32)
    # The first choice costs 3 - 2, the second one nothing.
    assert figures._compare_values(values, acting) == {"agreement": 0.5, "lost_q": 0.5}


@pytest.mark.parametrize("quantize", [16, 8, 4, 3])
@pytest.mark.parametrize("architecture", [D4PG, DQN])
def test_policies_are_compared_as_the_native_actors_compute_them(architecture, quantize):
    weights = test_kernels.make_weights(architecture)
    tensors = forms.expand(forms.to_actor_form(weights, 1, quantize))
    observations = test_kernels.make_observations(architecture, 12)
    found = figures.compare_policies(
        architecture, weights, tensors, observations, reference.Activations.SYMMETRIC
    )
    outputs = {}
    for bits in (32, quantize):
        backend = inference.make_backend(architecture, bits, "native")
        inference.load_weights(backend, weights, bits)
        outputs[bits] = np.concatenate([backend(each[None]) for each in observations])
    if architecture is D4PG:
        distance = np.abs(outputs[32] - outputs[quantize])
        assert found["action_distance"] == pytest.approx(distance.mean(), abs=1e-5)
        assert found["action_distance_max"] == pytest.approx(distance.max(), abs=1e-5)
        assert found["action_distance"] > 1e-5
    else:
        choices = {bits: each.argmax(1) for bits, each in outputs.items()}
        assert found["agreement"] == np.mean(choices[32] == choices[quantize])
        lost = [
            values[best] - values[chosen]
            for values, best, chosen in zip(
                outputs[32], choices[32], choices[quantize], strict=True
            )
        ]
        assert found["lost_q"] == pytest.approx(np.mean(lost), abs=1e-5)
    assert found["observation_high"] == observations.max()
    first = observations @ weights["linear_0.weight"].T + weights["linear_0.bias"]
    assert found["activation_low_linear_0"] == pytest.approx(first.min(), rel=1e-5)
    assert found["activation_high_linear_0"] == pytest.approx(first.max(), rel=1e-5)
    last = architecture.layer_names[-1]
    assert {f"activation_low_{last}", f"activation_high_{last}"} <= found.keys()


def test_policies_are_compared_as_torchs_int8_actors_compute_them():
    weights = test_kernels.make_weights(D4PG)
    tensors = forms.expand(forms.to_actor_form(weights, 1, 8))
    observations = test_kernels.make_observations(D4PG, 6)
    for together in (1, 3):
        expected = np.concatenate([
            reference.forward(
                D4PG, tensors, observations[start : start + together],
                reference.Activations.AFFINE_7_BITS,
            )
            for start in range(0, 6, together)
        ])
        actual = reference.forward(
            D4PG, tensors, observations, reference.Activations.AFFINE_7_BITS, together
        )
        np.testing.assert_array_equal(actual, expected)


def test_full_precision_actors_act_as_the_learner_does():
    weights = test_kernels.make_weights(DQN)
    tensors = forms.expand(forms.to_actor_form(weights, 1, 32))
    found = figures.compare_policies(
        DQN, weights, tensors, test_kernels.make_observations(DQN, 5),
        reference.Activations.SYMMETRIC,
    )
    assert (found["agreement"], found["lost_q"]) == (1.0, 0.0)


@pytest.mark.parametrize("name", test_kernels.ARCHITECTURES)
def test_architecture_follows_from_the_shapes_of_the_weights(name):
    architecture = test_kernels.ARCHITECTURES[name]
    assert architecture_lib.of_weights(
        architecture.parameter_shapes, architecture.observation_shape, architecture.head
    ) == architecture
