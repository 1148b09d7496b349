"""What a run needs to go on after an interruption; every file is replaced atomically.

The agent's own zip has weights, optimizers and counters. Beside it lie the statistics of
VecNormalize (for whoever loads the agent, and again as plain arrays for ourselves) and the replay
buffer. Nothing is unpickled when a run goes on.
"""

import contextlib
import json
import os
from typing import Any
import zipfile

from absl import logging
import numpy as np
from stable_baselines3.common import base_class
from stable_baselines3.common import buffers
from stable_baselines3.common import running_mean_std
import torch

from actorQ import errors

REPLAY_FILENAME = "replay_buffer.npz"
STATISTICS_FILENAME = "vecnormalize.npz"
MAX_REPLAY_BYTES = 2**30
COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls")
_REPLAY_ARRAYS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts"
)


def save(model: base_class.BaseAlgorithm, run_folder: str, env_id: str) -> str:
    """Writes the agent and all that a resumed run needs; returns the path of the agent's zip.

    Args:
      model: in training.
      run_folder: OUT/ALGO/ENV_<n>.
      env_id: of the environment; names the zip and the folder of parameters.
    """
    params_folder = os.path.join(run_folder, env_id)
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        path = os.path.join(params_folder, "vecnormalize.pkl")
        normalizer.save(path + ".tmp")
        os.replace(path + ".tmp", path)
        arrays = {"returns": normalizer.returns}
        for name in ("obs_rms", "ret_rms"):
            statistics = getattr(normalizer, name)
            if isinstance(statistics, running_mean_std.RunningMeanStd):
                for field in ("mean", "var", "count"):
                    arrays[f"{name}.{field}"] = np.asarray(getattr(statistics, field))
        _write_arrays(os.path.join(run_folder, STATISTICS_FILENAME), arrays)
    replay = getattr(model, "replay_buffer", None)
    if replay is not None:
        _save_replay(replay, os.path.join(run_folder, REPLAY_FILENAME))
    # Last, since its counters say how far the run is. What it holds of the environment is of no
    # use later: they start anew.
    path = os.path.join(run_folder, f"{env_id}.zip")
    model.save(
        path + ".tmp.zip",
        exclude=["_last_obs", "_last_original_obs", "_last_episode_starts", "tensorboard_log"],
    )
    os.replace(path + ".tmp.zip", path)
    return path


def counters(path: str) -> dict[str, Any]:
    """Returns the readable part of what an agent's zip says about itself.

    Raises:
      errors.UserError: it is no agent, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            facts = json.loads(archive.read("data"))
        facts["num_timesteps"] + facts["_total_timesteps"]
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise errors.UserError(f"{path} is no agent, or damaged: {error!r}.") from None
    return facts


def restore(model: base_class.BaseAlgorithm, run_folder: str, env_id: str) -> None:
    """Puts a freshly made model into the state that `save` wrote.

    Raises:
      errors.UserError: a file is damaged, or does not fit the model.
    """
    path = os.path.join(run_folder, f"{env_id}.zip")
    facts = counters(path)
    try:
        with zipfile.ZipFile(path) as archive:
            parameters = {}
            for name in model.get_parameters():
                with archive.open(f"{name}.pth") as file:
                    parameters[name] = torch.load(
                        file, map_location=model.device, weights_only=True
                    )
        model.set_parameters(parameters, exact_match=True, device=model.device)
    except Exception as error:  # Of zipfile, torch and SB3, which have many.
        raise errors.UserError(f"Cannot go on with {path}: {error!r}.") from None
    for name in COUNTERS:
        if name in facts:
            setattr(model, name, facts[name])
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        arrays = _read_arrays(os.path.join(run_folder, STATISTICS_FILENAME))
        normalizer.returns = arrays.pop("returns", normalizer.returns)
        for name, array in arrays.items():
            statistics, _, field = name.partition(".")
            setattr(getattr(normalizer, statistics), field, array)
    replay = getattr(model, "replay_buffer", None)
    if replay is not None and not _restore_replay(replay, os.path.join(run_folder, REPLAY_FILENAME)):
        # Then the buffer is filled anew before the first update, by random actions as at the start.
        model.learning_starts += model.num_timesteps
        logging.info(
            "The replay buffer was not kept: it is filled with %d steps before training goes on.",
            model.learning_starts - model.num_timesteps,
        )


def _save_replay(replay: buffers.ReplayBuffer, path: str) -> None:
    size = replay.buffer_size if replay.full else replay.pos
    arrays = {
        name: getattr(replay, name)[:size] for name in _REPLAY_ARRAYS if hasattr(replay, name)
    }
    if sum(array.nbytes for array in arrays.values()) > MAX_REPLAY_BYTES:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        return
    _write_arrays(path, {**arrays, "pos": np.asarray(replay.pos), "full": np.asarray(replay.full)})


def _restore_replay(replay: buffers.ReplayBuffer, path: str) -> bool:
    if not os.path.exists(path):
        return False
    arrays = _read_arrays(path)
    for name in _REPLAY_ARRAYS:
        if name in arrays:
            getattr(replay, name)[: len(arrays[name])] = arrays[name]
    replay.pos, replay.full = int(arrays["pos"]), bool(arrays["full"])
    return True


def _write_arrays(path: str, arrays: dict[str, np.ndarray]) -> None:
    with open(path + ".tmp", "wb") as file:
        np.savez(file, **arrays)
    os.replace(path + ".tmp", path)


def _read_arrays(path: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise errors.UserError(f"Cannot read {path}: {error!r}.") from None
