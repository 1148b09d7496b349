"""Times to reward of an experiment, by task and side.

They are medians over the seeds. A seed that missed the reward within its time counts with "more
than that". Where such a seed decides the median, the median is a bound, too. Imports no framework
but matplotlib.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import statistics

import numpy as np

from actorQ.experiments import kinds
from actorQ.experiments import results as results_lib
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import times

FP32 = reporting.Side(kinds.TRAINING, 32)
INT8 = reporting.Side(kinds.TRAINING, 8)
_OF_KILO = 1e3  # Watt hours in a kilowatt hour, grams in a kilogram.


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
        """Name of the side, for tables."""
        return self.side.name(self.algorithm)

    @property
    def algorithm(self) -> str:
        """Our algorithm on this task."""
        return str(self.results[0].settings.get("algorithm", ""))

    @property
    def reached(self) -> int:
        """Counts the seeds that reached the reward."""
        return sum(reach.reached for reach in self.reaches)

    @property
    def by_seed(self) -> dict[int, times.Reach]:
        """The time to reward of each seed."""
        seeds = [result.seed for result in self.results]
        return dict(zip(seeds, self.reaches, strict=True))

    def text(self, most: int = 0) -> str:
        """Returns the median, with the number of seeds if seeds missed or others have more.

        Args:
          most: Number of seeds of the table's row that has most of them.
        """
        return self.median.text() + seeds_text(self.reaches, most)

    @property
    def final_rewards(self) -> list[float]:
        """Mean return of the last policy of every seed that has one."""
        return reporting.known(result.measured.final_reward for result in self.results)


# The rows of one task, fp32 first.
Rows = Mapping[reporting.Side, Row]


def rows_by_task(material: reporting.Material) -> dict[str, Rows]:
    """Returns the rows of each task; a task without results that have a target has no rows."""
    return {
        task: {
            side: row
            for side in material.sides()
            if (row := _row(task, side, material.of_side(task, side)))
        }
        for task in material.tasks()
    }


def median_reach(reaches: Sequence[times.Reach]) -> times.Reach:
    """Returns the median; it is a bound if it depends on how long censored runs would take."""
    least = float(np.median([reach.seconds for reach in reaches]))
    most = float(
        np.median([reach.seconds if reach.reached else math.inf for reach in reaches])
    )
    evaluation_s = float(np.median([reach.evaluation_s for reach in reaches]))
    return times.Reach(least, evaluation_s, least == most)


def seeds_text(reaches: Collection[times.Reach], most: int = 0) -> str:
    """Returns ' (2 of 3)' if some seeds missed, ' (1 seed)' if other rows have more, else ''.

    Args:
      reaches: Time to reward of each seed.
      most: Number of seeds of the row that has most of them.
    """
    count = len(reaches)
    reached = sum(reach.reached for reach in reaches)
    if reached < count:
        return f" ({reached} of {count})"
    return f" ({reporting.seeds(count)})" if count < most else ""


def speedup_text(rows: Rows, side: reporting.Side, base: reporting.Side = FP32) -> str:
    """Returns `speedup` as a text, with the number of shared seeds if a side has others, too."""
    found = speedup(rows, side, base)
    if found is None:
        return ""
    sides = [rows[one].by_seed for one in (side, base)]
    shared = len(sides[0].keys() & sides[1].keys())
    if shared == max(len(one) for one in sides):
        return found.text()
    return f"{found.text()} ({reporting.seeds(shared)})"


def speedup(
    rows: Rows, side: reporting.Side, base: reporting.Side = FP32, evaluated: bool = True
) -> times.Speedup | None:
    """Returns how much sooner than `base` a side held the reward; None: no shared seeds.

    It is the ratio of the medians over the seeds that both have.

    Args:
      rows: Rows of one task.
      side: Side to compare.
      base: Side to compare with.
      evaluated: Whether the seconds that evaluation took count.
    """
    if side == base or side not in rows or base not in rows:
        return None
    slow, fast = rows[base].by_seed, rows[side].by_seed
    if not evaluated:
        slow, fast = _less_evaluation(slow), _less_evaluation(fast)
    return ratio_of_medians(slow, fast)


def _less_evaluation(reaches: Mapping[int, times.Reach]) -> dict[int, times.Reach]:
    return {
        seed: times.Reach(reach.seconds - reach.evaluation_s, 0.0, reach.reached)
        for seed, reach in reaches.items()
    }


def ratio_of_medians(
    slow: Mapping[int, times.Reach], fast: Mapping[int, times.Reach]
) -> times.Speedup | None:
    """Compares the medians of the seeds that both have; None: there are none."""
    shared = [seed for seed in slow if seed in fast]
    if not shared:
        return None
    return times.speedup_between(
        *(median_reach([of_seeds[seed] for seed in shared]) for of_seeds in (slow, fast))
    )


def amounts(row: Row, quantity: str) -> dict[int, times.Reach]:
    """Returns the Wh or g to reward of every seed that has any, censored as its time is.

    Args:
      row: Row of one side.
      quantity: kwh_to_target or co2_kg_to_target.
    """
    found = {}
    for result, reach in zip(row.results, row.reaches, strict=True):
        amount = getattr(result.measured.energy, quantity, None)
        if amount is not None:
            found[result.seed] = times.Reach(_OF_KILO * amount, 0.0, reach.reached)
    return found


def learner_gain(rows: Rows, side: reporting.Side) -> float | None:
    """Returns a side's learner steps/s over fp32's, of the shared seeds; None: not known.

    Where actors are the bottleneck, this ratio shows their speed, and does not depend on chance.
    """
    if side not in rows or FP32 not in rows:
        return None
    both = reporting.of_shared_seeds(rows[FP32].results, rows[side].results)
    before, after = (
        reporting.known(result.measured.learner_steps_per_s for result in found) for found in both
    )
    if len(before) < len(both[0]) or len(after) < len(both[1]) or not sum(before):
        return None
    return statistics.mean(after) / statistics.mean(before)


def target(rows: Rows) -> float:
    """Returns the reward to reach."""
    found = next(iter(rows.values())).results[0].measured.target
    assert found is not None, "A row is made of results that have a target."
    return found


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
                    _evaluation_until(measured.rewards, measured.censored_at_s),
                    False,
                )
            )
    return Row(task, side, found, reaches, median_reach(reaches)) if reaches else None


def _evaluation_until(rewards: results_lib.Rewards, seconds: float) -> float:
    """Returns the seconds of evaluation up to a moment."""
    spent = zip(rewards.seconds, rewards.evaluation_s, strict=True)
    return max((taken for moment, taken in spent if moment <= seconds), default=0.0)
