"""An actor's phases, and the rates of actors and learner.

The blocks stand in `results/breakdown.md` and `results/throughput-and-cluster.md`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
import statistics

from actorQ.experiments.run_logs import paper
from docs.generators import prose
from docs.generators import tables
from docs.generators.training import benchmark_records

Row = Mapping[str, str]

_PERIODS = (30, 300)
_PRECISIONS = ("fp32", "fp16", "int8", "int4")
_PAPER_PHASES = ("step (inference)", "pull", "deserialize", "load_state_dict")
_OTHER_PHASES = ("environment", "insert")
_CARTPOLE, _ACROBOT = "dm_control,cartpole_balance", "gym,Acrobot-v1"
_LEARNER_STEPS_PER_S = 50.0  # The simulated learner of the page's table.
_ENOUGH = 0.95  # The simulation calls a learner saturated at this share of what it wants.


class Breakdown:
    """The phases of one experiment, by precision and update period."""

    def __init__(self, experiment: str):
        """Reads the report of an experiment.

        Args:
            experiment: Name of a folder, `breakdown` or `breakdown_torch`.
        """
        report = tables.ACTORQ_RESULTS / experiment / "report"
        self._rows = {
            (row["precision"], int(row["value"]), row["phase"]): row
            for row in tables.csv_rows(report / f"{experiment}.csv")
        }
        self.runs = tables.csv_rows(report / "runs.csv")
        self.precisions = [
            name for name in _PRECISIONS if any(key[0] == name for key in self._rows)
        ]
        self.cells = [(name, period) for period in _PERIODS for name in self.precisions]

    def phase_us(self, precision: str, period: int, phase: str) -> float:
        """Returns the microseconds of a phase for one step."""
        return float(self._rows[precision, period, phase]["us_per_step"])

    def figure(self, precision: str, period: int, column: str) -> float:
        """Returns a figure of a whole step."""
        return float(self._rows[precision, period, _PAPER_PHASES[0]][column])

    def fetch_us(self, precision: str, period: int) -> float:
        """Returns the microseconds of pull and deserialize for one step."""
        return sum(self.phase_us(precision, period, phase) for phase in ("pull", "deserialize"))

    def fetch_ms_per_load(self, precision: str, period: int) -> float:
        """Returns the milliseconds of pull and deserialize for one load."""
        steps = self.figure(precision, period, "steps_per_load")
        return self.fetch_us(precision, period) * steps / 1e3

    def unpack_ms_per_load(self, precision: str, period: int) -> float:
        """Returns the milliseconds of deserialize for one load."""
        steps = self.figure(precision, period, "steps_per_load")
        return self.phase_us(precision, period, "deserialize") * steps / 1e3

    def step_by_seed(self, precision: str, period: int) -> list[float]:
        """Returns the microseconds of a step, by seed."""
        return [
            float(run["step_us"]) for run in self.runs
            if run["precision"] == precision and int(run["varied"]) == period
        ]


@functools.cache
def _breakdown(experiment: str) -> Breakdown:
    return Breakdown(experiment)


def _phases_table(experiment: str) -> str:
    found = _breakdown(experiment)
    head = ["µs per environment step"]
    for period in _PERIODS:
        names = list(found.precisions)
        names[0] = f"period {period}: {names[0]}"
        head += names

    def row(name: str, of: Callable[[str, int], float], digits: int = 1) -> list[str]:
        bold = "**" * name.startswith("**")
        return [name, *(f"{bold}{of(*cell):,.{digits}f}{bold}" for cell in found.cells)]

    def of_phase(phase: str) -> list[str]:
        return row(phase, lambda precision, period: found.phase_us(precision, period, phase))

    def of_step(name: str, column: str, digits: int = 1) -> list[str]:
        return row(
            name, lambda precision, period: found.figure(precision, period, column), digits
        )

    return tables.table(head, [
        *map(of_phase, _PAPER_PHASES),
        of_step("the paper's four phases together", "paper_phases_us"),
        of_step("their gain over fp32", "paper_phases_speedup", 2),
        *map(of_phase, _OTHER_PHASES),
        of_step("**a step by the clock**", "step_us"),
        of_step("**its gain over fp32**", "step_speedup", 2),
        of_step("steps between two loads", "steps_per_load", 0),
        row("pull and deserialize, ms per load", found.fetch_ms_per_load, 0),
        row("deserialize alone, ms per load", found.unpack_ms_per_load, 0),
    ])


@prose.wrapped
def _breakdown_answer() -> str:
    gains = [
        [_breakdown(name).figure("int8", period, "step_speedup") for period in _PERIODS]
        for name in ("breakdown", "breakdown_torch")
    ]
    return (
        f"**Answer.** With native kernels, int8 shortens an actor's step {gains[0][0]:.2f} times "
        f"at an update period of 30, and {gains[0][1]:.2f} times at 300. With torch's operators "
        f"int8 shortens the step {gains[1][0]:.2f} and {gains[1][1]:.2f} times."
    )


def _range(values: Sequence[float], digits: int = 1) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


@prose.wrapped
def _breakdown_reading() -> str:
    """Returns what the table of the native kernels says."""
    found = _breakdown("breakdown")
    loop = {bits: benchmark_records.actor(_CARTPOLE, 2048, "native", bits) for bits in (32, 8)}
    idle = {bits: benchmark_records.inference_us(loop[bits]) for bits in loop}
    inference = {
        name: found.phase_us(name, 30, "step (inference)") for name in ("fp32", "int8")
    }
    environment = [
        found.phase_us("fp32", period, "environment")
        / found.phase_us("int8", period, "environment")
        for period in _PERIODS
    ]
    by_step = [found.fetch_us("fp32", p) / found.fetch_us("int8", p) for p in _PERIODS]
    by_load = [
        found.fetch_ms_per_load("fp32", p) / found.fetch_ms_per_load("int8", p) for p in _PERIODS
    ]
    return "\n".join([
        f"- fp32's inference takes {inference['fp32']:,.0f} µs here at period 30. The same "
        f"inference takes {idle[32]:.0f} µs in an actor whose learner is idle.",
        f"- int8's inference takes {inference['int8']:.0f} µs here, and {idle[8]:.0f} µs beside "
        "an idle learner.",
        f"- MuJoCo's step costs {_range(environment)} times as much beside fp32 weights as beside "
        "int8's.",
        f"- From fp32 to int8, pull and deserialize fall by {by_step[0]:.1f} and "
        f"{by_step[1]:.1f} times for one step, at periods 30 and 300.",
        f"- For one load they fall by {by_load[0]:.1f} and {by_load[1]:.1f} times only. So much "
        "of the gain of the paper's four phases is that a faster actor loads less often per step.",
    ])


@prose.wrapped
def _breakdown_spread() -> str:
    """Returns how far the seeds of the native breakdown differ."""
    found = _breakdown("breakdown")
    seeds = found.step_by_seed("fp32", 300)
    int8 = statistics.median(found.step_by_seed("int8", 300))
    gain = found.figure("int8", 300, "step_speedup")
    others = [
        max(found.step_by_seed(*cell)) / min(found.step_by_seed(*cell)) - 1
        for cell in found.cells if cell != ("fp32", 300)
    ]
    return (
        f"- fp32's two seeds at period 300 take {seeds[0]:,.0f} and {seeds[1]:,.0f} µs for a "
        f"step. The gain of {gain:.2f} therefore stands for "
        f"{_range([seed / int8 for seed in seeds])}.\n"
        f"- The seeds of every other column are within {100 * max(others):.0f} % of each other."
    )


@prose.wrapped
def _torch_reading() -> str:
    """Returns what the table of torch's operators says."""
    torch, native = _breakdown("breakdown_torch"), _breakdown("breakdown")
    unpack = {
        name: [torch.unpack_ms_per_load(name, period) for period in _PERIODS]
        for name in torch.precisions
    }
    ratio = {
        name: [a / b for a, b in zip(unpack[name], unpack["fp32"], strict=True)]
        for name in unpack
    }
    slower = [torch.figure(*cell, "step_us") / native.figure(*cell, "step_us")
              for cell in torch.cells]
    return (
        f"- Torch packs new fp16 weights in {_range(unpack['fp16'], 0)} ms a load, and int8 "
        f"weights in {_range(unpack['int8'], 0)} ms. With fp32 it takes "
        f"{_range(unpack['fp32'], 0)} ms.\n"
        f"- That is {_range(ratio['int8'])} times as long with int8 as with fp32, and "
        f"{_range(ratio['fp16'])} times with fp16.\n"
        f"- The native kernels' steps are {_range(slower)} times as short, at every precision "
        "and period."
    )


