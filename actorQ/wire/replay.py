"""n-step transitions, and how they lie in replay.

A transition is (observation, action, n-step return, n-step discount, next observation). In
Reverb it is one flat float32 vector (pixels: one uint8 array beside a short float32 vector): one
column instead of five makes an insert about half as expensive, and a batch for the learner about
2.5 times cheaper (measured with reverb 0.14, walker-sized observations: 49 to 25 us an insert,
2.1 to 0.8 ms a batch of 256). The learner slices it apart again, a whole batch at a time.

Actors make them (`n_step_returns`) and write them (`transition_writer`); the learner slices them
apart.
Imports no framework.
"""

import dataclasses
import functools
import math
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.environments import base
from actorQ.environments import task_errors


class Transition(NamedTuple):
    """An n-step transition from time t-n to t.

    Attributes:
      observation: o_{t-n}.
      action: a_{t-n}, float32 [A] or an integer.
      reward: r_{t-n+1} + g d_{t-n+1} r_{t-n+2} + ...: the n-step return, with g the discount per
        step and d the environment's own discounts.
      discount: g^{n-1} d_{t-n+1} ... d_t. The learner multiplies by g once more.
      next_observation: o_t.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any


def failed_simulation(name: str) -> task_errors.TaskError:
    """Returns what says that a task gave something, or led to it, that is no number.

    Args:
      name: of it, with its article.
    """
    return task_errors.TaskError(
        f"a transition has {name} that is not finite as float32: the task's simulation has failed, "
        "or its rewards are too large; mend the task, or wrap it so that such an episode ends"
    )


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the parts of a transition lie in the flat vector.

    Order: observation, action, reward, discount, next observation; pixel observations lie in a
    uint8 array [2, H, W, C] of their own.
    """

    observation_shape: tuple[int, ...]
    pixels: bool
    action_size: int  # 1 for discrete actions, which are exact in float32 up to 2^24.
    discrete: bool

    @classmethod
    def of(cls, spec: base.EnvironmentSpec) -> "Layout":
        """Returns the layout for an environment."""
        pixels = np.dtype(spec.observation_dtype) == np.uint8
        action_size = 1 if spec.discrete else spec.action_size
        return cls(tuple(spec.observation_shape), pixels, action_size, spec.discrete)

    @functools.cached_property
    def observation_size(self) -> int:
        """Float32 numbers that one observation takes in the flat vector."""
        return 0 if self.pixels else math.prod(self.observation_shape)

    @property
    def vector_size(self) -> int:
        """Length of the flat vector."""
        return 2 * self.observation_size + self.action_size + 2

    @property
    def frames_shape(self) -> tuple[int, ...]:
        """Shape of a transition's two pixel observations: [2, H, W, C]."""
        return (2, *self.observation_shape)

    def allocate(self, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns room for packed transitions.

        Returns:
          Vectors, float32 [rows, vector_size], and frames, uint8 [rows, 2, H, W, C] or None.
        """
        vectors = np.empty((rows, self.vector_size), np.float32)
        frames = np.empty((rows, *self.frames_shape), np.uint8) if self.pixels else None
        return vectors, frames

    def pack_into(
        self, transition: Transition, vector: np.ndarray, frames: np.ndarray | None
    ) -> None:
        """Copies a transition into one row of what `allocate` returned."""
        observation, action, reward, discount, next_observation = transition
        size = self.observation_size
        end = size + self.action_size
        if frames is None:
            vector[:size] = observation
            vector[end + 2 :] = next_observation
        else:
            frames[0] = observation
            frames[1] = next_observation
        vector[size:end] = action
        vector[end] = reward
        vector[end + 1] = discount

    def require_finite(self, vectors: np.ndarray) -> None:
        """Checks packed transitions, [rows, vector_size], all at once.

        Raises:
          task_errors.TaskError: a number is NaN or infinite, as float32.
        """
        finite = np.isfinite(vectors)
        if finite.all():
            return
        bad = ~finite[np.argmin(finite.all(axis=1))]  # Of the first such transition.
        size, end = self.observation_size, self.observation_size + self.action_size
        parts = {  # Causes before what comes of them.
            "an observation": bad[:size],
            "an action": bad[size:end],
            "a return over n steps": bad[end : end + 1],
            "a discount": bad[end + 1 : end + 2],
            "a next observation": bad[end + 2 :],
        }
        name = next(name for name, part in parts.items() if part.any())
        raise failed_simulation(name)

    def pack(self, transition: Transition) -> Any:
        """Returns what is inserted into Reverb: the vector, or (pixels, vector)."""
        vectors, frames = self.allocate(1)
        if frames is None:
            self.pack_into(transition, vectors[0], None)
            return vectors[0]
        self.pack_into(transition, vectors[0], frames[0])
        return (frames[0], vectors[0])

    def unpack(self, data: Any) -> Transition:
        """Slices a batch apart; works on numpy arrays and TensorFlow tensors alike.

        Args:
          data: float32 [B, vector_size], or (uint8 [B, 2, H, W, C], float32 [B, vector_size]).

        Returns:
          Arrays with B first; discrete actions are still float32 [B].
        """
        frames, vector = data if self.pixels else (None, data)
        size, actions = self.observation_size, self.action_size
        if self.pixels:
            observation, next_observation = frames[:, 0], frames[:, 1]
        else:
            observation, next_observation = vector[:, :size], vector[:, size + actions + 2 :]
        action = vector[:, size] if self.discrete else vector[:, size : size + actions]
        return Transition(
            observation,
            action,
            vector[:, size + actions],
            vector[:, size + actions + 1],
            next_observation,
        )
