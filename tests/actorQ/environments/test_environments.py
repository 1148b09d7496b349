"""Tasks of every suite are found, made and refused as they should be."""

import itertools
import sys

import dm_env
import numpy as np
import pytest

from actorQ.environments import suites
from actorQ.environments import task_errors
from tests.actorQ.environments.playing import run_python
from tests.actorQ.environments.playing import run_to_end
from tests.actorQ.environments.playing import some_action


@pytest.mark.parametrize(
    ("taskstr", "shape", "dtype", "num_actions", "action_size"),
    [
        ("dm_control,cheetah_run", (17,), np.float32, None, 6),
        ("dm_control,ball_in_cup_catch", (8,), np.float32, None, 2),
        ("CartPole-v1", (4,), np.float32, 2, None),
        ("gym,MountainCarContinuous-v0", (2,), np.float32, None, 1),
        ("gym,LunarLander-v3", (8,), np.float32, 4, None),
        ("gym,FrozenLake-v1", (16,), np.float32, 4, None),
        ("mujoco,HalfCheetah-v5", (17,), np.float32, None, 6),
        ("pybullet,HalfCheetahBulletEnv-v0", (26,), np.float32, None, 6),
        ("atari,Pong", (84, 84, 4), np.uint8, 6, None),
    ],
)
def test_make_each_suite_steps_as_its_spec_says(taskstr, shape, dtype, num_actions, action_size):
    with suites.make(taskstr, seed=3, max_episode_steps=12) as environment:
        spec = environment.spec
        assert spec.observation_shape == shape
        assert spec.observation_dtype == dtype
        assert spec.num_actions == num_actions
        assert spec.action_size == action_size
        assert spec.discrete == (num_actions is not None)
        assert environment.render_fps > 0
        first = environment.reset()
        assert first.first() and first.reward is None and first.discount is None
        observations = [first.observation]
        for index in range(20):
            action = some_action(environment, index)
            environment.action_spec().validate(np.asarray(action, environment.action_spec().dtype))
            timestep = environment.step(action)
            environment.observation_spec().validate(timestep.observation)
            assert np.all(np.isfinite(timestep.observation))
            if not timestep.first():
                assert type(timestep.reward) is float and type(timestep.discount) is float
            observations.append(timestep.observation)
        # Every observation is an array of its own.
        assert not any(
            np.shares_memory(one, other) for one, other in itertools.combinations(observations, 2)
        )


@pytest.mark.parametrize(
    "taskstr",
    [
        "dm_control,reacher_hard",
        "CartPole-v1",
        "gym,LunarLander-v3",
        "mujoco,Hopper-v5",
        "pybullet,HopperBulletEnv-v0",
        "atari,Breakout",
        "atari,ALE/Breakout-v5",
    ],
)
def test_make_same_seed_same_trajectory_across_resets_other_seed_differs(taskstr):
    def trajectory(seed):
        with suites.make(taskstr, seed, max_episode_steps=15) as environment:
            observations, rewards = [], []
            for _ in range(3):
                steps = run_to_end(environment)
                observations.extend(step.observation for step in steps)
                rewards.extend(step.reward for step in steps)
            return np.stack(observations), rewards

    first, first_rewards = trajectory(7)
    again, again_rewards = trajectory(7)
    np.testing.assert_array_equal(first, again)
    assert first_rewards == again_rewards
    other, _ = trajectory(8)
    assert first.shape != other.shape or np.any(first != other)
    # A later episode does not repeat the first one.
    with suites.make(taskstr, 7, max_episode_steps=15) as environment:
        starts = [run_to_end(environment)[-1].observation for _ in range(3)]
    assert any(starts[0].shape != start.shape or np.any(starts[0] != start) for start in starts[1:])


@pytest.mark.parametrize(
    ("taskstr", "expected"),
    [
        ("dm_control,cheetah_run", ("dm_control", "cheetah_run")),
        ("CartPole-v0", ("gym", "CartPole-v0")),
        (" atari , ALE/Pong-v5 ", ("atari", "ALE/Pong-v5")),
        ("gym,module.sub:Task-v0", ("gym", "module.sub:Task-v0")),
    ],
)
def test_parse_taskstr_legal(taskstr, expected):
    assert suites.parse_taskstr(taskstr) == expected


@pytest.mark.parametrize(
    ("taskstr", "fragments"),
    [
        ("atary,Pong", ["'atary'", "dm_control, gym, mujoco, pybullet, atari"]),
        ("gym,", ["names no task"]),
        ("", ["names no task"]),
        ("dm_control,cheetah_runn", ["cheetah_runn", "cheetah_run "]),
        ("gym,CartPole-v9", ["CartPole-v1", "gym,your_module"]),
        ("gym,Cart Pole", ["no gymnasium id"]),
        ("mujoco,CartPole-v1", ["no task 'CartPole-v1'", "write gym,CartPole-v1"]),
        ("gym,cheetah_run", ["write dm_control,cheetah_run"]),
        ("gym,ALE/Pong-v5", ["write atari,Pong"]),
        ("gym,BreakoutNoFrameskip-v4", ["write atari,Breakout"]),
        ("pybullet,Nope-v0", ["no task 'Nope-v0'"]),
        ("atari,Pong-v4", ["PongNoFrameskip-v4"]),
        ("atari,Pongg", ["nearest are Pong"]),
        ("gym,no_such_module:Task-v0", ["no_such_module", "ModuleNotFoundError"]),
    ],
)
def test_make_user_error_is_one_clear_line(taskstr, fragments):
    with pytest.raises(task_errors.TaskError) as caught:
        suites.make(taskstr, 0)
    message = str(caught.value)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


