"""Benchmark 2: environment steps per second of a whole actor, and where its time goes.

    python -m actorQ.benchmarks.actor_loop --out DIR
    python -m actorQ.benchmarks.actor_loop --task gym,Acrobot-v1 --out DIR

An actor steps the environment, computes the policy, writes transitions to a Reverb server in
another process, and looks for newer weights (there are none). It is the product's own
`ActorProcess`, pinned to one core; the server has another one. A stand-in for the original's loop
(`original.loop`) runs in the same rounds.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import os
import statistics
import tempfile
from typing import Any

from actorQ.benchmarks import actor_sides
from actorQ.benchmarks import backends
from actorQ.benchmarks import remote
from actorQ.core import config as config_lib
from actorQ.core import precisions
from actorQ.core import timing

_NAME = "actor_loop"
_CHEETAH = "dm_control,cheetah_run"
_TASKS = (
    _CHEETAH,
    "dm_control,walker_stand",
    "dm_control,cartpole_balance",
    "dm_control,humanoid_walk",
    "dm_control,finger_spin",
    "gym,CartPole-v1",
)
_MANY_TASK = "dm_control,finger_spin"
_MANY = 8
_WIDTHS = (2048, 256)
_ORIGINALS_WIDTH = 4096  # The default of the original's code; the papers use 2048.
_BITS = precisions.NAMES
_ORIGINAL, _PULLS = "original", "original with pulls"
_WARM_UP_S, _SECONDS = 0.2, 1.0


@dataclasses.dataclass(frozen=True)
class Side:
    """One actor to measure."""

    task: str
    width: int
    loop: str  # "original", "original with pulls", or an inference mode of the product.
    bits: int
    environments: int = 1

    @property
    def name(self) -> str:
        """The actor's name within its task and width."""
        many = f", {self.environments} environments" if self.environments > 1 else ""
        return f"{self.loop} {_BITS[self.bits]}{many}"


def plan(native: bool, quick: bool, tasks: Sequence[str] = ()) -> list[list[Side]]:
    """Returns the sides to measure, in groups whose sides are interleaved.

    Args:
      native: Whether the native kernels were built.
      quick: Whether a few sides are enough.
      tasks: Tasks in place of the benchmark's own. They run with one environment to an actor, in
        all backends, and also with the original's policy of 3x4096.
    """
    ours = backends.NATIVE if native else backends.TORCH
    our_bits = backends.modes(native)[ours]
    if quick:
        return [[Side(_CHEETAH, 2048, _ORIGINAL, 8), Side(_CHEETAH, 2048, ours, 32),
                 Side(_CHEETAH, 2048, ours, 8), Side(_CHEETAH, 2048, ours, 8, _MANY)]]
    groups = []
    for task in tasks or _TASKS:
        for width in (_ORIGINALS_WIDTH, *_WIDTHS) if tasks else _WIDTHS:
            sides = [Side(task, width, _ORIGINAL, 8)]
            if task == _CHEETAH:
                sides += [Side(task, width, _PULLS, 8), Side(task, width, _ORIGINAL, 32)]
            in_torch = bool(tasks) or task == _CHEETAH
            if in_torch:
                sides += [Side(task, width, backends.TORCH, bits) for bits in (32, 16, 8)]
            if native or not in_torch:
                chosen = our_bits if width >= _WIDTHS[0] else (32, 8)
                sides += [Side(task, width, ours, bits) for bits in chosen]
            if task == _MANY_TASK and not tasks:
                sides += [Side(task, width, ours, bits, _MANY) for bits in (32, 8)]
            groups.append(sides)
    return groups


def run_config(side: Side, folder: str, port: int) -> config_lib.RunConfig:
    """Returns the configuration of a side's actor."""
    original = side.loop.startswith(_ORIGINAL)
    return config_lib.RunConfig(
        taskstr=side.task,
        model_str=",".join([str(side.width)] * 3),
        quantize=side.bits,
        inference_mode="pytorch" if original else side.loop,
        envs_per_actor=side.environments,
        port=0,
        server_address=f"localhost:{port}" if port else "",
        logpath=folder,
        replay_table_max_replay_size=20_000,
        min_replay_size=1,
    )


def measure_group(
    actors: remote.Remote,
    servers: remote.Remote,
    folder: str,
    sides: Sequence[Side],
    repeats: int,
    seconds: float,
) -> dict[Side, list[actor_sides.Measurement]]:
    """Measures the sides of a group, interleaved.

    Args:
      actors: Process of the sides' actors.
      servers: Process of their servers.
      folder: Folder for logs.
      sides: Sides to measure.
      repeats: Number of rounds.
      seconds: Seconds of one measurement.
    """
    ports = {}
    for side in sides:
        original = side.loop.startswith(_ORIGINAL)
        if original:
            # The stand-in imports Acme, which nothing else needs.
            ports[side] = servers.call(_start_original_server, side.task)
        else:
            layout = actors.call(actor_sides.layout_of, side.task)
            ports[side] = servers.call(remote.start_server, run_config(side, "", 0), layout)
        logs = os.path.join(folder, f"{len(ports)} {side.name}".replace(" ", "_"))
        config = run_config(side, logs, ports[side])
        kind = side.loop if original else actor_sides.PRODUCT
        actors.call(actor_sides.build, side.name, config, kind)

    def measure(side: Side) -> actor_sides.Measurement:
        # The caches, and the connection's windows, belonged to another side.
        actors.call(actor_sides.measure, side.name, _WARM_UP_S)
        return actors.call(actor_sides.measure, side.name, seconds)

    found = timing.interleave({side: functools.partial(measure, side) for side in sides}, repeats)
    for side, port in ports.items():
        actors.call(actor_sides.drop, side.name)
        servers.call(remote.stop_server, port)
    return found


