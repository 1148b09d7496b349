"""Blocks of results/tasks: the time until rewards that others publish, task by task."""

from collections.abc import Mapping
import functools

from actorQ.experiments import loading
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import tasks as tasks_report
from docs.generators import tables
from docs.generators.training import reward_runs

_EXPERIMENT = "tasks"
_PONG = "tasks_pong"
_TEXT_COLUMNS = 3  # Task, reward and source.


def _rows(experiment: str) -> Mapping[str, reaching.Rows]:
    """Returns the rows of each task that has results, in the experiment's order."""
    found = reward_runs.rows(experiment)
    order = loading.load(experiment, loading.load_common()).tasks
    return {task: found[task] for task in order if found.get(task)}


def _answer() -> str:
    return reward_runs.answer(tasks_report.summary(_rows(_EXPERIMENT)))


def readme() -> str:
    """Returns a line for the README: how many tasks were learned by themselves, and how soon."""
    sides = [rows[reward_runs.INT8] for rows in _rows(_EXPERIMENT).values()]
    learned = [row.median.seconds for row in sides if row.reached == len(row.results)]
    (pong,) = (rows[reward_runs.INT8].median.seconds for rows in _rows(_PONG).values())
    return (
        f"- [With nothing but `--taskstr`](docs/results/tasks.md) trainings reached a published"
        f" reward on {len(learned)} of {len(sides)} tasks, after {min(learned):.0f} to"
        f" {max(learned):.0f} s. Pong from pixels took {pong / 60:.0f} minutes."
    )


def _table(experiment: str) -> str:
    return tables.table(*tasks_report.table(_rows(experiment)), _TEXT_COLUMNS)


def _figure(experiment: str, caption: str) -> str:
    path = f"actorQ/results/{experiment}/report/{tasks_report.FIGURE}"
    return f"![{caption}](../../{path})"


def _commits() -> str:
    found = [
        result for name in (_EXPERIMENT, _PONG) for result in reward_runs.runs(name)
    ]
    return reward_runs.made_with(found)


def _raw() -> str:
    lines = []
    for name in (_EXPERIMENT, _PONG):
        folder = f"../../actorQ/results/{name}/report"
        lines.append(f"- `{name}`: [runs]({folder}/runs.csv), [report]({folder}/{name}.md).")
    return "\n".join(lines)


def _not_learned() -> str:
    """Returns a line on each task that a seed of ours did not learn."""
    lines = []
    for task, rows in _rows(_EXPERIMENT).items():
        row = rows[reward_runs.INT8]
        if row.reached < len(row.results):
            lines.append(
                f"- {specification.short_task(task)}: {row.reached} of {len(row.results)} seeds "
                "reached the reward."
            )
    return "\n".join(lines)


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "main": functools.partial(_table, _EXPERIMENT),
    "pong": functools.partial(_table, _PONG),
    "figure": functools.partial(_figure, _EXPERIMENT, "Return against time, a panel for each task"),
    "pong_figure": functools.partial(_figure, _PONG, "Return of Pong against time"),
    "commits": _commits,
    "not_learned": _not_learned,
    "raw": _raw,
}
