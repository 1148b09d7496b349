"""What the engines' runners have in common: reading files, and fitting observations.

Imports numpy only.
"""

from collections.abc import Sequence
import os
import pathlib

import numpy as np

from actorQ import errors


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
