"""Agents are found, loaded, and act as SB3's own do."""

import json
import logging
import shutil

import numpy as np
import pytest
import stable_baselines3 as sb3
from stable_baselines3.common import vec_env
from torch import nn

from actorQ.core import errors
from baseline.agents import finding
from baseline.tasks import environments
from tests.baseline import small_agents

SMALL = [
    ("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("ddpg", "Pendulum-v1"),
    ("a2c", "Pendulum-v1"), ("ppo", "Pendulum-v1"),
]
ATARI = "BreakoutNoFrameskip-v4"


def assert_acts_alike(agent, model, environment, count=40):
    """Compares with SB3's `predict` on states that SB3's model visits; returns the actions."""
    actions = []

    def predict(observation):
        actions.append(model.predict(observation, deterministic=True)[0])
        return actions[-1]

    for raw, observation in small_agents.states(environment, predict, count):
        expected = model.predict(observation, deterministic=True)[0]
        action = agent.act(raw)
        assert action.dtype == expected.dtype
        np.testing.assert_array_equal(action, expected)
    return np.array(actions)


@pytest.mark.parametrize(("algo", "env_id"), SMALL)
def test_act_is_what_sb3_predicts(zoo, algo, env_id):
    path = finding.find(algo, env_id, zoo.folder)
    model = small_agents.ALGORITHMS[algo].load(path)
    agent = finding.load(algo, env_id, zoo.folder)
    actions = assert_acts_alike(agent, model, zoo.made[algo, env_id])
    assert len(np.unique(actions)) > 1  # Or agreeing would be no feat.
    assert (agent.algo, agent.env_id, agent.path) == (algo, env_id, path)


@pytest.mark.parametrize("algo", ["td3", "sac"])
def test_act_of_algorithms_that_are_not_the_papers(tmp_path, algo):
    environment = small_agents.vector("Pendulum-v1")
    made = small_agents.model(algo, environment)
    small_agents.save(tmp_path, algo, "Pendulum-v1", made)
    agent = finding.load(algo, "Pendulum-v1", tmp_path)
    assert len(agent.network.with_weights()) == 3 and agent.network.head == "scale"
    for raw, _ in small_agents.states(environment, lambda x: made.predict(x)[0], 40):
        expected = made.predict(raw, deterministic=True)[0]
        np.testing.assert_allclose(agent.act(raw), expected, atol=1e-6)


def test_a_layer_without_a_quantized_form_is_named(tmp_path):
    kwargs = {"activation_fn": nn.PReLU}
    made = small_agents.model("sac", small_agents.vector("Pendulum-v1"), policy_kwargs=kwargs)
    small_agents.save(tmp_path, "sac", "Pendulum-v1", made)
    with pytest.raises(errors.UserError, match="Layer actor.latent_pi.1 is a PReLU, which has no"):
        finding.load("sac", "Pendulum-v1", tmp_path)


@pytest.mark.parametrize("algo", ["a2c", "ppo", "dqn"])
def test_act_on_images_is_what_sb3_predicts(atari_zoo, algo):
    model = small_agents.ALGORITHMS[algo].load(finding.find(algo, ATARI, atari_zoo.folder))
    agent = finding.load(algo, ATARI, atari_zoo.folder)
    assert agent.network.image
    actions = assert_acts_alike(agent, model, atari_zoo.environment, 60)
    assert len(np.unique(actions)) > 1


def test_act_for_many_observations(zoo):
    agent = finding.load("a2c", "Pendulum-v1", zoo.folder)
    batch = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(
        agent.act(batch), np.concatenate([agent.act(row[None]) for row in batch]), rtol=1e-5
    )


def test_images_without_a_stack_come_channels_first(tmp_path):
    environment = small_agents.vector(ATARI, small_agents.atari_wrappers.AtariWrapper)
    made = small_agents.model(
        "ppo", environment, "CnnPolicy", noise=0.05, policy_kwargs=small_agents.SMALL_CNN
    )
    small_agents.save(
        tmp_path, "ppo", ATARI, made, {"env_wrapper": small_agents.ATARI_WRAPPER}
    )
    agent = finding.load("ppo", ATARI, tmp_path)
    own = agent.make_env()
    assert own.observation_space.shape == (1, 84, 84)
    observation, _ = own.reset(seed=0)
    own.close()
    expected = made.predict(observation, deterministic=True)[0]
    np.testing.assert_array_equal(agent.act(observation[None])[0], expected)


def test_images_flattened_by_an_mlp_are_divided_by_255(tmp_path):
    wrappers = [
        {"gymnasium.wrappers.ResizeObservation": {"shape": (12, 12)}},
        {"gymnasium.wrappers.GrayscaleObservation": {"keep_dim": True}},
    ]
    environment = vec_env.DummyVecEnv([lambda: environments.make("ALE/Pong-v5", wrappers)])
    made = small_agents.model("ppo", environment)
    path = small_agents.save(tmp_path, "ppo", "ALE/Pong-v5", made, {"env_wrapper": wrappers})
    assert path.parent.name == "ALE-Pong-v5_1"  # As rl_zoo3 calls it.
    assert finding.found(tmp_path) == [("ppo", "ALE/Pong-v5")]
    agent = finding.load("ppo", "ALE/Pong-v5", tmp_path)
    assert agent.network.image
    assert_acts_alike(agent, made, environment, 10)
    written = agent.save(tmp_path / "saved")
    assert written == tmp_path / "saved/ppo/ALE-Pong-v5_1/ALE-Pong-v5.zip"
    assert finding.find("ppo", "ALE/Pong-v5", tmp_path / "saved") == written
    assert_acts_alike(
        finding.load("ppo", "ALE/Pong-v5", tmp_path / "saved"), made, environment, 3
    )


@pytest.mark.filterwarnings("ignore:You are probably loading a DQN model")
def test_trained_agents_act_as_sb3_predicts(trained):
    pairs = finding.found(trained)
    assert len(pairs) >= 20
    for algo, env_id in pairs:
        agent = finding.load(algo, env_id, trained)
        environment = vec_env.DummyVecEnv([agent.make_env])
        # Old files refer to a gym that is gone.
        replaced = {
            "observation_space": environment.observation_space, "action_noise": None,
            "action_space": environment.action_space, "learning_rate": 0.0,
            "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0, "clip_range_vf": None,
            "exploration_schedule": lambda _: 0.0, "replay_buffer_class": None,
            "replay_buffer_kwargs": {}, "optimize_memory_usage": False, "buffer_size": 1,
            **dict.fromkeys(["_last_obs", "_last_original_obs", "_last_episode_starts"]),
            **dict.fromkeys(["ep_info_buffer", "ep_success_buffer"]),
        }
        model = small_agents.ALGORITHMS[algo].load(
            agent.path, custom_objects=replaced, device="cpu"
        )
        environment.seed(0)
        observation = environment.reset()
        for _ in range(15):
            normal = agent.normalize(observation)
            expected = model.predict(normal, deterministic=True)[0]
            np.testing.assert_array_equal(agent.act(observation), expected, f"{algo} {env_id}")
            observation, _, _, _ = environment.step(expected)
        environment.close()


def test_normalize_is_what_vecnormalize_does(zoo):
    environment = zoo.made["a2c", "Pendulum-v1"]
    agent = finding.load("a2c", "Pendulum-v1", zoo.folder)
    observations = np.random.default_rng(0).normal(0, 30, (100, 3)).astype(np.float32)
    normal = agent.normalize(observations)
    np.testing.assert_array_equal(normal, environment.normalize_obs(observations))
    assert np.abs(normal).max() == 10.0  # Where SB3 clips.
    plain = finding.load("ppo", "Pendulum-v1", zoo.folder)
    assert plain.normalize(observations) is observations


def test_config_says_whether_observations_are_normalized(zoo, tmp_path):
    source = finding.find("a2c", "Pendulum-v1", zoo.folder).parent
    target = tmp_path / "a2c" / source.name
    shutil.copytree(source, target)
    config = target / "Pendulum-v1/config.yml"
    config.write_text("normalize: false\npolicy: MlpPolicy\n")
    assert finding.load("a2c", "Pendulum-v1", tmp_path).normalization is None
    config.unlink()
    assert finding.load("a2c", "Pendulum-v1", tmp_path).normalization is not None


def test_a_wrapper_around_all_environments_is_refused(zoo, tmp_path):
    source = finding.find("ppo", "CartPole-v1", zoo.folder).parent
    target = tmp_path / "ppo" / source.name
    shutil.copytree(source, target)
    wrapper = "stable_baselines3.common.vec_env.VecNormalize"
    (target / "CartPole-v1/config.yml").write_text(
        f"policy: MlpPolicy\nvec_env_wrapper: {wrapper}"
    )
    with pytest.raises(errors.UserError, match="names a vec_env_wrapper"):
        finding.load("ppo", "CartPole-v1", tmp_path)


def test_missing_statistics_are_an_error(zoo, tmp_path):
    source = finding.find("a2c", "Pendulum-v1", zoo.folder).parent
    target = tmp_path / "a2c" / source.name
    shutil.copytree(source, target)
    (target / "Pendulum-v1/vecnormalize.pkl").unlink()
    with pytest.raises(errors.UserError, match=r"vecnormalize\.pkl is missing"):
        finding.load("a2c", "Pendulum-v1", tmp_path)


def test_statistics_beside_the_agent_are_told_not_to_be_used(zoo, tmp_path, caplog):
    source = finding.find("a2c", "Pendulum-v1", zoo.folder).parent
    target = tmp_path / "a2c" / source.name
    shutil.copytree(source, target)
    place, beside = target / "Pendulum-v1/vecnormalize.pkl", target / "vecnormalize.pkl"
    shutil.copy(place, beside)  # --eval_freq leaves there those of the best agent.
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert finding.load("a2c", "Pendulum-v1", tmp_path).normalization is not None
    assert not caplog.messages
    place.unlink()
    (target / "Pendulum-v1/config.yml").unlink()
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert finding.load("a2c", "Pendulum-v1", tmp_path).normalization is None
    (line,) = caplog.messages
    assert line == f"{beside} is not used: the statistics of observations belong in {place}."


def _trained(folder, norm_obs=True):
    """Returns an A2C of 60 steps with VecNormalize, and its environment."""
    environment = vec_env.VecNormalize(small_agents.vector("Pendulum-v1"), norm_obs=norm_obs)
    made = sb3.A2C("MlpPolicy", environment, n_steps=20, device="cpu", seed=0)
    made.learn(60)
    path = small_agents.save(folder, "a2c", "Pendulum-v1", made, normalization=environment)
    return made, environment, path


def _messages(caplog, *arguments):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="absl"):
        finding.load_file(*arguments)
    return caplog.messages


