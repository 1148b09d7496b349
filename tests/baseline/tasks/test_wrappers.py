"""Wrappers: ours give what others give, and configurations can name trusted ones only."""

import os

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import vec_env

from actorQ.core import errors
from baseline.tasks import environments
from baseline.tasks import wrappers as wrappers_lib
from tests.baseline import small_agents
from tests.baseline.tasks import test_environments

BREAKOUT = test_environments.BREAKOUT


@pytest.mark.parametrize(
    ("env_id", "size"), [("Ant-v3", 111), ("Humanoid-v2", 376), ("HumanoidStandup-v2", 376)]
)
def test_contact_forces_are_zeros_as_with_mujoco_py(env_id, size):
    old, today = environments.make(env_id), environments.make(environments.successor(env_id))
    others = size - 84
    assert old.observation_space.shape == (size,) and old.observation_space.dtype == np.float64
    seen, expected = old.reset(seed=3)[0], today.reset(seed=3)[0]
    forces, costs, over = [expected[others:]], [0.0], False
    today.action_space.seed(0)
    while not over and len(forces) < 50:
        assert old.observation_space.contains(seen)
        np.testing.assert_array_equal(seen[:others], expected[:others])
        assert not seen[others:].any()
        action = today.action_space.sample()
        seen, reward, _, _, old_info = old.step(action)
        expected, true_reward, over, _, info = today.step(action)
        forces.append(expected[others:])
        costs.append(info.get("reward_impact", 0.0))
        assert reward == pytest.approx(true_reward - costs[-1])
        assert old_info.get("reward_impact", 0.0) == 0
    assert np.any(forces) == (env_id != "Ant-v3")  # Ant-v4 has none.
    assert (min(costs) < 0) == env_id.startswith("HumanoidStandup")
    old.close()
    today.close()


def compare_frames(ours, reference, steps):
    """Plays the same actions in both; returns how many episodes (or lives) ended."""
    assert ours.observation_space == reference.observation_space
    reference.seed(3)
    expected = reference.reset()
    observation, _ = ours.reset(seed=3)
    actions = np.random.default_rng(0).integers(reference.action_space.n, size=steps)
    ends = 0
    for action in actions:
        np.testing.assert_array_equal(observation, expected[0])
        expected, rewards, dones, _ = reference.step(np.array([action]))
        observation, reward, terminated, truncated, _ = ours.step(action)
        assert (reward, terminated or truncated) == (rewards[0], dones[0])
        if dones[0]:
            observation, _ = ours.reset()
            ends += 1
    ours.close()
    reference.close()
    return ends


def test_stacked_frames_are_those_of_sb3():
    ours = environments.make(BREAKOUT, [small_agents.ATARI_WRAPPER], 4)
    assert ours.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    # Five lives a game: some ends are those of games.
    assert compare_frames(ours, small_agents.atari_vector(BREAKOUT), 300) > 5


def test_single_frames_are_those_of_sb3():
    wrap = small_agents.atari_wrappers.AtariWrapper
    reference = vec_env.VecTransposeImage(small_agents.vector(BREAKOUT, wrap))
    ours = environments.make(BREAKOUT, small_agents.ATARI_WRAPPER)
    assert compare_frames(ours, reference, 100) > 0


def test_stacked_vectors_are_those_of_sb3():
    reference = vec_env.VecFrameStack(small_agents.vector("CartPole-v1"), 3)
    assert compare_frames(environments.make("CartPole-v1", None, 3), reference, 100) > 2


