"""The maps between a task's own numbers and the range [-1, 1] that agents work in.

Imports numpy only.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.environments import task_errors

# Bounds from here on mean "none": MuJoCo writes 1e10 for that, older environments float32's
# largest number, others infinity.
_NO_BOUND = 1e10


class ObservationScale(NamedTuple):
    """The map from a task's own observations to scaled ones: observation scale + offset.

    Attributes:
        scale: [D] float32, 1 where the task has no bounds.
        offset: [D] float32, there 0.
    """

    scale: np.ndarray
    offset: np.ndarray

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns the scaled observation, a new array, [D] float32."""
        return observation * self.scale + self.offset


def centre(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what maps between [-1, 1] and a task's own range: native = canonical half + middle.

    Args:
        low: [D] native lower bounds.
        high: [D] native upper bounds.

    Returns:
        [D] bool, which dimensions are between two finite bounds; [D] float64 half the width of
        the range, 1 where there is none; [D] float64 its middle, there 0.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = (low > -_NO_BOUND) & (high < _NO_BOUND)
    half, middle = np.ones_like(low), np.zeros_like(low)
    half[bounded] = (high[bounded] - low[bounded]) / 2
    middle[bounded] = (high[bounded] + low[bounded]) / 2
    return bounded, half, middle


def observation_scale(low: np.ndarray, high: np.ndarray) -> ObservationScale | None:
    """Returns what scales a task's observations to [-1, 1] within its bounds.

    Args:
        low: D native lower bounds, of any shape.
        high: D native upper bounds.

    Returns:
        The map, which only centres a dimension whose bounds are equal; None where no dimension is
        between two finite bounds.
    """
    bounded, half, middle = centre(np.reshape(low, -1), np.reshape(high, -1))
    if not np.any(bounded):
        return None
    half = np.where(half > 0, half, 1.0)
    return ObservationScale((1 / half).astype(np.float32), (-middle / half).astype(np.float32))


def continuous_action_map(
    low: np.ndarray, high: np.ndarray, shape: tuple[int, ...], dtype: np.dtype
) -> Callable[[Any], np.ndarray]:
    """Builds the map from canonical to native actions.

    A dimension between two finite bounds is scaled: native = low + (action + 1) / 2 * (high -
    low). Any other is clipped to [-1, 1] and passed on.

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
    # The map rises, so that clipping its result is clipping its argument; and the result can
    # then not leave the native bounds by a rounding error, nor by that of the bounds themselves.
    lowest = np.where(bounded, low64, np.maximum(low64, -1.0))
    highest = np.where(bounded, high64, np.minimum(high64, 1.0))
    beyond = np.flatnonzero(~bounded & (lowest >= highest))
    if beyond.size:
        low_text, high_text = (f"{bound[beyond[0]]:g}" for bound in (low64, high64))
        raise task_errors.TaskError(
            f"dimension {beyond[0]} of the task's actions goes from {low_text} to {high_text}: "
            "with a bound on one side only, actions are within [-1, 1]; wrap the task to have two"
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
