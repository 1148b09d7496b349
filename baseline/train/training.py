"""Trains an agent with the zoo's tuned hyper-parameters, and leaves it in the zoo's layout.

    python -m baseline.train --algo ppo --env CartPole-v1
    python -m baseline.train --algo ppo --env CartPole-v1 --resume

OUT/ALGO/ENV_<n>/ENV.zip is the agent. OUT/ALGO/ENV_<n>/ENV/ has config.yml, args.yml, command.txt
and, if observations are normalized, vecnormalize.pkl. Python callers may change the model before it
trains:

    from baseline.train import training
    training.train(training.TrainSettings("ppo", "CartPole-v1"), prepare=lambda model: [])
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import errno
import functools
import os
import pathlib
import shutil
import sys
from typing import TYPE_CHECKING
from typing import Any

from absl import logging

from actorQ.core import allocator
from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import lean_imports
from actorQ.core import seeding
from baseline.quantization import names as precision_lib
from baseline.train import learning_curve
from baseline.train import settings as training_settings

if TYPE_CHECKING:
    from stable_baselines3.common import base_class
    from stable_baselines3.common import callbacks

    from baseline.train import experiment as zoo

PROGRESS_PERIOD_S = 60.0
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_warn_once = functools.cache(logging.warning)

TrainSettings = training_settings.TrainSettings


def train(
    settings: TrainSettings,
    prepare: "Callable[[base_class.BaseAlgorithm], Sequence[callbacks.BaseCallback]] | None" = None,
    stop_requested: Callable[[], bool] = lambda: False,
    program: str = training_settings.PROGRAM,
    notes: Mapping[str, Any] | None = None,
    before_last_save: Callable[[pathlib.Path], None] = lambda path: None,
) -> pathlib.Path:
    """Trains one agent.

    Args:
      settings: Settings of the training.
      prepare: Function that gets the model before it trains, and returns further callbacks. When a
        run goes on, weights and counters are restored after this, into the prepared model.
      stop_requested: Function that is asked at every step. Once it says yes, the run saves and
        ends.
      program: Name of the caller. Only runs that it started go on.
      notes: Plain values for a new run's args.yml, by name.
      before_last_save: Function that gets the path of the agent's zip before its last writing,
        finished or not. It writes files that must lie beside an agent before the agent is there.

    Returns:
      The path of the agent's zip.

    Raises:
      errors.UserError: The settings cannot be met.
    """
    from baseline.tasks import environments
    from baseline.train import state

    allocator.keep_large_blocks()  # This trains a quarter faster on batches of images.
    env_id = environments.training_name(settings.env)
    run_folder = None
    if settings.resume:
        run_folder, arguments = state.unfinished(
            settings.folder, settings.algo, env_id, program,
            {**training_settings.asked(settings), **(notes or {})},
        )
        settings = training_settings.as_started(settings, arguments, run_folder)
    check_environment(settings.algo, settings.env, settings.hyperparams)
    with contextlib.ExitStack() as stack:
        if run_folder is not None:
            stack.enter_context(state.locked(run_folder))
        model, experiment = _set_up(
            settings, env_id, run_folder,
            training_settings.to_arguments(settings, env_id, program, notes),
        )
        if run_folder is None:
            stack.enter_context(state.locked(experiment.save_path))
        try:
            return _train_and_save(
                settings, env_id, model, experiment, prepare, stop_requested, before_last_save
            )
        except errors.UserError:
            if run_folder is None and model.num_timesteps == 0:  # There is nothing to keep.
                shutil.rmtree(experiment.save_path, ignore_errors=True)
            raise


def _train_and_save(
    settings: TrainSettings,
    env_id: str,
    model: "base_class.BaseAlgorithm",
    experiment: "zoo.Experiment",
    prepare: "Callable[[base_class.BaseAlgorithm], Sequence[callbacks.BaseCallback]] | None",
    stop_requested: Callable[[], bool],
    before_last_save: Callable[[pathlib.Path], None],
) -> pathlib.Path:
    """Trains what `_set_up` made; see `train`."""
    from stable_baselines3.common import callbacks

    from baseline.agents import zoo_files
    from baseline.train import callbacks as training_callbacks
    from baseline.train import state

    callbacks_of_caller = list(prepare(model)) if prepare is not None else []
    run_folder = experiment.save_path
    if settings.resume:
        state.restore(model, run_folder, env_id)
    total = experiment.n_timesteps
    curves = os.path.join(run_folder, "tensorboard")
    if settings.tensorboard:
        number = run_folder.rpartition("_")[2]
        name = zoo_files.file_name(env_id)
        curves = os.path.join(settings.tensorboard, name, f"{settings.algo}_{number}")
    with files.writing(curves):  # TensorBoard raises TensorFlow's errors if that is loaded.
        os.makedirs(curves, exist_ok=True)
        model.set_logger(training_callbacks.tensorboard_logger(curves, model.num_timesteps))
    bar = settings.progress and sys.stdout.isatty()

    def save(*_: Any) -> bool:
        if model.num_timesteps < total:  # A checkpoint at the end would pass for the agent.
            _check_finite(model, run_folder)  # The earlier checkpoint stays, to go on from.
            state.save(model, run_folder, env_id)
        return True

    logging.info(
        "The training of %s on %s %s at step %d and ends at %d; agent: %s; curves: %s.",
        settings.algo, env_id, "goes on" if settings.resume else "begins", model.num_timesteps,
        total, run_folder, curves,
    )
    every_callback = [
        *experiment.callbacks,
        *callbacks_of_caller,
        callbacks.ProgressBarCallback() if bar
        else training_callbacks.ProgressLines(total, PROGRESS_PERIOD_S),
        callbacks.ConvertCallback(lambda *_: not stop_requested()),
    ]
    if settings.save_freq:
        saving = callbacks.EveryNTimesteps(settings.save_freq, callbacks.ConvertCallback(save))
        saving.last_time_trigger = model.num_timesteps
        every_callback.insert(-2, saving)
    try:
        model.learn(total - model.num_timesteps, every_callback, reset_num_timesteps=False)
    except OSError as error:  # Scores and curves are written at once, and a disk may fill up.
        raise errors.WriteError(
            f"The training in {run_folder} ended at step {model.num_timesteps}: "
            f"{error.strerror or error}. --resume goes on from its last checkpoint, if it has one."
        ) from error
    except ValueError:  # torch refuses a distribution whose parameters are NaN.
        _check_finite(model, run_folder)
        raise
    _check_finite(model, run_folder)  # An argmax, or clipped actions, hide NaN.
    before_last_save(zoo_files.agent_zip(run_folder, env_id))
    path = state.save(model, run_folder, env_id)
    if model.env is not None:
        model.env.close()
    if model.num_timesteps < total:
        logging.info(
            "The run stopped at step %d of %d: --resume goes on.", model.num_timesteps, total
        )
    logging.info("The agent is saved: %s.", path)
    try:
        logging.info("The learning curve is drawn: %s.", learning_curve.draw(run_folder))
    except errors.UserError as error:  # No episode has ended yet.
        logging.info("There is no learning curve: %s", error)
    return pathlib.Path(path)


def _check_finite(model: "base_class.BaseAlgorithm", run_folder: str) -> None:
    """Checks that a model's training has not diverged: raises an error of the user."""
    import torch

    if not all(bool(torch.isfinite(weight).all()) for weight in model.policy.parameters()):
        raise errors.UserError(
            f"The training in {run_folder} has diverged by step {model.num_timesteps}: its weights "
            "hold NaN or infinity. Train anew with a smaller learning_rate (--hyperparams). "
            "--resume keeps the settings, goes on from the last checkpoint, if there is one, and "
            "may diverge again."
        ) from None


