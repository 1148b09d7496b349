"""Evaluations during a training (--eval_freq), and the best agent that they keep."""

import logging
import types

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common import monitor

from actorQ.core import errors
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.tasks import environments
from baseline.train import experiment
from baseline.train import noted_ends
from baseline.train import training
from tests.baseline import small_agents
from tests.baseline import small_trainings as small


def test_evaluations_keep_the_best_agent_over_an_interruption(tmp_path):
    training.train(
        small.settings(tmp_path, steps=1280, eval_freq=320), stop_requested=small.stop_after(170)
    )
    folder = tmp_path / f"ppo/{small.CARTPOLE}_1"
    with np.load(folder / "evaluations.npz") as file:
        before = file["timesteps"].tolist()
    training.train(small.settings(tmp_path, steps=1280, resume=True))

    with np.load(folder / "evaluations.npz") as file:
        after = file["timesteps"].tolist()
    assert before == [320, 640]
    assert after[:2] == before
    assert len(after) > 2
    assert (folder / "best_model.zip").is_file()


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "shape"])
def test_evaluations_that_are_damaged_are_forgotten(tmp_path, caplog, damage):
    path = tmp_path / "evaluations.npz"
    results = [1.0] if damage == "shape" else [[1.0, 3.0]]
    np.savez(path, timesteps=[64], results=results, ep_lengths=[[5, 5]])
    if damage == "other":
        np.savez(path, timesteps=[64])
    elif damage != "shape":
        path.write_bytes(path.read_bytes()[: {"empty": 0, "cut": 300}[damage]])
    callback = types.SimpleNamespace(
        log_path=str(tmp_path / "evaluations"), best_model_save_path=str(tmp_path)
    )
    before = vars(callback).copy()
    with caplog.at_level(logging.WARNING, logger="absl"):
        experiment.restore_evaluations(callback)
    assert f"{path} is damaged" in caplog.text
    assert vars(callback) == before
    np.savez(path, timesteps=[64], results=[[1.0, 3.0]], ep_lengths=[[5, 5]])
    experiment.restore_evaluations(callback)
    assert callback.evaluations_results == [[1.0, 3.0]]