@functools.cache
def _throughput(experiment: str, task: str) -> dict[tuple[str, int], Row]:
    path = tables.ACTORQ_RESULTS / experiment / "report" / f"{experiment}.csv"
    return {
        (row["precision"], int(row["value"])): row
        for row in tables.csv_rows(path) if row["task"] == task
    }


def _rate(rows: Mapping[tuple[str, int], Row], precision: str, actors: int, column: str) -> float:
    return float(rows[precision, actors][column])


def _throughput_table() -> str:
    rows = _throughput("throughput", _CARTPOLE)
    lines = []
    for actors in (1, 2, 4):
        rates = [_rate(rows, name, actors, "actor_steps_per_s") for name in _PRECISIONS]
        used = [100 * _rate(rows, name, actors, "data_used") for name in _PRECISIONS]
        lines.append([
            str(actors),
            *(tables.number(rate) for rate in rates),
            f"**{rates[2] / rates[0]:.2f}**",
            *(f"{_rate(rows, name, actors, 'learner_steps_per_s'):.2f}" for name in _PRECISIONS),
            f"{_range(used, 0)} %",
        ])
    return tables.table(
        ["Actors", "actor steps/s: fp32", *_PRECISIONS[1:], "int8 / fp32",
         "learner steps/s: fp32", *_PRECISIONS[1:], "data used"],
        lines,
    )


