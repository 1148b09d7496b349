"""Models are built for their own algorithm and environment, or refused."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import model_building
from tests.baseline import small_agents


def refused(folder, algo, env_id, match):
    with pytest.raises(errors.UserError, match=match) as caught:
        finding.load(algo, env_id, folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) < 600, message


@pytest.fixture(scope="module")
def made():
    """A model of each algorithm."""
    cartpole, pendulum = (small_agents.vector(name) for name in ("CartPole-v1", "Pendulum-v1"))
    return {
        algo: small_agents.model(algo, pendulum if algo in small_agents.CONTINUOUS else cartpole)
        for algo in small_agents.ALGORITHMS
    }


@pytest.mark.parametrize("actual", list(small_agents.ALGORITHMS))
@pytest.mark.parametrize("named", list(small_agents.ALGORITHMS))
def test_wrong_algorithm_is_an_error(tmp_path, made, actual, named):
    env_id = "Pendulum-v1" if actual in small_agents.CONTINUOUS else "CartPole-v1"
    small_agents.save(tmp_path, named, env_id, made[actual])
    if actual == named:
        finding.load(named, env_id, tmp_path)
    else:
        refused(tmp_path, named, env_id, f"is an agent of {actual}.*, not of {named}: name")


@pytest.mark.parametrize("actual", list(small_agents.ALGORITHMS))
@pytest.mark.parametrize("named", list(small_agents.ALGORITHMS))
def test_wrong_algorithm_is_an_error_where_the_file_does_not_say(tmp_path, made, actual, named):
    env_id = "Pendulum-v1" if actual in small_agents.CONTINUOUS else "CartPole-v1"
    path = small_agents.save(tmp_path, named, env_id, made[actual])
    data = json.loads(small_agents.members(path, "data"))
    del data["policy_class"]
    small_agents.rewritten(path, data=json.dumps(data))
    # A2C and PPO have the same policies, and DDPG's is that of TD3 with one critic.
    same = (("a2c", "ppo"), ("ppo", "a2c"), ("td3", "ddpg"))
    if actual == named or (named, actual) in same:
        finding.load(named, env_id, tmp_path)
    else:
        refused(tmp_path, named, env_id, "do not fit|Cannot build")


@pytest.mark.parametrize(
    ("env_id", "match"),
    [
        ("Acrobot-v1", r"its observation_space has shape \(4,\), the environment's \(6,\)"),
        ("Pendulum-v1", r"its observation_space has shape \(4,\)"),
    ],
)
def test_other_environment_is_an_error(tmp_path, made, env_id, match):
    small_agents.save(tmp_path, "ppo", env_id, made["ppo"])
    refused(tmp_path, "ppo", env_id, match)


def test_other_number_of_actions_is_an_error(tmp_path):
    made = small_agents.model("dqn", small_agents.vector("MountainCar-v0"))
    small_agents.save(tmp_path, "dqn", "MountainCarContinuous-v0", made)
    refused(tmp_path, "dqn", "MountainCarContinuous-v0", "does not fit the environment|Cannot")
    made = small_agents.model(
        "ppo", small_agents.atari_vector("PongNoFrameskip-v4"), "CnnPolicy",
        policy_kwargs=small_agents.SMALL_CNN,
    )
    small_agents.save(
        tmp_path, "ppo", "BreakoutNoFrameskip-v4", made, small_agents.ATARI_CONFIG
    )
    refused(
        tmp_path, "ppo", "BreakoutNoFrameskip-v4", "knows 6 actions, the environment has 4"
    )


def test_spaces_that_are_not_told_show_in_the_tensors(tmp_path, made):
    path = small_agents.save(tmp_path, "ppo", "Acrobot-v1", made["ppo"])
    data = json.loads(small_agents.members(path, "data"))
    for name in ("observation_space", "action_space"):
        data[name] = "unknown"
    small_agents.rewritten(path, data=json.dumps(data))
    refused(tmp_path, "ppo", "Acrobot-v1", r"policy_net.0.weight \(16, 4\) for \(16, 6\)")


@pytest.mark.parametrize("wrapper", [None, small_agents.ATARI_WRAPPER])
def test_missing_wrappers_are_an_error(tmp_path, wrapper):
    made = small_agents.model(
        "a2c", small_agents.atari_vector("PongNoFrameskip-v4"), "CnnPolicy",
        policy_kwargs=small_agents.SMALL_CNN,
    )
    config = {} if wrapper is None else {"env_wrapper": wrapper}
    small_agents.save(tmp_path, "a2c", "PongNoFrameskip-v4", made, config)
    refused(tmp_path, "a2c", "PongNoFrameskip-v4", "observation_space has shape")


@pytest.mark.parametrize(
    "entries",
    [
        {"n_steps": 10**12}, {"n_steps": -5}, {"batch_size": 0}, {"gamma": "x"}, {"n_epochs": 10.5},
        {"_init_setup_model": False}, {"num_timesteps": "many"}, {"stats_window_size": -1},
        {"observation_space": {"_shape": "x"}}, {"action_space": {"n": "x"}},
        {"observation_space": {"_shape": [None]}}, {"policy_class": {"__module__": ["x"]}},
        {"policy_kwargs": {"net_arch": [10**12]}}, {"policy_kwargs": {"ortho_init": {}}},
        {"policy_kwargs": {"no_such": 1}}, {"use_sde": 3}, {"seed": 2**70},
    ],
)
def test_settings_of_no_sense_load_or_are_one_line(tmp_path, made, entries):
    path = small_agents.save(tmp_path, "ppo", "CartPole-v1", made["ppo"])
    data = {**json.loads(small_agents.members(path, "data")), **entries}
    small_agents.rewritten(path, data=json.dumps(data))
    try:
        agent = finding.load("ppo", "CartPole-v1", tmp_path)
    except errors.UserError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert agent.act(np.zeros((1, 4), np.float32)).shape == (1,)


def with_kwargs(path, kwargs, **members):
    data = json.loads(small_agents.members(path, "data"))
    small_agents.rewritten(path, data=json.dumps({**data, "policy_kwargs": kwargs}), **members)


@pytest.mark.parametrize(
    ("algo", "kwargs"),
    [
        ("ppo", {"net_arch": [60_000, 60_000]}), ("ppo", {"net_arch": [1] * 100_000}),
        ("ppo", {"net_arch": {"pi": [16], "vf": [10**7]}}),
        ("sac", {"net_arch": [16, 16], "n_critics": 10**9}),
    ],
)
def test_policies_far_larger_than_their_file_are_not_built(tmp_path, made, algo, kwargs):
    env_id = "Pendulum-v1" if algo in small_agents.CONTINUOUS else "CartPole-v1"
    path = small_agents.save(tmp_path, algo, env_id, made[algo])
    # A shape that takes no room makes no file larger.
    tensors = {**made[algo].policy.state_dict(), "more": torch.ones(1).expand(60_000, 60_000)}
    with_kwargs(path, kwargs, policy_pth=small_agents.torch_bytes(tensors))
    refused(tmp_path, algo, env_id, "asks for a far larger policy than it holds: not built")


def test_extractors_far_larger_than_their_file_are_not_built(tmp_path, atari_zoo):
    env_id = "BreakoutNoFrameskip-v4"
    shutil.copytree(atari_zoo.folder / "a2c", tmp_path / "a2c")
    path = finding.find("a2c", env_id, tmp_path)
    with_kwargs(path, {"features_extractor_kwargs": {"features_dim": 10**6}})
    refused(tmp_path, "a2c", env_id, "asks for a far larger policy")


def test_tensors_too_few_and_too_many_are_an_error(tmp_path, made):
    path = small_agents.save(tmp_path, "ppo", "CartPole-v1", made["ppo"])
    tensors = made["ppo"].policy.state_dict()
    more = {**tensors, "more.weight": tensors["action_net.weight"]}
    small_agents.rewritten(path, policy_pth=small_agents.torch_bytes(more))
    refused(tmp_path, "ppo", "CartPole-v1", "more.weight is not expected")
    fewer = {name: tensor for name, tensor in tensors.items() if name != "action_net.weight"}
    small_agents.rewritten(path, policy_pth=small_agents.torch_bytes(fewer))
    refused(tmp_path, "ppo", "CartPole-v1", r"action_net.weight missing for \(2, 16\)")


def test_models_keep_what_training_on_needs(zoo):
    model = finding.load("ppo", "CartPole-v1", zoo.folder).model
    assert (model.gamma, model.n_steps, model.batch_size) == (0.99, 2048, 64)
    assert not model.policy.training


def test_torchs_compiler_is_not_imported(zoo, monkeypatch):
    name = model_building._COMPILER
    monkeypatch.delitem(sys.modules, name, raising=False)
    with model_building.no_compiler():
        stand_in = sys.modules[name]
        assert stand_in.disable(len, True, wrapping=False) is len
    assert name not in sys.modules
    monkeypatch.setitem(sys.modules, name, "the compiler")
    with model_building.no_compiler():
        assert sys.modules[name] == "the compiler"
    assert sys.modules[name] == "the compiler"
