"""Simulates how many actors saturate a learner: on larger machines, over slower networks.

    python -m actorQ.experiments.cluster [--rates=FOLDER] [--bandwidths=none,1G,100M] [--out=FOLDER]

A simulation, not a measurement: see `cluster_simulation` for the model. It is fed with measured
rates of one actor at each precision and measured bytes of its messages; learner speeds and networks
are what the user asks about. Tables go to stdout and, with CSV and figures, to --out. Imports no
framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
import re

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import precisions as precisions_lib
from actorQ.experiments import run
from actorQ.experiments.cluster import rates as cluster_rates
from actorQ.experiments.cluster import report
from actorQ.experiments.cluster import simulation
from actorQ.experiments.reports import reporting

NAME = "experiments.cluster"
BLOCKING, BACKGROUND = "blocking", "background"
_PULLS = (BLOCKING, BACKGROUND)
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
# Counted on the way from `transition_writer.TransitionWriter` to Reverb 0.14's server, all of the
# stream, for random numbers in transitions of 13, 56 and 157 float32 (52, 224 and 628 bytes): 117,
# 242 and 541 bytes for each transition.
_INSERT_BYTES = 117.0


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_string(
        "rates", "",
        "Folder with the results of the experiment throughput (of one task), for steps/s of one "
        "actor and bytes of a message at each precision; empty: those that come with this code.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "precisions", [],
        "Precisions of the actors, bits from 32, 16, 8, 4 with commas between; empty: all that "
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
        "Bandwidth of the learner's link in each direction, bit/s, > 0, with k, M or G behind it, "
        "or none (no limit), with commas between.", flag_values=flag_values,
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
        "Least seconds between two publications of weights, >= 0; 0: after every learner step.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "pulls", list(_PULLS),
        "How actors download, with commas between: blocking (they stand still, as the original's) "
        "or background (they go on meanwhile, as this code's).", flag_values=flag_values,
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


def flag_rows() -> list[str]:
    """Returns a Markdown row for every flag: name, default, help."""
    return run.flag_rows(define_flags)


def main(argv: list[str]) -> int:
    """Simulates, prints and writes; see `cli.run` for errors."""
    del argv
    values = flags.FLAGS
    pulls = _pulls(values.pulls)
    rates = _rates(values)
    plan = _plan(values, rates)
    output.make_folder(values.out)
    text = _assumptions(values, rates, plan)
    rows: list[dict[str, object]] = []
    for name in pulls:
        study = report.Study(_with_pulls(plan, blocking=name == BLOCKING))
        answers = study.answers()
        words = _words(name)
        text += f"\n{words[0].upper()}{words[1:]}:\n\n{report.table(answers)}"
        rows += report.csv_rows(name, answers)
        title = f"Simulation: {words}"
        report.draw(study, title, os.path.join(values.out, f"cluster_{name}.png"))
    title = "# Actors that saturate a learner: a simulation\n\n"
    output.write_text(os.path.join(values.out, "cluster.md"), title + text)
    output.write_csv(os.path.join(values.out, "cluster.csv"), rows)
    print(f"{text}\nTables and figures: {values.out}", flush=True)
    return 0


def _words(pulls: str) -> str:
    if pulls == BLOCKING:
        return "actors stand still while they download (as the original's, which do at every look)"
    return "actors go on while they download (as this code's)"


def _rates(values: flags.FlagValues) -> cluster_rates.Rates:
    """Returns the rates that are asked for: measured ones, and those of flags in their place."""
    given = {
        name: _by_precision(name, getattr(values, name))
        for name in ("actor_steps_per_s", "message_bytes")
    }
    wanted = _precisions(values.precisions)
    steps, sizes = given["actor_steps_per_s"], given["message_bytes"]
    # Who gives all figures needs no measured ones.
    whole = set(steps) & set(sizes)
    if steps and not values.rates and set(wanted or steps) <= whole:
        rates = cluster_rates.Rates("the command line alone", steps, sizes)
    else:
        rates = cluster_rates.load(values.rates)
        overridden = ", ".join(f"--{name}" for name, numbers in given.items() if numbers)
        rates = dataclasses.replace(
            rates,
            source=f"{rates.source}{'; in place of some of them ' * bool(overridden)}{overridden}",
            steps_per_s={**rates.steps_per_s, **steps},
            message_bytes={**rates.message_bytes, **sizes},
        )
    for bits in wanted:
        if bits not in rates.precisions:
            known = ", ".join(map(str, rates.precisions)) or "none"
            raise errors.UserError(
                f"--precisions: nothing is known of {bits} bits ({rates.source}: {known}); give "
                "--actor_steps_per_s and --message_bytes, or other --rates."
            )
    if not rates.precisions:
        raise errors.UserError(f"{rates.source} has no precision of which both figures are known.")
    chosen = wanted or rates.precisions
    return dataclasses.replace(
        rates,
        steps_per_s={bits: rates.steps_per_s[bits] for bits in chosen},
        message_bytes={bits: rates.message_bytes[bits] for bits in chosen},
    )


def _plan(values: flags.FlagValues, rates: cluster_rates.Rates) -> report.Plan:
    insert_bytes = _number("insert_bytes", values.insert_bytes, least=0.0)
    latency_s = _number("latency_ms", values.latency_ms, least=0.0) / 1e3
    push_period_s = _number("push_period_s", values.push_period_s, least=0.0)
    samples_per_insert = _number("samples_per_insert", values.samples_per_insert)

    def make(
        bits: int, speed: float, bandwidth: float, actors: int
    ) -> simulation.Cluster:
        return simulation.Cluster(
            actors=actors,
            steps_per_s=rates.steps_per_s[bits],
            message_bytes=rates.message_bytes[bits],
            insert_bytes=insert_bytes,
            learner_steps_per_s=speed,
            batch_size=values.batch_size,
            samples_per_insert=samples_per_insert,
            update_period=values.actor_update_period,
            push_period_s=push_period_s,
            bandwidth=bandwidth,
            latency_s=latency_s,
        )

    return report.Plan(
        make,
        rates.precisions,
        _different("learner_speeds", [
            _number("learner_speeds", text) for text in values.learner_speeds
        ]),
        _different("bandwidths", [_bandwidth(text) for text in values.bandwidths]),
        values.max_actors,
        values.seconds,
        values.seed,
    )


def _with_pulls(plan: report.Plan, blocking: bool) -> report.Plan:
    def make(*arguments) -> simulation.Cluster:
        return dataclasses.replace(plan.make(*arguments), blocking=blocking)

    return dataclasses.replace(plan, make=make)


def _assumptions(
    values: flags.FlagValues, rates: cluster_rates.Rates, plan: report.Plan
) -> str:
    measured = "; ".join(
        f"{reporting.precision_name(bits)} {rates.steps_per_s[bits]:.0f} steps/s and "
        f"{rates.message_bytes[bits]:,.0f} bytes"
        for bits in rates.precisions
    )
    speed = rates.learner_steps_per_s
    fastest = "" if speed is None else (
        f" The fastest learner of those runs made {speed:.1f} steps/s with batches of "
        f"{rates.batch_size}; it may have waited for data."
    )
    push = f"{values.push_period_s:g} s" if values.push_period_s else "learner step"
    given = _by_precision("actor_steps_per_s", values.actor_steps_per_s)
    on_its_own = [
        "Measured rates are those of an actor whose cache a learner on the next core shares: on a "
        "machine of its own it is faster, most of all with fp32 (see --actor_steps_per_s)."
    ] if set(rates.precisions) - set(given) else []
    return reporting.bullets([
        "**This is a simulation**, not a measurement.",
        f"Taken from {rates.source}: steps of one actor on a core of its own, and bytes of its "
        f"weights: {measured}.{fastest}",
        f"Asked about: learners and networks of these speeds; batch {values.batch_size}, "
        f"{values.samples_per_insert:g} samples per insert, a look every "
        f"{values.actor_update_period} steps of an actor, new weights every {push}, "
        f"{values.insert_bytes:g} bytes for each insert, {values.latency_ms:g} ms latency of a "
        "look.",
        "Assumed: each actor has a core of its own as fast as the measured one, and slows nobody "
        "down; the learner's speed does not depend on how many actors it serves; its host's link "
        "is the only bottleneck of the network, downloads share it equally, inserts use the other "
        "direction; weights are ready for actors as soon as they are published.",
        *on_its_own,
        f"Actors: the least number that makes {100 * report.SATURATED:.0f} % of what the "
        "learner wants (learner steps/s x batch / samples per insert). 'never: link': "
        f"{plan.max_actors} actors would do without a network, but not with this one; then age is "
        "that with the least number (of those tried) that comes as close as any. Age: mean seconds "
        "since the weights in use were published, over actors and time.",
        "Where the link is the limit, a longer --actor_update_period or --push_period_s, or "
        "narrower weights, relieve it.",
    ])


# --- Reading flags ---


def _number(name: str, text: str | float, least: float | None = None) -> float:
    """Returns a finite number above 0, or of `least` at least.

    Raises:
      errors.UserError: it is none.
    """
    words = "a number above 0" if least is None else f"a number, {least:g} or more"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (value <= 0 if least is None else value < least):
        raise errors.UserError(f"--{name}: {text!r} is not {words}.")
    return value


def _different(name: str, numbers: list[float]) -> list[float]:
    if not numbers:
        raise errors.UserError(f"--{name} is empty: give one or more, with commas between.")
    return list(dict.fromkeys(numbers))


def _bandwidth(text: str) -> float:
    """Returns bytes per second.

    Raises:
      errors.UserError: it is not 'none' or a number of bit/s.
    """
    if text == "none":
        return math.inf
    found = re.fullmatch(r"([0-9.]+)([kMG]?)", text)
    try:
        bits = float(found[1]) * _UNITS[found[2]] if found else 0.0
    except ValueError:
        bits = 0.0
    if not bits > 0:
        raise errors.UserError(
            f"--bandwidths: {text!r} is not a bandwidth: write none, or bit/s as 20M or 1.5G."
        )
    return bits / 8


def _pulls(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in _PULLS:
            raise errors.UserError(
                f"--pulls: {name!r} is not possible: choose from {', '.join(_PULLS)}."
            )
    if not names:
        raise errors.UserError(f"--pulls is empty: choose one or more of {', '.join(_PULLS)}.")
    return list(dict.fromkeys(names))


def _precisions(texts: Sequence[str]) -> list[int]:
    found = [precisions_lib.parse("precisions", text) for text in texts]
    return sorted(set(found), reverse=True)


def _by_precision(name: str, texts: Sequence[str]) -> Mapping[int, float]:
    """Reads BITS:NUMBER pairs.

    Raises:
      errors.UserError: one is not of that form, or a precision is there twice.
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


if __name__ == "__main__":
    define_flags()
    cli.run(main, name=NAME)