def check_environment(
    algo: str, env_id: str, hyperparams: Mapping[str, Any] | None = None
) -> None:
    """Makes the environment once, to check its name, its packages and its spaces.

    Args:
      algo: Algorithm that is to act in it.
      env_id: Name of the environment.
      hyperparams: Hyper-parameters that were asked for, which may wrap it.

    Raises:
      errors.UserError: There is no such environment, its wrappers do not fit it, the algorithm
        cannot act in it, or its observations are not of a known kind, or of a Dict.
    """
    import gymnasium as gym
    from stable_baselines3.common import env_util

    from baseline.agents import evaluation
    from baseline.tasks import atari
    from baseline.tasks import environments
    from baseline.train import experiment as zoo

    asked = hyperparams or {}
    with zoo.quiet():
        environment = environments.make(
            env_id, asked.get("env_wrapper"), env_kwargs=asked.get("env_kwargs")
        )
    observed = environment.observation_space
    kind = type(environment.action_space).__name__
    spec = environment.spec
    skipped = atari.skipped_frames(spec)
    limited = env_util.is_wrapped(environment, gym.wrappers.TimeLimit)
    environment.close()
    environments.check_observations(observed)
    if isinstance(observed, gym.spaces.Dict):  # Checkpoints keep arrays of observations only.
        raise errors.UserError(
            "Observations of a Dict space cannot be trained on here, though agents of them can be "
            "quantized: env_wrapper:gymnasium.wrappers.FlattenObservation makes one array of them."
        )
    if skipped != 1:
        _warn_once(
            "%s holds each action for %s frames, and the zoo's wrapper for Atari holds it for 4 of "
            "those: the hyper-parameters were tuned for GameNoFrameskip-v4.", env_id, skipped,
        )
    if (
        spec is not None
        and not limited
        and "max_num_frames_per_episode" not in spec.kwargs  # Atari's limit.
    ):
        _warn_once(
            "%s has no time limit: an agent that does not end an episode within %d steps cannot be "
            "evaluated. gymnasium.register(..., max_episode_steps=...) or the wrapper "
            "gymnasium.wrappers.TimeLimit sets a limit.", env_id, evaluation.MAX_STEPS,
        )
    needed = precision_lib.ALGOS[algo]
    if needed not in (None, kind):
        able = [name for name, space in precision_lib.ALGOS.items() if space in (None, kind)]
        raise errors.UserError(
            f"{algo} chooses actions of a {needed} space, but {env_id} has a {kind} one: "
            f"{', '.join(able)} can."
        )


