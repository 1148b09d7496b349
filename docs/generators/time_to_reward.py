"""Blocks of results/time-to-reward: fp32 against int8 actors until the reward is held."""

import dataclasses

from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.run_logs import paper
from docs.generators import reward_runs
from docs.generators import tables

_MAIN = "time_to_reward"
_WIDER = "wider_noise"
_HALVES = ((0, 1, 2), (3, 4, 5))  # CartPole-v0's seeds, by the hours of their runs.


@dataclasses.dataclass(frozen=True)
class Headline:
    """fp32 and int8 actors on one task, 3x2048 policy, one actor; medians over the seeds.

    Attributes:
      task: The task with its suite.
      setting: Flag by which the runs differ from the laptop's settings; empty: none.
      algorithm: D4PG or DQN.
      reward: Reward that was held.
      seeds: Number of seeds of each precision.
      fp32_s: Seconds with fp32 actors.
      int8_s: Seconds with int8 actors.
      speedup: fp32_s over int8_s.
      halves: Speed-ups of both halves of the seeds; empty where there are no halves.
      published: The paper's row.
    """

    task: str
    setting: str
    algorithm: str
    reward: float
    seeds: int
    fp32_s: float
    int8_s: float
    speedup: float
    halves: tuple[float, ...]
    published: paper.Published

    @property
    def name(self) -> str:
        """The task without its suite, with algorithm and setting."""
        name = f"{specification.short_task(self.task)} ({self.algorithm})"
        return f"{name}, `{self.setting}`" if self.setting else name

    @property
    def speedup_text(self) -> str:
        """The speed-up in bold, with those of the halves."""
        text = f"**{self.speedup:.2f}**"
        if not self.halves:
            return text
        return f"{text} (halves: {', '.join(f'{half:.2f}' for half in self.halves)})"


def headline() -> list[Headline]:
    """Returns the rows of the main table: the five tasks, and cartpole_balance with more noise."""
    found = []
    for task, rows in reward_runs.rows(_MAIN).items():
        found.append(_headline(task, rows, ""))
        if task == reward_runs.CARTPOLE_BALANCE:
            found.append(_headline(task, reward_runs.rows(_WIDER)[task], "--sigma 0.5"))
    return found


def _headline(task: str, rows: reaching.Rows, setting: str) -> Headline:
    fp32, int8 = rows[reward_runs.FP32], rows[reward_runs.INT8]
    halves = tuple(_half_speedups(rows)) if task == reward_runs.CARTPOLE else ()
    return Headline(
        task, setting, fp32.algorithm.upper(), reaching.target(rows), len(fp32.reaches),
        fp32.median.seconds, int8.median.seconds, reward_runs.speedup(rows).value, halves,
        paper.SPEEDUPS[task],
    )


def _half_speedups(rows: reaching.Rows) -> list[float]:
    return [
        reward_runs.speedup(reward_runs.of_seeds(rows, seeds)).value for seeds in _HALVES
    ]


def _readme() -> str:
    measured = {row.task: row for row in headline() if not row.setting}
    lines = []
    for task, published in paper.SPEEDUPS.items():
        row = measured.get(task)
        ours = ["not run yet", "", ""] if row is None else [
            tables.number(row.fp32_s, 1), tables.number(row.int8_s, 1), row.speedup_text
        ]
        name = specification.short_task(task) if row is None else row.name
        lines.append([name, f"{published.reward:.2f}", *ours, f"{published.speedup:.2f}"])
    head = ["Task", "Reward", "fp32 s", "int8 s", "Speed-up", "Paper's speed-up"]
    return tables.table(head, lines)


BLOCKS: dict[str, reward_runs.Block] = {"readme": _readme}
