"""Tests `actorQ.environments` with real tasks of every suite."""

import itertools
import os
import pathlib
import subprocess
import sys
import textwrap

import dm_env
import numpy as np
import pytest

from actorQ.environments import dm_control_suite
from actorQ.environments import gymnasium_suites
from actorQ.environments import mujoco_gl
from actorQ.environments import scales
from actorQ.environments import suites
from actorQ.environments import task_errors

ROOT = pathlib.Path(__file__).parents[3]

USER_MODULE = """
    import gymnasium
    import numpy as np


    class Counter(gymnasium.Env):
        action_space = gymnasium.spaces.Box(
            np.float32([0, -2, -np.inf]), np.float32([10, 4, np.inf])
        )
        observation_space = gymnasium.spaces.Dict(
            {
                "a_count": gymnasium.spaces.Discrete(3),
                "b_action": gymnasium.spaces.Box(-99, 99, (3,)),
            }
        )

        def __init__(self, end="terminated"):
            self.end = end

        def _observe(self, action):
            return {"a_count": min(self.count, 2), "b_action": np.float32(action)}

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.count = 0
            return self._observe([0, 0, 0]), {}

        def step(self, action):
            self.count += 1
            over = self.count == 3
            terminated = over and self.end in ("terminated", "both")
            return self._observe(action), 1, terminated, over and self.end != "terminated", {}


    class Many(Counter):
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])


    class Reused(Counter):
        # Returns one and the same array at every step, and numbers its actions from 5.
        action_space = gymnasium.spaces.Discrete(2, start=5)
        observation_space = gymnasium.spaces.Box(-9, 9, (4,))
        shared = np.zeros(4, np.float32)

        def _observe(self, action):
            self.shared[...] = action if np.ndim(action) == 0 else 0
            return self.shared


    class Square(Reused):
        observation_space = gymnasium.spaces.Box(-9, 9, (2, 2))
        shared = np.zeros((2, 2), np.float32)


    class Broken(Reused):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, np.nan if self.count == 2 else 1.0, *rest


    class Unseeded(Counter):
        def reset(self):
            return super().reset()


    class OldReset(Counter):
        def reset(self, seed=None, options=None):
            return super().reset(seed=seed)[0]


    class OldStep(Counter):
        def step(self, action):
            return super().step(action)[:4]


    class Liar(Counter):
        observation_space = gymnasium.spaces.Box(-9, 9, (7,))

        def _observe(self, action):
            return np.zeros(5, np.float32)


    class Wrapped(gymnasium.Wrapper):
        def __init__(self, render_mode=None):
            super().__init__(gymnasium.make("MountainCar-v0", render_mode=render_mode))


    class WrappedUnseen(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(gymnasium.make("MountainCar-v0"))


    gymnasium.register("Wrapped-v0", entry_point=Wrapped, max_episode_steps=500)
    gymnasium.register("WrappedUnseen-v0", entry_point=WrappedUnseen)
    for end in ("terminated", "truncated", "both"):
        gymnasium.register(f"Counter-{end}-v0", entry_point=Counter, kwargs={"end": end})
    gymnasium.register("Many-v0", entry_point=Many)
    gymnasium.register("Reused-v0", entry_point=Reused)
    gymnasium.register("Square-v0", entry_point=Square)
    gymnasium.register("Liar-v0", entry_point=Liar)
    gymnasium.register("Broken-v0", entry_point=Broken)
    gymnasium.register("Unseeded-v0", entry_point=Unseeded)
    gymnasium.register("OldReset-v0", entry_point=OldReset)
    gymnasium.register("OldStep-v0", entry_point=OldStep)
"""


