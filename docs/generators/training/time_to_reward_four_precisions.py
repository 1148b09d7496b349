"""Blocks of results/time-to-reward-four-precisions: fp32, fp16, int8 and int4 actors."""

from collections.abc import Mapping
import functools
import statistics

from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import times
from docs.generators import tables
from docs.generators.training import reward_runs

_FOUR = "four_precisions"
_BFLOAT16 = "bfloat16_learner"
_NEAR = 175.0  # A return of CartPole-v0 that comes before luck decides.
_LINES = (
    "held after, s", "median, s", "times as soon as fp32", "the loop gains",
    "kept in the time to reward", "held from learner step", "actor steps/s",
    "learner steps/s", "times fp32's learner steps/s", "kept in learner steps/s", "data used",
    "final reward", "of each seed",
)


def _columns(rows: reaching.Rows) -> list[list[str]]:
    """Returns the cells of each precision, in the order of `_LINES`."""
    return [_column(rows, side, row) for side, row in rows.items()]


def _column(rows: reaching.Rows, side: reporting.Side, row: reaching.Row) -> list[str]:
    gains = ["1", "1", "", "1", ""]
    if side != reward_runs.FP32:
        loop, gain = reward_runs.loop_gain(row), reward_runs.speedup(rows, side)
        rate = reward_runs.learner_gain(rows, side)
        gains = [
            f"**{gain.text()}**", f"{loop:.2f}", reward_runs.kept(gain, loop), f"{rate:.2f}",
            reward_runs.kept(rate, loop),
        ]
    return [
        reward_runs.by_seed(row), reward_runs.seconds(row.median), *gains[:3],
        reward_runs.steps_by_seed(row), reward_runs.mean(row, "actor_steps_per_s"),
        reward_runs.mean(row, "learner_steps_per_s", 2), *gains[3:], reward_runs.data_used(row),
        reward_runs.reward(row), "; ".join(tables.number(one, 1) for one in row.final_rewards),
    ]


def _table(experiment: str, task: str) -> str:
    rows = reward_runs.rows(experiment)[task]
    lines = list(zip(_LINES, *_columns(rows), strict=True))
    if max(len(row.reaches) for row in rows.values()) == 1:
        lines = [line for line in lines if line[0] not in ("median, s", "of each seed")]
    return tables.table(["", *(side.short_name for side in rows)], lines)


def _near() -> str:
    """Returns when CartPole-v0's runs had a running mean that luck decides less."""
    rows = reward_runs.rows(_FOUR)[reward_runs.CARTPOLE]
    found = {side: [_first(result) for result in row.results] for side, row in rows.items()}
    seconds = {
        side: statistics.median(second for second, _ in of_seeds)
        for side, of_seeds in found.items()
    }
    base = seconds[reward_runs.FP32]
    lines = [
        ["came after, s (median)", *(tables.number(value) for value in seconds.values())],
        [
            "times as soon as fp32",
            *("1" if value == base else f"{base / value:.2f}" for value in seconds.values()),
        ],
        ["after learner steps (median)", *(
            tables.number(statistics.median(step for _, step in of_seeds))
            for of_seeds in found.values()
        )],
    ]
    head = [f"Running mean of {_NEAR:.0f}", *(side.short_name for side in rows)]
    return tables.table(head, lines)


def _first(result: results_lib.Result) -> tuple[float, float]:
    """Returns seconds and learner steps of the first running mean of at least `_NEAR`."""
    rewards, smoothing = result.measured.rewards, result.settings["stop_smoothing"]
    reach = times.held(
        rewards.seconds, rewards.evaluation_s, rewards.returns, _NEAR, 1, smoothing
    )
    index = list(rewards.seconds).index(reach.seconds)
    return reach.seconds, rewards.learner_steps[index]


