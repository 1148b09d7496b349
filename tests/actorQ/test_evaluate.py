"""Tests `actorQ.evaluate` and `actorQ.environments.evaluation`."""

import os
import subprocess
import sys

import dm_env
import imageio.v3
import numpy as np
import pytest
import torch

from actorQ import evaluate
from actorQ.core import errors
from actorQ.environments import evaluation
from actorQ.environments import suites
from actorQ.policy import architecture as architecture_lib
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


@pytest.fixture(autouse=True)
def keep_torch_threads():
    """Undoes that a backend takes one thread of torch."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


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
    policy = evaluate.load_policy(save(checkpoint))
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
    policy = evaluate.load_policy(save(checkpoint), inference_mode=mode)
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
    exact, rough = evaluate.load_policy(run), evaluate.load_policy(run, quantize)
    observations = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    difference = max(abs(float(exact(o)[0] - rough(o)[0])) for o in observations)
    assert 0 < difference < bound


def test_load_policy_best_takes_the_best(save, tmp_path):
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS, seed=1))
    best = harness.random_checkpoint(PENDULUM, PENDULUM_FACTS, seed=2)
    saved.save_policy(str(tmp_path / "checkpoint" / "best"), best)
    observation = np.ones(3, np.float32)
    expected = 2 * np.tanh(by_hand(best, observation))
    assert evaluate.load_policy(run, best=True)(observation) == pytest.approx(expected, abs=1e-5)
    assert evaluate.load_policy(run)(observation) != pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("quantize", [0, 1, 12, 33])
def test_load_policy_impossible_precision_is_a_user_error(save, quantize):
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    with pytest.raises(errors.UserError, match=f"--quantize={quantize} .*32, 16, 8"):
        evaluate.load_policy(run, quantize)


def test_load_policy_missing_is_a_user_error(tmp_path):
    with pytest.raises(errors.UserError, match="No policy at"):
        evaluate.load_policy(str(tmp_path))


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 3), (3, 1)])
def test_load_policy_observation_of_other_shape_raises(save, shape):
    policy = evaluate.load_policy(save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS)))
    with pytest.raises(ValueError, match=r"takes observations \(3,\)"):
        policy(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("architecture", "facts"), [(PENDULUM, PENDULUM_FACTS), (CARTPOLE, CARTPOLE_FACTS)],
    ids=["continuous", "discrete"],
)
@pytest.mark.parametrize("quantize", [32, 8])
def test_evaluate_equal_seeds_play_equal_episodes(save, architecture, facts, quantize):
    run = save(harness.random_checkpoint(architecture, facts))
    played = [
        [
            (episode.episode_return, episode.length)
            for episode in evaluate.evaluate(evaluate.load_policy(run, quantize), 3, seed)
        ]
        for seed in (5, 5, 6)
    ]
    assert played[0] == played[1]
    assert played[0] != played[2]
    assert len(played[0]) == 3
    assert len(set(played[0])) > 1  # Episodes of one seed start differently.
    assert all(1 <= length <= 40 for _, length in played[0])


def test_evaluate_starts_are_the_same_whatever_plays(save, monkeypatch):
    """Also where steps draw random numbers, as LunarLander's do."""
    lander = architecture_lib.PolicyArchitecture((8,), (16,), 4, architecture_lib.Q_VALUES_HEAD)
    facts = {**CARTPOLE_FACTS, "taskstr": "gym,LunarLander-v3", "max_episode_steps": 1000}
    starts = []
    make = suites.make

    def noted(*arguments):
        environment = make(*arguments)
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
        policy = evaluate.load_policy(save(harness.random_checkpoint(lander, facts, seed)), bits)
        lengths.append([episode.length for episode in evaluate.evaluate(policy, 3, 1)])
    assert starts[:3] == starts[3:]
    assert len(set(starts)) == 3
    assert lengths[0] != lengths[1]  # So that steps drew more numbers with one than the other.


def test_evaluate_return_is_the_sum_of_the_rewards(save):
    run = save(harness.random_checkpoint(CARTPOLE, CARTPOLE_FACTS))
    for episode in evaluate.evaluate(evaluate.load_policy(run), 2):
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
def test_evaluate_of_a_task_that_has_changed_is_a_user_error(save, architecture, trained):
    policy = evaluate.load_policy(save(harness.random_checkpoint(architecture, CARTPOLE_FACTS)))
    with pytest.raises(errors.UserError) as refused:
        evaluate.evaluate(policy, 1)
    assert "has observations of 4 and 2 actions to choose from" in str(refused.value)
    assert f"trained with {trained}" in str(refused.value)


