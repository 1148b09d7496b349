import pathlib
import subprocess
import sys

import numpy as np
import pytest
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import runner
from baseline.formats import tflite_graph
from baseline.formats import tflite_policy
from baseline.formats import tflite_runner
from tests.baseline import integer_reference as reference

ROOT = pathlib.Path(__file__).parents[3]
DAMAGED = "damaged, or no policy that baseline.formats.tflite_policy exported"


def exported(network, **kwargs):
    weights = {
        name: quantization.quantize_affine(
            module.weight.detach().numpy(), 8, "nearest", isinstance(module, nn.Conv2d)
        )
        for name, module in network.with_weights()
    }
    ranges = reference.calibrate(network, reference.observations(network))
    return tflite_policy.export(network, ranges, weights, **kwargs)


@pytest.fixture(scope="module")
def model():
    return exported(reference.dense())


@pytest.fixture(scope="module")
def images_model():
    return exported(reference.images(), image_size=(20, 20))


def test_runner_reads_files_as_it_reads_bytes(model, tmp_path):
    path = tmp_path / "policy.tflite"
    path.write_bytes(model)
    inputs = reference.observations(reference.dense())
    from_bytes = tflite_runner.Runner(model)
    for source in (path, str(path)):
        made = tflite_runner.Runner(source)
        np.testing.assert_array_equal(made(inputs), from_bytes(inputs))
    assert 0 < made.weight_bytes < len(model)


@pytest.mark.parametrize("kind", ["model", "images_model"])
def test_runner_batches_of_any_size_give_the_same(kind, request):
    network = reference.dense() if kind == "model" else reference.images()
    inputs = reference.observations(network, 12)
    made = tflite_runner.Runner(request.getfixturevalue(kind))
    together = made.output(inputs)
    for size in (1, 5, 5, 12, 1):
        np.testing.assert_allclose(made.output(inputs[:size]), together[:size], atol=1e-6)
        assert len(made(inputs[:size])) == size


def test_runner_results_outlive_the_next_call(model):
    made = tflite_runner.Runner(model)
    inputs = reference.observations(reference.dense())
    first = made.output(inputs)
    kept = first.copy()
    made.output(-inputs)
    np.testing.assert_array_equal(first, kept)


def test_runner_converts_and_flattens_observations(model):
    made = tflite_runner.Runner(model)
    inputs = reference.observations(reference.dense()).astype(np.float64)
    expected = made.output(inputs)
    np.testing.assert_array_equal(made.output(inputs.reshape(-1, 2, 3)), expected)
    np.testing.assert_array_equal(made.output(list(inputs)), expected)


@pytest.mark.parametrize("shape", [(2, 5), (2, 7), (2, 2, 4), (2,), ()])
def test_runner_observations_of_another_shape_are_refused(model, shape):
    with pytest.raises(errors.UserError, match="do not fit the policy, which takes"):
        tflite_runner.Runner(model)(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (np.zeros((1, 4, 20, 20), np.uint8), "do not fit the policy"),
        (np.zeros((1, 3, 20), np.uint8), "do not fit the policy"),
        (np.zeros((1, 3, 24, 24), np.uint8), "do not fit the policy"),
        (np.zeros((1, 3, 20, 20), np.float32), "images of uint8, not at float32"),
    ],
)
def test_runner_images_that_do_not_fit_are_refused(images_model, observations, message):
    with pytest.raises(errors.UserError, match=message):
        tflite_runner.Runner(images_model)(observations)


def test_runner_damaged_content_is_refused(model, tmp_path):
    # TFLite itself would end the process with some of these.
    rng = np.random.default_rng(0)
    damaged = [b"", b"no model at all", model[: len(model) // 2], model[:-1], b"\0" * 1000]
    damaged.append(model + model)
    for _ in range(100):
        content = bytearray(model)
        position = rng.integers(len(content))
        content[position] ^= rng.integers(1, 256)
        damaged.append(bytes(content))
    path = tmp_path / "policy.tflite"
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(errors.UserError, match=f"policy.tflite is {DAMAGED}"):
            tflite_runner.Runner(path)


def test_runner_missing_file_is_told(tmp_path):
    for path in (tmp_path / "none.tflite", tmp_path):
        with pytest.raises(errors.UserError, match=f"Cannot read {path}"):
            tflite_runner.Runner(path)


def small_graph(outputs=("output", "action"), kind="TANH"):
    graph = tflite_graph.Graph()
    tensor = graph.input("observation", (-1, 2), np.float32)
    made = [graph.add(kind, tensor) for _ in outputs]
    for output, name in zip(made, outputs, strict=True):
        graph.rename(output, name)
    return graph, [tensor], made


@pytest.mark.parametrize(
    ("metadata", "outputs", "message"),
    [
        (
            {}, ("output", "action"),
            "of another version of baseline.formats.tflite_policy, or no policy",
        ),
        ({"version": "0", "weight_bytes": 1}, ("output", "action"), "another version"),
        ({"version": "1"}, ("output", "action"), "metadata cannot be read"),
        ({"version": "1", "weight_bytes": "x"}, ("output", "action"), "metadata cannot be read"),
        ({"version": "1", "weight_bytes": 1}, ("output",), "metadata cannot be read"),
    ],
)
def test_runner_other_models_are_refused(metadata, outputs, message):
    graph, inputs, made = small_graph(outputs)
    entries = {runner.FORMAT: metadata} if metadata else {}
    content = graph.model(inputs, made, "", entries)
    with pytest.raises(errors.UserError, match=message):
        tflite_runner.Runner(content)


def test_runner_models_that_the_interpreter_refuses_are_told():
    graph, inputs, made = small_graph()
    pair = graph.add("BATCH_MATMUL", inputs[0], graph.constant("w", np.zeros((3, 2), np.int8)))
    content = graph.model(inputs, [*made, pair], "", {})
    with pytest.raises(errors.UserError, match="The model cannot be loaded as a TFLite model"):
        tflite_runner.Runner(content)


def test_tensorflow_is_not_loaded_before_a_model_is():
    heavy = ["torch", "tensorflow", "stable_baselines3", "onnx", "gymnasium", "flatbuffers"]
    code = (
        "import sys, baseline.formats.tflite_runner; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert result.stdout.strip() == "[]", result.stderr
