"""Blocks of results/time-to-reward-details: each task's runs, seed by seed."""

from collections.abc import Sequence
import functools

import numpy as np

from actorQ.experiments import results as results_lib
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import paper
from docs.generators import tables
from docs.generators.training import reward_runs

_TASK = reward_runs.CARTPOLE_BALANCE
_REWARD = paper.SPEEDUPS[_TASK].reward
_POLICIES = {"final_reward": "3x256", "final_reward_2048": "3x2048"}
# Folders with runs of cartpole_balance's 3x2048 policy at 0.45 samples per insert and sigma 0.2.
_SAME_POLICY = ("time_to_reward", "time_to_reward_zen4", "final_reward_2048", "bfloat16_learner")
_SIDES = reward_runs.PRECISIONS


def _runs(experiment: str, task: str) -> str:
    rows = reward_runs.rows(experiment)[task]
    return reward_runs.runs_table(rows, [side for side in rows if not side.is_peer])


def _commits(*experiments: str) -> str:
    return reward_runs.made_with(
        result for folder in experiments for result in reward_runs.runs(folder)
    )


def _again() -> str:
    found = reward_runs.runs_in(tables.ACTORQ_RESULTS / "time_to_reward" / "again")
    return reward_runs.runs_table(reward_runs.rows_of(found)[reward_runs.CARTPOLE])


def _failed_of(folder: str, side: reporting.Side) -> tuple[int, int]:
    """Returns how many runs of cartpole_balance failed, and how many there are."""
    found = [
        result for result in reward_runs.runs(folder)
        if (result.task, result.kind, result.precision) == (_TASK, side.kind, side.precision)
    ]
    return sum(_failed(result) for result in found), len(found)


def _all_failed(side: reporting.Side) -> str:
    failed, count = zip(*(_failed_of(folder, side) for folder in _SAME_POLICY), strict=True)
    return f"{sum(failed)} of {sum(count)}"


def _failures() -> str:
    lines = []
    for folder in _SAME_POLICY:
        counts = (_failed_of(folder, side) for side in _SIDES)
        lines.append([f"`{folder}`", *(
            f"{failed} of {count}" if count else reward_runs.NOTHING for failed, count in counts
        )])
    lines.append(["all", *(f"**{_all_failed(side)}**" for side in _SIDES)])
    head = ["Runs of", *(f"{side.short_name}: failed" for side in _SIDES)]
    return tables.table(head, lines)


def _luck() -> str:
    wider = reward_runs.rows("wider_noise")[_TASK]
    held = sum(row.reached for row in wider.values())
    count = sum(len(row.reaches) for row in wider.values())
    return reward_runs.answer(
        f"No: with the main table's exploration noise {_all_failed(reward_runs.FP32)} runs with "
        f"fp32 actors failed, and {_all_failed(reward_runs.INT8)} with int8. "
        f"With `--sigma 0.5` {held} of {count} runs held the reward, and int8 held it "
        f"{reward_runs.speedup(wider).value:.2f} times as soon as fp32."
    )


def _failed(result: results_lib.Result) -> bool:
    """Returns whether a run missed its reward, or ended below it where it had none to hold."""
    if result.measured.target is not None:
        return result.measured.outcome != results_lib.REACHED
    return (result.measured.final_reward or 0.0) < _REWARD


def _equally_long() -> str:
    lines = []
    for folder, policy in _POLICIES.items():
        for bits in (32, 8, 4):
            found = [result for result in reward_runs.runs(folder) if result.precision == bits]
            if found:
                lines.append([
                    policy, reporting.precision_name(bits),
                    tables.number(found[0].measured.learner_steps),
                    reporting.mean_and_deviation([r.measured.final_reward for r in found]),
                    "; ".join(f"{r.measured.final_reward:.1f}" for r in found),
                    reporting.mean([_best(r) for r in found]),
                ])
    head = [
        "Policy", "Actors", "Learner steps", "Final reward", "of each seed",
        "Best running mean of ten",
    ]
    return tables.table(head, lines, 2)


def _best(result: results_lib.Result) -> float:
    """Returns the best running mean of ten evaluations."""
    window = curves.DEFAULT_WINDOW
    returns = np.asarray(result.measured.rewards.returns)
    return float(curves.running_mean(returns, window)[window - 1 :].max())


def _loops() -> str:
    benchmarks: Sequence[tuple[str, str, str]] = (
        ("gym", "native", "AMD EPYC"), ("acrobot", "native", "AMD EPYC"),
        ("acrobot", "pytorch", "AMD EPYC"), ("zen4_gym", "native", "AMD EPYC, Zen 4"),
        ("xeon_gym", "native", "Intel Xeon, family 6, model 207"),
    )
    lines = []
    for folder, loop, processor in benchmarks:
        for width in (2048, 4096):
            rates = reward_runs.loop_rates(folder, reward_runs.ACROBOT, width, loop)
            if rates:
                lines.append([
                    f"`{folder}`", processor, loop, f"3x{width}",
                    tables.number(rates[32]), tables.number(rates[8]),
                    *(f"{rates[bits] / rates[32]:.2f}" if bits in rates else reward_runs.NOTHING
                      for bits in (8, 4)),
                ])
    head = [
        "Benchmark", "Processor", "Inference", "Policy", "fp32 steps/s", "int8 steps/s",
        "int8 gains", "int4 gains",
    ]
    return tables.table(head, lines, 4)


BLOCKS: dict[str, reward_runs.Block] = {
    "cartpole_balance": functools.partial(_runs, "time_to_reward", _TASK),
    "zen4": functools.partial(_runs, "time_to_reward_zen4", _TASK),
    "wider_noise": functools.partial(_runs, "wider_noise", _TASK),
    "walker_stand": functools.partial(_runs, "time_to_reward", reward_runs.WALKER_STAND),
    "cartpole": functools.partial(_runs, "time_to_reward", reward_runs.CARTPOLE),
    "again": _again,
    "mountain_car": functools.partial(_runs, "time_to_reward", reward_runs.MOUNTAIN_CAR),
    "acrobot": functools.partial(_runs, "time_to_reward", reward_runs.ACROBOT),
    "luck": _luck,
    "balance_commits": functools.partial(
        _commits, "time_to_reward_zen4", "wider_noise", *_POLICIES
    ),
    "failures": _failures,
    "equally_long": _equally_long,
    "loops": _loops,
}
