"""Blocks of results/time-to-reward: fp32 against int8 actors until the reward is held."""

from collections.abc import Iterable
import dataclasses
import statistics

from actorQ.experiments import kinds
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.run_logs import paper
from docs.generators import tables
from docs.generators.training import reward_runs
from docs.generators.training import time_to_reward_six

_MAIN = "time_to_reward"
_WIDER = "wider_noise"
_HALVES = ((0, 1, 2), (3, 4, 5))  # CartPole-v0's seeds, by the hours of their runs.
_QUIET = (0, 1)  # walker_stand's seeds that ran on a quiet machine.


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
      quiet: Speed-up without the seed of a busy machine; None where that makes no row of its own.
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
    quiet: float | None
    published: paper.Published

    @property
    def name(self) -> str:
        """The task without its suite, with algorithm and setting."""
        name = f"{specification.short_task(self.task)} ({self.algorithm})"
        return f"{name}, `{self.setting}`" if self.setting else name

    @property
    def speedup_text(self) -> str:
        """The speed-up in bold, with those of some of the seeds."""
        text = f"**{self.speedup:.2f}**"
        if self.halves:
            return f"{text} (halves: {', '.join(f'{half:.2f}' for half in self.halves)})"
        if self.quiet is not None:
            return f"{text} (without a busy seed: {self.quiet:.2f})"
        return text


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
    quiet = None
    if task == reward_runs.WALKER_STAND:
        quiet = reward_runs.speedup(reward_runs.of_seeds(rows, _QUIET)).value
    return Headline(
        task, setting, fp32.algorithm.upper(), reaching.target(rows), len(fp32.reaches),
        fp32.median.seconds, int8.median.seconds, reward_runs.speedup(rows).value, halves,
        quiet, paper.SPEEDUPS[task],
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
        ours = time_to_reward_six.cells(task) if row is None else [
            tables.number(row.fp32_s, 1), tables.number(row.int8_s, 1), row.speedup_text
        ]
        name = f"{specification.short_task(task)} (D4PG)" if row is None else row.name
        lines.append([name, f"{published.reward:.2f}", *ours, f"{published.speedup:.2f}"])
    head = ["Task", "Reward", "fp32 s", "int8 s", "Speed-up", "Paper's speed-up"]
    return tables.table(head, lines)


def _answer() -> str:
    rows = headline()
    lucky = next(row for row in rows if row.halves)
    steady = sorted(row.speedup for row in rows if not row.setting and not row.halves)
    halves = reward_runs.joined(f"{half:.1f}" for half in lucky.halves)
    return reward_runs.answer(
        f"Int8 actors held the paper's rewards {steady[0]:.1f} to {steady[-1]:.1f} times as soon "
        "as fp32 actors on four of five tasks. On "
        f"{specification.short_task(lucky.task)}, where luck decides, the ratio is "
        f"{lucky.speedup:.1f} over six seeds, and {halves} in its two halves."
    )


def _main() -> str:
    head = [
        "Task", "Reward", "Seeds", "fp32 s", "int8 s", "Speed-up", "Paper: fp32 s", "int8 s",
        "speed-up",
    ]
    return tables.table(head, [
        [
            row.name, f"{row.reward:.2f}", str(row.seeds), tables.number(row.fp32_s, 1),
            tables.number(row.int8_s, 1), row.speedup_text,
            *(tables.number(value, 2) for value in row.published[2:]),
        ]
        for row in headline()
    ])


def _whole() -> list[tuple[str, reaching.Rows]]:
    """Returns the rows of each task, and of cartpole_balance with more noise, by name."""
    found = []
    for task, rows in reward_runs.rows(_MAIN).items():
        name = specification.short_task(task)
        found.append((name, rows))
        if task == reward_runs.CARTPOLE_BALANCE:
            found.append((f"{name}, `--sigma 0.5`", reward_runs.rows(_WIDER)[task]))
    return found


def _parts() -> list[tuple[str, reaching.Rows]]:
    """Returns the same, each task followed by some of its seeds where these differ."""
    found = []
    for name, rows in _whole():
        found.append((name, rows))
        if name == specification.short_task(reward_runs.WALKER_STAND):
            quiet = reward_runs.of_seeds(rows, _QUIET)
            found.append((f"{name} without seed 2", quiet))
        if name == specification.short_task(reward_runs.CARTPOLE):
            found += [
                (f"{name}, seeds {seeds[0]} to {seeds[-1]}", reward_runs.of_seeds(rows, seeds))
                for seeds in _HALVES
            ]
    return found


def _kept() -> str:
    lines = []
    for name, rows in _parts():
        for side in (reward_runs.INT8, reward_runs.INT4):
            if side in rows:
                loop = reward_runs.loop_gain(rows[side])
                gain, rate = reward_runs.speedup(rows, side), reward_runs.learner_gain(rows, side)
                lines.append([
                    name, side.short_name, f"{loop:.2f}", gain.text(),
                    reward_runs.kept(gain, loop), f"{rate:.2f}", reward_runs.kept(rate, loop),
                    reward_runs.data_used(rows[side]),
                ])
    head = [
        "Task", "Actors", "Loop's gain", "Gain in time", "kept", "Gain in learner steps/s",
        "kept", "Data used",
    ]
    return tables.table(head, lines, 2)


def _without_evaluation() -> str:
    lines = []
    for name, rows in _whole():
        gains = (
            reaching.speedup(rows, reward_runs.INT8, evaluated=evaluated)
            for evaluated in (True, False)
        )
        lines.append([name, *(gain.text() for gain in gains if gain is not None)])
    return tables.table(["Task", "Speed-up", "without evaluation"], lines)


def _final() -> str:
    lines = []
    for name, rows in _whole():
        fp32, int8 = rows[reward_runs.FP32], rows[reward_runs.INT8]
        rewards = fp32.final_rewards
        least = statistics.mean(rewards) - statistics.stdev(rewards)
        below = statistics.mean(int8.final_rewards) < least
        lines.append([
            name, reward_runs.reward(fp32), reward_runs.reward(int8), tables.number(least, 1),
            "**below**" if below else "not below",
        ])
    head = ["Task", "fp32", "int8", "fp32's mean less its deviation", "int8"]
    return tables.table(head, lines)


def _by_seed() -> str:
    return seeds_table(
        (name, rows[side])
        for name, rows in _whole()
        for side in rows if not side.is_peer
    )


def seeds_table(found: Iterable[tuple[str, reaching.Row]]) -> str:
    """Returns a table of times by seed, with the rates of actors and learner.

    Args:
      found: Name of the task, and row, of each line.
    """
    head = [
        "Task", "Actors", "Time to reward of each seed, s", "Evaluation in it, s", "Final reward",
        "Actor steps/s", "Learner steps/s", "Data used",
    ]
    return tables.table(head, [
        [
            name, row.name, reward_runs.by_seed(row),
            tables.number(row.median.evaluation_s, 1), reward_runs.reward(row),
            reward_runs.mean(row, "actor_steps_per_s"),
            reward_runs.mean(row, "learner_steps_per_s", 2), reward_runs.data_used(row),
        ]
        for name, row in found
    ], 3)


def _halves() -> str:
    rows = reward_runs.rows(_MAIN)[reward_runs.CARTPOLE]
    every = {name: seeds for seeds in _HALVES for name in [f"{seeds[0]} to {seeds[-1]}"]}
    lines = []
    for name, seeds in {**every, "all six": sum(_HALVES, ())}.items():
        part = reward_runs.of_seeds(rows, seeds)
        fp32, int8 = part[reward_runs.FP32], part[reward_runs.INT8]
        lines.append([
            name, reward_runs.seconds(fp32.median), reward_runs.seconds(int8.median),
            reward_runs.speedup(part).text(),
            *(reward_runs.mean(row, "actor_steps_per_s") for row in (fp32, int8)),
            *(reward_runs.mean(row, "learner_steps_per_s", 2) for row in (fp32, int8)),
        ])
    head = [
        "Seeds", "fp32 s", "int8 s", "Speed-up", "Actor steps/s: fp32", "int8",
        "Learner steps/s: fp32", "int8",
    ]
    return tables.table(head, lines)


def _commits() -> str:
    ours = [r for r in reward_runs.runs(_MAIN) if r.kind == kinds.TRAINING]
    return reward_runs.made_with(ours)


BLOCKS: dict[str, reward_runs.Block] = {
    "readme": _readme,
    "answer": _answer,
    "main": _main,
    "kept": _kept,
    "without_evaluation": _without_evaluation,
    "final": _final,
    "halves": _halves,
    "by_seed": _by_seed,
    "commits": _commits,
}
