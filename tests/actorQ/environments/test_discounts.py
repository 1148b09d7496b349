"""Discounts tell terminal states from time limits."""

import numpy as np
import pytest

from actorQ.environments import dm_control_suite
from actorQ.environments import suites
from tests.actorQ.environments.playing import run_to_end
from tests.actorQ.environments.playing import some_action


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
