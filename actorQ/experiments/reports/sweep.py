"""The report on runs that differ in one setting: final reward, and the cost of the setting.

The setting is `actor_update_period` (staleness), `quantize_communication` (communication),
`learner_precision` (the precision of the learner's products), or the actors' precision. Imports no
framework but matplotlib.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import results as results_lib
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import curves

_LEAST_HEIGHT = 0.1  # Least height of the rewards' panel, as a part of the largest reward.


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The setting and the quantities of a sweep's figure."""

    axis: str  # Label of the setting that differs.
    quantity: str  # Quantity of `results.Measured` in the panel below the reward.
    label: str  # Label of that quantity.
    log_value: bool  # Whether its axis is logarithmic.
    # A result's value of the setting that differs; by default the varied one.
    setting_of: Callable[[results_lib.Result], Any] = lambda result: result.varied
    unit: float = 1.0  # Size of the label's unit, in that of the quantity.


STALENESS = Sweep(
    "Environment steps of an actor between looks for newer weights (actor_update_period)",
    "staleness_steps",
    "Staleness of the actors'\nweights (learner steps)",
    True,
)
COMMUNICATION = Sweep(
    "Width of the weights on the wire, bits (quantize_communication)",
    "message_bytes",
    "Message to the\nactors (kB)",
    False,
    unit=1000.0,
)
LEARNER_PRECISION = Sweep(
    "Precision of the learner's matrix products (learner_precision)",
    "learner_steps_per_s",
    "Learner steps/s",
    False,
)
PRECISION = Sweep(
    "Precision of the actors, bits (quantize)",
    "actor_steps_per_s",
    "Environment steps/s\nof all actors",
    False,
    lambda result: result.precision,
)


def write(material: reporting.Material, sweep: Sweep) -> str:
    """Writes table and figure into the report's folder; returns the table."""
    setting = material.setting or "quantize"
    header = [setting, "Actors", "Seeds", "Final reward", "lowest", "highest",
              "Best running mean", "Staleness, steps", "Message, bytes", "of fp32",
              "Learner steps/s", "Actor steps/s"]
    text = ""
    rows: list[dict[str, object]] = []
    for task in material.tasks():
        cells = material.cells(task, sweep.setting_of)
        text += f"{task}\n\n{output.markdown_table(header, list(map(_line, cells)))}\n"
        rows += [_csv_row(task, setting, cell) for cell in cells]
    lines = [
        "Final reward: mean of the evaluations of each seed's last policy (full precision), mean ± "
        "standard deviation over the seeds; every run makes the same number of learner steps "
        "unless its time ends before, which is said below.",
        "Staleness: learner steps by which the weights in use lag behind, mean over time.",
    ]
    lines += [
        f"**{result.name} made {result.measured.learner_steps:g} of "
        f"{result.settings['num_episodes']} learner steps in its time.**"
        for result in material.all_results
        if result.measured.learner_steps < result.settings["num_episodes"]
        and result.measured.outcome != results_lib.DIVERGED  # A note of its own says so.
    ]
    if sweep is PRECISION:
        lines += [line for task in material.tasks() for line in _against_fp32(material, task)]
    text += reporting.bullets([*lines, *reporting.notes(material)])
    name = material.experiment.name
    output.write_csv(material.path(f"{name}.csv"), rows)
    _draw(material, sweep, material.path(f"{name}.png"))
    return text


def _against_fp32(material: reporting.Material, task: str) -> list[str]:
    rewards = {
        cell.name: cell.by_seed("final_reward")
        for cell in material.cells(task, PRECISION.setting_of)
    }
    return reporting.below_fp32(task, rewards.pop(reporting.precision_name(32), []), rewards)


def _best(result: results_lib.Result) -> float | None:
    returns = np.asarray(result.measured.rewards.returns)
    if not returns.size:
        return None
    window = min(curves.DEFAULT_WINDOW, len(returns))
    return float(curves.running_mean(returns, window)[window - 1 :].max())


def _line(cell: reporting.Cell) -> list[str]:
    final = cell.by_seed("final_reward")
    return [
        str(cell.value),
        cell.name,
        str(len(cell.results)),
        reporting.of_all(final, len(cell.results)),
        output.number(min(final)) if final else reporting.NOTHING,
        output.number(max(final)) if final else reporting.NOTHING,
        reporting.mean([_best(result) for result in cell.results]),
        cell.text("staleness_steps"),
        cell.text("message_bytes", 0),
        cell.text("part_of_fp32", 3),
        cell.text("learner_steps_per_s"),
        cell.text("actor_steps_per_s", 0),
    ]


def _csv_row(task: str, setting: str, cell: reporting.Cell) -> dict[str, object]:
    final = cell.by_seed("final_reward")
    return {
        "task": task,
        "setting": setting,
        "value": cell.value,
        "precision": cell.name,
        "seeds": len(cell.results),
        "final_reward": cell.mean("final_reward"),
        "final_reward_std": float(np.std(final, ddof=1)) if len(final) > 1 else "",
        "final_reward_by_seed": ";".join(f"{reward:.2f}" for reward in final),
        "staleness_steps": cell.mean("staleness_steps"),
        "learner_steps_per_s": cell.mean("learner_steps_per_s"),
        "actor_steps_per_s": cell.mean("actor_steps_per_s"),
        "message_bytes": cell.mean("message_bytes"),
        "message_part_of_fp32": cell.mean("part_of_fp32"),
    }


def _draw(material: reporting.Material, sweep: Sweep, path: str) -> str:
    figure, (rewards, below) = plotting.new_figure(2, 5.6)
    values = sorted({sweep.setting_of(result) for result in material.all_results})
    # Values that are no numbers stand side by side.
    places = {
        value: value if isinstance(value, (int, float)) else index
        for index, value in enumerate(values, 1)
    }
    reporting.draw_means(
        material, (rewards, below), ("final_reward", sweep.quantity), sweep.setting_of, places
    )
    rewards.plot([], [], ".", color="0.5", alpha=0.4, markersize=5, label="one seed each")
    for ax in (rewards, below):
        ax.set_xscale("log")
        ax.set_xticks(list(places.values()), [str(value) for value in values])
        ax.minorticks_off()
    if sweep.log_value:
        below.set_yscale("symlog", linthresh=1.0)
    elif sweep.unit != 1.0:
        below.yaxis.set_major_formatter(lambda value, _: f"{value / sweep.unit:g}")
    below.set_ylim(bottom=0)
    rewards.set_ylabel("Final reward")
    plotting.keep_flat(rewards, _LEAST_HEIGHT * max(map(abs, rewards.get_ylim())))
    below.set_ylabel(sweep.label)
    below.set_xlabel(sweep.axis)
    rewards.set_title(", ".join(material.tasks()), fontsize=plotting.TITLE)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=plotting.TEXT)
    return plotting.save_figure(figure, path)
