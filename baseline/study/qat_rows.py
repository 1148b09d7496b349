"""Rows of `qat.csv`: evaluations of agents that were trained here, and how they were trained.

They are rows as in `rows`, with further columns. Imports no framework.
"""

import dataclasses
from typing import Any
from typing import ClassVar
from typing import NamedTuple

from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import rows as rows_lib

CSV_NAME = "qat.csv"
DEFAULT_FOLDER = "logs/qat"
# A control was trained in full precision; PTQ quantizes a control's agent after its training.
METHODS = CONTROL, QAT, PTQ = "control", "qat", "ptq"
ESTIMATORS = STE, LSQ = "ste", "lsq"  # See `qat.settings.QatSettings`.
RANGES = FROZEN, MOVING = "frozen", "moving"  # Of ste.
LEARNED = "learned"  # The ranges of lsq.
INPUT_BITS = 8  # Default: fewest bits of observations.


class TrainedKey(NamedTuple):
    """Tells the rows of trainings apart: rows of equal key replace each other."""

    evaluation: rows_lib.Key
    method: str
    train_seed: int
    train_steps: int
    quant_delay: int | None
    ranges: str
    input_bits: int | None
    output_bits: int | None
    hyperparams: str
    widths: str


@dataclasses.dataclass(frozen=True)
class TrainedRow(rows_lib.Row):
    """One evaluation of an agent; E and its interval compare a PTQ row with its own control.

    Attributes:
      method: one of `METHODS`.
      train_seed: seed of the training.
      train_steps: environment steps of the training.
      quant_delay: environment steps before quantization started; None: it never did.
      ranges: ranges of activations: one of `RANGES` or `LEARNED`, "-99.9" behind it where they
        start from a percentile; with PTQ `calibrated(...)`; or empty where nothing is quantized.
      input_bits: bits of observations; None: not quantized.
      output_bits: bits of the policy's output; None: not quantized.
      run: run of the training, as ENV_<n>.
      hyperparams: hyper-parameters that replaced tuned ones, as `name:value` with spaces between.
      widths: bits that differ from the weights', `bits`, as "activations:4 first:8 last:8".
    """

    LATER: ClassVar = ("widths",)
    MAKER: ClassVar = "baseline/qat_benchmark.sh ALGO ENV makes them"

    method: str
    train_seed: int
    train_steps: int
    quant_delay: int | None
    ranges: str
    input_bits: int | None
    output_bits: int | None
    run: str
    hyperparams: str = ""
    widths: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for values that no evaluation can have."""
        super().__post_init__()
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}, not one of {METHODS}")
        if (self.method == CONTROL) != (self.bits == names.FP32):
            raise ValueError(f"method is {self.method}, but bits is {self.bits}")

    @property
    def key(self) -> TrainedKey:
        """The columns that tell this row from others."""
        return TrainedKey(*(getattr(self, name) for name in TrainedKey._fields))


def calibrated(episodes: int, method: str = recipes.MINMAX) -> str:
    """Returns the value of `ranges` where so many episodes of the control found them.

    Args:
      episodes: number of episodes.
      method: method of the quantization, whose name stands behind the number unless it is minmax.
    """
    return "-".join(["calibrated", str(episodes), *([method] if method != recipes.MINMAX else [])])


def trained(row: rows_lib.Row, **columns: Any) -> TrainedRow:
    """Returns a row with the columns about its training, which only `TrainedRow` has."""
    of_row = {field.name: getattr(row, field.name) for field in dataclasses.fields(rows_lib.Row)}
    return TrainedRow(**of_row | columns)
