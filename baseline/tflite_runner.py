"""Runs policies that `tflite_model` exported, in TFLite's interpreter.

Needs numpy and TensorFlow, which is loaded with the first model. Without the XNNPACK delegate,
which has none of the integer products in use and would only cut the graph into pieces.

What is damaged is refused, since the interpreter would crash on it; but a file that was made to
crash it is not told from others: play your own files only.
"""

import os

import numpy as np

from actorQ import errors
from baseline import runner_input
from baseline import tflite_graph

OBSERVATION, OUTPUT, ACTION = "observation", "output", "action"
FORMAT, FORMAT_VERSION = "quarl_policy", "1"


class Runner:
    """A policy for an integer engine, ready to act.

    Attributes:
      metadata: what the file says of itself (see `tflite_model.export`).
      num_bytes: size of the file.
      weight_bytes: of the constants in it.
    """

    def __init__(self, model: bytes | str | os.PathLike[str], threads: int = 1):
        """Loads a model.

        Args:
          model: a file's path or content.
          threads: to compute with.

        Raises:
          errors.UserError: the file is missing, damaged, or no policy exported here.
        """
        content, origin = runner_input.read(model)
        if not tflite_graph.is_whole(content):
            raise errors.UserError(
                f"{origin} is damaged, or no policy that baseline.tflite_model exported."
            )
        from tensorflow.lite.python import interpreter

        self.num_bytes = len(content)
        try:
            self._interpreter = interpreter.Interpreter(
                model_content=content,
                num_threads=threads,
                experimental_op_resolver_type=(
                    interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
                ),
            )
            self._interpreter.allocate_tensors()
            self.metadata = tflite_graph.metadata(content, FORMAT)
        except Exception as error:  # The runtime's and flatbuffers' have no base of their own.
            raise errors.UserError(
                f"{origin} cannot be loaded as a TFLite model: {errors.summary(error)}"
            ) from None
        if (self.metadata or {}).get("version") != FORMAT_VERSION:
            raise errors.UserError(
                f"{origin} is of another version of baseline.tflite_model, or no policy."
            )
        try:
            self.weight_bytes = int(self.metadata["weight_bytes"])
            self._input, = self._interpreter.get_input_details()
            places = {
                details["name"]: details["index"]
                for details in self._interpreter.get_output_details()
            }
            self._places = {name: places[name] for name in (OUTPUT, ACTION)}
        except (ValueError, KeyError, TypeError):
            raise errors.UserError(f"{origin} is damaged: its metadata cannot be read.") from None
        self._batch = 1

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Returns actions, int64 [B] or float32 [B, A], for observations [B, ...].

        Observations are normalized as in training, unless the model does it itself.

        Raises:
          errors.UserError: they do not fit the policy.
        """
        return self._run(ACTION, observations)

    def output(self, observations: np.ndarray) -> np.ndarray:
        """Returns the last layer's output, float32 [B, A], for observations [B, ...].

        Raises:
          errors.UserError: they do not fit the policy.
        """
        return self._run(OUTPUT, observations)

    def _run(self, name: str, observations: np.ndarray) -> np.ndarray:
        shape = [int(size) for size in self._input["shape_signature"][1:]]
        observations = runner_input.fit(observations, shape, self._input["dtype"])
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
