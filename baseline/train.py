"""Trains an agent with the zoo's tuned hyper-parameters, and leaves it in the zoo's layout.

    python -m baseline.train --algo ppo --env CartPole-v1
    python -m baseline.train --algo ppo --env CartPole-v1 --resume

OUT/ALGO/ENV_<n>/ENV.zip is the agent; OUT/ALGO/ENV_<n>/ENV/ has config.yml, args.yml, command.txt
and, where observations are normalized, vecnormalize.pkl. From Python, with a hook that may change
the model before it trains:

    from baseline import train
    train.train(train.TrainSettings("ppo", "CartPole-v1"), prepare=lambda model: [])
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import ctypes
import dataclasses
import os
import pathlib
import shutil
import sys
from typing import TYPE_CHECKING
from typing import Any

from absl import flags
from absl import logging

from actorQ import cli
from actorQ import errors
from actorQ import seeding

if TYPE_CHECKING:
    from stable_baselines3.common import base_class
    from stable_baselines3.common import callbacks

    from baseline import zoo

# With the kind of action space that each can choose from; None: any.
ALGOS = {"a2c": None, "ppo": None, "dqn": "Discrete", "ddpg": "Box"}
DEVICES = ("auto", "cpu", "cuda")
PROGRAM = "baseline.train"
PROGRESS_PERIOD_S = 60.0

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """What to train. None: the default; when a run goes on: what it was started with.

    Attributes:
      algo: one of ALGOS.
      env: Gymnasium name; a renamed environment trains as its successor.
      steps: environment steps in all; by default as many as the tuned hyper-parameters say.
      seed: of everything random; by default 0.
      folder: of all agents, in the zoo's layout.
      resume: go on with the newest unfinished run of `algo` and `env` in `folder`.
      save_freq: steps between checkpoints; 0: only at the end.
      eval_freq: steps between evaluations of 5 episodes; 0: none.
      num_envs: environments at once; by default as tuned.
      device: for the networks, one of DEVICES.
      hyperparams: values that replace tuned ones.
      tensorboard: folder for curves (in it ENV/ALGO_<n>); by default inside the run's own folder.
      progress: draw a progress bar, if on a terminal; else there are lines.
      bfloat16: compute the features of images in bfloat16.
    """

    algo: str
    env: str
    steps: int | None = None
    seed: int | None = None
    folder: str = "logs/zoo"
    resume: bool = False
    save_freq: int = 50_000
    eval_freq: int = 0
    num_envs: int | None = None
    device: str = "auto"
    hyperparams: Mapping[str, Any] | None = None
    tensorboard: str | None = None
    progress: bool = True
    bfloat16: bool | None = None

    def __post_init__(self):
        if self.algo not in ALGOS:
            raise errors.UserError(f"There is no algorithm {self.algo!r}: {', '.join(ALGOS)}.")
        if self.device not in DEVICES:
            raise errors.UserError(f"device is one of {', '.join(DEVICES)}, not {self.device!r}.")
        for name, least in (
            ("steps", 1), ("seed", 0), ("save_freq", 0), ("eval_freq", 0), ("num_envs", 1)
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise errors.UserError(f"{name} must be at least {least}, not {value}.")


def train(
    settings: TrainSettings,
    prepare: "Callable[[base_class.BaseAlgorithm], Sequence[callbacks.BaseCallback]] | None" = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> pathlib.Path:
    """Trains one agent.

    Args:
      settings: what to train.
      prepare: is given the model before it trains, and returns further callbacks. When a run goes
        on, weights and counters are restored after this, into the model as it left it.
      stop_requested: asked at every step; once it says yes, the run saves and ends.

    Returns:
      The path of the agent's zip.

    Raises:
      errors.UserError: the settings cannot be met.
    """
    _keep_memory()
    from baseline import training_callbacks
    from baseline import training_state
    from baseline import zoo

    env_id = zoo.training_name(settings.env)
    _check_environment(settings.algo, env_id)
    if env_id != settings.env:
        logging.info("%s does not exist any more: training %s.", settings.env, env_id)
    run_folder = None
    if settings.resume:
        run_folder, arguments = training_state.unfinished(
            settings.folder, settings.algo, env_id, PROGRAM
        )
        settings = _as_started(settings, arguments, run_folder)
    model, experiment = _set_up(settings, env_id, run_folder)
    callbacks_of_caller = list(prepare(model)) if prepare is not None else []
    if run_folder is not None:
        training_state.restore(model, run_folder, env_id)
    run_folder = experiment.save_path
    total = experiment.n_timesteps
    curves = os.path.join(run_folder, "tensorboard")
    if settings.tensorboard:
        number = run_folder.rpartition("_")[2]
        curves = os.path.join(settings.tensorboard, env_id, f"{settings.algo}_{number}")
    model.set_logger(training_callbacks.tensorboard_logger(curves, model.num_timesteps))
    bar = settings.progress and sys.stdout.isatty()
    logging.info(
        "%s %s on %s from step %d to %d; agent: %s; curves: %s.",
        "Goes on with" if settings.resume else "Trains",
        settings.algo, env_id, model.num_timesteps, total, run_folder, curves,
    )
    model.learn(
        total - model.num_timesteps,
        callback=[
            *experiment.callbacks,
            *callbacks_of_caller,
            training_callbacks.Checkpoints(
                lambda: training_state.save(model, run_folder, env_id), settings.save_freq
            ),
            training_callbacks.progress(total, bar, PROGRESS_PERIOD_S),
            training_callbacks.StopOnRequest(stop_requested),
        ],
        reset_num_timesteps=False,
    )
    path = training_state.save(model, run_folder, env_id)
    model.env.close()
    if model.num_timesteps < total:
        logging.info("Stopped at step %d of %d: --resume goes on.", model.num_timesteps, total)
    logging.info("Saved %s.", path)
    return pathlib.Path(path)


def _check_environment(algo: str, env_id: str) -> None:
    """Makes the environment once, since that tells best what it needs and what its actions are."""
    from baseline import environments
    from baseline import zoo

    with zoo.quiet():
        environment = environments.make(env_id)
    kind = type(environment.action_space).__name__
    environment.close()
    if ALGOS[algo] not in (None, kind):
        raise errors.UserError(
            f"{algo} chooses actions of a {ALGOS[algo]} space, but {env_id} has a {kind} one: "
            f"{', '.join(a for a, needed in ALGOS.items() if needed in (None, kind))} can."
        )


def _set_up(
    settings: TrainSettings, env_id: str, run_folder: str | None
) -> "tuple[base_class.BaseAlgorithm, zoo.Experiment]":
    """Makes model and environments of a new run, or of one that goes on in `run_folder`."""
    from stable_baselines3.common import utils
    import torch

    from baseline import zoo

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise errors.UserError("There is no CUDA device here: --device cpu.")
    hyperparams = dict(settings.hyperparams or {})
    if settings.num_envs is not None:
        hyperparams["n_envs"] = settings.num_envs
    seed = settings.seed or 0
    if run_folder is not None:
        # Not the same episodes once more.
        seed = seeding.derive(seed, "resumed training", _steps_done(run_folder, env_id))
    utils.set_random_seed(seed)
    experiment = zoo.Experiment(
        settings.algo,
        env_id,
        settings.folder,
        run_folder,
        settings.steps or 0,
        seed,
        hyperparams,
        _arguments(settings, env_id),
        settings.eval_freq,
        settings.device,
    )
    try:
        model, _ = experiment.setup_experiment()
        if settings.bfloat16:
            zoo.use_bfloat16(model)
    except Exception as error:
        if run_folder is None:
            shutil.rmtree(experiment.save_path, ignore_errors=True)
        if hyperparams and isinstance(error, TypeError | ValueError | AssertionError | NameError):
            raise errors.UserError(
                f"Cannot train {settings.algo} on {env_id} with these --hyperparams: "
                f"{errors.summary(error)}"
            ) from None
        raise
    return model, experiment


def _steps_done(run_folder: str, env_id: str) -> int:
    from baseline import zoo_files

    return zoo_files.read_zip(pathlib.Path(run_folder, f"{env_id}.zip")).data["num_timesteps"]


def _arguments(settings: TrainSettings, env_id: str) -> dict[str, Any]:
    """Returns what args.yml notes, under the zoo's names where it has them."""
    return {
        "program": PROGRAM,
        "algo": settings.algo,
        "env": env_id,
        "n_timesteps": settings.steps,  # Replaced by the number that is tuned, if None.
        "seed": settings.seed or 0,
        "num_envs": settings.num_envs,
        "hyperparams": dict(settings.hyperparams or {}),
        "bfloat16": bool(settings.bfloat16),
        "tensorboard_log": settings.tensorboard,
        "env_kwargs": None,
    }