def test_statistics_of_another_moment_than_the_agent_are_told(tmp_path, caplog):
    made, environment, path = _trained(tmp_path)
    best = path.with_name("best_model.zip")
    made.save(best)
    assert _messages(caplog, "a2c", "Pendulum-v1", best) == []
    made.learn(60, reset_num_timesteps=False)
    last = path.parent / "Pendulum-v1" / "vecnormalize.pkl"
    environment.save(str(last))  # As at the end of a training whose best agent is older.
    (line,) = _messages(caplog, "a2c", "Pendulum-v1", best)
    assert f"{best} was saved after 60 steps, {last} after 121." in line
    made.save(path)
    assert _messages(caplog, "a2c", "Pendulum-v1", path) == []


def test_an_agent_of_vecnormalize_without_statistics_is_told(tmp_path, caplog):
    _, _, path = _trained(tmp_path)
    alone = tmp_path / "alone" / "my_agent.zip"
    alone.parent.mkdir()
    shutil.copy(path, alone)
    (line,) = _messages(caplog, "a2c", "Pendulum-v1", alone)
    assert line.startswith(f"{alone} was trained with VecNormalize, but its statistics are missing")
    assert line.endswith(f"copy vecnormalize.pkl to {alone.with_name('vecnormalize.pkl')}.")
    # Rewards alone were normalized, as the file of statistics says.
    _, _, path = _trained(tmp_path / "rewards", norm_obs=False)
    assert _messages(caplog, "a2c", "Pendulum-v1", path) == []
    plain = sb3.A2C("MlpPolicy", small_agents.vector("Pendulum-v1"), n_steps=20, device="cpu")
    plain.learn(20).save(alone)
    assert _messages(caplog, "a2c", "Pendulum-v1", alone) == []


