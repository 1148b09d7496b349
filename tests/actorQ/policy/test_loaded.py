"""Tests `actorQ.policy.loaded`: trained policies act, and play episodes of their tasks."""


import numpy as np
import pytest
import torch

from actorQ.core import errors
from actorQ.environments import suites
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import loaded
from actorQ.policy import saved
from tests.actorQ import harness

PENDULUM = architecture_lib.PolicyArchitecture((3,), (16,), 1, "tanh")
CARTPOLE = architecture_lib.PolicyArchitecture((4,), (16,), 2, "q_values")
PENDULUM_FACTS = {
    "taskstr": "gym,Pendulum-v1", "max_episode_steps": 40, "learner_steps": 1,
    "action_low": [-2.0], "action_high": [2.0],
}
CARTPOLE_FACTS = {
    "taskstr": "gym,CartPole-v1", "max_episode_steps": 40, "learner_steps": 1,
    "action_low": None, "action_high": None,
}


def by_hand(checkpoint, observation):
    """The output of a policy of one hidden layer, in numpy."""
    weights = checkpoint.weights
    hidden = np.tanh(weights["linear_0.weight"] @ observation + weights["linear_0.bias"])
    return weights["head.weight"] @ hidden + weights["head.bias"]


@pytest.fixture
def save(tmp_path):
    """Saves a checkpoint as a run does; returns the run folder."""

    def save_as_run(checkpoint):
        saved.save_policy(str(tmp_path / "checkpoint"), checkpoint)
        return str(tmp_path)

    return save_as_run


@pytest.mark.parametrize(
    ("low", "high"),
    [([-1.0], [1.0]), ([-2.0], [2.0]), ([0.0], [10.0]), ([-5.0], [-3.0])],
)
def test_load_policy_action_is_in_native_units(save, low, high):
    checkpoint = harness.random_checkpoint(
        PENDULUM, {**PENDULUM_FACTS, "action_low": low, "action_high": high}
    )
    policy = loaded.load_policy(save(checkpoint))
    for observation in np.random.default_rng(1).normal(size=(10, 3)):
        scaled = np.tanh(by_hand(checkpoint, observation.astype(np.float32)))
        action = policy(observation)  # float64: converted.
        assert action.shape == (1,)
        assert action.dtype == np.float32
        expected = low[0] + (scaled + 1) / 2 * (high[0] - low[0])
        assert action == pytest.approx(expected, abs=1e-5 * (high[0] - low[0]))
        assert low[0] <= action[0] <= high[0]


@pytest.mark.parametrize("mode", ["pytorch", "tensorflow"])
def test_load_policy_discrete_action_is_the_best_one(save, mode):
    checkpoint = harness.random_checkpoint(CARTPOLE, CARTPOLE_FACTS)
    policy = loaded.load_policy(save(checkpoint), inference_mode=mode)
    actions = set()
    for observation in np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32):
        action = policy(observation)
        assert type(action) is int
        assert action == int(np.argmax(by_hand(checkpoint, observation)))
        actions.add(action)
    assert actions == {0, 1}


@pytest.mark.parametrize(("quantize", "bound"), [(16, 0.02), (8, 0.4)])
def test_load_policy_quantized_is_close_but_not_equal(save, quantize, bound):
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    exact, rough = loaded.load_policy(run), loaded.load_policy(run, quantize)
    observations = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    difference = max(abs(float(exact(o)[0] - rough(o)[0])) for o in observations)
    assert 0 < difference < bound


def test_load_policy_best_takes_the_best(save, tmp_path):
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS, seed=1))
    best = harness.random_checkpoint(PENDULUM, PENDULUM_FACTS, seed=2)
    saved.save_policy(str(tmp_path / "checkpoint" / "best"), best)
    observation = np.ones(3, np.float32)
    expected = 2 * np.tanh(by_hand(best, observation))
    assert loaded.load_policy(run, best=True)(observation) == pytest.approx(expected, abs=1e-5)
    assert loaded.load_policy(run)(observation) != pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("quantize", [0, 1, 12, 33])
def test_load_policy_impossible_precision_is_a_user_error(save, quantize):
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    with pytest.raises(errors.UserError, match=f"--quantize={quantize} .*32, 16, 8"):
        loaded.load_policy(run, quantize)


def test_load_policy_leaves_the_threads_of_the_caller_alone(save):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        policy = loaded.load_policy(save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS)))
        policy(np.zeros(3, np.float32))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def test_load_policy_missing_is_a_user_error(tmp_path):
    with pytest.raises(errors.UserError, match="No policy at"):
        loaded.load_policy(str(tmp_path))


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 3), (3, 1)])
def test_load_policy_observation_of_other_shape_raises(save, shape):
    policy = loaded.load_policy(save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS)))
    with pytest.raises(ValueError, match=r"takes observations \(3,\)"):
        policy(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("architecture", "facts"), [(PENDULUM, PENDULUM_FACTS), (CARTPOLE, CARTPOLE_FACTS)],
    ids=["continuous", "discrete"],
)
@pytest.mark.parametrize("quantize", [32, 8])
def test_play_episodes_equal_seeds_play_equal_episodes(save, architecture, facts, quantize):
    run = save(harness.random_checkpoint(architecture, facts))
    played = [
        [
            (episode.episode_return, episode.length)
            for episode in loaded.play_episodes(loaded.load_policy(run, quantize), 3, seed)
        ]
        for seed in (5, 5, 6)
    ]
    assert played[0] == played[1]
    assert played[0] != played[2]
    assert len(played[0]) == 3
    assert len(set(played[0])) > 1  # Episodes of one seed start differently.
    assert all(1 <= length <= 40 for _, length in played[0])


