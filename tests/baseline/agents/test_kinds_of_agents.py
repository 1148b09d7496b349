"""Agents of every kind act as in Stable-Baselines3, and go through PTQ, integers and export."""

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
from stable_baselines3.common import vec_env

from actorQ.core import errors
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import finding
from baseline.deploy import deploying
from baseline.deploy import exporting
from baseline.deploy import integer_forms
from baseline.deploy import loading
from baseline.formats import names
from baseline.quantization import acting_path
from baseline.quantization import schemes
from baseline.study import measuring
from baseline.tasks import environments
from tests.baseline import own_agents
from tests.baseline import small_agents

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture
def own_code(monkeypatch):
    """Trusts the module of the own features extractor, as a user does by the variable."""
    monkeypatch.setenv(environments.OWN_MODULES, own_agents.__name__)


def register(monkeypatch, kind):
    spec = gym.envs.registration.EnvSpec(
        own_agents.ENV_ID, lambda: kind.task(kind.observed, kind.actions)
    )
    monkeypatch.setitem(gym.registry, own_agents.ENV_ID, spec)


def made(kind, **kwargs):
    """Returns an untrained model of Stable-Baselines3."""
    environment = vec_env.DummyVecEnv([lambda: kind.task(kind.observed, kind.actions)])
    policy = "MultiInputPolicy" if isinstance(kind.observed, gym.spaces.Dict) else "MlpPolicy"
    policy_kwargs = dict(kind.policy_kwargs)
    if policy == "MultiInputPolicy":
        policy_kwargs.update(net_arch=[16], features_extractor_kwargs={"cnn_output_dim": 8})
    return small_agents.model(
        kind.algo, environment, policy, policy_kwargs=policy_kwargs, **kind.arguments, **kwargs
    )


def saved(tmp_path, monkeypatch, kind):
    """Saves an agent; returns Stable-Baselines3's model."""
    register(monkeypatch, kind)
    model = made(kind)
    small_agents.save(tmp_path, kind.algo, own_agents.ENV_ID, model)
    return model


def predictions(model, environment, actions):
    """Yields the actions of Stable-Baselines3 for the raw observations of an episode."""
    observation, _ = environment.reset(seed=3)
    for action in actions:
        kwargs = {}
        if environment.has_wrapper_attr("action_masks"):
            kwargs["action_masks"] = environment.get_wrapper_attr("action_masks")()
        yield model.predict(observation, deterministic=True, **kwargs)[0]
        observation, *_ = environment.step(action)


@pytest.mark.parametrize("name", own_agents.KINDS)
def test_agents_act_as_in_stable_baselines(tmp_path, monkeypatch, own_code, name):
    kind = own_agents.KINDS[name]
    model = saved(tmp_path, monkeypatch, kind)
    agent = finding.load(kind.algo, own_agents.ENV_ID, tmp_path)
    environment = agent.make_env()
    observation, _ = environment.reset(seed=3)
    actions, shown = [], []
    for _ in range(own_agents.LENGTH):
        shown.append(observation)
        actions.append(agent.act(observation[None])[0])
        observation, *_ = environment.step(actions[-1])
    raw = environments.make(own_agents.ENV_ID)
    expected = list(predictions(model, raw, actions))
    np.testing.assert_allclose(np.stack(actions), np.stack(expected), rtol=1e-4, atol=1e-4)
    outputs = acting_path.forward(agent.network, np.stack(shown)).numpy()
    assert np.ptp(outputs, axis=0).max() > 1e-3  # Observations matter.


@pytest.mark.parametrize("name", own_agents.KINDS)
def test_agents_are_quantized_and_saved(tmp_path, monkeypatch, own_code, name):
    kind = own_agents.KINDS[name]
    saved(tmp_path, monkeypatch, kind)
    agent = finding.load(kind.algo, own_agents.ENV_ID, tmp_path)
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    request = measuring.Request(
        kind.algo, own_agents.ENV_ID, scheme, str(tmp_path), str(tmp_path / "quantized"), (0,), 2, 1
    )
    row = measuring.measure(request, agent)
    assert row.episodes == 2 and np.isfinite(row.error)
    folder = measuring.quantized_folder(request)
    again = finding.load(kind.algo, own_agents.ENV_ID, folder)
    environment = again.make_env()
    observations = np.stack([environment.reset(seed=seed)[0] for seed in range(20)])
    np.testing.assert_array_equal(again.act(observations), agent.act(observations))
    assert all(
        len(np.unique(weights)) <= 256 * len(weights) for weights in again.weights().values()
    )


