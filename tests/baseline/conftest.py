"""Agents for tests: small ones made here, and trained ones where they exist."""

import os
import sys
import types

import gymnasium as gym
import pytest
import torch

from actorQ.core import files
from tests import commands
from tests import trained_agents
from tests.baseline import small_agents


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Limits torch to one thread: threads slow small networks, and the cores may be busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_tensorflow(monkeypatch):
    """Makes imports of TensorFlow fail, as where it is not installed."""
    for name in [*sys.modules, "tensorflow"]:
        if name.partition(".")[0] == "tensorflow":
            monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def trained():
    """The folder of trained agents."""
    if not trained_agents.FOLDER.is_dir():
        pytest.skip("the trained agents are not here")
    return trained_agents.FOLDER


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """A folder of small agents that tests must not change; `made` has SB3's environments."""
    folder = tmp_path_factory.mktemp("zoo")
    made = {}

    def add(algo, env_id, environment, **kwargs):
        extra = {name: kwargs.pop(name) for name in ("config", "normalization") if name in kwargs}
        small_agents.save(
            folder, algo, env_id, small_agents.model(algo, environment, **kwargs), **extra
        )
        made[algo, env_id] = environment

    add("ppo", "CartPole-v1", small_agents.vector("CartPole-v1"))
    add("dqn", "CartPole-v1", small_agents.vector("CartPole-v1"), seed=1)
    add("ddpg", "Pendulum-v1", small_agents.vector("Pendulum-v1"))
    statistics = small_agents.normalized(small_agents.vector("Pendulum-v1"))
    add("a2c", "Pendulum-v1", statistics, use_sde=True, normalization=statistics)
    squashed = small_agents.vector("Pendulum-v1")
    add(
        "ppo", "Pendulum-v1", squashed, use_sde=True,
        policy_kwargs={"squash_output": True, "activation_fn": torch.nn.ReLU},
    )
    return types.SimpleNamespace(folder=folder, made=made)


@pytest.fixture(scope="session")
def atari_zoo(tmp_path_factory):
    """A folder with small agents that look at images; `environment` is SB3's own."""
    folder = tmp_path_factory.mktemp("atari")
    environment = small_agents.atari_vector("BreakoutNoFrameskip-v4")
    for algo in ("a2c", "ppo", "dqn"):
        made = small_agents.model(
            algo, environment, "CnnPolicy", noise=0.05, policy_kwargs=small_agents.SMALL_CNN
        )
        small_agents.save(
            folder, algo, "BreakoutNoFrameskip-v4", made, small_agents.ATARI_CONFIG
        )
    return types.SimpleNamespace(folder=folder, environment=environment)


@pytest.fixture
def own_environment(monkeypatch):
    """The name of an environment with a namespace, registered as a user's module would do it."""
    name = "own/CartPole-v0"
    spec = gym.envs.registration.EnvSpec(
        name, "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=50
    )
    monkeypatch.setitem(gym.registry, name, spec)
    return name


@pytest.fixture(scope="session")
def run_commands():
    """Runs real command lines; takes the tool's name and a list of arguments for each."""
    server = commands.Server("baseline", "tests.baseline.preloads")
    yield server
    server.end()


@pytest.fixture(scope="session")
def qat8(tmp_path_factory):
    """A folder with a small agent trained with 8 bits; tests must not change it."""
    from baseline.qat import model as qat_model
    from baseline.qat import training
    from baseline.train import settings as training_settings

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # Workers have folders in a shared one.
        shared = shared.parent
    folder = shared / "qat8"
    with files.locked(shared):
        if not folder.exists():
            made = tmp_path_factory.mktemp("qat8")
            settings = training_settings.TrainSettings(
                "a2c", "CartPole-v1", steps=4000, folder=str(made), device="cpu", progress=False
            )
            training.train(settings, qat_model.QatSettings(8, 2000))
            made.rename(folder)
    return folder
