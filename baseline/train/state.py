"""The files of a run that let it go on after an interruption, each replaced atomically.

The agent's own zip has weights, optimizers and counters. The replay buffer lies beside it, and so
do VecNormalize's statistics, if there are any. Nothing is unpickled when a run goes on.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import io
import os
import pathlib
import re
from typing import Any
from typing import NamedTuple
import zipfile

from absl import logging
import numpy as np
from stable_baselines3.common import base_class
from stable_baselines3.common import buffers
from stable_baselines3.common import off_policy_algorithm
import torch

from actorQ.core import errors
from actorQ.core import files
from baseline.agents import safe_pickle
from baseline.agents import zoo_files
from baseline.train import noted_hyperparams

REPLAY_FILENAME = "replay_buffer.npz"
MAX_REPLAY_BYTES = 2**30
# SB3's counters, and the values that it computes from them at every step.
COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_episode_num",
    "_n_calls",
    "_current_progress_remaining",
    "exploration_rate",
)
_ENVIRONMENT_STATE = ("_last_obs", "_last_original_obs", "_last_episode_starts")
_VARIABLES = "pytorch_variables"  # SB3's member of a zip for tensors outside of modules.
_REPLAY_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def save(model: base_class.BaseAlgorithm, run_folder: str, env_id: str) -> str:
    """Writes the agent and all that a resumed run needs; returns the path of the agent's zip.

    Args:
      model: Model in training.
      run_folder: OUT/ALGO/ENV_<n>.
      env_id: Name of the environment, of the zip and of the folder of parameters.
    """
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        path = os.path.join(run_folder, zoo_files.file_name(env_id), zoo_files.NORMALIZATION)
        with files.draft(path) as unfinished:
            normalizer.save(unfinished)
    replay = getattr(model, "replay_buffer", None)
    if replay is not None:
        _save_replay(replay, os.path.join(run_folder, REPLAY_FILENAME))
    # The agent is last, since its counters say how far the run is. It leaves out the environments'
    # state, which is of no use later: they start anew.
    path = os.fspath(zoo_files.agent_zip(run_folder, env_id))
    with files.draft(path, ".tmp.zip") as unfinished:
        model.save(unfinished, exclude=_ENVIRONMENT_STATE)
    return path


class Run(NamedTuple):
    """A run's files.

    Attributes:
      folder: OUT/ALGO/ENV_<n>.
      arguments: Content of its args.yml.
      finished: Whether it has reached its number of steps.
    """

    folder: pathlib.Path
    arguments: dict[str, Any]
    finished: bool


def runs(folder: str, algo: str, env_id: str) -> Iterator[Run]:
    """Yields the runs that have written an agent, the newest first.

    Args:
      folder: Folder of all agents.
      algo: Algorithm.
      env_id: Environment.

    Raises:
      errors.UserError: A file is damaged.
    """
    numbered = []
    name = zoo_files.file_name(env_id)
    for path in pathlib.Path(folder, algo).glob(f"{name}_*"):
        number = re.fullmatch(re.escape(name) + r"_(\d+)", path.name)
        if number and zoo_files.agent_zip(path, env_id).is_file():
            numbered.append((int(number.group(1)), path))
    for _, path in sorted(numbered, reverse=True):
        arguments = zoo_files.read_yaml(path / name / "args.yml")
        if "n_timesteps" not in arguments:
            continue  # Another program's run.
        saved = zoo_files.read_zip(zoo_files.agent_zip(path, env_id))
        steps = saved.data.get("num_timesteps", 0)
        yield Run(path, arguments, steps >= arguments["n_timesteps"])


def locked(run_folder: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """Keeps other processes from training in a run's folder.

    Raises:
      errors.UserError: Another process trains there.
    """
    return files.locked(
        run_folder,
        f"{os.fspath(run_folder)} is being trained by another process: wait until it ends.",
    )


def unfinished(
    folder: str, algo: str, env_id: str, program: str, asked: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Finds the run that did not reach its number of steps: the most similar, then the newest.

    A warning names a newer run that is less similar only because the user left values out.

    Args:
      folder: Folder of all agents.
      algo: Algorithm.
      env_id: Environment.
      program: Program that must have started the run, as its args.yml says.
      asked: Other values that its args.yml should have.

    Returns:
      The run's folder and the content of its args.yml.

    Raises:
      errors.UserError: There is no such run, a file is damaged, or its hyper-parameters would run
        code that the user did not ask for.
    """
    waiting = [run for run in runs(folder, algo, env_id) if not run.finished]
    own = [run for run in waiting if run.arguments.get("program") == program]
    if own:
        run = max(
            own, key=lambda run: sum(run.arguments.get(name) == asked[name] for name in asked)
        )
        newest = own[0]
        differing = [name for name in asked if newest.arguments.get(name) != asked[name]]
        # A user who asked for other values knows that; one who left them out may not.
        if run is not newest and all(asked[name] in ({}, None) for name in differing):
            logging.warning(
                "The run %s goes on, not the newer %s: to go on with that one, repeat its %s.",
                run.folder, newest.folder, " and ".join(f"--{name}" for name in differing),
            )
        hyperparams = run.arguments.get("hyperparams")
        if hyperparams and hyperparams != asked.get("hyperparams"):
            noted_hyperparams.check(hyperparams, os.fspath(run.folder))
        return str(run.folder), run.arguments
    for run in waiting:
        if "program" in run.arguments:
            starter = run.arguments["program"]
            raise errors.UserError(
                f"{run.folder} was started by {starter}: python -m {starter} --resume continues it."
            )
    raise errors.UserError(
        f"There is no unfinished run of {algo} on {env_id} in {folder} (a run can go on once it "
        "has written a checkpoint, see --save_freq): leave --resume out to start one."
    )


