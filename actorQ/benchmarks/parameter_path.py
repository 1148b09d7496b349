"""Benchmark 3: from the learner's weights to the actor's first action on them.

    python -m actorQ.benchmarks.parameter_path --out DIR
    python -m actorQ.benchmarks.parameter_path --quick

Learner (with the server), broadcaster and actor are processes of their own and run the product's
code. The actor steps its policy all the while and looks for weights every 30 steps. The time from
push to first action is measured as a whole, and every stage beside it. At first all processes
share one core, so that a stage's time is the work it takes. Then the learner has one core, and the
others have another. A stand-in for the original's path (`original.parameters`) runs in the same
rounds.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import functools
import os
import statistics
import tempfile
import time
from typing import Any

from actorQ.benchmarks import backends
from actorQ.benchmarks import parameter_sides
from actorQ.benchmarks import remote
from actorQ.benchmarks.original import parameters
from actorQ.benchmarks.parameter_sides import ORIGINAL
from actorQ.benchmarks.parameter_sides import PRODUCT
from actorQ.benchmarks.parameter_sides import Side
from actorQ.core import allocator
from actorQ.core import config as config_lib
from actorQ.core import timing
from actorQ.policy.native import library
from actorQ.wire import replay

_NAME = "parameter_path"
_WIDTH = 2048
_PATHS = {PRODUCT: parameter_sides, ORIGINAL: parameters}  # Their names are alike.
_QUIET_S = 0.1  # The actor steps so long before a push, which tells how long a step takes.
_UPDATE_DEADLINE_S = 10.0
_STAGES = {
    "snapshot_s": "snapshot",
    "push_encode_s": "encode",
    "push_insert_s": "insert",
    "handover_s": "take",
    "decode_s": "decode",
    "convert_s": "convert",
    "encode_s": "encode",
    "insert_s": "insert",
    "pull_s": "look and pull",
    "deserialize_s": "deserialize",
    "load_state_dict_s": "load",
}


def plan(native: bool, quick: bool) -> list[Side]:
    """Returns the sides to measure.

    Args:
      native: Whether the native kernels were built.
      quick: Whether a few sides are enough.
    """
    mode = backends.NATIVE if native else backends.TORCH

    def ours(quantize: int, communication: int = 32, push: str = "float32", by: str = mode) -> Side:
        return Side(PRODUCT, quantize, communication, push, by)

    original = [Side(ORIGINAL, bits) for bits in (32, 16, 8)]
    if quick:
        return [original[2], ours(32), ours(8), ours(8, push="bfloat16")]
    precisions = backends.modes(native)[mode]
    sides = original + [ours(bits) for bits in precisions]
    if native:
        sides += [ours(3), ours(8, by=backends.TORCH)]
    sides += [ours(bits, push="bfloat16") for bits in precisions]
    sides += [ours(32, bits) for bits in (16, 8)]
    return sides + [ours(8, bits) for bits in (6, 4, 2)]


class Bench:
    """The processes of all sides."""

    def __init__(
        self, sides: Sequence[Side], processes: Mapping[str, list[remote.Remote]], folder: str
    ):
        """Builds every side's parts.

        Args:
          sides: Sides to measure.
          processes: Processes of learner, broadcaster and actor, by the kind of a side.
          folder: Folder for logs.
        """
        self._processes = processes
        self._configs: dict[Side, config_lib.RunConfig] = {}
        self._version = 0
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        for process in processes.get(PRODUCT, []):
            process.call(allocator.keep_large_blocks)  # The product's programs do so.
        layout = replay.Layout((parameter_sides.OBSERVATION_SIZE,), False, 6, False)
        for side in sides:
            timing.progress(f"building {side.name}")
            learner, broadcaster, actor = processes[side.kind]
            config = side.config(folder, _WIDTH)
            port = learner.call(remote.start_server, config, layout)
            config = dataclasses.replace(config, server_address=f"localhost:{port}")
            self._configs[side] = config
            broadcaster.call(_PATHS[side.kind].make_broadcaster, config)
            self._push(side)
            actor.call(parameter_sides.make_actor, config, _PATHS[side.kind].Actor)

    def place(self, learner_core: int, other_core: int) -> None:
        """Pins the learners to one core and all other processes to another."""
        for learner, *others in self._processes.values():
            learner.call(parameter_sides.pin, learner_core)
            for process in others:
                process.call(parameter_sides.pin, other_core)

    def measure(self, side: Side) -> dict[str, float]:
        """Sends weights down the path once; returns seconds of all stages and sizes in bytes."""
        config = self._configs[side]
        learner, _, actor = self._processes[side.kind]
        worked = learner.call(time.process_time)
        acting = self._pool.submit(
            actor.call, parameter_sides.act_until, config, self._version + 1
        )
        time.sleep(_QUIET_S)
        pushed = self._push(side)
        acted = acting.result()
        update = self._update(side)
        started, steps = pushed["started"], acted["steps"]
        usual = statistics.median(seconds for _, seconds in steps)
        row = {name: pushed[name] for name in list(_STAGES)[:3]}
        row |= {name: update[name] for name in list(_STAGES)[4:8]}
        row["handover_s"] = update["arrived"] - pushed["push_end"]
        # The product transfers once. The stand-in pulls in every look.
        pulls = 1 if side.kind == PRODUCT else acted["looks"]
        row |= {name: seconds / pulls for name, seconds in acted["phases"].items()}
        row |= {
            "total_s": acted["first_action"] - started,
            "learner_cpu_s": learner.call(time.process_time) - worked,
            "step_s": usual,
            "hold_up_s": max(s for at, s in steps if at + s > started) - usual,
            "message_bytes": update["message_bytes"],
            "fp32_bytes": update["fp32_bytes"],
        }
        return row

    def _push(self, side: Side) -> dict[str, float]:
        self._version += 1
        learner = self._processes[side.kind][0]
        return learner.call(_PATHS[side.kind].push, self._configs[side], self._version)

    def _update(self, side: Side) -> dict[str, float]:
        """Returns the broadcaster's figures of the newest version."""
        deadline = time.monotonic() + _UPDATE_DEADLINE_S
        broadcaster, path = self._processes[side.kind][1], _PATHS[side.kind]
        while True:
            update = broadcaster.call(path.last_update, self._configs[side])
            if update.get("model_version") == self._version:
                return update
            if time.monotonic() > deadline:
                raise RuntimeError(f"No update of version {self._version} was logged.")
            time.sleep(0.01)


