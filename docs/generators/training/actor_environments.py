"""Several environments an actor, measured in whole runs: for results/throughput-and-cluster."""

import statistics

from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records as records

_RECORD = "xeon_environments/end_to_end"
_CORES = {"off": "shared", "on": "apart"}


def _median(run: records.Record, rate: str) -> float:
    return statistics.median(found[rate] for found in run["rates"])


def _inference_us(run: records.Record) -> float:
    return statistics.median(found["phases_us"]["inference_s"] for found in run["rates"])


def _runs() -> dict[tuple[int, str, int, int], records.Record]:
    """Returns the runs by actors, pinning, environments of an actor, and bits."""
    return {
        (run["actors"], run["pinned"], run["environments"], run["bits"]): run
        for run in records.load(_RECORD)["runs"]
    }


def _table() -> str:
    """Returns the rates of actors and learner for each number of environments."""
    runs = _runs()
    rows = []
    for actors, pinned, environments in sorted({key[:3] for key in runs}):
        fp32, int8 = (runs[actors, pinned, environments, bits] for bits in (32, 8))
        steps = [_median(run, "actor_steps_per_s") for run in (fp32, int8)]
        rows.append([
            str(actors), _CORES[pinned], str(environments),
            *(tables.number(rate, 0) for rate in steps), f"{steps[1] / steps[0]:.2f}",
            *(tables.number(_inference_us(run), 0) for run in (fp32, int8)),
            *(f"{_median(run, 'learner_steps_per_s'):.1f}" for run in (fp32, int8)),
        ])
    return tables.table(
        ["Actors", "Cores", "environments of each", "actor steps/s: fp32", "int8", "int8 / fp32",
         "inference of a step, µs: fp32", "int8", "learner steps/s beside fp32", "beside int8"],
        rows,
    )


@prose.wrapped
def _reading() -> str:
    """Returns what environments gain, and what a second actor does to the learner."""
    runs = _runs()

    def steps(actors: int, environments: int, bits: int, pinned: str = "off") -> float:
        return _median(runs[actors, pinned, environments, bits], "actor_steps_per_s")

    def learner(actors: int) -> float:
        return _median(runs[actors, "off", 1, 8], "learner_steps_per_s")

    def per_env(bits: int) -> str:
        return f"{steps(1, 8, bits) / steps(1, 1, bits):.1f}"

    return (
        f"- Eight environments make one int8 actor {per_env(8)} times as fast, and an fp32 actor "
        f"{per_env(32)} times. The weights are read once for all of them.\n"
        f"- So int8 gains less: {steps(1, 8, 8) / steps(1, 8, 32):.1f} times with eight "
        f"environments, where it gains {steps(1, 1, 8) / steps(1, 1, 32):.1f} times with one.\n"
        f"- A second int8 actor, which shares the learner's core, adds "
        f"{100 * (steps(2, 1, 8) / steps(1, 1, 8) - 1):.0f} % of steps, and takes "
        f"{100 * (1 - learner(2) / learner(1)):.0f} % of the learner's.\n"
        f"- Pinned cores make one actor {steps(1, 1, 8, 'on') / steps(1, 1, 8):.2f} times as fast. "
        "Two pinned actors share one core, and the learner keeps its rate."
    )


BLOCKS = {"table": _table, "reading": _reading}
