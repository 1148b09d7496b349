"""Trainings that were interrupted and go on: their state, curves, replay buffers, settings."""

import logging
import pathlib
import re

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import buffers
from stable_baselines3.common import callbacks
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.summary.writer import event_file_writer
import torch

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.train import callbacks as training_callbacks
from baseline.train import settings
from baseline.train import state as training_state
from baseline.train import training
from tests.baseline import small_trainings as small

SPACES = gym.spaces.Box(-1, 200, (1,)), gym.spaces.Discrete(2)  # Spaces of buffers.


@pytest.fixture(autouse=True)
def first_curves(monkeypatch):
    """Numbers files of curves from 0: TensorBoard reads two of one second by name, 10 before 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def test_resume_goes_on_with_statistics_of_observations(tmp_path, monkeypatch):
    env_id = "MountainCarContinuous-v0"
    car = {"algo": "a2c", "env": env_id, "hyperparams": {"n_steps": 20, "use_sde": False}}
    training.train(small.settings(tmp_path, steps=400, **car), stop_requested=small.stop_after(41))
    path = tmp_path / f"a2c/{env_id}_1/{env_id}/vecnormalize.pkl"
    before = zoo_files.read_normalization(path)
    restore, seen = training_state.restore, []

    def watched(model, *arguments):
        restore(model, *arguments)
        statistics = model.get_vec_normalize_env()
        seen.append((statistics.obs_rms.mean, statistics.obs_rms.var, statistics.obs_rms.count))
        assert statistics.ret_rms.count > 100

    monkeypatch.setattr(training_state, "restore", watched)
    training.train(small.settings(tmp_path, steps=None, resume=True, **car))

    np.testing.assert_array_equal(seen[0][0], before.mean)
    np.testing.assert_array_equal(seen[0][1], before.variance)
    assert seen[0][2] == before.num_observations > 100
    after = zoo_files.read_normalization(path)
    assert after.num_observations > before.num_observations


def test_resume_goes_on_with_counters_schedules_and_weights(tmp_path):
    hyperparams = {**small.SMALL_PPO, "learning_rate": "lin_0.01"}
    first, second, restored = small.Recorder(), small.Recorder(), {}
    stopped = training.train(
        small.settings(tmp_path, hyperparams=hyperparams), lambda model: [first],
        small.stop_after(75),
    )
    facts, weights = small.readable(stopped), small.parameters(stopped)

    def remember(model):
        class Remember(callbacks.BaseCallback):
            def _on_training_start(self):
                restored.update(
                    weights={k: v.clone() for k, v in model.policy.state_dict().items()},
                    optimizer_steps=float(model.policy.optimizer.state_dict()["state"][0]["step"]),
                    updates=model._n_updates,
                )

            def _on_step(self):
                return True

        return [second, Remember()]

    finished = training.train(
        small.settings(tmp_path, steps=None, hyperparams=None, resume=True), remember
    )

    assert finished == stopped
    # 75 calls of 4 environments went well, the 76th stopped the run, in the fifth rollout.
    assert first.steps[-1] == facts["num_timesteps"] == 304
    assert second.steps[0] == 308
    assert small.readable(finished)["num_timesteps"] >= 640
    assert small.readable(finished)["_total_timesteps"] == 640
    # Four rollouts were learned from before, each in one step of the optimizer.
    assert restored["updates"] == facts["_n_updates"] == 4
    assert small.readable(finished)["_n_updates"] > 4
    assert restored["optimizer_steps"] == 4
    for name, tensor in weights.items():
        torch.testing.assert_close(restored["weights"][name], tensor, rtol=0, atol=0)
    # The learning rate is linear in steps from 0.01 to 0, before and after.
    assert second.learning_rates[0] == pytest.approx(0.01 * (1 - 256 / 640))
    assert second.learning_rates[-1] < first.learning_rates[-1]
    steps, progress = second.progress[1]
    assert progress == pytest.approx(1 - steps / 640)


def test_resume_goes_on_with_the_curves(tmp_path):
    training.train(small.settings(tmp_path), stop_requested=small.stop_after(75))
    training.train(small.settings(tmp_path, steps=None, hyperparams=None, resume=True))

    curves = tmp_path / f"ppo/{small.CARTPOLE}_1/tensorboard"
    events = event_accumulator.EventAccumulator(str(curves))
    events.Reload()
    steps = [event.step for event in events.Scalars("train/loss")]
    # A rollout's loss is noted at the end of the next one. The first run stopped at 304.
    assert steps == [128, 192, 256, 432, 496, 560, 624, 688]


@pytest.mark.parametrize(
    ("algo", "env_id", "steps"), [("ppo", small.CARTPOLE, 640), ("dqn", "PongNoFrameskip-v4", 40)]
)
def test_resume_goes_on_behind_a_line_of_scores_that_was_cut_off(tmp_path, algo, env_id, steps):
    run = {"algo": algo, "env": env_id}
    if algo == "dqn":
        run["hyperparams"] = {"buffer_size": 100, "learning_starts": 1000}
    path = training.train(
        small.settings(tmp_path, steps=steps, **run), stop_requested=small.stop_after(20)
    )
    (monitor,) = path.parent.glob("0.monitor.csv")
    whole = monitor.read_bytes()
    monitor.write_bytes(whole + b"17.0,1")  # A killed process left this.
    training.train(small.settings(tmp_path, **{**run, "steps": None, "hyperparams": None},
                               resume=True))
    lines = monitor.read_bytes()[len(whole) :].decode().splitlines()
    assert monitor.read_bytes().startswith(whole)
    assert all(re.fullmatch(r"[-\d.]+,\d+,[\d.]+", line) for line in lines), lines
    assert lines or algo == "dqn"  # No game ends in 40 steps.


def test_curves_go_where_they_are_asked_for_after_an_interruption_too(tmp_path):
    curves = tmp_path / "curves"
    training.train(
        small.settings(tmp_path, tensorboard=str(curves)), stop_requested=small.stop_after(40)
    )
    training.train(small.settings(tmp_path, steps=None, hyperparams=None, resume=True))

    assert len(list((curves / small.CARTPOLE / "ppo_1").glob("events*"))) >= 2
    assert not (tmp_path / f"ppo/{small.CARTPOLE}_1/tensorboard").exists()


def test_curves_beyond_the_last_checkpoint_are_superseded(tmp_path):
    for steps_done, noted in ((0, (10, 20, 30)), (15, (25, 35))):
        log = training_callbacks.tensorboard_logger(str(tmp_path), steps_done)
        for step in noted:
            log.record("value", step)
            log.dump(step)
        log.close()

    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("value")] == [10, 25, 35]


def test_resume_goes_on_with_replay_buffer_and_exploration(tmp_path):
    hyperparams = {"buffer_size": 300, "learning_starts": 50, "train_freq": 10, "gradient_steps": 1}
    first, second, restored = small.Recorder(), small.Recorder(), {}

    def keep(recorder, into):
        def prepare(model):
            class Keep(callbacks.BaseCallback):
                def _on_training_start(self):
                    replay = model.replay_buffer
                    into.update(
                        observations=replay.observations.copy(), pos=replay.pos, full=replay.full,
                        calls=model._n_calls, exploration=model.exploration_rate,
                    )

                def _on_step(self):
                    return True

            into["model"] = model
            return [recorder, Keep()]

        return prepare

    before = {}
    dqn = {"algo": "dqn", "steps": 1000}
    training.train(
        small.settings(tmp_path, **dqn, hyperparams=hyperparams), keep(first, before),
        small.stop_after(420),
    )
    replay = before["model"].replay_buffer
    resumed = small.settings(tmp_path, algo="dqn", steps=None, hyperparams=None, resume=True)
    training.train(resumed, keep(second, restored), small.stop_after(30))

    assert restored["full"] is True
    assert restored["pos"] == replay.pos
    np.testing.assert_array_equal(restored["observations"], replay.observations)
    assert restored["calls"] == first.steps[-1] - 1  # The step that stopped it was not finished.
    assert second.steps[0] == first.steps[-1] + 1
    # Exploration falls linearly to its last value within 16 % of the steps (the tuned fraction).
    assert second.exploration[1] == pytest.approx(0.04)
    assert first.exploration[80] == pytest.approx(1 - 0.96 * 80 / 160, abs=0.02)


@pytest.mark.parametrize(("entropy", "name"), [("auto", "log_ent_coef"), (0.2, "ent_coef_tensor")])
def test_resume_of_sac_goes_on_with_its_entropy_coefficient(tmp_path, entropy, name):
    models = []

    def remember(model):
        class Remember(callbacks.BaseCallback):
            def _on_training_start(self):
                models.append((model, float(getattr(model, name).detach())))

            def _on_step(self):
                return True

        return [Remember()]

    sac = {"learning_starts": 20, "learning_rate": 0.01, "ent_coef": entropy, "batch_size": 16}
    pendulum = {"algo": "sac", "env": "Pendulum-v1", "steps": 120}
    training.train(
        small.settings(tmp_path, **pendulum, hyperparams=sac), remember, small.stop_after(60)
    )
    resumed = small.settings(tmp_path, **{**pendulum, "steps": None}, hyperparams=None, resume=True)
    training.train(resumed, remember)

    (stopped, start), (_, restored) = models
    assert restored == float(getattr(stopped, name).detach())
    assert (restored != start) == (entropy == "auto")


def add_transition(replay, reward, done=False, timeout=False):
    state = np.full((1, 1), reward, np.float32)
    replay.add(
        state, state, np.zeros((1, 1)), np.array([reward]), np.array([done]),
        [{"TimeLimit.truncated": timeout}],
    )


def restored_replay(tmp_path, make, **last):
    """Returns a replay buffer of five transitions, and one that got them from its file."""
    path = str(tmp_path / "replay.npz")
    before, after = make(), make()
    for _ in range(4):
        add_transition(before, 1.0)
    add_transition(before, 1.0, **last)
    training_state._save_replay(before, path)
    assert training_state._restore_replay(after, path)
    return before, after


@pytest.mark.parametrize("size", [5, 20])  # The buffer is full, or not.
@pytest.mark.parametrize("last", [{}, {"done": True}, {"done": True, "timeout": True}])
def test_a_restored_replay_buffer_does_not_join_two_episodes(tmp_path, last, size):
    before, after = restored_replay(
        tmp_path,
        lambda: buffers.NStepReplayBuffer(size, *SPACES, "cpu", n_steps=3, gamma=0.5), **last,
    )
    # The value that a single step bootstraps from is as it was.
    np.testing.assert_array_equal(
        after.dones * (1 - after.timeouts), before.dones * (1 - before.timeouts)
    )
    add_transition(after, 100.0)
    samples = after._get_samples(np.array([2, 3, 4]))
    assert samples.rewards.ravel().tolist() == [1.75, 1.5, 1.0]
    assert samples.dones.ravel().tolist() == [float(last == {"done": True})] * 3


def test_a_restored_replay_buffer_that_saves_memory_ends_as_sb3_lets_it(tmp_path):
    before, after = restored_replay(tmp_path, lambda: buffers.ReplayBuffer(
        20, *SPACES, "cpu", optimize_memory_usage=True, handle_timeout_termination=False
    ))
    assert after.dones.ravel()[:5].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    np.testing.assert_array_equal(after.observations[:5], before.observations[:5])


def test_resume_without_replay_buffer_fills_it_first(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(training_state, "MAX_REPLAY_BYTES", 1000)
    hyperparams = {"learning_starts": 50, "train_freq": 10, "gradient_steps": 1}
    training.train(
        small.settings(tmp_path, algo="dqn", steps=500, hyperparams=hyperparams),
        stop_requested=small.stop_after(100),
    )
    models = []
    with caplog.at_level(logging.WARNING, logger="absl"):
        training.train(
            small.settings(tmp_path, algo="dqn", steps=None, hyperparams=None, resume=True),
            lambda model: models.append(model) or [],
            small.stop_after(20),
        )

    assert not (tmp_path / f"dqn/{small.CARTPOLE}_1/{training_state.REPLAY_FILENAME}").exists()
    assert "fills up for 50 steps" in caplog.text
    assert models[0].learning_starts == 101 + 50


def test_resume_takes_the_newest_unfinished_run(tmp_path):
    training.train(small.settings(tmp_path), stop_requested=small.stop_after(20))
    training.train(small.settings(tmp_path), stop_requested=small.stop_after(20))
    training.train(small.settings(tmp_path, steps=64))

    path = training.train(small.settings(tmp_path, resume=True))

    assert path.parent.name == f"{small.CARTPOLE}_2"
    training.train(small.settings(tmp_path, resume=True))
    with pytest.raises(errors.UserError, match="no unfinished run"):
        training.train(small.settings(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("newer", "asked", "chosen", "told"),
    [
        ({"hyperparams": {"n_steps": 16}}, {}, 1, "repeat its --hyperparams."),
        ({"hyperparams": {"n_steps": 16}, "num_envs": 2}, {}, 1,
         "repeat its --hyperparams and --num_envs."),
        ({"hyperparams": {"n_steps": 16}}, {"hyperparams": {"n_steps": 16}}, 2, None),
        ({"seed": 1}, {"seed": 0}, 1, None),  # The seed was asked for.
        ({"seed": 1}, {}, 2, None),
    ],
)
def test_resume_of_an_older_run_names_the_newer(monkeypatch, caplog, newer, asked, chosen, told):
    found = [
        training_state.Run(
            pathlib.Path(f"{small.CARTPOLE}_{number}"),
            {"program": "baseline.train", "seed": 0, "num_envs": None, "hyperparams": {}} | changes,
            finished=False,
        )
        for number, changes in ((2, newer), (1, {}))
    ]
    monkeypatch.setattr(training_state, "runs", lambda *names: iter(found))
    wanted = settings.asked(
        training.TrainSettings("ppo", small.CARTPOLE, resume=True, **asked)
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        run, _ = training_state.unfinished("zoo", "ppo", small.CARTPOLE, "baseline.train", wanted)

    assert run == f"{small.CARTPOLE}_{chosen}"
    assert len(caplog.messages) == (told is not None)
    assert told is None or (f"newer {small.CARTPOLE}_2: " in caplog.text and told in caplog.text)


def test_a_finished_agent_is_found_rather_than_a_newer_one_that_was_stopped(tmp_path, caplog):
    stopped = training.train(small.settings(tmp_path), stop_requested=small.stop_after(20))
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert finding.find("ppo", small.CARTPOLE, tmp_path) == stopped
    (line,) = caplog.messages
    assert line.startswith(f"The training of {stopped} has not come to its end")
    caplog.clear()
    finished = training.train(small.settings(tmp_path, steps=64))
    training.train(small.settings(tmp_path), stop_requested=small.stop_after(20))

    assert finding.find("ppo", small.CARTPOLE, tmp_path) == finished == tmp_path / (
        f"ppo/{small.CARTPOLE}_2/{small.CARTPOLE}.zip"
    )
    assert "come to its end" not in caplog.text


@pytest.mark.parametrize(
    "changes", [{"steps": 1000}, {"seed": 7}, {"hyperparams": {"n_steps": 32}}, {"num_envs": 2}]
)
def test_resume_with_other_settings_is_refused(tmp_path, changes):
    training.train(small.settings(tmp_path), stop_requested=small.stop_after(20))

    with pytest.raises(errors.UserError, match="was started with"):
        training.train(small.settings(tmp_path, resume=True, **changes))


def test_resume_of_damaged_agent_is_refused(tmp_path):
    path = training.train(small.settings(tmp_path), stop_requested=small.stop_after(20))
    path.write_bytes(path.read_bytes()[:1000])

    with pytest.raises(errors.UserError, match="damaged"):
        training.train(small.settings(tmp_path, resume=True))


def test_resume_checks_the_environment_as_the_run_has_it(tmp_path):
    bins = {"env_wrapper": [{"gymnasium.wrappers.DiscretizeAction": {"bins": 5}}]}
    pendulum = dict(algo="dqn", env="Pendulum-v1")
    hyperparams = dict(
        n_timesteps=128, policy="MlpPolicy", learning_starts=16, buffer_size=200, **bins
    )
    training.train(
        small.settings(tmp_path, steps=None, hyperparams=hyperparams, **pendulum),
        stop_requested=small.stop_after(20),
    )
    path = training.train(
        small.settings(tmp_path, steps=None, hyperparams=None, resume=True, **pendulum)
    )
    assert path.exists()
