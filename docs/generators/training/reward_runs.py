"""The committed runs that train until a reward is held, and texts made of their figures.

`actorQ.experiments.reports.reaching` defines medians, censored seeds and speed-ups.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import pathlib
import statistics
import textwrap

from actorQ.environments import evaluation
from actorQ.experiments import kinds
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import actor_loop_gain
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times
from docs.generators import tables

CARTPOLE_BALANCE = "dm_control,cartpole_balance"
WALKER_STAND = "dm_control,walker_stand"
CARTPOLE = "gym,CartPole-v0"
MOUNTAIN_CAR = "gym,MountainCar-v0"
ACROBOT = "gym,Acrobot-v1"

FP32, INT8 = reaching.FP32, reaching.INT8
FP16, INT4 = (reporting.Side(kinds.TRAINING, bits) for bits in (16, 4))
ACME, SB3 = (reporting.Side(kind, kinds.PRECISION) for kind in (kinds.ACME, kinds.SB3))
PRECISIONS = (FP32, FP16, INT8, INT4)

NOTHING = reporting.NOTHING


@functools.cache
def runs_in(folder: pathlib.Path) -> tuple[results_lib.Result, ...]:
    """Returns the results in the folders below `folder`, by name; a folder may be missing."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = (results_lib.read(str(path)) for path in paths)
    return tuple(result for result in found if result is not None)


def runs(experiment: str) -> tuple[results_lib.Result, ...]:
    """Returns the published results of an experiment, by name of the run."""
    return runs_in(tables.ACTORQ_RESULTS / experiment / "runs")


@functools.cache
def rows(experiment: str) -> Mapping[str, reaching.Rows]:
    """Returns the rows of each task of an experiment, in the paper's order of tasks."""
    return rows_of(runs(experiment))


def rows_of(found: Iterable[results_lib.Result]) -> Mapping[str, reaching.Rows]:
    """Returns the rows of each task that has results, in the paper's order of tasks."""
    ordered = sorted(found, key=lambda result: _place(result.task))
    definition = specification.Experiment(
        "", "", kinds.TRAINING, "", (), (), specification.Layer({}, {}), None, {}
    )
    planned = [
        specification.Run(r.name, r.kind, r.task, r.precision, r.seed, r.varied, r.settings)
        for r in ordered
    ]
    by_name = {r.name: r for r in ordered}
    return reaching.rows_by_task(
        reporting.Material(definition, "", planned, by_name, {}, "")
    )


def _place(task: str) -> tuple[int, str]:
    """Returns a task's place in the paper's order, which has other tasks last by name."""
    order = list(paper.SPEEDUPS)
    return (order.index(task) if task in order else len(order), task)


def of_seeds(task_rows: reaching.Rows, seeds: Collection[int]) -> reaching.Rows:
    """Returns the rows of one task with some of their seeds only."""
    chosen = {}
    for side, row in task_rows.items():
        reaches = [reach for seed, reach in row.by_seed.items() if seed in seeds]
        if reaches:
            found = [result for result in row.results if result.seed in seeds]
            chosen[side] = dataclasses.replace(
                row, results=found, reaches=reaches, median=reaching.median_reach(reaches)
            )
    return chosen


def speedup(task_rows: reaching.Rows, side: reporting.Side = INT8) -> times.Speedup:
    """Returns how much sooner than fp32 a side held the reward."""
    found = reaching.speedup(task_rows, side)
    assert found is not None, "Both sides have seeds in common."
    return found


@functools.cache
def _loops() -> list[actor_loop_gain.Measurement]:
    return actor_loop_gain.measurements()


def loop_gain(row: reaching.Row) -> float:
    """Returns what an actor alone gains over fp32, on a row's task and processor."""
    first = row.results[0]
    gains = (
        actor_loop_gain.ratio(one, row.task, first.settings, first.machine, row.side.precision)
        for one in _loops()
    )
    return next(gain for gain in gains if gain is not None)


