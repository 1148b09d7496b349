"""Measured figures that the simulation of a cluster starts from.

They come from results of the experiment `throughput`, or any other with runs of one actor. Imports
no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
import statistics

from actorQ.core import errors
from actorQ.core import provenance
from actorQ.experiments import kinds
from actorQ.experiments import results as results_lib
from actorQ.experiments import training
from actorQ.experiments.run_logs import curves

_RESULTS = os.path.join(provenance.ROOT, "actorQ", "results")
# Folder of the committed results of `throughput` (--publish of `experiments.run`).
COMMITTED = os.path.join(_RESULTS, "throughput")
_CORES = 2  # One for the learner, one for its actor.
_MAY_DIFFER = ("git_commit",)


@dataclasses.dataclass(frozen=True)
class Rates:
    """Measured rates of one actor."""

    source: str  # Origin of the figures, in words.
    # Environment steps per second of one actor alone on its core, by precision, bits.
    steps_per_s: Mapping[int, float]
    # Size of the weights on their way to an actor, by precision.
    message_bytes: Mapping[int, float]
    # Rate of the fastest learner in these runs, which may have waited for data; None: not known.
    learner_steps_per_s: float | None = None
    batch_size: int | None = None  # Batch size of that learner.

    @property
    def precisions(self) -> list[int]:
        """Precisions with both figures known, widest first."""
        return sorted(set(self.steps_per_s) & set(self.message_bytes), reverse=True)


def load(folder: str) -> Rates:
    """Returns means over the seeds of the runs of one actor.

    Args:
      folder: Folder of an experiment or of a published copy; empty: results in this repository.

    Raises:
      errors.UserError: There are no such runs, they are of several experiments, machines or
        settings, or their actors had no core of their own.
    """
    if not folder and not os.path.isdir(COMMITTED):
        raise errors.UserError(
            "The measured rates are in the repository, of which there is no checkout here: give "
            "--rates, or --actor_steps_per_s and --message_bytes."
        )
    folder = folder or COMMITTED
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
    if (first.cores or _CORES) < _CORES:
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


def _single_actors(folder: str) -> list[results_lib.Result]:
    """Returns the trainings with one actor and a measured rate, below a folder."""
    found = []
    for parent, _, files in sorted(os.walk(folder)):
        if results_lib.RESULT_FILENAME in files and ".old" not in os.path.basename(parent):
            result = results_lib.read(parent)
            if (
                result is not None
                and result.kind == kinds.TRAINING and result.settings.get("n_actors") == 1
                and not result.smoke and result.measured.actor_steps_per_s
            ):
                found.append(result)
    if not found:
        raise errors.UserError(
            f"--rates={folder} has no result of a training with one actor: make the runs first "
            "(.venv/bin/python -m actorQ.experiments.run throughput)."
        )
    return found


def _means(found: Sequence[results_lib.Result], name: str) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for result in found:
        value = getattr(result.measured, name)
        if value:
            values.setdefault(result.precision, []).append(value)
    return {bits: statistics.fmean(numbers) for bits, numbers in values.items()}


def _short(folder: str) -> str:
    """Returns a folder relative to the working directory, if it is below."""
    relative = os.path.relpath(folder)
    return folder if relative.startswith("..") else relative
