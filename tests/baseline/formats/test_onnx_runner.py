import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest

from actorQ.core import errors
from baseline.formats import onnx_policy
from baseline.formats import onnx_runner
from baseline.formats import runner
from tests.baseline import integer_reference as reference

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def model():
    return onnx_policy.export(reference.dense(), 8).SerializeToString()


@pytest.fixture(scope="module")
def images_model():
    return onnx_policy.export(reference.images(), 8).SerializeToString()


def test_runner_reads_files_as_it_reads_bytes(model, tmp_path):
    path = tmp_path / "policy.onnx"
    path.write_bytes(model)
    inputs = reference.observations(reference.dense())
    from_bytes = onnx_runner.Runner(model)
    for source in (path, str(path)):
        made = onnx_runner.Runner(source)
        np.testing.assert_array_equal(made(inputs), from_bytes(inputs))
    assert 0 < made.weight_bytes < len(model)


def test_runner_converts_and_flattens_observations(model):
    made = onnx_runner.Runner(model)
    inputs = reference.observations(reference.dense()).astype(np.float64)
    expected = made.output(inputs)
    np.testing.assert_array_equal(made.output(inputs.reshape(-1, 2, 3)), expected)
    np.testing.assert_array_equal(made.output(list(inputs)), expected)


@pytest.mark.parametrize("shape", [(2, 5), (2, 7), (2, 2, 4), (2,), ()])
def test_runner_observations_of_another_shape_are_refused(model, shape):
    with pytest.raises(errors.UserError, match="do not fit the policy, which takes"):
        onnx_runner.Runner(model)(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (np.zeros((1, 4, 20, 20), np.uint8), "do not fit the policy"),
        (np.zeros((1, 3, 20), np.uint8), "do not fit the policy"),
        (np.zeros((1, 3, 20, 20), np.float32), "images of uint8, not at float32"),
        (np.zeros((1, 3, 24, 24), np.uint8), "cannot act on observations of shape"),
        (np.zeros((1, 3, 2, 2), np.uint8), "cannot act on observations of shape"),
    ],
)
def test_runner_images_that_do_not_fit_are_refused(images_model, observations, message):
    with pytest.raises(errors.UserError, match=message) as raised:
        onnx_runner.Runner(images_model)(observations)
    assert "\n" not in str(raised.value)


def test_runner_damaged_file_is_refused(model, tmp_path, capfd):
    for content in (b"", b"no model at all", model[: len(model) // 2], b"\0" * 1000):
        path = tmp_path / "policy.onnx"
        path.write_bytes(content)
        with pytest.raises(errors.UserError, match="policy.onnx") as raised:
            onnx_runner.Runner(path)
        assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_runner_file_with_changed_constants_is_refused_or_runs(model):
    # Whatever is damaged, the runtime's errors become ours.
    rng = np.random.default_rng(0)
    inputs = reference.observations(reference.dense(), 2)
    for _ in range(100):
        content = bytearray(model)
        for position in rng.integers(0, len(content), 5):
            content[position] = rng.integers(256)
        try:
            onnx_runner.Runner(bytes(content))(inputs)
        except errors.UserError as error:
            assert "\n" not in str(error)


def test_runner_missing_file_is_told(tmp_path):
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(errors.UserError, match=f"Cannot read {path}"):
            onnx_runner.Runner(path)


def test_runner_other_models_are_refused(model):
    for change in ({}, {runner.FORMAT: "0"}):
        other = onnx.load_from_string(model)
        onnx.helper.set_model_props(other, change)
        with pytest.raises(errors.UserError, match="no policy that this version"):
            onnx_runner.Runner(other.SerializeToString())


def test_runner_damaged_metadata_is_told(model):
    for key, value in (("weight_bytes", "{"), ("one_by_one", None), ("weight_bytes", '"x"')):
        other = onnx.load_from_string(model)
        props = {entry.key: entry.value for entry in other.metadata_props}
        props[key] = value
        if value is None:
            del props[key]
        onnx.helper.set_model_props(other, props)
        with pytest.raises(errors.UserError, match="metadata"):
            onnx_runner.Runner(other.SerializeToString())


def test_runner_needs_no_framework():
    heavy = ["torch", "tensorflow", "stable_baselines3", "onnx", "gymnasium"]
    code = (
        "import sys, baseline.formats.onnx_runner; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert result.stdout.strip() == "[]", result.stderr
