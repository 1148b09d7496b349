"""Blocks of results/advice.md: the rates that `actorQ.advise` predicts, beside measured ones."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import statistics
from typing import NamedTuple

from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records

AIM = 0.15  # Our own aim for the mean error.


class Row(NamedTuple):
    """One pair of task and model with some actors.

    Attributes:
      task: Task without its suite.
      layers: Units of the hidden layers.
      samples_per_insert: Samples per insert of its trainings.
      actors: Number of actors.
      bits: Their precision.
      predicted: Predicted learner steps/s.
      measured: Measured learner steps/s.
    """

    task: str
    layers: str
    samples_per_insert: float
    actors: int
    bits: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Size of the error, as a share of what was measured."""
        return abs(self.predicted / self.measured - 1)


@functools.cache
def rows() -> tuple[Row, ...]:
    """Returns all rows, in the order of the measurement."""
    return tuple(
        Row(
            row["pair"]["task"].partition(",")[2], row["pair"]["model"].replace(",", "-"),
            row["pair"]["samples_per_insert"], row["crew"]["actors"], row["crew"]["bits"],
            row["predicted"], row["measured"],
        )
        for row in benchmark_records.load("advice")["rows"]
    )


def mean_error() -> float:
    """Returns the mean size of the errors."""
    return statistics.mean(row.error for row in rows())


def gains() -> list[tuple[float, float]]:
    """Returns predicted and measured gains of int8 over fp32, by pair and number of actors."""
    by_side = {(row[:4], row.bits): row for row in rows()}
    return [
        (row.predicted / wide.predicted, row.measured / wide.measured)
        for (place, bits), row in by_side.items()
        if bits == 8 and (wide := by_side[place, 32])
    ]


@prose.wrapped
def answer() -> str:
    """Returns the answer of the page."""
    pairs = {(row.task, row.layers) for row in rows()}
    found = gains()
    off = statistics.mean(abs(predicted / measured - 1) for predicted, measured in found)
    verdict = "reached" if mean_error() < AIM else "missed"
    return (
        f"**Answer.** Predicted and measured learner steps/s differ by {_percent(mean_error(), 1)} "
        f"in the mean over {len(rows())} trainings (aim below {_percent(AIM)}: **{verdict}**). "
        f"They are of {len(pairs)} pairs of task and model. The gain of int8 over fp32 is off by "
        f"{_percent(off, 1)} in the mean."
    )


def main_table() -> str:
    """Returns every training with its prediction."""
    lines: list[Sequence[str]] = []
    before: tuple[str, ...] = ()
    for row in rows():
        place = (row.task, row.layers, f"{row.samples_per_insert:g}")
        lines.append([
            *(place if place != before else ("", "", "")), str(row.actors), str(row.bits),
            f"{row.predicted:.1f}", f"{row.measured:.1f}", _percent(row.error),
        ])
        before = place
    head = ["Task", "Hidden layers", "Samples per insert", "Actors", "Bits",
            "Predicted, steps/s", "Measured, steps/s", "Error"]
    return tables.table(head, lines, text_columns=2)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


BLOCKS: dict[str, Callable[[], str]] = {"answer": answer, "main": main_table}
