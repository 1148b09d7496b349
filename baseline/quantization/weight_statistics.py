"""Figures about the distribution of weights and about errors of their quantization.

Imports numpy only.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from actorQ.core import errors

WIDTH_SHARE = 0.99  # Share of the weights within the width of a distribution.


class Spread(NamedTuple):
    """The figures that a row has about one tensor, or about several taken together.

    The paper relates the "width" of a weight distribution to the error at int8 (arXiv:1910.01055,
    sec. 5) without saying how it is measured. Here it is the width of the central 99 %: from the
    0.5th to the 99.5th percentile. The range (maximum - minimum) depends on two single weights. The
    width tells how far most weights spread, so that range / width tells how many levels of a
    uniform quantizer outliers take away from the rest.

    Attributes:
      minimum: Smallest number.
      maximum: Largest number.
      range: Maximum - minimum.
      width: Width of the central 99 %.
    """

    minimum: float
    maximum: float
    range: float
    width: float


class WeightStatistics(NamedTuple):
    """Further figures, which take more time and memory; see `Spread`.

    Attributes:
      minimum: See `Spread`.
      maximum: See `Spread`.
      range: See `Spread`.
      width: See `Spread`.
      distinct: Count of different numbers.
      count: Count of all numbers.
      mean: Mean of all numbers.
      std: Standard deviation of all numbers.
    """

    minimum: float
    maximum: float
    range: float
    width: float
    distinct: int
    count: int  # type: ignore[assignment]  # It is a column's name, and hides tuple.count.
    mean: float
    std: float


class QuantizationError(NamedTuple):
    """Tells how far quantized numbers are from the original ones.

    Attributes:
      mean_absolute: Mean of |after - before|.
      max_absolute: Maximum of |after - before|.
      relative_rms: Root mean square of after - before, over that of before; 0 where both are 0.
      sqnr_db: Signal to quantization noise ratio, -20 log10(relative_rms), in dB; infinite where
        nothing changed.
    """

    mean_absolute: float
    max_absolute: float
    relative_rms: float
    sqnr_db: float


def spread(arrays: Mapping[str, np.ndarray] | np.ndarray) -> Spread:
    """Returns the figures of one array, or of all arrays in a mapping taken together.

    Args:
      arrays: Floats of any shapes.

    Raises:
      errors.UserError: They hold no number, or one that is NaN or infinite.
    """
    numbers = flatten(arrays, None)
    low, high = float(numbers.min()), float(numbers.max())
    lower, upper = central(numbers)
    return Spread(low, high, high - low, upper - lower)


def statistics(arrays: Mapping[str, np.ndarray] | np.ndarray) -> WeightStatistics:
    """Returns all figures; see `spread`."""
    numbers = flatten(arrays)
    return WeightStatistics(
        *spread(numbers),
        distinct=int(np.unique(numbers).size),
        count=numbers.size,
        mean=float(numbers.mean()),
        std=float(numbers.std()),
    )


def central(numbers: np.ndarray) -> tuple[float, float]:
    """Returns the ends of the interval whose width is `Spread.width`."""
    tail = 50.0 * (1.0 - WIDTH_SHARE)
    lower, upper = np.percentile(numbers, [tail, 100.0 - tail])
    return float(lower), float(upper)


def quantization_error(
    before: Mapping[str, np.ndarray] | np.ndarray, after: Mapping[str, np.ndarray] | np.ndarray
) -> QuantizationError:
    """Returns how far `after` is from `before`: arrays of equal shapes, under equal names.

    Raises:
      errors.UserError: See `spread`.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        after = {name: after[name] for name in before}
    numbers = flatten(before)
    difference = flatten(after) - numbers
    noise, signal = (float(np.sqrt(np.mean(np.square(part)))) for part in (difference, numbers))
    relative = noise / signal if signal else float(noise > 0)
    with np.errstate(divide="ignore"):
        sqnr_db = float(-20.0 * np.log10(relative))
    absolute = np.abs(difference)
    return QuantizationError(float(absolute.mean()), float(absolute.max()), relative, sqnr_db)


def flatten(
    arrays: Mapping[str, np.ndarray] | np.ndarray, dtype: type | None = np.float64
) -> np.ndarray:
    """Returns all numbers as one vector.

    Args:
      arrays: Floats of any shapes.
      dtype: Type of the vector; None keeps the arrays' own type.

    Raises:
      errors.UserError: There is no number, or one is NaN or infinite.
    """
    named = dict(arrays) if isinstance(arrays, Mapping) else {"the tensor": arrays}
    for name, array in named.items():
        if not np.all(np.isfinite(array)):
            raise errors.UserError(f"The weights hold NaN or infinity (in {name}).")
    parts = [np.asarray(array, dtype).ravel() for array in named.values()]
    numbers = np.concatenate(parts) if parts else np.zeros(0)
    if not numbers.size:
        raise errors.UserError("There are no weights to look at.")
    return numbers