def _kept() -> tuple[float, float]:
    """Returns the gain of the whole system and that of the actor's loop alone."""
    rows = _throughput("throughput", _CARTPOLE)
    whole = _rate(rows, "int8", 1, "speedup_over_fp32")
    return whole, benchmark_records.gain(_CARTPOLE, 2048)


@prose.wrapped
def _throughput_answer() -> str:
    rows = _throughput("throughput", _CARTPOLE)
    fp32, int8 = (_rate(rows, name, 1, "actor_steps_per_s") for name in ("fp32", "int8"))
    needed = [_simulated(None)[name] for name in _PRECISIONS]
    return (
        f"**Answer.** With 3x2048 one actor makes {fp32:,.0f} steps/s in fp32 and {int8:,.0f} in "
        f"int8, {int8 / fp32:.2f} times as many. In a simulation, "
        f"{needed[0]['actors_needed']} fp32 actors or {needed[2]['actors_needed']} int8 actors "
        f"saturate a learner of {_LEARNER_STEPS_PER_S:.0f} steps/s."
    )


@prose.wrapped
def _throughput_kept() -> str:
    whole, loop = _kept()
    rows = _throughput("throughput", _CARTPOLE)
    half = _rate(rows, "fp16", 1, "speedup_over_fp32")
    return (
        f"- The actor's loop alone gains {loop:.2f} times for this task. The whole system keeps "
        f"{whole / loop:.2f} of it, in one seed.\n"
        "- fp16 was measured on another day than the others, so that its gain of "
        f"{half:.2f} over fp32 is not of one run."
    )


@functools.cache
def _simulated(mbit_per_s: float | None) -> dict[str, Row]:
    """Returns the rows of the simulated learner, by precision.

    Args:
        mbit_per_s: Bandwidth of the learner's link; None: no limit.
    """
    bandwidth = 1e6 * mbit_per_s if mbit_per_s else None
    return {
        row["precision"]: row
        for row in tables.csv_rows(tables.ACTORQ_RESULTS / "cluster" / "cluster.csv")
        if row["pulls"] == "background"
        and float(row["learner_steps_per_s"]) == _LEARNER_STEPS_PER_S
        and (float(row["bandwidth_bit_per_s"]) if row["bandwidth_bit_per_s"] else None)
        == bandwidth
    }


def _cluster_table() -> str:
    networks: dict[str, float | None] = {
        "no limit": None, "10 Gbit/s": 10_000, "1 Gbit/s": 1_000, "100 Mbit/s": 100,
        "20 Mbit/s": 20,
    }
    lines = []
    for name, speed in networks.items():
        rows = _simulated(speed)
        lines.append([
            name,
            *(rows[precision]["actors_needed"] for precision in _PRECISIONS),
            *(f"{float(rows[precision]['age_s']):.1f}" for precision in _PRECISIONS),
        ])
    return tables.table(
        ["Learner's link", "actors needed: fp32", *_PRECISIONS[1:],
         "age of weights, s: fp32", *_PRECISIONS[1:]],
        lines,
    )


