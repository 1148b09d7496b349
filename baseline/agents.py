"""Trained agents in the layout of rl-baselines3-zoo: found, loaded safely, saved again.

See `zoo_files` for what is read and how. ActorQ's policies come through `actorq_agents` in the
same form.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import inspect
import json
import pathlib
import re
import shutil
from typing import Any
import warnings

from absl import logging
import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
from stable_baselines3.common import base_class
from stable_baselines3.common import vec_env
import torch
import yaml

from actorQ import errors
from baseline import environments
from baseline import networks
from baseline import quantize
from baseline import results
from baseline import zoo_files

ALGORITHMS = {"a2c": sb3.A2C, "ppo": sb3.PPO, "dqn": sb3.DQN, "ddpg": sb3.DDPG}
QUANTIZATION_FILENAME = "quantization.json"
# The module that a policy's class comes from tells the family of the algorithm.
_FAMILIES = {
    "stable_baselines3.common.policies": ("a2c", "ppo"),
    "stable_baselines3.a2c.policies": ("a2c", "ppo"),
    "stable_baselines3.ppo.policies": ("a2c", "ppo"),
    "stable_baselines3.dqn.policies": ("dqn",),
    "stable_baselines3.td3.policies": ("ddpg", "td3"),
    "stable_baselines3.sac.policies": ("sac",),
    "sb3_contrib.tqc.policies": ("tqc",),
    "sb3_contrib.qrdqn.policies": ("qrdqn",),
}


@dataclasses.dataclass
class Agent:
    """A trained agent, ready to play.

    Attributes:
      algo: a2c, ppo, dqn or ddpg (ActorQ: d4pg or dqn).
      env_id: the environment's name as the agent was saved with.
      path: of its file.
      network: the acting path.
      make_env: makes one environment, wrapped as in training, a monitor inside. Takes a render
        mode ("rgb_array", "human") or nothing.
      save: writes the agent, as it is now, into a folder of the zoo's layout; returns the file.
      normalization: of observations; None: they are used as they come.
      tap: quantizes activations; None: they stay in fp32.
      quantization: how the agent was quantized, if it was.
      model: SB3's model; None for ActorQ's policies.
    """

    algo: str
    env_id: str
    path: pathlib.Path
    network: networks.PolicyNetwork
    make_env: Callable[..., gym.Env]
    save: Callable[["Agent", pathlib.Path], pathlib.Path]
    normalization: zoo_files.Normalization | None = None
    tap: networks.Tap | None = None
    quantization: tuple[quantize.Scheme, quantize.Ranges | None] | None = None
    model: base_class.BaseAlgorithm | None = None

    def normalize(self, observations: np.ndarray) -> np.ndarray:
        """Returns observations [B, ...] as the network takes them."""
        return observations if self.normalization is None else self.normalization(observations)

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Returns deterministic actions for raw observations [B, ...]."""
        outputs = networks.forward(self.network, self.normalize(observations), self.tap)
        return networks.to_actions(self.network, outputs.numpy())

    def note_quantization(self, scheme: quantize.Scheme, ranges: quantize.Ranges | None) -> None:
        """Notes how the weights were quantized; with ranges, `act` quantizes activations too."""
        self.quantization = (scheme, ranges)
        if ranges is not None:
            self.tap = quantize.ActivationQuantizer(scheme, ranges)

    def write_quantization(self, path: pathlib.Path) -> None:
        """Keeps what was noted, if anything, beside the agent."""
        if self.quantization is not None:
            path.write_text(json.dumps(quantize.to_json(*self.quantization), indent=1))

    def restore_quantization(self, path: pathlib.Path) -> None:
        """Notes again what was kept in a file.

        Raises:
          errors.UserError: it is damaged.
        """
        try:
            self.note_quantization(*quantize.from_json(json.loads(path.read_text())))
        except (OSError, ValueError) as error:
            raise errors.UserError(f"Cannot read {path}: {errors.summary(error)}") from None


def check_algo(name: str) -> str:
    """Returns the canonical name.

    Raises:
      errors.UserError: the algorithm is not one of ours.
    """
    algo = results.canonical_algo(name)
    if algo not in ALGORITHMS:
        raise errors.UserError(
            f"The algorithm {name!r} is not known: {', '.join(ALGORITHMS)} are (ppo2 means ppo)."
        )
    return algo


def found(folder: str | pathlib.Path) -> list[tuple[str, str]]:
    """Returns algorithm and environment of every agent below a folder, sorted."""
    pairs = set()
    for algo in ALGORITHMS:
        for entry in pathlib.Path(folder, algo).glob("*"):
            env_id = re.sub(r"_\d+$", "", entry.name)
            if (entry / f"{env_id}.zip").is_file():
                pairs.add((algo, env_id))
    return sorted(pairs)


