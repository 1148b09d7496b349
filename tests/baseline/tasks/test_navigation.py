"""The navigation task: its rules, and that an observation tells no more than sensors see."""

import math
import time

import gymnasium as gym
from gymnasium.utils import env_checker
import numpy as np
import pytest
import yaml

from baseline.agents import finding
from baseline.tasks import environments
from baseline.tasks import navigation
from baseline.train import experiment
from baseline.train import training

FULL_AHEAD, STAND, TURN = 22, 2, 4


def world(start=(3.0, 10.0), heading=0.0, goal=(15.0, 10.0), pillars=()):
    return navigation.World(
        np.array([pillar[:2] for pillar in pillars], float).reshape(-1, 2),
        np.array([pillar[2] for pillar in pillars], float),
        np.array(start), heading, np.array(goal),
    )


def playing(**kwargs):
    environment = navigation.Navigation()
    observation, _ = environment.reset(seed=0, options={"world": world(**kwargs)})
    return environment, observation


def fly(environment, action, steps=200):
    """Returns what the last step gave, and all rewards."""
    rewards = []
    for _ in range(steps):
        result = environment.step(action)
        rewards.append(result[1])
        if result[2]:
            break
    return result, rewards


@pytest.fixture(name="rng")
def fixture_rng():
    return np.random.default_rng(0)


def test_gymnasiums_checker_finds_nothing():
    environments.register()
    env_checker.check_env(
        gym.make(navigation.ENV_ID, render_mode="rgb_array").unwrapped, skip_close_check=True
    )


def test_it_is_made_by_name_with_a_time_limit():
    made = environments.make(navigation.ENV_ID)
    made.reset(seed=0, options={"world": world()})
    for step in range(1, navigation.MAX_STEPS + 1):
        _, _, terminated, truncated, info = made.step(STAND)
        assert not terminated and truncated == (step == navigation.MAX_STEPS)
    assert info["is_success"] is False
    assert info["episode"]["l"] == navigation.MAX_STEPS
    made.close()


def test_straight_ahead_reaches_a_goal_ahead():
    environment, _ = playing()
    (_, _, terminated, truncated, info), rewards = fly(environment, FULL_AHEAD)
    assert terminated and not truncated and info["is_success"]
    # 12 m away, of which half a metre at the end need not be flown.
    came_closer = sum(rewards) - navigation.SUCCESS_REWARD + navigation.STEP_COST * len(rewards)
    assert 11.5 <= came_closer <= 12.0
    assert len(rewards) == pytest.approx(11.5 / (3.0 * navigation.STEP_S), abs=4)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"pillars": [(9.0, 10.0, 0.5)]},
        {"pillars": [(9.0, 10.0 + 0.5 + navigation.ROBOT_RADIUS - 0.01, 0.5)]},  # Grazed.
        {"goal": (15.0, 3.0)},  # A wall is ahead.
    ],
)
def test_a_collision_ends_the_episode_without_success(kwargs):
    environment, _ = playing(**kwargs)
    (observation, reward, terminated, _, info), _ = fly(environment, FULL_AHEAD)
    assert terminated and not info["is_success"]
    assert reward < navigation.COLLISION_REWARD + 1.0
    assert environment.observation_space.contains(observation)


def test_what_is_passed_at_a_hands_breadth_is_no_collision():
    beside = 10.0 + 0.5 + navigation.ROBOT_RADIUS + 0.01
    environment, _ = playing(pillars=[(9.0, beside, 0.5)])
    (_, _, _, _, info), _ = fly(environment, FULL_AHEAD)
    assert info["is_success"]


def test_thin_pillars_are_not_flown_through_between_two_steps():
    for x in np.arange(8.0, 9.0, 0.1):
        environment, _ = playing(pillars=[(x, 10.0, 0.001)])
        (_, _, terminated, _, info), _ = fly(environment, FULL_AHEAD)
        assert terminated and not info["is_success"]


def test_a_goal_beside_a_pillar_that_is_hit_is_no_success():
    environment, _ = playing(goal=(9.0, 10.0), pillars=[(9.2, 10.0, 0.3)])
    (_, _, terminated, _, info), _ = fly(environment, FULL_AHEAD)
    assert terminated and not info["is_success"]