@pytest.mark.parametrize(("seed", "steps"), [(-1, 10), (0, -1)])
def test_make_numbers_out_of_range_are_refused(seed, steps):
    with pytest.raises(task_errors.TaskError, match="must be"):
        suites.make("CartPole-v1", seed, steps)


def test_make_multi_discrete_actions_are_numbered(user_module):
    with suites.make(f"gym,{user_module}:Many-v0", 0) as environment:
        assert environment.spec.num_actions == 6
        assert environment.notes[-1] == (
            "Its 2 choices in one action count as one among 6 combinations."
        )


@pytest.mark.parametrize("scale", [False, True])
def test_make_task_that_breaks_its_own_observation_space_is_told(user_module, scale):
    task = f"gym,{user_module}:Liar-v0"
    with suites.make(task, 0, scale_observations=scale) as environment:
        with pytest.raises(task_errors.TaskError, match=r"\(5,\).*\(7,\)"):
            environment.reset()


@pytest.mark.parametrize(
    ("task", "problem"),
    [("Unseeded", "takes no seed"), ("OldReset", "reset.. does not return"),
     ("OldStep", "step.. does not return")],
)
def test_task_with_the_api_before_gymnasiums_is_told(user_module, task, problem):
    with suites.make(f"gym,{user_module}:{task}-v0", 0) as environment:
        with pytest.raises(task_errors.TaskError, match=f"Gymnasium's API.*{problem}"):
            environment.reset()
            environment.step(np.zeros(3, np.float32))


def test_make_broken_users_module_gives_its_reason(tmp_path, monkeypatch):
    (tmp_path / "users_broken_task.py").write_text("raise RuntimeError('two\\nlines')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(task_errors.TaskError, match="RuntimeError: two lines"):
        suites.make("gym,users_broken_task:Task-v0", 0)


@pytest.mark.parametrize(
    ("taskstr", "module", "package"),
    [
        ("dm_control,cheetah_run", "dm_control", "pip install dm_control"),
        ("mujoco,HalfCheetah-v5", "mujoco", "gymnasium[mujoco]"),
        ("pybullet,AntBulletEnv-v0", "pybullet", "pip install pybullet_envs_gymnasium"),
        ("atari,Pong", "ale_py", "pip install ale-py"),
        ("gym,CartPole-v1", "gymnasium", "gymnasium[box2d,mujoco]"),
    ],
)
def test_make_missing_package_names_what_to_install(monkeypatch, taskstr, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(task_errors.TaskError) as caught:
        suites.make(taskstr, 0)
    assert package in str(caught.value)


@pytest.mark.parametrize(
    ("taskstr", "successor"),
    [
        ("gym,LunarLander-v2", "LunarLander-v3"),
        ("gym,Pendulum-v0", "Pendulum-v1"),
        ("mujoco,HalfCheetah-v3", "HalfCheetah-v4"),
        ("mujoco,Pusher-v2", "Pusher-v5"),
    ],
)
def test_make_outdated_id_loads_successor_and_says_so(taskstr, successor):
    with suites.make(taskstr, 0) as environment:
        assert environment._raw.spec.id == successor
        (told,) = [note for note in environment.notes if f"{successor} replaces it" in note]
    assert taskstr.partition(",")[2] in told


@pytest.mark.parametrize(
    ("suite", "present", "absent"),
    [
        ("dm_control", "ball_in_cup_catch", "cheetah"),
        ("gym", "LunarLander-v3", "HalfCheetah-v5"),
        ("mujoco", "HalfCheetah-v5", "HalfCheetah-v3"),
        ("pybullet", "HalfCheetahBulletEnv-v0", "CartPole-v1"),
        ("atari", "Pong", "PongNoFrameskip-v4"),
    ],
)
def test_list_tasks_names_the_suites_own(suite, present, absent):
    tasks = suites.list_tasks(suite)
    assert present in tasks
    assert absent not in tasks
    assert tasks == sorted(set(tasks))


def test_list_tasks_unknown_suite_is_refused():
    with pytest.raises(task_errors.TaskError, match="the suites are"):
        suites.list_tasks("atary")


def test_make_imports_lazily_and_prints_nothing():
    program = """
        import sys
        from actorQ.environments import suites
        heavy = {"dm_control", "mujoco", "gymnasium", "pybullet", "ale_py", "tensorflow", "jax",
                 "acme", "cv2", "OpenGL", "glfw"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        for task in ("dm_control,cartpole_balance", "pybullet,HopperBulletEnv-v0", "atari,Pong",
                     "mujoco,HalfCheetah-v5", "CartPole-v0"):
            environment = suites.make(task, 0)
            environment.reset()
            size = environment.spec.action_size
            environment.step(0 if environment.spec.discrete else [0.0] * size)
            environment.close()
        assert not {"OpenGL", "tensorflow", "jax", "acme"} & set(sys.modules)
    """
    # A rendering library that is not there must not matter to those who render nothing.
    result = run_python(program, MUJOCO_GL="osmesa")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    # Warnings of Python's own about third-party code are not ours to judge.
    for unwanted in ("DISPLAY", "GLFW", "pybullet build", "argv", "A.L.E", "out of date"):
        assert unwanted not in result.stderr


def test_step_before_reset_and_after_the_end_starts_an_episode():
    with suites.make("CartPole-v1", 0, max_episode_steps=2) as environment:
        kinds = [environment.step(0).step_type for _ in range(5)]
    first, mid, last = dm_env.StepType
    assert kinds == [first, mid, last, first, mid]
