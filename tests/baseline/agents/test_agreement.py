import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import monitor

from baseline.agents import agreement


def test_compare_discrete_counts_equal_actions():
    reference = np.arange(200) % 4
    other = reference.copy()
    other[:2] += 1
    result = agreement.compare(reference, other)
    assert result.states == 200 and result.alike == 0.99 and result.holds
    assert result.largest is None and str(result) == "99.00 %"
    other[2] += 1
    assert not agreement.compare(reference, other).holds


def test_compare_continuous_measures_in_shares_of_the_range():
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 10.0])
    reference = np.zeros((100, 2))
    other = reference.copy()
    other[0] = 0.03, 0.0  # 1.5 % of the range.
    other[1] = 0.0, 0.5  # 5 %.
    result = agreement.compare(reference, other, low, high)
    assert result.alike == 0.99 and result.holds
    assert result.largest == pytest.approx(0.05)
    assert result.mean == pytest.approx((0.015 + 0.05) / 200)
    assert result.percentile_99 < 0.015
    fixed = np.array([1.0, 0.0])  # The second has one value only.
    assert agreement.compare(reference, 0 * other, low, fixed).largest == 0.0
    other[2] = 0.05, 0.0
    assert not agreement.compare(reference, other, low, high).holds


@pytest.mark.parametrize(
    ("reference", "actions"), [(np.zeros(3), np.zeros(4)), (np.zeros(0), np.zeros(0))]
)
def test_compare_impossible_raises(reference, actions):
    with pytest.raises(ValueError, match="Cannot compare"):
        agreement.compare(reference, actions)


class Counting(gym.Env):
    """Observations count the steps of an episode, which has 30."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        del seed, options
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        del action
        self._step += 1
        return np.full(1, self._step, np.float32), 1.0, self._step == 30, False, {}


def make_env():
    return monitor.Monitor(Counting())


def act(observations):
    return np.zeros(len(observations), int)


def test_visited_states_are_those_that_were_acted_on():
    states = agreement.visited_states(make_env, act, 2, 0, limit=1000)
    assert states.shape == (60, 1)
    assert sorted(states[:, 0]) == sorted([*range(30), *range(30)])


@pytest.mark.parametrize("limit", [1, 7, 16, 59])
def test_visited_states_thinned_are_spread_over_the_episode(limit):
    states = agreement.visited_states(make_env, act, 2, 0, limit)[:, 0]
    assert limit / 2 - 1 <= len(states) <= limit
    assert limit == 1 or states.max() > 15
