"""Episodes are paired, repeatable, and whole."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import monitor

from actorQ.core import errors
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.quantization import schemes
from baseline.tasks import environments


class Countdown(gym.Env):
    """An episode of as many steps as its seed tells, with the seed's start as its last reward."""

    observation_space = gym.spaces.Box(-1000, 1000, (2,), np.float64)
    action_space = gym.spaces.Discrete(10)
    made = closed = 0

    def __init__(self):
        type(self).made += 1

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._start = self._left = int(self.np_random.integers(1, 30))
        return np.array([self._start, self._left]), {}

    def step(self, action):
        self._left -= 1
        observation = np.array([self._start, self._left])
        return observation, float(action), self._left == 0, False, {}

    def close(self):
        type(self).closed += 1


def counted(policy=lambda observations: np.zeros(len(observations), int)):
    sizes = []

    def act(observations):
        sizes.append(len(observations))
        return policy(observations)

    return act, sizes


def make_countdown():
    return monitor.Monitor(Countdown())


def test_every_episode_is_played_once_in_its_order():
    starts = {}
    for number in range(12):
        seed = evaluation.episode_seed(7, number)
        starts[number] = int(Countdown().reset(seed=seed)[0][0])
    act, sizes = counted(lambda observations: observations[:, 0].astype(int))
    Countdown.made = Countdown.closed = 0
    played = evaluation.evaluate(make_countdown, act, 12, 7, num_envs=5)
    assert [episode.length for episode in played] == list(starts.values())
    assert [episode.episode_return for episode in played] == [s * s for s in starts.values()]
    assert sizes[0] == 5 and sorted(sizes, reverse=True) == sizes and sizes[-1] >= 1
    assert sum(sizes) == sum(starts.values())
    assert Countdown.made == Countdown.closed == 5


@pytest.mark.parametrize("num_envs", [1, 3, 12, 100])
def test_returns_do_not_depend_on_the_number_of_environments(num_envs):
    act, _ = counted(lambda observations: observations[:, 1].astype(int) % 10)
    alone = evaluation.evaluate(make_countdown, act, 12, 3, num_envs=1)
    assert evaluation.evaluate(make_countdown, act, 12, 3, num_envs=num_envs) == alone


@pytest.mark.parametrize(
    ("algo", "env_id"), [("dqn", "CartPole-v1"), ("a2c", "Pendulum-v1")]
)
def test_returns_of_agents_do_not_depend_on_the_number_of_environments(zoo, algo, env_id):
    agent = finding.load(algo, env_id, zoo.folder)
    returns = [
        [e.episode_return for e in evaluation.evaluate(agent.make_env, agent.act, 6, 1, n)]
        for n in (1, 4, 6)
    ]
    # Sums of floats depend on the size of the batch, and an episode multiplies the differences.
    np.testing.assert_allclose(returns[1], returns[0], rtol=1e-3)
    np.testing.assert_allclose(returns[2], returns[0], rtol=1e-3)
    assert len(set(returns[0])) == 6 or env_id == "CartPole-v1"


@pytest.mark.parametrize("num_envs", [1, 3])
def test_an_episode_may_be_ended_by_a_wrapper_around_the_monitor(num_envs):
    def make_env():
        return gym.wrappers.TimeLimit(monitor.Monitor(Countdown()), 10)

    act, _ = counted(lambda observations: np.full(len(observations), 2))
    played = evaluation.evaluate(make_env, act, 12, 7, num_envs=num_envs)
    starts = [
        int(Countdown().reset(seed=evaluation.episode_seed(7, number))[0][0])
        for number in range(12)
    ]
    assert min(starts) < 10 < max(starts)
    assert [episode.length for episode in played] == [min(start, 10) for start in starts]
    assert [episode.episode_return for episode in played] == [2 * min(s, 10) for s in starts]


def test_a_return_that_is_no_number_is_an_error():
    act, _ = counted(lambda observations: np.full(len(observations), np.nan))
    with pytest.raises(errors.UserError, match="Episode [01] came to a return of nan"):
        evaluation.evaluate(make_countdown, act, 2, 0)


def test_an_episode_that_does_not_end_is_an_error(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 30)
    act, sizes = counted()
    lengths = [episode.length for episode in evaluation.evaluate(make_countdown, act, 12, 7)]
    assert max(lengths) > 20  # Countdown's 29 at most are none too many.

    monkeypatch.setattr(evaluation, "MAX_STEPS", max(lengths) - 1)
    Countdown.made = Countdown.closed = 0
    sizes.clear()
    with pytest.raises(errors.UserError, match=r"has not ended within \d+ steps: .*max_episode_st"):
        evaluation.evaluate(make_countdown, act, 12, 7)
    assert len(sizes) == max(lengths) - 1
    assert Countdown.made == Countdown.closed == 12