def table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    """Returns a row of medians, in milliseconds, for each side."""
    lines = []
    for name, updates in rows.items():
        middle = {key: statistics.median(row[key] for row in updates) for key in updates[0]}
        times = ("total_s", *_STAGES, "hold_up_s", "learner_cpu_s")
        cells = [f"{1e3 * middle[key]:.1f}" for key in times]
        size, full = middle["message_bytes"], middle["fp32_bytes"]
        lines.append([name, *cells, f"{size / 1e6:.2f}", f"{size / full:.4f}"])
    return lines


def main(arguments: Sequence[str]) -> None:
    """Measures both paths, prints the tables and writes them."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=5)
    parser.add_argument("--quick", action="store_true", help="Measure a few sides.")
    options = timing.parse(parser, arguments, repeats=3)
    repeats = options.repeats
    cores = timing.pin(min(2, len(os.sched_getaffinity(0))))
    sides = plan(library.available(), options.quick)
    kinds = sorted({side.kind for side in sides})
    placements: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        remote.remotes([cores[-1]] * 3 * len(kinds)) as started,
    ):
        processes = {kind: started[3 * i : 3 * i + 3] for i, kind in enumerate(kinds)}
        bench = Bench(sides, processes, folder)
        for count in range(1, len(cores) + 1):
            timing.progress(f"{repeats} rounds on {count} core(s)")
            bench.place(cores[-count], cores[-1])
            measurements = {side.name: functools.partial(bench.measure, side) for side in sides}
            for measure in measurements.values():
                measure()  # Caches and memory are to be those of a second push.
            placements[f"{count} core" + "s" * (count > 1)] = timing.interleave(
                measurements, repeats
            )
    _report(placements, options.out)


def _report(
    placements: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], out: str | None
) -> None:
    who = ["learner"] * 3 + ["broadcaster"] * 5 + ["actor"] * 3
    stages = [f"{name} ({part})" for name, part in zip(_STAGES.values(), who, strict=True)]
    header = [
        "Path", "push to first action", *stages, "hold-up", "learner's CPU", "message, MB", "/ fp32"
    ]
    tables = [
        (f"Weights of a policy of 3x{_WIDTH} from learner to actor, all processes on {name}, "
         "median milliseconds" if name == "1 core" else
         "The same with the learner on a core of its own", header, table(rows))
        for name, rows in placements.items()
    ]
    timing.report(
        _NAME, *tables[0], {"placements": placements}, out,
        notes=[
            "Stages overlap where processes work at the same time, and the total also contains the "
            "wait for a look (every 30 steps).",
            "take: from the learner's insert to the message in the broadcaster's hands.",
            "Hold-up: the actor's longest step, from the push to 40 steps behind the first action, "
            "less the median step. On one core that is mostly the other processes' turn.",
            "Learner's CPU: CPU time of its process, which holds the server, from push to first "
            "action.",
            "The stand-in for the original pulls in every look, between two steps; the product "
            "looks and transfers in a thread, and only when there are newer weights.",
        ],
        more=tables[1:],
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
