"""The environment that every suite implements: its spec, the episode loop, and closing.

Imports numpy, dm_env and absl only, so that an actor process stays small.
"""

import abc
import atexit
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import math
import threading
from typing import Any
import weakref

from absl import logging
import dm_env
from dm_env import specs
import numpy as np

from actorQ.environments import scales
from actorQ.environments import task_errors

_STEPS_WITHOUT_LIMIT = 1000  # Longest episode of a task that has no time limit.
CLOSE_PATIENCE_S = 5.0  # The launcher waits much longer for a process after the run's end.


@dataclasses.dataclass(frozen=True)
class Options:
    """Holds what a user may choose of a task.

    Attributes:
      max_episode_steps: Agent steps after which an episode is cut; 0 for the task's own limit.
      action_limit: Size of the largest action where the task gives no bound, in its own units.
      kwargs: Arguments for the task's constructor.
    """

    max_episode_steps: int = 0
    action_limit: float = 1.0
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StepLimit:
    """Tells how many agent steps an episode has at most.

    Attributes:
      asked: Limit that a user asks for; 0 for the task's own.
      own: Limit at which the task itself ends an episode; infinity for none.
    """

    asked: int
    own: float

    @property
    def steps(self) -> int:
        """Agent steps after which an episode is cut. Asking makes episodes shorter, not longer."""
        steps = min(self.asked or math.inf, self.own)
        return _STEPS_WITHOUT_LIMIT if math.isinf(steps) else round(steps)

    @property
    def note(self) -> str:
        """A sentence on a limit that is not the task's own; "" where it is."""
        if not self.asked:
            return "" if self.own < math.inf else (
                f"It has no time limit: episodes are cut after {self.steps:,} steps "
                "(--max_episode_steps)."
            )
        if self.asked < self.own < math.inf:
            return (
                f"Episodes are cut after {self.asked:,} steps (--max_episode_steps), before the "
                f"task's own limit of {self.own:,.0f}."
            )
        return ""