def test_play_episodes_starts_are_the_same_whatever_plays(save, monkeypatch):
    """Also where steps draw random numbers, as LunarLander's do."""
    lander = architecture_lib.PolicyArchitecture((8,), (16,), 4, architecture_lib.Q_VALUES_HEAD)
    facts = {**CARTPOLE_FACTS, "taskstr": "gym,LunarLander-v3", "max_episode_steps": 1000}
    starts = []
    make = suites.make

    def noted(*arguments, **options):
        environment = make(*arguments, **options)
        reset = environment.reset

        def reset_and_note():
            step = reset()
            starts.append(tuple(step.observation))
            return step

        environment.reset = reset_and_note
        return environment

    monkeypatch.setattr(suites, "make", noted)
    lengths = []
    for seed, bits in ((0, 32), (1, 8)):
        policy = loaded.load_policy(save(harness.random_checkpoint(lander, facts, seed)), bits)
        lengths.append([episode.length for episode in loaded.play_episodes(policy, 3, 1)])
    assert starts[:3] == starts[3:]
    assert len(set(starts)) == 3
    assert lengths[0] != lengths[1]  # So that steps drew more numbers with one than the other.


def test_play_episodes_return_is_the_sum_of_the_rewards(save):
    run = save(harness.random_checkpoint(CARTPOLE, CARTPOLE_FACTS))
    for episode in loaded.play_episodes(loaded.load_policy(run), 2):
        assert episode.episode_return == episode.length  # CartPole: 1 a step.


@pytest.mark.parametrize(
    ("architecture", "trained"),
    [
        (architecture_lib.PolicyArchitecture((5,), (16,), 2, "q_values"),
         "observations of 5 and 2 actions to choose from"),
        (architecture_lib.PolicyArchitecture((4,), (16,), 3, "q_values"),
         "observations of 4 and 3 actions to choose from"),
    ],
)
def test_play_episodes_of_a_task_that_has_changed_is_a_user_error(save, architecture, trained):
    policy = loaded.load_policy(save(harness.random_checkpoint(architecture, CARTPOLE_FACTS)))
    with pytest.raises(errors.UserError) as refused:
        loaded.play_episodes(policy, 1)
    assert "has observations of 4 and 2 actions to choose from" in str(refused.value)
    assert f"trained with {trained}" in str(refused.value)


def test_load_policy_action_is_what_the_environment_itself_would_do(save):
    # The map of a loaded policy and that of `suites.make` must be one and the same.
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    policy = loaded.load_policy(run)
    environment = suites.make("gym,Pendulum-v1", 0)
    observation = environment.reset().observation
    native = environment._to_native(policy.scaled(observation))
    environment.close()
    np.testing.assert_array_equal(policy(observation), native)


def test_load_policy_counts_discrete_actions_as_the_task_does(save):
    facts = {**CARTPOLE_FACTS, "action_start": 5}
    policy = loaded.load_policy(save(harness.random_checkpoint(CARTPOLE, facts)))
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    actions = {policy(observation) for observation in observations}
    assert actions == {5 + policy.scaled(observation) for observation in observations}


def test_load_policy_trained_with_scaled_observations_takes_the_tasks_own(save):
    scaling = suites.make("gym,Pendulum-v1", 4, scale_observations=True)
    scale = scaling.spec.observation_scale
    facts = {**PENDULUM_FACTS, "observation_scale": [array.tolist() for array in scale]}
    policy = loaded.load_policy(save(harness.random_checkpoint(PENDULUM, facts)))
    plain = loaded.LoadedPolicy(policy.checkpoint._replace(facts=PENDULUM_FACTS), 32, "pytorch")
    with scaling, suites.make("gym,Pendulum-v1", 4) as environment:
        own, scaled = (each.reset().observation for each in (environment, scaling))
        for _ in range(5):
            action = policy.scaled(own)
            np.testing.assert_array_equal(action, plain.scaled(scaled))
            assert action != plain.scaled(own)
            np.testing.assert_array_equal(policy(own), 2 * action)
            own, scaled = (each.step(action).observation for each in (environment, scaling))


@pytest.mark.parametrize(
    ("scale", "message"),
    [([[1.0, 1.0], [0.0, 0.0]], "does not fit its own architecture"),
     ([[1.0, 0.0, 1.0], [0.0] * 3], "is damaged"), ([[1.0] * 3, [0.0, 0.0, np.nan]], "is damaged"),
     ([[1.0] * 3], "is damaged"), ("none", "is damaged")],
)
def test_load_policy_scale_that_is_none_is_damage(save, scale, message):
    facts = {**PENDULUM_FACTS, "observation_scale": scale}
    run = save(harness.random_checkpoint(PENDULUM, facts))
    with pytest.raises(errors.UserError, match=message):
        loaded.load_policy(run)
