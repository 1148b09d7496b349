"""Actions, rewards and observations keep to their spaces."""

import numpy as np
import pytest

from actorQ.environments import scales
from actorQ.environments import spaces
from actorQ.environments import suites
from actorQ.environments import task_errors


def test_actions_are_clipped_and_scaled_to_native_bounds(user_module):
    # Native bounds: [0, 10], [-2, 4] and none.
    with suites.make(f"gym,{user_module}:Counter-terminated-v0", 0) as environment:
        np.testing.assert_array_equal(environment.spec.action_low, [0, -2, -1])
        np.testing.assert_array_equal(environment.spec.action_high, [10, 4, 1])
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

    space = gymnasium.spaces.Box(-0.1, 0.1, (1,), np.float64)
    actions = spaces.Actions.of(space, "a task", 1.0)
    assert all(space.contains(actions.to_native(np.float32([end]))) for end in (-1.0, 1.0))


@pytest.mark.parametrize(
    ("reward", "words"),
    [(None, "reward None, a NoneType"), ("much", "reward 'much', a str"),
     (np.ones(2), "a ndarray"), ("1.0", "a str")],
)
def test_reward_that_is_not_one_number_is_told(user_module, monkeypatch, reward, words):
    with suites.make(f"gym,{user_module}:Reused-v0", 0) as environment:
        environment.reset()
        result = environment._raw.step(5)
        monkeypatch.setattr(
            environment, "_raw_step", lambda action: (result[0], reward, *result[2:])
        )
        with pytest.raises(task_errors.TaskError, match=f"{words}.* must return one number"):
            environment.step(0)


@pytest.mark.parametrize("call", ["reset", "step", "constructor"])
def test_error_of_a_task_is_told_as_the_tasks_with_its_line(user_module, call):
    task = f"gym,{user_module}:Failing-v0"
    where = rf"ZeroDivisionError: division by zero \(.*{user_module}.py, line \d+\)"
    with pytest.raises(task_errors.TaskError, match=where) as caught:
        with suites.make(task, 0, env_kwargs=f"where:{call}") as environment:
            environment.reset()
            environment.step(0)
    assert task in str(caught.value)
    assert ("cannot be built" in str(caught.value)) == (call == "constructor")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


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