def test_an_environment_s_own_limit_may_be_longer(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 3)

    def make_env():
        env = Countdown()
        env.spec = gym.envs.registration.EnvSpec("Countdown-v0", max_episode_steps=40)
        return monitor.Monitor(env)

    act, _ = counted()
    assert max(episode.length for episode in evaluation.evaluate(make_env, act, 12, 7)) > 20


def test_the_longest_games_of_atari_may_end():
    environments.register()
    limits = {
        spec.kwargs["max_num_frames_per_episode"] for spec in gym.registry.values()
        if spec.entry_point == "ale_py.env:AtariEnv"
    }
    assert limits and max(limits) < evaluation.MAX_STEPS


def test_rewards_that_a_wrapper_changes_are_not_those_of_returns():
    def returns(wrapper):
        act, _ = counted()
        played = evaluation.evaluate(lambda: environments.make("CartPole-v1", wrapper), act, 3, 0)
        return [episode.episode_return for episode in played]

    assert returns("gymnasium.wrappers.NormalizeReward") == returns(None)


def test_environments_are_closed_where_not_all_can_be_made():
    left = iter(range(2))

    def make_env():
        next(left)
        return make_countdown()

    Countdown.made = Countdown.closed = 0
    with pytest.raises(StopIteration):
        evaluation.evaluate(make_env, counted()[0], 5, 0)
    assert Countdown.made == Countdown.closed == 2


def test_starts_are_the_same_whatever_plays(zoo):
    def starts(bits):
        agent = finding.load("ppo", "CartPole-v1", zoo.folder)
        schemes.quantize_weights(agent.network, schemes.Scheme(bits))
        seen = []

        def make_env():
            env = agent.make_env()
            reset = env.reset
            numbers = iter(range(100))

            def noted(**kwargs):
                observation, info = reset(**kwargs)
                seen.append((kwargs["seed"], next(numbers), tuple(observation)))
                return observation, info

            env.reset = noted
            return env

        evaluation.evaluate(make_env, agent.act, 9, 4, num_envs=3)
        return sorted(seen)

    full = starts("fp32")
    assert len(full) == len({seed for seed, _, _ in full}) == 9
    assert full == starts("2")
    assert sorted(seed for seed, _, _ in full) == sorted(
        evaluation.episode_seed(4, number) for number in range(9)
    )


def test_seeds_give_other_starts():
    seeds = {evaluation.episode_seed(seed, number) for seed in range(5) for number in range(20)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_losing_a_life_is_no_end_of_an_episode(atari_zoo):
    env_id = "BreakoutNoFrameskip-v4"
    agent = finding.load("ppo", env_id, atari_zoo.folder)
    rng = np.random.default_rng(0)
    act, _ = counted(lambda observations: rng.integers(4, size=len(observations)))
    returns = {}
    # The monitor inside sees whole games and unclipped returns.
    games = []

    def make_env():
        env = agent.make_env()
        games.append(env)
        return env

    played = evaluation.evaluate(make_env, act, 2, 0, num_envs=2)
    for game, episode in zip(games, played, strict=True):
        inner = game
        while not isinstance(inner, monitor.Monitor):
            inner = inner.env
        returns[game] = inner.get_episode_rewards()
        assert returns[game] == [episode.episode_return]
        # A game has five lives; a single one lasts some 25 steps.
        assert episode.length > 60
        # A step has four frames, and wrappers act at resets.
        assert 4 * episode.length <= inner.get_episode_lengths()[0] < 4 * episode.length + 200


def test_environments_are_closed_after_an_error():
    def act(observations):
        raise ValueError("broken")

    Countdown.made = Countdown.closed = 0
    with pytest.raises(ValueError, match="broken"):
        evaluation.evaluate(make_countdown, act, 3, 0)
    assert Countdown.made == Countdown.closed == 3


def test_trained_agents_score_what_they_should(trained):
    agent = finding.load("ppo", "CartPole-v1", trained)
    played = evaluation.evaluate(agent.make_env, agent.act, 5, 0)
    assert [episode.episode_return for episode in played] == [500.0] * 5
    agent = finding.load("a2c", "MountainCarContinuous-v0", trained)
    played = evaluation.evaluate(agent.make_env, agent.act, 5, 0)
    assert np.mean([episode.episode_return for episode in played]) > 85.0
