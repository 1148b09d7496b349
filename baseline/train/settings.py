"""Settings of a training run: from flags, from Python callers, and from the run that goes on.

This module imports no framework, so that `--help` and flag errors are instant.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from absl import flags
import yaml

from actorQ.core import errors
from baseline.quantization import names as precision_lib

DEVICES = ("auto", "cpu", "cuda")
PROGRAM = "baseline.train"
MAX_SEED = 2**32 - 1  # numpy.random.seed takes no larger one.
# Fields of `TrainSettings` that a resumed run keeps, and their names in args.yml.
_ARGUMENTS = {
    "steps": "n_timesteps", "seed": "seed", "num_envs": "num_envs",
    "hyperparams": "hyperparams", "precision": "precision",
}


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """Settings of a training.

    None means the default, and for a run that goes on, the value that it was started with.

    Attributes:
      algo: One of `names.ALGOS`.
      env: Gymnasium's name; a renamed environment trains as its successor.
      steps: Environment steps in all; by default as many as the tuned hyper-parameters say.
      seed: Seed of everything random, up to MAX_SEED; by default 0.
      folder: Folder of all agents, in the zoo's layout.
      resume: Go on with the unfinished run of `algo` and `env` in `folder` whose settings are most
        like these; of several, the newest.
      save_freq: Steps between checkpoints; 0: only at the end.
      eval_freq: Steps between evaluations of 5 episodes; 0: none, or those of the resumed run.
      num_envs: Environments at once; by default as tuned.
      device: Device of the networks, one of DEVICES.
      hyperparams: Values that replace tuned ones.
      tensorboard: Folder for curves (in it ENV/ALGO_<n>); by default inside the run's own folder.
      progress: Draw a progress bar on a terminal; otherwise lines are logged.
      precision: Precision that networks train in, one of `names.CHOICES`; by default fp32.
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
    precision: str | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("algo", precision_lib.ALGOS), ("device", DEVICES), ("precision", precision_lib.CHOICES)
        ):
            value = getattr(self, name)
            if value not in known and (name, value) != ("precision", None):
                raise errors.UserError(f"{name} must be one of {', '.join(known)}, not {value!r}.")
        for name, least in (
            ("steps", 1), ("seed", 0), ("save_freq", 0), ("eval_freq", 0), ("num_envs", 1)
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise errors.UserError(f"{name} must be at least {least}, not {value}.")
        if self.seed is not None and self.seed > MAX_SEED:
            raise errors.UserError(f"seed must be at most {MAX_SEED}, not {self.seed}.")


def from_flags(words: Sequence[str]) -> TrainSettings:
    """Builds the settings from parsed flags.

    Args:
      words: Words between the flags. absl reads the zoo's `--hyperparams a:1 b:2` as
        `--hyperparams a:1` and the word `b:2`.

    Raises:
      errors.UserError: A value is not legal.
    """
    names = [field.name for field in dataclasses.fields(TrainSettings)]
    values: dict[str, Any] = {name: flags.FLAGS[name].value for name in names}
    if words and not values["hyperparams"]:
        raise errors.UserError(
            f"The word {words[0]!r} belongs to no flag: settings are written --flag=value."
        )
    values["hyperparams"] = parse_hyperparams([*values["hyperparams"], *words]) or None
    return TrainSettings(**values)


def define_flags() -> None:
    """Defines the command line: a flag for every field of `TrainSettings`."""
    default = TrainSettings("ppo", "")
    flags.DEFINE_enum("algo", None, list(precision_lib.ALGOS), "Algorithm.", required=True)
    flags.DEFINE_string(
        "env", None, "Environment, by Gymnasium's name, for example CartPole-v1.", required=True
    )
    define_training_flags()
    flags.DEFINE_integer(
        "seed", default.seed, f"Seed of everything random, 0 to {MAX_SEED} (else 0)."
    )
    flags.DEFINE_boolean(
        "resume", default.resume,
        "Go on with the unfinished run whose settings are most like those asked for; of several, "
        "with the newest (--hyperparams and --num_envs, left out, ask for the tuned values).",
    )
    flags.DEFINE_integer(
        "eval_freq", default.eval_freq,
        "Steps between evaluations (0: none). The best agent is kept as ENV_<n>/best_model.zip, "
        "with its vecnormalize.pkl beside it.",
    )
    flags.DEFINE_string(
        "tensorboard", default.tensorboard,
        "Folder for TensorBoard's ENV/ALGO_<n> (else `tensorboard` in the run's own folder).",
    )
    flags.DEFINE_boolean(
        "progress", default.progress,
        "Draw a progress bar on a terminal; otherwise log a line a minute.",
    )
    flags.DEFINE_enum(
        "precision", default.precision, list(precision_lib.CHOICES),
        "Precision that dqn's networks, and convolutional extractors of others, train in (else "
        "fp32); weights stay fp32. auto: half precision if a first measurement finds it faster.",
    )


def define_training_flags() -> None:
    """Defines the flags that `qat_sweep` has, too."""
    default = TrainSettings("ppo", "")
    flags.DEFINE_integer(
        "steps", default.steps, "Environment steps in all, >= 1 (else as tuned).", short_name="n"
    )
    flags.DEFINE_string("folder", default.folder, "Folder for ALGO/ENV_<n>/ENV.zip.")
    flags.DEFINE_integer(
        "save_freq", default.save_freq, "Steps between checkpoints (0: only at the end)."
    )
    flags.DEFINE_integer("num_envs", default.num_envs, "Environments at once (else as tuned).")
    flags.DEFINE_enum("device", default.device, list(DEVICES), "Device of the networks.")
    flags.DEFINE_multi_string(
        "hyperparams", [], "Values in place of tuned ones: name:value, with spaces between them."
    )


def parse_hyperparams(texts: Sequence[str]) -> dict[str, Any]:
    """Reads `name:value` pairs; values are YAML (0.001, lin_3e-4, true, dict(...) as text).

    Raises:
      errors.UserError: A text is not of that form.
    """
    values: dict[str, Any] = {}
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


def hyperparams_text(hyperparams: Mapping[str, Any] | None, num_envs: int | None) -> str:
    """Returns replaced values as text: `name:value`, sorted, with spaces between.

    Keys inside of values are sorted, too, as in files, so that commands compare equal.
    """
    changed = dict(hyperparams or {})
    if num_envs is not None:
        changed["n_envs"] = num_envs
    text = " ".join(f"{name}:{value}" for name, value in _sorted_keys(changed).items())
    return " ".join(text.split())  # CSV files keep one line.


def _sorted_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted_keys(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return type(value)(map(_sorted_keys, value))
    return value


def to_arguments(
    settings: TrainSettings,
    env_id: str,
    program: str = PROGRAM,
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the content of args.yml, under the zoo's names where it has them."""
    return {
        **(notes or {}),
        "program": program,
        "algo": settings.algo,
        "env": env_id,
        "n_timesteps": settings.steps,  # The tuned number replaces None.
        "seed": settings.seed or 0,
        "num_envs": settings.num_envs,
        "hyperparams": dict(settings.hyperparams or {}),
        "precision": settings.precision or precision_lib.FP32,
        "eval_freq": settings.eval_freq,
        "tensorboard_log": settings.tensorboard,
        "env_kwargs": None,
    }


def asked(settings: TrainSettings) -> dict[str, Any]:
    """Returns the arguments that a run must have been started with; see `as_started`."""
    values = {name: getattr(settings, field) for field, name in _ARGUMENTS.items()}
    values = {name: value for name, value in values.items() if value is not None}
    # Values that are left out ask for the tuned ones.
    return {"hyperparams": {}, "num_envs": None, **values}


def as_started(
    settings: TrainSettings, arguments: Mapping[str, Any], run_folder: str
) -> TrainSettings:
    """Returns the settings with which a run goes on: those it was started with.

    Raises:
      errors.UserError: The user asks for others.
    """
    if "precision" not in arguments:  # Older runs noted bfloat16 instead.
        half = arguments.get("bfloat16")
        arguments = {
            **arguments, "precision": precision_lib.BF16 if half else precision_lib.FP32
        }
    started: dict[str, Any] = {}
    for field, name in _ARGUMENTS.items():
        started[field] = arguments.get(name)
        asked = getattr(settings, field)
        if asked is not None and asked != started[field]:
            raise errors.UserError(
                f"The run {run_folder} was started with {field}={started[field]}, not {asked}: "
                f"leave that out to go on, or leave --resume out to start another run."
            )
    if not settings.eval_freq:
        started["eval_freq"] = arguments.get("eval_freq", 0)  # Older runs did not note it.
    if settings.tensorboard is None:
        started["tensorboard"] = arguments.get("tensorboard_log")
    return dataclasses.replace(settings, **started)