def test_last_observations_outside_of_their_space_tell_vecnormalize(tmp_path, caplog):
    def save(environment):
        made = sb3.TD3("MlpPolicy", environment, learning_starts=0, device="cpu", seed=0)
        made.learn(30)
        made.save(tmp_path / "my_agent.zip")
        return made

    path = tmp_path / "my_agent.zip"
    environment = vec_env.VecNormalize(small_agents.vector("Pendulum-v1"))
    made = save(environment)
    made._last_obs[:] = (-1.9, 0.1, 0.3)  # A cosine of -1.9.
    made.save(path)
    (line,) = _messages(caplog, "td3", "Pendulum-v1", path)
    assert line.startswith(f"{path} was trained with VecNormalize, but its statistics are missing")
    save(small_agents.vector("Pendulum-v1"))
    assert _messages(caplog, "td3", "Pendulum-v1", path) == []
    data = json.loads(small_agents.members(path, "data"))
    for damaged in ({":serialized:": "&"}, {":serialized:": "gASVBQ=="}, {}, 3):
        small_agents.rewritten(path, data=json.dumps(data | {"_last_obs": damaged}).encode())
        assert _messages(caplog, "td3", "Pendulum-v1", path) == []


def test_statistics_of_another_environment_are_an_error(zoo, tmp_path):
    source = finding.find("a2c", "Pendulum-v1", zoo.folder).parent
    target = tmp_path / "a2c" / source.name
    shutil.copytree(source, target)
    other = small_agents.normalized(small_agents.vector("CartPole-v1"), 5)
    other.save(str(target / "Pendulum-v1/vecnormalize.pkl"))
    with pytest.raises(errors.UserError, match=r"shape \(4,\), the environment's are \(3,\)"):
        finding.load("a2c", "Pendulum-v1", tmp_path)


