"""The report on runs that differ in one setting: final reward, and the cost of the setting.

The setting is `actor_update_period` (staleness), `quantize_communication` (communication),
`learner_precision` (the precision of the learner's products), or the actors' precision. Imports no
framework but matplotlib.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import numpy as np

from actorQ.core import curves
from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import results as results_lib
from actorQ.experiments.reports import reporting

_SEED = {"marker": "o", "linestyle": "", "alpha": 0.5, "markersize": 4}  # A point of a plot.
_LEAST_HEIGHT = 0.1  # Least height of the rewards' panel, as a part of the largest reward.


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The setting and the quantities of a sweep's figure.

    Attributes:
      axis: Label of the setting that differs.
      value_of: Quantity in the panel below the reward.
      label: Label of that quantity.
      log_value: Whether its axis is logarithmic.
      setting_of: A result's value of the setting that differs; by default the varied one.
    """

    axis: str
    value_of: Callable[[results_lib.Measured], float | None]
    label: str
    log_value: bool
    setting_of: Callable[[results_lib.Result], Any] = lambda result: result.varied


STALENESS = Sweep(
    "Environment steps of an actor between looks for newer weights (actor_update_period)",
    lambda measured: measured.staleness_steps,
    "Staleness of the actors'\nweights (learner steps)",
    True,
)
COMMUNICATION = Sweep(
    "Width of the weights on the wire, bits (quantize_communication)",
    lambda measured: measured.message_bytes,
    "Message to the\nactors (bytes)",
    False,
)
LEARNER_PRECISION = Sweep(
    "Precision of the learner's matrix products (learner_precision)",
    lambda measured: measured.learner_steps_per_s,
    "Learner steps/s",
    False,
)
PRECISION = Sweep(
    "Precision of the actors, bits (quantize)",
    lambda measured: measured.actor_steps_per_s,
    "Environment steps/s\nof all actors",
    False,
    lambda result: result.precision,
)


def write_staleness(material: reporting.Material) -> str:
    """Writes the report on staleness; returns its tables."""
    return _write(material, STALENESS)


def write_communication(material: reporting.Material) -> str:
    """Writes the report on communication quantization; returns its tables."""
    return _write(material, COMMUNICATION)


def write_learner_precision(material: reporting.Material) -> str:
    """Writes the report on the precision of the learner's products; returns its tables."""
    return _write(material, LEARNER_PRECISION)


def write_final_reward(material: reporting.Material) -> str:
    """Writes the report on the actors' precision; returns its tables."""
    return _write(material, PRECISION)


def _write(material: reporting.Material, sweep: Sweep) -> str:
    setting = material.experiment.vary[0] if material.experiment.vary else "quantize"
    text = ""
    rows: list[dict[str, object]] = []
    for task in material.tasks():
        cells = []
        for bits in material.precisions():
            for value, found in by_value(material.group(task, bits), sweep.setting_of).items():
                cells.append(_cells(value, bits, found))
                rows.append(_csv_row(task, setting, value, bits, found))
        header = [setting, "Actors", "Seeds", "Final reward", "lowest", "highest",
                  "Best running mean", "Staleness, steps", "Message, bytes", "of fp32",
                  "Learner steps/s", "Actor steps/s"]
        text += f"{task}\n\n{output.markdown_table(header, cells)}\n"
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


def by_value(
    found: Sequence[results_lib.Result],
    setting_of: Callable[[results_lib.Result], Any] = lambda result: result.varied,
) -> dict[Any, list[results_lib.Result]]:
    """Returns results by value of a setting, in the order of its values."""
    groups: dict[Any, list[results_lib.Result]] = {}
    for result in sorted(found, key=setting_of):
        groups.setdefault(setting_of(result), []).append(result)
    return groups


def _against_fp32(material: reporting.Material, task: str) -> list[str]:
    rewards = {
        reporting.precision_name(bits): _final(material.group(task, bits))
        for bits in material.precisions()
    }
    return reporting.below_fp32(task, rewards.pop(reporting.precision_name(32), []), rewards)


def _final(found: Sequence[results_lib.Result]) -> list[float]:
    return reporting.known(result.measured.final_reward for result in found)


def _best(result: results_lib.Result) -> float | None:
    returns = np.asarray(result.measured.rewards.returns)
    if not returns.size:
        return None
    window = min(curves.DEFAULT_WINDOW, len(returns))
    return float(curves.running_mean(returns, window)[window - 1 :].max())


