"""Times to reward of an experiment, by task and side: what its report is made of.

Medians over the seeds. A seed that missed the reward within its time counts with "more than that":
where it decides the median, the median is a bound too. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from actorQ.experiments import kinds
from actorQ.experiments import reporting
from actorQ.experiments import results as results_lib
from actorQ.scripts import times

FP32 = reporting.Side(kinds.TRAINING, 32)
INT8 = reporting.Side(kinds.TRAINING, 8)


@dataclasses.dataclass(frozen=True)
class Row:
    """All seeds of one task and side."""

    task: str
    side: reporting.Side
    results: Sequence[results_lib.Result]
    reaches: Sequence[times.Reach]
    median: times.Reach

    @property
    def name(self) -> str:
        """Of the side, for tables."""
        return self.side.name(self.algorithm)

    @property
    def algorithm(self) -> str:
        """Ours on this task."""
        return str(self.results[0].settings.get("algorithm", ""))

    @property
    def reached(self) -> int:
        """How many seeds reached the reward."""
        return sum(reach.reached for reach in self.reaches)

    def text(self) -> str:
        """Returns the median, and how many seeds reached the reward unless all did."""
        all_of_them = self.reached == len(self.reaches)
        count = "" if all_of_them else f" ({self.reached} of {len(self.reaches)})"
        return self.median.text() + count

    @property
    def final_rewards(self) -> list[float]:
        """Mean return of the last policy of every seed that has one."""
        rewards = [result.measured.final_reward for result in self.results]
        return [reward for reward in rewards if reward is not None]


# Those of one task, fp32 first.
Rows = Mapping[reporting.Side, Row]


def rows_by_task(material: reporting.Material) -> dict[str, Rows]:
    """Returns what there is to compare; a task without results that have a target has no rows."""
    return {
        task: {
            side: row
            for side in material.sides()
            if (row := _row(task, side, material.of_side(task, side)))
        }
        for task in material.tasks()
    }


def median_reach(reaches: Sequence[times.Reach]) -> times.Reach:
    """Returns the median; it is a bound where what censored runs would have taken matters."""
    least = float(np.median([reach.seconds for reach in reaches]))
    most = float(
        np.median([reach.seconds if reach.reached else math.inf for reach in reaches])
    )
    evaluation_s = float(np.median([reach.evaluation_s for reach in reaches]))
    return times.Reach(least, evaluation_s, least == most)


def speedup(
    rows: Rows, side: reporting.Side, base: reporting.Side = FP32
) -> times.Speedup | None:
    """Returns how much sooner than `base` a side was there; None where one has no runs."""
    if side == base or side not in rows or base not in rows:
        return None
    return times.speedup_between(rows[base].median, rows[side].median)


def target(rows: Rows) -> float:
    """Returns the reward to reach."""
    return next(iter(rows.values())).results[0].measured.target


def _row(
    task: str, side: reporting.Side, found: Sequence[results_lib.Result]
) -> Row | None:
    reaches = []
    for result in found:
        measured = result.measured
        if measured.time_to_target_s is not None:
            reaches.append(
                times.Reach(
                    measured.time_to_target_s, measured.evaluation_to_target_s or 0.0, True
                )
            )
        elif measured.censored_at_s is not None:
            reaches.append(
                times.Reach(
                    measured.censored_at_s,
                    measured.rewards.evaluation_s[-1] if measured.rewards.evaluation_s else 0.0,
                    False,
                )
            )
    return Row(task, side, found, reaches, median_reach(reaches)) if reaches else None
