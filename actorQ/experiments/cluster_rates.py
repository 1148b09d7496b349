"""Measured figures that the simulation of a cluster is fed with.

From the results of the experiment `throughput` (or any other with runs of one actor), else from
the committed benchmarks. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import os
import statistics
from typing import Any

from actorQ import config_checks
from actorQ import errors
from actorQ.experiments import kinds
from actorQ.experiments import results as results_lib
from actorQ.experiments import training
from actorQ.scripts import curves

_RESULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")
# Where the results of `throughput` lie once they are committed (--publish of `run`).
COMMITTED = os.path.join(_RESULTS, "throughput")
BENCHMARKS = os.path.join(_RESULTS, "benchmarks")
_CORES = 2  # Of a run: one for the learner, one for its actor.
_MAY_DIFFER = ("git_commit",)
_WHOLE_RUNS, _PARAMETER_PATH = "end_to_end_3x2048.json", "parameter_path.json"


@dataclasses.dataclass(frozen=True)
class Rates:
    """What was measured.

    Attributes:
      source: where, in words.
      steps_per_s: by precision, bits: environment steps per second of one actor alone on its core.
      message_bytes: by precision: of the weights on their way to an actor.
      learner_steps_per_s: of the fastest learner in these runs, or None. It may have waited for
        data.
      batch_size: of that learner.
    """

    source: str
    steps_per_s: Mapping[int, float]
    message_bytes: Mapping[int, float]
    learner_steps_per_s: float | None = None
    batch_size: int | None = None

    @property
    def precisions(self) -> list[int]:
        """Precisions of which all is known, widest first."""
        return sorted(set(self.steps_per_s) & set(self.message_bytes), reverse=True)


def load(folder: str) -> Rates:
    """Returns the rates of results in a folder, or the committed ones.

    Args:
      folder: of an experiment, or of a published copy; empty: those that come with this code.

    Raises:
      errors.UserError: see `from_results` and `from_benchmarks`.
    """
    if folder:
        return from_results(folder)
    return from_results(COMMITTED) if os.path.isdir(COMMITTED) else from_benchmarks(BENCHMARKS)


def from_results(folder: str) -> Rates:
    """Returns means over the seeds of the runs of one actor.

    Raises:
      errors.UserError: there are none, they are of several experiments, machines or settings, or
        their actors had no core of their own.
    """
    found = _single_actors(folder)
    differing = curves.differing_settings(list(map(training.as_run, found)), _MAY_DIFFER)
    experiments = dict.fromkeys(result.experiment for result in found)
    if len(experiments) > 1:
        differing.insert(0, f"experiment ({', '.join(experiments)})")
    if differing:
        raise errors.UserError(
            f"--rates={folder} has runs of several kinds: they differ in {'; '.join(differing)}. "
            "Give a folder with one."
        )
    first = found[0]
    if (first.machine.get("usable_cores") or _CORES) < _CORES:
        raise errors.UserError(
            f"--rates={folder} has runs of one core, which the actor shared with the learner: give "
            "a folder of runs on two cores or more."
        )
    seeds = len({result.seed for result in found})
    source = (
        f"{len(found)} runs with one actor in {_short(folder)} ({first.task}, policy "
        f"{first.settings['model_str']}, {first.settings['inference_mode']} inference, {seeds} "
        f"seeds, {first.machine.get('processor')})"
    )
    return Rates(
        source,
        _means(found, "actor_steps_per_s"),
        _means(found, "message_bytes"),
        max((r.measured.learner_steps_per_s or 0.0 for r in found), default=0.0) or None,
        first.settings["batch_size"],
    )


def from_benchmarks(folder: str) -> Rates:
    """Returns medians of the committed benchmarks of whole runs and of the parameter path.

    Raises:
      errors.UserError: they are missing or damaged.
    """
    runs, path = (_json(folder, name) for name in (_WHOLE_RUNS, _PARAMETER_PATH))
    try:
        single = {run["bits"]: run["rates"] for run in runs["runs"] if run["actors"] == 1}
        placement = path["placements"]["2 cores"]
        return Rates(
            f"{_WHOLE_RUNS} and {_PARAMETER_PATH} in {_short(folder)} (one actor, "
            f"{runs['runs'][0]['task']}, policy {runs['runs'][0]['model']}, native inference, "
            f"{runs['machine']['processor']})",
            {
                bits: statistics.median(rate["actor_steps_per_s"] for rate in rates)
                for bits, rates in single.items()
            },
            {
                bits: statistics.median(
                    update["message_bytes"] for update in placement[f"{name}, native"]
                )
                for bits, name in config_checks.PRECISION_NAMES.items()
            },
            max(rate["learner_steps_per_s"] for rates in single.values() for rate in rates),
            runs["runs"][0]["batch_size"],
        )
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise errors.UserError(f"The benchmarks in {folder} are damaged: {error!r}.") from None


def _single_actors(folder: str) -> list[results_lib.Result]:
    """Returns the trainings with one actor, below a folder, that know their rate."""
    found = []
    for parent, _, files in sorted(os.walk(folder)):
        if results_lib.RESULT_FILENAME in files and ".old" not in os.path.basename(parent):
            result = results_lib.read(parent)
            if (
                result.kind == kinds.TRAINING and result.settings.get("n_actors") == 1
                and not result.smoke and result.measured.actor_steps_per_s
            ):
                found.append(result)
    if not found:
        raise errors.UserError(
            f"--rates={folder} has no result of a training with one actor: make the runs first "
            "(python -m actorQ.experiments.run throughput)."
        )
    return found


def _means(found: Sequence[results_lib.Result], name: str) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for result in found:
        value = getattr(result.measured, name)
        if value:
            values.setdefault(result.precision, []).append(value)
    return {bits: statistics.fmean(numbers) for bits, numbers in values.items()}


def _json(folder: str, name: str) -> Any:
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise errors.UserError(f"{path} is damaged: {error}.") from None


def _short(folder: str) -> str:
    """Returns a folder as seen from here, if it is below."""
    relative = os.path.relpath(folder)
    return folder if relative.startswith("..") else relative
