"""The report on rates against the number of actors: actors' and learner's steps per second.

Beside the measured rates stand those of the model of `cluster.simulation` for as many actors, from
the measured rate of one. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import itertools

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import results as results_lib
from actorQ.experiments import training
from actorQ.experiments.cluster import simulation
from actorQ.experiments.reports import reporting
from actorQ.experiments.reports import sweep

_Groups = Mapping[int, Mapping[float, Sequence[results_lib.Result]]]  # By precision and value.


def write(material: reporting.Material) -> str:
    """Writes table, CSV and figure into the report's folder; returns the table."""
    setting = material.experiment.vary[0] if material.experiment.vary else ""
    text = ""
    rows: list[dict[str, object]] = []
    for task in material.tasks():
        groups = {
            bits: sweep.by_value(material.group(task, bits)) for bits in material.precisions()
        }
        text += f"{task}\n\n{_table(setting, groups)}\n"
        rows += _csv_rows(task, setting, groups)
    name = material.experiment.name
    text += reporting.bullets([*_notes(material), *reporting.notes(material)])
    if rows:
        output.write_csv(material.path(f"{name}.csv"), rows)
        _draw(material, setting, material.path(f"{name}.png"))
    return text


def _mean(found: Sequence[results_lib.Result], name: str) -> float:
    values = reporting.known(getattr(result.measured, name) for result in found)
    return float(np.mean(values)) if values else float("nan")


def _gain(groups: _Groups, bits: int, value: float, base: tuple[int, float] | None) -> float:
    """Returns actor steps/s over those of another cell, NaN if there is none."""
    if base is None or base[1] not in groups.get(base[0], {}):
        return float("nan")
    own, other = reporting.of_shared_seeds(groups[bits][value], groups[base[0]][base[1]])
    return _mean(own, "actor_steps_per_s") / _mean(other, "actor_steps_per_s")


def _table(setting: str, groups: _Groups) -> str:
    header = [
        setting, "Actors", "Seeds", "Actor steps/s", "/ fp32", "/ fewest actors",
        "model", "Learner steps/s", "Data used", "Inference, µs", "Step of an actor, µs",
        "Staleness, steps", "model",
    ]
    lines = []
    for value in sorted({value for found in groups.values() for value in found}):
        for bits, by_value in groups.items():
            if value not in by_value:
                continue
            found = by_value[value]
            measured = [result.measured for result in found]
            used = _mean(found, "data_used")
            model = _model(groups, bits, value)
            phases = [item.phases_us["inference"] for item in measured if item.phases_us]
            lines.append([
                str(value),
                reporting.precision_name(bits),
                str(len(found)),
                reporting.mean_and_deviation([item.actor_steps_per_s for item in measured], 0),
                output.number(_gain(groups, bits, value, (32, value)), 2),
                output.number(_gain(groups, bits, value, (bits, min(by_value))), 2),
                output.number(model.steps_per_s, 0) if model else reporting.NOTHING,
                reporting.mean_and_deviation([item.learner_steps_per_s for item in measured], 2),
                f"{100 * used:.0f} %" if np.isfinite(used) else reporting.NOTHING,
                reporting.mean(phases, 0),
                reporting.mean([item.step_us for item in measured], 0),
                reporting.mean([item.staleness_steps for item in measured]),
                output.number(model.age_s * model.learner_steps_per_s) if model
                else reporting.NOTHING,
            ])
    return output.markdown_table(header, lines)


def _model(
    groups: _Groups, bits: int, value: float
) -> simulation.Outcome | None:
    """Returns the model's rates for a cell, or None if its input is not known.

    The rate of one actor is that of the runs with one, at the same precision. If there are more
    actors than cores besides the learner's, they share these equally. The learner is as fast as the
    fastest of the task, which may have waited for data.
    """
    settings = groups[bits][value][0].settings
    cores = groups[bits][value][0].cores
    alone = _mean(groups[bits].get(1, ()), "actor_steps_per_s")
    rates = [
        _mean(found, "learner_steps_per_s") for row in groups.values() for found in row.values()
    ]
    learner = max((rate for rate in rates if rate > 0), default=0.0)
    ratio = training.as_run(groups[bits][value][0]).config.most_samples_per_insert
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


def _csv_rows(task: str, setting: str, groups: _Groups) -> list[dict[str, object]]:
    return [
        {
            "task": task,
            "setting": setting,
            "value": value,
            "precision": reporting.precision_name(bits),
            "seeds": len(found),
            "actor_steps_per_s": _mean(found, "actor_steps_per_s"),
            "actor_steps_per_s_by_seed": ";".join(
                f"{result.measured.actor_steps_per_s or float('nan'):.1f}" for result in found
            ),
            "speedup_over_fp32": _gain(groups, bits, value, (32, value)),
            "model_actor_steps_per_s": getattr(_model(groups, bits, value), "steps_per_s", ""),
            "learner_steps_per_s": _mean(found, "learner_steps_per_s"),
            "data_used": _mean(found, "data_used"),
            "step_us": _mean(found, "step_us"),
            "staleness_steps": _mean(found, "staleness_steps"),
            "message_bytes": _mean(found, "message_bytes"),
            "cores": found[0].cores,
        }
        for bits, by_value in groups.items()
        for value, found in by_value.items()
    ]


def _draw(material: reporting.Material, setting: str, path: str) -> str:
    """Draws actor steps/s above learner steps/s, against the number of actors."""
    figure, axes = plotting.new_figure(2, 5.6)
    names = ("actor_steps_per_s", "learner_steps_per_s")
    several = len(material.tasks()) > 1
    values = sorted({result.varied for result in material.all_results})
    styles = map(str.__add__, plotting.TASK_MARKERS, plotting.TASK_STYLES)
    for task, style in zip(material.tasks(), itertools.cycle(styles), strict=False):
        for bits in material.precisions():
            groups = sweep.by_value(material.group(task, bits))
            label = f"{reporting.precision_name(bits)} actors" + f", {task}" * several
            for ax, name in zip(axes, names, strict=True):
                means = [_mean(found, name) for found in groups.values()]
                ax.plot(
                    list(groups), means, style, markersize=4,
                    color=plotting.PRECISION_COLOURS[bits], label=label if ax is axes[0] else "_",
                )
                for value, found in groups.items():
                    seeds = reporting.known(getattr(result.measured, name) for result in found)
                    ax.plot(
                        [value] * len(seeds), seeds, ".", alpha=0.4, markersize=4,
                        color=plotting.PRECISION_COLOURS[bits],
                    )
    cores = _cores(material)
    for ax, label in zip(axes, ("Actor steps/s, all actors", "Learner steps/s"), strict=True):
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        if cores and min(values) <= cores[0] - 1 < max(values):
            ax.axvline(cores[0] - 1, color="0.6", linewidth=1, linestyle="--")
    axes[1].set_xticks(values, [str(value) for value in values])
    axes[1].set_xlabel(f"Actors ({setting})" + (f"; {cores[0]} cores" if cores else ""))
    axes[0].set_title(", ".join(material.tasks()), fontsize=11)
    columns = 2 if several else 3  # The names of tasks are long.
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return plotting.save_figure(figure, path)
