"""The report on rates against the number of actors: actors' and learner's steps per second.

Beside the measured rates stand those of the model of `cluster.simulation` for as many actors, from
the measured rate of one. Imports no framework but matplotlib.
"""

from collections.abc import Sequence

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import training
from actorQ.experiments.cluster import simulation
from actorQ.experiments.reports import reporting

# Further columns of the CSV file.
_MEANS = ("learner_steps_per_s", "data_used", "step_us", "staleness_steps", "message_bytes")
_Cells = Sequence[reporting.Cell]  # Of one task.


def write(material: reporting.Material) -> str:
    """Writes table, CSV and figure into the report's folder; returns the table."""
    text = ""
    rows: list[dict[str, object]] = []
    for task in material.tasks():
        cells = material.cells(task)
        text += f"{task}\n\n{_table(material.setting, cells)}\n"
        rows += _csv_rows(task, material.setting, cells)
    name = material.experiment.name
    text += reporting.bullets([*_notes(material), *reporting.notes(material)])
    if rows:
        output.write_csv(material.path(f"{name}.csv"), rows)
        _draw(material, material.path(f"{name}.png"))
    return text


def _gain(cells: _Cells, cell: reporting.Cell, precision: int, value: float) -> float:
    """Returns actor steps/s over those of another cell, NaN if there is none."""
    both = reporting.with_seeds_of(cells, cell, precision, value)
    if both is None:
        return float("nan")
    return both[0].mean("actor_steps_per_s") / both[1].mean("actor_steps_per_s")


def _table(setting: str, cells: _Cells) -> str:
    header = [
        setting, "Actors", "Seeds", "Actor steps/s", "/ fp32", "/ fewest actors",
        "model", "Learner steps/s", "Data used", "Inference, µs", "Step of an actor, µs",
        "Staleness, steps", "model",
    ]
    lines = []
    for cell in sorted(cells, key=lambda cell: cell.value):
        used = cell.mean("data_used")
        model = _model(cells, cell)
        fewest = min(other.value for other in cells if other.precision == cell.precision)
        phases = cell.phases_us("inference")
        lines.append([
            str(cell.value),
            cell.name,
            str(len(cell.results)),
            reporting.mean_and_deviation(cell.by_seed("actor_steps_per_s"), 0),
            output.number(_gain(cells, cell, 32, cell.value), 2),
            output.number(_gain(cells, cell, cell.precision, fewest), 2),
            output.number(model.steps_per_s, 0) if model else reporting.NOTHING,
            reporting.mean_and_deviation(cell.by_seed("learner_steps_per_s"), 2),
            f"{100 * used:.0f} %" if np.isfinite(used) else reporting.NOTHING,
            reporting.mean(phases, 0),
            cell.text("step_us", 0),
            cell.text("staleness_steps"),
            output.number(model.age_s * model.learner_steps_per_s) if model
            else reporting.NOTHING,
        ])
    return output.markdown_table(header, lines)


def _model(cells: _Cells, cell: reporting.Cell) -> simulation.Outcome | None:
    """Returns the model's rates for a cell, or None if its input is not known.

    The rate of one actor is that of the runs with one, at the same precision. If there are more
    actors than cores besides the learner's, they share these equally. The learner is as fast as the
    fastest of the task, which may have waited for data.
    """
    first = cell.results[0]
    settings, cores = first.settings, first.cores
    alone = next(
        (other.mean("actor_steps_per_s") for other in cells
         if (other.precision, other.value) == (cell.precision, 1)), 0.0,
    )
    rates = [other.mean("learner_steps_per_s") for other in cells]
    learner = max((rate for rate in rates if rate > 0), default=0.0)
    ratio = training.as_run(first).config.most_samples_per_insert
    if not cores or not alone > 0 or not learner or not ratio:
        return None
    actors = settings["n_actors"]
    return simulation.simulate(
        simulation.Cluster(
            actors=actors,
            steps_per_s=alone * min(1.0, max(cores - 1, 1) / actors),
            message_bytes=0.0,
            insert_bytes=0.0,
            learner_steps_per_s=learner,
            batch_size=settings["batch_size"],
            samples_per_insert=ratio,
            update_period=settings["actor_update_period"],
            push_period_s=settings["push_period_s"],
            blocking=False,
        )
    )


def _cores(material: reporting.Material) -> list[int]:
    """Returns the numbers of cores that runs had, fewest first."""
    counts = {result.cores for result in material.all_results}
    return sorted(count for count in counts if count)


def _notes(material: reporting.Material) -> list[str]:
    cores = _cores(material)
    lines = []
    if cores:
        own = max(cores[0] - 1, 0)
        least = " or ".join(map(str, cores))
        lines.append(
            f"The machine has {least} cores, one of them for the learner with its server and the "
            f"broadcaster: beyond {own} actor{'s' if own != 1 else ''}, actors share cores, and "
            "more of them cannot show what more machines would give."
        )
    lines.append(
        "Steps count while the learner learned, of all actors together; mean ± standard deviation "
        "over the seeds, ratios for the seeds that both sides have. Data used is the part of the "
        "samples that the actors' inserts allow which the learner took: near 100 % the actors are "
        "the bottleneck, below it the learner is."
    )
    lines.append(
        "The model is the simulation of `actorQ.experiments.cluster` without a network. It starts "
        "from the measured rate of one actor and the fastest learner here; actors share the cores "
        "besides the learner's equally. With one actor its steps/s are the measured ones by "
        "construction. It has no spacing of pushes by --push_share, and counts staleness from "
        "the publication."
    )
    return lines


def _csv_rows(task: str, setting: str, cells: _Cells) -> list[dict[str, object]]:
    return [
        {
            "task": task,
            "setting": setting,
            "value": cell.value,
            "precision": cell.name,
            "seeds": len(cell.results),
            "actor_steps_per_s": cell.mean("actor_steps_per_s"),
            "actor_steps_per_s_by_seed": ";".join(
                f"{result.measured.actor_steps_per_s or float('nan'):.1f}"
                for result in cell.results
            ),
            "speedup_over_fp32": _gain(cells, cell, 32, cell.value),
            "model_actor_steps_per_s": getattr(_model(cells, cell), "steps_per_s", ""),
            **{name: cell.mean(name) for name in _MEANS},
            "cores": cell.results[0].cores,
        }
        for cell in cells
    ]


def _draw(material: reporting.Material, path: str) -> str:
    """Draws actor steps/s above learner steps/s, against the number of actors."""
    figure, axes = plotting.new_figure(2, 5.6)
    values = sorted({result.varied for result in material.all_results})
    reporting.draw_means(
        material, axes, ("actor_steps_per_s", "learner_steps_per_s"), lambda result: result.varied,
        {value: value for value in values},
    )
    cores = _cores(material)
    for ax, label in zip(axes, ("Actor steps/s, all actors", "Learner steps/s"), strict=True):
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        if cores and min(values) <= cores[0] - 1 < max(values):
            ax.axvline(cores[0] - 1, color="0.6", linewidth=1, linestyle="--")
    axes[1].set_xticks(values, [str(value) for value in values])
    axes[1].set_xlabel(f"Actors ({material.setting})" + (f"; {cores[0]} cores" if cores else ""))
    axes[0].set_title(", ".join(material.tasks()), fontsize=plotting.TITLE)
    columns = 2 if len(material.tasks()) > 1 else 4  # The names of tasks are long.
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=plotting.SMALL)
    return plotting.save_figure(figure, path)
