"""The one player of exported files, which a device gets beside them."""

import numpy as np
import pytest
from torch import nn

from actorQ.policy import quantization
from baseline.deploy import run_policy
from baseline.formats import onnx_policy
from baseline.formats import tflite_policy
from tests.baseline import integer_reference as reference


def tflite(network, **kwargs):
    weights = {
        name: quantization.quantize_affine(
            module.weight.detach().numpy(), 8, "nearest", isinstance(module, nn.Conv2d)
        )
        for name, module in network.with_weights()
    }
    ranges = reference.calibrate(network, reference.observations(network))
    return tflite_policy.export(network, ranges, weights, **kwargs)


@pytest.fixture(name="files", scope="module")
def fixture_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    made = {}
    for kind, network, size in (
        ("dense", reference.dense(), None), ("images", reference.images(), (20, 20))
    ):
        contents = {
            "onnx": onnx_policy.export(network, 8, image_size=size).SerializeToString(),
            "tflite": tflite(network, image_size=size),
        }
        for ending, content in contents.items():
            made[kind, ending] = folder / f"{kind}.{ending}"
            made[kind, ending].write_bytes(content)
    return made


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
def test_results_outlive_the_next_call(files, ending):
    policy = run_policy.Policy(files["dense", ending])
    inputs = reference.observations(reference.dense(), 2)
    first = policy(inputs[0], "output")
    kept = first.copy()
    assert np.any(policy(inputs[1], "output") != kept)
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
def test_observations_are_converted_and_flattened(files, ending):
    policy = run_policy.Policy(str(files["dense", ending]))
    observation = reference.observations(reference.dense(), 1)[0].astype(np.float64)
    expected = policy(observation, "output")
    np.testing.assert_array_equal(policy(observation.reshape(2, 3), "output"), expected)
    np.testing.assert_array_equal(policy(list(observation), "output"), expected)


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
@pytest.mark.parametrize("kind", ["dense", "images"])
def test_observations_of_another_shape_are_refused(files, kind, ending):
    policy = run_policy.Policy(files[kind, ending])
    shapes = {"dense": [(5,), (7,), (2, 4), ()], "images": [(4, 20, 20), (3, 20), (3, 24, 24)]}
    for shape in shapes[kind]:
        with pytest.raises(Exception, match="(?i)dimension|invalid rank"):
            policy(np.zeros(shape, policy.dtype))


@pytest.mark.parametrize("ending", ["onnx", "tflite"])
def test_images_in_floats_are_refused(files, ending):
    with pytest.raises(TypeError, match="images are uint8"):
        run_policy.Policy(files["images", ending])(np.zeros((3, 20, 20), np.float32))


def test_damaged_tflite_files_are_refused(files, tmp_path):
    # TFLite itself would end the process with some of these.
    model = files["dense", "tflite"].read_bytes()
    damaged = [
        b"", b"no model at all", model[: len(model) // 2], model[:-1], b"\0" * 1000,
        model + model, model + b"\0",
    ]
    for position in range(0, len(model), 7):
        content = bytearray(model)
        content[position] ^= 1
        damaged.append(bytes(content))
    path = tmp_path / "policy.tflite"
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged, or baseline.deploy did not write it"):
            run_policy.Policy(path)
