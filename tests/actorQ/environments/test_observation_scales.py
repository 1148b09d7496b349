"""Tests `--scale_observations` where environments are made."""

import numpy as np
import pytest

from actorQ.environments import scales
from actorQ.environments import suites
from actorQ.environments import task_errors


def test_observations_are_scaled_by_the_tasks_bounds():
    with suites.make("gym,MountainCar-v0", 3, scale_observations=True) as environment:
        plain = suites.make("gym,MountainCar-v0", 3)
        assert plain.spec.observation_scale is None
        seen, native = [], []
        for _ in range(2):
            native.append(plain.reset().observation)
            seen.append(environment.reset().observation)
            for _ in range(150):
                native.append(plain.step(2).observation)
                seen.append(environment.step(2).observation)
        plain.close()
        scale = environment.spec.observation_scale
    native = np.array(native)
    # Position from -1.2 to 0.6, velocity from -0.07 to 0.07.
    expected = np.stack([(native[:, 0] + 0.3) / 0.9, native[:, 1] / 0.07], axis=1)
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    np.testing.assert_allclose(scale(native), expected, atol=1e-6)
    assert {observation.dtype for observation in seen} == {np.dtype(np.float32)}
    assert np.ptp(np.array(seen)[:, 1]) > 0.1


def test_observations_without_bounds_are_not_scaled():
    # Positions up to 4.8 and angles up to 0.419 have bounds, both velocities none.
    with suites.make("gym,CartPole-v1", 0, scale_observations=True) as environment:
        scale = environment.spec.observation_scale
    np.testing.assert_allclose(scale.scale, [1 / 4.8, 1, 1 / np.deg2rad(24), 1], rtol=1e-6)
    np.testing.assert_array_equal(scale.offset, np.zeros(4))


def test_observations_between_equal_bounds_are_centred():
    low, high = np.float32([[3, -1], [0, -np.inf]]), np.float32([[3, 3], [4, 1]])
    scale = scales.observation_scale(low, high)
    np.testing.assert_array_equal(scale.scale, [1, 0.5, 0.5, 1])
    np.testing.assert_array_equal(scale(np.float32([3, 3, 0, 7])), [0, 1, -1, 7])


@pytest.mark.parametrize("task", ["dm_control,cartpole_balance", "atari,Pong", "mujoco,Swimmer-v5"])
def test_observations_of_a_task_without_bounds_cannot_be_scaled(task):
    with pytest.raises(task_errors.TaskError, match="--scale_observations=1.*leave the flag out"):
        suites.make(task, 0, scale_observations=True)
