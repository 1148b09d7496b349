"""Saved agents are whole, and SB3 itself reads them."""

import os
import pathlib
import shutil
import threading
import time

import numpy as np
import pytest
from stable_baselines3.common import vec_env

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import saving
from baseline.quantization import schemes
from tests.baseline import small_agents
from tests.baseline.agents.test_finding import assert_acts_alike


def quantized(algo, env_id, folder, target, bits="3", **kwargs):
    agent = finding.load(algo, env_id, folder)
    scheme = schemes.Scheme(bits, **kwargs)
    schemes.quantize_weights(agent.network, scheme)
    agent.note_quantization(scheme, None)
    return agent, agent.save(target)


@pytest.mark.parametrize(
    ("algo", "env_id"),
    [
        ("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("ddpg", "Pendulum-v1"),
        ("a2c", "Pendulum-v1"), ("ppo", "Pendulum-v1"),
    ],
)
def test_sb3_loads_and_plays_the_quantized_agent(zoo, tmp_path, algo, env_id):
    agent, path = quantized(algo, env_id, zoo.folder, tmp_path)
    assert path == tmp_path / algo / f"{env_id}_1" / f"{env_id}.zip"
    model = small_agents.ALGORITHMS[algo].load(path)  # No custom objects.
    environment = zoo.made[algo, env_id]
    if agent.normalization is not None:
        # Of the same statistics, as the zoo's own tools would read them.
        statistics = path.parent / env_id / "vecnormalize.pkl"
        environment = vec_env.VecNormalize.load(str(statistics), small_agents.vector(env_id))
        assert not environment.training and environment.norm_obs and not environment.norm_reward
    assert_acts_alike(agent, model, environment)
    again = finding.load(algo, env_id, tmp_path)
    assert_acts_alike(again, model, environment, 10)
    assert again.quantization == agent.quantization == (schemes.Scheme("3"), None)
    for name, weights in again.weights().items():
        assert len(np.unique(weights)) <= 8, name
    original = finding.load(algo, env_id, zoo.folder).model.policy.state_dict()
    saved = model.policy.state_dict()
    unchanged = [name for name in original if (original[name] == saved[name]).all()]
    acting = {f"{name}.weight" for name, _ in agent.network.with_weights()}
    # The copy of the acting network for targets, the values and the biases stay.
    assert {name.partition(".")[2] for name in acting} <= {n.partition(".")[2] for n in saved}
    assert set(original) - set(unchanged) == acting
    # Those who train on get the same settings.
    assert model.gamma == agent.model.gamma


def test_sb3_plays_the_quantized_agent_on_images(atari_zoo, tmp_path):
    agent, path = quantized("a2c", "BreakoutNoFrameskip-v4", atari_zoo.folder, tmp_path, "6")
    model = small_agents.ALGORITHMS["a2c"].load(path)
    assert_acts_alike(agent, model, atari_zoo.environment, 20)
    again = finding.load("a2c", "BreakoutNoFrameskip-v4", tmp_path)
    assert_acts_alike(again, model, atari_zoo.environment, 10)
    first = again.weights()["features_extractor.cnn.0.weight"]
    assert 64 < len(np.unique(first))  # Each output channel has a scale of its own.
    assert all(len(np.unique(channel)) <= 64 for channel in first)


def test_trained_agents_are_saved_for_sb3(trained, tmp_path):
    for algo, env_id in (("a2c", "Walker2DBulletEnv-v0"), ("dqn", "LunarLander-v2")):
        agent, path = quantized(algo, env_id, trained, tmp_path, "8")
        model = small_agents.ALGORITHMS[algo].load(path)
        environment = vec_env.DummyVecEnv([agent.make_env])
        if agent.normalization is not None:
            statistics = path.parent / env_id / "vecnormalize.pkl"
            environment = vec_env.VecNormalize.load(str(statistics), environment)
        assert_acts_alike(agent, model, environment, 20)
        again = finding.load(algo, env_id, tmp_path)
        np.testing.assert_array_equal(
            again.make_env().reset(seed=1)[0], agent.make_env().reset(seed=1)[0]
        )
        environment.close()


def test_settings_go_with_the_agent(tmp_path):
    wrappers = [{"gymnasium.wrappers.ClipReward": {"min_reward": -1, "max_reward": 1}}]
    statistics = small_agents.normalized(small_agents.vector("Pendulum-v1"), norm_obs=False)
    made = small_agents.model("a2c", statistics)
    small_agents.save(
        tmp_path, "a2c", "Pendulum-v1", made,
        {"env_wrapper": wrappers, "shape": (1, (2, 3)), "env_kwargs": {"g": 5.0}},
        {"env_kwargs": {"g": 2.0}}, normalization=statistics,
    )
    # Rewards were normalized, observations not: the saved agent says so as well.
    first, path = quantized("a2c", "Pendulum-v1", tmp_path, tmp_path / "once")
    _, path = quantized("a2c", "Pendulum-v1", tmp_path / "once", tmp_path / "twice")
    again = finding.load("a2c", "Pendulum-v1", tmp_path / "twice")
    assert first.normalization is None and again.normalization is None
    env = again.make_env()
    assert env.unwrapped.g == 2.0
    assert type(env).__name__ == "ClipReward"
    settings = path.parent / "Pendulum-v1"
    assert sorted(os.listdir(settings)) == [
        "args.yml", "config.yml", "quantization.json", "vecnormalize.pkl",
    ]
    assert "!!python/tuple" in (settings / "config.yml").read_text()
    assert "python/object" not in (settings / "config.yml").read_text()


def test_saving_replaces_all_of_an_older_agent(zoo, tmp_path):
    target = tmp_path / "ppo/CartPole-v1_1"
    (target / "CartPole-v1").mkdir(parents=True)
    (target / "CartPole-v1/vecnormalize.pkl").write_bytes(b"of another")
    quantized("ppo", "CartPole-v1", zoo.folder, tmp_path)
    assert finding.load("ppo", "CartPole-v1", tmp_path).normalization is None
    assert os.listdir(tmp_path / "ppo") == ["CartPole-v1_1"]


@pytest.mark.parametrize("moment", ["settings", "model", "quantization"])
def test_interrupted_save_leaves_what_was_there(zoo, tmp_path, monkeypatch, moment):
    agent, path = quantized("a2c", "Pendulum-v1", zoo.folder, tmp_path, "8")
    before = {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    if moment == "settings":
        monkeypatch.setattr(agent, "_save_normalization", interrupt)
    elif moment == "model":
        monkeypatch.setattr(agent.model, "save", interrupt)
    else:
        monkeypatch.setattr(agent, "write_quantization", interrupt)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            agent.save(folder)
    assert finding.found(tmp_path / "new") == []
    assert {f: f.read_bytes() for f in path.parent.rglob("*") if f.is_file()} == before
    assert os.listdir(tmp_path / "a2c") == ["Pendulum-v1_1"]


def test_killed_save_leaves_nothing_that_is_taken_for_an_agent(zoo, tmp_path):
    source = finding.find("ppo", "CartPole-v1", zoo.folder).parent
    with pytest.raises(SystemExit), saving.whole_folder(tmp_path / "ppo/CartPole-v1_1") as draft:
        shutil.copytree(source, draft, dirs_exist_ok=True)
        # As a process that is killed here leaves it.
        shutil.copytree(draft, draft.with_name(f"{draft.name}x"))
        raise SystemExit
    (left,) = (tmp_path / "ppo").iterdir()
    assert finding.found(tmp_path) == []
    # What is old is no other process's work any more.
    os.utime(left, (time.time() - 10_000,) * 2)
    quantized("ppo", "CartPole-v1", zoo.folder, tmp_path)
    assert os.listdir(tmp_path / "ppo") == ["CartPole-v1_1"]


def test_killed_while_the_old_agent_is_removed_leaves_the_new_one(tmp_path, monkeypatch):
    target = tmp_path / "agent"
    with saving.whole_folder(target) as draft:
        (draft / "a").write_text("old")
    rmtree = shutil.rmtree

    def killed(path, **kwargs):
        if "-old" in path.name:
            raise KeyboardInterrupt
        rmtree(path, **kwargs)

    monkeypatch.setattr(saving.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt), saving.whole_folder(target) as draft:
        (draft / "a").write_text("new")
    assert (target / "a").read_text() == "new"


def test_folder_that_cannot_be_put_in_place_leaves_what_was_there(tmp_path, monkeypatch):
    target = tmp_path / "agent"
    with saving.whole_folder(target) as draft:
        (draft / "a").write_text("old")
    rename = os.rename

    def failing(source, destination):
        if destination == target and "-old" not in source.name:
            raise OSError(5, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr(saving.os, "rename", failing)
    with pytest.raises(errors.UserError, match="Input/output error"):
        with saving.whole_folder(target) as draft:
            (draft / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["agent"]


def test_two_processes_may_save_the_same_agent(tmp_path):
    target = tmp_path / "agent"
    failures = []

    def write(number):
        try:
            for _ in range(100):
                with saving.whole_folder(target) as draft:
                    for name in "ab":
                        (draft / name).write_text(str(number))
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert (target / "a").read_text() == (target / "b").read_text()
    assert os.listdir(tmp_path) == ["agent"]


def test_folder_that_cannot_be_written_is_an_error(zoo, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match=r"Cannot write .*file/ppo/CartPole-v1_1: Not a dir"):
        quantized("ppo", "CartPole-v1", zoo.folder, tmp_path / "file")
    with pytest.raises(errors.UserError, match="Cannot write /proc/x/ppo/CartPole-v1_1"):
        quantized("ppo", "CartPole-v1", zoo.folder, pathlib.Path("/proc/x"))
