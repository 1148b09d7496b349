"""Finds and loads trained agents in the layout of rl-baselines3-zoo.

`zoo_files` reads their files, `actorq` loads ActorQ's policies in the same form, and `hub` fetches
agents.
"""

import base64
from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import functools
import pathlib
import re
import reprlib
from typing import Any

from absl import logging
import gymnasium as gym
import numpy as np
from stable_baselines3.common import base_class
from stable_baselines3.common import preprocessing
import torch

from actorQ.core import errors
from baseline.agents import agent as agent_lib
from baseline.agents import model_building
from baseline.agents import safe_pickle
from baseline.agents import zoo_agent
from baseline.agents import zoo_files
from baseline.quantization import acting_path
from baseline.quantization import names
from baseline.quantization import schemes
from baseline.tasks import environments
from baseline.tasks import wrappers

ALGORITHMS = model_building.ALGORITHMS
# Statistics of an agent's own moment have seen as many observations as it made steps, but for this
# share, and for the first observations after so many resets of all its environments.
_SAME_MOMENT, _RESETS = 0.01, 10
# No environment leaves the bounds of its own observations by more than this share of their range.
_OUTSIDE = 0.1
_NEVER_CLIPPED = float(np.finfo(np.float32).max)


def check_algo(name: str) -> str:
    """Returns the canonical name.

    Raises:
      errors.UserError: The algorithm is not one of ours.
    """
    check_refused(name)
    algo = names.canonical_algo(name)
    if algo not in ALGORITHMS:
        raise errors.UserError(
            f"The algorithm {name!r} is not known: {', '.join(ALGORITHMS)} are (ppo2 means ppo)."
        )
    return algo


def check_refused(name: str) -> None:
    """Checks that an algorithm is none of those whose policies have no quantized form.

    Raises:
      errors.UserError: It is one. The message says why.
    """
    reason = names.REFUSED_ALGOS.get(names.canonical_algo(name))
    if reason is not None:
        raise errors.UserError(reason)


def found(folder: str | pathlib.Path) -> list[tuple[str, str]]:
    """Returns algorithm and environment of every ALGO/ENV[_<n>]/ENV.zip in a folder, sorted."""
    return sorted(
        {
            (algo, zoo_files.environment_name(path.with_suffix("")))
            for algo in ALGORITHMS
            for number, path in _numbered(pathlib.Path(folder, algo))
            if number >= 0
        }
    )


