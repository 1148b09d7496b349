"""Declares and checks one setting; `config` lists the settings. Imports no framework."""

import dataclasses
import enum
import math
from typing import Any

from actorQ.core import errors
from actorQ.core import precisions

# Tables of `wire` beside the four that have flags.
RUN_TABLE = "run"
OBSERVATION_TABLE = "observations"
MOST_TRANSITIONS = 1_000_000  # Largest replay where no number is asked for.
AUTO = "auto"  # Value of a number that the learner finds itself.


class Kind(enum.Flag):
    """Purposes of settings; a setting may have several."""

    LEARNING = 0  # It decides what is learned, and from which data.
    CHANGEABLE = enum.auto()  # A resumed run may change it: `resuming.KEPT` has the others.
    DISTRIBUTED = enum.auto()  # Agents of other libraries have nothing that it could set.
    LAUNCHED = enum.auto()  # The launcher sets it; runs that are compared may differ in it.
    NOT_KEPT = enum.auto()  # A resumed run does not take it over from the run before.
    ADDRESS = CHANGEABLE | LAUNCHED
    PROCESS = CHANGEABLE | LAUNCHED | NOT_KEPT


def declare(
    default: Any,
    help_text: str,
    choices: tuple | None = None,
    low: float | None = None,
    high: float | None = None,
    kinds: Kind = Kind.LEARNING,
) -> Any:
    """Declares one flag: default, help (with unit), legal values or range, and kinds."""
    return dataclasses.field(
        default=default,
        metadata={
            "help": help_text, "choices": choices, "low": low, "high": high, "kinds": kinds
        },
    )


def hidden_sizes(flag: str, text: str) -> tuple[int, ...]:
    """Parses '256,256' into (256, 256).

    Raises:
      errors.UserError: `text` is not a comma-separated list of positive integers.
    """
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise errors.UserError(
            f"--{flag}={text!r} is not a list of layer sizes: write positive whole numbers with "
            "commas between, for example 256,256,256."
        )
    return sizes


def takes_auto(field: dataclasses.Field) -> bool:
    """Returns whether a setting is a number or the word auto."""
    return bool(field.type == float | str)


def check_range(field: dataclasses.Field, value: Any) -> None:
    """Checks a value against the choices or the range that `declare` was given.

    Raises:
      errors.UserError: The value is not legal; the message names flag, value and legal values.
    """
    choices, low, high = (field.metadata[key] for key in ("choices", "low", "high"))
    if choices and value not in choices:
        legal = ", ".join(str(choice) for choice in choices)
        raise errors.UserError(f"--{field.name}={value} is not possible: choose one of {legal}.")
    if value is None:
        return
    if takes_auto(field) and isinstance(value, str):
        if value != AUTO:
            raise errors.UserError(
                f"--{field.name}={value} is not possible: it must be a number or {AUTO}."
            )
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.UserError(f"--{field.name}={value} is not a finite number.")
    if low is not None and value < low or high is not None and value > high:
        legal = f"at least {low}" if high is None else f"from {low} to {high}"
        raise errors.UserError(f"--{field.name}={value} is out of range: it must be {legal}.")


def check_together(config: Any) -> None:
    """Checks texts, and whether the settings of a `config.RunConfig` fit one another.

    Raises:
      errors.UserError: They do not fit; the message names flags and values.
    """
    hidden_sizes("model_str", config.model_str)
    hidden_sizes("critic_str", config.critic_str)
    if AUTO not in (config.vmin, config.vmax) and config.vmin >= config.vmax:
        raise errors.UserError(
            f"--vmin={config.vmin} must be below --vmax={config.vmax}: together they span the "
            "discounted returns of the task."
        )
    if 0 < config.epsilon_zeta < 1.01:
        raise errors.UserError(
            f"--epsilon_zeta={config.epsilon_zeta} is too small an exponent for a zeta "
            "distribution: it must be at least 1.01, or 0 for random actions of one step."
        )
    if config.actor_id > config.n_actors:
        raise errors.UserError(
            f"--actor_id={config.actor_id} is out of range: ids go from 1 to "
            f"--n_actors={config.n_actors}."
        )
    most = config.most_transitions
    if config.min_replay_size > most:
        raise errors.UserError(
            f"--min_replay_size={config.min_replay_size} can never be reached with "
            f"--replay_table_max_replay_size={most}."
        )
    if config.batch_size > most:
        raise errors.UserError(
            f"--batch_size={config.batch_size} exceeds "
            f"--replay_table_max_replay_size={most}."
        )
    evaluates = config.eval_period_steps or config.eval_period_s
    if config.stop_return is not None and not evaluates:
        raise errors.UserError(
            f"--stop_return={config.stop_return:g} needs evaluations: set --eval_period_steps or "
            "--eval_period_s."
        )
    for name in ("num_episodes", "eval_period_steps"):
        if getattr(config, name) % config.learner_steps_per_call:
            raise errors.UserError(
                f"--{name}={getattr(config, name)} must be a multiple of "
                f"--learner_steps_per_call={config.learner_steps_per_call}."
            )
    precisions.check(config.quantize, config.inference_mode)
    precisions.check(config.learner_fake_quantize, config.inference_mode, "learner_fake_quantize")
    if config.actor_device_placement == "GPU" and (
        config.quantize <= 8 or config.inference_mode == "native"
    ):
        raise errors.UserError(
            "--actor_device_placement=GPU works with --quantize 32 or 16 and "
            "--inference_mode=pytorch or tensorflow: quantized kernels run on CPUs."
        )
    if config.server_address and not is_host_port(config.server_address):
        raise errors.UserError(
            f"--server_address={config.server_address!r} is not HOST:PORT, for example "
            "192.168.1.7:8181."
        )
    tables = config.table_names
    if len(set(tables)) != len(tables) or not all(tables):
        raise errors.UserError(f"The four table names must differ and not be empty: {tables}.")
    for name in (RUN_TABLE, OBSERVATION_TABLE):
        if name in tables:
            raise errors.UserError(f"No table can be named {name!r}: a run has one of its own.")


def is_host_port(text: str) -> bool:
    """Returns whether a text is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536
