"""Runs policies that `integer` exported, in ONNX Runtime.

What a device needs: imports numpy and onnxruntime, no framework.
"""

import collections
import json
import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import onnxruntime

from actorQ.core import errors
from baseline.formats import runner

_PROVIDERS = ("CPUExecutionProvider",)
_ONLY_FATAL = 4  # Errors reach the caller as exceptions; the runtime would print them as well.


class Runner(runner.PolicyRunner):
    """A policy that `integer` exported, ready to act."""

    def __init__(self, model: bytes | str | os.PathLike[str]):
        """Loads a model.

        Args:
          model: a file's path or content.

        Raises:
          errors.UserError: the file is missing, damaged, or no policy exported here.
        """
        self._content, origin = runner.read(model)
        self._session = _session(self._content, _options(), origin)
        try:
            self.metadata = _metadata(self._session, origin)
            self.weight_bytes = int(self.metadata["weight_bytes"])
            self._one_by_one = bool(self.metadata["one_by_one"])
            self._input, = self._session.get_inputs()
        except (ValueError, KeyError, TypeError):
            raise errors.UserError(f"{origin} is damaged: its metadata cannot be read.") from None
        self._dtype = np.uint8 if self._input.type == "tensor(uint8)" else np.float32

    def kernels(self, observations: np.ndarray) -> dict[str, int]:
        """Returns which operators the runtime executes for one batch, and how often.

        That is after its optimizer has fused and replaced nodes; recorded by its profiler.
        """
        with tempfile.TemporaryDirectory() as folder:
            options = _options()
            options.enable_profiling = True
            options.profile_file_prefix = os.path.join(folder, "profile")
            session = _session(self._content, options, "The model")
            session.run(None, {runner.OBSERVATION: self._prepare(observations)})
            events = json.loads(pathlib.Path(session.end_profiling()).read_text())
        return dict(
            collections.Counter(
                event["args"]["op_name"]
                for event in events
                if event["cat"] == "Node" and event["name"].endswith("_kernel_time")
            )
        )

    def _run(self, name: str, observations: np.ndarray) -> np.ndarray:
        observations = self._prepare(observations)
        parts = [observations]
        if self._one_by_one:
            parts = np.split(observations, len(observations))
        try:
            results = [
                self._session.run([name], {runner.OBSERVATION: part})[0] for part in parts
            ]
        except Exception as error:  # The runtime's exceptions have no base of their own.
            raise errors.UserError(
                f"The policy cannot act on observations of shape {observations.shape[1:]}: "
                f"{errors.summary(error)}"
            ) from None
        return results[0] if len(results) == 1 else np.concatenate(results)

    def _prepare(self, observations: np.ndarray) -> np.ndarray:
        """Returns the observations as the session takes them."""
        return runner.fit(observations, self._input.shape[1:], self._dtype)


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = _ONLY_FATAL
    return options


def _session(
    content: bytes, options: onnxruntime.SessionOptions, origin: str
) -> onnxruntime.InferenceSession:
    try:
        return onnxruntime.InferenceSession(content, options, providers=list(_PROVIDERS))
    except Exception as error:  # As above.
        raise errors.UserError(
            f"{origin} cannot be loaded as an ONNX model: {errors.summary(error)}"
        ) from None


def _metadata(session: onnxruntime.InferenceSession, origin: str) -> dict[str, Any]:
    texts = session.get_modelmeta().custom_metadata_map
    if texts.get(runner.FORMAT) != runner.FORMAT_VERSION:
        raise errors.UserError(
            f"{origin} is an ONNX model, but no policy that this version of "
            "baseline.formats.onnx_policy exported."
        )
    return {key: _value(text) for key, text in texts.items()}


def _value(text: str) -> Any:
    """Returns a string as it is (words), or what its JSON says (all else)."""
    is_word = text.isidentifier() and text not in ("true", "false", "null")
    return text if is_word else json.loads(text)