def _as_started(
    settings: TrainSettings, arguments: Mapping[str, Any], run_folder: str
) -> TrainSettings:
    """Returns the settings with which a run goes on: those it was started with.

    Raises:
      errors.UserError: others are asked for.
    """
    names = {
        "steps": "n_timesteps", "seed": "seed", "num_envs": "num_envs",
        "hyperparams": "hyperparams", "bfloat16": "bfloat16",
    }
    started = {}
    for field, name in names.items():
        started[field] = arguments.get(name)
        asked = getattr(settings, field)
        if asked is not None and asked != started[field]:
            raise errors.UserError(
                f"The run {run_folder} was started with {field}={started[field]}, not {asked}: "
                f"leave that out to go on, or leave --resume out to start another run."
            )
    if settings.tensorboard is None:
        started["tensorboard"] = arguments.get("tensorboard_log")
    return dataclasses.replace(settings, **started)


def _keep_memory() -> None:
    """Lets the C library keep what it frees: batches of images train a quarter faster then.

    Else every large array is given back to the system, and the next one's pages are cleared anew.
    Does nothing where the C library is not GNU's.
    """
    m_trim_threshold, m_mmap_max = -1, -4
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, 2**30)


def parse_hyperparams(texts: Sequence[str]) -> dict[str, Any]:
    """Reads `name:value` pairs; values are YAML (0.001, lin_3e-4, true, dict(...) as text).

    Raises:
      errors.UserError: one is not of that form.
    """
    import yaml

    values = {}
    for text in texts:
        name, colon, value = text.partition(":")
        try:
            values[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            colon = ""
        if not colon or not name or not value:
            raise errors.UserError(
                f"--hyperparams takes name:value, for example learning_rate:0.001, not {text!r}."
            )
        if isinstance(values[name], str):
            try:  # YAML does not take 1e-3 for a number.
                values[name] = float(values[name])
            except ValueError:
                pass
    return values


def main(argv: list[str]) -> int:
    """Trains what the flags say; see `cli.run` for errors."""
    cli.quiet_tensorflow()
    requested: list[bool] = []
    cli.on_stop_signals(lambda: requested.append(True))
    # `--hyperparams a:1 b:2`, as the zoo has it: absl leaves the second to us.
    further = argv[1:] if FLAGS.hyperparams else []
    if len(argv) > 1 and not FLAGS.hyperparams:
        raise errors.UserError(f"does not know what to do with {argv[1]!r}.")
    hyperparams = parse_hyperparams([*FLAGS.hyperparams, *further])
    names = [field.name for field in dataclasses.fields(TrainSettings)]
    values = {name: FLAGS[name].value for name in names if name != "hyperparams"}
    settings = TrainSettings(**values, hyperparams=hyperparams or None)
    train(settings, stop_requested=lambda: bool(requested))
    return cli.EXIT_INTERRUPTED if requested else 0


def define_flags() -> None:
    """Defines the command line: a flag for every field of `TrainSettings`."""
    default = TrainSettings("ppo", "")
    flags.DEFINE_enum("algo", None, list(ALGOS), "Algorithm.", required=True)
    flags.DEFINE_string(
        "env", None, "Environment, by Gymnasium's name, for example CartPole-v1.", required=True
    )
    flags.DEFINE_integer(
        "steps", default.steps, "Environment steps in all, >= 1 (else as tuned).", short_name="n"
    )
    flags.DEFINE_integer("seed", default.seed, "Of everything random, >= 0 (else 0).")
    flags.DEFINE_string("folder", default.folder, "Gets ALGO/ENV_<n>/ENV.zip.")
    flags.DEFINE_boolean("resume", default.resume, "Go on with the newest unfinished run.")
    flags.DEFINE_integer(
        "save_freq", default.save_freq, "Steps between checkpoints (0: only at the end)."
    )
    flags.DEFINE_integer(
        "eval_freq", default.eval_freq,
        "Steps between evaluations, whose best agent is kept as best_model.zip (0: none).",
    )
    flags.DEFINE_integer("num_envs", default.num_envs, "Environments at once (else as tuned).")
    flags.DEFINE_enum("device", default.device, list(DEVICES), "For the networks.")
    flags.DEFINE_multi_string(
        "hyperparams", [], "In place of tuned ones: name:value, several with spaces between."
    )
    flags.DEFINE_string(
        "tensorboard", default.tensorboard,
        "Folder for TensorBoard: gets ENV/ALGO_<n> (else `tensorboard` in the run's own folder).",
    )
    flags.DEFINE_boolean(
        "progress", default.progress, "A progress bar on a terminal, else a line a minute."
    )
    flags.DEFINE_boolean(
        "bfloat16", default.bfloat16,
        "Compute the features of images in bfloat16: faster where the processor has it.",
    )
    FLAGS.set_gnu_getopt(True)


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="train")
