"""The report on where an actor's time goes: phases by precision and update period.

Figures are medians over the seeds. The paper breaks an actor's time down into step (inference),
pull, deserialize and load_state_dict, at an actor_update_period of 30 ("communication heavy") and
300 ("computation heavy"). Environment and insert complete it. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reporting
from actorQ.experiments.reports import sweep
from actorQ.experiments.run_logs import actor_time

_LATE = 1.5  # The report warns of more update periods between two loads.
# The colour-blind can tell these apart, too (Okabe and Ito's palette): the paper's phases first.
_COLOURS = ("#0072B2", "#E69F00", "#CC79A7", "#D55E00", "#009E73", "#56B4E9")


class Bar(NamedTuple):
    """A bar of the figure, for one precision or run.

    Attributes:
      label: Name below the bar.
      phases_us: Microseconds per environment step, by phase.
      step_us: From one step to the next by the clock.
    """

    label: str
    phases_us: Mapping[str, float]
    step_us: float


@dataclasses.dataclass(frozen=True)
class Cell:
    """All seeds of one task, precision and value of the varied setting, microseconds a step."""

    precision: int
    value: float
    results: Sequence[results_lib.Result]  # Only results with phases.
    phases_us: Mapping[str, float]  # Medians.

    @property
    def paper_us(self) -> float:
        """Sum of the paper's four phases."""
        return sum(self.phases_us[phase] for phase in actor_time.PAPER_PHASES)

    @property
    def all_us(self) -> float:
        """Sum of all phases."""
        return sum(self.phases_us.values())

    @property
    def step_us(self) -> float:
        """Time from one step to the next by the clock, median; NaN if it is not known."""
        return self.median("step_us")

    def median(self, name: str) -> float:
        """Returns the median of a measured quantity over the seeds, NaN if none has it."""
        values = reporting.known(getattr(result.measured, name) for result in self.results)
        return float(np.median(values)) if values else float("nan")


def write(material: reporting.Material) -> str:
    """Writes tables and figures into the report's folder; returns the tables."""
    setting = material.experiment.vary[0] if material.experiment.vary else ""
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


def _cells(material: reporting.Material, task: str) -> list[Cell]:
    """Returns the cells of a task that have a result: value by value, widest precision first."""
    cells = []
    for bits in material.precisions():
        for value, found in sweep.by_value(material.group(task, bits)).items():
            known = [result for result in found if result.measured.phases_us is not None]
            if known:
                cells.append(_cell(bits, value, known))
    return sorted(cells, key=lambda cell: (cell.value, -cell.precision))


def _cell(precision: int, value: float, found: Sequence[results_lib.Result]) -> Cell:
    phases_us = {
        phase: float(np.median(_by_seed(found, phase))) for phase in actor_time.PHASE_NAMES
    }
    return Cell(precision, value, found, phases_us)


def _by_seed(found: Sequence[results_lib.Result], phase: str) -> list[float]:
    """Returns the microseconds per step in a phase, by seed."""
    return [
        result.measured.phases_us[phase] for result in found
        if result.measured.phases_us is not None
    ]


def _phases_table(column: Sequence[Cell]) -> str:
    """Returns a table of phase against precision, for one value of the varied setting."""
    header = ["Phase"]
    for cell in column:
        header += [f"{reporting.precision_name(cell.precision)}: µs/step", "share"]
    lines = [
        [name, *(text for cell in column for text in _amount(cell.phases_us[phase], cell))]
        for phase, name in actor_time.PHASE_NAMES.items()
    ]
    lines.append(
        ["the paper's four", *(text for cell in column for text in _amount(cell.paper_us, cell))]
    )
    lines.append(
        ["all phases", *(text for cell in column for text in _amount(cell.all_us, cell))]
    )
    return output.markdown_table(header, lines)


def _late_loads(task: str, setting: str, cells: Sequence[Cell]) -> list[str]:
    """Returns a warning for each period at which newer weights come less often than looks."""
    warnings = []
    for value in dict.fromkeys(cell.value for cell in cells if setting == "actor_update_period"):
        late = [
            f"{reporting.precision_name(cell.precision)} {cell.median('steps_per_load'):.0f}"
            for cell in cells
            if cell.value == value and cell.median("steps_per_load") > _LATE * value
        ]
        if late:
            warnings.append(
                f"**Warning**: {task} at {setting} {value} loads less often than that, since newer "
                f"weights do not come so fast (steps between two loads: {', '.join(late)})."
            )
    return warnings


