"""Benchmark 6: how cost grows with actors, layer widths and replay; start and memory of actors.

    python -m actorQ.benchmarks.scaling --out DIR

A server has one core; the processes that load it share the other.
"""

from collections.abc import Sequence
from concurrent import futures
import functools
import statistics
import tempfile
from typing import Any

from actorQ.benchmarks import backends
from actorQ.benchmarks import remote
from actorQ.benchmarks import scaling_sides
from actorQ.core import config as config_lib
from actorQ.core import precisions
from actorQ.core import timing

_NAME = "scaling"
_BITS = precisions.NAMES
_MODEL = "2048,2048,2048"
_Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _config(port: int = 0, most: int = 1_000_000) -> config_lib.RunConfig:
    return config_lib.RunConfig(
        port=0, server_address=f"localhost:{port}" if port else "", min_replay_size=1,
        replay_table_max_replay_size=most, replay_table_max_times_sampled=0,
    )


def actors_table(cores: list[int], counts: Sequence[int], repeats: int) -> tuple[_Table, Any]:
    """Measures each number of writers at one server."""
    with remote.remotes([cores[1]] + [cores[0]] * max(counts)) as (server, *writers):
        layout = server.call(scaling_sides.layout)
        port = server.call(remote.start_server, _config(most=100_000), layout)
        for writer in writers:
            writer.call(scaling_sides.open_writer, _config(port))

        def measure(count: int) -> dict[str, float]:
            with futures.ThreadPoolExecutor(count) as pool:
                cpu = server.call(remote.cpu_seconds)
                results = list(pool.map(
                    lambda writer: writer.call(scaling_sides.write, 1.5), writers[:count]
                ))
                cpu = server.call(remote.cpu_seconds) - cpu
            total = sum(result.transitions for result in results)
            return {
                "inserts_per_s": sum(result.transitions / result.wall_s for result in results),
                "writer_cpu_us": 1e6 * sum(result.cpu_s for result in results) / total,
                "server_cpu_us": 1e6 * cpu / total,
            }

        timing.progress("scaling: writers")
        found = timing.interleave({n: functools.partial(measure, n) for n in counts}, repeats)
    names = ("inserts_per_s", "writer_cpu_us", "server_cpu_us")
    rows = [
        [str(n), *(f"{statistics.median(r[name] for r in runs):.0f}" for name in names)]
        for n, runs in found.items()
    ]
    title = "Writers without an environment, as fast as they go: all on one core, server on another"
    header = ("writers", "inserts/s", "writer CPU us/insert", "server CPU us/insert")
    return (title, header, rows), found


def width_table(core: int, widths: Sequence[int], repeats: int) -> tuple[_Table, Any]:
    """Measures inference of one observation over the widths, in a process of its own."""
    timing.progress("scaling: widths")
    with remote.remotes([core]) as (process,):
        figures = {w: process.call(_inference_us, w, repeats) for w in widths}
    sides = list(figures[widths[0]])
    rows = [
        [f"3x{width}", *(f"{of[side]:.1f}" for side in sides)] for width, of in figures.items()
    ]
    return ("One observation, one thread, microseconds", ("policy", *sides), rows), figures


def _inference_us(width: int, repeats: int) -> dict[str, float]:
    import numpy as np

    from actorQ.policy.native import library

    architecture = backends.architectures([width])[f"3x{width}"]
    observation = np.zeros((1, *architecture.observation_shape), np.float32)
    calls = {
        f"{mode} {_BITS[bits]}": functools.partial(
            backends.make(architecture, bits, mode), observation
        )
        for mode, all_bits in backends.modes(library.available()).items() for bits in all_bits
    }
    seconds = timing.medians(timing.latencies(calls, repeats))
    return {name: 1e6 * value for name, value in seconds.items()}


