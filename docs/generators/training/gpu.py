"""Blocks of results/gpu: the first trainings with a learner on a GPU, and the learner alone."""

from collections.abc import Mapping
import dataclasses
import functools
import pathlib
from typing import Any

import numpy as np

from actorQ.core import telemetry
from actorQ.environments import evaluation
from actorQ.experiments.run_logs import actor_time
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import staleness
from actorQ.experiments.run_logs import times
from docs.generators import prose
from docs.generators import tables

_FOLDER = tables.ACTORQ_RESULTS / "gpu"
_SIDES = ("fp32", "int8")
# The paper's phases but `load_state_dict`, which takes a tenth of a microsecond; then ours.
_PHASES = ("inference", "environment", "insert", "pull", "deserialize")
_MICRO = 1e6


@dataclasses.dataclass(frozen=True)
class Run:
    """A training on the GPU; rates are those between the first and the last row of learning.

    Attributes:
      held: When the reward was held, in seconds of the log; a bound if it was not held.
      held_steps: Learner steps then, or at the last evaluation.
      first_step_s: Seconds of the log at the first learner step.
      learner_rate: Learner steps/s, evaluation included.
      learner_rate_alone: Learner steps/s of the time that was not evaluation.
      evaluation_share: Part of the learner's time that evaluation took.
      actor_rate: Environment steps/s of all actors.
      supply: Learner steps/s for which the actors bring data.
      data_used: Samples that the learner took over those that the new data allowed.
      phases_us: Microseconds of an environment step of actor 1, by phase.
      loads_per_s: Loads of weights a second of actor 1.
    """

    held: times.Reach
    held_steps: float
    first_step_s: float
    learner_rate: float
    learner_rate_alone: float
    evaluation_share: float
    actor_rate: float
    supply: float
    data_used: float
    phases_us: Mapping[str, float]
    loads_per_s: float


@functools.cache
def run(side: str) -> Run:
    """Returns the training with `fp32` or `int8` actors."""
    folder = str(_FOLDER / side)
    config = curves.load_run(folder).config
    train = curves.read_log(folder, telemetry.LEARNER, telemetry.TRAIN_CSV)
    rows = staleness.learning_rows(train["learner_steps"])
    assert rows is not None, "The learner learned."
    spans = {name: float(column[rows[1]] - column[rows[0]]) for name, column in train.items()}
    elapsed = spans["seconds"]
    evaluations = _while_learning(folder)
    assert config.stop_return is not None, "The profile has a reward to reach."
    returns = evaluations["episode_return"].tolist()
    held = times.held(
        evaluations["seconds"].tolist(), evaluations["evaluation_s"].tolist(), returns,
        config.stop_return, config.stop_window, config.stop_smoothing,
    )
    since = evaluation.held_since(
        returns, config.stop_return, config.stop_window, config.stop_smoothing
    )
    samples = config.most_samples_per_insert
    acted = spans["actor_steps"]
    phases, loads = _actor(folder, *(float(train["seconds"][row]) for row in rows))
    return Run(
        held=held,
        held_steps=float(evaluations["learner_steps"][-1 if since is None else since]),
        first_step_s=float(train["seconds"][rows[0]]),
        learner_rate=spans["learner_steps"] / elapsed,
        learner_rate_alone=spans["learner_steps"] / (elapsed - spans["evaluation_s"]),
        evaluation_share=spans["evaluation_s"] / elapsed,
        actor_rate=acted / elapsed,
        supply=acted / elapsed * samples / config.batch_size,
        data_used=spans["learner_steps"] * config.batch_size / (samples * acted),
        phases_us=phases,
        loads_per_s=loads,
    )


