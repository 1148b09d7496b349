"""An actor's loop in N environments: policy, exploration, environment step, n-step sums.

All N environments take one step in every turn, with one policy call for the batch of their
observations. They share nothing else. Actor's process only; imports no framework.
"""

from collections.abc import Callable
from collections.abc import Sequence
import time
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np

from actorQ.actor import n_step_returns
from actorQ.environments import base
from actorQ.wire import replay


class Episode(NamedTuple):
    """An episode that has ended.

    Attributes:
      episode_return: Sum of the environment's rewards, before any clipping.
      length: Environment steps.
    """

    episode_return: float
    length: int


class Exploration(Protocol):
    """Turns a policy's outputs for one environment into actions."""

    def begin(self) -> None:
        """Notes that an episode begins."""

    def __call__(self, output: np.ndarray) -> Any:
        """Returns the action for the policy's output, float32 [num_outputs]."""


class Lane:
    """One environment with its exploration, n-step sums and episode counters."""

    def __init__(
        self,
        environment: base.Environment,
        explore: Exploration,
        accumulator: n_step_returns.NStepAccumulator,
    ):
        """Takes the parts; `reset` comes first."""
        self.environment = environment
        self.explore = explore
        self.accumulator = accumulator
        self.episode_return = 0.0
        self.length = 0

    def reset(self) -> np.ndarray:
        """Starts an episode and returns its first observation."""
        observation = self.environment.reset().observation
        self.accumulator.first(observation)
        self.explore.begin()
        self.episode_return, self.length = 0.0, 0
        return observation


class EnvironmentLoop:
    """Acts in N environments, in turns of one step in each.

    Attributes:
      lanes: The environments, each with its own parts.
      steps: Environment steps done in all of them together.
    """

    def __init__(
        self,
        environments: Sequence[base.Environment],
        explorations: Sequence[Exploration],
        infer: Callable[[np.ndarray], np.ndarray],
        accumulators: Sequence[n_step_returns.NStepAccumulator],
        timings: dict[str, float],
        reward_limit: float,
    ):
        """Takes the parts; the environments are reset by the first turn.

        Args:
          environments: N environments of one task.
          explorations: One exploration for each environment.
          infer: Turns observations [N, ...] into outputs, float32 [N, num_outputs].
          accumulators: One accumulator of n-step sums for each environment.
          timings: Seconds of environment, inference and insert, to which the loop adds.
          reward_limit: Largest magnitude of a reward in transitions.
        """
        self.lanes = [
            Lane(*parts)
            for parts in zip(environments, explorations, accumulators, strict=True)
        ]
        self._infer = infer
        self._timings = timings
        self._reward_limit = reward_limit
        spec = environments[0].spec
        self._observations = np.empty(
            (len(self.lanes), *spec.observation_shape), spec.observation_dtype
        )
        self._started = False
        self.steps = 0

    def turn(self, write: Callable[[replay.Transition], None]) -> Sequence[Episode]:
        """Takes one step in every environment, and resets those whose episode has ended.

        Args:
          write: Is called with every transition that is complete.

        Returns:
          The episodes that ended.
        """
        clock, lanes, limit = time.perf_counter, self.lanes, self._reward_limit
        if not self._started:
            self._start()
        started = clock()
        outputs = self._infer(self._observations)
        actions = [lane.explore(output) for lane, output in zip(lanes, outputs, strict=True)]
        inferred = clock()
        timesteps = [
            lane.environment.step(action) for lane, action in zip(lanes, actions, strict=True)
        ]
        stepped = clock()
        ended = []
        for index, (lane, timestep) in enumerate(zip(lanes, timesteps, strict=True)):
            _, reward, discount, observation = timestep
            self._observations[index] = observation
            last = timestep.last()
            clipped = max(-limit, min(limit, reward))
            for transition in lane.accumulator.step(
                actions[index], clipped, discount, observation, last
            ):
                write(transition)
            lane.episode_return += reward
            lane.length += 1
            if last:
                ended.append(index)
        seconds = self._timings
        seconds["inference_s"] += inferred - started
        seconds["environment_s"] += stepped - inferred
        seconds["insert_s"] += clock() - stepped
        self.steps += len(lanes)
        return self._end_episodes(ended) if ended else ()

    def require_finite(self) -> None:
        """Checks the observations of a turn that has failed, as they may be the cause.

        Raises:
          task_errors.TaskError: A number is NaN or infinite.
        """
        if self._started and not np.isfinite(self._observations).all():
            raise replay.failed_simulation("an observation")

    def drop_episodes(self) -> None:
        """Drops the episodes under way; the next turn begins new ones."""
        self._started = False

    def close(self) -> None:
        """Closes the environments; no turn may follow."""
        base.close_all(lane.environment for lane in self.lanes)

    def _start(self) -> None:
        self._reset(range(len(self.lanes)))
        self._started = True

    def _end_episodes(self, indices: Sequence[int]) -> list[Episode]:
        episodes = [
            Episode(self.lanes[i].episode_return, self.lanes[i].length) for i in indices
        ]
        self._reset(indices)
        return episodes

    def _reset(self, indices: Sequence[int]) -> None:
        started = time.perf_counter()
        for index in indices:
            self._observations[index] = self.lanes[index].reset()
        self._timings["environment_s"] += time.perf_counter() - started