def kept(gain: times.Speedup | float, loop: float) -> str:
    """Returns the part of the loop's gain that is kept, marked if it is less than the target."""
    found = gain if isinstance(gain, times.Speedup) else times.Speedup(gain)
    part = found.value / loop
    text = f"{found.bound} {part:.2f}".strip()
    missed = round(part, 2) < actor_loop_gain.TARGET and found.bound != ">"
    return f"{text} (**missed**)" if missed else text


def learner_gain(task_rows: reaching.Rows, side: reporting.Side = INT8) -> float:
    """Returns a side's learner steps/s over fp32's."""
    gain = reaching.learner_gain(task_rows, side)
    assert gain is not None, "All runs note the learner's steps."
    return gain


def seconds(reach: times.Reach) -> str:
    """Returns '1,628.6', or '> 2,376.4' where the reward was not held."""
    return "> " * (not reach.reached) + tables.number(reach.seconds, 1)


def by_seed(row: reaching.Row) -> str:
    """Returns the time to reward of each seed."""
    return "; ".join(seconds(reach) for reach in row.reaches)


def reward(row: reaching.Row) -> str:
    """Returns the final reward: mean and standard deviation over the seeds."""
    return reporting.mean_and_deviation(row.final_rewards)


def mean(row: reaching.Row, quantity: str, digits: int = 0) -> str:
    """Returns the mean of a measured quantity over the seeds."""
    return tables.number(_mean(row, quantity), digits)


def _mean(row: reaching.Row, quantity: str) -> float:
    values = [getattr(result.measured, quantity) for result in row.results]
    return float(statistics.mean(value for value in values if value is not None))


def data_used(row: reaching.Row) -> str:
    """Returns the part of the samples that the learner took, in per cent."""
    return f"{100 * _mean(row, 'data_used'):.0f} %"


def held_from(result: results_lib.Result) -> float | None:
    """Returns the learner step from which on a run held its reward; None: it did not."""
    measured, settings = result.measured, result.settings
    if measured.target is None:
        return None
    since = evaluation.held_since(
        measured.rewards.returns, measured.target, settings["stop_window"],
        settings["stop_smoothing"],
    )
    return None if since is None else measured.rewards.learner_steps[since]


def steps_by_seed(row: reaching.Row) -> str:
    """Returns the learner step from which on each seed held the reward."""
    return "; ".join(_held_or_made(result) for result in row.results)


def _held_or_made(result: results_lib.Result) -> str:
    step = held_from(result)
    if step is not None:
        return tables.number(step)
    return f"> {tables.number(result.measured.learner_steps)}"


def made_with(found: Iterable[results_lib.Result]) -> str:
    """Returns a table of the runs' commits, days and processors, by task and side."""

    def key(result: results_lib.Result) -> tuple[str, str]:
        side = reporting.Side(result.kind, result.precision)
        return result.task, side.short_name

    ordered = sorted(
        found, key=lambda r: (_place(r.task), r.kind, -r.precision, r.seed)
    )
    lines = []
    for (task, side), group in itertools.groupby(ordered, key):
        members = list(group)
        lines.append([
            specification.short_task(task), side, _seeds_by_commit(members),
            _days(members),
            "; ".join(dict.fromkeys(processor(result) for result in members)),
        ])
    return tables.table(["Task", "Actors", "Commit: seeds", "Days", "Processor"], lines, 5)


def _seeds_by_commit(found: Iterable[results_lib.Result]) -> str:
    by_commit: dict[str, list[int]] = {}
    for result in found:
        by_commit.setdefault(result.git_commit[:7], []).append(result.seed)
    return "; ".join(
        f"`{commit}`: {', '.join(map(str, seeds))}" for commit, seeds in by_commit.items()
    )


def _days(found: Iterable[results_lib.Result]) -> str:
    """Returns the days of the launches, for example '2026-11-21, 2026-11-22'."""
    return ", ".join(sorted({result.date.partition(" ")[0] for result in found}))


