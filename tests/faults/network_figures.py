"""The figures of the study of slow networks (`network`), and their tables.

This module imports no framework.
"""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import math
import os
import statistics
from typing import NamedTuple

import numpy as np

from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.core import timing
from actorQ.experiments.run_logs import staleness as staleness_lib
from actorQ.experiments.run_logs import times

NAME = "network"
ACTORS = 2
RATES, REWARD = "rates", "reward"  # The parts of the study.
PRECISIONS = {"fp32": 32, "8 bits": 8, "4 bits": 4}
SMOOTHING = 3  # Evaluations whose mean must be the return that ends a run.
_WARM_UP = 0.25  # Share of the time in which pipelines fill and first pulls wait for each other.


class Cell(NamedTuple):
    """One run's figures.

    Attributes:
      part: RATES or REWARD.
      seed: Seed of the run.
      mbit_s: Bandwidth of the links, Mbit/s; None: no limit.
      message: Key of `PRECISIONS`.
      message_mb: Megabytes of a message.
      pull_s: Mean seconds of a pull, with its wait for the link; NaN without a pull.
      pulls_per_min: Pulls of an actor in a minute.
      staleness: Learner steps by which the weights in use lag behind, mean over time.
      actor_steps_s: Environment steps of both actors in a second.
      learner_steps_s: Learner steps in a second.
      learner_steps: Learner steps in all.
      seconds: Seconds from the launch to the last learner step.
      reached: Whether the run held the return for which it waited.
      episode_return: Mean of the last three evaluations; NaN without any.
    """

    part: str
    seed: int
    mbit_s: float | None
    message: str
    message_mb: float
    pull_s: float
    pulls_per_min: float
    staleness: float
    actor_steps_s: float
    learner_steps_s: float
    learner_steps: int
    seconds: float
    reached: bool
    episode_return: float


def read(
    folder: str, part: str, seed: int, mbit_s: float | None, message: str, stop_return: float
) -> Cell:
    """Takes the figures from a run's logs; rates and means leave out the first quarter.

    Raises:
      errors.UserError: A log is missing.
    """
    pull_s, per_minute, staleness, rates = [], [], [], []
    train = telemetry.read_csv(os.path.join(folder, telemetry.LEARNER, telemetry.TRAIN_CSV))
    for actor in range(1, ACTORS + 1):
        path = os.path.join(folder, telemetry.actor_name(actor), telemetry.PHASES_CSV)
        columns = {name: np.asarray(values) for name, values in telemetry.read_csv(path).items()}
        first, spent = _after_warm_up(columns["seconds"])
        pulls = columns["pulls"][-1] - columns["pulls"][first]
        transfer_s = columns["transfer_s"][-1] - columns["transfer_s"][first]
        pull_s.append(transfer_s / pulls if pulls else float("nan"))
        per_minute.append(60 * pulls / spent)
        staleness.append(float(np.nanmean(staleness_lib.lag(train, columns)[first:])))
        rates.append((columns["actor_steps"][-1] - columns["actor_steps"][first]) / spent)
    steps = train["learner_steps"]
    first, spent = _after_warm_up(train["seconds"])
    updates = telemetry.last_row(
        os.path.join(folder, telemetry.BROADCASTER, telemetry.UPDATES_CSV)
    )
    returns = [float("nan")]
    with contextlib.suppress(errors.UserError):
        path = os.path.join(folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
        returns = telemetry.read_csv(path)["episode_return"]
    reached = bool(len(returns) >= SMOOTHING) and (
        statistics.mean(returns[-SMOOTHING:]) >= stop_return
    )
    return Cell(
        part, seed, mbit_s, message, updates["message_bytes"] / 1e6, statistics.mean(pull_s),
        statistics.mean(per_minute), statistics.mean(staleness), sum(rates),
        (steps[-1] - steps[first]) / spent, int(steps[-1]), train["seconds"][-1],
        reached, statistics.mean(returns[-SMOOTHING:]),
    )


def _after_warm_up(seconds: Sequence[float]) -> tuple[int, float]:
    """Returns the first row of a log after the warm-up, and the seconds from there to its end."""
    first = int(np.searchsorted(seconds, seconds[0] + _WARM_UP * (seconds[-1] - seconds[0])))
    return first, seconds[-1] - seconds[first]


def report(cells: Sequence[Cell], options: argparse.Namespace) -> None:
    """Prints the tables of both parts; with `options.out` writes them.

    Args:
      cells: Runs in their order.
      options: Options of the command line.
    """
    heads = ["Mbit/s", "message", "MB", "pull s", "pulls/min", "staleness, steps"]
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.part, -(cell.mbit_s or math.inf), cell.message), []).append(cell)

    def table(part: str, own: Callable[[list[Cell]], list[str]]) -> list[list[str]]:
        order = [*PRECISIONS]
        mine = sorted(
            (key for key in groups if key[0] == part),
            key=lambda key: (key[1], order.index(key[2])),
        )
        return [[*_link(groups[key]), *own(groups[key])] for key in mine]

    where = f"A learner and {ACTORS} fp32 actors, {options.delay_ms:g} ms between hosts each way: "
    tables = {
        RATES: (
            f"{where}3x2048, {options.seconds:g} s",
            [*heads, "actor steps/s", "learner steps/s"], table(RATES, _rates),
        ),
        REWARD: (
            f"{where}3x256, until the mean of {SMOOTHING} evaluations is {options.stop_return:g}, "
            f"or {options.steps} learner steps; medians of the seeds (of two, the longer time)",
            [*heads, "learner steps/s", "learner steps until then", "seconds", "of each seed"],
            table(REWARD, _times),
        ),
    }
    first, *others = [parts for parts in tables.values() if parts[-1]]
    timing.report(
        NAME, *first, {"cells": [cell._asdict() for cell in cells]}, options.out,
        notes=["All hosts share two cores: actor steps/s are those of a busy machine."]
        if (os.cpu_count() or 0) <= 2 else (),
        more=others,
    )


def _link(cells: Sequence[Cell]) -> list[str]:
    def middle(name: str) -> float:
        return statistics.median(getattr(cell, name) for cell in cells)

    return [
        f"{cells[0].mbit_s:g}", cells[0].message, f"{cells[0].message_mb:.2f}",
        f"{middle('pull_s'):.2f}", f"{middle('pulls_per_min'):.1f}", f"{middle('staleness'):.1f}",
    ]


def _rates(cells: Sequence[Cell]) -> list[str]:
    actors, learner = (
        statistics.median(getattr(cell, name) for cell in cells)
        for name in ("actor_steps_s", "learner_steps_s")
    )
    return [f"{actors:.0f}", f"{learner:.2f}"]


def _times(cells: Sequence[Cell]) -> list[str]:
    # A run that did not hold the return counts as longer than any that did.
    ordered = sorted(cells, key=lambda cell: (not cell.reached, cell.seconds))
    middle = ordered[len(ordered) // 2]
    rate = statistics.median(cell.learner_steps_s for cell in cells)
    return [
        f"{rate:.0f}", f"{'' if middle.reached else '> '}{middle.learner_steps}",
        times.Reach(middle.seconds, 0.0, middle.reached).text(),
        ", ".join(times.Reach(cell.seconds, 0.0, cell.reached).text() for cell in cells),
    ]
