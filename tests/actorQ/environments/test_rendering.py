"""Tasks are drawn, or say why they are not."""

import os

import numpy as np
import pytest

from actorQ.environments import mujoco_gl
from actorQ.environments import suites
from actorQ.environments import task_errors
from tests.actorQ.environments.playing import run_python
from tests.actorQ.environments.playing import some_action


@pytest.mark.parametrize(
    "taskstr",
    [
        "dm_control,cartpole_balance",
        "CartPole-v1",
        "gym,LunarLander-v3",
        "mujoco,Hopper-v5",
        "pybullet,HopperBulletEnv-v0",
        "atari,Pong",
    ],
)
def test_render_gives_pictures_that_change(taskstr):
    if taskstr.startswith(("dm_control", "mujoco")):
        try:
            mujoco_gl.choose_backend()
        except task_errors.TaskError as error:
            pytest.skip(f"no OpenGL library on this machine: {error}")
    with suites.make(taskstr, 0) as environment:
        environment.reset()
        before = environment.render()
        assert before.dtype == np.uint8 and before.ndim == 3 and before.shape[2] == 3
        assert before.std() > 1  # Not a blank picture.
        kept = before.copy()
        for index in range(10):
            environment.step(some_action(environment, index))
        assert np.any(environment.render() != kept)
        np.testing.assert_array_equal(before, kept)


def test_render_without_gl_names_the_packages(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(mujoco_gl, "_loads", lambda library: False)
    with suites.make("dm_control,cartpole_balance", 0) as environment:
        environment.reset()
        with pytest.raises(task_errors.TaskError, match="libegl1.*libosmesa6"):
            environment.render()


@pytest.mark.parametrize(
    ("platform", "variable", "shown"),
    [("linux", "", False), ("linux", "DISPLAY", True), ("linux", "WAYLAND_DISPLAY", True),
     ("darwin", "", True)],
)
def test_render_a_display_is_told_by_variables_on_linux_alone(
    monkeypatch, platform, variable, shown
):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, ":0")
    monkeypatch.setattr(mujoco_gl.sys, "platform", platform)
    monkeypatch.setattr(mujoco_gl, "_loads", lambda library: False)
    assert mujoco_gl.has_display() == shown
    if shown:
        assert mujoco_gl.choose_backend() == "glfw" == os.environ.pop("MUJOCO_GL")


def test_render_mujoco_gl_switched_off_is_told(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "off")
    with suites.make("dm_control,cartpole_balance", 0) as environment:
        environment.reset()
        with pytest.raises(task_errors.TaskError, match="MUJOCO_GL=off.*unset it"):
            environment.render()
    assert os.environ["MUJOCO_GL"] == "off"


@pytest.mark.parametrize("taskstr", ["dm_control,cartpole_balance", "mujoco,Hopper-v5"])
def test_render_without_close_ends_quietly(taskstr):
    try:
        mujoco_gl.choose_backend()
    except task_errors.TaskError as error:
        pytest.skip(f"no OpenGL library on this machine: {error}")
    program = f"""
        from actorQ.environments import suites
        environment = suites.make({taskstr!r}, 0)
        environment.reset()
        environment.render()
    """
    result = run_python(program)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_task_that_is_a_wrapper_can_be_made_and_drawn_if_it_takes_a_render_mode(user_module):
    with suites.make(f"gym,{user_module}:Wrapped-v0", 0) as environment:
        environment.reset()
        assert environment.render().dtype == np.uint8
    with suites.make(f"gym,{user_module}:WrappedUnseen-v0", 0) as environment:
        assert environment.reset().observation.shape == (2,)


def test_render_task_that_cannot_draw_is_told(user_module):
    with suites.make(f"gym,{user_module}:Reused-v0", 0) as environment:
        environment.reset()
        with pytest.raises(task_errors.TaskError, match="no render mode"):
            environment.render()