def _while_learning(folder: str) -> dict[str, np.ndarray]:
    """Returns the log of evaluations without those of the last policy, which follow training."""
    log = curves.read_log(folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
    count = len(np.unique(log["learner_steps"]))
    return {name: column[:count] for name, column in log.items()}


def _actor(folder: str, start_s: float, end_s: float) -> tuple[dict[str, float], float]:
    """Returns actor 1's microseconds a step by phase and its loads a second, in a stretch."""
    actor = telemetry.actor_folders(folder)[0]
    log = curves.read_log(str(pathlib.Path(actor) / telemetry.PHASES_CSV))
    inside = np.flatnonzero((log["seconds"] >= start_s) & (log["seconds"] <= end_s))
    spans = {
        name: float(column[inside[-1]] - column[inside[0]]) for name, column in log.items()
    }
    phases = {
        phase: _MICRO * spans[f"{phase}_s"] / spans["actor_steps"] for phase in _PHASES
    }
    return phases, spans["pulls"] / spans["seconds"]


def _held_text(one: Run) -> str:
    seconds = tables.number(one.held.seconds, 1)
    if one.held.reached:
        return f"{seconds} s, {tables.number(one.held_steps)} learner steps"
    return f"> {seconds} s, {tables.number(one.held_steps)} learner steps"


def _trainings() -> str:
    both = [run(side) for side in _SIDES]
    rows = [
        ["941.22 [held](../reference/glossary.md#held) from", *map(_held_text, both)],
        ["first learner step logged at, s",
         *(tables.number(one.first_step_s, 1) for one in both)],
        ["learner steps/s", *(tables.number(one.learner_rate) for one in both)],
        ["learner steps/s without the time of evaluation",
         *(tables.number(one.learner_rate_alone) for one in both)],
        ["share of the learner's time that evaluation took",
         *(f"{100 * one.evaluation_share:.0f} %" for one in both)],
        ["environment steps/s, four actors",
         *(tables.number(one.actor_rate) for one in both)],
        ["learner steps/s for which the actors bring data",
         *(tables.number(one.supply) for one in both)],
        ["[data used](../reference/glossary.md#data-used)",
         *(f"{100 * one.data_used:.0f} %" for one in both)],
        *(
            [f"actor 1, µs a step: {actor_time.PHASE_NAMES[phase]}",
             *(tables.number(one.phases_us[phase]) for one in both)]
            for phase in _PHASES
        ),
        ["actor 1, loads of weights a second",
         *(tables.number(one.loads_per_s, 1) for one in both)],
    ]
    return tables.table(["", *(f"{side} actors" for side in _SIDES)], rows)


@prose.wrapped
def _answer() -> str:
    fp32, int8 = (run(side) for side in _SIDES)
    return (
        "**Answer.** "
        "The learner was the slow part at both precisions: it made "
        f"{fp32.learner_rate:.0f} and {int8.learner_rate:.0f} steps a second, "
        "evaluation included. "
        f"Int8 actors made {int8.actor_rate / fp32.actor_rate:.1f} times as many environment "
        f"steps as fp32 actors, and the learner used {100 * int8.data_used:.0f} % of their data."
    )


def _learning_curve() -> str:
    logs = [_while_learning(str(_FOLDER / side)) for side in _SIDES]
    rows = []
    for index, steps in enumerate(logs[1]["learner_steps"]):
        cells = [tables.number(float(steps))]
        for log in logs:
            if index < len(log["seconds"]):
                cells += [
                    tables.number(float(log["seconds"][index]), 1),
                    tables.number(float(log["episode_return"][index]), 1),
                ]
            else:
                cells += ["", ""]
        rows.append(cells)
    head = ["Learner steps", "fp32: s", "fp32: return", "int8: s", "int8: return"]
    return tables.table(head, rows, 0)


def _rates() -> dict[str, Any]:
    rates: dict[str, Any] = tables.read_json(_FOLDER / "learner_rates.json")
    return rates


def _learner_alone() -> str:
    by_step: dict[str, dict[int, str]] = {}
    for one in _rates()["learner"]:
        text = f"{one['ms']} ms"
        if one["steps_per_s"] is not None:
            text += f" ({tables.number(one['steps_per_s'])}/s)"
        by_step.setdefault(one["step"], {})[one["width"]] = text
    rows = [[step, *(cells.get(width, "") for width in (2048, 256))]
            for step, cells in by_step.items()]
    return tables.table(["One step, batch 256", "3x2048", "3x256"], rows)


BLOCKS = {
    "answer": _answer,
    "trainings": _trainings,
    "learning_curve": _learning_curve,
    "learner_alone": _learner_alone,
}
