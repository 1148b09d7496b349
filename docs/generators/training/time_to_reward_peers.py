"""Blocks of results/time-to-reward-peers: ActorQ beside Acme and Stable-Baselines3."""

import statistics

from actorQ.experiments import kinds
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import times
from docs.generators import tables
from docs.generators.training import reward_runs

# Experiments whose runs have the settings of the main table.
_MAIN = ("time_to_reward", "time_to_reward_xeon", "walker_stand_peers")
_BOUND = "learner_bound"
# Median of three seeds at commit 3448141, whose results only the history has (7ec95c5).
_FIRST_ACROBOT_FP32_S = 728.0


def _answer() -> str:
    rows = reward_runs.rows(_BOUND)[reward_runs.CARTPOLE_BALANCE]
    sb3, acme = (_of(rows, side).text() for side in (reward_runs.SB3, reward_runs.ACME))
    held = reward_runs.joined(
        f"{_library(peer)} on {specification.short_task(task)}"
        for task, of_task, side in _beside() for peer in [of_task[side]] if peer.reached
    )
    return reward_runs.answer(
        f"With 16 samples per insert int8 held cartpole_balance's reward {sb3} times as soon as "
        f"SB3 and {acme} times as soon as Acme. In the main table's settings no other library "
        f"held a reward within its time, except {held}."
    )


def _beside() -> list[tuple[str, reaching.Rows, reporting.Side]]:
    """Returns task, rows and side of each library that ran in the main table's settings."""
    return [
        (task, rows, side)
        for experiment in _MAIN
        for task, rows in reward_runs.rows(experiment).items()
        for side in rows if side.is_peer
    ]


def _library(row: reaching.Row) -> str:
    return row.name.partition(",")[0]


def _of(
    rows: reaching.Rows, base: reporting.Side, evaluated: bool = True
) -> times.Speedup:
    """Returns how much sooner int8 held the reward than `base`, over their shared seeds."""
    found = reaching.speedup(rows, reward_runs.INT8, base, evaluated)
    assert found is not None, "Both sides have seeds in common."
    return found


def _main() -> str:
    head = [
        "Task", "Other library", "It held the reward after, s", "int8, same seed, s",
        "int8 sooner by", "Its learner steps/s", "Its environment steps/s", "Its final reward",
    ]
    return tables.table(head, [_line(*beside) for beside in _beside()], 2)


def _line(task: str, rows: reaching.Rows, side: reporting.Side) -> list[str]:
    row = rows[side]
    int8 = reward_runs.of_seeds(rows, row.by_seed)[reward_runs.INT8]
    gain = _of(rows, side)
    theirs, ours = (reward_runs.processor(one.results[0]) for one in (row, int8))
    name = specification.short_task(task)
    return [
        name if theirs == ours else f"{name} (two processors)", _library(row),
        reward_runs.seconds(row.median), reward_runs.seconds(int8.median),
        reward_runs.NOTHING if gain.bound == "?" else gain.text(),
        reward_runs.mean(row, "learner_steps_per_s", 2),
        reward_runs.mean(row, "actor_steps_per_s"), reward_runs.reward(row),
    ]


def _bound() -> str:
    rows = reward_runs.rows(_BOUND)[reward_runs.CARTPOLE_BALANCE]
    order = sorted(rows.items(), key=lambda pair: pair[1].median.seconds)
    lines = []
    for side, row in order:
        measured = row.results[0].measured
        whole, rest = "1", "1"
        if side != reward_runs.INT8:
            whole, rest = (
                _of(rows, side, evaluated).text() for evaluated in (True, False)
            )
        rewards = measured.rewards
        held = list(rewards.seconds).index(row.median.seconds)
        lines.append([
            _name(row), reward_runs.seconds(row.median), whole, rest,
            tables.number(rewards.learner_steps[held]), tables.number(rewards.actor_steps[held]),
            reward_runs.mean(row, "learner_steps_per_s", 2),
            _samples_per_insert(row), reward_runs.data_used(row),
            f"{rewards.evaluation_s[-1] / len(rewards.seconds):.1f}", reward_runs.reward(row),
        ])
    head = [
        "", "held after, s", "int8 was sooner by", "without evaluation",
        "held from learner step", "environment steps until then", "learner steps/s",
        "samples per insert, in fact", "data used", "an evaluation, s", "final reward",
    ]
    return reward_runs.columns_table(head, lines)


def _name(row: reaching.Row) -> str:
    return row.name if row.side.is_peer else f"ActorQ, {row.name}"


def _samples_per_insert(row: reaching.Row) -> str:
    """Returns how often the learner took a transition: the setting times the data used."""
    result = row.results[0]
    used = (result.measured.data_used or 0.0) * result.settings["samples_per_insert"]
    return f"{used:.1f}"


def _walker() -> str:
    rows = reward_runs.rows("walker_stand_peers")[reward_runs.WALKER_STAND]
    int8 = rows[reward_runs.INT8].results[0].measured
    lines = []
    for row in rows.values():
        measured = row.results[0].measured
        lines.append([
            _name(row), reward_runs.seconds(row.median), tables.number(measured.learner_steps),
            reward_runs.mean(row, "learner_steps_per_s", 2),
            "1" if measured is int8 else f"{_rate(int8) / _rate(measured):.2f}",
            reward_runs.data_used(row), _best_running_mean(row.results[0]),
            reward_runs.reward(row),
        ])
    head = [
        "", "Not held within, s", "Learner steps", "Learner steps/s", "int8 makes as many times",
        "Data used", "Best mean of ten", "Final reward",
    ]
    return tables.table(head, lines)


def _best_running_mean(result: results_lib.Result) -> str:
    """Returns the best mean of as many evaluations in a row as the stop rule takes."""
    returns, of = result.measured.rewards.returns, result.settings["stop_smoothing"]
    means = [statistics.mean(returns[end - of:end]) for end in range(of, len(returns) + 1)]
    return tables.number(max(means)) if means else reward_runs.NOTHING


def _rate(measured: results_lib.Measured) -> float:
    return measured.learner_steps_per_s or 0.0


def _best() -> str:
    """Returns the best settings of each precision, with the runs behind them."""
    main, bound = reward_runs.rows(_MAIN[0]), reward_runs.rows(_BOUND)
    task = reward_runs.CARTPOLE_BALANCE
    fp32 = bound[task][reward_runs.FP32].median
    int8 = main[task][reward_runs.INT8].median
    acrobot = main[reward_runs.ACROBOT][reward_runs.INT8].median
    first = _FIRST_ACROBOT_FP32_S
    return tables.table(
        ["Task", "fp32 s", "in the settings", "int8 s", "in the settings", "Apart by"],
        [
            [
                "cartpole_balance", reward_runs.seconds(fp32), "16 samples per insert, one seed",
                reward_runs.seconds(int8), "of the main table",
                f"**{fp32.seconds / int8.seconds:.1f}**",
            ],
            [
                "Acrobot-v1", f"{first:.0f}", "first ones, median of three seeds",
                reward_runs.seconds(acrobot), "of the main table",
                f"**{first / acrobot.seconds:.1f}**",
            ],
        ],
    )


def _commits() -> str:
    main, *others = _MAIN
    peers = [result for result in reward_runs.runs(main) if result.kind != kinds.TRAINING]
    return reward_runs.made_with(
        [*peers, *(run for folder in (*others, _BOUND) for run in reward_runs.runs(folder))]
    )


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "main": _main,
    "bound": _bound,
    "walker": _walker,
    "best": _best,
    "commits": _commits,
}