class Picture(gym.Env):
    """Counts steps in images with the channels first."""

    observation_space = gym.spaces.Box(0, 255, (2, 5, 6), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self._count = 1
        return np.full((2, 5, 6), 1, np.uint8), {}

    def step(self, action):
        self._count += 1
        return np.full((2, 5, 6), self._count, np.uint8), 0.0, self._count == 4, False, {}


def test_stacked_frames_with_channels_first_are_those_of_sb3():
    reference = vec_env.VecFrameStack(vec_env.DummyVecEnv([Picture]), 3)
    assert compare_frames(wrappers_lib.StackFrames(Picture(), 3), reference, 10) == 3


def test_stack_keeps_what_it_gave(monkeypatch):
    env = wrappers_lib.StackFrames(Picture(), 2)
    first, _ = env.reset()
    copy = first.copy()
    env.step(0)
    np.testing.assert_array_equal(first, copy)


def test_what_cannot_be_stacked_is_an_error():
    class Discrete(Picture):
        observation_space = gym.spaces.Discrete(3)

    with pytest.raises(errors.UserError, match="cannot be stacked"):
        wrappers_lib.StackFrames(Discrete(), 2)


def test_wrappers_as_configurations_name_them():
    time_feature = "sb3_contrib.common.wrappers.TimeFeatureWrapper"
    skip = {"stable_baselines3.common.atari_wrappers.MaxAndSkipEnv": {"skip": 2}}
    for wrappers in (time_feature, [time_feature], (time_feature,), [{time_feature: None}]):
        env = environments.make("Pendulum-v1", wrappers)
        assert env.observation_space.shape == (4,)
        # Its time runs, as in training and where the zoo plays its agents.
        start, _ = env.reset(seed=0)
        observation, *_ = env.step(np.zeros(1, np.float32))
        assert start[-1] == 1.0
        assert observation[-1] == pytest.approx(1 - 1 / 200)  # Pendulum's episodes have 200 steps.
        env.close()
    env = environments.make("CartPole-v1", [skip, {time_feature: {"max_steps": 10}}])
    assert env.env._skip == 2 and env.observation_space.shape == (5,)
    env.close()


@pytest.mark.parametrize(
    ("wrappers", "match"),
    [
        ("os.system", "the wrapper os.system, which is not of a library that is trusted"),
        ("subprocess.Popen", "not of a library that is trusted"),
        ("gymnasium.wrappers", "not of a library that is trusted"),
        ("gymnasium.envs.classic_control.CartPoleEnv", "not of a library that is trusted"),
        ("stable_baselines3.common.evil.Wrapper", "there is none"),
        ("gymnasium.wrappers.Nothing", "there is none"),
        ("gymnasium.wrappers..os", "there is none"),
        ("rl_zoo3.wrappers.np", "is not an environment wrapper"),
        ("stable_baselines3.common.save_util.os", "is not an environment wrapper"),
        ("stable_baselines3.common.save_util.load_from_zip_file", "is not an environment wrapper"),
        ("stable_baselines3.common.vec_env.VecNormalize", "is not an environment wrapper"),
        ({"stable_baselines3.common.monitor.Monitor": {"filename": "x"}}, "writes files"),
        ({"gymnasium.wrappers.RecordVideo": {"video_folder": "x"}}, "writes files"),
        ({"gymnasium.wrappers.rendering.RecordVideo": {"video_folder": "x"}}, "writes files"),
        ("gymnasium.wrappers.NormalizeObservation", "normalize:true normalizes observations"),
        ("gymnasium.wrappers.stateful_observation.NormalizeObservation", "normalize:true"),
        ([3], "Cannot read env_wrapper 3"), ({"a": {}, "b": {}}, "Cannot read env_wrapper"),
        ([{"gymnasium.wrappers.TimeLimit": 5}], "Cannot read env_wrapper"),
        ([["gymnasium.wrappers.TimeLimit"]], "Cannot read env_wrapper"),
        ("gymnasium.wrappers.RecordEpisodeStatistics", "monitor inside has noted: leave it out"),
        ({"gymnasium.wrappers.TimeLimit": {"no_such": 1}}, "does not fit CartPole-v1"),
        ({"gymnasium.wrappers.TimeLimit": {3: 1}}, "does not fit CartPole-v1"),
        ("gymnasium.wrappers.ResizeObservation", "does not fit CartPole-v1"),
    ],
)
def test_other_wrappers_are_refused(tmp_path, monkeypatch, wrappers, match):
    monkeypatch.chdir(tmp_path)
    test_environments.refused(match, "CartPole-v1", wrappers)
    assert os.listdir(tmp_path) == []