def _start_original_server(taskstr: str) -> int:
    from actorQ.benchmarks.original import loop as original_loop

    return original_loop.start_server(taskstr)


def steps_per_s(measurements: Sequence[actor_sides.Measurement]) -> float:
    """Returns the median rate."""
    return statistics.median(m.steps / m.wall_s for m in measurements)


def phase_us(measurements: Sequence[actor_sides.Measurement], *phases: str) -> float:
    """Returns the median microseconds that some phases together take in a step."""
    return statistics.median(
        1e6 * sum(m.phases.get(phase, 0.0) for phase in phases) / m.steps for m in measurements
    )


def table(
    found: Mapping[Side, Sequence[actor_sides.Measurement]],
) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Returns the rows of the table, and the figures of each row for the JSON."""
    rows, record = [], []
    rates = {side: steps_per_s(measurements) for side, measurements in found.items()}
    for side, measurements in found.items():
        def times(other: Side, rate: float = rates[side]) -> str:
            return f"{rate / rates[other]:.2f}" if other in rates else ""

        original = Side(side.task, side.width, _ORIGINAL, 8)
        environment_us = phase_us(measurements, "environment_s")
        inference_us = phase_us(measurements, "inference_s", "conversion_s", "load_state_dict_s")
        insert_us = phase_us(measurements, "insert_s")
        # The original pulls on the acting thread.
        pull_us = phase_us(measurements, "pull_s")
        rest_us = 1e6 / rates[side] - environment_us - inference_us - insert_us - pull_us
        cpu_us = statistics.median(1e6 * m.cpu_s / m.steps for m in measurements)
        rows.append([
            side.task.partition(",")[2], f"3x{side.width}", side.name, f"{rates[side]:.0f}",
            times(original), times(dataclasses.replace(original, loop=_PULLS)),
            times(dataclasses.replace(side, bits=32)),
            *(f"{us:.0f}" for us in (environment_us, inference_us, insert_us, pull_us, rest_us)),
            f"{cpu_us:.0f}",
        ])
        record.append({
            **dataclasses.asdict(side),
            "steps_per_s": [m.steps / m.wall_s for m in measurements],
            "measurements": [m._asdict() for m in measurements],
        })
    return rows, record


def main(argv: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = timing.parser(_NAME, "Whole actors: environment steps per second.", repeats=3)
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--quick", action="store_true", help="Measure a few sides, in under a minute."
    )
    extent.add_argument(
        "--task", action="append", default=[], metavar="SUITE,NAME",
        help="Task in place of the benchmark's own, also measured in torch and with 3x4096. The "
             "option may be given several times.",
    )
    arguments = timing.parse(parser, argv, repeats=1)
    if any(task.partition(",")[0].strip() == "atari" for task in arguments.task):
        parser.error("The original's stand-in is an MLP: --task takes no task of images.")
    from actorQ.policy.native import library

    cores = timing.pin(2)
    groups = plan(library.available(), arguments.quick, arguments.task)
    rows: list[list[str]] = []
    record: list[dict[str, Any]] = []
    with remote.remotes([cores[1], cores[0]]) as (actors, servers), \
            tempfile.TemporaryDirectory() as folder:
        for index, sides in enumerate(groups):
            timing.progress(
                f"{index + 1} of {len(groups)}: {sides[0].task}, {len(sides)} actors"
            )
            logs = os.path.join(folder, str(index))
            # Only sides of the same rounds are compared.
            more_rows, more_record = table(
                measure_group(actors, servers, logs, sides, arguments.repeats, _SECONDS)
            )
            rows += more_rows
            record += more_record
    timing.report(
        _NAME,
        "Whole actor on one core (the server on another): environment steps per second, and "
        "microseconds a step",
        ("task", "policy", "actor", "steps/s", "x original int8", "x original with pulls",
         "x fp32", "environment", "inference", "insert", "pull", "rest", "CPU, all threads"),
        rows,
        {"actors": record},
        arguments.out,
        notes=(
            "CPU, all threads: of the actor's process, background threads included; they share "
            "the core, so the phases contain what they take.",
            "x fp32: against the same loop and backend at 32 bits.",
            "inference contains exploration, and for the original the observation's way through "
            "TensorFlow; insert the n-step sums; environment its resets.",
            "Medians of interleaved rounds; this machine is shared: trust ratios.",
        ),
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
