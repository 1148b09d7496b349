"""Blocks of results/quantized-actors.md: what runs with actors of few bits learned."""

from collections.abc import Callable
import functools
import statistics

from actorQ.core import precisions
from actorQ.experiments.run_logs import meter_summary
from actorQ.scripts import quantization_table
from docs.generators import prose
from docs.generators import tables

_FOLDER = tables.ACTORQ_RESULTS / "quantized_actors"
_LARGE_STEPS = "large_steps"
_FAILED = {"True": True, "False": False, "": None}


@functools.cache
def rows(part: str = "") -> tuple[quantization_table.Row, ...]:
    """Returns the runs, or those of a part: a folder below that of the results."""
    return tuple(
        quantization_table.Row(
            row["run"], row["task"], int(row["bits"]), int(row["learner_bits"]), int(row["seed"]),
            row["commit"], float(row["return_fp32"]), float(row["return_quantized"]),
            _FAILED[row["failed"]],
            {name: float(row[name] or "nan") for name in meter_summary.FIGURES},
        )
        for row in tables.csv_rows(_FOLDER / part / "runs.csv")
    )


def _groups(part: str = "") -> dict[tuple[str, int], dict[int, list[quantization_table.Row]]]:
    """Returns the runs by task and bits of the actors, then by bits of the learner."""
    found: dict[tuple[str, int], dict[int, list[quantization_table.Row]]] = {}
    for row in sorted(rows(part), key=lambda row: (row.task, -row.bits, -row.learner_bits)):
        of_bits = found.setdefault((row.task, row.bits), {})
        of_bits.setdefault(row.learner_bits, []).append(row)
    return found


def _mean(members: list[quantization_table.Row]) -> float:
    return statistics.fmean(row.return_quantized for row in members)


@prose.wrapped
def answer() -> str:
    """Returns the answer of the page."""
    with_both = {key: sides for key, sides in _groups().items() if len(sides) > 1}
    better = sum(_mean(sides[key[1]]) > _mean(sides[32]) for key, sides in with_both.items())
    whole = [
        key for key, sides in _groups().items()
        if key[1] < 32 and _mean(sides[32]) >= 0.95 * _mean(_groups()[key[0], 32][32])
    ]
    few = [key for key in _groups() if key[1] < 32]
    return (
        "**Answer.** Actors with 4 or 3 bits learned at least 95 % of the reward of fp32 actors in "
        f"{len(whole)} of {len(few)} cases. A learner that quantizes as well had the higher mean "
        f"in {better} of {len(with_both)}."
    )


def returns(part: str = "") -> str:
    """Returns the table of mean returns."""
    lines = []
    for (task, bits), sides in _groups(part).items():
        for learner_bits, members in sides.items():
            told = [row.failed for row in members if row.failed is not None]
            lines.append([
                task.partition(",")[2], precisions.NAMES[bits], precisions.NAMES[learner_bits],
                "; ".join(f"{row.return_fp32:.0f}" for row in members),
                "; ".join(f"{row.return_quantized:.0f}" for row in members),
                f"{_mean(members):.0f}", f"{sum(told)} of {len(told)}" if told else "–",
            ])
    head = [
        "Task", "Actors", "Learner's policy", "In fp32, by seed", "With the actors' bits, by seed",
        "Mean of these", "Failed",
    ]
    return tables.table(head, lines, 3)


def areas(part: str = "") -> str:
    """Returns how well each figure of the meter separates runs that failed."""
    lines = [
        [f"`{name}`", meter_summary.FIGURES[name], f"{area:.2f}", str(failed), str(others)]
        for name, (area, failed, others) in quantization_table.areas(rows(part)).items()
    ]
    return tables.table(["Figure", "What it is", "Area", "Failed", "Others"], lines, 2)


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer,
    "returns": returns,
    "areas": areas,
    "large_steps_returns": lambda: returns(_LARGE_STEPS),
    "large_steps_areas": lambda: areas(_LARGE_STEPS),
}
