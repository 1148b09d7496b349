"""Actors with wide policies on an Intel Xeon: for results/wide-policies-on-a-xeon."""

import statistics

from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records as records
from docs.generators.training.benchmark_results import inference_us

_RUNS = "xeon_environments/end_to_end"
_ALONE = "xeon_inference/alone/inference"
_BESIDE = ("xeon_inference/first_of_two/inference", "xeon_inference/second_of_two/inference")
_ZEN5 = "inference"
_WIDE = "3x2048"
_PRECISIONS = ("fp32", "fp16", "int8", "int4")
_CORES = {"off": "shared", "on": "apart"}


def _beside_us(policy: str, side: str) -> float:
    """Returns the mean of two processes that computed at the same time, on a core each."""
    return statistics.mean(inference_us(policy, side, record) for record in _BESIDE)


def _gb_per_s(record: str, policy: str, precision: str) -> float:
    """Returns how fast a core reads the weights of a policy again and again."""
    floor = f"floor {precision}"
    weights = records.load(record)[policy]["weight_bytes"][floor]
    return weights / inference_us(policy, floor, record) / 1e3


@prose.wrapped
def _answer() -> str:
    """Returns why a step takes long, and what several environments make of it."""
    reading, step = (
        inference_us(_WIDE, f"{side} int8", _ALONE) for side in ("floor", "native")
    )
    return (
        "**Answer.** A core of this Xeon reads weights that its own cache cannot hold at "
        f"{_gb_per_s(_ALONE, _WIDE, 'int8'):.0f} GB/s, where a Zen 5's reads "
        f"{_gb_per_s(_ZEN5, _WIDE, 'int8'):.0f}. Reading alone takes {reading:.0f} of the "
        f"{step:.0f} µs of an int8 step. Eight environments share one reading, so that a step "
        f"of one of them takes {_step_us(_runs()[1, 'off', 8, 8]):.0f} µs."
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
                        inference_us(policy, floor, _ALONE), inference_us(policy, native, _ALONE),
                        _beside_us(policy, native), inference_us(policy, floor),
                        inference_us(policy, native),
                    )
                ),
            ])
    return tables.table(
        ["Policy", "Precision", "weights, MB", "Xeon, µs: reading them", "a step",
         "a step, both cores busy", "Zen 5, µs: reading them", "a step"],
        rows, 1,
    )


def _step_us(run: records.Record) -> float:
    """Returns the median microseconds of inference for a step of one environment."""
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
        steps = [records.run_rate(run, "actor_steps_per_s") for run in (fp32, int8)]
        rows.append([
            str(actors), _CORES[pinned], str(environments),
            *(tables.number(rate, 0) for rate in steps), f"{steps[1] / steps[0]:.2f}",
            *(tables.number(_step_us(run), 0) for run in (fp32, int8)),
            *(f"{records.run_rate(run, 'learner_steps_per_s'):.1f}" for run in (fp32, int8)),
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
        return records.run_rate(runs[actors, pinned, environments, bits], "actor_steps_per_s")

    def learner(actors: int) -> float:
        return records.run_rate(runs[actors, "off", 1, 8], "learner_steps_per_s")

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
