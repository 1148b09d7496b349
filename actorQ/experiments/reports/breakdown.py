"""The report on where an actor's time goes: phases by precision and update period.

Figures are medians over the seeds. The paper breaks an actor's time down into step (inference),
pull, deserialize and load_state_dict, at an actor_update_period of 30 ("communication heavy") and
300 ("computation heavy"). Environment and insert complete it. Imports no framework but matplotlib.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import specification
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import actor_time

_LATE = 1.5  # The report warns of more update periods between two loads.
# Colours of the phases, the paper's first.
_COLOURS = (plotting.INDIGO, plotting.OLIVE, plotting.WINE, "black", plotting.SAND, "0.75")


class Bar(NamedTuple):
    """A bar of the figure, for one precision or run."""

    label: str  # Name below the bar.
    phases_us: Mapping[str, float]  # Microseconds per environment step, by phase.
    step_us: float  # From one step to the next by the clock.


def write(material: reporting.Material) -> str:
    """Writes tables and figures into the report's folder; returns the tables."""
    setting = material.setting
    text = ""
    rows: list[dict[str, object]] = []
    lines: list[str] = []
    for task in material.tasks():
        cells = _cells(material, task)
        if not cells:
            continue
        for value in dict.fromkeys(cell.value for cell in cells):
            column = [cell for cell in cells if cell.value == value]
            text += f"{task}, {setting} {value}\n\n{_phases_table(column)}\n"
        text += f"{task}, the whole step\n\n{_steps_table(setting, cells)}\n"
        lines += _late_loads(task, setting, cells)
        rows += _csv_rows(task, setting, cells)
        name = f"{material.experiment.name}_{specification.short_task(task)}.png"
        draw(task, _panels(setting, cells), material.path(name))
    unknown = [r.name for r in material.all_results if r.measured.phases_us is None]
    lines += [f"**No phases**: {name}: too short, or made by an older version" for name in unknown]
    text += reporting.bullets([*lines, *_notes(), *reporting.notes(material)])
    if rows:
        output.write_csv(material.path(f"{material.experiment.name}.csv"), rows)
    return text


def _cells(material: reporting.Material, task: str) -> list[reporting.Cell]:
    """Returns the cells of a task, of results with phases: by value, then widest first."""
    cells = []
    for cell in material.cells(task):
        known = [result for result in cell.results if result.measured.phases_us is not None]
        if known:
            cells.append(dataclasses.replace(cell, results=known))
    return sorted(cells, key=lambda cell: (cell.value, -cell.precision))


def _phases_us(cell: reporting.Cell) -> dict[str, float]:
    """Returns the medians over the seeds, by phase."""
    return {phase: float(np.median(cell.phases_us(phase))) for phase in actor_time.PHASE_NAMES}


def _step_us(cell: reporting.Cell) -> float:
    return cell.median("step_us")


def _paper_us(cell: reporting.Cell) -> float:
    """Returns the sum of the paper's four phases."""
    medians = _phases_us(cell)
    return sum(medians[phase] for phase in actor_time.PAPER_PHASES)


def _all_us(cell: reporting.Cell) -> float:
    return sum(_phases_us(cell).values())


def _phases_table(column: Sequence[reporting.Cell]) -> str:
    """Returns a table of phase against precision, for one value of the varied setting."""
    header = ["Phase"]
    names = [*actor_time.PHASE_NAMES.values(), "the paper's four", "all phases"]
    lines = [[name] for name in names]
    for cell in column:
        header += [f"{cell.name}: µs/step", "share"]
        whole = _all_us(cell)
        amounts = (*_phases_us(cell).values(), _paper_us(cell), whole)
        for line, us in zip(lines, amounts, strict=True):
            share = f"{100 * us / whole:.1f} %" if whole else reporting.NOTHING
            line += [f"{us:.1f}" if us >= 1 else f"{us:.2g}", share]
    return output.markdown_table(header, lines)


def _late_loads(task: str, setting: str, cells: Sequence[reporting.Cell]) -> list[str]:
    """Returns a warning for each period at which newer weights come less often than looks."""
    warnings = []
    for value in dict.fromkeys(cell.value for cell in cells if setting == "actor_update_period"):
        late = [
            f"{cell.name} {cell.median('steps_per_load'):.0f}"
            for cell in cells
            if cell.value == value and cell.median("steps_per_load") > _LATE * value
        ]
        if late:
            warnings.append(
                f"**Warning**: {task} at {setting} {value} loads less often than that, since newer "
                f"weights do not come so fast (steps between two loads: {', '.join(late)})."
            )
    return warnings


def _speedup(
    cells: Sequence[reporting.Cell], cell: reporting.Cell, us: Callable[[reporting.Cell], float]
) -> float:
    """Returns fp32's microseconds over a cell's, for the seeds that both have; else NaN."""
    both = reporting.with_seeds_of(cells, cell, 32, cell.value)
    own = us(both[0]) if both else 0.0
    return us(both[1]) / own if both and own else float("nan")