@pytest.mark.parametrize("name", own_agents.KINDS)
def test_agents_are_exported(tmp_path, monkeypatch, own_code, name):
    kind = own_agents.KINDS[name]
    saved(tmp_path, monkeypatch, kind)
    agent = finding.load(kind.algo, own_agents.ENV_ID, tmp_path)
    ranges = calibration.ranges(agent, 2)
    states = agreement.visited_states(agent.make_env, agent.act, 2, 1, 24)
    acted = agent.act(states)
    layer_bits = {layer: 8 for layer, _ in agent.network.with_weights()}
    simulated = integer_forms.simulate(agent.network, layer_bits, ranges)(states)

    def alike(reference, content, file_format):
        found = exporting.one_by_one(exporting.load_file(content, file_format))(states)
        network = agent.network
        return agreement.compare(reference, found, network.low, network.high).alike

    for file_format in ("onnx", "torchscript"):
        how = exporting.Settings(file_format, 32, names.scheme(file_format, 32, None))
        assert alike(acted, exporting.export(agent, how), file_format) == 1.0, file_format
    for file_format in ("onnx", "tflite"):
        content = exporting.export(agent, exporting.Settings(file_format, 8), ranges)
        assert alike(simulated, content, file_format) >= 0.9, file_format
    how = exporting.Settings("torchscript", 8, schemes.WEIGHTS)
    assert exporting.load_file(exporting.export(agent, how), "torchscript")(states[0]).shape == (
        acted[0].shape
    )


@pytest.mark.parametrize(
    ("name", "keys"), [("Dict", ["vector"]), ("MaskablePPO", None), ("SiLU", None)]
)
def test_normalized_observations(tmp_path, monkeypatch, name, keys):
    kind = own_agents.KINDS[name]
    register(monkeypatch, kind)
    statistics = small_agents.normalized(  # Random actions may be forbidden ones.
        vec_env.DummyVecEnv([lambda: own_agents.Task(kind.observed, kind.actions)]), 40,
        norm_obs_keys=keys, clip_obs=0.7,
    )
    model = made(kind)
    small_agents.save(tmp_path, kind.algo, own_agents.ENV_ID, model, normalization=statistics)
    agent = finding.load(kind.algo, own_agents.ENV_ID, tmp_path)
    flat, raw = agent.make_env(), environments.make(own_agents.ENV_ID)
    states, expected = [], []
    for seed in range(20):
        observation = raw.reset(seed=seed)[0]
        states.append(flat.reset(seed=seed)[0])
        kwargs = {}
        if kind.task is own_agents.MaskedTask:
            kwargs["action_masks"] = raw.get_wrapper_attr("action_masks")()
        normal = statistics.normalize_obs(observation)
        expected.append(model.predict(normal, deterministic=True, **kwargs)[0])
    states = np.stack(states)
    np.testing.assert_array_equal(agent.act(states), np.stack(expected))
    for file_format in ("onnx", "torchscript"):
        how = exporting.Settings(file_format, 32, names.scheme(file_format, 32, None))
        policy = exporting.load_file(exporting.export(agent, how), file_format)
        found = exporting.one_by_one(policy)(states)
        np.testing.assert_array_equal(found, agent.act(states))
    content = exporting.export(agent, exporting.Settings("tflite"))
    found = exporting.one_by_one(exporting.load_file(content, "tflite"))(states)
    assert agreement.compare(agent.act(states), found).alike >= 0.8
    path = agent.save(tmp_path / "again")
    again = finding.load(kind.algo, own_agents.ENV_ID, tmp_path / "again")
    np.testing.assert_array_equal(again.act(states), agent.act(states))
    theirs = vec_env.VecNormalize.load(
        str(path.parent / own_agents.ENV_ID / "vecnormalize.pkl"),
        vec_env.DummyVecEnv([lambda: kind.task(kind.observed, kind.actions)]),
    )
    observation = raw.reset(seed=1)[0]
    if keys:
        assert theirs.norm_obs_keys == keys
        observation = {key: np.asarray(value) for key, value in observation.items()}
    np.testing.assert_equal(
        theirs.normalize_obs(observation), statistics.normalize_obs(observation)
    )


@pytest.mark.parametrize(
    ("of", "other", "match"),
    [
        ("Dict", "SiLU", "statistics of a Dict, but the observations are of a Box space"),
        ("SiLU", "Dict of one", "statistics of one array, but the observations are of a Dict"),
    ],
)
def test_statistics_of_other_spaces_are_an_error(tmp_path, monkeypatch, of, other, match):
    kind, other = own_agents.KINDS[of], own_agents.KINDS[other]
    keys = ["vector"] if of == "Dict" else None
    statistics = small_agents.normalized(
        vec_env.DummyVecEnv([lambda: kind.task(kind.observed, kind.actions)]), 4,
        norm_obs_keys=keys,
    )
    register(monkeypatch, other)
    small_agents.save(
        tmp_path, other.algo, own_agents.ENV_ID, made(other), normalization=statistics
    )
    with pytest.raises(errors.UserError, match=match):
        finding.load(other.algo, own_agents.ENV_ID, tmp_path)


