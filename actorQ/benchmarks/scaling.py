"""Benchmark 6: how cost grows with actors, layer widths and replay; start and memory of actors.

    python -m actorQ.benchmarks.scaling --out DIR

Servers have one core, what loads them the other.
"""

from collections.abc import Sequence
import statistics
import tempfile
import threading
from typing import Any

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
    """Measures 1 to 8 writers at one server."""
    with remote.remotes([cores[1]] + [cores[0]] * max(counts)) as (server, *writers):
        layout = server.call(scaling_sides.layout)
        port = server.call(remote.start_server, _config(most=100_000), layout)
        for writer in writers:
            writer.call(scaling_sides.open_writer, _config(port))
        found: dict[int, list[Any]] = {count: [] for count in counts}

        def measure(count: int) -> float:
            results: list[Any] = [None] * count

            def write(index: int) -> None:
                results[index] = writers[index].call(scaling_sides.write, 1.5)

            cpu = server.call(remote.cpu_seconds)
            threads = [threading.Thread(target=write, args=(i,)) for i in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            cpu = server.call(remote.cpu_seconds) - cpu
            total = sum(result[0] for result in results)
            found[count].append({
                "inserts_per_s": sum(result[0] / result[1] for result in results),
                "writer_cpu_us": 1e6 * sum(result[2] for result in results) / total,
                "server_cpu_us": 1e6 * cpu / total,
            })
            return 0.0

        timing.progress("scaling: writers")
        timing.interleave({str(n): lambda n=n: measure(n) for n in counts}, repeats)
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

    from actorQ.benchmarks import inference as inference_benchmark
    from actorQ.policy import inference
    from actorQ.policy.native import library

    architecture = inference_benchmark.architectures([width])[f"3x{width}"]
    weights = inference_benchmark.random_weights(architecture, np.random.default_rng(0))
    observation = np.zeros((1, *architecture.observation_shape), np.float32)
    backends = {}
    for mode, all_bits in _modes(library.available()).items():
        for bits in all_bits:
            inference.use_one_thread(mode)
            backend = inference.make_backend(architecture, bits, mode)
            inference.load_weights(backend, weights, bits)
            backends[f"{mode} {_BITS[bits]}"] = backend
    calls = {name: lambda b=backend: b(observation) for name, backend in backends.items()}
    seconds = timing.medians(timing.latencies(calls, repeats))
    return {name: 1e6 * value for name, value in seconds.items()}


def _modes(native: bool) -> dict[str, tuple[int, ...]]:
    modes = {"pytorch": (32, 16, 8)}
    return modes | ({"native": (32, 16, 8, 4)} if native else {})


def replay_table(cores: list[int], sizes: Sequence[int]) -> tuple[_Table, Any]:
    """Fills one table and measures at every size."""
    record = []
    with remote.remotes([cores[1], cores[0]]) as (server, writer):
        layout = server.call(scaling_sides.layout)
        config = _config(most=max(sizes))
        port = server.call(remote.start_server, config, layout)
        writer.call(scaling_sides.open_writer, _config(port))
        empty = server.call(scaling_sides.resident_bytes)
        filled = 0
        for size in sizes:
            timing.progress(f"scaling: replay of {size} transitions")
            count, seconds, _ = writer.call(scaling_sides.write, 300.0, size - filled)
            filled += count
            resident = server.call(scaling_sides.resident_bytes)
            batches = server.call(scaling_sides.batches_per_second, config, port, 1.5)
            record.append({
                "transitions": filled,
                "bytes_per_transition": (resident - empty) / filled,
                "inserts_per_s": count / seconds,
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

    sides = [("original", 8), ("original", 32)]
    sides += [(m, bits) for m, all_bits in _modes(library.available()).items() for bits in all_bits]
    if quick:
        sides = [("original", 8), sides[-2]]
    found: dict[tuple[str, int], list[scaling_sides.Start]] = {side: [] for side in sides}
    with remote.remotes([cores[0]]) as (process,), tempfile.TemporaryDirectory() as folder:

        def measure(side: tuple[str, int]) -> float:
            timing.progress(f"scaling: start of an actor, {side[0]} {_BITS[side[1]]}")
            found[side].append(process.call(scaling_sides.start_actor, *side, _MODEL, folder))
            return 0.0

        timing.interleave({str(s): lambda s=s: measure(s) for s in sides}, repeats)
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
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, under a minute")
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
            "MB resident: of the whole process; the original's stand-in holds a small server, too, "
            "whose start, with that of its weights, is in its seconds: too many by that.",
        ),
        more=more,
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
