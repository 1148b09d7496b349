"""The measurement of a training, read from its logs.

How time is counted:
- A run's clock starts when the runner launches it: start-up of all processes, filling of replay and
  evaluation are in it.
- Evaluation happens in the learner's process, on the thread that learns, with the full-precision
  policy at every precision of the actors. Meanwhile the actors go on.
- With --eval_period_steps, as in the experiments here, there is one episode every so many learner
  steps. Runs that have learned equally long have been evaluated equally often.
- `evaluation_to_target_s` says how long evaluation took. It delays a learner that is the slow part
  by all of that, and one that waits for actors by less, since they collect data meanwhile. The
  effect that is left is against the faster actors.
- Evaluations of the last policy come after the end of training and count for no time.

Imports no framework.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.experiments import results
from actorQ.experiments.run_logs import actor_time
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import staleness
from actorQ.experiments.run_logs import times

_LEAST_LEARNING_S = 5.0  # A run that its time limit ends must have learned so long.
_DIGITS = 3  # Digits of seconds in results: milliseconds.


def measure(logs: str, launched: float, diverged: bool) -> results.Measured:
    """Reads the logs of a run.

    Args:
      logs: Folder of the logs.
      launched: Moment of the launch, seconds since 1970.
      diverged: Whether the training ended because it diverged.

    Raises:
      errors.UserError: A log is missing or damaged, or the run had hardly begun to learn.
    """
    run = curves.load_run(logs)
    config = run.config
    # Logs count from the moment at which the launcher was ready.
    delay_s = config.run_start_time - launched
    # A run that its time limit ends before the first evaluation has no log of evaluations.
    evaluations = _evaluations(run, delay_s, diverged or not config.final_eval_episodes)
    train = curves.read_log(logs, telemetry.LEARNER, telemetry.TRAIN_CSV)
    if not diverged:
        _require_whole(evaluations, _last(train["learner_steps"]), config)
    finals = 0 if diverged else config.final_eval_episodes
    count = max(0, len(evaluations.returns) - finals)
    rewards = _part(evaluations, 0, count)
    reach = None
    if config.stop_return is not None:
        reach = _reach(rewards, config, _last(train["seconds"]) + delay_s)
    outcome = results.TRAINED
    if reach is not None:
        outcome = results.REACHED if reach.reached else results.MISSED
    if diverged and outcome != results.REACHED:
        outcome = results.DIVERGED
    held = reach if reach is not None and reach.reached else None
    missed = reach if reach is not None and not reach.reached else None
    if config.stop_return is None and not diverged:
        _require_learning(train, config)
    return results.Measured(
        outcome=outcome,
        target=config.stop_return,
        time_to_target_s=held.seconds if held else None,
        evaluation_to_target_s=held.evaluation_s if held else None,
        censored_at_s=round(missed.seconds, _DIGITS) if missed else None,
        final_returns=list(evaluations.returns[count:]),
        rewards=rewards,
        evaluation_s=evaluations.evaluation_s[-1] if evaluations.evaluation_s else 0.0,
        learner_steps=_last(train["learner_steps"]),
        actor_steps=_last(train["actor_steps"]),
        **_rates(train, config),
        **_parameter_path(run),
        energy=_energy(logs, None if reach is None else launched + reach.seconds),
        window=config.stop_smoothing,
        **_actor_time(run, train),
        learner_device=run.surroundings.get("learner_device"),
        evaluation_process=run.surroundings.get("evaluation_process"),
    )


def _evaluations(run: curves.Run, delay_s: float, may_lack: bool) -> results.Rewards:
    config = run.config
    if not (config.eval_period_s or config.eval_period_steps or config.final_eval_episodes):
        return results.Rewards((), (), (), (), ())
    try:
        log = curves.read_log(run.folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
    except errors.UserError:
        if may_lack:
            return results.Rewards((), (), (), (), ())
        raise

    return results.Rewards(
        seconds=_milliseconds(log["seconds"] + delay_s),
        learner_steps=log["learner_steps"].tolist(),
        actor_steps=log["actor_steps"].tolist(),
        returns=log["episode_return"].tolist(),  # All digits: the stop rule uses them.
        evaluation_s=_milliseconds(log["evaluation_s"]),
    )


def _milliseconds(column: np.ndarray) -> list[float]:
    """Returns seconds without digits below a millisecond."""
    return [round(float(x), _DIGITS) for x in column]


def _require_whole(
    evaluations: results.Rewards, learner_steps: float, config: config_lib.RunConfig
) -> None:
    """Checks that the log of a run that came to its end lacks no evaluation.

    There was one after every --eval_period_steps learner steps, and those of the last policy. A
    process whose disk is full goes on, without the rows that it could not write. The last row of
    train.csv, with `learner_steps`, may be some behind.
    """
    if not config.eval_period_steps:
        return
    made = max([learner_steps, *evaluations.learner_steps])
    expected = int(made // config.eval_period_steps) + config.final_eval_episodes
    found = len(evaluations.returns)
    if found < expected:
        raise errors.UserError(
            f"its log has {found} of {expected} evaluations: rows were lost (a full disk?)"
        )


def _require_learning(
    train: Mapping[str, np.ndarray], config: config_lib.RunConfig
) -> None:
    """Checks that a run that its time limit ended had learned for some of that time."""
    steps, seconds = train["learner_steps"], train["seconds"]
    if steps[-1] >= config.num_episodes:  # The steps of a smoke run may take no time at all.
        return
    before = np.flatnonzero(steps == 0)
    last = np.flatnonzero(steps == steps[-1])[0]  # Later rows are of the last evaluations.
    learned_s = seconds[last] - (seconds[before[-1]] if len(before) else 0.0)
    if steps[-1] == 0 or learned_s < _LEAST_LEARNING_S:
        raise errors.UserError(
            f"it made {steps[-1]:g} learner steps in the last {learned_s:.0f} s of its "
            f"{config.max_seconds:g} s, too few to measure (a GPU may have compiled its kernels "
            "before, which it keeps: the same command makes the run again)"
        )


def _part(rewards: results.Rewards, start: int, end: int) -> results.Rewards:
    names = [field.name for field in dataclasses.fields(rewards)]
    return results.Rewards(*(list(getattr(rewards, name)[start:end]) for name in names))


def _reach(
    rewards: results.Rewards, config: config_lib.RunConfig, last_s: float
) -> times.Reach:
    """Returns when a run held its target; one that was never evaluated missed it until `last_s`."""
    assert config.stop_return is not None
    if not rewards.seconds:
        return times.Reach(last_s, 0.0, False)
    return times.held(
        rewards.seconds, rewards.evaluation_s, rewards.returns, config.stop_return,
        config.stop_window, config.stop_smoothing,
    )


def _rates(train: Mapping[str, np.ndarray], config: config_lib.RunConfig) -> dict[str, Any]:
    """Returns the rates in `Measured` while the learner learned."""
    steps = train["learner_steps"]
    rows = staleness.learning_rows(steps)
    unknown = dict.fromkeys(("learner_steps_per_s", "actor_steps_per_s", "data_used"))
    if rows is None:
        return unknown
    first, last = rows
    elapsed_s = train["seconds"][last] - train["seconds"][first]
    learned = steps[last] - steps[first]
    acted = train["actor_steps"][last] - train["actor_steps"][first]
    if elapsed_s <= 0:
        return unknown
    ratio = config.most_samples_per_insert
    used = learned * config.batch_size / (ratio * acted) if ratio and acted else math.nan
    return {
        "learner_steps_per_s": _number(learned / elapsed_s),
        "actor_steps_per_s": _number(acted / elapsed_s),
        "data_used": _number(used),
    }


def _actor_time(run: curves.Run, train: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns an actor's time in `Measured`, or nothing if it is not known."""
    rows = staleness.learning_rows(train["learner_steps"])
    if rows is None:
        return {}
    try:
        stretch = actor_time.load(run, *(float(train["seconds"][row]) for row in rows))
    except errors.UserError:  # No actor has a row while the learner learned.
        return {}
    if not stretch.steady or not stretch.steps > 0:
        return {}
    loads = stretch.loads if stretch.loads > 0 else math.nan  # NaN: not logged.
    return {
        "phases_us": {p: round(stretch.phases_us[p], _DIGITS) for p in results.PHASES},
        "step_us": _number(stretch.step_us),
        "steps_per_load": _number(stretch.steps / loads),
    }


def _parameter_path(run: curves.Run) -> dict[str, Any]:
    """Returns staleness and sizes of messages in `Measured`."""
    try:
        breakdown = actor_time.load(run)
    except errors.UserError:  # A short run may have no row yet.
        return dict.fromkeys(("staleness_steps", "message_bytes", "fp32_bytes"))
    return {
        "staleness_steps": _number(staleness.mean_lag(run.folder)),
        "message_bytes": _number(breakdown.message_bytes),
        "fp32_bytes": _number(breakdown.fp32_bytes),
    }


def _energy(logs: str, target_moment: float | None) -> results.Energy | None:
    estimates = energy.read(logs)
    if not estimates:
        return None
    kwh, co2_kg = energy.total(estimates)
    until = (None, None) if target_moment is None else energy.total(estimates, target_moment)
    return results.Energy(
        kwh, co2_kg, until[0], until[1], energy.gpu_kwh(estimates),
        any(each.cpu_measured for each in estimates), estimates[0].country,
    )


def _last(values: np.ndarray) -> float:
    return float(values[-1])


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None