_PROCESSORS = {
    "AMD EPYC": "AMD EPYC (Zen 5 or Zen 4)",
    "AMD EPYC (family 25, model 17)": "AMD EPYC, Zen 4",
    "AMD EPYC (family 25, model 1)": "AMD EPYC, Zen 3",
    "Intel(R) Xeon(R) Processor (family 6, model 167)": "Intel Xeon, family 6, model 167",
    "Intel(R) Xeon(R) Processor (family 6, model 207)": "Intel Xeon, family 6, model 207",
}


def processor(result: results_lib.Result) -> str:
    """Returns the processor of a run, as the pages name it."""
    name = str(result.machine["processor"])
    return _PROCESSORS.get(name, name)


def runs_table(task_rows: reaching.Rows, sides: Iterable[reporting.Side] | None = None) -> str:
    """Returns a table with a line for each run of a task, seed by seed.

    Args:
      task_rows: Rows of one task.
      sides: Sides to show; None: all of them.
    """
    base = task_rows[FP32].by_seed if FP32 in task_rows else {}
    shown = [row for side, row in task_rows.items() if sides is None or side in sides]
    found = [
        (result.seed, row.name, row.by_seed[result.seed], result)
        for row in shown for result in row.results
    ]
    lines = []
    for seed, name, reach, result in sorted(found, key=lambda one: one[0]):
        lines.append([
            str(seed), name, seconds(reach), _ratio(base.get(seed), reach),
            _held_or_made(result), *_rates(result),
        ])
    head = [
        "Seed", "Actors", "Held after, s", "Times as soon as fp32", "Held from learner step",
        "Actor steps/s", "Learner steps/s", "Data used", "Final reward",
    ]
    return tables.table(head, lines, 2)


def columns_table(head: Sequence[str], columns: Iterable[Sequence[str]]) -> str:
    """Returns a table with a column for each side and a line for each quantity.

    Args:
      head: Names of the quantities; the first one names the sides.
      columns: Cells of each side, its name first.
    """
    first, *lines = zip(head, *columns, strict=True)
    return tables.table(first, lines)


def _ratio(fp32: times.Reach | None, other: times.Reach) -> str:
    if fp32 == other:
        return "1"
    ratio = None if fp32 is None else times.speedup_between(fp32, other)
    return NOTHING if ratio is None or ratio.bound == "?" else ratio.text()


def _rates(result: results_lib.Result) -> list[str]:
    """Returns the rates of a run, its data used and its final reward."""
    measured = result.measured
    return [
        tables.number(measured.actor_steps_per_s or 0.0),
        tables.number(measured.learner_steps_per_s or 0.0, 2),
        f"{100 * (measured.data_used or 0.0):.0f} %",
        tables.number(measured.final_reward or 0.0, 1),
    ]


Block = Callable[[], str]


def answer(text: str) -> str:
    """Returns a page's answer in lines of at most 100 characters."""
    return textwrap.fill(
        f"**Answer.** {text}", 100, break_long_words=False, break_on_hyphens=False
    )


def joined(parts: Iterable[object]) -> str:
    """Returns 'a', 'a and b' or 'a, b and c'."""
    *before, last = map(str, parts)
    return f"{', '.join(before)} and {last}" if before else last


def loop_rates(benchmark: str, task: str, width: int, loop: str = "native") -> dict[int, float]:
    """Returns the steps/s of an actor alone, by the bits of its policy.

    Args:
      benchmark: Folder of the benchmark in actorQ/results/benchmarks.
      task: Task with its suite.
      width: Units of each of the three layers.
      loop: Inference: native, pytorch or original.
    """
    path = tables.ACTORQ_RESULTS / "benchmarks" / benchmark / "actor_loop.json"
    return {
        one["bits"]: statistics.median(one["steps_per_s"])
        for one in tables.read_json(path)["actors"]
        if (one["task"], one["width"], one["loop"], one["environments"]) == (task, width, loop, 1)
    }
