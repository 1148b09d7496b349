"""Plays episodes without exploration. Decides when to evaluate, and when a run may stop.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import math
import time
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import health
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.environments import base


class Episode(NamedTuple):
    """The result of an episode.

    Attributes:
      episode_return: Sum of the rewards.
      length: Environment steps.
      seconds: Time that the episode took.
      reward_low: Lowest reward; NaN: it was not noted.
      reward_high: Highest reward; NaN: it was not noted.
      actions_at_bounds: Share of the action numbers at their bounds; NaN: it was not noted.
    """

    episode_return: float
    length: int
    seconds: float
    reward_low: float = math.nan
    reward_high: float = math.nan
    actions_at_bounds: float = math.nan


def play(
    environment: base.Environment,
    act: Callable[[np.ndarray], Any],
    on_frame: Callable[[np.ndarray], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Episode | None:
    """Plays one episode.

    Args:
      environment: The task, which is reset first.
      act: Maps an observation to an action.
      on_frame: Takes a rendered frame, uint8 [H, W, 3], after the reset and every step.
      stop: Is asked from time to time, and ends the episode early.

    Returns:
      The episode, or None if `stop` ended it.
    """
    started = time.perf_counter()
    timestep = environment.reset()
    episode_return, length = 0.0, 0
    low, high = math.inf, -math.inf
    while not timestep.last():
        if on_frame is not None:
            on_frame(environment.render())
        if length % 50 == 0 and stop():
            return None
        timestep = environment.step(act(timestep.observation))
        reward = timestep.reward
        episode_return += reward
        low, high = min(low, reward), max(high, reward)
        length += 1
    if on_frame is not None:
        on_frame(environment.render())
    return Episode(episode_return, length, time.perf_counter() - started, low, high)


class GreedyPlayer:
    """Plays without exploration, and counts actions at their bounds."""

    def __init__(
        self,
        environment: base.Environment,
        compute: Callable[[np.ndarray], np.ndarray],
        greedy: Callable[[np.ndarray], Any],
    ):
        """Takes the parts.

        Args:
          environment: The environment to play in.
          compute: Maps observations [1, ...] to the policy's output, float32 [1, num_outputs].
          greedy: Turns a policy's output [num_outputs] into an action.
        """
        self._environment = environment
        self._compute = compute
        self._greedy = greedy
        self._continuous = not environment.spec.discrete
        self._numbers = self._at_bounds = 0  # Of the actions of the episode so far.

    def play(self, stop: Callable[[], bool] = lambda: False) -> Episode | None:
        """Plays one episode; returns None if `stop` returned true during the episode."""
        self._numbers = self._at_bounds = 0
        episode = play(self._environment, self.act, stop=stop)
        if episode is not None and self._numbers:
            return episode._replace(actions_at_bounds=self._at_bounds / self._numbers)
        return episode

    def act(self, observation: np.ndarray) -> Any:
        """Returns the policy's action for one observation."""
        output = self._compute(observation[None])[0]
        if self._continuous:
            self._numbers += output.size
            self._at_bounds += int(np.count_nonzero(np.abs(output) > health.BOUND))
        return self._greedy(output)


def write_row(
    logger: run_logger.RunLogger,
    learner_steps: int,
    actor_steps: int,
    episode: Episode,
    evaluation_s: float,
) -> None:
    """Logs an evaluation episode.

    Args:
      logger: Log of the learner's process.
      learner_steps: Learner steps done.
      actor_steps: Environment steps of all actors.
      episode: The episode.
      evaluation_s: Seconds of evaluation so far, this episode included.
    """
    noted = {
        name: getattr(episode, name)
        for name in ("reward_low", "reward_high", "actions_at_bounds")
        if math.isfinite(getattr(episode, name))
    }
    logger.write(
        telemetry.EVALUATION_CSV,
        learner_steps,
        learner_steps=learner_steps,
        actor_steps=actor_steps,
        episode_return=episode.episode_return,
        episode_length=episode.length,
        episode_s=episode.seconds,
        evaluation_s=evaluation_s,
        **noted,
    )


def report_final(returns: Sequence[float]) -> None:
    """Says what the last policy came to, unless it was not evaluated."""
    if returns:
        logging.info(
            "Final return of the last policy: %.1f +- %.1f over %d episodes.",
            np.mean(returns), np.std(returns), len(returns),
        )


def due(config: config_lib.RunConfig, learner_steps: int, time_is_up: bool) -> bool:
    """Returns whether a training plays an evaluation episode now.

    Args:
      config: Configuration of the run.
      learner_steps: Learner steps so far.
      time_is_up: Whether --eval_period_s is over.
    """
    if config.eval_period_steps:
        return learner_steps % config.eval_period_steps == 0
    return bool(config.eval_period_s) and time_is_up


def reached_stop_return(config: config_lib.RunConfig, returns: Sequence[float]) -> bool:
    """Returns whether the last returns of evaluation episodes meet the stop rule.

    Earlier returns do not count: a run that resumes with another rule goes on until it meets that.
    """
    if config.stop_return is None:
        return False
    row = last_streak(returns, config.stop_return, config.stop_smoothing)
    return row >= config.stop_window


def held_since(
    returns: Sequence[float], target: float, window: int, smoothing: int
) -> int | None:
    """Returns the evaluation from which on the target return was held, or None.

    Args:
      returns: Returns of the evaluation episodes, in their order.
      target: Return that the running mean must reach.
      window: Evaluations in a row in which the mean must reach it.
      smoothing: Evaluations in the running mean, which starts when there are so many.

    Returns:
      Index of the first evaluation of the first such row.
    """
    for end, streak in _streaks(returns, target, smoothing):
        if streak == window:
            return end - window
    return None


def last_streak(returns: Sequence[float], target: float, smoothing: int) -> int:
    """Returns how many evaluations in a row, up to the last, have a running mean at the target.

    A run that ends within such a row may have been about to hold its target since the row began.

    Args:
      returns: Returns of the evaluation episodes, in their order.
      target: Return that the running mean must reach.
      smoothing: Evaluations in the running mean, which starts when there are so many.
    """
    streaks = [streak for _, streak in _streaks(returns, target, smoothing)]
    return streaks[-1] if streaks else 0


def _streaks(
    returns: Sequence[float], target: float, smoothing: int
) -> Iterator[tuple[int, int]]:
    """Yields the number of evaluations, and how many in a row were at the target by then."""
    streak = 0
    for end in range(smoothing, len(returns) + 1):
        mean = sum(returns[end - smoothing : end]) / smoothing
        streak = streak + 1 if mean >= target else 0
        yield end, streak