def find(algo: str, env_id: str, folder: str | pathlib.Path) -> pathlib.Path:
    """Returns the zip of the newest agent (highest number) of a pair.

    Raises:
      errors.UserError: there is none; says which there are.
    """
    candidates = []
    for entry in pathlib.Path(folder, algo).glob(f"{env_id}*"):
        number = re.fullmatch(re.escape(env_id) + r"(?:_(\d+))?", entry.name)
        if number and (entry / f"{env_id}.zip").is_file():
            candidates.append((int(number.group(1) or 0), entry / f"{env_id}.zip"))
    direct = pathlib.Path(folder, algo, f"{env_id}.zip")
    if direct.is_file():
        candidates.append((-1, direct))
    if candidates:
        return max(candidates)[1]
    if not pathlib.Path(folder).is_dir():
        raise errors.UserError(f"There is no folder {folder}: --folder names one with agents.")
    there = ", ".join(f"{a} {e}" for a, e in found(folder)) or "none"
    raise errors.UserError(
        f"There is no agent {algo} {env_id} in {folder} (there are: {there}). Train one: python -m "
        f"baseline.train --algo {algo} --env {env_id}; or fetch the zoo's: --hub."
    )


def load(algo: str, env_id: str, folder: str | pathlib.Path) -> Agent:
    """Loads an agent without running anything that its files contain.

    Args:
      algo: a2c, ppo, dqn, ddpg; ppo2 means ppo.
      env_id: environment, as in the file's name.
      folder: laid out as FOLDER/ALGO/ENV_<n>/ENV.zip.

    Raises:
      errors.UserError: it is missing, damaged, of another algorithm, or does not fit its
        environment.
    """
    algo = check_algo(algo)
    path = find(algo, env_id, folder)
    saved = zoo_files.read_zip(path)
    _check_family(algo, saved, path)
    settings = path.parent / env_id
    config = zoo_files.read_yaml(settings / "config.yml")
    arguments = zoo_files.read_yaml(settings / "args.yml")
    frame_stack = config.get("frame_stack", 1)
    make_env = functools.partial(
        _make_env, env_id, config.get("env_wrapper"), frame_stack,
        {**(config.get("env_kwargs") or {}), **(arguments.get("env_kwargs") or {})},
    )
    normalization = zoo_files.read_normalization(settings / "vecnormalize.pkl")
    if config.get("normalize") and normalization is None and not (
        settings / "vecnormalize.pkl"
    ).exists():
        raise errors.UserError(
            f"{path} was trained on normalized observations, but {settings / 'vecnormalize.pkl'} "
            "is missing: copy it from where the agent comes from."
        )
    model = _build(algo, saved, make_env, path)
    agent = Agent(
        algo, env_id, path, networks.policy_network(model), make_env, _save, normalization,
        model=model,
    )
    if (settings / QUANTIZATION_FILENAME).exists():
        agent.restore_quantization(settings / QUANTIZATION_FILENAME)
    return agent


def _make_env(
    env_id: str,
    wrappers: Any,
    frame_stack: int,
    env_kwargs: Mapping[str, Any],
    render_mode: str | None = None,
) -> gym.Env:
    return environments.make(env_id, wrappers, frame_stack, env_kwargs, render_mode)


def _check_family(algo: str, saved: zoo_files.SavedModel, path: pathlib.Path) -> None:
    policy_class = saved.data.get("policy_class")
    module = policy_class.get("__module__") if isinstance(policy_class, Mapping) else None
    family = _FAMILIES.get(module)
    if family is not None and algo not in family:
        raise errors.UserError(
            f"{path} is an agent of {' or '.join(family)}, not of {algo}: name the right algorithm."
        )
    # A2C and PPO share their policies; what else is in the file tells them apart.
    if family == ("a2c", "ppo"):
        actual = "ppo" if "n_epochs" in saved.data else "a2c"
        if actual != algo:
            raise errors.UserError(
                f"{path} is an agent of {actual}, not of {algo}: name the right algorithm."
            )