@pytest.mark.parametrize(
    ("env_id", "today", "kwargs"),
    [
        ("LunarLander-v2", "LunarLander-v3", {}),
        ("LunarLanderContinuous-v2", "LunarLander-v3", {"continuous": True}),
    ],
)
def test_renamed_environment_loads_and_says_so_once(tmp_path, caplog, env_id, today, kwargs):
    environments._told.clear()
    environment = small_agents.vector(today, **kwargs)
    made = small_agents.model("a2c", environment)
    small_agents.save(tmp_path, "a2c", env_id, made)
    with caplog.at_level(logging.INFO, logger="absl"):
        agent = finding.load("a2c", env_id, tmp_path)
        agent.make_env().close()
        finding.load("a2c", env_id, tmp_path)
    said = [line for line in caplog.messages if "successor" in line]
    assert said == [f"{env_id} does not exist any more: using its successor {today}."]
    assert agent.env_id == env_id
    assert_acts_alike(agent, made, environment, 20)


def test_env_kwargs_of_config_and_arguments(tmp_path):
    environment = small_agents.vector("LunarLander-v3", continuous=True)
    made = small_agents.model("ppo", environment)
    small_agents.save(
        tmp_path, "ppo", "LunarLander-v3", made, {"env_kwargs": {"gravity": -5.0}},
        {"env_kwargs": {"continuous": True, "gravity": -3.0}},
    )
    agent = finding.load("ppo", "LunarLander-v3", tmp_path)
    own = agent.make_env()
    assert own.unwrapped.continuous and own.unwrapped.gravity == -3.0
    own.close()


def test_ppo2_means_ppo(zoo):
    assert finding.load("ppo2", "CartPole-v1", zoo.folder).algo == "ppo"
    assert finding.check_algo(" PPO2 ") == "ppo"
    with pytest.raises(errors.UserError, match="'ars' is not known: a2c, ppo, dqn, ddpg, td3"):
        finding.check_algo("ars")


