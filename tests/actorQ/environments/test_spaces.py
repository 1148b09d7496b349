"""Spaces of gymnasium as networks see them: vectors, images, bytes and numbered actions."""

import gymnasium
from gymnasium import spaces as gym_spaces
import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.environments import base
from actorQ.environments import gymnasium_adapter
from actorQ.environments import spaces
from actorQ.environments import suites
from actorQ.environments import task_errors


def byte_box(*shape, high=255):
    return gym_spaces.Box(0, high, shape, np.uint8)


class Task(gymnasium.Env):
    """A task with any spaces, which returns what it is given."""

    action_space = gym_spaces.Discrete(2)

    def __init__(self, observation_space, value):
        self.observation_space = observation_space
        self._value = value

    def reset(self, seed=None, options=None):
        return self._value, {}

    def step(self, action):
        return self._value, 1.0, False, False, {}


def seen(space, value):
    """Returns the first observation of a training, and the environment."""
    environment = gymnasium_adapter.GymnasiumEnvironment(
        Task(space, value), "gym,Task-v0", 0, base.Options(), None
    )
    environment.scale_bytes()
    return environment.reset().observation, environment


@pytest.mark.parametrize(
    ("shape", "expected", "words"),
    [
        ((84, 80), (84, 80, 1), "no axis of channels"),
        ((4, 84, 80), (84, 80, 4), "channels first"),
        ((1, 64, 64), (64, 64, 1), "channels first"),
        ((64, 64, 3), (64, 64, 3), None),
        ((210, 160, 1), (210, 160, 1), None),
    ],
)
def test_images_have_their_channels_last(shape, expected, words):
    value = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    observation, environment = seen(byte_box(*shape), value)
    assert environment.spec.observation_shape == observation.shape == expected
    assert environment.spec.observation_dtype == observation.dtype == np.uint8
    assert environment.spec.observation_scale is None
    turned = np.moveaxis(value, 0, -1) if words == "channels first" else value.reshape(expected)
    np.testing.assert_array_equal(observation, turned)
    notes = [note for note in environment.notes if "images" in note]
    assert [words in note for note in notes] == ([] if words is None else [True])
    value[...] = 0
    assert observation.any()  # It is a copy.


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (byte_box(128), np.full(128, 51, np.uint8), np.full(128, 0.2)),
        (byte_box(2, 3, high=10), np.full((2, 3), 5, np.uint8), np.full(6, 0.5)),
        (byte_box(7, 7, 3), np.full((7, 7, 3), 255, np.uint8), np.ones(147)),
        (
            gym_spaces.Dict({"a": byte_box(2), "b": gym_spaces.Box(-9, 9, (2,)),
                             "c": gym_spaces.Tuple([gym_spaces.Discrete(2), byte_box(1)])}),
            {"a": np.uint8([255, 0]), "b": np.float32([7, -7]), "c": (1, np.uint8([51]))},
            [1, 0, 7, -7, 0, 1, 0.2],
        ),
    ],
)
def test_bytes_that_are_no_image_are_scaled_in_training(space, value, expected):
    observation, environment = seen(space, value)
    np.testing.assert_allclose(observation, np.float32(expected), rtol=1e-6)
    assert observation.dtype == np.float32
    # A policy's file keeps the scale, and whoever plays the policy applies it.
    assert environment.spec.observation_scale is not None


def test_vectors_without_bytes_have_no_scale():
    observation, environment = seen(gym_spaces.Box(-9, 9, (2,)), np.float32([7, -7]))
    np.testing.assert_array_equal(observation, [7, -7])
    assert environment.spec.observation_scale is None


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            gym_spaces.Dict({"camera": byte_box(64, 64, 3), "arm": gym_spaces.Box(-1, 1, (3,))}),
            r"an image beside other observations \(camera\).*FilterObservation",
        ),
        (
            gym_spaces.Dict({"inner": gym_spaces.Dict({"eye": byte_box(64, 64)})}),
            r"\(inner.eye\)",
        ),
        (gym_spaces.Sequence(gym_spaces.Discrete(2)), "flatten to a vector .* wrap the task"),
    ],
)
def test_observations_that_no_network_takes_are_refused_with_the_remedy(space, words):
    with pytest.raises(task_errors.TaskError, match=words):
        spaces.Observations.of(space, "gym,Task-v0")


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (gym_spaces.MultiDiscrete([3, 2, 4]), 24),
        (gym_spaces.MultiDiscrete([[2, 2], [3, 1]]), 12),
        (gym_spaces.MultiBinary(5), 32),
        (gym_spaces.MultiBinary([2, 2]), 16),
    ],
)
def test_combinations_of_choices_are_numbered(space, count):
    actions = spaces.Actions.of(space, "gym,Task-v0", 1.0)
    assert actions.fields["num_actions"] == count
    natives = [actions.to_native(number) for number in range(count)]
    assert all(space.contains(native) for native in natives)
    assert len({native.tobytes() for native in natives}) == count
    np.testing.assert_array_equal(
        natives[-1].reshape(-1), np.array(actions.fields["action_combinations"]) - 1
    )
    assert f"one among {count} combinations" in actions.note


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (gym_spaces.MultiBinary(11), "2,048 combinations .* at most 1,024"),
        (gym_spaces.MultiDiscrete([3, 2], start=[1, 0]), "do not begin at 0"),
        (gym_spaces.Box(0, 9, (2,), np.int64), "floating-point Box .* wrap the task"),
        (gym_spaces.Dict({"a": gym_spaces.Discrete(2)}), "wrap the task"),
    ],
)
def test_actions_that_no_agent_takes_are_refused_with_the_remedy(space, words):
    with pytest.raises(task_errors.TaskError, match=words):
        spaces.Actions.of(space, "gym,Task-v0", 1.0)