@dataclasses.dataclass(frozen=True, eq=False)
class EnvironmentSpec:
    """The shapes and bounds of a task, as far as networks need them.

    Attributes:
      observation_shape: [D] for vectors, [H, W, C] for pixels.
      observation_dtype: float32, or uint8 for pixels.
      num_actions: Number of discrete actions; None for a continuous task.
      action_start: The task's own first discrete action.
      action_combinations: Choices of each part of a discrete action that has several parts; None
        for a plain one. The last part varies fastest, as in `numpy.unravel_index`.
      action_low: [A] float32 native lower bounds, -1e10 or less where there is none; None for
        a discrete task.
      action_high: [A] float32 native upper bounds, likewise; None for a discrete task.
      observation_scale: The scale that observations have passed; None for none.
      reward_bounds: Lowest and highest reward by the task's definition; None where it has none.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    num_actions: int | None = None
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    observation_scale: scales.ObservationScale | None = None
    action_start: int = 0
    action_combinations: tuple[int, ...] | None = None
    reward_bounds: tuple[float, float] | None = None

    @property
    def discrete(self) -> bool:
        """Says whether an action is an index rather than a vector."""
        return self.num_actions is not None

    @property
    def action_size(self) -> int | None:
        """Number A of action dimensions; None for a discrete task."""
        return None if self.action_low is None else int(self.action_low.size)


class Environment(dm_env.Environment):
    """A task with canonical actions and flat observations.

    A continuous action is [A] float32 in [-1, 1], clipped and scaled to the task's own bounds
    here; a discrete action is an int in [0, num_actions). `reset` and `step` follow dm_env: a
    step after the last one of an episode starts the next episode and ignores its action. Rewards
    and discounts are Python floats, None on the first step. Each observation is a new array.

    The discount of a last step tells an end (0) from a cut by a time limit (1).

    Attributes:
      name: The task with its suite.
      spec: The task's shapes and bounds.
      limit: Agent steps per episode.
      notes: Sentences on what was made of the task that a user may not expect.
      render_fps: Frames per second of `render`'s pictures at the task's true speed.
    """

    def __init__(
        self,
        name: str,
        spec: EnvironmentSpec,
        to_native: Callable[[Any], Any],
        limit: StepLimit,
        render_fps: float,
    ):
        """Keeps the settings of the episode loop.

        Args:
          name: The task with its suite, for messages.
          spec: The task's shapes and bounds.
          to_native: Maps a canonical action to what `_advance` takes.
          limit: Agent steps per episode.
          render_fps: Frames per second at which `render`'s pictures, one for each step, show
            the task at its true speed.
        """
        self.name = name
        self.spec = spec
        self.limit = limit
        self.notes = [limit.note] if limit.note else []
        self.render_fps = float(render_fps)
        self._to_native = to_native
        self._step_limit = limit.steps
        self._episode_steps = 0
        self._needs_reset = True

    @property
    def step_limit(self) -> int:
        """Agent steps after which an episode is cut off."""
        return self._step_limit

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode."""
        self._episode_steps = 0
        self._needs_reset = False
        try:
            observation = self._begin()
        except Exception as error:
            raise self._failure("reset()", error) from error
        return dm_env.TimeStep(dm_env.StepType.FIRST, None, None, observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        """Acts once.

        Args:
          action: [A] float32 in [-1, 1], or an int for a discrete task.

        Returns:
          The time step that follows.

        Raises:
          TaskError: The task's own code has failed. Or the reward is not a finite number: clipped,
            infinity would be the best one.
        """
        if self._needs_reset:
            return self.reset()
        native = self._to_native(action)
        try:
            observation, reward, discount, over = self._advance(native)
        except Exception as error:
            raise self._failure("step()", error) from error
        self._episode_steps += 1
        if not math.isfinite(reward):
            raise task_errors.TaskError(
                f"the task gave a reward of {reward} in step {self._episode_steps} of an episode: "
                "its simulation has failed. Mend the task, or wrap it so that such an episode ends"
            )
        if over or self._episode_steps >= self._step_limit:
            self._needs_reset = True
            return dm_env.TimeStep(dm_env.StepType.LAST, reward, discount, observation)
        return dm_env.TimeStep(dm_env.StepType.MID, reward, discount, observation)

    def _failure(self, call: str, error: Exception) -> task_errors.TaskError:
        """Returns the error for a call of the task's own code that raised one."""
        if isinstance(error, task_errors.TaskError):
            return error
        logging.error("%s has failed:", self.name, exc_info=error)
        return task_errors.failed(self.name, call, error)

    def complaints(self) -> list[str]:
        """Returns what the suite's own check says of the task, one sentence each."""
        return []

    def scale_bytes(self) -> None:
        """Scales bytes among vectors to [0, 1] from the next observation on."""

    def scale_observations(self) -> None:
        """Scales observations to [-1, 1] from the next one on, where the task bounds them.

        A network learns little from numbers as small as MountainCar's velocity (at most 0.07).
        Where small numbers share one scale with larger ones, quantization leaves them few levels.

        Raises:
          TaskError: The task has no bounds for any dimension, or its observations are pixels.
        """
        raise task_errors.no_observation_bounds()

    @abc.abstractmethod
    def _begin(self) -> np.ndarray:
        """Starts an episode and returns its first observation."""

    @abc.abstractmethod
    def _advance(self, action: Any) -> tuple[np.ndarray, float, float, bool]:
        """Applies a native action; returns observation, reward, discount, episode over."""

    @abc.abstractmethod
    def render(self) -> np.ndarray:
        """Returns a picture of the present state: [H, W, 3] uint8."""

    def _close_at_exit(self) -> None:
        """Closes the environment, if it is still there, when the process ends.

        An OpenGL context that is freed after its library has shut down prints a stack trace. The
        last exit function runs first, so that this must be called after the library's import.
        """
        atexit.register(_close, weakref.ref(self))

    def observation_spec(self) -> specs.Array:
        """Returns the spec of an observation."""
        shape, dtype = self.spec.observation_shape, self.spec.observation_dtype
        if dtype == np.uint8:
            return specs.BoundedArray(shape, dtype, 0, 255, name="observation")
        return specs.Array(shape, dtype, name="observation")

    def action_spec(self) -> specs.BoundedArray:
        """Returns the spec of a canonical action."""
        if self.spec.num_actions is not None:
            return specs.DiscreteArray(self.spec.num_actions, dtype=np.int32, name="action")
        return specs.BoundedArray((self.spec.action_size,), np.float32, -1.0, 1.0, name="action")


def close_all(environments: Iterable[Environment], patience_s: float = CLOSE_PATIENCE_S) -> None:
    """Closes environments, since the process of a user's simulator could outlive ours.

    Errors are ignored, because an environment may have just failed. After `patience_s`, the end of
    a run no longer waits for an environment that does not close.

    Args:
      environments: Environments that nobody steps any more.
      patience_s: Seconds to wait for all of them.
    """

    def close() -> None:
        for environment in environments:
            with contextlib.suppress(Exception):
                environment.close()

    closing = threading.Thread(target=close, name="close", daemon=True)
    closing.start()
    closing.join(patience_s)


@contextlib.contextmanager
def closed_on_failure(environments: Iterable[Environment]) -> Iterator[None]:
    """Closes environments if the block fails. A list of them may grow in the block."""
    try:
        yield
    except BaseException:
        close_all(environments)
        raise


def _close(reference: weakref.ref[Environment]) -> None:
    """Closes an environment that still exists."""
    environment = reference()
    if environment is not None:
        environment.close()


