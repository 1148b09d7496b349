"""Blocks of results/time-to-reward-six: six tasks of dm_control, fp32 against int8 actors."""

from collections.abc import Mapping
from collections.abc import Sequence
import statistics

from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times
from docs.generators import tables
from docs.generators.training import reward_runs

_EXPERIMENT = "time_to_reward_six"
_REPORT = f"actorQ/results/{_EXPERIMENT}/report"
TASKS = (
    "dm_control,hopper_stand", "dm_control,reacher_hard", "dm_control,cheetah_run",
    "dm_control,finger_spin", "dm_control,humanoid_stand", "dm_control,humanoid_walk",
)
_TEXT_COLUMNS = 3  # Task, seconds with fp32, seconds with int8: the last two may be words.


def rows() -> Mapping[str, reaching.Rows]:
    """Returns the rows of each of the six tasks."""
    return reward_runs.rows(_EXPERIMENT)


def gains() -> list[float]:
    """Returns the speed-ups of the tasks whose reward both precisions held, the lowest first."""
    found = [reward_runs.speedup(of_task) for of_task in rows().values()]
    return sorted(speedup.value for speedup in found if not speedup.bound)


def cells(task: str) -> list[str]:
    """Returns fp32's and int8's cells of a task, and that of int8's gain.

    Where neither precision held the reward, both cells hold the best rewards in the same time, and
    the last cell has the ratio of the actors' steps/s, on each processor.
    """
    found = rows()[task]
    sides = [found[side] for side in (reward_runs.FP32, reward_runs.INT8)]
    gain = reward_runs.speedup(found)
    if gain.bound != "?":
        seeds = reporting.seeds(len(sides[1].reaches))
        return [
            *(reward_runs.seconds(row.median) for row in sides), f"**{gain.text()}** ({seeds})"
        ]
    rewards = [
        f"{best(row):.0f} in {tables.number(row.median.seconds)} s" for row in sides
    ]
    return [*rewards, f"steps/s: {_rates_text(found)}"]


def best(row: reaching.Row) -> float:
    """Returns the mean best reward of the runs that have enough evaluations to hold one."""
    return statistics.mean(reporting.known(map(_best, row.results)))


def _best(result: results_lib.Result) -> float | None:
    """Returns the best reward that a run held; None: it has too few evaluations to hold any."""
    returns, settings = result.measured.rewards.returns, result.settings
    window, smoothing = settings["stop_window"], settings["stop_smoothing"]
    if len(returns) < window + smoothing - 1:
        return None
    return times.best_held(returns, window, smoothing)


def _rates_text(found: reaching.Rows) -> str:
    """Returns the medians of `_rates`; makers of processors are named where there are several."""
    rates = _rates(found)
    parts = []
    for processor, ratios in rates.items():
        maker = processor.partition(",")[0] + ", " if len(rates) > 1 else ""
        parts.append(
            f"**{statistics.median(ratios):.2f}** ({maker}{reporting.seeds(len(ratios))})"
        )
    return ", ".join(parts)


def _rates(found: reaching.Rows) -> dict[str, list[float]]:
    """Returns int8's environment steps/s over fp32's by processor, for each shared seed."""
    by_processor: dict[str, list[float]] = {}
    shared = reporting.of_shared_seeds(
        found[reward_runs.INT8].results, found[reward_runs.FP32].results
    )
    for int8, fp32 in zip(*shared, strict=True):
        processor = reward_runs.processor(int8)
        assert processor == reward_runs.processor(fp32), int8.name
        fast, slow = int8.measured.actor_steps_per_s, fp32.measured.actor_steps_per_s
        assert fast and slow, "All runs note the actors' steps."
        by_processor.setdefault(processor, []).append(fast / slow)
    return by_processor


def _answer() -> str:
    found, soon = rows(), gains()
    rates = [
        statistics.median(ratios)
        for of_task in found.values() for ratios in _rates(of_task).values()
    ]
    alone = [
        specification.short_task(task) for task, of_task in found.items()
        if reward_runs.speedup(of_task).bound == ">"
    ]
    text = (
        f"Int8 actors made {_range(rates)} times the steps of fp32 actors. They held the paper's "
        f"reward {_range(soon)} times as soon, on {len(soon)} of the six tasks."
    )
    if alone:
        text += f" On {reward_runs.joined(alone)} only int8 actors held it."
    return reward_runs.answer(text)


def _range(numbers: Sequence[float]) -> str:
    """Returns the least and the largest number, or the only one."""
    ends = dict.fromkeys(f"{end:.1f}" for end in (min(numbers), max(numbers)))
    return " to ".join(ends)


def _main() -> str:
    head = [
        "Task", "fp32 s", "int8 s", "Reward", "Speed-up", "Paper: fp32 s", "int8 s", "speed-up",
    ]
    lines = []
    for task in TASKS:
        published = paper.SPEEDUPS[task]
        fp32, int8, gain = cells(task)
        lines.append([
            specification.short_task(task), fp32, int8, f"{published.reward:.2f}", gain,
            *(tables.number(value, 2) for value in published[2:]),
        ])
    return tables.table(head, lines, _TEXT_COLUMNS)


def _runs() -> str:
    head = [
        "Task", "Actors", "Seed", "Held after, s", "from learner step", "Best reward",
        "Final reward", "Actor steps/s", "Learner steps/s", "Data used",
    ]
    lines = []
    for task, found in rows().items():
        for side in (reward_runs.FP32, reward_runs.INT8):
            row = found[side]
            for seed in row.by_seed:
                one = reward_runs.of_seeds(found, [seed])[side]
                held = _best(one.results[0])
                lines.append([
                    specification.short_task(task), side.short_name, str(seed),
                    reward_runs.seconds(one.median), reward_runs.steps_by_seed(one),
                    reporting.NOTHING if held is None else f"{held:.1f}",
                    *map(lambda value: f"{value:.1f}", one.final_rewards),
                    reward_runs.mean(one, "actor_steps_per_s"),
                    reward_runs.mean(one, "learner_steps_per_s", 2), reward_runs.data_used(one),
                ])
    return tables.table(head, lines, 2)


def _commits() -> str:
    found = [
        result for of_task in rows().values() for row in of_task.values() for result in row.results
    ]
    return reward_runs.made_with(found)


def _figure() -> str:
    return "\n\n".join(
        f"![Return against time, {name}](../../{_REPORT}/convergence_{name}.png)"
        for name in map(specification.short_task, TASKS)
    )


def _raw() -> str:
    return (
        f"- [Every run's figures](../../{_REPORT}/runs.csv), and\n"
        f"  [the report](../../{_REPORT}/time_to_reward.md) that the runner made."
    )


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "main": _main,
    "runs": _runs,
    "figure": _figure,
    "raw": _raw,
    "commits": _commits,
}