def test_deploy_says_how_a_dict_is_laid_out(tmp_path, monkeypatch, capsys):
    kind = own_agents.KINDS["Dict"]
    saved(tmp_path, monkeypatch, kind)
    path = str(tmp_path / "ppo" / f"{own_agents.ENV_ID}_1")
    out = str(tmp_path / "out")
    deploying.deploy(loading.load(path), path, exporting.Settings(), out, checks=True)
    printed = capsys.readouterr().out
    assert (
        "Its observation is one vector of floats: bits (2), then choice (1), then image "
        "(1x36x36), then vector (3)." in printed
    )
    assert "Acts as" in printed


def test_classes_of_others_are_not_imported(tmp_path, monkeypatch):
    kind = own_agents.KINDS["own extractor"]
    saved(tmp_path, monkeypatch, kind)
    with pytest.raises(errors.UserError, match="Residual, which is not of a library .*MODULE nam"):
        finding.load("ppo", own_agents.ENV_ID, tmp_path)
    monkeypatch.setenv(environments.OWN_MODULES, "tests.baseline.players")
    with pytest.raises(errors.UserError, match="Residual, which is not of a library that is trust"):
        finding.load("ppo", own_agents.ENV_ID, tmp_path)


def test_classes_of_scripts_are_found_in_own_modules(tmp_path, monkeypatch, own_code):
    monkeypatch.setattr(own_agents.Residual, "__module__", "__main__")
    kind = own_agents.KINDS["own extractor"]
    model = saved(tmp_path, monkeypatch, kind)
    agent = finding.load("ppo", own_agents.ENV_ID, tmp_path)
    observed = np.zeros((1, 4), np.float32)
    assert agent.act(observed) == model.predict(observed, deterministic=True)[0]


@pytest.mark.parametrize("folder", ["ppo_lstm", "ppo"])
def test_recurrent_policies_are_refused_by_name(tmp_path, folder):
    model = sb3_contrib.RecurrentPPO(
        "MlpLstmPolicy", small_agents.vector("CartPole-v1"), n_steps=8, device="cpu",
        policy_kwargs={"lstm_hidden_size": 4},
    )
    path = small_agents.save(tmp_path, folder, "CartPole-v1", model, args={"algo": folder})
    for load in (
        lambda: finding.load(folder, "CartPole-v1", tmp_path), lambda: loading.load(str(path)),
    ):
        with pytest.raises(errors.UserError, match="RecurrentPPO remembers .* no quantized form"):
            load()
    (path.parent / "CartPole-v1" / "args.yml").unlink()
    with pytest.raises(errors.UserError, match="RecurrentPPO remembers"):
        loading.load(str(path))
    with pytest.raises(errors.UserError, match="RecurrentPPO remembers"):
        acting_path.policy_network(model)


@pytest.mark.parametrize(
    ("observed", "actions", "match"),
    [
        (gym.spaces.Discrete(7), None, "its observation_space is a Box space, the environ"),
        (own_agents.MIXED, None, "its observation_space is a Box space, the environment's a Dict"),
        (None, gym.spaces.MultiDiscrete([2, 3]), "its action_space is a Discrete space, the env"),
    ],
)
def test_other_spaces_are_an_error(tmp_path, monkeypatch, observed, actions, match):
    kind = own_agents.Kind("ppo")
    saved(tmp_path, monkeypatch, kind)
    other = kind._replace(
        observed=observed or kind.observed, actions=actions or kind.actions
    )
    register(monkeypatch, other)
    with pytest.raises(errors.UserError, match=match):
        finding.load("ppo", own_agents.ENV_ID, tmp_path)


def test_other_sizes_of_several_actions_are_an_error(tmp_path, monkeypatch):
    kind = own_agents.KINDS["several actions"]
    saved(tmp_path, monkeypatch, kind)
    register(monkeypatch, kind._replace(actions=gym.spaces.MultiDiscrete([2, 3])))
    with pytest.raises(errors.UserError, match=r"it knows \[3 2\] actions, the environment has"):
        finding.load("ppo", own_agents.ENV_ID, tmp_path)


def test_masks_of_another_length_are_an_error(tmp_path, monkeypatch):
    kind = own_agents.KINDS["MaskablePPO"]
    saved(tmp_path, monkeypatch, kind)
    monkeypatch.setattr(own_agents.MaskedTask, "action_masks", lambda self: np.ones(3, bool))
    agent = finding.load("maskable_ppo", own_agents.ENV_ID, tmp_path)
    with pytest.raises(errors.UserError, match="gives 3 numbers instead of 4, one for each action"):
        agent.make_env().reset(seed=0)


def test_names_of_algorithms():
    assert finding.check_algo("QR-DQN") == "qrdqn"
    assert finding.check_algo("MaskablePPO") == "maskable_ppo"
    with pytest.raises(errors.UserError, match="RecurrentPPO remembers"):
        finding.check_algo("recurrent_ppo")
    with pytest.raises(errors.UserError, match="CrossQ .*BatchRenorm"):
        finding.check_algo("crossq")