class Countdown:
    """An environment of a few steps: rewards 1, 10, 100, ..."""

    def __init__(self, length):
        self.length = length
        self.actions = []

    def reset(self):
        self.actions = []
        return self._timestep(None)

    def step(self, action):
        self.actions.append(action)
        return self._timestep(10.0 ** (len(self.actions) - 1))

    def render(self):
        return np.full((2, 2, 3), len(self.actions), np.uint8)

    def _timestep(self, reward):
        kind = dm_env.StepType.LAST if len(self.actions) == self.length else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, 1.0, np.float32([len(self.actions)]))


def test_play_sums_rewards_counts_steps_and_gives_every_frame():
    environment, frames = Countdown(3), []
    episode = evaluation.play(environment, lambda o: -float(o[0]), frames.append)
    assert (episode.episode_return, episode.length) == (111.0, 3)
    assert episode.seconds >= 0
    assert environment.actions == [0.0, -1.0, -2.0]
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 1, 2, 3]


def test_play_asked_to_stop_gives_up_the_episode():
    environment = Countdown(200)
    assert evaluation.play(environment, lambda o: 0, stop=lambda: True) is None
    assert environment.actions == []
    answers = iter([False, False, True])
    assert evaluation.play(environment, lambda o: 0, stop=lambda: next(answers)) is None
    assert len(environment.actions) == 100


def test_load_policy_action_is_what_the_environment_itself_would_do(save):
    # The map of a loaded policy and that of `suites.make` must be one and the same.
    run = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    policy = evaluate.load_policy(run)
    environment = suites.make("gym,Pendulum-v1", 0)
    observation = environment.reset().observation
    native = environment._to_native(policy.scaled(observation))
    environment.close()
    np.testing.assert_array_equal(policy(observation), native)


def test_load_policy_counts_discrete_actions_as_the_task_does(save):
    facts = {**CARTPOLE_FACTS, "action_start": 5}
    policy = evaluate.load_policy(save(harness.random_checkpoint(CARTPOLE, facts)))
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    actions = {policy(observation) for observation in observations}
    assert actions == {5 + policy.scaled(observation) for observation in observations}


def test_load_policy_trained_with_scaled_observations_takes_the_tasks_own(save):
    scaling = suites.make("gym,Pendulum-v1", 4, scale_observations=True)
    scale = scaling.spec.observation_scale
    facts = {**PENDULUM_FACTS, "observation_scale": [array.tolist() for array in scale]}
    policy = evaluate.load_policy(save(harness.random_checkpoint(PENDULUM, facts)))
    plain = evaluate.LoadedPolicy(policy.checkpoint._replace(facts=PENDULUM_FACTS), 32, "pytorch")
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
        evaluate.load_policy(run)


def test_evaluate_command_plays_and_films(save, tmp_path):
    folder = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    film = tmp_path / "film.mp4"
    command = [
        sys.executable, "-m", "actorQ.evaluate", folder, "--episodes=2", "--quantize=8",
        f"--video={film}",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"}  # Headless.
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("episode ") >= 2
    assert "gym,Pendulum-v1 at 8 bits: return -" in done.stdout
    assert film.stat().st_size > 1000
    frames = sum(1 for _ in imageio.v3.imiter(film))
    # Two episodes of 40 steps and their first frames.
    assert 82 <= frames <= 84


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "No policy at nowhere"),
        ([], "takes one argument"),
        (["RUN", "--quantize=4"], "--quantize=4"),
        (["RUN", "--video=film.avi"], ".mp4"),
    ],
)
def test_evaluate_command_bad_input_one_clear_line(save, arguments, message):
    folder = save(harness.random_checkpoint(PENDULUM, PENDULUM_FACTS))
    arguments = [folder if argument == "RUN" else argument for argument in arguments]
    command = [sys.executable, "-m", "actorQ.evaluate", *arguments, "--episodes=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert line.startswith("evaluate: error: ") and message in line
    assert "Traceback" not in done.stderr
