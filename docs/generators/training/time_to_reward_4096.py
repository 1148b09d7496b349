"""Blocks of results/time-to-reward-4096: Acrobot-v1 with a policy of three layers of 4096."""

from actorQ.experiments.run_logs import paper
from docs.generators import tables
from docs.generators.training import reward_runs

_EXPERIMENT = "time_to_reward_4096"
_TASK = reward_runs.ACROBOT


def _answer() -> str:
    rows = reward_runs.rows(_EXPERIMENT)[_TASK]
    int8 = reward_runs.speedup(rows)
    return reward_runs.answer(
        f"With this policy int8 held the reward more than {int8.value:.2f} times as soon as fp32, "
        f"so the paper's {paper.SPEEDUPS[_TASK].speedup:.2f} is reached. "
        "It is a bound, since fp32 had not held the reward when its run was ended, and it is one "
        "seed."
    )


def _main() -> str:
    rows = reward_runs.rows(_EXPERIMENT)[_TASK]
    lines = []
    for side, row in rows.items():
        gains = ["1", "", "1", "1", ""]
        if side != reward_runs.FP32:
            loop, gain = reward_runs.loop_gain(row), reward_runs.speedup(rows, side)
            rate = reward_runs.learner_gain(rows, side)
            part = reward_runs.kept(gain, loop)
            gains = [
                f"**{gain.text()}**", part, f"{loop:.2f}", f"{rate:.2f}",
                reward_runs.kept(rate, loop),
            ]
        lines.append([
            row.name, reward_runs.seconds(row.median), reward_runs.steps_by_seed(row), *gains,
            reward_runs.mean(row, "actor_steps_per_s"),
            reward_runs.mean(row, "learner_steps_per_s", 2), reward_runs.data_used(row),
            tables.number(row.median.evaluation_s), reward_runs.reward(row),
        ])
    head = [
        "Actors", "Held after, s", "From learner step", "Times as soon as fp32", "kept",
        "Loop's gain", "Times fp32's learner steps/s", "kept", "Actor steps/s",
        "Learner steps/s", "Data used", "Evaluation in it, s", "Final reward",
    ]
    return reward_runs.columns_table(head, lines)


def _commits() -> str:
    return reward_runs.made_with(reward_runs.runs(_EXPERIMENT))


def _lost() -> str:
    """Returns an actor's steps/s alone and beside a learner."""
    alone = reward_runs.loop_rates("xeon_gym", _TASK, 4096)
    lines = []
    for row in reward_runs.rows(_EXPERIMENT)[_TASK].values():
        rate = alone[row.side.precision]
        beside = row.results[0].measured.actor_steps_per_s or 0.0
        lines.append([
            row.name, tables.number(rate), tables.number(beside),
            f"{100 * (1 - beside / rate):.0f} %",
        ])
    head = ["Actors", "Steps/s alone", "beside the learner", "lost"]
    return tables.table(head, lines)


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "main": _main,
    "lost": _lost,
    "commits": _commits,
}