def _numbered(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Returns every agent's number and zip: ENV_<n>/ENV.zip, ENV/ENV.zip (0), ENV.zip (-1)."""
    agents = [(-1, path) for path in folder.glob("*.zip")]
    for path in folder.glob("*/*.zip"):
        named = re.fullmatch(re.escape(path.stem) + r"(?:_(\d+))?", path.parent.name)
        if named:
            agents.append((int(named[1] or 0), path))
    return [(number, path) for number, path in agents if path.is_file()]


def has(algo: str, env_id: str, folder: str | pathlib.Path) -> bool:
    """Returns whether `find` finds an agent."""
    name = zoo_files.file_name(env_id)
    return any(path.stem == name for _, path in _numbered(pathlib.Path(folder, algo)))


def find(algo: str, env_id: str, folder: str | pathlib.Path) -> pathlib.Path:
    """Returns the zip of the newest finished agent (highest number) of a pair.

    Where no training has come to its end, it is the newest agent, with a warning.

    Raises:
      errors.UserError: There is no such agent (the message lists the others), or a file is damaged.
    """
    algo = check_algo(algo)
    environments.check_name(env_id)
    name = zoo_files.file_name(env_id)
    candidates = [
        entry for entry in _numbered(pathlib.Path(folder, algo)) if entry[1].stem == name
    ]
    if candidates:
        newest_first = [path for _, path in sorted(candidates, reverse=True)]
        whole = next((path for path in newest_first if not stopped_early(path)), None)
        if whole is None:
            warn_of_stopped(newest_first[0])
        return whole or newest_first[0]
    if not pathlib.Path(folder).is_dir():
        raise errors.UserError(f"There is no folder {folder}: --folder names one with agents.")
    pairs = found(folder)
    there = ", ".join(f"{a} {e}" for a, e in pairs) or "none"
    today = environments.training_name(env_id)
    remedy = "Fetch the zoo's: --hub."
    if today != env_id and (algo, today) in pairs:
        remedy = f"It is trained and saved as {today}: name that."
    elif algo in names.ALGOS:
        remedy = (
            f"Train one: .venv/bin/python -m baseline.train --algo {algo} --env {today}; or fetch "
            "the zoo's: --hub."
        )
    raise errors.UserError(
        f"There is no agent {algo} {env_id} in {folder} (there are: {there}). {remedy}"
    )


def stopped_early(path: pathlib.Path) -> bool:
    """Returns whether `baseline.train` or `baseline.qat` has not ended an agent's training.

    Raises:
      errors.UserError: A file is damaged.
    """
    arguments = _arguments(path)
    wanted = arguments.get("n_timesteps")
    if "program" not in arguments or not isinstance(wanted, int):  # rl_zoo3 notes no program.
        return False
    steps = zoo_files.read_zip(path).data.get("num_timesteps")
    return isinstance(steps, int) and steps < wanted


@functools.cache  # Once in a process is enough.
def warn_of_stopped(path: pathlib.Path) -> None:
    """Warns that an agent's training has not come to its end, and tells how to go on."""
    logging.warning(
        "The training of %s has not come to its end: python -m %s --resume goes on.",
        path, _arguments(path)["program"],
    )


@functools.cache
def _warn_of_unused(beside: pathlib.Path, place: pathlib.Path) -> None:
    """Warns that an agent's statistics lie where they are not looked for."""
    logging.warning("%s is not used: the statistics of observations belong in %s.", beside, place)


def _arguments(path: pathlib.Path) -> dict[str, Any]:
    return zoo_files.read_yaml(path.parent / path.stem / "args.yml")


def load(algo: str, env_id: str, folder: str | pathlib.Path) -> agent_lib.Agent:
    """Loads an agent without running anything that its files contain.

    Args:
      algo: One of ALGORITHMS; ppo2 means ppo.
      env_id: The environment, as in the file's name.
      folder: A folder laid out as FOLDER/ALGO/ENV_<n>/ENV.zip.

    Raises:
      errors.UserError: The agent is missing, damaged, of another algorithm, or does not fit its
        environment.
    """
    return load_file(algo, env_id, find(algo, env_id, folder))


def load_file(algo: str, env_id: str, path: pathlib.Path) -> agent_lib.Agent:
    """Loads one of several agents with the same name; see `load`.

    Args:
      algo: The agent's algorithm.
      env_id: The agent's environment.
      path: ENV.zip, or another zip, such as best_model.zip. `baseline.train` writes the statistics
        of observations of best_model.zip beside that file.

    Raises:
      errors.UserError: As in `load`.
    """
    algo = check_algo(algo)
    saved = zoo_files.read_zip(path)
    settings = settings_folder(env_id, path)
    is_last = path.stem == zoo_files.file_name(env_id)
    statistics = _statistics(path, settings, is_last)
    beside = path.with_name(zoo_files.NORMALIZATION)
    config = zoo_files.read_yaml(settings / "config.yml")
    arguments = zoo_files.read_yaml(settings / "args.yml")
    if is_last and beside.exists() and not statistics.exists():
        _warn_of_unused(beside, statistics)
    if config.get("vec_env_wrapper"):
        raise errors.UserError(
            f"{settings} names a vec_env_wrapper ({reprlib.repr(config['vec_env_wrapper']):.200}): "
            "agents of that kind cannot be read here."
        )
    stacked = config.get("frame_stack")
    make_env = functools.partial(
        environments.make, env_id, config.get("env_wrapper"), 1 if stacked is None else stacked,
        {**_env_kwargs(config, settings), **_env_kwargs(arguments, settings)},
    )
    model = model_building.build(algo, saved, make_env, path)
    num_masked = 0
    if algo == names.MASKABLE and _tells_masks(make_env):
        num_masked = acting_path.mask_length(model.action_space)
    try:
        network = acting_path.policy_network(model, num_masked)
    except errors.UserError as error:
        raise errors.UserError(f"{path}: {error}") from None
    by_key = _keyed_statistics(config, statistics, model)
    normalization = _normalization(by_key, network)
    if normalization is not None and not (is_last and "program" in arguments):
        _warn_of_another_moment(path, statistics, saved.data, normalization)
    elif not statistics.exists() and _is_of_normalized(
        saved.data, model.observation_space
    ):
        _warn_of_no_statistics(path, statistics)
    if network.fields:
        make_env = functools.partial(_make_flat, make_env, num_masked)
    agent = zoo_agent.ZooAgent(
        algo, env_id, path, network, make_env, normalization, model=model,
        statistics=by_key,
    )
    agent.check_weights()
    if is_last:
        agent.restore_quantization(settings / schemes.FILENAME)
    return agent


def settings_folder(env_id: str, path: pathlib.Path) -> pathlib.Path:
    """Returns the folder with the settings of a zip: ENV beside it, else the zip's own folder.

    The settings of ENV.zip itself always lie in ENV.
    """
    name = zoo_files.file_name(env_id)
    inner = path.parent / name
    return inner if path.stem == name or inner.is_dir() else path.parent


def _statistics(path: pathlib.Path, settings: pathlib.Path, is_last: bool) -> pathlib.Path:
    """Returns the file of an agent's statistics: those of its moment, else the last ones."""
    last = settings / zoo_files.NORMALIZATION
    if is_last:
        return last
    # SB3's CheckpointCallback writes NAME_vecnormalize_N_steps.pkl beside NAME_N_steps.zip.
    checkpoint = re.sub(r"_(\d+_steps)$", r"_vecnormalize_\1.pkl", path.stem)
    beside = (checkpoint, zoo_files.NORMALIZATION, zoo_files.HUB_NORMALIZATION)
    places = [path.with_name(name) for name in beside]
    return next((place for place in places if place.is_file()), last)


def _warn_of_another_moment(
    path: pathlib.Path,
    statistics: pathlib.Path,
    data: Mapping[str, Any],
    normalization: zoo_files.Normalization,
) -> None:
    """Warns where statistics have seen more or fewer observations than the agent has made steps."""
    steps, num_envs = data.get("num_timesteps"), data.get("n_envs")
    if not isinstance(steps, int) or steps <= 0:  # Untrained, or saved anew without its history.
        return
    resets = _RESETS * (num_envs if isinstance(num_envs, int) else 1)  # They count as well.
    if abs(normalization.num_observations - steps) > max(_SAME_MOMENT * steps, resets):
        logging.warning(
            "The statistics of observations are of another moment than the agent, which may act "
            "worse for it: %s was saved after %s steps, %s after %s. Those of its own moment "
            "belong beside it, as %s.",
            path, f"{steps:,}", statistics, f"{normalization.num_observations:,.0f}",
            zoo_files.NORMALIZATION,
        )


def _is_of_normalized(data: Mapping[str, Any], space: gym.Space) -> bool:
    """Returns whether a zip tells that its agent was trained with VecNormalize.

    - On-policy agents of SB3 keep the raw observations of their start for VecNormalize alone.
    - Others keep the last observations as their policy saw them. Normalized ones may lie outside
      of the space, which plain ones never do.
    """
    if "gae_lambda" in data:
        return data.get("_last_original_obs") is not None
    last = _last_observations(data)
    if last is None or not isinstance(space, gym.spaces.Box) or last.shape[1:] != space.shape:
        return False
    low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
    margin = _OUTSIDE * np.maximum(high - low, 0.0)  # Infinite where there is no bound.
    return bool(np.any((last < low - margin) | (last > high + margin)))


def _last_observations(data: Mapping[str, Any]) -> np.ndarray | None:
    """Returns the observations [N, ...] that a policy saw last; None: the zip has none."""
    entry = data.get("_last_obs")
    if not isinstance(entry, Mapping):
        return None
    try:
        pickled = base64.b64decode(entry[zoo_files.SERIALIZED], validate=True)
        return zoo_files.real_numbers(safe_pickle.load(pickled))
    except (LookupError, TypeError, ValueError, errors.UserError):  # Another release's, or damaged.
        return None


def _warn_of_no_statistics(path: pathlib.Path, statistics: pathlib.Path) -> None:
    logging.warning(
        "%s was trained with VecNormalize, but its statistics are missing. If they were of "
        "observations, it acts at random without them: copy vecnormalize.pkl to %s.",
        path, statistics,
    )


def _tells_masks(make_env: Callable[..., gym.Env]) -> bool:
    """Returns whether an environment says which actions are allowed."""
    with contextlib.closing(make_env()) as environment:
        return environment.has_wrapper_attr(wrappers.ACTION_MASKS)


def _make_flat(
    make_env: Callable[..., gym.Env], num_masked: int, render_mode: str | None = None
) -> gym.Env:
    """Makes an environment whose observations are the flat vectors that a network takes."""
    return wrappers.FlatObservations(make_env(render_mode=render_mode), num_masked)


def _env_kwargs(config: Mapping[str, Any], settings: pathlib.Path) -> Mapping[str, Any]:
    kwargs = config.get("env_kwargs") or {}
    if not isinstance(kwargs, Mapping):
        raise errors.UserError(
            f"env_kwargs in {settings} have to be names with values, not "
            f"{reprlib.repr(kwargs):.200}."
        )
    return kwargs


def _keyed_statistics(
    config: Mapping[str, Any], path: pathlib.Path, model: base_class.BaseAlgorithm
) -> dict[str, zoo_files.Normalization]:
    """Returns the statistics of observations by key, if config.yml says that there are any.

    Without a config.yml there are some if the file exists. Those of arrays have the key
    OBSERVATION.
    """
    if config and not config.get("normalize"):
        return {}
    found = zoo_files.read_normalization(path)
    if found is None:
        if config and not path.exists():
            raise errors.UserError(
                f"The agent was trained on normalized observations, but {path} is missing: copy "
                "it from where the agent comes from."
            )
        return {}
    space = model.observation_space
    if isinstance(space, gym.spaces.Dict) != isinstance(found, Mapping):
        raise errors.UserError(
            f"{path} has statistics of {'a Dict' if isinstance(found, Mapping) else 'one array'}, "
            f"but the observations are of a {type(space).__name__} space."
        )
    keyed = found if isinstance(found, dict) else {acting_path.OBSERVATION: found}
    for key, normalization in keyed.items():
        part = space.spaces.get(key) if isinstance(space, gym.spaces.Dict) else space
        if part is not None and preprocessing.is_image_space(part):
            raise errors.UserError(
                f"{path} holds statistics of images, which SB3 takes before it scales them: agents "
                "of that kind cannot be read here."
            )
        shape = None if part is None else part.shape
        if normalization.mean.shape != shape:
            raise errors.UserError(
                f"{path} is for observations of shape {normalization.mean.shape}, the "
                f"environment's are {shape}."
            )
    return keyed


def _normalization(
    statistics: Mapping[str, zoo_files.Normalization], network: acting_path.PolicyNetwork
) -> zoo_files.Normalization | None:
    """Returns how a network's observations are normalized; parts without statistics are not."""
    if not statistics:
        return None
    if not network.fields:
        return statistics[acting_path.OBSERVATION]
    means: list[np.ndarray] = []
    variances: list[np.ndarray] = []
    clips: list[np.ndarray] = []
    for field in network.fields:
        found = statistics.get(field.name)
        size = (field.size,)
        means.append(np.zeros(size) if found is None else found.mean.ravel())
        variances.append(
            np.ones(size) if found is None else found.variance.ravel() + found.epsilon
        )
        clips.append(np.full(size, _NEVER_CLIPPED if found is None else found.clip))
    count = max(found.num_observations for found in statistics.values())
    return zoo_files.Normalization(
        np.concatenate(means), np.concatenate(variances), count, np.concatenate(clips), 0.0
    )


def set_threads(count: int = 1) -> None:
    """Limits torch's threads: they slow small policies, and sweeps use a process for each core."""
    torch.set_num_threads(count)
