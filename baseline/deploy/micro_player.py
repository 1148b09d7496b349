"""Plays TFLite files with TensorFlow Lite Micro's own interpreter, on this machine.

Its package, tflite-micro, is no part of set-up: `pip install -r tests/requirements.txt` brings it.
"""

import importlib.util
import json

import numpy as np

from baseline.deploy import run_policy
from baseline.formats import names

_PACKAGE = "tflite_micro"


def is_installed() -> bool:
    """Returns whether the interpreter's package is there."""
    return importlib.util.find_spec(_PACKAGE) is not None


class Policy:
    """A file's policy, ready to act."""

    def __init__(self, content: bytes):
        """Loads a file that `deploy --format tflite --tflite_kernels micro` wrote.

        Args:
          content: The file.

        Raises:
          RuntimeError: The interpreter refuses it.
        """
        from tflite_micro import runtime

        # 10 times the file is the interpreter's own choice, which is too little for small files.
        model = runtime.Interpreter.from_bytes(content, arena_size=10 * len(content) + 2**22)
        start = content.index(run_policy.MARK)
        facts = json.JSONDecoder().raw_decode(content[start:].decode("latin-1"))[0]
        given: list[str] = facts["outputs"]
        taken = model.get_input_details(0)

        def call(x: np.ndarray, name: str) -> np.ndarray:
            model.set_input(x, 0)
            model.invoke()
            return np.array(model.get_output(given.index(name)))

        maps = {name: _affine(model.get_output_details(at)) for at, name in enumerate(given)}
        self.shape, self.dtype, self._call = run_policy.in_integers(
            facts, taken["shape"][1:], _affine(taken), maps, call
        )
        self.run = model.invoke  # Plays the last observation again, and returns no action.

    def __call__(self, observation: np.ndarray, name: str = names.ACTION) -> np.ndarray:
        """Returns the action for one observation, or the "output" that it follows from, [A]."""
        return self._call(np.asarray(observation, self.dtype).reshape(1, *self.shape), name)[0]


def _affine(details: dict) -> tuple[float, ...]:
    """Returns the scale and the zero point of a tensor; nothing for one of whole numbers."""
    found = details["quantization_parameters"]
    return tuple(part[0] for part in (found["scales"], found["zero_points"]) if len(part))