def test_found_lists_whole_agents_only(zoo, tmp_path):
    assert finding.found(zoo.folder) == sorted(SMALL)
    source = finding.find("ppo", "CartPole-v1", zoo.folder)
    for name in ("ppo/A-v0_1/A-v0.zip", "dqn/A-v0_12/A-v0.zip", "a2c/B_2/B_2.zip"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(source, tmp_path / name)
    for name in (
        "ppo/.unfinished-x/A-v0.zip", "ppo/C-v0_1/other.zip", "ars/A-v0_1/A-v0.zip", "ppo/D-v0.zip",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / name)
    (tmp_path / "ppo/E-v0_1/E-v0").mkdir(parents=True)
    (tmp_path / "ppo/notes.txt").write_text("")
    assert finding.found(tmp_path) == [("a2c", "B_2"), ("dqn", "A-v0"), ("ppo", "A-v0")]
    assert finding.found(tmp_path / "nowhere") == []


def test_find_takes_the_highest_number(tmp_path):
    def add(name):
        path = tmp_path / "ppo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    for name in (
        "CartPole-v1.zip", "CartPole-v1/CartPole-v1.zip", "CartPole-v1_9/CartPole-v1.zip",
        "CartPole-v1_10/CartPole-v1.zip",
    ):
        add(name)
        assert finding.find("ppo", "CartPole-v1", tmp_path) == tmp_path / "ppo" / name
    add("CartPole-v10_11/CartPole-v10.zip")
    add("CartPole-v1_11/other.zip")
    assert finding.find("ppo", "CartPole-v1", tmp_path).parent.name == "CartPole-v1_10"


@pytest.mark.parametrize("program", ["baseline.train", "baseline.qat"])
def test_find_takes_a_finished_agent_whichever_program_trained_it(tmp_path, caplog, program):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    arguments = {"program": program, "n_timesteps": 100}
    made.num_timesteps = 99
    stopped = small_agents.save(tmp_path, "ppo", "CartPole-v1", made, args=arguments, number=2)
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert finding.find("ppo", "CartPole-v1", tmp_path) == stopped
    (line,) = caplog.messages
    assert line.endswith(f"python -m {program} --resume goes on.")
    made.num_timesteps = 100
    whole = small_agents.save(tmp_path, "ppo", "CartPole-v1", made, args=arguments)
    assert finding.find("ppo", "CartPole-v1", tmp_path) == whole
    # rl_zoo3 does not note who trained.
    (stopped.parent / "CartPole-v1/args.yml").write_text("n_timesteps: 100\n")
    assert finding.find("ppo", "CartPole-v1", tmp_path) == stopped


def test_find_tells_what_there_is(zoo, tmp_path):
    with pytest.raises(errors.UserError) as caught:
        finding.find("ppo", "Acrobot-v1", zoo.folder)
    assert "There is no agent ppo Acrobot-v1" in str(caught.value)
    assert "dqn CartPole-v1, ppo CartPole-v1" in str(caught.value)
    with pytest.raises(errors.UserError, match=r"There is no folder .*nowhere: --folder"):
        finding.find("ppo", "Acrobot-v1", tmp_path / "nowhere")
    with pytest.raises(errors.UserError, match=r"there are: none"):
        finding.find("ppo", "Acrobot-v1", tmp_path)


def test_an_agent_of_a_renamed_environment_is_told_by_its_name(tmp_path):
    path = tmp_path / "ppo/LunarLander-v3_1/LunarLander-v3.zip"
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(errors.UserError, match=r"trained and saved as LunarLander-v3: name that"):
        finding.find("ppo", "LunarLander-v2", tmp_path)
    with pytest.raises(errors.UserError, match="Train one: .* --algo dqn --env LunarLander-v3;"):
        finding.find("dqn", "LunarLander-v2", tmp_path)


@pytest.mark.parametrize(
    "env_id",
    [
        "../CartPole-v1", "../../ppo/CartPole-v1", "/etc/passwd", "a/b/c", "", "*", "CartPole-v[1]",
        "os:CartPole-v1", "CartPole-v1\0", "CartPole-v1\n", "x" * 5000, "..", "a\\b",
    ],
)
def test_names_that_mean_more_are_refused(zoo, env_id):
    with pytest.raises(errors.UserError, match="cannot be the name of an environment") as caught:
        finding.load("ppo", env_id, zoo.folder)
    assert len(str(caught.value)) < 300
