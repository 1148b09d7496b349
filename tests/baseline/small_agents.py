"""Small agents that SB3 itself makes and saves, in the zoo's layout."""

import collections
import io
import pathlib
import pickle
import warnings
import zipfile

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common import monitor
from stable_baselines3.common import vec_env
import torch
import yaml

from baseline.tasks import environments

ALGORITHMS = {
    "a2c": sb3.A2C, "ppo": sb3.PPO, "dqn": sb3.DQN, "ddpg": sb3.DDPG, "td3": sb3.TD3,
    "sac": sb3.SAC,
}
CONTRIB = {
    "qrdqn": sb3_contrib.QRDQN, "tqc": sb3_contrib.TQC, "trpo": sb3_contrib.TRPO,
    "maskable_ppo": sb3_contrib.MaskablePPO,
}
CONTINUOUS = ("ddpg", "td3", "sac", "tqc")  # They need continuous actions.
ATARI_WRAPPER = "stable_baselines3.common.atari_wrappers.AtariWrapper"
ATARI_CONFIG = {"env_wrapper": [ATARI_WRAPPER], "frame_stack": 4, "policy": "CnnPolicy"}
SMALL_CNN = {"features_extractor_kwargs": {"features_dim": 32}}


def vector(env_id, wrap=lambda env: env, **kwargs):
    """Returns SB3's own kind of environment."""
    environments.register()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They are about old versions.
        env = gym.make(env_id, **kwargs)
    return vec_env.DummyVecEnv([lambda: wrap(monitor.Monitor(env))])


def atari_vector(env_id):
    """Returns an Atari game as SB3 and the zoo wrap it."""
    stacked = vec_env.VecFrameStack(vector(env_id, atari_wrappers.AtariWrapper), 4)
    return vec_env.VecTransposeImage(stacked)


def normalized(environment, steps=200, **kwargs):
    """Returns an environment with the statistics of random play, as a training has them."""
    environment = vec_env.VecNormalize(environment, **kwargs)
    environment.seed(0)
    environment.action_space.seed(0)
    environment.reset()
    for _ in range(steps):
        environment.step([environment.action_space.sample()])
    environment.training = environment.norm_reward = False
    return environment


def model(algo, environment, policy="MlpPolicy", seed=0, noise=0.3, **kwargs):
    """Returns an untrained model whose actions differ from state to state."""
    if policy == "MlpPolicy":
        kwargs["policy_kwargs"] = {"net_arch": [16, 16], **kwargs.get("policy_kwargs", {})}
    if algo in ("dqn", "qrdqn", *CONTINUOUS):
        kwargs["buffer_size"] = 10
    made = {**ALGORITHMS, **CONTRIB}[algo](policy, environment, seed=seed, device="cpu", **kwargs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.policy.parameters():
            if parameter.ndim < 2:
                continue  # A bias makes one action the best everywhere.
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    return made


def save(folder, algo, env_id, made, config=None, args=None, normalization=None, number=1):
    """Writes an agent as the zoo does; returns its zip."""
    name = env_id.replace("/", "-")
    target = pathlib.Path(folder, algo, f"{name}_{number}")
    settings = target / name
    settings.mkdir(parents=True)
    config = {"policy": "MlpPolicy", **(config or {})}
    if normalization is not None:
        config["normalize"] = True
        normalization.save(str(settings / "vecnormalize.pkl"))
    for filename, content in (("config.yml", config), ("args.yml", {"algo": algo, **(args or {})})):
        # The zoo's files are ordered dictionaries, which YAML writes as Python objects.
        (settings / filename).write_text(yaml.dump(collections.OrderedDict(content)))
    path = target / f"{name}.zip"
    made.save(path)
    return path


def rewritten(path, **members):
    """Replaces members of a zip (None: leaves them out); policy_pth stands for policy.pth."""
    members = {name.replace("policy_pth", "policy.pth"): data for name, data in members.items()}
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content.update(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            if data is not None:
                archive.writestr(name, data)


def torch_bytes(thing):
    """Returns what torch.save writes."""
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def members(path, name):
    """Returns a member of a zip."""
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


class Payload:
    """Makes a file when it is unpickled: proof that a pickle has run."""

    def __init__(self, marker):
        self._marker = str(marker)

    def __reduce__(self):
        return open, (self._marker, "w")

    def pickled(self):
        """Returns the pickle."""
        return pickle.dumps(self)


def states(environment, act, count=40, seed=0):
    """Yields raw and normalized observations [1, ...] that a policy visits."""
    environment.seed(seed)
    observation = environment.reset()
    for _ in range(count):
        raw = observation
        if isinstance(environment, vec_env.VecNormalize):
            raw = environment.get_original_obs()
        yield np.array(raw), observation
        observation, _, _, _ = environment.step(act(observation))
