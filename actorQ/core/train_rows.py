"""The rows of train.csv, and the check of the losses in them. Imports no framework."""

from collections.abc import Mapping
import math
import time

from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import telemetry


class TrainRows:
    """Writes the rows of a training, each with the rates since the row before."""

    def __init__(
        self, logger: run_logger.RunLogger, learner_steps: int = 0, actor_steps: int = 0
    ):
        """Notes where the counters stand.

        Args:
          logger: Log of the learner's process.
          learner_steps: Learner steps done.
          actor_steps: Environment steps of all actors.
        """
        self._logger = logger
        self._last = (time.monotonic(), learner_steps, actor_steps)

    @property
    def age_s(self) -> float:
        """Seconds since the last row."""
        return time.monotonic() - self._last[0]

    def write(self, learner_steps: int, actor_steps: int, **columns: float) -> None:
        """Writes a row.

        Args:
          learner_steps: Learner steps done.
          actor_steps: Environment steps of all actors.
          **columns: Further columns of telemetry.TRAIN_FIELDS.
        """
        moment_before, learned_before, acted_before = self._last
        self._last = (time.monotonic(), learner_steps, actor_steps)
        seconds = max(self._last[0] - moment_before, 1e-9)
        self._logger.write(
            telemetry.TRAIN_CSV,
            learner_steps,
            learner_steps=learner_steps,
            learner_steps_per_s=(learner_steps - learned_before) / seconds,
            actor_steps=actor_steps,
            actor_steps_per_s=(actor_steps - acted_before) / seconds,
            **columns,
        )


def check_losses(losses: Mapping[str, float], learner_steps: int, advice: str = "") -> None:
    """Checks that training has not diverged.

    Args:
      losses: Losses by name.
      learner_steps: Learner steps done.
      advice: Sentence for the end of the message.

    Raises:
      errors.UserError: A loss is NaN or infinite.
    """
    for name, value in losses.items():
        if not math.isfinite(value):
            raise errors.UserError(
                f"{name} is {value} after {learner_steps} learner steps: {errors.DIVERGED} and "
                f"ends. {advice}".rstrip()
            )
