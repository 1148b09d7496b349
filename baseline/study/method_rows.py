"""Rows of `methods.csv`: evaluations of agents quantized by methods that calibrate.

They are rows as in `rows`, with further columns. Full precision, and minmax without groups, stay
in `ptq.csv`. Imports no framework.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import NamedTuple

from baseline.quantization import recipes
from baseline.study import rows as rows_lib

CSV_NAME = "methods.csv"


class MethodKey(NamedTuple):
    """Tells the rows apart: rows of equal key replace each other."""

    evaluation: rows_lib.Key
    method: str
    group_size: int


@dataclasses.dataclass(frozen=True)
class MethodRow(rows_lib.Row):
    """One evaluation of one agent; E compares it with the row of fp32 in `ptq.csv`.

    Attributes:
      method: methods, comma separated, as `recipes.parse` orders them; or "auto".
      chosen: the methods that were applied: those of `method`, or what `auto` chose.
      group_size: inputs of an output that share a scale; 0: all of them.
      states: calibration states.
      agreement: share of the held-out states with full precision's action (discrete), or with each
        component within 2 % of its range (continuous).
      deviation: mean deviation of continuous actions there, as a share of their range; None for
        discrete ones.
    """

    MAKER: ClassVar = ".venv/bin/python -m baseline.ptq ALGO ENV BITS --method mse makes them"

    method: str
    chosen: str
    group_size: int
    states: int
    agreement: float
    deviation: float | None

    def __post_init__(self) -> None:
        """Raises ValueError for values that no evaluation can have."""
        super().__post_init__()
        known = {*recipes.METHODS, recipes.AUTO}
        if not set(self.method.split(",")) <= known:
            raise ValueError(f"method is {self.method!r}, not some of {sorted(known)}")

    @property
    def key(self) -> MethodKey:
        """The columns that tell this row from others."""
        return MethodKey(self.evaluation, self.method, self.group_size)


def of_method(row: rows_lib.Row, **columns: Any) -> MethodRow:
    """Returns a row with the columns that only `MethodRow` has."""
    fields = dataclasses.fields(rows_lib.Row)
    return MethodRow(**{field.name: getattr(row, field.name) for field in fields}, **columns)
