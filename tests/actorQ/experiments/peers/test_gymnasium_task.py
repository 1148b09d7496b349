"""Our environments as Gymnasium's: spaces, ends of episodes, clipped rewards."""

import dm_env
from gymnasium import spaces
import numpy as np
import pytest

from actorQ.environments import base
from actorQ.environments import suites
from actorQ.experiments.peers import gymnasium_task


class Scripted:
    """An environment that gives the time steps that it is told."""

    spec = base.EnvironmentSpec((2,), np.dtype(np.float32), num_actions=3)

    def __init__(self, *timesteps):
        self._timesteps = list(timesteps)
        self.actions = []

    def reset(self):
        return dm_env.restart(np.zeros(2, np.float32))

    def step(self, action):
        self.actions.append(action)
        return self._timesteps.pop(0)


OBSERVATION = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("timestep", "expected"),
    [
        (dm_env.transition(0.5, OBSERVATION, 1.0), (0.5, False, False)),
        (dm_env.transition(0.5, OBSERVATION, 0.0), (0.5, False, False)),  # Not the last one.
        (dm_env.termination(0.5, OBSERVATION), (0.5, True, False)),
        (dm_env.truncation(0.5, OBSERVATION, 1.0), (0.5, False, True)),
        (dm_env.transition(7.0, OBSERVATION, 1.0), (1.0, False, False)),  # Clipped.
        (dm_env.transition(-7.0, OBSERVATION, 1.0), (-1.0, False, False)),
    ],
)
def test_step_end_and_reward(timestep, expected):
    environment = Scripted(timestep)
    task = gymnasium_task.GymnasiumTask(environment, 1.0)
    observation, info = task.reset(seed=3)
    assert observation.dtype == np.float32 and info == {}
    observation, *results, info = task.step(2)
    assert tuple(results) == expected and observation is OBSERVATION and info == {}
    assert environment.actions == [2]


@pytest.mark.parametrize(
    ("taskstr", "action_space"),
    [
        ("gym,CartPole-v0", spaces.Discrete(2)),
        ("dm_control,cartpole_balance", spaces.Box(-1.0, 1.0, (1,), np.float32)),
    ],
)
def test_spaces_hold_what_the_task_gives(taskstr, action_space):
    task = gymnasium_task.GymnasiumTask(suites.make(taskstr, 0, 5), float("inf"))
    assert task.action_space == action_space
    assert task.is_discrete == isinstance(action_space, spaces.Discrete)
    observation, _ = task.reset()
    for step in range(5):
        assert observation in task.observation_space
        observation, reward, terminated, truncated, _ = task.step(task.action_space.sample())
        assert isinstance(reward, float)
        assert (terminated, truncated) == (False, step == 4)
    task.close()