def _steps_table(setting: str, cells: Sequence[reporting.Cell]) -> str:
    header = [
        setting, "Actors", "Seeds", "Step, µs", "by seed", "fp32 / this", "paper's four, µs",
        "fp32 / this", "all phases, µs", "fp32 / this", "Steps between loads", "Staleness, steps",
        "Message, bytes",
    ]
    lines = [
        [
            str(cell.value),
            cell.name,
            str(len(cell.results)),
            output.number(_step_us(cell)),
            ", ".join(output.number(us, 0) for us in cell.by_seed("step_us")),
            output.number(_speedup(cells, cell, _step_us), 2),
            output.number(_paper_us(cell)),
            output.number(_speedup(cells, cell, _paper_us), 2),
            output.number(_all_us(cell)),
            output.number(_speedup(cells, cell, _all_us), 2),
            output.number(cell.median("steps_per_load"), 0),
            output.number(cell.median("staleness_steps")),
            output.number(cell.median("message_bytes"), 0),
        ]
        for cell in cells
    ]
    return output.markdown_table(header, lines)


def _notes() -> list[str]:
    return [
        "Figures are microseconds per environment step of one actor (mean over the actors of a "
        "run) while the learner learned; medians over the seeds. Shares are of all phases "
        "together. Speed-ups are fp32's microseconds at the same update period over these, for "
        "the seeds that both sides have.",
        "A step lasts from one step to the next by the clock. Pull and deserialize run on a thread "
        "beside the steps (in the original, between them). They delay a step only as far as the "
        "two share a core, and the sum of all phases can exceed it.",
        "Newer weights are loaded less often than actors look for them if learner, broadcaster or "
        "the transfer take longer than a period.",
    ]


def _csv_rows(
    task: str, setting: str, cells: Sequence[reporting.Cell]
) -> list[dict[str, object]]:
    return [
        {
            "task": task,
            "setting": setting,
            "value": cell.value,
            "precision": cell.name,
            "phase": name,
            "seeds": len(cell.results),
            "us_per_step": us,
            "us_per_step_by_seed": ";".join(f"{us:.2f}" for us in cell.phases_us(phase)),
            "share_percent": 100 * us / _all_us(cell) if _all_us(cell) else "",
            "step_us": _step_us(cell),
            "step_speedup": _speedup(cells, cell, _step_us),
            "paper_phases_us": _paper_us(cell),
            "paper_phases_speedup": _speedup(cells, cell, _paper_us),
            "steps_per_load": cell.median("steps_per_load"),
            "staleness_steps": cell.median("staleness_steps"),
            "message_bytes": cell.median("message_bytes"),
        }
        for cell in cells
        for (phase, name), us in zip(
            actor_time.PHASE_NAMES.items(), _phases_us(cell).values(), strict=True
        )
    ]


def _panels(setting: str, cells: Sequence[reporting.Cell]) -> dict[str, list[Bar]]:
    """Returns a panel for each value of the varied setting, with a bar for each precision."""
    panels: dict[str, list[Bar]] = {}
    for cell in cells:
        panels.setdefault(f"{setting} {cell.value}", []).append(
            Bar(cell.name, _phases_us(cell), _step_us(cell))
        )
    return panels


def draw(title: str, panels: Mapping[str, Sequence[Bar]], path: str) -> str:
    """Draws stacked bars of phases as in the paper; returns `path`.

    Args:
      title: Title of the figure.
      panels: Bars of each panel, by its title.
      path: File to write, a PNG.
    """
    figure, axes = plotting.new_grid(
        1, len(panels), (max(7.0, 3.5 * len(panels)), 4.6), sharey=True
    )
    for ax, (name, bars) in zip(axes, panels.items(), strict=True):
        places = np.arange(len(bars))
        bottom = np.zeros(len(bars))
        for (phase, phase_name), colour in zip(
            actor_time.PHASE_NAMES.items(), _COLOURS, strict=True
        ):
            heights = np.nan_to_num([bar.phases_us[phase] for bar in bars])
            ax.bar(
                places, heights, 0.62, bottom=bottom, color=colour, edgecolor="white",
                linewidth=0.5, label=phase_name if ax is axes[0] else "_",
            )
            bottom += heights
        ax.plot(
            places, [bar.step_us for bar in bars], "D", color="black", markersize=5,
            markerfacecolor="white", label="step by the clock" if ax is axes[0] else "_",
        )
        for place, height in zip(places, bottom, strict=True):
            ax.annotate(
                f"{height:.0f}", (place, height), xytext=(0, 2), textcoords="offset points",
                ha="center", fontsize=plotting.SMALL,
            )
        ax.set_xticks(places, [bar.label for bar in bars])
        ax.tick_params(axis="x", length=0)
        ax.set_xlim(-0.6, len(bars) - 0.4)
        ax.set_title(name, fontsize=plotting.TEXT)
        ax.margins(y=0.08)
    axes[0].set_ylabel("One actor's time per environment step (µs)")
    figure.suptitle(title, fontsize=plotting.TITLE)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=plotting.TEXT)
    return plotting.save_figure(figure, path)