def _amount(us: float, cell: Cell) -> tuple[str, str]:
    share = f"{100 * us / cell.all_us:.1f} %" if cell.all_us else reporting.NOTHING
    return f"{us:.1f}" if us >= 1 else f"{us:.2g}", share


def _speedup(cells: Sequence[Cell], cell: Cell, name: str) -> float:
    """Returns fp32's microseconds over a cell's, for the seeds that both have; else NaN."""
    for wide in cells:
        both = reporting.of_shared_seeds(wide.results, cell.results)
        if (wide.precision, wide.value) == (32, cell.value) and all(both):
            before, own = (
                getattr(_cell(one.precision, one.value, found), name)
                for one, found in zip((wide, cell), both, strict=True)
            )
            return before / own if own else float("nan")
    return float("nan")


def _steps_table(setting: str, cells: Sequence[Cell]) -> str:
    header = [
        setting, "Actors", "Seeds", "Step, µs", "by seed", "fp32 / this", "paper's four, µs",
        "fp32 / this", "all phases, µs", "fp32 / this", "Steps between loads", "Staleness, steps",
        "Message, bytes",
    ]
    lines = []
    for cell in cells:
        seeds = [result.measured.step_us for result in cell.results]
        lines.append([
            str(cell.value),
            reporting.precision_name(cell.precision),
            str(len(cell.results)),
            output.number(cell.step_us),
            ", ".join(output.number(us, 0) for us in seeds if us is not None),
            output.number(_speedup(cells, cell, "step_us"), 2),
            output.number(cell.paper_us),
            output.number(_speedup(cells, cell, "paper_us"), 2),
            output.number(cell.all_us),
            output.number(_speedup(cells, cell, "all_us"), 2),
            output.number(cell.median("steps_per_load"), 0),
            output.number(cell.median("staleness_steps")),
            output.number(cell.median("message_bytes"), 0),
        ])
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


def _csv_rows(task: str, setting: str, cells: Sequence[Cell]) -> list[dict[str, object]]:
    return [
        {
            "task": task,
            "setting": setting,
            "value": cell.value,
            "precision": reporting.precision_name(cell.precision),
            "phase": name,
            "seeds": len(cell.results),
            "us_per_step": cell.phases_us[phase],
            "us_per_step_by_seed": ";".join(
                f"{us:.2f}" for us in _by_seed(cell.results, phase)
            ),
            "share_percent": 100 * cell.phases_us[phase] / cell.all_us if cell.all_us else "",
            "step_us": cell.step_us,
            "step_speedup": _speedup(cells, cell, "step_us"),
            "paper_phases_us": cell.paper_us,
            "paper_phases_speedup": _speedup(cells, cell, "paper_us"),
            "steps_per_load": cell.median("steps_per_load"),
            "staleness_steps": cell.median("staleness_steps"),
            "message_bytes": cell.median("message_bytes"),
        }
        for cell in cells
        for phase, name in actor_time.PHASE_NAMES.items()
    ]


def _panels(setting: str, cells: Sequence[Cell]) -> dict[str, list[Bar]]:
    """Returns a panel for each value of the varied setting, with a bar for each precision."""
    panels: dict[str, list[Bar]] = {}
    for cell in cells:
        label = reporting.precision_name(cell.precision)
        panels.setdefault(f"{setting} {cell.value}", []).append(
            Bar(label, cell.phases_us, cell.step_us)
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
                ha="center", fontsize=8,
            )
        ax.set_xticks(places, [bar.label for bar in bars])
        ax.tick_params(axis="x", length=0)
        ax.set_xlim(-0.6, len(bars) - 0.4)
        ax.set_title(name, fontsize=10)
        ax.margins(y=0.08)
    axes[0].set_ylabel("One actor's time per environment step (µs)")
    figure.suptitle(title, fontsize=11)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return plotting.save_figure(figure, path)
