"""Holds what every suite's environment shares: the spec, the episode loop and the action scale.

Imports numpy and dm_env only, so that an actor process stays small.
"""

import abc
import atexit
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import ctypes
import dataclasses
import difflib
import math
import os
import sys
import threading
from typing import Any
from typing import NamedTuple
import weakref

import dm_env
from dm_env import specs
import numpy as np

from actorQ.core import errors

# Bounds from here on mean "none": MuJoCo writes 1e10 for that, older environments float32's
# largest number, others infinity.
_NO_BOUND = 1e10

CLOSE_PATIENCE_S = 5.0  # Well below what a launcher waits for a process whose run has ended.


class TaskError(errors.UserError, ValueError):
    """Something a user can put right about a task; its text is one clear line."""


class ObservationScale(NamedTuple):
    """The map from a task's own observations to scaled ones: observation scale + offset.

    Attributes:
        scale: [D] float32, 1 where the task has no bounds.
        offset: [D] float32, there 0.
    """

    scale: np.ndarray
    offset: np.ndarray

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns the scaled observation, a new array, [D] float32."""
        return observation * self.scale + self.offset


@dataclasses.dataclass(frozen=True, eq=False)
class EnvironmentSpec:
    """What a network must know of a task.

    Attributes:
        observation_shape: [D] for vectors, [H, W, C] for pixels.
        observation_dtype: float32, or uint8 for pixels.
        num_actions: Number of discrete actions; None for a continuous task.
        action_start: The task's own first discrete action.
        action_low: [A] float32 native lower bounds, -1e10 or less where there is none; None for
            a discrete task.
        action_high: [A] float32 native upper bounds, likewise; None for a discrete task.
        observation_scale: What observations have passed, None for none.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    num_actions: int | None = None
    action_low: np.ndarray | None = None
    action_high: np.ndarray | None = None
    observation_scale: ObservationScale | None = None
    action_start: int = 0

    @property
    def discrete(self) -> bool:
        """Whether an action is an index rather than a vector."""
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
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        to_native: Callable[[Any], Any],
        step_limit: float,
        render_fps: float,
    ):
        """Keeps what the episode loop needs.

        Args:
            spec: The task's shapes and bounds.
            to_native: Maps a canonical action to what `_advance` takes.
            step_limit: Agent steps per episode, `inf` for no limit.
            render_fps: Frames per second at which `render`'s pictures, one for each step, show
                the task at its true speed.
        """
        self.spec = spec
        self.render_fps = float(render_fps)
        self._to_native = to_native
        self._step_limit = step_limit
        self._episode_steps = 0
        self._needs_reset = True

    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode."""
        self._episode_steps = 0
        self._needs_reset = False
        return dm_env.TimeStep(dm_env.StepType.FIRST, None, None, self._begin())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Acts once.

        Args:
            action: [A] float32 in [-1, 1], or an int for a discrete task.

        Returns:
            The time step that follows.

        Raises:
            TaskError: The task gave a reward that is no number. Clipped, it would be the best.
        """
        if self._needs_reset:
            return self.reset()
        observation, reward, discount, over = self._advance(self._to_native(action))
        self._episode_steps += 1
        if not math.isfinite(reward):
            raise TaskError(
                f"the task gave a reward of {reward} in step {self._episode_steps} of an episode: "
                "its simulation has failed; mend the task, or wrap it so that such an episode ends"
            )
        if over or self._episode_steps >= self._step_limit:
            self._needs_reset = True
            return dm_env.TimeStep(dm_env.StepType.LAST, reward, discount, observation)
        return dm_env.TimeStep(dm_env.StepType.MID, reward, discount, observation)

    def scale_observations(self) -> None:
        """Scales observations to [-1, 1] from the next one on, where the task bounds them.

        A network learns little from numbers as small as MountainCar's velocity (at most 0.07),
        and where they share one scale with larger ones, quantization leaves a few levels of them.

        Raises:
            TaskError: The task has no bounds for any dimension, or its observations are pixels.
        """
        raise no_observation_bounds()

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

        An OpenGL context that is freed after its library has shut down prints a stack trace. Exit
        functions run last one first: call this after the library's import.
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
    """Closes environments: a simulator of one's own may be a process, and outlive ours.

    Errors are ignored (an environment may be what has just failed), and so is one that does not
    come back: the end of a run does not wait for it any longer.

    Args:
      environments: that nobody steps any more.
      patience_s: seconds to wait for all of them.
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
    """Closes environments if what is done meanwhile fails; a list of them may grow meanwhile."""
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


def no_observation_bounds() -> TaskError:
    """Describes a task whose observations cannot be scaled; the error is to be raised."""
    return TaskError(
        "--scale_observations=1 needs a task whose observations are one vector with bounds in some "
        "dimension (see its observation_space): this one has none, leave the flag out"
    )


def centre(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what maps between [-1, 1] and a task's own range: native = canonical half + middle.

    Args:
        low: [D] native lower bounds.
        high: [D] native upper bounds.

    Returns:
        [D] bool, which dimensions are between two finite bounds; [D] float64 half the width of
        the range, 1 where there is none; [D] float64 its middle, there 0.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = (low > -_NO_BOUND) & (high < _NO_BOUND)
    half, middle = np.ones_like(low), np.zeros_like(low)
    half[bounded] = (high[bounded] - low[bounded]) / 2
    middle[bounded] = (high[bounded] + low[bounded]) / 2
    return bounded, half, middle


def observation_scale(low: np.ndarray, high: np.ndarray) -> ObservationScale | None:
    """Returns what scales a task's observations to [-1, 1] within its bounds.

    Args:
        low: D native lower bounds, of any shape.
        high: D native upper bounds.

    Returns:
        The map, which only centres a dimension whose bounds are equal; None where no dimension is
        between two finite bounds.
    """
    bounded, half, middle = centre(np.reshape(low, -1), np.reshape(high, -1))
    if not np.any(bounded):
        return None
    half = np.where(half > 0, half, 1.0)
    return ObservationScale((1 / half).astype(np.float32), (-middle / half).astype(np.float32))


def continuous_action_map(
    low: np.ndarray, high: np.ndarray, shape: tuple[int, ...], dtype: np.dtype
) -> Callable[[Any], np.ndarray]:
    """Builds the map from canonical to native actions.

    A dimension between two finite bounds is scaled: native = low + (action + 1) / 2 * (high -
    low). Any other is clipped to [-1, 1] and passed on.

    Args:
        low: [A] native lower bounds.
        high: [A] native upper bounds.
        shape: Native shape, of A elements.
        dtype: Native floating type.

    Returns:
        A function from [A] float32 in [-1, 1] to a new array of the native shape and type.

    Raises:
        TaskError: A dimension with a bound on one side only has no room within [-1, 1].
    """
    low64, high64 = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded, half, middle = centre(low64, high64)
    scale, offset = half.astype(np.float32), middle.astype(np.float32)
    # The map rises, so that clipping its result is clipping its argument; and the result can
    # then not leave the native bounds by a rounding error, nor by that of the bounds themselves.
    lowest = np.where(bounded, low64, np.maximum(low64, -1.0))
    highest = np.where(bounded, high64, np.minimum(high64, 1.0))
    beyond = np.flatnonzero(~bounded & (lowest >= highest))
    if beyond.size:
        low_text, high_text = (f"{bound[beyond[0]]:g}" for bound in (low64, high64))
        raise TaskError(
            f"dimension {beyond[0]} of the task's actions goes from {low_text} to {high_text}: "
            "with a bound on one side only, actions are within [-1, 1]; wrap the task to have two"
        )
    lowest, highest = lowest.astype(dtype), highest.astype(dtype)
    size = (low64.size,)
    is_identity = bool(np.all(scale == 1.0) and np.all(offset == 0.0))
    is_flat, is_single = shape == size, dtype == np.float32

    def to_native(action: Any) -> np.ndarray:
        action = np.asarray(action, np.float32)
        if action.shape != size:
            raise ValueError(
                f"an action of shape {action.shape} was given to a task whose "
                f"actions have shape {size}"
            )
        if not is_identity:
            action = action * scale + offset
        if not is_single:
            action = action.astype(dtype)
        action = np.minimum(np.maximum(action, lowest), highest)
        return action if is_flat else action.reshape(shape)

    return to_native


def unknown_task(suite: str, task: str, known: Iterable[str], advice: str = "") -> TaskError:
    """Describes a task that a suite does not have.

    Args:
        suite: Name of the suite.
        task: The name asked for.
        known: The names that exist.
        advice: What else to tell the user, a clause.

    Returns:
        The error, to be raised.
    """
    known = sorted(known)
    lower = {name.lower(): name for name in known}
    close = [lower[name] for name in difflib.get_close_matches(task.lower(), lower, 3, 0.6)]
    hint = (
        f"the nearest are {', '.join(close)}"
        if close
        else f"it has, among {len(known)}, " + (", ".join(known[:3]))
    )
    advice = f"; {advice}" if advice else ""
    return TaskError(
        f"suite {suite} has no task {task!r}; {hint} "
        f"(actorQ.environments.list_tasks({suite!r}) names all){advice}"
    )


def one_line(error: BaseException) -> str:
    """Returns an exception's kind and text on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextlib.contextmanager
def muted_output() -> Iterator[None]:
    """Discards what native code writes to standard output and error within the block.

    The redirection is of the whole process and of file descriptors, since native code passes
    `sys.stdout` by. Python's own exceptions are not affected.
    """
    libc = ctypes.CDLL(None)
    saved = []
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
            saved.append((descriptor, os.dup(descriptor)))
        except (OSError, ValueError):
            continue  # A process without that stream has nothing to protect.
    libc.fflush(None)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor, _ in saved:
            os.dup2(null, descriptor)
        yield
    finally:
        # Native output waits in C's own buffers when it goes to a file or a pipe.
        libc.fflush(None)
        for descriptor, copy in saved:
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(null)
