"""The maps between a task's own numbers and the range [-1, 1] that agents work in.

Imports numpy only.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.environments import task_errors

# Bounds of this size mean "none": MuJoCo writes 1e10, older environments write float32's largest
# number, and others infinity.
_NO_BOUND = 1e10


class ObservationScale(NamedTuple):
    """The map from a task's own observations to scaled ones: observation * scale + offset.

    Attributes:
      scale: [D] float32, 1 where the task has no bounds.
      offset: [D] float32, 0 where the task has no bounds.
    """

    scale: np.ndarray
    offset: np.ndarray

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns the scaled observation, a new array, [D] float32."""
        return observation * self.scale + self.offset


def centre(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the map between [-1, 1] and a task's own range: native = canonical * half + middle.

    Args:
      low: [D] native lower bounds.
      high: [D] native upper bounds.

    Returns:
      Three arrays [D]:
      * bool, whether a dimension is between two finite bounds;
      * float64, half the width of its range, 1 where there are no bounds;
      * float64, the middle of its range, 0 where there are no bounds.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = (low > -_NO_BOUND) & (high < _NO_BOUND)
    half, middle = np.ones_like(low), np.zeros_like(low)
    half[bounded] = (high[bounded] - low[bounded]) / 2
    middle[bounded] = (high[bounded] + low[bounded]) / 2
    return bounded, half, middle


def observation_scale(low: np.ndarray, high: np.ndarray) -> ObservationScale | None:
    """Returns the map that scales a task's observations to [-1, 1] within its bounds.

    Args:
      low: D native lower bounds, of any shape.
      high: D native upper bounds.

    Returns:
      The map, or None where no dimension is between two finite bounds. A dimension whose bounds
      are equal is only centred.
    """
    bounded, half, middle = centre(np.reshape(low, -1), np.reshape(high, -1))
    if not np.any(bounded):
        return None
    half = np.where(half > 0, half, 1.0)
    return ObservationScale((1 / half).astype(np.float32), (-middle / half).astype(np.float32))


class ActionRange(NamedTuple):
    """The range of a task's actions that an agent uses.

    Attributes:
      low: [A] float64 lower bounds, in the task's own units.
      high: [A] float64 upper bounds, likewise.
      note: A sentence on dimensions without bounds of their own; "" where all have them.
    """

    low: np.ndarray
    high: np.ndarray
    note: str


def action_range(low: np.ndarray, high: np.ndarray, limit: float) -> ActionRange:
    """Returns a task's range of actions, with +-limit wherever the task has no bound.

    Args:
      low: [A] native lower bounds.
      high: [A] native upper bounds.
      limit: Size of the largest action of a dimension without a bound.

    Raises:
      TaskError: The only bound of a dimension lies beyond the limit.
    """
    bounded, _, _ = centre(low, high)
    low = np.where(np.asarray(low, np.float64) <= -_NO_BOUND, -limit, low)
    high = np.where(np.asarray(high, np.float64) >= _NO_BOUND, limit, high)
    lacking = np.flatnonzero(~bounded)
    for index in lacking[low[lacking] >= high[lacking]]:
        raise task_errors.TaskError(
            f"dimension {index} of the task's actions goes from {low[index]:g} to {high[index]:g}, "
            f"since --action_limit={limit:g} stands in for a bound that it lacks: choose a larger "
            "--action_limit, or wrap the task to have both bounds"
        )
    note = ""
    if lacking.size:
        ranges = {f"[{low[index]:g}, {high[index]:g}]" for index in lacking}
        note = (
            f"{lacking.size} of {low.size} numbers in an action lack bounds: they are taken from "
            f"{' and '.join(sorted(ranges))} (--action_limit)."
        )
    return ActionRange(np.asarray(low, np.float64), np.asarray(high, np.float64), note)


def byte_scale(largest: np.ndarray) -> ObservationScale | None:
    """Returns the map that scales bytes to [0, 1]; None where there are none.

    Args:
      largest: [D] largest value of each number that is a byte, 0 for other numbers.
    """
    if not np.any(largest):
        return None
    scale = 1 / np.where(largest > 0, largest, 1.0)
    return ObservationScale(scale.astype(np.float32), np.zeros(scale.size, np.float32))


def continuous_action_map(
    low: np.ndarray, high: np.ndarray, shape: tuple[int, ...], dtype: np.dtype
) -> Callable[[Any], np.ndarray]:
    """Builds the map from canonical to native actions.

    A dimension between two finite bounds is scaled:

        native = low + (action + 1) / 2 * (high - low)

    Any other dimension is clipped to [-1, 1] and passed on.

    Args:
      low: [A] native lower bounds.
      high: [A] native upper bounds.
      shape: Native shape, of A elements.
      dtype: Native floating type.

    Returns:
      A function from [A] float32 in [-1, 1] to a new array of the native shape and type.

    Raises:
      TaskError: A dimension with a bound on one side only has no room within [-1, 1].
    """
    low64, high64 = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded, half, middle = centre(low64, high64)
    scale, offset = half.astype(np.float32), middle.astype(np.float32)
    # The map rises, so that clipping its result equals clipping its argument. A clipped result
    # cannot leave the native bounds by rounding errors, neither its own nor those of the bounds.
    lowest = np.where(bounded, low64, np.maximum(low64, -1.0))
    highest = np.where(bounded, high64, np.minimum(high64, 1.0))
    beyond = np.flatnonzero(~bounded & (lowest >= highest))
    if beyond.size:
        low_text, high_text = (f"{bound[beyond[0]]:g}" for bound in (low64, high64))
        raise task_errors.TaskError(
            f"dimension {beyond[0]} of the task's actions goes from {low_text} to {high_text}: "
            "with a bound on one side only, actions are within [-1, 1]. Wrap the task to have two"
        )
    lowest, highest = lowest.astype(dtype), highest.astype(dtype)
    size = (low64.size,)
    is_identity = bool(np.all(scale == 1.0) and np.all(offset == 0.0))
    is_flat, is_single = shape == size, dtype == np.float32

    def to_native(action: Any) -> np.ndarray:
        action = np.asarray(action, np.float32)
        if action.shape != size:
            raise ValueError(
                f"an action of shape {action.shape} was given to a task whose "
                f"actions have shape {size}"
            )
        if not is_identity:
            action = action * scale + offset
        if not is_single:
            action = action.astype(dtype)
        action = np.minimum(np.maximum(action, lowest), highest)
        return action if is_flat else action.reshape(shape)

    return to_native
