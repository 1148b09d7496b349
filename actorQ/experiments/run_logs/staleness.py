"""The lag of the weights in use behind the learner's, from the logs. Imports no framework.

An actor's own figure (`staleness_steps`) is taken at its looks for newer weights. It stands still
between two looks, and it lacks the learner's steps during a transfer. This module compares the logs
of both: versions of weights are learner steps, and both logs have the machine's clock.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os

import numpy as np

from actorQ.core import errors
from actorQ.core import telemetry


def lag(
    train: Mapping[str, Sequence[float]], phases: Mapping[str, Sequence[float]]
) -> np.ndarray:
    """Returns by how many learner steps an actor's weights lag, float64 [rows of its log].

    The lag is NaN while the learner has not begun, when it has ended, and while the actor has no
    weights.

    Args:
      train: Columns of the learner's log (telemetry.TRAIN_CSV).
      phases: Columns of the actor's log (telemetry.PHASES_CSV).
    """
    moments, steps = np.asarray(train["unix_time"]), np.asarray(train["learner_steps"])
    now, version = np.asarray(phases["unix_time"]), np.asarray(phases["model_version"])
    rows = learning_rows(steps)
    if rows is None:
        return np.full(len(now), np.nan)
    first, last = rows
    inside = (now >= moments[first]) & (now <= moments[last]) & (version >= 0)
    return np.where(inside, np.maximum(np.interp(now, moments, steps) - version, 0.0), np.nan)


def learning_rows(steps: Sequence[float] | np.ndarray) -> tuple[int, int] | None:
    """Returns the first and the last row in which the learner was learning; None: fewer than two.

    Args:
      steps: Learner steps in each row of the learner's log.
    """
    done = np.asarray(steps)
    if not len(done):
        return None
    learning = np.flatnonzero((done > 0) & (done < done[-1]))
    return (int(learning[0]), int(learning[-1])) if len(learning) > 1 else None


def mean_lag(folder: str) -> float:
    """Returns the mean over time and actors of a run's `lag`; NaN where there is none.

    An actor without a log is left out: it may only just have been started.

    Args:
      folder: Folder of a run that was never interrupted, since a restart puts versions ahead of
        learner steps.

    Raises:
      errors.UserError: The learner's log is missing or damaged.
    """
    train = telemetry.read_csv(os.path.join(folder, telemetry.LEARNER, telemetry.TRAIN_CSV))
    rows = [np.zeros(0)]
    for actor in telemetry.actor_folders(folder):
        with contextlib.suppress(errors.UserError):
            rows.append(lag(train, telemetry.read_csv(os.path.join(actor, telemetry.PHASES_CSV))))
    known = np.concatenate([row[~np.isnan(row)] for row in rows])
    return float(known.mean()) if len(known) else float("nan")
