"""Environments are those that agents were trained in, and configurations cannot do more."""

import os
import sys

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import vec_env

from actorQ.core import errors
from baseline.tasks import environments
from tests.baseline import small_agents

BREAKOUT = "BreakoutNoFrameskip-v4"


def refused(match, *args, **kwargs):
    with pytest.raises(errors.UserError, match=match) as caught:
        environments.make(*args, **kwargs).close()
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) < 500, message


@pytest.mark.parametrize(
    ("env_id", "today", "kwargs"),
    [
        ("LunarLander-v2", "LunarLander-v3", {}),
        ("LunarLanderContinuous-v2", "LunarLander-v3", {"continuous": True}),
        ("HalfCheetah-v3", "HalfCheetah-v4", {}), ("Walker2d-v2", "Walker2d-v4", {}),
        ("Ant-v1", "Ant-v4", {}), ("Pendulum-v0", "Pendulum-v1", {}),
        ("Pusher-v2", "Pusher-v5", {}), ("Pusher-v4", "Pusher-v5", {}),
        # What exists stays.
        ("HalfCheetah-v4", "HalfCheetah-v4", {}), ("HalfCheetah-v5", "HalfCheetah-v5", {}),
        ("CartPole-v1", "CartPole-v1", {}), ("CartPole-v0", "CartPole-v0", {}),
        ("HalfCheetahBulletEnv-v0", "HalfCheetahBulletEnv-v0", {}),
    ],
)
def test_successor(env_id, today, kwargs):
    assert environments.successor(env_id) == today
    assert environments.successor_kwargs(env_id) == kwargs


def test_every_successor_exists(monkeypatch):
    names = [*environments._RENAMED, "HalfCheetah-v3", "Ant-v2", "Humanoid-v3", "Swimmer-v3"]
    for env_id in names:
        assert environments.successor(env_id) in gym.registry, env_id
    environments._told.clear()
    told = []
    monkeypatch.setattr(environments.logging, "info", lambda text, *of: told.append(text % of))
    for _ in range(2):
        env = environments.make("HalfCheetah-v3")
        env.close()
    assert env.unwrapped.spec.id == "HalfCheetah-v4"
    assert sum("successor HalfCheetah-v4" in line for line in told) == 1


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


def test_the_pusher_of_today_has_the_spaces_of_the_past():
    env = environments.make("Pusher-v2")
    assert (env.observation_space.shape, env.action_space.shape) == ((23,), (7,))
    assert env.action_space.high[0] == 2.0
    env.close()


def test_mujoco_leaves_no_remarks(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    environments.make("HalfCheetah-v3").close()
    assert os.listdir(tmp_path) == []
    assert "deprecated" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("family", ["CartPole-v1", "LunarLander-v3", "Walker2DBulletEnv-v0"])
def test_equal_seeds_start_equal_episodes_after_whatever(family, capfd):
    fresh, used = environments.make(family), environments.make(family)
    used.action_space.seed(0)
    used.reset(seed=9)
    for _ in range(30):
        _, _, terminated, *_ = used.step(used.action_space.sample())
        if terminated:
            used.reset()
    first, _ = fresh.reset(seed=5)
    again, _ = used.reset(seed=5)
    np.testing.assert_array_equal(first, again)
    other, _ = fresh.reset(seed=6)
    assert (first != other).any()
    fresh.close()
    used.close()
    assert capfd.readouterr().out == ""  # PyBullet's greetings.


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
    assert compare_frames(environments.StackFrames(Picture(), 3), reference, 10) == 3


def test_stack_keeps_what_it_gave(monkeypatch):
    env = environments.StackFrames(Picture(), 2)
    first, _ = env.reset()
    copy = first.copy()
    env.step(0)
    np.testing.assert_array_equal(first, copy)


def test_what_cannot_be_stacked_is_an_error():
    class Discrete(Picture):
        observation_space = gym.spaces.Discrete(3)

    with pytest.raises(errors.UserError, match="cannot be stacked"):
        environments.StackFrames(Discrete(), 2)


def test_modules_of_the_user_register_environments(tmp_path, monkeypatch):
    (tmp_path / "own_tasks.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('OwnCartPole-v0', "
        "entry_point='gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("QUARL_ENVIRONMENTS", "own_tasks, own_tasks")
    env = environments.make("OwnCartPole-v0")
    assert env.observation_space.shape == (4,)
    env.close()
    monkeypatch.setenv("QUARL_ENVIRONMENTS", "no_such_module")
    with pytest.raises(errors.UserError, match="QUARL_ENVIRONMENTS names no_such_module"):
        environments.make("OwnCartPole-v0")


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
    refused(match, "CartPole-v1", wrappers)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("frame_stack", [0, -1, "4", None, 2.0, True, 10**9, [4]])
def test_frame_stack_of_no_sense_is_an_error(frame_stack):
    refused("frame_stack", "CartPole-v1", None, frame_stack)


@pytest.mark.parametrize(
    ("env_kwargs", "match"),
    [
        ({"no_such": 1}, "Cannot make the environment CartPole-v1: .*no_such"),
        ({"id": "Acrobot-v1"}, "Cannot make the environment CartPole-v1"),
        ({3: 4}, "Cannot make the environment CartPole-v1"), ("text", "env_kwargs are 'text'"),
        ([1], "env_kwargs are"),
    ],
)
def test_env_kwargs_of_no_sense_are_an_error(env_kwargs, match):
    refused(match, "CartPole-v1", None, 1, env_kwargs)


def test_messages_do_not_write_out_what_refers_to_itself_often():
    huge = [1]
    for _ in range(60):
        huge = [huge] * 10
    refused("frame_stack", "CartPole-v1", None, huge)
    refused("env_kwargs are", "CartPole-v1", None, 1, huge)
    refused("Cannot read env_wrapper", "CartPole-v1", [huge])


def test_configurations_cannot_open_windows():
    env = environments.make("CartPole-v1", env_kwargs={"render_mode": "human"})
    assert env.render_mode is None
    env.close()


@pytest.mark.parametrize(
    ("env_id", "match"),
    [
        ("CartPol-v1", r"no environment CartPol-v1 \(do you mean CartPole-v1\?\)"),
        ("CartPole-v99", "no environment CartPole-v99"),
        ("MiniGrid-Empty-v0", "no environment MiniGrid-Empty-v0"),
        ("nowhere/Thing-v0", "no environment nowhere/Thing-v0"),
        ("LunarLander-v1", "LunarLander-v1"), ("best_model", "no environment best_model"),
        ("os:CartPole-v1", "cannot be the name"), ("../CartPole-v1", "cannot be the name"),
    ],
)
def test_unknown_environment_is_an_error(env_id, match):
    refused(match, env_id)


def test_names_do_not_import_modules(tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    refused("cannot be the name", "evil_module:CartPole-v1")
    assert not (tmp_path / "executed").exists()
    with pytest.raises(gym.error.Error):  # What Gymnasium itself makes of it.
        gym.make("evil_module:Nothing-v1")
    assert (tmp_path / "executed").exists()


def test_environment_that_is_not_installed_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in list(sys.modules):
        if name.startswith("gymnasium.envs.box2d"):
            monkeypatch.delitem(sys.modules, name)
    refused("LunarLander-v3 needs a package that is missing: .*box2d", "LunarLander-v2")
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(gym.registry, BREAKOUT, raising=False)
    refused("not installed: ale-py", BREAKOUT)
