"""Maps of gymnasium's spaces to what networks take: vectors, images and numbered actions."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import importlib
import math
from typing import Any

import numpy as np

from actorQ.environments import scales
from actorQ.environments import task_errors

_MOST_COMBINATIONS = 1024  # Most actions that a Q-network has for combinations of choices.
_SMALLEST_IMAGE = 16  # Pixels on either side: a smaller array of bytes is a table, not a picture.


@dataclasses.dataclass(frozen=True, eq=False)
class Observations:
    """The observations of a space as networks take them.

    Attributes:
      convert: Returns an observation as a new array.
      shape: Shape of the arrays: [D], or [H, W, C] for images.
      dtype: Type of the arrays: float32, or uint8 for images.
      largest_bytes: [D] largest value of each number that is a byte, 0 for others; empty for
        images.
      note: A sentence on what a user may not expect; "" for nothing.
    """

    convert: Callable[[Any], np.ndarray]
    shape: tuple[int, ...]
    dtype: np.dtype
    largest_bytes: np.ndarray
    note: str = ""

    @classmethod
    def of(cls, space: Any, name: str) -> "Observations":
        """Maps a space's observations.

        Images are boxes of bytes with two or three axes, but for very small ones. Other boxes are
        flattened, numbers of a Discrete space become one-hot, and the entries of Dict and Tuple
        spaces are joined.

        Args:
          space: The observation space.
          name: Name of the task, for messages.

        Raises:
          TaskError: The space holds an image beside other entries, or has no vectors.
        """
        spaces = importlib.import_module("gymnasium.spaces")
        if _is_image(space):
            return cls._of_image(space)
        if images := [path for path, part in _parts(space) if _is_image(part)]:
            raise task_errors.TaskError(
                f"task {name} has an image beside other observations ({', '.join(images)}), which "
                "no network here takes: wrap the task to leave out either (FilterObservation and "
                "FlattenObservation of gymnasium.wrappers)"
            )
        if not getattr(space, "is_np_flattenable", False):
            raise task_errors.TaskError(
                f"task {name} has the observation space {space}; only spaces that flatten to a "
                "vector are supported: wrap the task (gymnasium.wrappers.TransformObservation)"
            )
        size, float32 = int(spaces.flatdim(space)), np.dtype(np.float32)
        largest = np.concatenate([_largest_bytes(part) for _, part in _parts(space)])
        if not isinstance(space, spaces.Box):
            def convert(value: Any) -> np.ndarray:
                return np.array(spaces.flatten(space, value), np.float32)
        elif len(space.shape) == 1:
            def convert(value: Any) -> np.ndarray:
                return np.array(value, np.float32)
        else:
            def convert(value: Any) -> np.ndarray:
                return np.array(value, np.float32).reshape(-1)
        return cls(convert, (size,), float32, largest)

    @classmethod
    def _of_image(cls, space: Any) -> "Observations":
        shape, byte = space.shape, np.dtype(np.uint8)
        if len(shape) == 2:
            return cls(
                lambda value: np.array(value, byte)[..., None], (*shape, 1), byte,
                np.zeros(0), "Its images have no axis of channels, and get one: [H, W, 1].",
            )
        if _channels_first(shape):
            return cls(
                lambda value: np.moveaxis(np.asarray(value, byte), 0, -1).copy(),
                (*shape[1:], shape[0]), byte, np.zeros(0),
                "Its images have their channels first, and are turned to [H, W, C].",
            )
        return cls(np.array, shape, byte, np.zeros(0))


@dataclasses.dataclass(frozen=True, eq=False)
class Actions:
    """The actions of a space as networks give them.

    Attributes:
      to_native: Maps [A] float32 in [-1, 1], or a number from 0 on, to the space's own action.
      fields: The `EnvironmentSpec` fields that describe the actions.
      note: A sentence on what a user may not expect; "" for nothing.
    """

    to_native: Callable[[Any], Any]
    fields: dict[str, Any]
    note: str = ""

    @classmethod
    def of(cls, space: Any, name: str, limit: float) -> "Actions":
        """Maps a space's actions.

        Args:
          space: The action space.
          name: Name of the task, for messages.
          limit: Size of the largest action of a dimension without a bound.

        Raises:
          TaskError: The space is of a kind that no agent here supports.
        """
        spaces = importlib.import_module("gymnasium.spaces")
        if isinstance(space, spaces.Discrete):
            start = int(space.start)
            fields = {"num_actions": int(space.n), "action_start": start}
            return cls(lambda action: int(action) + start, fields)
        if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
            return cls._of_combinations(space, name)
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            found = scales.action_range(space.low.reshape(-1), space.high.reshape(-1), limit)
            return cls(
                scales.continuous_action_map(found.low, found.high, space.shape, space.dtype),
                {"action_low": found.low.astype(np.float32),
                 "action_high": found.high.astype(np.float32)},
                found.note,
            )
        raise task_errors.TaskError(
            f"task {name} has the action space {space}; only Discrete, MultiDiscrete, MultiBinary "
            "and floating-point Box action spaces are supported: wrap the task "
            "(gymnasium.wrappers.TransformAction)"
        )

    @classmethod
    def _of_combinations(cls, space: Any, name: str) -> "Actions":
        counts = getattr(space, "nvec", np.full(space.shape, 2))
        if np.any(getattr(space, "start", 0)):
            raise task_errors.TaskError(
                f"task {name} has the action space {space}, whose numbers do not begin at 0: wrap "
                "the task (gymnasium.wrappers.TransformAction)"
            )
        sizes = tuple(int(count) for count in counts.reshape(-1))
        count = math.prod(sizes)
        if count > _MOST_COMBINATIONS:
            raise task_errors.TaskError(
                f"task {name} has {count:,} combinations of actions ({space}), and at most "
                f"{_MOST_COMBINATIONS:,} are possible: wrap the task to have fewer choices "
                "(gymnasium.wrappers.TransformAction)"
            )

        def to_native(action: Any) -> np.ndarray:
            parts = np.array(np.unravel_index(int(action), sizes), space.dtype)
            return parts.reshape(space.shape)

        return cls(
            to_native, {"num_actions": count, "action_combinations": sizes},
            f"Its {len(sizes)} choices in one action count as one among {count:,} combinations.",
        )


def _parts(space: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the spaces inside a Dict or Tuple space with their names, as flattening has them."""
    spaces = importlib.import_module("gymnasium.spaces")
    if isinstance(space, spaces.Dict):
        inner = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        inner = enumerate(space.spaces)
    else:
        yield path, space
        return
    for name, part in inner:
        yield from _parts(part, f"{path}.{name}".lstrip("."))


def _is_image(space: Any) -> bool:
    """Returns whether the observations of a space are images."""
    spaces = importlib.import_module("gymnasium.spaces")
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    shape = space.shape
    if len(shape) == 3:
        shape = shape[1:] if _channels_first(shape) else shape[:2]
    return len(shape) == 2 and min(shape) >= _SMALLEST_IMAGE


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Returns whether a shape of three axes is [C, H, W] rather than [H, W, C]."""
    return len(shape) == 3 and shape[0] < min(shape[1:])


def _largest_bytes(space: Any) -> np.ndarray:
    """Returns the largest value of every number that is a byte, and 0 for others: [D]."""
    spaces = importlib.import_module("gymnasium.spaces")
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return space.high.reshape(-1).astype(np.float64)
    return np.zeros(int(spaces.flatdim(space)))
