"""Episodes are played; when an evaluation is due, and when a run of them has held a return."""

from unittest import mock

import dm_env
import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.environments import evaluation


@pytest.mark.parametrize(
    ("period_steps", "period_s", "time_is_up", "steps"),
    [
        (3, 5.0, False, [3, 6]),  # By steps, the time does not count.
        (3, 5.0, True, [3, 6]),
        (0, 5.0, False, []),
        (0, 5.0, True, [1, 2, 3, 4, 5, 6]),
        (0, 0.0, True, []),
    ],
)
def test_due_is_by_steps_or_else_by_time(period_steps, period_s, time_is_up, steps):
    config = config_lib.RunConfig(eval_period_steps=period_steps, eval_period_s=period_s)
    assert [n for n in range(1, 7) if evaluation.due(config, n, time_is_up)] == steps


def test_stop_rule_is_that_of_the_flags():
    flags = {"stop_return": 10.0, "stop_window": 2, "stop_smoothing": 2}
    config = config_lib.RunConfig(**flags)
    assert evaluation.reached_stop_return(config, [10, 10, 10])
    assert not evaluation.reached_stop_return(config, [10, 10])
    assert not evaluation.reached_stop_return(config, [10, 9, 10])
    # Held under another rule, and lost: the run was resumed with this one.
    assert not evaluation.reached_stop_return(config, [10, 10, 10, 0, 0])
    assert evaluation.reached_stop_return(config, [0, 0, 10, 10, 10, 10])
    assert not evaluation.reached_stop_return(config_lib.RunConfig(), [10] * 9)


@pytest.mark.parametrize(
    ("returns", "window", "smoothing", "since"),
    [
        ([], 1, 1, None),
        ([9, 10], 1, 1, 1),
        ([10, 9, 10, 10, 10], 3, 1, 2),
        ([10, 9, 10, 10], 3, 1, None),  # Not held long enough.
        # Means of two: -, 10, 15, 10, 5: held from the second one on.
        ([0, 20, 10, 10, 0], 3, 2, 1),
        ([20, 0], 1, 3, None),  # A mean of three needs three.
        ([10, 10, 0, 0], 2, 1, 0),  # Held once is held, whatever came later.
    ],
)
def test_held_since_is_the_start_of_the_first_long_enough_row(returns, window, smoothing, since):
    assert evaluation.held_since(returns, 10, window, smoothing) == since


@pytest.mark.parametrize(
    ("returns", "smoothing", "streak"),
    [([], 1, 0), ([10, 9], 1, 0), ([10, 9, 10, 11], 1, 2), ([9, 9, 12, 8], 2, 2), ([20], 2, 0)],
)
def test_last_streak_is_of_running_means_up_to_the_last_evaluation(returns, smoothing, streak):
    assert evaluation.last_streak(returns, 10, smoothing) == streak


class Countdown:
    """An environment of a few steps: rewards 1, 10, 100, ..."""

    def __init__(self, length):
        self.length = length
        self.actions = []

    def reset(self):
        self.actions = []
        return self._timestep(None)

    def step(self, action):
        self.actions.append(action)
        return self._timestep(10.0 ** (len(self.actions) - 1))

    def render(self):
        return np.full((2, 2, 3), len(self.actions), np.uint8)

    def _timestep(self, reward):
        kind = dm_env.StepType.LAST if len(self.actions) == self.length else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, 1.0, np.float32([len(self.actions)]))


def test_play_sums_rewards_counts_steps_and_gives_every_frame():
    environment, frames = Countdown(3), []
    episode = evaluation.play(environment, lambda o: -float(o[0]), frames.append)
    assert (episode.episode_return, episode.length) == (111.0, 3)
    assert episode.seconds >= 0
    assert (episode.reward_low, episode.reward_high) == (1.0, 100.0)
    assert environment.actions == [0.0, -1.0, -2.0]
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 1, 2, 3]


def test_row_of_an_episode_has_only_the_numbers_that_were_noted():
    logger = mock.Mock(spec_set=["write"])
    evaluation.write_row(logger, 7, 70, evaluation.Episode(9.0, 3, 0.5), 0.5)
    assert not {"reward_low", "actions_at_bounds"} & logger.write.call_args.kwargs.keys()
    evaluation.write_row(logger, 7, 70, evaluation.Episode(9.0, 3, 0.5, -1.0, 2.0, 0.25), 0.5)
    row = logger.write.call_args.kwargs
    assert (row["reward_low"], row["reward_high"], row["actions_at_bounds"]) == (-1.0, 2.0, 0.25)


def test_play_asked_to_stop_gives_up_the_episode():
    environment = Countdown(200)
    assert evaluation.play(environment, lambda o: 0, stop=lambda: True) is None
    assert environment.actions == []
    answers = iter([False, False, True])
    assert evaluation.play(environment, lambda o: 0, stop=lambda: next(answers)) is None
    assert len(environment.actions) == 100