def test_turning_turns_to_the_left_and_not_from_the_spot():
    environment, before = playing()
    for _ in range(8):
        after = environment.step(TURN)[0]
    assert after[0] == before[0]  # As far away as before.
    assert before[2] == 0.0 and after[2] < 0.0  # The goal is to the right now.
    assert after[4] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("action", range(25))
def test_actions_are_speeds_times_yaw_rates(action):
    environment, _ = playing()
    for _ in range(40):
        observation, _, terminated, _, _ = environment.step(action)
        if terminated:
            break
    fastest, quickest = navigation.SPEEDS[-1], navigation.YAW_RATES[-1]
    assert observation[3] == pytest.approx(navigation.SPEEDS[action // 5] / fastest, abs=0.01)
    assert observation[4] == pytest.approx(navigation.YAW_RATES[action % 5] / quickest, abs=0.01)


def test_ranges_are_seen_from_ahead_to_the_left():
    _, observation = playing(pillars=[(3.0, 12.0, 0.5)])  # To the left, 1.5 m to its surface.
    ranges = observation[5:] * navigation.REACH
    assert ranges[navigation.NUM_RANGES // 4] == pytest.approx(1.5)
    assert ranges[navigation.NUM_RANGES // 2] == pytest.approx(3.0)  # The wall behind.
    assert ranges[0] == navigation.REACH


def test_worlds_keep_gaps_that_a_robot_fits_through(rng):
    counts = []
    for _ in range(100):
        made = navigation.sample_world(rng)
        apart = np.linalg.norm(made.centres[:, None] - made.centres, axis=2)
        apart -= made.radii + made.radii[:, None]
        np.fill_diagonal(apart, np.inf)
        assert apart.min() >= navigation.GAP > 2 * navigation.ROBOT_RADIUS
        walls = np.minimum(made.centres, navigation.SIDE - made.centres).min(axis=1) - made.radii
        assert walls.min() >= navigation.GAP
        for point in (made.start, made.goal):
            clear = np.linalg.norm(made.centres - point, axis=1) - made.radii
            assert clear.min() >= navigation.CLEARANCE > navigation.ROBOT_RADIUS
            assert 0 < point.min() and point.max() < navigation.SIDE
        assert np.linalg.norm(made.start - made.goal) >= navigation.LEAST_WAY
        counts.append(len(made.radii))
    assert len(set(counts)) > 5 and max(counts) <= navigation.PILLARS[1]
    assert navigation.CLEARANCE >= navigation.GOAL_RADIUS + navigation.ROBOT_RADIUS


def episode(seed, actions):
    environment = navigation.Navigation()
    seen = [environment.reset(seed=seed)[0]]
    for action in actions:
        observation, reward, terminated, _, _ = environment.step(action)
        seen.append(np.append(observation, reward))
        if terminated:
            seen.append(environment.reset()[0])
    return np.concatenate(seen)


def test_a_seed_makes_the_same_episodes(rng):
    actions = rng.integers(0, 25, 150)
    np.testing.assert_array_equal(episode(3, actions), episode(3, actions))
    assert episode(4, actions).shape != episode(3, actions).shape or (
        episode(4, actions) != episode(3, actions)
    ).any()


def moved(made, angle, shift):
    """A world turned and shifted as a whole, walls left where they are."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])

    def move(points):
        return (points - 10.0) @ turn.T + 10.0 + shift

    return made._replace(
        centres=move(made.centres), start=move(made.start), goal=move(made.goal),
        heading=made.heading + angle,
    )


def test_observations_tell_nothing_of_where_in_the_arena_the_robot_is():
    made = world((9.0, 10.0), 0.3, (12.0, 11.0), [(10.0, 11.5, 0.4), (9.0, 8.5, 0.3)])
    seen = []
    for angle, shift in ((0.0, (0.0, 0.0)), (1.0, (1.0, -2.0)), (-2.5, (0.0, 1.5))):
        environment = navigation.Navigation()
        observations = [environment.reset(options={"world": moved(made, angle, shift)})[0]]
        observations += [environment.step(action)[0] for action in (12, 13, 6, 11)]
        seen.append(np.stack(observations))
    np.testing.assert_allclose(seen[1], seen[0], atol=1e-6)
    np.testing.assert_allclose(seen[2], seen[0], atol=1e-6)


def test_observations_tell_nothing_of_pillars_out_of_reach_or_hidden():
    near = [(6.0, 10.0, 0.8)]
    behind = [(7.8, 10.0, 0.5)]  # In the shadow of the first.
    far = [(16.0, 4.0, 1.0), (14.0, 17.0, 1.0)]
    observations = [playing(pillars=pillars)[1] for pillars in (near, near + behind + far)]
    np.testing.assert_array_equal(*observations)
    _, info = navigation.Navigation().reset(seed=0)
    assert set(info) == {"is_success"}


def test_an_observation_may_be_changed_by_who_gets_it():
    environment, observation = playing()
    observation[:] = 7.0
    assert environment.observation_space.contains(environment.step(STAND)[0])


def test_steps_without_an_episode_and_unknown_actions_are_refused():
    environment = navigation.Navigation()
    with pytest.raises(gym.error.ResetNeeded):
        environment.step(0)
    environment.reset(seed=0)
    for action in (-1, 25):
        with pytest.raises(ValueError, match="Actions are 0 to 24"):
            environment.step(action)
    with pytest.raises(ValueError, match="render_mode"):
        navigation.Navigation("ansi")


def test_pictures_show_pillars_goal_and_robot():
    environment = navigation.Navigation("rgb_array")
    environment.reset(
        options={"world": world(pillars=[(10.0, 15.0, 1.0)], goal=(15.0, 5.0))}
    )
    fly(environment, FULL_AHEAD, 8)
    picture = environment.render()
    assert picture.shape == (400, 400, 3) and picture.dtype == np.uint8

    def at(x, y):
        return tuple(picture[int(400 - 20 * y), int(20 * x)])

    ground = at(1.0, 1.0)
    assert at(10.0, 15.0) == tuple(navigation._PILLAR) != ground
    assert at(15.0, 5.0) == tuple(navigation._GOAL)
    assert at(*environment._position) == tuple(navigation._ROBOT)
    assert at(3.0, 10.0) == tuple(navigation._TRAIL)


def test_a_step_is_a_matter_of_microseconds(rng):
    environment = navigation.Navigation()
    environment.reset(seed=0)
    best = math.inf
    for _ in range(5):
        started = time.process_time()
        for _ in range(300):
            if environment.step(STAND)[2]:
                environment.reset()
        best = min(best, (time.process_time() - started) / 300)
    assert best < 300e-6  # 35 of them on an idle core; patience for busy ones.


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_it_has_tuned_hyper_parameters_of_the_papers_smallest_policy(algo):
    assert experiment.tuned_steps(algo, navigation.ENV_ID, {}) >= 1_000_000
    own = yaml.safe_load((experiment.HYPERPARAMS / f"{algo}.yml").read_text())[navigation.ENV_ID]
    assert "[64, 64, 64]" in own["policy_kwargs"]


@pytest.mark.parametrize(
    ("algo", "hyperparams", "hidden"),
    [
        (
            "ppo",
            {"n_envs": 2, "n_steps": 32, "batch_size": 64,
             "policy_kwargs": "dict(net_arch=dict(pi=[16, 8], vf=[4]))"},
            [16, 8],
        ),
        ("dqn", {"buffer_size": 200, "learning_starts": 40}, [64, 64, 64]),
    ],
)
def test_our_tools_train_it_and_load_what_was_trained(tmp_path, algo, hyperparams, hidden):
    path = training.train(training.TrainSettings(
        algo, navigation.ENV_ID, steps=128, folder=str(tmp_path), device="cpu", progress=False,
        hyperparams=hyperparams,
    ))
    agent = finding.load(algo, navigation.ENV_ID, tmp_path)
    assert agent.path == path and (agent.normalization is not None) == (algo == "ppo")
    outputs = [module.weight.shape[0] for _, module in agent.network.with_weights()]
    assert outputs == [*hidden, 25]
