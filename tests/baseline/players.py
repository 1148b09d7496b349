"""Plays exported files in tests, batch after batch, and reads what they say of themselves."""

import json

import numpy as np
import onnx
import pytest
from tensorflow.lite.python import schema_py_generated as schema

from baseline.deploy import exporting
from baseline.deploy import run_policy
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
    """Returns observation and "action" or "output" to what Micro's own interpreter computes."""
    runtime = pytest.importorskip(
        "tflite_micro", reason="pip install -r tests/requirements.txt brings tflite-micro"
    ).runtime
    model = runtime.Interpreter.from_bytes(content, arena_size=10 * len(content) + 2**22)
    facts = tflite_metadata(content, names.MARK)
    given = facts["outputs"]
    taken = model.get_input_details(0)

    def call(x, name):
        model.set_input(x, 0)
        model.invoke()
        return np.array(model.get_output(given.index(name)))

    def affine(details):
        found = details["quantization_parameters"]
        return [part[0] for part in (found["scales"], found["zero_points"]) if len(part)]

    maps = {name: affine(model.get_output_details(at)) for at, name in enumerate(given)}
    shape, dtype, act = run_policy.in_integers(
        facts, taken["shape"][1:], affine(taken), maps, call
    )

    def policy(observation, name=names.ACTION):
        return act(np.asarray(observation, dtype).reshape(1, *shape), name)[0]

    return policy


def tflite_metadata(content, name):
    """Returns an entry of a TFLite file's metadata; None if there is none."""
    model = schema.Model.GetRootAs(content, 0)
    for index in range(model.MetadataLength()):
        entry = model.Metadata(index)
        if entry.Name() == name.encode():
            return json.loads(bytes(model.Buffers(entry.Buffer()).DataAsNumpy()))
    return None