@pytest.fixture(scope="session")
def user_module(tmp_path_factory):
    """Puts a module that registers tasks of a user's own on the path, and names it."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "users_own_tasks.py").write_text(textwrap.dedent(USER_MODULE))
    sys.path.insert(0, str(folder))
    yield "users_own_tasks"
    sys.path.remove(str(folder))


def run_python(program, **variables):
    """Runs a program in a process of its own without a display; returns its result."""
    for name, value in os.environ.items():
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
            variables.setdefault(name, value)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=variables,
        timeout=120,
    )


def some_action(environment, index):
    """Returns the index-th of a fixed sequence of varied actions."""
    if environment.spec.discrete:
        return index % environment.spec.num_actions
    return np.sin(index + np.arange(environment.spec.action_size)).astype(np.float32)


def run_to_end(environment, action=None):
    """Plays one episode and returns its time steps, the first one included."""
    steps = [environment.reset()]
    for index in itertools.count():
        steps.append(
            environment.step(some_action(environment, index) if action is None else action)
        )
        if steps[-1].last():
            return steps


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


def test_discount_cartpole_falling_is_a_termination():
    with suites.make("CartPole-v1", 0) as environment:
        steps = run_to_end(environment, action=0)
    assert len(steps) < 30
    assert steps[-1].discount == 0.0
    assert all(step.discount == 1.0 and step.reward == 1.0 for step in steps[1:-1])


def test_discount_pendulum_time_limit_is_no_termination():
    with suites.make("gym,Pendulum-v1", 0) as environment:
        steps = run_to_end(environment)
    assert len(steps) - 1 == 200
    assert steps[-1].discount == 1.0


@pytest.mark.parametrize(
    ("taskstr", "bounds", "steps"),
    [
        ("dm_control,cartpole_balance", (0.0, 1.0), 1000),
        ("dm_control,lqr_lqr_2_1", None, 1000),  # Its rewards are quadratic costs.
        ("gym,Pendulum-v1", None, 200),
    ],
)
def test_a_task_knows_what_bounds_its_returns(taskstr, bounds, steps):
    with suites.make(taskstr, 0) as environment:
        assert environment.spec.reward_bounds == bounds
        assert environment.step_limit == steps
        environment.reset()
        action = np.ones(environment.spec.action_size, np.float32)
        rewards = [environment.step(action).reward for _ in range(20)]
        assert bounds is None or (min(rewards) >= bounds[0] and max(rewards) <= bounds[1])


@pytest.mark.parametrize("taskstr", ["dm_control,cartpole_balance", "gym,Pendulum-v1"])
def test_discount_max_episode_steps_cuts_with_discount_one(taskstr):
    with suites.make(taskstr, 0, max_episode_steps=9) as environment:
        steps = run_to_end(environment)
        assert len(steps) - 1 == 9
        assert steps[-1].discount == 1.0
        assert environment.step(some_action(environment, 0)).first()


def test_discount_dm_control_own_time_limit_is_no_termination():
    with suites.make("dm_control,cheetah_run", 0, max_episode_steps=5000) as environment:
        steps = run_to_end(environment)
    assert len(steps) - 1 == 1000
    assert steps[-1].discount == 1.0


def test_discount_dm_control_termination_passes_its_zero_on():
    with suites.make("dm_control,lqr_lqr_2_1", 0) as environment:
        environment.reset()
        # lqr is the suite's only domain that ends early: when its state comes to rest at zero.
        physics = environment._raw.physics
        with physics.reset_context():
            physics.data.qpos[:] = 0.0
            physics.data.qvel[:] = 0.0
        timestep = environment.step(np.zeros(1, np.float32))
    assert timestep.last()
    assert timestep.discount == 0.0


def test_discount_dm_control_simulation_that_diverges_is_a_termination(monkeypatch):
    from dm_control.rl import control

    def diverge(*_):
        raise control.PhysicsError("Warning(s) raised: mjWARN_BADQACC")

    lines = []
    monkeypatch.setattr(
        dm_control_suite.logging, "log_first_n",
        lambda level, text, most, *values: lines.append((most, text % values)),
    )
    action = np.zeros(1, np.float32)
    with suites.make("dm_control,cartpole_balance", 0) as environment:
        environment.reset()
        before = environment.step(action)
        with monkeypatch.context() as patch:
            patch.setattr(environment._raw.physics, "step", diverge)
            last = environment.step(action)
        assert last.last() and (last.reward, last.discount) == (0.0, 0.0)
        np.testing.assert_array_equal(last.observation, before.observation)
        assert last.observation is not before.observation
        assert environment.step(action).first() and environment.step(action).mid()
    ((most, line),) = lines
    assert most == 1 and "mjWARN_BADQACC" in line


def test_discount_cartpole_v0_stops_at_200_steps():
    with suites.make("CartPole-v0", 1) as environment:
        timestep = environment.reset()
        count = 0
        while not timestep.last():
            # Pushing towards where the pole falls balances it for far longer than 200 steps.
            position, speed, angle, turn = timestep.observation
            push = 0.1 * position + 0.3 * speed + 3 * angle + turn > 0
            timestep = environment.step(int(push))
            count += 1
    assert count == 200
    assert timestep.discount == 1.0


@pytest.mark.parametrize(
    ("end", "discount"), [("terminated", 0.0), ("truncated", 1.0), ("both", 0.0)]
)
def test_discount_users_task_terminated_wins_over_truncated(user_module, end, discount):
    with suites.make(f"gym,{user_module}:Counter-{end}-v0", 0) as environment:
        steps = run_to_end(environment, action=np.zeros(3, np.float32))
    assert len(steps) - 1 == 3
    assert [step.discount for step in steps] == [None, 1.0, 1.0, discount]
    assert steps[-1].reward == 1.0


def test_actions_are_clipped_and_scaled_to_native_bounds(user_module):
    # Native bounds: [0, 10], [-2, 4] and none.
    with suites.make(f"gym,{user_module}:Counter-terminated-v0", 0) as environment:
        np.testing.assert_array_equal(environment.spec.action_low, [0, -2, -np.inf])
        np.testing.assert_array_equal(environment.spec.action_high, [10, 4, np.inf])
        environment.reset()
        # Observation: one-hot of the count, then the action as the task received it.
        first = environment.step(np.float32([-1, 1, -0.25])).observation
        np.testing.assert_allclose(first, [0, 1, 0, 0, 4, -0.25])
        second = environment.step(np.float32([0.5, -7, 3])).observation
        np.testing.assert_allclose(second, [0, 0, 1, 7.5, -2, 1])


def test_actions_dm_control_lqr_without_bounds_is_not_scaled():
    with suites.make("dm_control,lqr_lqr_2_1", 0) as environment:
        np.testing.assert_array_equal(environment._to_native([0.5]), np.float32([0.5]))
        np.testing.assert_array_equal(environment._to_native([3.0]), np.float32([1.0]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_actions_never_leave_native_bounds_by_rounding(dtype):
    generator = np.random.default_rng(0)
    low = generator.uniform(-3, 1, 2000).astype(dtype)
    high = low + generator.uniform(0.1, 5, 2000).astype(dtype)
    to_native = scales.continuous_action_map(low, high, (2000,), np.dtype(dtype))
    for end, bound in ((-1.0, low), (1.0, high)):
        native = to_native(np.full(2000, end, np.float32))
        assert native.dtype == dtype
        assert np.all((native >= low) & (native <= high))
        np.testing.assert_allclose(native, bound, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(5.0, np.inf), (1.0, np.inf), (-np.inf, -5.0)])
def test_actions_with_one_bound_that_leaves_no_room_are_refused(low, high):
    with pytest.raises(task_errors.TaskError, match=f"dimension 1 .* from {low:g} to {high:g}"):
        scales.continuous_action_map([0, low], [9, high], (2,), np.dtype(np.float32))


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [(0.5, np.inf, [0.5, 1]), (-5.0, np.inf, [-1, 1]), (-np.inf, 0.0, [-1, 0]), (2.0, 2.0, [2, 2])],
)
def test_actions_with_one_bound_or_two_equal_ones_stay_within(low, high, ends):
    to_native = scales.continuous_action_map([low], [high], (1,), np.dtype(np.float32))
    assert [float(to_native([end])[0]) for end in (-1, 1)] == ends


def test_actions_stay_in_the_space_of_a_task_with_double_bounds():
    import gymnasium

    from actorQ.environments import gymnasium_adapter

    space = gymnasium.spaces.Box(-0.1, 0.1, (1,), np.float64)
    to_native, _ = gymnasium_adapter._action_map(space, "a task")
    assert all(space.contains(to_native(np.float32([end]))) for end in (-1.0, 1.0))


def test_reward_that_is_no_number_is_told(user_module):
    with suites.make(f"gym,{user_module}:Broken-v0", 0) as environment:
        environment.reset()
        assert environment.step(0).reward == 1.0
        with pytest.raises(task_errors.TaskError, match="a reward of nan in step 2"):
            environment.step(0)


def test_actions_wrong_shape_is_refused():
    with suites.make("dm_control,cheetah_run", 0) as environment:
        environment.reset()
        with pytest.raises(ValueError, match=r"shape \(1,\).*\(6,\)"):
            environment.step(np.zeros(1, np.float32))


@pytest.mark.parametrize("task", ["Reused-v0", "Square-v0"])
def test_observations_of_a_task_that_reuses_its_array_are_copies(user_module, task):
    with suites.make(f"gym,{user_module}:{task}", 0) as environment:
        assert (environment.spec.num_actions, environment.spec.action_start) == (2, 5)
        first = environment.reset().observation
        second = environment.step(1).observation
    np.testing.assert_array_equal(first, np.zeros(4))
    # The second discrete action of a space that starts at 5 is 6.
    np.testing.assert_array_equal(second, np.full(4, 6))


def test_observation_dm_control_joins_entries_in_the_suites_order():
    from dm_control import suite

    raw = suite.load("humanoid", "run", task_kwargs={"random": 4})
    entries = raw.reset().observation
    expected = np.concatenate([np.ravel(np.float32(entry)) for entry in entries.values()])
    assert any(np.ndim(entry) == 0 for entry in entries.values())
    with suites.make("dm_control,humanoid_run", 4) as environment:
        np.testing.assert_array_equal(environment.reset().observation, expected)


def test_atari_matches_gymnasiums_wrappers():
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    reference = gymnasium.wrappers.FrameStackObservation(
        gymnasium.wrappers.AtariPreprocessing(gymnasium.make("PongNoFrameskip-v4")), 4
    )
    with suites.make("atari,Pong", 5) as environment:
        expected, _ = reference.reset(seed=5)
        timestep = environment.reset()
        for index in range(60):
            np.testing.assert_array_equal(timestep.observation, np.moveaxis(expected, 0, -1))
            expected, reward, *_ = reference.step(index // 10 % 6)
            timestep = environment.step(index // 10 % 6)
            assert timestep.reward == reward
    reference.close()


def test_atari_lost_life_ends_nothing():
    with suites.make("atari,BreakoutNoFrameskip-v4", 0) as environment:
        environment.reset()
        lives = environment._raw.ale.lives()
        for _ in range(300):
            timestep = environment.step(1)
            if environment._raw.ale.lives() < lives:
                break
        assert environment._raw.ale.lives() == lives - 1
        assert timestep.mid() and timestep.discount == 1.0


def test_atari_own_limit_is_half_an_hour():
    with suites.make("atari,Pong", 0, max_episode_steps=10**6) as environment:
        assert environment._step_limit == 27_000
    with suites.make("atari,Pong", 0) as environment:
        assert environment._step_limit == 1000


def test_atari_ids_set_sticky_actions():
    for task, probability in (("Pong", 0.0), ("PongNoFrameskip-v4", 0.0), ("ALE/Pong-v5", 0.25)):
        with suites.make(f"atari,{task}", 0) as environment:
            ale = environment._raw.ale
            assert ale.getFloat("repeat_action_probability") == probability


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
        ("mujoco,CartPole-v1", ["no task 'CartPole-v1'"]),
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


@pytest.mark.parametrize(("seed", "steps"), [(-1, 10), (0, 0)])
def test_make_numbers_out_of_range_are_refused(seed, steps):
    with pytest.raises(task_errors.TaskError, match="must be"):
        suites.make("CartPole-v1", seed, steps)


def test_make_multi_discrete_actions_are_refused(user_module):
    with pytest.raises(task_errors.TaskError, match="MultiDiscrete.*Discrete and floating-point"):
        suites.make(f"gym,{user_module}:Many-v0", 0)


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
def test_make_outdated_id_loads_successor_and_says_so_once(monkeypatch, taskstr, successor):
    lines = []
    monkeypatch.setattr(gymnasium_suites, "_announced", set())
    monkeypatch.setattr(
        gymnasium_suites.logging, "info", lambda text, *values: lines.append(text % values)
    )
    for _ in range(2):
        with suites.make(taskstr, 0) as environment:
            assert environment._raw.spec.id == successor
    told = [line for line in lines if f"{successor} replaces it" in line]
    assert len(told) == 1
    assert taskstr.partition(",")[2] in told[0]


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
