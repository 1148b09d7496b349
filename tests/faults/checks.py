"""What must hold of a run whatever was done to its processes; each check raises if it does not.

Imports Reverb (through `wire`), and with it TensorFlow.
"""

from collections.abc import Mapping
import os

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.environments import suites
from actorQ.wire import connection as wire
from actorQ.wire import replay

_ITEMS = 8  # Of replay that are looked at.

# Fields that may grow and stay, but not go back, through all lives of a process.
_GROWING = {
    telemetry.TRAIN_CSV: (
        "seconds", "learner_steps", "actor_steps", "model_version", "pushes", "evaluation_s",
        "push_snapshot_s", "push_insert_s", "checkpoint_s",
    ),
    telemetry.EVALUATION_CSV: ("seconds", "learner_steps", "actor_steps", "evaluation_s"),
    telemetry.UPDATES_CSV: ("seconds", "model_version", "refused"),
    telemetry.PHASES_CSV: (
        "seconds", "model_version", "actor_steps", "pulls", "refused", *telemetry.TIMED,
    ),
    telemetry.EPISODES_CSV: ("seconds", "model_version", "actor_steps", "episodes"),
}


def logs(folder: str) -> int:
    """Checks all logs of a run: they parse, and nothing in them goes back.

    Returns:
      Rows read.

    Raises:
      errors.UserError: a log is damaged, or something went back.
    """
    rows = 0
    for process in sorted(os.listdir(folder)):
        for filename, fields in _GROWING.items():
            path = os.path.join(folder, process, filename)
            if not telemetry.last_row(path):  # A process that has not come to its first row.
                continue
            columns = telemetry.read_csv(path)
            rows += len(columns["seconds"])
            _require_whole_rows(path)
            for field in (name for name in fields if name in columns):
                back = np.flatnonzero(np.diff(columns[field]) < 0)
                if back.size:
                    row = int(back[0])
                    raise errors.UserError(
                        f"{path}: {field} goes back from {columns[field][row]:g} to "
                        f"{columns[field][row + 1]:g} in row {row + 2}."
                    )
    return rows


def beginnings(folder: str, known: Mapping[str, float]) -> dict[str, float]:
    """Checks that no log of a run has lost its first row.

    Args:
      folder: of the run.
      known: what an earlier call returned.

    Returns:
      By log, when its first row was written, seconds since 1970.

    Raises:
      errors.UserError: one has.
    """
    found = dict(known)
    for process in sorted(os.listdir(folder)):
        for filename in _GROWING:
            path = os.path.join(folder, process, filename)
            if not telemetry.last_row(path):
                continue
            first = telemetry.read_csv(path)["unix_time"][0]
            if found.setdefault(path, first) != first:
                raise errors.UserError(f"{path} has lost its first rows.")
    gone = sorted(path for path in known if not telemetry.last_row(path))
    if gone:
        raise errors.UserError(f"{gone[0]} has lost all its rows.")
    return found


def _require_whole_rows(path: str) -> None:
    """Raises a UserError for a row that is torn or merged with another."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().rpartition("\n")[0].splitlines()
    cells = lines[0].count(",")
    for number, line in enumerate(lines):
        if line.count(",") != cells:
            raise errors.UserError(f"{path}: row {number + 1} is not whole: {line!r}.")


class ReplayCheck:
    """Looks at items of a run's replay table, as a client of its server."""

    def __init__(self, config: config_lib.RunConfig):
        """Learns what items look like.

        Args:
          config: of the run, with its address.
        """
        environment = suites.make_for(config, 0)
        self._each_is_one = "CartPole" in config.taskstr  # Every reward.
        self._spec = environment.spec
        self._layout = replay.Layout.of(self._spec)
        self._config = config

    def __call__(self) -> None:
        """Samples items and checks that each is a whole n-step transition.

        Raises:
          errors.UserError: one is not.
        """
        connection = wire.Connection(self._config)
        layout = self._layout
        for columns in connection.sample(self._config.replay_table_name, _ITEMS):
            vectors = columns[-1].reshape(-1, layout.vector_size)
            if layout.pixels:
                frames = columns[0].reshape(len(vectors), *layout.frames_shape)
                self._check(layout.unpack((frames, vectors)))
            else:
                self._check(layout.unpack(vectors))

    def _check(self, transition: replay.Transition) -> None:
        numbers = [np.asarray(part, np.float64) for part in transition]
        if not all(np.all(np.isfinite(part)) for part in numbers):
            raise errors.UserError("An item in replay holds NaN or infinity.")
        discount = numbers[3]
        steps = self._config.discount ** np.arange(self._config.n_step)
        known = np.append(steps, 0.0)
        if np.any(np.min(np.abs(discount[..., None] - known), axis=-1) > 1e-5):
            raise errors.UserError(
                f"An item in replay has the discount {discount}, none of an n-step transition."
            )
        if self._each_is_one:
            # A window cut short by the end of an episode has fewer rewards in it.
            ended = discount[..., None] == 0
            fits = (ended | np.isclose(discount[..., None], steps)) & np.isclose(
                numbers[2][..., None], np.cumsum(steps), atol=1e-4
            )
            if not np.all(np.any(fits, axis=-1)):
                raise errors.UserError(
                    f"An item in replay has the reward {numbers[2]} at the discount {discount}: "
                    "it is of other steps."
                )
        if self._spec.discrete and np.any(numbers[1] != np.round(numbers[1])):
            raise errors.UserError(f"An item in replay has the action {numbers[1]}.")
