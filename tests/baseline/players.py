"""Plays exported files in tests, batch after batch, and reads what they say of themselves."""

import json
import pathlib
import tempfile

import numpy as np
import onnx
from tensorflow.lite.python import schema_py_generated as schema

from baseline.deploy import run_policy
from baseline.formats import names
from baseline.formats import onnx_graph
from baseline.formats import onnx_kernels


class Player:
    """A file's policy: observations [B, ...] to actions, as `run_policy` gives them one by one."""

    def __init__(self, content, file_format):
        self._content = content
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, f"policy{names.ENDINGS[file_format]}")
            path.write_bytes(content)
            self._policy = run_policy.Policy(path)
        if file_format == "onnx":
            self.metadata = onnx_graph.metadata(onnx.load_from_string(content))
        else:
            self.metadata = tflite_metadata(content, names.MARK)
        self.weight_bytes = self.metadata["weight_bytes"]

    def __call__(self, observations):
        return np.stack([self._policy(each) for each in observations])

    def output(self, observations):
        return np.stack([self._policy(each, names.OUTPUT) for each in observations])

    def kernels(self, observations):
        return onnx_kernels.kernels(self._content, observations)


def onnx_player(content):
    return Player(content, "onnx")


def tflite_player(content):
    return Player(content, "tflite")


def tflite_metadata(content, name):
    """Returns an entry of a TFLite file's metadata; None if there is none."""
    model = schema.Model.GetRootAs(content, 0)
    for index in range(model.MetadataLength()):
        entry = model.Metadata(index)
        if entry.Name() == name.encode():
            return json.loads(bytes(model.Buffers(entry.Buffer()).DataAsNumpy()))
    return None