def _build(
    algo: str, saved: zoo_files.SavedModel, make_env: Callable[..., gym.Env], path: pathlib.Path
) -> base_class.BaseAlgorithm:
    """Makes the model anew from what is plain, and fills in the tensors."""
    algorithm = ALGORITHMS[algo]
    environment = vec_env.DummyVecEnv([make_env])
    try:
        _check_spaces(saved, environment, path)
        cnn = any(".cnn." in name for name in saved.state_dict)
        kwargs = {
            name: saved.data[name]
            for name in inspect.signature(algorithm).parameters
            if name in saved.data
            and isinstance(saved.data[name], bool | int | float)
            and name not in ("buffer_size", "seed", "verbose")
        }
        kwargs["learning_rate"] = 0.0
        if "buffer_size" in inspect.signature(algorithm).parameters:
            kwargs["buffer_size"] = 1
            kwargs.pop("optimize_memory_usage", None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # About rollout sizes: it is not going to train.
            model = algorithm(
                "CnnPolicy" if cnn else "MlpPolicy", environment, device="cpu",
                policy_kwargs=dict(saved.policy_kwargs), **kwargs,
            )
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise errors.UserError(
            f"Cannot build the policy of {path} on {environment.observation_space}: "
            f"{errors.summary(error)}"
        ) from None
    finally:
        environment.close()
    _load_tensors(model, saved, path)
    model.num_timesteps = int(saved.data.get("num_timesteps") or 0)
    model.policy.set_training_mode(False)
    return model


def _check_spaces(
    saved: zoo_files.SavedModel, environment: vec_env.VecEnv, path: pathlib.Path
) -> None:
    for name in ("observation_space", "action_space"):
        facts, space = saved.data.get(name), getattr(environment, name)
        if not isinstance(facts, Mapping):
            continue
        shape = facts.get("_shape", facts.get("shape"))
        here = list(space.shape)
        # Images may be stored with the channels first or last.
        if shape is not None and sorted(shape) != sorted(here):
            raise errors.UserError(
                f"{path} does not fit the environment: its {name} has shape {tuple(shape)}, the "
                f"environment's {tuple(here)}."
            )
        n = facts.get("n")
        if n is not None and hasattr(space, "n") and int(n) != int(space.n):
            raise errors.UserError(
                f"{path} does not fit the environment: it knows {n} actions, the environment has "
                f"{space.n}."
            )


def _load_tensors(
    model: base_class.BaseAlgorithm, saved: zoo_files.SavedModel, path: pathlib.Path
) -> None:
    tensors = dict(saved.state_dict)
    expected = model.policy.state_dict()
    # Since SB3 1.8 a shared features extractor is listed three times.
    for name in expected:
        old = re.sub(r"^(pi|vf)_features_extractor\.", "features_extractor.", name)
        if name not in tensors and old in tensors:
            tensors[name] = tensors[old]
    different = [
        f"{name} {tuple(tensors[name].shape) if name in tensors else 'missing'} for "
        f"{tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name not in tensors or tensors[name].shape != tensor.shape
    ]
    different += [f"{name} is not expected" for name in tensors if name not in expected]
    if different:
        raise errors.UserError(
            f"The tensors of {path} do not fit its policy and environment: "
            f"{'; '.join(different[:3])}{' ...' if len(different) > 3 else ''}."
        )
    model.policy.load_state_dict(tensors)


def _save(agent: Agent, folder: pathlib.Path) -> pathlib.Path:
    """Writes the agent in the zoo's layout, loadable by SB3 itself without custom objects.

    The environment's name, configuration and normalization go with it.
    """
    target = pathlib.Path(folder, agent.algo, f"{agent.env_id}_1")
    settings = target / agent.env_id
    # What an agent of before left there would be read as this one's.
    shutil.rmtree(target, ignore_errors=True)
    settings.mkdir(parents=True)
    for name in ("config.yml", "args.yml", "env_kwargs.yml"):
        source = agent.path.parent / agent.env_id / name
        if source.exists():
            content = zoo_files.read_yaml(source)
            (settings / name).write_text(yaml.safe_dump(_plain(content), sort_keys=True))
    if agent.normalization is not None:
        _save_normalization(agent, settings / "vecnormalize.pkl")
    agent.write_quantization(settings / QUANTIZATION_FILENAME)
    path = target / f"{agent.env_id}.zip"
    agent.model.save(path)
    return path


def _plain(value: Any) -> Any:
    """Returns settings without tuples, which the safe YAML writer does not know."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _save_normalization(agent: Agent, path: pathlib.Path) -> None:
    """Writes the statistics as SB3's own class, for SB3's own loader."""
    environment = vec_env.VecNormalize(
        vec_env.DummyVecEnv([agent.make_env]),
        training=False,
        norm_reward=False,
        clip_obs=agent.normalization.clip,
        epsilon=agent.normalization.epsilon,
    )
    environment.obs_rms.mean = agent.normalization.mean
    environment.obs_rms.var = agent.normalization.variance
    environment.obs_rms.count = agent.normalization.count
    environment.save(str(path))
    environment.close()


def fetch(algo: str, env_id: str, folder: str | pathlib.Path, organization: str = "sb3") -> None:
    """Downloads an agent from the zoo's hub into a folder, if it is not there yet.

    Raises:
      errors.UserError: there is no such agent, or no network.
    """
    algo = check_algo(algo)
    if (algo, env_id) in found(folder):
        return
    from rl_zoo3 import load_from_hub

    logging.info("Fetching %s %s from the hub of %s.", algo, env_id, organization)
    try:
        load_from_hub.download_from_hub(
            algo, load_from_hub.EnvironmentName(env_id), 0, str(folder), organization
        )
    except Exception as error:  # requests, huggingface_hub, zipfile: each has its own.
        shutil.rmtree(pathlib.Path(folder, algo, f"{env_id}_1"), ignore_errors=True)
        raise errors.UserError(
            f"Cannot fetch {algo} {env_id} from huggingface.co/{organization}: "
            f"{type(error).__name__}: {errors.summary(error)}"
        ) from None


def policy_weights(network: networks.PolicyNetwork) -> dict[str, np.ndarray]:
    """Returns copies of the acting path's weights (no biases), by layer."""
    return {
        f"{name}.weight": module.weight.detach().numpy().copy()
        for name, module in network.with_weights()
    }


def set_threads(count: int = 1) -> None:
    """Limits torch: small policies lose by threads, and sweeps use a process for each core."""
    torch.set_num_threads(count)
