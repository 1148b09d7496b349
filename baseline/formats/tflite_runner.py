"""Runs policies that `tflite_model` exported, in TFLite's interpreter.

Needs numpy and TensorFlow, which is loaded with the first model. Without the XNNPACK delegate,
which has none of the integer products in use and would only cut the graph into pieces.

What is damaged is refused, since the interpreter would crash on it; but a file that was made to
crash it is not told from others: play your own files only.
"""

import os

import numpy as np

from actorQ.core import errors
from baseline.agents import optional_tensorflow
from baseline.formats import runner
from baseline.formats import tflite_graph


class Runner(runner.PolicyRunner):
    """A policy that `tflite_model` exported, ready to act."""

    def __init__(self, model: bytes | str | os.PathLike[str]):
        """Loads a model.

        Args:
          model: a file's path or content.

        Raises:
          errors.UserError: the file is missing, damaged, or no policy exported here.
        """
        content, origin = runner.read(model)
        if not tflite_graph.is_whole(content):
            raise errors.UserError(
                f"{origin} is damaged, or no policy that baseline.formats.tflite_policy exported."
            )
        with optional_tensorflow.needed_for(tflite_graph.WHAT):
            from tensorflow.lite.python import interpreter

        try:
            self._interpreter = interpreter.Interpreter(
                model_content=content,
                num_threads=1,
                experimental_op_resolver_type=(
                    interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
                ),
            )
            self._interpreter.allocate_tensors()
            self.metadata = tflite_graph.metadata(content, runner.FORMAT)
        except Exception as error:  # The runtime's and flatbuffers' have no base of their own.
            raise errors.UserError(
                f"{origin} cannot be loaded as a TFLite model: {errors.summary(error)}"
            ) from None
        if (self.metadata or {}).get("version") != runner.FORMAT_VERSION:
            raise errors.UserError(
                f"{origin} is of another version of baseline.formats.tflite_policy, or no policy."
            )
        try:
            self.weight_bytes = int(self.metadata["weight_bytes"])
            self._input, = self._interpreter.get_input_details()
            places = {
                details["name"]: details["index"]
                for details in self._interpreter.get_output_details()
            }
            outputs = (runner.OUTPUT, runner.ACTION)
            self._places = {name: places[name] for name in outputs}
        except (ValueError, KeyError, TypeError):
            raise errors.UserError(f"{origin} is damaged: its metadata cannot be read.") from None
        self._batch = 1

    def _run(self, name: str, observations: np.ndarray) -> np.ndarray:
        shape = [int(size) for size in self._input["shape_signature"][1:]]
        observations = runner.fit(observations, shape, self._input["dtype"])
        try:
            if len(observations) != self._batch:
                self._interpreter.resize_tensor_input(
                    self._input["index"], observations.shape, strict=True
                )
                self._interpreter.allocate_tensors()
                self._batch = len(observations)
            self._interpreter.set_tensor(self._input["index"], observations)
            self._interpreter.invoke()
            return self._interpreter.get_tensor(self._places[name])
        except Exception as error:  # As above.
            raise errors.UserError(
                f"The policy cannot act on observations of shape {observations.shape[1:]}: "
                f"{errors.summary(error)}"
            ) from None
