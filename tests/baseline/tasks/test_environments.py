"""Environments are those that agents were trained in, and configurations cannot do more."""

import os
import sys

import gymnasium as gym
import numpy as np
import pytest

from actorQ.core import errors
from baseline.tasks import environments

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
        # Existing names stay as they are.
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
        ("MyEnv-v0", "Your own is found where QUARL_ENVIRONMENTS names the module"),
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
