"""One program of XLA, and several steps in a call, on a CPU: for results/benchmarks-learner."""

import statistics

from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records as records

_RECORD = "xeon_learner/learner"
_THREADS = {"2 / 1": "1", "2 / 2": "2"}


def _programs() -> str:
    """Returns steps per second as before, and how many times as fast the other programs are."""
    rows = []
    for placement, of_placement in records.load(_RECORD)["programs"].items():
        for name, sides in of_placement.items():
            policy, batch, source = name.split(", ")
            if source != "Reverb":
                continue
            rows.append([
                f"{policy}, batch {batch}", _THREADS[placement],
                f"{1 / statistics.median(sides[0]['seconds']):.1f}",
                *(f"{records.times(side, sides[0]):.2f}" for side in sides[1:]),
            ])
    calls = records.load(_RECORD)["programs"]["2 / 2"]["3x2048, 256, Reverb"][-1]["steps_per_call"]
    return tables.table(
        ["Policy", "Threads", "steps/s: TensorFlow's graph", "times as fast: one program",
         f"graph, {calls} steps a call", f"one program, {calls} steps a call"],
        rows,
    )


def _delivered() -> str:
    """Returns the batches that replay delivers where nobody learns from them."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for placement, of_placement in records.load(_RECORD)["delivered"].items():
        for name, laps in of_placement.items():
            batch = name.split(", ")[0]
            seconds, cpu_seconds = (
                statistics.median(lap[key] for lap in laps) for key in ("seconds", "cpu_seconds")
            )
            rows.setdefault((*placement.split(" / "), batch), []).append(
                f"{1 / seconds:.0f} ({1e6 * cpu_seconds / int(batch):.1f} µs)"
            )
    return tables.table(
        ["Cores", "Threads", "Batch", "One reader, batches/s (CPU of a transition)", "Two",
         "Three"],
        [[*place, *cells] for place, cells in rows.items()], 0,
    )


@prose.wrapped
def _amx() -> str:
    """Returns what bfloat16 gains on a processor with AMX."""
    one_core = records.load(_RECORD)["1 / 1"]
    peaks = one_core["peak_flop_per_s"]
    sides = {
        (side["precision"], side["optimizer"]): side
        for side in one_core["3x2048, 256"] if side["source"] == "memory"
    }
    reference = sides["float32", "Sonnet"]
    plain, fused = (
        records.times(sides["bfloat16", optimizer], reference) for optimizer in ("Sonnet", "fused")
    )
    return (
        "- The Xeon's processor has AMX. On one core its products reach "
        f"{peaks['bfloat16'] / 1e9:.0f} GFLOP/s in bfloat16 and {peaks['float32'] / 1e9:.0f} in "
        f"float32. A step of 3x2048 with batch 256 is {plain:.2f} times as fast with bfloat16, and "
        f"{fused:.2f} times with the fused optimizer. Both targets are missed there, too."
    )


BLOCKS = {"programs": _programs, "delivered": _delivered, "amx": _amx}
