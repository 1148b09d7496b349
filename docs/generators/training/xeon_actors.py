"""Actors with wide policies on an Intel Xeon: for results/wide-policies-on-a-xeon."""

import statistics

from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records as records

_RUNS = "xeon_environments/end_to_end"
_ALONE = "xeon_inference/alone/inference"
_BESIDE = ("xeon_inference/first_of_two/inference", "xeon_inference/second_of_two/inference")
_ZEN5 = "inference"
_WIDE = "3x2048"
_PRECISIONS = ("fp32", "fp16", "int8", "int4")
_CORES = {"off": "shared", "on": "apart"}


def _us(record: str, policy: str, side: str) -> float:
    """Returns the median microseconds of one side of `inference`."""
    return 1e6 * statistics.median(records.load(record)[policy]["seconds"][side])


def _beside_us(policy: str, side: str) -> float:
    """Returns the mean of two processes that computed at the same time, on a core each."""
    return statistics.mean(_us(record, policy, side) for record in _BESIDE)


def _gb_per_s(record: str, policy: str, precision: str) -> float:
    """Returns how fast a core reads the weights of a policy again and again."""
    floor = f"floor {precision}"
    return records.load(record)[policy]["weight_bytes"][floor] / _us(record, policy, floor) / 1e3


@prose.wrapped
def _answer() -> str:
    """Returns why a step takes long, and what several environments make of it."""
    runs = _runs()
    return (
        "**Answer.** A core of this Xeon reads weights that its own cache cannot hold at "
        f"{_gb_per_s(_ALONE, _WIDE, 'int8'):.0f} GB/s, where a Zen 5's reads "
        f"{_gb_per_s(_ZEN5, _WIDE, 'int8'):.0f}. Reading alone takes "
        f"{_us(_ALONE, _WIDE, 'floor int8'):.0f} of the {_us(_ALONE, _WIDE, 'native int8'):.0f} µs "
        f"of an int8 step. Eight environments share one reading, so that each of their steps takes "
        f"{_inference_us(runs[1, 'off', 8, 8]):.0f} µs."
    )


def _inference() -> str:
    """Returns the time of a step and of reading its weights, alone and beside another process."""
    rows = []
    for policy in ("3x256", "3x1024", _WIDE):
        for precision in _PRECISIONS:
            floor, native = f"floor {precision}", f"native {precision}"
            weights = records.load(_ALONE)[policy]["weight_bytes"][floor]
            rows.append([
                policy, precision, f"{weights / 1e6:.1f}",
                *(
                    f"{us:,.1f}" if us < 10 else f"{us:,.0f}" for us in (
                        _us(_ALONE, policy, floor), _us(_ALONE, policy, native),
                        _beside_us(policy, native), _us(_ZEN5, policy, floor),
                        _us(_ZEN5, policy, native),
                    )
                ),
            ])
    return tables.table(
        ["Policy", "Precision", "weights, MB", "Xeon, µs: reading them", "a step",
         "a step, both cores busy", "Zen 5, µs: reading them", "a step"],
        rows, 1,
    )


def _median(run: records.Record, rate: str) -> float:
    return statistics.median(found[rate] for found in run["rates"])


def _inference_us(run: records.Record) -> float:
    return statistics.median(found["phases_us"]["inference_s"] for found in run["rates"])


def _runs() -> dict[tuple[int, str, int, int], records.Record]:
    """Returns the runs by actors, pinning, environments of an actor, and bits."""
    return {
        (run["actors"], run["pinned"], run["environments"], run["bits"]): run
        for run in records.load(_RUNS)["runs"]
    }


def _environments() -> str:
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


BLOCKS = {
    "answer": _answer, "inference": _inference, "environments": _environments,
    "reading": _reading,
}