def _cells(value: Any, bits: int, found: Sequence[results_lib.Result]) -> list[str]:
    measured = [result.measured for result in found]
    final = _final(found)
    return [
        str(value),
        reporting.precision_name(bits),
        str(len(found)),
        reporting.of_all(final, len(found)),
        output.number(min(final)) if final else reporting.NOTHING,
        output.number(max(final)) if final else reporting.NOTHING,
        reporting.mean([_best(result) for result in found]),
        reporting.mean([item.staleness_steps for item in measured]),
        reporting.mean([item.message_bytes for item in measured], 0),
        reporting.mean([_part_of_fp32(item) for item in measured], 3),
        reporting.mean([item.learner_steps_per_s for item in measured]),
        reporting.mean([item.actor_steps_per_s for item in measured], 0),
    ]


def _part_of_fp32(measured: results_lib.Measured) -> float | None:
    if not measured.message_bytes or not measured.fp32_bytes:
        return None
    return measured.message_bytes / measured.fp32_bytes


def _csv_row(
    task: str, setting: str, value: Any, bits: int, found: Sequence[results_lib.Result]
) -> dict[str, object]:
    def mean(values: Sequence[float | None]) -> object:
        known = reporting.known(values)
        return float(np.mean(known)) if known else ""

    final = _final(found)
    return {
        "task": task,
        "setting": setting,
        "value": value,
        "precision": reporting.precision_name(bits),
        "seeds": len(found),
        "final_reward": mean(final),
        "final_reward_std": float(np.std(final, ddof=1)) if len(final) > 1 else "",
        "final_reward_by_seed": ";".join(f"{reward:.2f}" for reward in final),
        "staleness_steps": mean([result.measured.staleness_steps for result in found]),
        "learner_steps_per_s": mean([result.measured.learner_steps_per_s for result in found]),
        "actor_steps_per_s": mean([result.measured.actor_steps_per_s for result in found]),
        "message_bytes": mean([result.measured.message_bytes for result in found]),
        "message_part_of_fp32": mean([_part_of_fp32(result.measured) for result in found]),
    }


def _draw(material: reporting.Material, sweep: Sweep, path: str) -> str:
    figure, (rewards, below) = plotting.new_figure(2, 5.6)
    several = len(material.tasks()) > 1
    values = sorted({sweep.setting_of(result) for result in material.all_results})
    # Values that are no numbers stand side by side.
    places = {
        value: value if isinstance(value, (int, float)) else index
        for index, value in enumerate(values, 1)
    }
    styles = itertools.cycle(plotting.TASK_STYLES)
    for task, style in zip(material.tasks(), styles, strict=False):
        for bits in material.precisions():
            groups = by_value(material.group(task, bits), sweep.setting_of)
            colour = plotting.PRECISION_COLOURS[bits]
            label = f"{reporting.precision_name(bits)} actors" + f", {task}" * several
            known = {
                places[value]: _final(found) for value, found in groups.items() if _final(found)
            }
            rewards.plot(list(known), [np.mean(v) for v in known.values()],
                         style if len(known) > 1 else "_", color=colour, markersize=16,
                         label=f"{label}, mean")
            points = [(place, reward) for place, finals in known.items() for reward in finals]
            rewards.plot([x for x, _ in points], [y for _, y in points], color=colour, **_SEED)
            lower = {}
            for value, found in groups.items():
                numbers = reporting.known(sweep.value_of(result.measured) for result in found)
                if numbers:
                    lower[places[value]] = float(np.mean(numbers))
            below.plot(list(lower), list(lower.values()), "o" + style, color=colour, markersize=4,
                       clip_on=False)
    rewards.plot([], [], color="0.5", label="one seed each", **_SEED)
    for ax in (rewards, below):
        ax.set_xscale("log")
        ax.set_xticks(list(places.values()), [str(value) for value in values], fontsize=8)
        ax.minorticks_off()
    if sweep.log_value:
        below.set_yscale("symlog", linthresh=1.0)
    below.set_ylim(bottom=0)
    rewards.set_ylabel("Final reward")
    plotting.keep_flat(rewards, _LEAST_HEIGHT * max(map(abs, rewards.get_ylim())))
    below.set_ylabel(sweep.label)
    below.set_xlabel(sweep.axis)
    rewards.set_title(", ".join(material.tasks()), fontsize=11)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return plotting.save_figure(figure, path)
