"""Computes the part of the actor loop's gain that a whole run keeps.

`actorQ.benchmarks.actor_loop` measured the loop alone and left its figures in the results of this
repository. They say something of runs on the same processor only. Imports no framework but
matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import glob
import json
import os
import statistics
from typing import Any

from actorQ.core import errors
from actorQ.core import provenance
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import paper

RESULTS = os.path.join(provenance.ROOT, "actorQ", "results", "benchmarks")
_FILENAME = "actor_loop.json"
TARGET = 0.9  # Part of the loop's gain that a run is to keep if its actors are the bottleneck.
ALL_USED = 0.95  # A learner that takes less of its actors' data is the bottleneck itself.
_SAME_PHYSICS = {"gym,CartPole-v0": "gym,CartPole-v1"}  # Only the length of an episode differs.

Measurement = Mapping[str, Any]  # The content of the benchmark's file.


def measurements(folder: str = RESULTS) -> list[Measurement]:
    """Returns the benchmark's figures that are in a folder or below it, the oldest first.

    Args:
      folder: Where to look; it need not exist.

    Raises:
      errors.UserError: A file cannot be read.
    """
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), "**", _FILENAME), recursive=True):
        try:
            with open(path, encoding="utf-8") as file:
                found.append(json.load(file))
        except (OSError, ValueError) as error:
            raise errors.UserError(f"{path} cannot be read: {errors.summary(error)}.") from None
    return sorted(found, key=lambda record: record["date"])


def notes(task: str, rows: reaching.Rows, measured: Sequence[Measurement]) -> list[str]:
    """Returns a line on each precision's gain in time and in learner steps/s beside the loop's.

    The time is what counts, but how many learner steps a seed needs is chance; their rate is not.

    Args:
      task: Task with its suite.
      rows: Rows of the task.
      measured: The benchmark's figures. The first that have task and precision count, so that a
        newer measurement changes no published report.
    """
    quantized = [side for side in rows if not side.is_peer and side != reaching.FP32]
    return [line for side in quantized if (line := _note(task, rows, side, measured))]


def _note(
    task: str, rows: reaching.Rows, side: reporting.Side, measured: Sequence[Measurement]
) -> str:
    gained = reaching.speedup(rows, side)
    if gained is None or gained.bound == "?":
        return ""
    result = rows[side].results[0]
    loops = (
        ratio(record, task, result.settings, result.machine, side.precision) for record in measured
    )
    loop = next((found for found in loops if found is not None), None)
    if loop is None:
        return ""
    published = paper.SPEEDUPS.get(task)
    higher = ""
    if side == reaching.INT8 and published is not None and published.speedup > loop:
        higher = f" The paper's {published.speedup:.2f} is more than this loop allows."
    return (
        f"{task}: the actor loop alone (benchmarks.actor_loop) is {loop:.2f} times as fast with "
        f"{side.short_name} on this processor; the time to reward keeps "
        f"{f'{gained.bound} '.lstrip()}{gained.value / loop:.2f} of that (target: {TARGET})"
        f"{_of_learner_steps(rows, side, loop)}.{higher}"
    )


def _of_learner_steps(rows: reaching.Rows, side: reporting.Side, loop: float) -> str:
    gain = reaching.learner_gain(rows, side)
    own, _ = reporting.of_shared_seeds(rows[side].results, rows[reaching.FP32].results)
    shares = reporting.known(result.measured.data_used for result in own)
    if gain is None or len(shares) < len(own):
        return ""
    text = f", learner steps/s, {gain:.2f} times fp32's, keep {gain / loop:.2f}"
    low = [share for share in shares if share < ALL_USED]
    if not low:
        return text
    seeds = "" if len(low) == len(shares) else f" in {len(low)} of {len(shares)} seeds"
    return (
        f"{text}; with {side.short_name} the learner, which takes "
        f"{100 * statistics.mean(low):.0f} % of the data, is the bottleneck itself{seeds}"
    )


def ratio(
    measured: Measurement,
    task: str,
    settings: Mapping[str, Any],
    machine: Mapping[str, Any],
    bits: int = 8,
) -> float | None:
    """Returns steps/s of one quantized actor over those of one in fp32, or None where not known.

    Args:
      measured: The benchmark's figures.
      task: Task with its suite.
      settings: Settings of a run; policy and inference must be those of the benchmark.
      machine: Machine of a run; its processor must be the benchmark's.
      bits: Precision of the quantized actor.
    """
    if measured["machine"]["processor"] != machine.get("processor"):
        return None
    sizes = settings["model_str"].split(",")
    rates = {
        one["bits"]: statistics.median(one["steps_per_s"])
        for one in measured["actors"]
        if one["task"] == _SAME_PHYSICS.get(task, task)
        and [str(one["width"])] * 3 == sizes
        and one["loop"] == settings["inference_mode"]
        and one["environments"] == settings["envs_per_actor"]
    }
    return rates[bits] / rates[32] if {bits, 32} <= set(rates) else None
