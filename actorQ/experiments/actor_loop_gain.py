"""What the actor loop alone gains by int8, from the benchmark of it: what a whole run can keep.

The figures are those that `actorQ.benchmarks.actor_loop` left in the results of this repository, so
that they say something of runs on the same processor only. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import statistics
from typing import Any

from actorQ import errors
from actorQ import provenance
from actorQ.experiments import reaching
from actorQ.scripts import paper

_FOLDER = os.path.join(provenance.ROOT, "actorQ", "results", "benchmarks")
RESULTS = (  # The benchmark's own tasks, and those that it was asked for.
    os.path.join(_FOLDER, "actor_loop.json"),
    os.path.join(_FOLDER, "gym", "actor_loop.json"),
)
TARGET = 0.9  # Of the loop's ratio, that a run whose actors are the bottleneck is to keep.
ALL_USED = 0.95  # Where a learner takes less of its actors' data it is the bottleneck itself.
_SAME_PHYSICS = {"gym,CartPole-v0": "gym,CartPole-v1"}  # Only the length of an episode differs.


def note(task: str, rows: reaching.Rows, paths: Sequence[str] = RESULTS) -> list[str]:
    """Returns a line on int8's gain in time and in learner steps/s beside the loop's, or none.

    The time is what counts, but how many learner steps a seed needs is chance; their rate is not.

    Args:
      task: with its suite.
      rows: of the task.
      paths: of the benchmark's figures; the first that has the task counts.
    """
    gained = reaching.speedup(rows, reaching.INT8)
    if gained is None or gained.bound == "?":
        return []
    result = rows[reaching.INT8].results[0]
    loops = (ratio(path, task, result.settings, result.machine) for path in paths)
    loop = next((found for found in loops if found is not None), None)
    if loop is None:
        return []
    published = paper.SPEEDUPS.get(task)
    higher = ""
    if published is not None and published.speedup > loop:
        higher = f" The paper's {published.speedup:.2f} is more than this loop allows."
    return [
        f"{task}: the actor loop alone (benchmarks.actor_loop) is {loop:.2f} times as fast with "
        f"int8 on this processor; the time to reward keeps {f'{gained.bound} '.lstrip()}"
        f"{gained.value / loop:.2f} of that (target: {TARGET})"
        f"{_of_learner_steps(rows, loop)}.{higher}"
    ]


def _of_learner_steps(rows: reaching.Rows, loop: float) -> str:
    gain = reaching.learner_gain(rows, reaching.INT8)
    shares = [result.measured.data_used for result in rows[reaching.INT8].results]
    if gain is None or None in shares:
        return ""
    used = statistics.mean(shares)
    text = f", learner steps/s, {gain:.2f} times fp32's, keep {gain / loop:.2f}"
    if used >= ALL_USED:
        return text
    return (
        f"{text}; with int8 the learner, which takes {100 * used:.0f} % of the data, is the "
        "bottleneck itself"
    )


def ratio(
    path: str, task: str, settings: Mapping[str, Any], machine: Mapping[str, Any]
) -> float | None:
    """Returns steps/s of one int8 actor over those of one fp32 actor, or None where not known.

    Args:
      path: of the benchmark's figures.
      task: with its suite.
      settings: of a run; policy and inference must be those of the benchmark.
      machine: of a run; its processor must be the benchmark's.
    """
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise errors.UserError(f"{path} cannot be read: {errors.summary(error)}.") from None
    if record["machine"]["processor"] != machine.get("processor"):
        return None
    sizes = settings["model_str"].split(",")
    rates = {
        one["bits"]: statistics.median(one["steps_per_s"])
        for one in record["actors"]
        if one["task"] == _SAME_PHYSICS.get(task, task)
        and [str(one["width"])] * 3 == sizes
        and one["loop"] == settings["inference_mode"]
        and one["environments"] == settings["envs_per_actor"]
    }
    return rates[8] / rates[32] if {8, 32} <= set(rates) else None
