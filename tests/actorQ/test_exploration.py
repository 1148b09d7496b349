"""Tests `actorQ.d4pg.exploration`, `actorQ.dqn.exploration` and the choice between them."""

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.d4pg import exploration as d4pg
from actorQ.dqn import exploration as dqn
from actorQ.environments import base
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib

DISCRETE = base.EnvironmentSpec((4,), np.dtype(np.float32), num_actions=3)
CONTINUOUS = base.EnvironmentSpec(
    (4,), np.dtype(np.float32), None, np.full(2, -1, np.float32), np.full(2, 1, np.float32)
)


@pytest.mark.parametrize(
    ("n_actors", "expected"),
    [(1, [0.6]), (2, [0.0, 0.6]), (4, [0.0, 0.2, 0.4, 0.6]),
     (7, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])],
)
def test_d4pg_exploration_scale_rises_evenly_from_zero(n_actors, expected):
    config = config_lib.RunConfig(n_actors=n_actors, sigma=0.6)
    scales = [d4pg.exploration_scale(config, actor) for actor in range(1, n_actors + 1)]
    assert scales == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_actors", "expected"), [(1, [0.4]), (2, [0.2, 0.4]), (4, [0.1, 0.2, 0.3, 0.4])]
)
def test_dqn_exploration_scale_rises_evenly_and_is_never_zero(n_actors, expected):
    config = config_lib.RunConfig(n_actors=n_actors, epsilon_max=0.4)
    scales = [dqn.exploration_scale(config, actor) for actor in range(1, n_actors + 1)]
    assert scales == pytest.approx(expected)


def test_make_exploration_takes_the_actors_own_scale():
    config = config_lib.RunConfig(n_actors=3, sigma=0.6, epsilon_max=0.3, actor_id=1)
    rng = np.random.default_rng(0)
    assert d4pg.make_exploration(config, 2, rng).scale == pytest.approx(0.3)
    assert dqn.make_exploration(config, 2, rng).scale == pytest.approx(0.2)


def noises(exponent, episodes=200, steps=1000):
    """Returns the noise of whole episodes, [episodes, steps, 2]."""
    explore = d4pg.GaussianExploration(0.1, np.random.default_rng(0), exponent)
    found = np.empty((episodes, steps, 2))
    for episode in found:
        explore.begin()
        for step in range(steps):
            episode[step] = explore(np.zeros(2, np.float32))
    return found / 0.1


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_d4pg_noise_is_standard_normal_with_the_spectrum_that_is_asked_for(exponent):
    noise = noises(exponent)
    assert noise.std() == pytest.approx(1.0, rel=0.02)
    assert abs(np.mean(noise)) < 0.01
    power = np.mean(np.abs(np.fft.rfft(noise, axis=1)[:, 1:-1]) ** 2, axis=(0, 2))
    slope = np.polyfit(np.log(np.arange(1, len(power) + 1)), np.log(power), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.05)
    both = np.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())
    assert abs(both[0, 1]) < 0.05  # Dimensions are independent.


def test_d4pg_noise_that_lasts_goes_on_in_long_episodes_and_starts_anew_with_each():
    explore = d4pg.GaussianExploration(0.1, np.random.default_rng(0), 1.0)
    first = [explore(np.zeros(1, np.float32)) for _ in range(1500)]
    assert np.std(first[1000:]) > 0.03
    explore.begin()
    assert explore(np.zeros(1, np.float32)) != first[0]


@pytest.mark.parametrize(
    ("taskstr", "given", "expected"),
    [
        ("gym,CartPole-v1", 2.5, 2.5),
        ("gym,CartPole-v1", "auto", np.inf),  # The learner finds the scale.
        ("atari,Pong", "auto", 1.0),
        ("atari,Pong", 7.0, 7.0),
    ],
)
def test_dqn_reward_limit_follows_from_the_flags_alone(taskstr, given, expected):
    config = config_lib.RunConfig(taskstr=taskstr, max_abs_reward=given)
    assert dqn.reward_limit(config) == expected


def test_gaussian_exploration_noise_has_the_asked_for_statistics():
    explore = d4pg.GaussianExploration(0.1, np.random.default_rng(0))
    output = np.array([0.3, -0.2], np.float32)
    noise = np.stack([explore(output) - output for _ in range(20_000)])
    # These are 4 standard errors: 0.1 / sqrt(20,000) = 0.0007 for the mean, 0.0005 for the
    # deviation.
    assert noise.mean(axis=0) == pytest.approx([0, 0], abs=0.003)
    assert noise.std(axis=0) == pytest.approx([0.1, 0.1], abs=0.002)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03  # Every dimension has its own noise.
    within = np.mean(np.abs(noise) < 0.1)
    assert within == pytest.approx(0.6827, abs=0.01)


def test_gaussian_exploration_equal_generators_give_equal_actions():
    output = np.zeros(3, np.float32)
    first, second = (d4pg.GaussianExploration(0.5, np.random.default_rng(7)) for _ in range(2))
    for _ in range(5):
        np.testing.assert_array_equal(first(output), second(output))


