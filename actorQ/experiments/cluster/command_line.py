"""The flags of `experiments.cluster`, and what is simulated by their values.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
import re

from absl import flags

from actorQ.core import errors
from actorQ.core import precisions as precisions_lib
from actorQ.experiments import command_line
from actorQ.experiments.cluster import rates as cluster_rates
from actorQ.experiments.cluster import report
from actorQ.experiments.cluster import simulation

BLOCKING, BACKGROUND = "blocking", "background"
_PULLS = (BLOCKING, BACKGROUND)
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
# All bytes of the stream from `transition_writer.TransitionWriter` to Reverb 0.14's server were
# counted. Transitions of 13, 56 and 157 random float32 (52, 224 and 628 bytes) took 117, 242 and
# 541 bytes each.
_INSERT_BYTES = 117.0


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "rates", "",
        "Folder with results of the experiment throughput, of one task. They give steps/s of one "
        "actor and bytes of a message at each precision. Empty: results in this repository.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "precisions", [],
        "Precisions of the actors, bits from 32, 16, 8, 4, 3 with commas between; empty: all that "
        "have rates.", flag_values=flag_values,
    )
    flags.DEFINE_list(
        "actor_steps_per_s", [],
        "In place of measured ones, BITS:RATE with commas between, for example 32:1250,8:3970: "
        "environment steps/s of one actor on a core of its own, > 0.", flag_values=flag_values,
    )
    flags.DEFINE_list(
        "message_bytes", [],
        "In place of measured ones, BITS:BYTES with commas between: bytes of the weights that an "
        "actor downloads, > 0.", flag_values=flag_values,
    )
    flags.DEFINE_float(
        "insert_bytes", _INSERT_BYTES,
        f"Bytes on the wire for each environment step, >= 0; counted: {_INSERT_BYTES:.0f} for "
        "cartpole_balance, 242 for walker_stand, 541 for humanoid_walk.", flag_values=flag_values,
    )
    flags.DEFINE_list(
        "learner_speeds", ["5", "10", "20", "50", "100", "200"],
        "Learner steps/s of a learner that never waits for data, > 0, with commas between.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "bandwidths", ["none", "10G", "1G", "100M", "20M"],
        "Bandwidths of the learner's link in each direction, with commas between: bit/s, > 0, "
        "with k, M or G behind it, or none (no limit).", flag_values=flag_values,
    )
    flags.DEFINE_float(
        "latency_ms", 0.5, "Milliseconds that a look for newer weights takes besides the download, "
        ">= 0.", flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "batch_size", 256, "Transitions in one learner step, >= 1.", lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "samples_per_insert", 1.0,
        "Most samples that the learner takes for each insert, > 0; the papers use 16, the profile "
        "workstation 1.", flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "actor_update_period", 30,
        "Environment steps of an actor between two looks for newer weights, >= 1.", lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "push_period_s", 0.5,
        "Minimum seconds between two publications of weights, >= 0; 0: after every learner step.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "pulls", list(_PULLS),
        "How actors download, with commas between: blocking (they stand still, as in the original) "
        "or background (they go on meanwhile, as in this code).", flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_actors", 256, "Most actors that are tried, 1 to 4096.", lower_bound=1,
        upper_bound=4096, flag_values=flag_values,
    )
    flags.DEFINE_float(
        "seconds", 20.0, "Simulated seconds that are measured, at least, 1 to 3600.",
        lower_bound=1.0, upper_bound=3600.0, flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed", 0, "Seed of the moments at which actors look first, >= 0.", lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "out", os.path.join("logs", "cluster"), "Folder for tables and figures (made if missing).",
        flag_values=flag_values,
    )


def rates(values: flags.FlagValues) -> cluster_rates.Rates:
    """Returns the rates that are asked for: measured ones, and those of flags in their place.

    Raises:
      errors.UserError: Nothing is known of a precision, or a value is not possible.
    """
    given = {
        name: by_precision(name, getattr(values, name))
        for name in ("actor_steps_per_s", "message_bytes")
    }
    wanted = sorted(set(command_line.precisions(values.precisions) or []), reverse=True)
    steps, sizes = given["actor_steps_per_s"], given["message_bytes"]
    # With all figures on the command line, no measured ones are needed.
    whole = set(steps) & set(sizes)
    if steps and not values.rates and set(wanted or steps) <= whole:
        found = cluster_rates.Rates("the command line alone", steps, sizes)
    else:
        found = cluster_rates.load(values.rates)
        overridden = ", ".join(f"--{name}" for name, numbers in given.items() if numbers)
        found = dataclasses.replace(
            found,
            source=f"{found.source}{'; in place of some of them ' * bool(overridden)}{overridden}",
            steps_per_s={**found.steps_per_s, **steps},
            message_bytes={**found.message_bytes, **sizes},
        )
    for bits in wanted:
        if bits not in found.precisions:
            known = ", ".join(map(str, found.precisions)) or "none"
            raise errors.UserError(
                f"--precisions: nothing is known of {bits} bits ({found.source}: {known}); give "
                "--actor_steps_per_s and --message_bytes, or other --rates."
            )
    if not found.precisions:
        raise errors.UserError(f"{found.source} has no precision with both figures known.")
    chosen = wanted or found.precisions
    return dataclasses.replace(
        found,
        steps_per_s={bits: found.steps_per_s[bits] for bits in chosen},
        message_bytes={bits: found.message_bytes[bits] for bits in chosen},
    )


def plan(
    values: flags.FlagValues, measured: cluster_rates.Rates, blocking: bool
) -> report.Plan:
    """Returns what is to be simulated.

    Args:
      values: The flags.
      measured: Rates of one actor.
      blocking: Whether actors stand still while they download.

    Raises:
      errors.UserError: A value is not possible.
    """
    insert_bytes = _number("insert_bytes", values.insert_bytes, least=0.0)
    latency_s = _number("latency_ms", values.latency_ms, least=0.0) / 1e3
    push_period_s = _number("push_period_s", values.push_period_s, least=0.0)
    samples_per_insert = _number("samples_per_insert", values.samples_per_insert)

    def make(bits: int, speed: float, bandwidth: float, actors: int) -> simulation.Cluster:
        return simulation.Cluster(
            actors=actors,
            steps_per_s=measured.steps_per_s[bits],
            message_bytes=measured.message_bytes[bits],
            insert_bytes=insert_bytes,
            learner_steps_per_s=speed,
            batch_size=values.batch_size,
            samples_per_insert=samples_per_insert,
            update_period=values.actor_update_period,
            push_period_s=push_period_s,
            bandwidth=bandwidth,
            latency_s=latency_s,
            blocking=blocking,
        )

    return report.Plan(
        make,
        measured.precisions,
        _different("learner_speeds", values.learner_speeds, _number),
        _different("bandwidths", values.bandwidths, _bandwidth),
        values.max_actors,
        values.seconds,
        values.seed,
    )


def pulls(names: Sequence[str]) -> list[str]:
    """Reads --pulls.

    Raises:
      errors.UserError: One is unknown, or there is none.
    """
    for name in names:
        if name not in _PULLS:
            raise errors.UserError(
                f"--pulls: {name!r} is not possible: choose from {', '.join(_PULLS)}."
            )
    if not names:
        raise errors.UserError(f"--pulls is empty: choose one or more of {', '.join(_PULLS)}.")
    return list(dict.fromkeys(names))


def by_precision(name: str, texts: Sequence[str]) -> Mapping[int, float]:
    """Reads BITS:NUMBER pairs.

    Raises:
      errors.UserError: One is not of that form, or a precision is there twice.
    """
    found: dict[int, float] = {}
    for text in texts:
        bits_text, colon, number = text.partition(":")
        if not colon:
            raise errors.UserError(f"--{name}: {text!r} is not BITS:NUMBER, for example 8:4000.")
        bits = precisions_lib.parse(name, bits_text)
        if bits in found:
            raise errors.UserError(f"--{name} names {bits} bits twice.")
        found[bits] = _number(name, number)
    return found


def _number(name: str, text: str | float, least: float | None = None) -> float:
    """Returns a finite number above 0, or not below `least`."""
    words = "a number above 0" if least is None else f"a number, {least:g} or more"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (value <= 0 if least is None else value < least):
        raise errors.UserError(f"--{name}: {text!r} is not {words}.")
    return value


def _different(
    name: str, texts: Sequence[str], read: Callable[[str, str], float]
) -> list[float]:
    if not texts:
        raise errors.UserError(f"--{name} is empty: give one or more, with commas between.")
    return list(dict.fromkeys(read(name, text) for text in texts))


def _bandwidth(name: str, text: str) -> float:
    """Returns bytes per second."""
    if text == "none":
        return math.inf
    found = re.fullmatch(r"([0-9.]+)([kMG]?)", text)
    try:
        bits = float(found[1]) * _UNITS[found[2]] if found else 0.0
    except ValueError:
        bits = 0.0
    if not bits > 0:
        raise errors.UserError(
            f"--{name}: {text!r} is not a bandwidth: write none, or bit/s as 20M or 1.5G."
        )
    return bits / 8