def replay_table(cores: list[int], sizes: Sequence[int]) -> tuple[_Table, Any]:
    """Fills one table, and measures it at every size."""
    record = []
    with remote.remotes([cores[1], cores[0]]) as (server, writer):
        layout = server.call(scaling_sides.layout)
        config = _config(most=max(sizes))
        port = server.call(remote.start_server, config, layout)
        writer.call(scaling_sides.open_writer, _config(port))
        empty = server.call(remote.resident_bytes)
        filled = 0
        for size in sizes:
            timing.progress(f"scaling: replay of {size} transitions")
            written = writer.call(scaling_sides.write, 300.0, size - filled)
            filled += written.transitions
            resident = server.call(remote.resident_bytes)
            batches = server.call(scaling_sides.batches_per_second, config, port, 1.5)
            record.append({
                "transitions": filled,
                "bytes_per_transition": (resident - empty) / filled,
                "inserts_per_s": written.transitions / written.wall_s,
                "batches_per_s": batches,
            })
    rows = [
        [f"{of['transitions']:,}", f"{of['bytes_per_transition']:.0f}",
         f"{of['inserts_per_s']:.0f}", f"{256 * of['batches_per_s']:.0f}",
         f"{1e3 / of['batches_per_s']:.2f}"]
        for of in record
    ]
    title = (
        f"Replay of vectors of {layout.vector_size} float32 ({4 * layout.vector_size} bytes), "
        "batches of 256"
    )
    header = ("transitions", "bytes each, resident", "inserts/s on the way", "samples/s",
              "ms a batch")
    return (title, header, rows), record


def start_table(cores: list[int], quick: bool, repeats: int) -> tuple[_Table, Any]:
    """Starts actors of every backend and precision on one core."""
    from actorQ.policy.native import library

    modes = {"original": (8, 32), **backends.modes(library.available())}
    sides = [(mode, bits) for mode, all_bits in modes.items() for bits in all_bits]
    if quick:
        sides = [sides[0], sides[-2]]
    with remote.remotes([cores[0]]) as (process,), tempfile.TemporaryDirectory() as folder:

        def measure(mode: str, bits: int) -> scaling_sides.Start:
            timing.progress(f"scaling: start of an actor, {mode} {_BITS[bits]}")
            return process.call(scaling_sides.start_actor, mode, bits, _MODEL, folder)

        found = timing.interleave(
            {side: functools.partial(measure, *side) for side in sides}, repeats
        )
    rows = [
        [f"{mode} {_BITS[bits]}",
         *(f"{statistics.median(getattr(s, name) for s in starts):.{digits}f}"
           for name, digits in (("wall_s", 1), ("cpu_s", 1), ("megabytes", 0)))]
        for (mode, bits), starts in found.items()
    ]
    title = "Start of an actor until it asks for weights, and its memory when it acts; 3x2048"
    header = ("actor", "seconds", "CPU seconds", "MB resident")
    record = {f"{m} {b}": [s._asdict() for s in starts] for (m, b), starts in found.items()}
    return (title, header, rows), record


def main(argv: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=3)
    parser.add_argument(
        "--quick", action="store_true", help="Measure the smallest sizes, in under a minute."
    )
    arguments = timing.parse(parser, argv, repeats=1)
    quick, repeats = arguments.quick, arguments.repeats
    cores = timing.pin(2)
    parts = {
        "actors": actors_table(cores, (1, 2) if quick else (1, 2, 4, 8), repeats),
        "widths": width_table(
            cores[0], (256, 1024) if quick else (64, 256, 512, 1024, 2048, 4096), repeats
        ),
        "replay": replay_table(cores, (10_000,) if quick else (10_000, 100_000, 1_000_000)),
        "start": start_table(cores, quick, repeats),
    }
    (title, header, rows), *more = [table for table, _ in parts.values()]
    timing.report(
        _NAME, title, header, rows, {name: found for name, (_, found) in parts.items()},
        arguments.out,
        notes=(
            "bytes each, resident: growth of the server's process; Reverb compresses, and these "
            "random numbers do not compress.",
            "MB resident: of the whole process. The original's stand-in holds a small server, too, "
            "and its seconds are too many by the start of that server and of its weights.",
        ),
        more=more,
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