@pytest.mark.parametrize("there", ["best", "older", "other", "cut", "none"])
def test_the_best_score_counts_only_with_its_agent(tmp_path, caplog, there):
    np.savez(
        tmp_path / "evaluations.npz", timesteps=[64, 128], results=[[1.0, 3.0], [5.0, 5.0]],
        ep_lengths=[[5, 5], [5, 5]], successes=[[False, True], [True, True]],
    )
    path = tmp_path / "best_model.zip"
    if there != "none":
        steps = {"older": 64, "other": 100}.get(there, 128)
        made = small_agents.model("ppo", small_agents.vector(small.CARTPOLE))
        made.num_timesteps = steps
        made.save(path)
        if there == "cut":
            path.write_bytes(path.read_bytes()[:20])
    callback = types.SimpleNamespace(
        log_path=str(tmp_path / "evaluations"), best_model_save_path=str(tmp_path),
        best_mean_reward=-np.inf,
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        experiment.restore_evaluations(callback)
    assert callback.best_mean_reward == {"best": 5.0, "older": 2.0}.get(there, -np.inf)
    assert ("is not the agent of the best evaluation (5.00)" in caplog.text) == (there == "older")
    gone = f"{path} is missing, damaged or of an unknown evaluation: the agent of the next"
    assert (gone in caplog.text) == (there in ("other", "cut", "none"))
    assert "(-inf)" not in caplog.text
    assert callback.evaluations_successes == [[False, True], [True, True]]


def test_games_that_a_limit_inside_of_lives_ends_are_over():
    environments.register()
    limit = gym.wrappers.TimeLimit(
        monitor.Monitor(gym.make("BreakoutNoFrameskip-v4")), max_episode_steps=40
    )
    env = noted_ends.NotedEnds(atari_wrappers.EpisodicLifeEnv(limit), must_end=True)
    env.reset(seed=0)
    steps, info = 0, {}
    while "episode" not in info and steps < 100:
        *_, info = env.step(0)
        steps += 1
    assert steps == info["episode"]["l"] == 40
    env.close()


def test_evaluations_end_where_a_wrapper_ends_episodes(tmp_path):
    """SB3's evaluation counts only those whose end the monitor has seen."""
    limit = [{"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 5}}]
    limited = {**small.SMALL_PPO, "env_wrapper": limit}
    path = training.train(small.settings(tmp_path, steps=128, eval_freq=64, hyperparams=limited))
    with np.load(path.parent / "evaluations.npz") as file:
        assert np.all(file["ep_lengths"] == 5)
    scores = monitor.load_results(str(path.parent))
    assert len(scores) > 20 and set(scores["l"]) == {5} == set(scores["r"])


def test_an_evaluation_that_does_not_end_is_an_error(tmp_path, monkeypatch, own_environment):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 7)
    monkeypatch.setattr(gym.registry[own_environment], "max_episode_steps", None)
    with pytest.raises(errors.UserError, match="--eval_freq. has not ended within 7 steps"):
        training.train(small.settings(tmp_path, env=own_environment, steps=128, eval_freq=64))
    assert list((tmp_path / "ppo").glob("*_1"))


def test_evaluations_that_were_cut_do_not_keep_a_run_from_going_on(tmp_path, caplog):
    training.train(
        small.settings(tmp_path, steps=128, eval_freq=64), stop_requested=small.stop_after(20)
    )
    path = tmp_path / f"ppo/{small.CARTPOLE}_1/evaluations.npz"
    path.write_bytes(path.read_bytes()[:10])
    with caplog.at_level(logging.WARNING, logger="absl"):
        training.train(small.settings(tmp_path, steps=None, hyperparams=None, resume=True))

    assert f"{path} is damaged: earlier evaluations are forgotten" in caplog.text
    with np.load(path) as file:
        assert min(file["timesteps"]) > 64


def test_the_best_agent_s_statistics_lie_beside_it(tmp_path):
    """They do not replace the statistics of the last checkpoint, with which a run goes on."""
    hyperparams = {**small.SMALL_PPO, "normalize": True}
    folder = tmp_path / f"ppo/{small.CARTPOLE}_1"
    there = []
    training.train(
        small.settings(tmp_path, steps=64, eval_freq=64, save_freq=0, hyperparams=hyperparams),
        before_last_save=lambda path: there.extend(folder.rglob("vecnormalize.pkl")),
    )

    assert there == [folder / "vecnormalize.pkl"]
    assert (folder / "best_model.zip").is_file()
    best = zoo_files.read_normalization(folder / "vecnormalize.pkl")
    last = zoo_files.read_normalization(folder / small.CARTPOLE / "vecnormalize.pkl")
    assert best.num_observations <= last.num_observations
    loaded = finding.load_file("ppo", small.CARTPOLE, folder / "best_model.zip")
    np.testing.assert_array_equal(loaded.normalization.mean, best.mean)


def test_evaluations_are_in_the_environment_of_the_training(tmp_path, monkeypatch):
    made, create = [], experiment.Experiment.create_envs

    def spied(self, *arguments, **kwargs):
        made.append(create(self, *arguments, **kwargs))
        return made[-1]

    monkeypatch.setattr(experiment.Experiment, "create_envs", spied)
    heavy = {"env_kwargs": {"g": 20.0}, "n_envs": 1}
    pendulum = {"algo": "a2c", "env": "Pendulum-v1", "hyperparams": heavy}
    training.train(small.settings(tmp_path, steps=8, eval_freq=1000, **pendulum))

    assert [environment.get_attr("g") for environment in made] == [[20.0], [20.0]]
