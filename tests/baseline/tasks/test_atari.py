"""Our Atari environment against SB3's wrappers, which agents are evaluated with."""

import ale_py
import gymnasium
import numpy as np
import pytest
from stable_baselines3.common import env_util
from stable_baselines3.common import vec_env

from actorQ.core import errors
from baseline.tasks import atari

BREAKOUT = "BreakoutNoFrameskip-v4"
SCORES = {"r", "l", "t"}


@pytest.fixture
def make():
    """Makes our environments and closes them at the end."""
    made = []

    def make(*arguments, **settings):
        made.append(atari.AtariVecEnv(*arguments, **settings))
        return made[-1]

    yield make
    for environment in made:
        environment.close()


def play(environment, steps, seed=0):
    rng = np.random.default_rng(seed)
    yield environment.reset(), None, None, None
    for _ in range(steps):
        actions = rng.integers(0, environment.action_space.n, environment.num_envs)
        yield environment.step(actions)


# Breakout has lives and must be fired at; Pong has one life, Pac-Man several.
@pytest.mark.parametrize(
    ("env_id", "steps"),
    [(BREAKOUT, 300), ("PongNoFrameskip-v4", 60), ("MsPacmanNoFrameskip-v4", 250)],
)
def test_steps_equal_those_of_sb3_wrappers(make, env_id, steps):
    gymnasium.register_envs(ale_py)
    theirs = vec_env.VecTransposeImage(
        vec_env.VecFrameStack(env_util.make_atari_env(env_id, n_envs=2, seed=3), 4)
    )
    ours = make(env_id, 2, seed=3)

    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ends = 0
    for expected, actual in zip(play(theirs, steps), play(ours, steps), strict=True):
        np.testing.assert_array_equal(actual[0], expected[0])
        if expected[1] is None:
            continue
        np.testing.assert_array_equal(actual[1], expected[1])
        np.testing.assert_array_equal(actual[2], expected[2])
        for info, expected_info in zip(actual[3], expected[3], strict=True):
            assert info["TimeLimit.truncated"] == expected_info["TimeLimit.truncated"]
            assert ("episode" in info) == ("episode" in expected_info)
            if "episode" in info:
                assert info["episode"]["r"] == expected_info["episode"]["r"]
                assert info["episode"]["l"] == expected_info["episode"]["l"]
            assert ("terminal_observation" in info) == ("terminal_observation" in expected_info)
            if "terminal_observation" in info:
                ends += 1
                np.testing.assert_array_equal(
                    info["terminal_observation"], expected_info["terminal_observation"]
                )
    assert env_id.startswith("Pong") or ends >= 2
    theirs.close()


def test_steps_have_documented_shapes(make):
    environment = make(BREAKOUT, 3, seed=0, frame_stack=2)

    observations = environment.reset()
    observations_t, rewards, dones, infos = environment.step(np.zeros(3, np.int64))

    assert observations.shape == observations_t.shape == (3, 2, 84, 84)
    assert observations_t.dtype == np.uint8
    assert rewards.shape == dones.shape == (3,)
    assert rewards.dtype == np.float32
    assert len(infos) == 3
    assert not np.shares_memory(observations, observations_t)


def test_a_life_is_an_episode_and_the_score_is_of_the_whole_game(make):
    environment = make(BREAKOUT, 1, seed=1)
    lives, total, games = 0, 0.0, []
    for _, rewards, dones, infos in list(play(environment, 700))[1:]:
        total += rewards[0]
        lives += int(dones[0])
        if "episode" in infos[0]:
            assert dones[0]
            assert SCORES == set(infos[0]["episode"])
            games.append((lives, total, infos[0]["episode"]["r"]))
            lives, total = 0, 0.0

    assert games
    # Breakout has five lives; early on every brick is worth 1, as much as its clipped reward. A
    # brick hit while the next life is being readied would count in the score alone.
    assert all(lost == 5 and score >= rewards for lost, rewards, score in games)


def test_rewards_are_clipped_but_scores_are_not(make):
    clipped = list(play(make("MsPacmanNoFrameskip-v4", 1, seed=0), 120))
    plain = list(play(make("MsPacmanNoFrameskip-v4", 1, seed=0, clip_reward=False), 120))

    rewards = np.array([step[1][0] for step in plain[1:]])
    assert rewards.max() >= 10
    np.testing.assert_array_equal([step[1][0] for step in clipped[1:]], np.sign(rewards))


def test_equal_seeds_give_equal_games_and_others_do_not(make):
    first, second, other = (list(play(make(BREAKOUT, 2, seed=s), 60)) for s in (5, 5, 50))

    for left, right in zip(first, second, strict=True):
        np.testing.assert_array_equal(left[0], right[0])
    assert any(
        not np.array_equal(left[0], right[0]) for left, right in zip(first, other, strict=True)
    )


def test_scores_are_appended_to_the_monitor_file(make, tmp_path):
    for run in range(2):
        environment = make(BREAKOUT, 2, seed=run, monitor_file=str(tmp_path / "0"))
        games = sum("episode" in info for step in list(play(environment, 400))[1:]
                    for info in step[3])
        environment.close()
        lines = (tmp_path / "0.monitor.csv").read_text().splitlines()
        assert games > 0
        assert lines[1] == "r,l,t"
        if run == 0:
            first = lines
    assert lines[: len(first)] == first
    assert len(lines) == len(first) + games


@pytest.mark.parametrize("env_id", ["CartPole-v1", "ALE/Breakout-v5", "NoSuch-v0"])
def test_other_environments_are_refused(env_id):
    with pytest.raises(errors.UserError, match="NoFrameskip"):
        atari.AtariVecEnv(env_id, 1, seed=0)
