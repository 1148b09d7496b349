"""Where the time of a run's actors goes, phase by phase, from its logs. Imports no framework."""

from collections.abc import Mapping
import dataclasses
import math
import os

import numpy as np

from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.experiments.run_logs import curves

# The paper's phases with its names and in its order; ours follow.
PAPER_PHASES = {
    "inference": "step (inference)",
    "pull": "pull",
    "deserialize": "deserialize",
    "load_state_dict": "load_state_dict",
}
PHASE_NAMES = PAPER_PHASES | {
    phase: phase
    for phase in (column.removesuffix("_s") for column in telemetry.PHASES)
    if phase not in PAPER_PHASES
}
# An actor was dead, or waited for the learner, where two rows of its log are further apart than
# `_LONGEST_GAP` times the usual distance and than `_OUTAGE_S`.
_LONGEST_GAP = 5
_OUTAGE_S = 3.0


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """The actors' time in one run."""

    run: curves.Run  # The run.
    actors: int  # Number of actors with a log.
    # Seconds by phase, in the order of `PHASE_NAMES`; mean over the actors.
    seconds: Mapping[str, float]
    steps: float  # Environment steps, mean over the actors.
    # Seconds by the clock, mean over the actors. NaN if a log has one row only: the start of its
    # process is not known.
    elapsed_s: float
    steady: bool  # Whether warm-up is left out; False if a log has one row only.
    loads: float  # Loads of weights, mean over the actors; NaN if the logs lack them.
    # Learner steps that the weights lag behind at looks for newer ones; median.
    staleness_steps: float
    convert_ms: float  # Median of the broadcaster's conversions.
    message_bytes: float  # Median size of a message to the actors.
    fp32_bytes: float  # Median size of the same weights in fp32.
    warnings: list[str]  # Actors that were left out, and why.

    @property
    def total_s(self) -> float:
        """Seconds in all phases."""
        return sum(self.seconds.values())

    @property
    def step_us(self) -> float:
        """Microseconds from one environment step to the next by the clock."""
        return _per_step(1e6 * self.elapsed_s, self.steps)

    @property
    def phases_us(self) -> dict[str, float]:
        """Microseconds per environment step, by phase."""
        return {
            phase: _per_step(1e6 * seconds, self.steps) for phase, seconds in self.seconds.items()
        }

    def share(self, phase: str) -> float:
        """Returns the part of `total_s` in a phase, percent."""
        return 100 * self.seconds[phase] / self.total_s if self.total_s else float("nan")


def load(run: curves.Run, start_s: float = -math.inf, end_s: float = math.inf) -> Breakdown:
    """Reads the logs of a run.

    Args:
      run: The run.
      start_s: Earlier rows of actors' logs are left out; seconds since the launch, as logged.
      end_s: Later rows of actors' logs are left out.

    Raises:
      errors.UserError: No actor left a log, or the broadcaster did not.
    """
    warnings, actors = [], []
    failure = errors.UserError(f"{run.folder} has no logs of actors.")
    for folder in telemetry.actor_folders(run.folder):
        try:
            actors.append(_Actor.load(folder, start_s, end_s))
        except errors.UserError as error:
            # An actor that was only just started must not hide the others.
            failure = error
            warnings.append(f"left out: {error}")
    if not actors:
        raise failure
    updates = curves.read_log(run.folder, telemetry.BROADCASTER, telemetry.UPDATES_CSV)
    phases = np.mean([actor.seconds for actor in actors], axis=0)
    return Breakdown(
        run=run,
        actors=len(actors),
        seconds=dict(zip(PHASE_NAMES, phases.tolist(), strict=True)),
        steps=float(np.mean([actor.steps for actor in actors])),
        elapsed_s=float(np.mean([actor.elapsed_s for actor in actors])),
        steady=all(actor.steady for actor in actors),
        loads=float(np.mean([actor.loads for actor in actors])),
        staleness_steps=_median(np.concatenate([actor.staleness for actor in actors])),
        convert_ms=1e3 * _median(updates["convert_s"]),
        message_bytes=_median(updates["message_bytes"]),
        fp32_bytes=_median(updates["fp32_bytes"]),
        warnings=warnings,
    )


@dataclasses.dataclass(frozen=True)
class _Actor:
    seconds: np.ndarray  # [phases], in the order of `PHASE_NAMES`.
    steps: float
    elapsed_s: float
    loads: float
    steady: bool
    staleness: np.ndarray  # [T]

    @classmethod
    def load(cls, folder: str, start_s: float, end_s: float) -> "_Actor":
        """Reads an actor's log, and leaves out its warm-up where there are two rows or more."""
        path = os.path.join(folder, telemetry.PHASES_CSV)
        columns = curves.read_log(path)
        rows = (columns["seconds"] >= start_s) & (columns["seconds"] <= end_s)
        if not rows.any():
            raise errors.UserError(
                f"The log {path} has no row between {start_s:g} and {end_s:g} s."
            )
        names = ("actor_steps", "seconds", "pulls", *(f"{phase}_s" for phase in PHASE_NAMES))
        table = np.stack([columns[name][rows] for name in names], axis=1)
        # An actor that died is started again and goes on in the same file after a gap. On Ray its
        # counters begin anew.
        gaps = np.diff(table[:, 1])
        longest = max(_LONGEST_GAP * np.median(gaps), _OUTAGE_S) if gaps.size else 0.0
        restarts = np.flatnonzero((np.diff(table[:, 0]) < 0) | (gaps > longest)) + 1
        lives = [life for life in np.split(table, restarts) if len(life) > 1]
        if lives:
            totals = np.sum([life[-1] - life[0] for life in lives], axis=0)
        else:
            totals = table[-1] * 1.0
            totals[1] = np.nan
        if not np.isfinite(totals[3:]).all():
            raise errors.UserError(f"The log {path} has empty cells.")
        staleness = columns["staleness_steps"][rows][1 if lives else 0 :]
        steps, elapsed_s, loads = totals[:3].tolist()
        return cls(totals[3:], steps, elapsed_s, loads, bool(lives), staleness)


def _median(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def _per_step(value: float, steps: float) -> float:
    return value / steps if steps > 0 else float("nan")