def test_gaussian_exploration_actions_are_clipped():
    explore = d4pg.GaussianExploration(1.0, np.random.default_rng(0))
    output = np.array([0.95, -0.95], np.float32)
    actions = np.stack([explore(output) for _ in range(500)])
    assert actions.dtype == np.float32
    assert actions.min() == -1.0
    assert actions.max() == 1.0
    # An action is above 1 with probability P(z > 0.05) = 0.48.
    assert np.mean(actions[:, 0] == 1.0) == pytest.approx(0.48, abs=0.1)
    assert output.tolist() == pytest.approx([0.95, -0.95])


def test_gaussian_exploration_without_scale_is_the_policy():
    output = np.array([0.3, -0.2], np.float32)
    explore = d4pg.GaussianExploration(0.0, np.random.default_rng(0))
    np.testing.assert_array_equal(explore(output), output)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_greedy_actions_have_the_asked_for_frequencies(epsilon):
    explore = dqn.EpsilonGreedy(epsilon, np.random.default_rng(1))
    values = np.array([0.0, -1.0, 5.0, 2.0], np.float32)
    actions = [explore(values) for _ in range(10_000)]
    assert {type(action) for action in actions} == {int}
    frequencies = np.bincount(actions, minlength=4) / 10_000
    expected = np.full(4, epsilon / 4)
    expected[2] += 1 - epsilon
    assert frequencies == pytest.approx(expected, abs=0.02)


def _lengths(actions, greedy):
    """Returns how often each action other than the greedy one was repeated in a row."""
    ends = np.flatnonzero(np.diff(actions)) + 1
    return np.array([len(run) for run in np.split(actions, ends) if run[0] != greedy])


def test_epsilon_greedy_repeats_random_actions_as_the_zeta_distribution_says():
    explore = dqn.EpsilonGreedy(0.02, np.random.default_rng(1), 2.5)
    # Among so many actions a random one is hardly ever the greedy one, or the one before.
    values = np.zeros(1000, np.float32)
    explore.begin()
    lengths = _lengths([explore(values) for _ in range(200_000)], greedy=0)
    assert len(lengths) > 3000
    numbers = np.arange(1, 5)
    expected = numbers**-2.5 / 1.341487257  # Riemann's zeta(2.5).
    shares = np.array([np.mean(lengths == number) for number in numbers])
    assert shares == pytest.approx(expected, abs=0.03)
    assert lengths.max() > 20


def test_epsilon_greedy_repeats_nothing_into_the_next_episode():
    # With this exponent an action lasts nearly for ever.
    explore = dqn.EpsilonGreedy(1.0, np.random.default_rng(0), 1.01)
    values = np.zeros(10**6, np.float32)
    first = [explore(values) for _ in range(50)]
    explore.begin()
    second = [explore(values) for _ in range(50)]
    assert first[-10:] == first[-1:] * 10
    assert second[-1] not in first


def test_make_exploration_takes_the_exponent():
    rng = np.random.default_rng(0)
    once, lasting = (
        dqn.make_exploration(config_lib.RunConfig(epsilon_max=1.0, epsilon_zeta=zeta), 1, rng)
        for zeta in (0.0, 1.5)
    )
    values = np.zeros(10**6, np.float32)
    assert len({once(values) for _ in range(100)}) == 100
    assert len({lasting(values) for _ in range(100)}) < 90


def test_greedy_is_the_policy_or_the_best_action():
    output = np.array([0.3, -0.2, 0.25], np.float32)
    np.testing.assert_array_equal(d4pg.greedy(output), output)
    assert dqn.greedy(output) == 0
    assert type(dqn.greedy(output)) is int


@pytest.mark.parametrize(
    ("algorithm", "spec", "expected"),
    [("auto", DISCRETE, "dqn"), ("auto", CONTINUOUS, "d4pg"), ("dqn", DISCRETE, "dqn"),
     ("d4pg", CONTINUOUS, "d4pg")],
)
def test_resolve_algorithm_that_fits_is_taken(algorithm, spec, expected):
    assert algorithms.resolve(config_lib.RunConfig(algorithm=algorithm), spec) == expected


@pytest.mark.parametrize(
    ("algorithm", "spec", "message"),
    [("d4pg", DISCRETE, "discrete: use dqn"), ("dqn", CONTINUOUS, "continuous: use d4pg")],
)
def test_resolve_algorithm_that_does_not_fit_is_a_user_error(algorithm, spec, message):
    with pytest.raises(errors.UserError, match=f"--algorithm={algorithm}.*{message}"):
        algorithms.resolve(config_lib.RunConfig(algorithm=algorithm), spec)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [((36, 44, 3), True), ((84, 84, 4), True), ((4, 84, 84), False), ((35, 84, 3), False)],
)
def test_resolve_images_that_the_convolutions_cannot_take_are_a_user_error(shape, fits):
    spec = base.EnvironmentSpec(shape, np.dtype(np.uint8), num_actions=3)
    if fits:
        assert algorithms.resolve(config_lib.RunConfig(), spec) == "dqn"
        sizes = architecture_lib.make(spec, (16,)).linears
        assert all(inputs > 0 for _, inputs, _ in sizes)
        return
    with pytest.raises(errors.UserError, match="at least 36 pixels each way"):
        algorithms.resolve(config_lib.RunConfig(), spec)


def test_policy_module_is_the_algorithms_own():
    assert algorithms.policy_module("d4pg") is d4pg
    assert algorithms.policy_module("dqn") is dqn