@pytest.mark.parametrize(
    ("low", "high", "limit", "ends", "words"),
    [
        (-np.inf, np.inf, 1.0, (-1, 1), "[-1, 1]"),
        (-3.4e38, 3.4e38, 5.0, (-5, 5), "[-5, 5]"),
        (0, np.inf, 2.0, (0, 2), "[0, 2]"),
        (-3, np.inf, 1.0, (-3, 1), "[-3, 1]"),
        (-np.inf, -1, 4.0, (-4, -1), "[-4, -1]"),
        (-2, 2, 9.0, (-2, 2), None),
    ],
)
def test_actions_without_bounds_take_the_limit(low, high, limit, ends, words):
    actions = spaces.Actions.of(gym_spaces.Box(low, high, (1,)), "gym,Task-v0", limit)
    found = [actions.to_native(np.float32([end])).item() for end in (-1, 0, 1)]
    assert found == [ends[0], sum(ends) / 2, ends[1]]  # No part of the range is dead.
    assert actions.fields["action_low"] == ends[0] and actions.fields["action_high"] == ends[1]
    assert actions.note == (
        "" if words is None else
        f"1 of 1 numbers in an action lack bounds: they are taken from {words} (--action_limit)."
    )


def test_a_bound_beyond_the_limit_is_refused_with_the_remedy():
    with pytest.raises(task_errors.TaskError, match="from 5 to 1, .* larger --action_limit"):
        spaces.Actions.of(gym_spaces.Box(5, np.inf, (1,)), "gym,Task-v0", 1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("gravity:-5.0,enable_wind:True", {"gravity": -5.0, "enable_wind": True}),
        ("map:[1,2,{'a':(3,4)}], name: 8x8", {"map": [1, 2, {"a": (3, 4)}], "name": "8x8"}),
        ("path:'a,b:c'", {"path": "a,b:c"}),
    ],
)
def test_env_kwargs_are_python_literals_or_words(text, expected):
    assert suites.parse_env_kwargs(text) == expected


@pytest.mark.parametrize("text", ["gravity", "9:5", "a:1,b"])
def test_env_kwargs_of_another_form_are_refused(text):
    with pytest.raises(task_errors.TaskError, match="write name:value"):
        suites.parse_env_kwargs(text)


def test_env_kwargs_reach_the_task():
    task = "gym,LunarLander-v3"
    with suites.make(task, 0, env_kwargs="gravity:-5.0,enable_wind:True") as environment:
        raw = environment._raw.unwrapped
        assert (raw.gravity, raw.enable_wind) == (-5.0, True)
    with suites.make("dm_control,cheetah_run", 0, env_kwargs="time_limit:1") as environment:
        assert environment.step_limit == 100
    with pytest.raises(task_errors.TaskError, match="LunarLander-v3 cannot be built.*'nope'"):
        suites.make(task, 0, env_kwargs="nope:1")


@pytest.mark.parametrize(
    ("task", "asked", "steps", "words"),
    [
        ("gym,BipedalWalker-v3", 0, 1600, None),
        ("gym,BipedalWalker-v3", 1000, 1000, "before the task's own limit of 1,600"),
        ("gym,CartPole-v1", 0, 500, None),
        ("gym,CartPole-v1", 1000, 500, None),  # The default of earlier versions was "at most".
        ("dm_control,cheetah_run", 0, 1000, None),
        ("dm_control,cheetah_run", 10, 10, "cut after 10 steps"),
        ("dm_control,lqr_lqr_2_1", 0, 1000, "no time limit"),
    ],
)
def test_the_tasks_own_limit_holds_unless_a_shorter_one_is_asked_for(task, asked, steps, words):
    config = config_lib.RunConfig(taskstr=task, max_episode_steps=asked)
    with suites.make_for(config, 0) as environment:
        assert environment.step_limit == steps
        notes = [note for note in environment.notes if "steps" in note]
        assert [words in note for note in notes] == ([] if words is None else [True])


def test_longer_episodes_than_the_tasks_are_refused():
    config = config_lib.RunConfig(taskstr="gym,CartPole-v1", max_episode_steps=2000)
    with suites.make_for(config, 0) as environment:
        with pytest.raises(task_errors.TaskError, match="500 steps by itself.*leave the flag"):
            suites.require_limit(config, environment)
        suites.require_limit(config_lib.RunConfig(max_episode_steps=1000), environment)