def _rates() -> str:
    """Returns an actor's steps/s alone, and beside the learner, on CartPole-v0."""
    rows = reward_runs.rows(_FOUR)[reward_runs.CARTPOLE]
    alone = {
        name: reward_runs.loop_rates(folder, "gym,CartPole-v1", 2048)
        for name, folder in (
            ("alone, on this Zen 4", "zen4"), ("alone, on the processor of the main table", "")
        )
    }
    lines = [
        [name, *(_rate(rates, side.precision) for side in rows)] for name, rates in alone.items()
    ]
    lines.append([
        "beside the learner, on this Zen 4",
        *(reward_runs.mean(row, "actor_steps_per_s") for row in rows.values()),
    ])
    return tables.table(["Actor's steps/s", *(side.short_name for side in rows)], lines)


def _rate(rates: Mapping[int, float], bits: int) -> str:
    return tables.number(rates[bits]) if bits in rates else reward_runs.NOTHING


def _bfloat16_summary() -> str:
    lines = []
    for task, rows in reward_runs.rows(_BFLOAT16).items():
        for side, row in rows.items():
            if side == reward_runs.FP32:
                continue
            loop, gain = reward_runs.loop_gain(row), reward_runs.speedup(rows, side)
            rate = reward_runs.learner_gain(rows, side)
            lines.append([
                specification.short_task(task), side.short_name, str(len(row.reaches)),
                f"**{gain.text()}**", reward_runs.kept(gain, loop), f"{rate:.2f}",
                reward_runs.kept(rate, loop),
            ])
    head = [
        "Task", "Actors", "Seeds", "Times as soon as fp32", "kept",
        "Times fp32's learner steps/s", "kept",
    ]
    return tables.table(head, lines, 2)


def _answer() -> str:
    rows = reward_runs.rows(_BFLOAT16)
    shares, times_as_soon, int8 = [], [], []
    for of_task in rows.values():
        for side, row in of_task.items():
            if side != reward_runs.FP32:
                loop = reward_runs.loop_gain(row)
                shares.append(reward_runs.learner_gain(of_task, side) / loop)
                times_as_soon.append(reward_runs.speedup(of_task, side).value / loop)
        int8.append(reward_runs.speedup(of_task, reward_runs.INT8).value)
    missed = sum(round(share, 2) < 0.9 for share in times_as_soon)
    return reward_runs.answer(
        f"On a Zen 4 with a learner in bfloat16 int8 actors held the reward {min(int8):.1f} to "
        f"{max(int8):.1f} times as soon as fp32. Of {len(shares)} cells {missed} miss 0.9 of the "
        f"loop's gain in the time to reward, but in learner steps/s all keep {min(shares):.2f} "
        "or more."
    )


def _float32_answer() -> str:
    rows = reward_runs.rows(_FOUR)[reward_runs.CARTPOLE]
    gains = {side: reward_runs.speedup(rows, side) for side in rows if side != reward_runs.FP32}
    return reward_runs.answer(
        "The reward is held "
        + reward_runs.joined(
            f"{gain.text()} times ({side.short_name})" for side, gain in gains.items()
        )
        + " as soon as with fp32. The learner in float32 takes only "
        f"{reward_runs.data_used(rows[reward_runs.INT8])} of int8's data, so it eats what int8 "
        "and int4 actors gain."
    )


def _commits() -> str:
    return reward_runs.made_with(reward_runs.runs(_BFLOAT16))


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "float32_answer": _float32_answer,
    "summary": _bfloat16_summary,
    "bfloat16_cartpole": functools.partial(_table, _BFLOAT16, reward_runs.CARTPOLE),
    "bfloat16_balance": functools.partial(_table, _BFLOAT16, reward_runs.CARTPOLE_BALANCE),
    "bfloat16_mountain_car": functools.partial(_table, _BFLOAT16, reward_runs.MOUNTAIN_CAR),
    "bfloat16_acrobot": functools.partial(_table, _BFLOAT16, reward_runs.ACROBOT),
    "float32": functools.partial(_table, _FOUR, reward_runs.CARTPOLE),
    "near": _near,
    "rates": _rates,
    "commits": _commits,
}
