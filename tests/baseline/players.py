"""Plays exported files in tests, batch after batch, and reads what they say of themselves."""

import json

import onnx
import pytest
from tensorflow.lite.python import schema_py_generated as schema

from baseline.deploy import exporting
from baseline.deploy import micro_player as tflite_micro_player
from baseline.formats import names
from baseline.formats import onnx_graph
from baseline.formats import onnx_kernels


class Player:
    """A file's policy: observations [B, ...] to actions, as `run_policy` gives them one by one."""

    def __init__(self, content, file_format, micro=False):
        self._content = content
        self._policy = loaded_by_micro(content) if micro else exporting.load_file(
            content, file_format
        )
        if file_format == "onnx":
            self.metadata = onnx_graph.metadata(onnx.load_from_string(content))
        else:
            self.metadata = tflite_metadata(content, names.MARK)
        self.weight_bytes = self.metadata["weight_bytes"]

    def __call__(self, observations):
        return exporting.one_by_one(self._policy)(observations)

    def output(self, observations):
        return exporting.one_by_one(self._policy, names.OUTPUT)(observations)

    def kernels(self, observations):
        return onnx_kernels.kernels(self._content, observations)


def onnx_player(content):
    return Player(content, "onnx")


def tflite_player(content):
    return Player(content, "tflite")


def micro_player(content):
    """Returns a player that is TensorFlow Lite Micro's own interpreter."""
    return Player(content, "tflite", micro=True)


def loaded_by_micro(content):
    """Returns a file's policy, which Micro's own interpreter plays."""
    pytest.importorskip(
        "tflite_micro", reason="pip install -r tests/requirements.txt brings tflite-micro"
    )
    return tflite_micro_player.Policy(content)


def tflite_metadata(content, name):
    """Returns an entry of a TFLite file's metadata; None if there is none."""
    model = schema.Model.GetRootAs(content, 0)
    for index in range(model.MetadataLength()):
        entry = model.Metadata(index)
        if entry.Name() == name.encode():
            return json.loads(bytes(model.Buffers(entry.Buffer()).DataAsNumpy()))
    return None