def restore(model: base_class.BaseAlgorithm, run_folder: str, env_id: str) -> None:
    """Puts a freshly made model into the state that `save` wrote.

    Raises:
      errors.UserError: A file is damaged, or does not fit the model.
    """
    path = zoo_files.agent_zip(run_folder, env_id)
    facts = zoo_files.read_zip(path).data
    networks, variables = model._get_torch_save_params()
    try:
        with zipfile.ZipFile(path) as archive:
            parameters = {
                name: torch.load(
                    io.BytesIO(archive.read(f"{name}.pth")),
                    map_location=model.device,
                    weights_only=True,
                )
                for name in [*networks, *[_VARIABLES] * bool(variables)]
            }
        saved = parameters.pop(_VARIABLES, {})
        model.set_parameters(parameters, exact_match=True, device=model.device)
        with torch.no_grad():
            for name in variables:  # SAC's entropy coefficient, which has its own optimizer.
                getattr(model, name).copy_(saved[name])
    except Exception as error:  # zipfile, torch and SB3 raise many types.
        raise errors.UserError(f"Cannot go on with {path}: {errors.summary(error)}.") from None
    for name in COUNTERS:
        if name in facts and hasattr(model, name):
            setattr(model, name, facts[name])
    name = zoo_files.file_name(env_id)
    _restore_statistics(model, pathlib.Path(run_folder, name, zoo_files.NORMALIZATION))
    replay = getattr(model, "replay_buffer", None)
    if replay is not None and not _restore_replay(
        replay, os.path.join(run_folder, REPLAY_FILENAME)
    ):
        assert isinstance(model, off_policy_algorithm.OffPolicyAlgorithm)
        # The buffer fills up by random actions before the first update, as at the start.
        logging.warning(
            "The replay buffer was not kept (it is larger than %.0f GiB): it fills up for %d steps "
            "before training goes on.",
            MAX_REPLAY_BYTES / 2**30,
            model.learning_starts,
        )
        model.learning_starts += model.num_timesteps


def _restore_statistics(model: base_class.BaseAlgorithm, path: pathlib.Path) -> None:
    normalizer = model.get_vec_normalize_env()
    if normalizer is None:
        return
    saved = safe_pickle.load(path)
    try:
        for name in ("obs_rms", "ret_rms"):
            if not hasattr(saved, name):  # Observations or rewards alone may be normalized.
                continue
            statistics, there = getattr(normalizer, name), getattr(saved, name)
            statistics.mean = zoo_files.real_numbers(there.mean)
            statistics.var = zoo_files.real_numbers(there.var)
            statistics.count = float(there.count)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise errors.UserError(f"Cannot go on with {path}: {errors.summary(error)}.") from None


def _save_replay(replay: buffers.ReplayBuffer, path: str) -> None:
    size = replay.buffer_size if replay.full else replay.pos
    arrays = {
        name: getattr(replay, name)[:size] for name in _REPLAY_ARRAYS if hasattr(replay, name)
    }
    if sum(array.nbytes for array in arrays.values()) > MAX_REPLAY_BYTES:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        return
    with files.draft(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, **arrays, pos=replay.pos, full=replay.full)


def _restore_replay(replay: buffers.ReplayBuffer, path: str) -> bool:
    if not os.path.exists(path):
        return False
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in _REPLAY_ARRAYS:
                if name in file:
                    array = file[name]
                    getattr(replay, name)[: len(array)] = array
            replay.pos, replay.full = int(file["pos"]), bool(file["full"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise errors.UserError(f"Cannot go on with {path}: {errors.summary(error)}.") from None
    if replay.full or replay.pos:
        # The next transition belongs to another episode.
        last = replay.pos - 1
        if replay.optimize_memory_usage:  # SB3 does the same, since this form keeps no next one.
            replay.dones[last] = 1.0
        else:
            replay.timeouts[last] = np.maximum(replay.timeouts[last], 1.0 - replay.dones[last])
    return True
