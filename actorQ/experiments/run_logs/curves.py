"""Runs, and their curves against time, as analysis reads them. Imports no framework."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import precisions
from actorQ.core import settings as settings_lib
from actorQ.core import telemetry

# ActorQ's results page has "running mean (window=10)" (arXiv:1910.01055's project).
DEFAULT_WINDOW = 10
# Settings in which the runs of one comparison may differ without harm.
PRIVATE_SETTINGS = config_lib.names_of(settings_lib.Kind.LAUNCHED) | {"quantize", "seed"}


@dataclasses.dataclass(frozen=True)
class Run:
    """One run folder and what its config.json says."""

    folder: str
    config: config_lib.RunConfig
    algorithm: str  # As the learner recorded it; else the flag, which may be "auto".
    surroundings: Mapping[str, Any]  # Processor, cores, learner device, commit.

    @property
    def task(self) -> str:
        """The task as 'suite,task'."""
        text = self.config.taskstr
        return text if "," in text else f"gym,{text}"

    @property
    def precision(self) -> int:
        """Bits of the actors' inference."""
        return self.config.quantize


class Curve(NamedTuple):
    """Evaluations of one run, all of shape [T]."""

    seconds: np.ndarray
    returns: np.ndarray  # One episode each.
    smoothed: np.ndarray  # Running mean of `returns`.
    evaluation_s: np.ndarray  # Cumulative seconds spent on evaluation.


class MeanCurve(NamedTuple):
    """Running means of several seeds on one time grid, all of shape [T]."""

    seconds: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # Lowest seed.
    high: np.ndarray  # Highest seed.


def load_run(folder: str) -> Run:
    """Reads the description of a run.

    Raises:
      errors.UserError: The folder is not a run folder.
    """
    record = config_lib.load_record(folder)
    config = config_lib.RunConfig.load(folder)
    about = surroundings(
        record.get("machine", {}), record.get("learner_device"), record.get("git_commit"),
        record.get("evaluation_process"),
    )
    return Run(folder, config, record.get("algorithm", config.algorithm), about)


def surroundings(
    machine: Mapping[str, Any],
    learner_device: str | None,
    git_commit: str | None,
    evaluation_process: bool | None,
) -> dict[str, Any]:
    """Returns the `surroundings` of a `Run`; None stands for what was not noted."""
    return {
        "processor": machine.get("processor"),
        "usable_cores": machine.get("usable_cores"),
        "gpu_models": machine.get("gpu_models"),
        "learner_device": learner_device,
        "git_commit": git_commit,
        "evaluation_process": evaluation_process,
    }


def load_runs(folders: Sequence[str]) -> list[Run]:
    """Reads the descriptions of runs.

    Raises:
      errors.UserError: A folder is not a run folder, or appears twice.
    """
    seen = set()
    for folder in folders:
        if os.path.realpath(folder) in seen:
            raise errors.UserError(f"The run {folder} is named twice.")
        seen.add(os.path.realpath(folder))
    return [load_run(folder) for folder in folders]


def differing_settings(runs: Sequence[Run], allowed: Sequence[str] = ()) -> list[str]:
    """Returns 'setting (value, value)' for each setting in which the runs differ.

    Args:
      runs: Runs to compare.
      allowed: Settings that may differ besides `PRIVATE_SETTINGS`.
    """
    settings = [{**dataclasses.asdict(run.config), **run.surroundings} for run in runs]
    lines = []
    for name in settings[0]:
        values = list(dict.fromkeys(str(setting[name]) for setting in settings))
        if name in runs[0].surroundings:  # An older version may not have noted it.
            values = [value for value in values if value != "None"]
        if len(values) > 1 and name not in PRIVATE_SETTINGS and name not in allowed:
            lines.append(f"{name} ({', '.join(values)})")
    return lines


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Returns the shortest labels that tell the runs apart: precision, period, folder."""
    names = [precisions.NAMES[run.precision] for run in runs]
    if len(set(names)) == len(names):
        return names
    names = [
        f"{name}, period {run.config.actor_update_period}"
        for name, run in zip(names, runs, strict=True)
    ]
    if len(set(names)) == len(names):
        return names
    return [
        f"{precisions.NAMES[run.precision]} ({os.path.basename(os.path.abspath(run.folder))})"
        for run in runs
    ]


def read_log(*path: str) -> dict[str, np.ndarray]:
    """Reads a log into arrays.

    Args:
      *path: Parts of the path, to be joined.

    Returns:
      Columns by name. A look-up of a column that the log lacks raises a UserError.

    Raises:
      errors.UserError: The log is missing, empty or damaged, or several runs wrote to it.
    """
    name = os.path.join(*path)
    # A log's columns are a mapping of its own kind, which says which column it lacks.
    columns: dict[str, Any] = telemetry.read_csv(name)
    for key, values in columns.items():
        columns[key] = np.asarray(values)
    if np.any(np.diff(columns["seconds"]) < 0):
        raise errors.UserError(
            f"The log {name} goes back in time: several runs wrote to this folder. Give every run "
            "a --logpath of its own."
        )
    return columns


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Returns the mean of each value and those before it, `window` values at most; shape [T]."""
    sums = np.cumsum(np.concatenate(([0.0], values)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def load_curve(run_folder: str, window: int = DEFAULT_WINDOW) -> Curve:
    """Reads the learner's evaluations.

    Raises:
      errors.UserError: There are none.
    """
    path = os.path.join(run_folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
    columns = read_log(path)
    whole = np.isfinite(columns["episode_return"]) & np.isfinite(columns["evaluation_s"])
    if not whole.any():
        raise errors.UserError(f"The log {path} has no whole row.")
    returns = columns["episode_return"][whole]
    return Curve(
        columns["seconds"][whole],
        returns,
        running_mean(returns, window),
        columns["evaluation_s"][whole],
    )


def mean_curve(curves: Sequence[Curve]) -> MeanCurve:
    """Averages the running means of several seeds.

    The grid begins when all seeds have been evaluated, and has every moment at which a seed was.
    Between its evaluations, and after its end, a seed holds its last value.
    """
    start = max(curve.seconds[0] for curve in curves)
    grid = np.unique(np.concatenate([curve.seconds for curve in curves]))
    grid = grid[grid >= start]

    smoothed = np.stack([
        curve.smoothed[np.searchsorted(curve.seconds, grid, side="right") - 1] for curve in curves
    ])
    return MeanCurve(grid, smoothed.mean(0), smoothed.min(0), smoothed.max(0))


def throughput(run_folder: str) -> tuple[float, float]:
    """Returns actor steps/s and learner steps/s of a run; NaN if its log has a single row.

    Raises:
      errors.UserError: The learner's log cannot be read.
    """
    columns = read_log(run_folder, telemetry.LEARNER, telemetry.TRAIN_CSV)
    elapsed_s = columns["seconds"][-1] - columns["seconds"][0]
    if elapsed_s <= 0:
        return float("nan"), float("nan")
    actor, learner = (
        (columns[name][-1] - columns[name][0]) / elapsed_s
        for name in ("actor_steps", "learner_steps")
    )
    return float(actor), float(learner)