def choose_device(device: str) -> str:
    """Returns the device, "cpu" or "cuda", that --device means here.

    "auto" leaves a GPU that torch sees but cannot compute on, and logs one line.

    Raises:
      errors.UserError: "cuda" is asked for, and torch cannot compute on it.
    """
    import torch

    from actorQ.policy import torch_device

    if device == "cpu":
        return device
    if device == "auto":
        return torch_device.choose("the training") if torch.cuda.is_available() else "cpu"
    if why := torch_device.failure():
        if not torch.cuda.is_available():
            why += " (./setup_ubuntu.sh --torch cuda installs torch's CUDA build)"
        raise errors.UserError(f"--device cuda: {why}. Choose --device cpu.")
    return device


def _set_up(
    settings: TrainSettings, env_id: str, run_folder: str | None, arguments: Mapping[str, Any]
) -> "tuple[base_class.BaseAlgorithm, zoo.Experiment]":
    """Makes model and environments of a new run, or of one that goes on in `run_folder`."""
    from stable_baselines3.common import utils

    from baseline.agents import zoo_files
    from baseline.quantization import acting_path
    from baseline.train import experiment as zoo
    from baseline.train import half_precision
    from baseline.train import precision_choice

    device = choose_device(settings.device)
    hyperparams = dict(settings.hyperparams or {})
    if settings.num_envs is not None:
        hyperparams["n_envs"] = settings.num_envs
    seed = settings.seed or 0
    if run_folder is not None:
        # Another seed, so that the run does not repeat its first episodes.
        facts = zoo_files.read_zip(zoo_files.agent_zip(run_folder, env_id)).data
        seed = seeding.derive(seed, "resumed training", facts["num_timesteps"])
    utils.set_random_seed(seed)
    experiment = zoo.Experiment(
        settings.algo,
        env_id,
        settings.folder,
        run_folder,
        settings.steps or 0,
        seed,
        hyperparams,
        arguments,
        settings.eval_freq,
        device,
    )
    try:
        model, _ = experiment.setup_experiment()
        # This refuses agents that no tool could act with. Half precision hides layers from it.
        acting_path.policy_network(model)
        if settings.precision not in (None, precision_lib.FP32):
            choice = precision_choice.resolve(model, settings.precision)
            half_precision.apply(model, choice.precision)
            logging.info("The networks train in %s: %s.", choice.precision, choice.reason)
    except Exception as error:
        if experiment.made_folder:
            shutil.rmtree(experiment.save_path, ignore_errors=True)
        if isinstance(error, OSError) and _is_of_files(error, experiment.save_path):
            raise errors.WriteError(
                f"Cannot {'begin' if run_folder is None else 'go on with'} the run "
                f"{experiment.save_path}: {error.strerror}."
            ) from None
        # Errors come from Python, which evaluates some values, and from rl_zoo3, SB3 and torch.
        if isinstance(error, OSError) or hyperparams and not isinstance(error, errors.UserError):
            culprit = " with these --hyperparams" if hyperparams else ""
            raise errors.UserError(
                f"Cannot train {settings.algo} on {env_id}{culprit}: {errors.summary(error)}"
            ) from None
        raise
    return model, experiment


def _is_of_files(error: OSError, run_folder: str) -> bool:
    """Returns whether an error is about a run's files or the folders above them.

    Environments raise OSErrors, too, about their own files or connections.
    """
    if error.filename is None:  # An error of writing into an open file names no file.
        return error.errno in _DISK_ERRORS
    paths = [os.path.abspath(str(path)) for path in (error.filename, run_folder)]
    return os.path.commonpath(paths) in paths


def main(argv: list[str]) -> int:
    """Trains as the flags say; see `cli.run` for errors."""
    settings = training_settings.from_flags(argv[1:])
    cli.quiet_tensorflow()
    requested: list[bool] = []
    cli.on_stop_signals(lambda: requested.append(True))
    with lean_imports.without("tensorflow"):  # TensorBoard would load it, and does without.
        from baseline.train import callbacks as training_callbacks  # noqa: F401

    train(settings, stop_requested=lambda: bool(requested))
    return cli.interrupted_code() if requested else 0
