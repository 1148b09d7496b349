"""The frameworks' backends against the numpy reference, at every precision they have."""

import numpy as np
import pytest

from actorQ.core import precisions
from actorQ.policy import inference
from actorQ.policy import model_update
from actorQ.policy import reference
from tests.actorQ.policy.native import test_kernels

ARCHITECTURES = test_kernels.ARCHITECTURES


def run_backend(architecture, mode, quantize, tensors, observations):
    backend = inference.make_backend(architecture, quantize, mode)
    backend.load(backend.prepare(tensors))
    return np.concatenate([backend(each[None]) for each in observations])


@pytest.mark.parametrize("quantize", [32, 16])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_torch_with_float_weights_is_the_reference(name, quantize):
    architecture = ARCHITECTURES[name]
    tensors = test_kernels.expanded(architecture, quantize)
    observations = test_kernels.make_observations(architecture, 5)
    np.testing.assert_allclose(
        run_backend(architecture, "pytorch", quantize, tensors, observations),
        reference.forward(architecture, tensors, observations),
        atol=5e-6,
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_torch_int8_is_the_reference_with_affine_activations_of_7_bits(name):
    architecture = ARCHITECTURES[name]
    tensors = test_kernels.expanded(architecture, 8)
    observations = test_kernels.make_observations(architecture, 20)
    outputs = run_backend(architecture, "pytorch", 8, tensors, observations)
    # One scale for a batch there: one observation at a time, as actors do.
    affine = reference.Activations.AFFINE_7_BITS
    expected = np.concatenate(
        [reference.forward(architecture, tensors, each[None], affine) for each in observations]
    )
    # A last bit of tanh or of a product may round an activation to its neighbour, one step of 127.
    np.testing.assert_allclose(outputs, expected, atol=5e-3)
    assert np.median(np.abs(outputs - expected)) < 1e-5
    symmetric = reference.forward(architecture, tensors, observations)
    np.testing.assert_allclose(outputs, symmetric, atol=0.15)


def test_torch_int8_has_a_smallest_step_in_the_reference_too():
    architecture = ARCHITECTURES["humanoid"]
    tensors = test_kernels.expanded(architecture, 8)
    normal = np.clip(test_kernels.make_observations(architecture, 1), -2, 2)
    affine = reference.Activations.AFFINE_7_BITS
    tiny = np.float32(1e-5) * normal  # Below half of the smallest step.
    first = tensors[architecture.layer_names[0] + ".weight"]  # Later layers' rounding hides it.
    bias = np.zeros(len(first.values), np.float32)
    assert not reference._affine_product(tiny, first, bias, together=1).any()
    outputs = run_backend(architecture, "pytorch", 8, tensors, tiny)
    np.testing.assert_array_equal(
        outputs, run_backend(architecture, "pytorch", 8, tensors, 0 * normal)
    )
    few = np.float32(1e-3) * normal  # Some 30 levels.
    np.testing.assert_allclose(
        run_backend(architecture, "pytorch", 8, tensors, few),
        reference.forward(architecture, tensors, few, affine), atol=5e-3,
    )


@pytest.mark.parametrize("quantize", precisions.SCHEMES)
@pytest.mark.parametrize("name", ["humanoid", "pixels"])
def test_tensorflow_is_the_reference_on_dequantized_weights(name, quantize):
    architecture = ARCHITECTURES[name]
    tensors = test_kernels.expanded(architecture, quantize)
    observations = test_kernels.make_observations(architecture, 3)
    dequantized = {key: model_update.to_float32(tensor) for key, tensor in tensors.items()}
    np.testing.assert_allclose(
        run_backend(architecture, "tensorflow", quantize, tensors, observations),
        reference.forward(architecture, dequantized, observations),
        atol=5e-6,
    )


@pytest.mark.parametrize(("quantize", "tolerance"), [(16, 2e-3), (8, 0.06), (4, 0.5), (3, 1.0)])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_precisions_stay_near_fp32(name, quantize, tolerance):
    architecture = ARCHITECTURES[name]
    observations = test_kernels.make_observations(architecture, 20)
    exact = reference.forward(
        architecture, test_kernels.make_weights(architecture), observations
    )
    outputs = reference.forward(
        architecture, test_kernels.expanded(architecture, quantize), observations
    )
    error = np.abs(outputs - exact).max()
    assert 0 < error < tolerance * max(1.0, np.abs(exact).max())
