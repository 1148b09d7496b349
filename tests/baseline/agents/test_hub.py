"""Agents of the hub are fetched whole, or not at all."""

import os
import shutil
import time
import types

import huggingface_hub
from huggingface_hub import errors as hub_errors
import pytest

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import hub
from tests.baseline import small_agents


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A stand-in for the hub: folders of files by repository; `fetched` lists the downloads."""
    repositories, fetched = {}, []

    def model_info(self, repository, timeout):
        if repository not in repositories:
            raise hub_errors.RepositoryNotFoundError("404", response=types.SimpleNamespace(
                headers={}, request=None, status_code=404
            ))
        files = [types.SimpleNamespace(rfilename=n) for n in os.listdir(repositories[repository])]
        return types.SimpleNamespace(siblings=files)

    def download(repository, filename, local_dir):
        fetched.append(filename)
        (local_dir / ".cache").mkdir(parents=True, exist_ok=True)
        return shutil.copy(repositories[repository] / filename, local_dir / filename)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return types.SimpleNamespace(repositories=repositories, fetched=fetched)


def publish(there, zoo, folder, algo, env_id):
    """Puts an agent on the hub, with the names that rl_zoo3 gives there."""
    name = env_id.replace("/", "-")
    path = finding.find(algo, env_id, zoo.folder)
    target = folder / f"hub-{algo}-{name}"
    shutil.copytree(path.parent / name, target)
    shutil.copy(path, target / f"{algo}-{name}.zip")
    if (target / "vecnormalize.pkl").exists():
        (target / "vecnormalize.pkl").rename(target / "vec_normalize.pkl")
    (target / "env_kwargs.yml").write_text("{}\n")
    for extra in ("README.md", "replay.mp4", "results.json", "train_eval_metrics.zip"):
        (target / extra).write_text("not wanted")
    there.repositories[f"sb3/{algo}-{name}"] = target


@pytest.mark.parametrize(("algo", "env_id"), [("ppo", "CartPole-v1"), ("a2c", "Pendulum-v1")])
def test_fetch_gives_an_agent_that_loads(zoo, there, tmp_path, algo, env_id):
    publish(there, zoo, tmp_path, algo, env_id)
    folder = tmp_path / "logs" / "zoo"
    hub.fetch("ppo2" if algo == "ppo" else algo, env_id, folder)
    agent = finding.load(algo, env_id, folder)
    original = finding.load(algo, env_id, zoo.folder)
    assert (agent.normalization is None) == (original.normalization is None)
    observation, _ = agent.make_env().reset(seed=0)
    assert agent.act(observation[None]) == original.act(observation[None])
    target = folder / algo / f"{env_id}_1"
    assert sorted(os.listdir(target)) == [env_id, f"{env_id}.zip"]
    assert "README.md" not in there.fetched and "train_eval_metrics.zip" not in there.fetched
    # An agent that is there is not fetched again.
    there.fetched.clear()
    hub.fetch(algo, env_id, folder)
    assert there.fetched == []


def test_a_run_without_an_agent_yet_is_left_alone(zoo, there, tmp_path):
    publish(there, zoo, tmp_path, "ppo", "CartPole-v1")
    folder = tmp_path / "zoo/ppo"
    monitor = folder / "CartPole-v1_1/0.monitor.csv"
    monitor.parent.mkdir(parents=True)
    monitor.write_text("#{}\n")
    hub.fetch("ppo", "CartPole-v1", tmp_path / "zoo")
    assert monitor.read_text() == "#{}\n"
    assert finding.find("ppo", "CartPole-v1", tmp_path / "zoo").parent == folder / "CartPole-v1_2"


def test_an_agent_beside_the_folders_of_runs_is_not_overruled(zoo, there, tmp_path):
    own = tmp_path / "ppo/CartPole-v1.zip"
    own.parent.mkdir()
    shutil.copy(finding.find("ppo", "CartPole-v1", zoo.folder), own)
    hub.fetch("ppo", "CartPole-v1", tmp_path)
    assert finding.find("ppo", "CartPole-v1", tmp_path) == own


def test_fetch_of_a_name_with_a_slash(there, tmp_path):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    folder = tmp_path / "hub"
    folder.mkdir()
    made.save(folder / "ppo-ALE-Pong-v5.zip")
    there.repositories["sb3/ppo-ALE-Pong-v5"] = folder
    hub.fetch("ppo", "ALE/Pong-v5", tmp_path / "zoo")
    assert finding.found(tmp_path / "zoo") == [("ppo", "ALE/Pong-v5")]


def test_partial_download_is_not_left_behind(zoo, there, tmp_path, monkeypatch):
    publish(there, zoo, tmp_path, "ppo", "CartPole-v1")
    download = huggingface_hub.hf_hub_download

    def broken(repository, filename, local_dir):
        if filename == "config.yml":
            raise ConnectionError("reset by peer\nin two lines")
        return download(repository, filename, local_dir)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", broken)
    with pytest.raises(errors.UserError, match=r"\(ConnectionError\): is there a network\?") as e:
        hub.fetch("ppo", "CartPole-v1", tmp_path / "zoo")
    assert len(str(e.value)) < 120
    assert list((tmp_path / "zoo").rglob("*")) == [tmp_path / "zoo/ppo"]
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    hub.fetch("ppo", "CartPole-v1", tmp_path / "zoo")
    assert finding.found(tmp_path / "zoo") == [("ppo", "CartPole-v1")]


def test_unknown_agent_is_an_error(there, tmp_path):
    with pytest.raises(errors.UserError, match="There is no agent huggingface.co/sb3/ppo-Nothing"):
        hub.fetch("ppo", "Nothing-v1", tmp_path)
    (tmp_path / "empty").mkdir()
    there.repositories["sb3/ppo-Empty-v1"] = tmp_path / "empty"
    with pytest.raises(errors.UserError, match="huggingface.co/sb3/ppo-Empty-v1 holds no agent"):
        hub.fetch("ppo", "Empty-v1", tmp_path)
    for algo, env_id in (("ars", "CartPole-v1"), ("ppo", "../CartPole-v1")):
        with pytest.raises(errors.UserError, match="not known|cannot be the name"):
            hub.fetch(algo, env_id, tmp_path)
    assert os.listdir(tmp_path) == ["empty"]


def test_no_network_is_one_line_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(errors.UserError, match=r"Cannot fetch huggingface.co/sb3/ppo-X-v1 \(") as e:
        hub.fetch("ppo", "X-v1", tmp_path)
    assert len(str(e.value)) < 120 and "\n" not in str(e.value)
    assert time.monotonic() - started < 20.0
    assert os.listdir(tmp_path) == []
