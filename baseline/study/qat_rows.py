"""Rows of `qat.csv`: evaluations of agents that were trained here, and how they were trained.

As `results.Row`, with further columns. Imports no framework.
"""

import dataclasses
import os
from typing import Any
from typing import NamedTuple

from baseline.quantization import names
from baseline.study import rows as rows_lib

CSV_NAME = "qat.csv"
DEFAULT_FOLDER = "logs/qat"
# control: trained in full precision; ptq: a control's agent, quantized after its training.
METHODS = CONTROL, QAT, PTQ = "control", "qat", "ptq"
RANGES = FROZEN, MOVING = "frozen", "moving"  # See `qat_model.QatSettings`.
INPUT_BITS = 8  # Of observations, at least, where nothing else is asked for.


class TrainedKey(NamedTuple):
    """What was measured, how, and of which training: rows of equal key replace each other."""

    evaluation: rows_lib.Key
    method: str
    train_seed: int
    train_steps: int
    quant_delay: int | None
    ranges: str
    input_bits: int | None
    output_bits: int | None
    hyperparams: str


@dataclasses.dataclass(frozen=True)
class TrainedRow(rows_lib.Row):
    """One evaluation of an agent; E and its interval compare a PTQ row with its own control.

    Attributes:
      method: one of `METHODS`.
      train_seed: of the training.
      train_steps: environment steps of the training.
      quant_delay: of these before quantization started; None: it never did.
      ranges: of activations: one of `RANGES`, of PTQ `calibrated(...)`, or empty where nothing is
        quantized.
      input_bits: of observations; None: not quantized.
      output_bits: of the policy's output; None: not quantized.
      run: of the training, as ENV_<n>.
      hyperparams: that replaced tuned ones, as `name:value`, with spaces between.
    """

    method: str
    train_seed: int
    train_steps: int
    quant_delay: int | None
    ranges: str
    input_bits: int | None
    output_bits: int | None
    run: str
    hyperparams: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for what no evaluation can have given."""
        super().__post_init__()
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}, not one of {METHODS}")
        if (self.method == CONTROL) != (self.bits == names.FP32):
            raise ValueError(f"method is {self.method}, but bits is {self.bits}")

    @property
    def key(self) -> TrainedKey:
        """What tells this row from others."""
        return TrainedKey(
            super().key, *(getattr(self, name) for name in TrainedKey._fields[1:])
        )


def calibrated(episodes: int) -> str:
    """Returns what `ranges` is where so many episodes of the control found them."""
    return f"calibrated-{episodes}"


def trained(row: rows_lib.Row, **columns: Any) -> TrainedRow:
    """Returns a row with what is known of the training.

    Args:
      row: the evaluation.
      **columns: of the training: the attributes that `TrainedRow` has and `row` has not.
    """
    of_row = {field.name: getattr(row, field.name) for field in dataclasses.fields(rows_lib.Row)}
    return TrainedRow(**of_row, **columns)


def measured_rows(path: str) -> dict[TrainedKey, TrainedRow]:
    """Returns the rows that exist by key; an absent file has none.

    Raises:
      errors.UserError: the file is damaged, or of another kind.
    """
    if not os.path.exists(path):
        return {}
    return {row.key: row for row in rows_lib.read(path, TrainedRow)}
