"""The integers' grid of one layer: which weights share a scale, and rounding to the grid.

A layer's weights are a matrix [rows, columns] here, one row for each output. A unit is a set of
weights that share a scale and a zero point: the tensor, a row, or a group inside a row.
"""

from typing import NamedTuple

import numpy as np

from actorQ.policy import quantization


class Layout(NamedTuple):
    """Says which weights of a matrix share a scale.

    Attributes:
      rows: Outputs of the layer.
      columns: Inputs of each output.
      by_row: Whether each row has a scale of its own.
      group_size: Inputs of a row that share a scale; 0: all of them.
    """

    rows: int
    columns: int
    by_row: bool
    group_size: int = 0

    @property
    def num_units(self) -> int:
        """Number of scales."""
        return self._groups * self.rows if self.by_row else 1

    @property
    def _groups(self) -> int:
        return -(-self.columns // self.group_size) if self.group_size else 1

    def units(self, matrix: np.ndarray) -> np.ndarray:
        """Returns the weights [rows, columns] by unit, [units, n].

        Zeros fill a last group that is shorter. They change no range, since each contains zero.
        """
        if not self.by_row:
            return matrix.reshape(1, -1)
        if not self.group_size:
            return matrix
        lacking = self._groups * self.group_size - self.columns
        return np.pad(matrix, ((0, 0), (0, lacking))).reshape(-1, self.group_size)

    def spread(self, numbers: np.ndarray) -> np.ndarray:
        """Returns a number of each unit [units] for every weight [rows, columns]."""
        if not self.by_row:
            return np.broadcast_to(numbers.reshape(1, 1), (self.rows, self.columns))
        by_group = numbers.reshape(self.rows, self._groups)
        if not self.group_size:
            return np.broadcast_to(by_group, (self.rows, self.columns))
        return np.repeat(by_group, self.group_size, axis=1)[:, : self.columns]


class Grid(NamedTuple):
    """The levels that each weight may take: `delta * (values - zero_point)`.

    Attributes:
      delta: float32 [rows, columns].
      zero_point: float32 [rows, columns], whole numbers.
      bits: Width of the integers, 2 to 16.
      rounding: "nearest" or "floor".
    """

    delta: np.ndarray
    zero_point: np.ndarray
    bits: int
    rounding: quantization.Rounding = "nearest"

    @property
    def highest(self) -> int:
        """The largest integer."""
        return 2**self.bits - 1

    def values(self, matrix: np.ndarray) -> np.ndarray:
        """Returns the integers of weights, float32 [rows, columns]."""
        return values(matrix, self.delta, self.zero_point, self.bits, self.rounding)

    def reals(self, integers: np.ndarray) -> np.ndarray:
        """Returns the numbers for which integers [rows, columns] stand, float32."""
        return (integers - self.zero_point) * self.delta

    def column(self, index: int) -> "Grid":
        """Returns the grid of one column, [rows, 1]."""
        part = np.s_[:, index : index + 1]
        return self._replace(delta=self.delta[part], zero_point=self.zero_point[part])


def values(
    numbers: np.ndarray,
    delta: np.ndarray,
    zero_point: np.ndarray,
    bits: int,
    rounding: quantization.Rounding = "nearest",
) -> np.ndarray:
    """Returns clamp(round(numbers / delta) + zero_point, 0, 2^bits - 1) as float32.

    The formula is that of `quantization.affine_values`, for maps of any shape that fits.
    """
    steps = np.asarray(numbers, np.float32) / delta
    steps = np.floor(steps) if rounding == "floor" else np.rint(steps)
    return np.clip(steps + zero_point, 0, 2**bits - 1)


def make(
    layout: Layout,
    low: np.ndarray,
    high: np.ndarray,
    bits: int,
    rounding: quantization.Rounding = "nearest",
) -> Grid:
    """Returns the grid for the ranges of all units.

    Args:
      layout: Which weights share a scale.
      low: Smallest numbers, [units].
      high: Largest numbers, [units].
      bits: Width of the integers, 2 to 16.
      rounding: Rounding of weights and zero points.
    """
    delta, zero_point = quantization.affine_map(low, high, bits, rounding)
    return Grid(
        layout.spread(delta), layout.spread(zero_point.astype(np.float32)), bits, rounding
    )