@prose.wrapped
def _cluster_own_rates() -> str:
    """Returns how many actors of the actor's loop would saturate the simulated learner."""
    demand = float(_simulated(None)["fp32"]["demand_env_steps_per_s"])
    rates = {
        bits: benchmark_records.rate(benchmark_records.actor(_CARTPOLE, 2048, "native", bits))
        for bits in (32, 8)
    }
    counts = {bits: math.ceil(_ENOUGH * demand / rate) for bits, rate in rates.items()}
    return (
        "- The simulation takes rates of an actor whose cache a learner shares. With the actor's "
        f"loop's own rates, {rates[32]:,.0f} and {rates[8]:,.0f} steps/s, some {counts[32]} fp32 "
        f"or {counts[8]} int8 actors would do."
    )


def _wide_table(task: str) -> str:
    rows = _throughput("throughput_4096", task)
    names = [name for name in _PRECISIONS if (name, 1) in rows]
    inference = _inference_us(task)
    rates = {name: _rate(rows, name, 1, "actor_steps_per_s") for name in names}
    deviations = {name: _deviation(rows[name, 1]) for name in names}
    return tables.table(
        ["One actor", *names],
        [
            ["actor steps/s", *(
                f"{rates[name]:,.0f}" + (f" ± {deviations[name]:.0f}" if deviations[name] else "")
                for name in names
            )],
            ["gain over fp32", *(f"**{rates[name] / rates['fp32']:.2f}**" for name in names)],
            ["inference, µs", *(f"{inference[name]:,.0f}" for name in names)],
            ["learner steps/s", *(
                f"{_rate(rows, name, 1, 'learner_steps_per_s'):.2f}" for name in names
            )],
            ["data used", *(f"{100 * _rate(rows, name, 1, 'data_used'):.0f} %" for name in names)],
        ],
    )


def _deviation(row: Row) -> float:
    """Returns the standard deviation over the seeds, or 0 for one seed."""
    rates = [float(rate) for rate in row["actor_steps_per_s_by_seed"].split(";")]
    return statistics.stdev(rates) if len(rates) > 1 else 0.0


def _inference_us(task: str) -> dict[str, float]:
    runs = tables.csv_rows(tables.ACTORQ_RESULTS / "throughput_4096" / "report" / "runs.csv")
    return {
        name: statistics.mean(
            float(run["inference_us"]) for run in runs
            if run["task"] == task and run["precision"] == name
        )
        for name in _PRECISIONS
    }


@prose.wrapped
def _wide_reading() -> str:
    rows = _throughput("throughput_4096", _ACROBOT)
    gains = {name: _rate(rows, name, 1, "speedup_over_fp32") for name in ("int8", "int4")}
    learner = {name: _rate(rows, name, 1, "learner_steps_per_s") for name in _PRECISIONS}
    published = paper.SPEEDUPS[_ACROBOT].speedup
    loop = benchmark_records.gain(_ACROBOT, 2048, folder="gym")
    return (
        f"- The paper reports a speed-up of {published:.2f} for Acrobot-v1. The actor's loop at "
        f"3x2048 gains {loop:.2f}, which is less.\n"
        f"- At 3x4096 int8 gains {gains['int8']:.2f}, no more than the paper says. int4 gains "
        f"{gains['int4']:.2f}, which is much more.\n"
        f"- One core makes only some {learner['int4']:.2f} learner steps a second, so that the "
        "learner is the limit with int8 and int4.\n"
        f"- The learner therefore makes only {learner['int8'] / learner['fp32']:.1f} times as "
        "many steps with either as with fp32."
    )


@prose.wrapped
def _weights_mb() -> str:
    """Returns the sentence on the size of the widest policy."""
    rows = _throughput("throughput_4096", _CARTPOLE)
    return (
        "The original code's default policy is 3x4096. Its weights are "
        f"{_rate(rows, 'fp32', 1, 'message_bytes') / 1e6:.0f} MB in fp32."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "breakdown_answer": _breakdown_answer,
    "breakdown_native": functools.partial(_phases_table, "breakdown"),
    "breakdown_torch": functools.partial(_phases_table, "breakdown_torch"),
    "breakdown_reading": _breakdown_reading,
    "breakdown_spread": _breakdown_spread,
    "breakdown_torch_reading": _torch_reading,
    "throughput_answer": _throughput_answer,
    "throughput": _throughput_table,
    "throughput_kept": _throughput_kept,
    "cluster": _cluster_table,
    "cluster_own_rates": _cluster_own_rates,
    "wide_weights": _weights_mb,
    "wide_cartpole": functools.partial(_wide_table, _CARTPOLE),
    "wide_acrobot": functools.partial(_wide_table, _ACROBOT),
    "wide_reading": _wide_reading,
}
