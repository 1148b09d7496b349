"""What the engines' runners have in common: names in files, reading files, observations, calls.

Imports numpy only.
"""

import abc
from collections.abc import Sequence
import os
import pathlib
from typing import Any

import numpy as np

from actorQ.core import errors

# Of inputs and outputs in every engine's files, and what marks such a file.
OBSERVATION, OUTPUT, ACTION = "observation", "output", "action"
FORMAT, FORMAT_VERSION = "quarl_policy", "1"


class PolicyRunner(abc.ABC):
    """A policy for an integer engine, ready to act; each engine has its own `Runner`.

    Attributes:
      metadata: what the file says of itself (see the engine's exporter).
      weight_bytes: of weights, biases, scales and zero points in it.
    """

    metadata: dict[str, Any]
    weight_bytes: int

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

    @abc.abstractmethod
    def _run(self, name: str, observations: np.ndarray) -> np.ndarray:
        """Returns the output of this name.

        Raises:
          errors.UserError: the observations do not fit the policy.
        """


def read(model: bytes | str | os.PathLike[str]) -> tuple[bytes, str]:
    """Returns a model's content, and what to call it in messages.

    Args:
      model: a file's path or content.

    Raises:
      errors.UserError: the file cannot be read.
    """
    if isinstance(model, bytes):
        return model, "The model"
    try:
        # Read here, not by a runtime: it would follow references to other files.
        return pathlib.Path(model).read_bytes(), os.fspath(model)
    except OSError as error:
        raise errors.UserError(f"Cannot read {os.fspath(model)}: {error.strerror}.") from None


def fit(
    observations: np.ndarray, expected: Sequence[int | str], dtype: np.dtype | type
) -> np.ndarray:
    """Returns observations [B, ...] as a model takes them.

    Args:
      observations: of any shape behind the batch, if the model takes vectors.
      expected: the model's shape behind the batch; a name stands for any size.
      dtype: np.uint8 (images) or np.float32.

    Raises:
      errors.UserError: they do not fit.
    """
    observations = np.atleast_1d(observations)
    if dtype == np.uint8 and observations.dtype != np.uint8:
        raise errors.UserError(f"The policy looks at images of uint8, not at {observations.dtype}.")
    shape = observations.shape[1:]
    if len(expected) == 1:
        observations = observations.reshape(len(observations), -1)
    fits = observations.ndim == 1 + len(expected) and all(
        isinstance(size, str) or size == here
        for size, here in zip(expected, observations.shape[1:], strict=True)
    )
    if not fits:
        raise errors.UserError(
            f"Observations of shape {shape} do not fit the policy, which takes "
            f"({', '.join(map(str, expected))}): is it of another environment?"
        )
    return np.ascontiguousarray(observations, dtype)
