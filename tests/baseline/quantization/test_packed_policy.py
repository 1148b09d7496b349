"""Packed integers are read as they were written."""

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import weight_files
from baseline.quantization import packed_policy


def policy(bits, per_channel):
    rng = np.random.default_rng(bits)
    reals = {"first": rng.normal(size=(5, 3)), "last": rng.normal(size=(2, 5))}
    weights = {
        name: quantization.quantize_affine(
            values.astype(np.float32), bits, "nearest", per_channel
        )
        for name, values in reals.items()
    }
    biases = {"first": rng.normal(size=5).astype(np.float32)}
    return packed_policy.Policy(weights, biases, {"first": (-1.0, 2.0), "last": (0.0, 1.0, 6.0)})


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bits", [2, 5, 8, 12])
def test_what_was_written_is_read(tmp_path, bits, per_channel):
    written = policy(bits, per_channel)
    packed_policy.write(tmp_path / "packed.safetensors", written)

    found = packed_policy.read(tmp_path / "packed.safetensors")

    assert found.ranges == written.ranges and set(found.weights) == set(written.weights)
    np.testing.assert_array_equal(found.biases["first"], written.biases["first"])
    for name, tensor in written.weights.items():
        assert found.weights[name].bits == bits
        for read, made in zip(found.weights[name][:3], tensor[:3], strict=True):
            np.testing.assert_array_equal(read, made)


def test_packed_integers_are_weights_for_those_who_look_at_weights(tmp_path):
    written = policy(3, False)
    packed_policy.write(tmp_path / "packed.safetensors", written)
    found = weight_files.read(tmp_path / "packed.safetensors").tensors
    assert set(found) == {"first.weight", "first.bias", "last.weight"}
    for name, tensor in written.weights.items():
        np.testing.assert_array_equal(found[f"{name}.weight"], quantization.dequantize(tensor))


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_damaged_files_are_told(tmp_path, content):
    (tmp_path / "packed.safetensors").write_bytes(content)
    with pytest.raises(errors.UserError, match="Cannot read .*packed.safetensors as packed integ"):
        packed_policy.read(tmp_path / "packed.safetensors")
    with pytest.raises(errors.UserError, match="Cannot read .*nowhere"):
        packed_policy.read(tmp_path / "nowhere")


def test_layers_may_have_bits_of_their_own(tmp_path):
    written = policy(3, True)
    wide = policy(8, True).weights["last"]
    written = written._replace(weights={**written.weights, "last": wide})
    packed_policy.write(tmp_path / "packed.safetensors", written)

    found = packed_policy.read(tmp_path / "packed.safetensors")

    assert [tensor.bits for tensor in found.weights.values()] == [3, 8]
    for name, tensor in written.weights.items():
        np.testing.assert_array_equal(found.weights[name].values, tensor.values)
    assert packed_policy.num_bytes(written) > packed_policy.num_bytes(policy(3, True))
