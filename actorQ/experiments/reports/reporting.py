"""The input of all reports of experiments, and the notes that each of them must have.

Imports no framework but matplotlib.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math
import os
from typing import Any

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import precisions
from actorQ.core import provenance
from actorQ.experiments import kinds
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.experiments.run_logs import curves

NOTHING = "–"
_NAMED = 4  # Names of runs that were not made yet; further ones are counted.

_PEER_COLOURS = {kinds.ACME: plotting.ORANGE, kinds.SB3: "black", kinds.ZOO: plotting.INDIGO}


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of a comparison: our runs of one precision, or those of a peer."""

    kind: str
    precision: int

    @property
    def is_peer(self) -> bool:
        """Says whether it is another project's agent."""
        return self.kind in kinds.PEERS

    @property
    def short_name(self) -> str:
        """'int8', or 'Acme'."""
        return kinds.PEERS[self.kind].side_name("") if self.is_peer else (
            precision_name(self.precision)
        )

    def name(self, algorithm: str) -> str:
        """Returns 'int8', or 'Acme D4PG, fp32'.

        Args:
          algorithm: Our algorithm on the task in question.
        """
        name = precision_name(self.precision)
        if not self.is_peer:
            return name
        return f"{kinds.PEERS[self.kind].side_name(algorithm)}, {name}"

    @property
    def colour(self) -> str:
        """Colour of its curves."""
        return _PEER_COLOURS[self.kind] if self.is_peer else (
            plotting.precision_colour(self.precision)
        )


@dataclasses.dataclass(frozen=True)
class Cell:
    """All seeds of one task, precision and value of the setting that varies."""

    precision: int
    value: Any
    results: Sequence[results_lib.Result]

    @property
    def name(self) -> str:
        """Name of the precision."""
        return precision_name(self.precision)

    def by_seed(self, quantity: str) -> list[float]:
        """Returns a quantity of `results.Measured`, without the seeds that lack it."""
        return known(getattr(result.measured, quantity) for result in self.results)

    def mean(self, quantity: str) -> float:
        """Returns the mean of a quantity over the seeds, NaN if none has it."""
        return float(np.mean(self.by_seed(quantity) or [math.nan]))

    def median(self, quantity: str) -> float:
        """Returns the median of a quantity over the seeds, NaN if none has it."""
        return float(np.median(self.by_seed(quantity) or [math.nan]))

    def phases_us(self, phase: str) -> list[float]:
        """Returns the microseconds per step in a phase, without the seeds that lack them."""
        phases = (result.measured.phases_us for result in self.results)
        return [by_phase[phase] for by_phase in phases if by_phase is not None]

    def text(self, quantity: str, digits: int = 1) -> str:
        """Returns the mean as a text."""
        return mean(self.by_seed(quantity), digits)


@dataclasses.dataclass(frozen=True)
class Material:
    """The input of a report."""

    experiment: specification.Experiment
    profile: str
    runs: Sequence[specification.Run]  # All runs that belong to it.
    results: Mapping[str, results_lib.Result]  # By name of the run; some may be missing.
    failures: Mapping[str, str]  # By name of the run.
    folder: str  # Folder of the report's files.
    gpu_optional: bool = False  # Whether the profile suits machines without a GPU, too.

    def path(self, name: str) -> str:
        """Returns the path of a file of the report."""
        return os.path.join(self.folder, name)

    @property
    def setting(self) -> str:
        """The setting that varies, or ""."""
        return self.experiment.vary[0] if self.experiment.vary else ""

    @property
    def all_results(self) -> list[results_lib.Result]:
        """The results in the order of the runs."""
        return [self.results[run.name] for run in self.runs if run.name in self.results]

    def tasks(self) -> list[str]:
        """Returns the tasks that have a result, in the experiment's order."""
        return list(dict.fromkeys(result.task for result in self.all_results))

    def precisions(self) -> list[int]:
        """Returns the precisions that have a result of ours, widest first."""
        mine = {r.precision for r in self.all_results if r.kind == self.experiment.kind}
        return sorted(mine, reverse=True)

    def sides(self) -> list[Side]:
        """Returns the sides that have a result: our precisions, widest first, then kinds."""
        kinds_there = {result.kind for result in self.all_results}
        ours = [Side(self.experiment.kind, bits) for bits in self.precisions()]
        return ours + [Side(kind, kinds.PRECISION) for kind in kinds.PEERS if kind in kinds_there]

    def group(self, task: str, precision: int) -> list[results_lib.Result]:
        """Returns our results of a task and precision, by seed."""
        return self.of_side(task, Side(self.experiment.kind, precision))

    def cells(
        self,
        task: str,
        value_of: Callable[[results_lib.Result], Any] = lambda result: result.varied,
    ) -> list[Cell]:
        """Returns our results of a task by precision, widest first, and by value."""
        groups: dict[tuple[int, Any], list[results_lib.Result]] = {}
        for bits in self.precisions():
            for result in sorted(self.group(task, bits), key=value_of):
                groups.setdefault((bits, value_of(result)), []).append(result)
        return [Cell(bits, value, found) for (bits, value), found in groups.items()]

    def of_side(self, task: str, side: Side) -> list[results_lib.Result]:
        """Returns the results of a task and side, by seed."""
        wanted = (task, side.kind, side.precision)
        return sorted(
            (r for r in self.all_results if (r.task, r.kind, r.precision) == wanted),
            key=lambda result: result.seed,
        )


def notes(material: Material) -> list[str]:
    """Returns notes on missing runs, differing settings, machines and the origin of a report."""
    lines = []
    missing = [run.name for run in material.runs if run.name not in material.results]
    unmade = [name for name in missing if name not in material.failures]
    lines += [
        f"**No result**: {name}: {material.failures[name]}"
        for name in missing if name in material.failures
    ]
    lines += [
        f"**{run.name} failed when it was made last**; the result shown is an older one: "
        f"{material.failures[run.name]}"
        for run in material.runs
        if run.name in material.results and run.name in material.failures
    ]
    if unmade:
        more = f" and {len(unmade) - _NAMED} more" if len(unmade) > _NAMED else ""
        lines.append(f"**No result**: {', '.join(unmade[:_NAMED])}{more}: not made yet")
    lines += [
        f"**{r.name}: training diverged**; it has no last policy, and no final reward."
        for r in material.all_results if r.measured.outcome == results_lib.DIVERGED
    ]
    for task in material.tasks():
        lines += _of_several_machines(material, task)
        mine = [r for r in material.all_results if r.task == task and r.kind == kinds.TRAINING]
        if not mine:
            continue
        differing = curves.differing_settings(
            [training.as_run(r) for r in mine], [material.setting]
        )
        if differing:
            lines.append(
                f"**Warning**: runs of {task} differ in more than they should: "
                f"{'; '.join(differing)}."
            )
    together = [r.name for r in material.all_results if r.parallel > 1]
    if together:
        lines.append(
            f"**Warning**: {len(together)} runs had others beside them on the machine: their times "
            "depend on that."
        )
    if material.all_results:
        commits = list(dict.fromkeys(provenance.short(r.git_commit) for r in material.all_results))
        machines = list(
            dict.fromkeys(_machine(result) for result in material.all_results)
        )
        lines += _elsewhere(material)
        if beside := [r.name for r in material.all_results if r.measured.evaluation_process]:
            every = len(beside) == len(material.all_results)
            lines.append(
                "Evaluation had a process beside the learner"
                + (". " if every else f" in {', '.join(beside)}. ")
                + "Its seconds are not in the learner's time, and an episode counts from its end."
            )
        lines.append(
            f"Profile {material.profile}; {'; '.join(machines)}{_devices(material)}; commit "
            f"{', '.join(commits)}; command, settings and curve of every run: its result.json; all "
            "figures: runs.csv."
        )
    return lines


def peer_notes(sides: Iterable[Side]) -> list[str]:
    """Returns a line on each peer among these sides: its agents, and how they were run."""
    lines = []
    for side in sides:
        if side.is_peer:
            peer = kinds.PEERS[side.kind]
            settings = "" if peer.is_tuned else "with our settings where it has such a thing, "
            lines.append(
                f"{side.short_name}: {peer.about} One process, all cores, in our environments, "
                f"{settings}and evaluated by the same rule, with the acting of its own library."
            )
    return lines


def of_shared_seeds(
    one: Sequence[results_lib.Result], other: Sequence[results_lib.Result]
) -> tuple[list[results_lib.Result], list[results_lib.Result]]:
    """Returns the results of the seeds that both sides have, for a ratio of the two."""
    seeds = {result.seed for result in one} & {result.seed for result in other}
    return (
        [result for result in one if result.seed in seeds],
        [result for result in other if result.seed in seeds],
    )


def with_seeds_of(
    cells: Sequence[Cell], cell: Cell, precision: int, value: Any
) -> tuple[Cell, Cell] | None:
    """Returns a cell and another one, with the seeds of both; None: there are none.

    Args:
      cells: Cells of one task.
      cell: The first cell.
      precision: Precision of the other one, bits.
      value: Value of the other one's setting.
    """
    for other in cells:
        both = of_shared_seeds(cell.results, other.results)
        if (other.precision, other.value) == (precision, value) and all(both):
            return Cell(cell.precision, cell.value, both[0]), Cell(precision, value, both[1])
    return None


def _machine(result: results_lib.Result) -> str:
    facts = result.machine
    parts = [facts.get("processor"), f"{facts.get('usable_cores')} cores", facts.get("gpu_models")]
    return ", ".join(str(part) for part in parts if part)


def _of_several_machines(material: Material, task: str) -> list[str]:
    """Returns a warning if peers ran on another machine than we did."""
    by_machine: dict[str, list[str]] = {}
    for side in material.sides():
        for result in material.of_side(task, side):
            names = by_machine.setdefault(_machine(result), [])
            if side.short_name not in names:
                names.append(side.short_name)
    with_peer = any(side.is_peer and material.of_side(task, side) for side in material.sides())
    if len(by_machine) < 2 or not with_peer:
        return []
    where = "; ".join(f"{' and '.join(names)}: {name}" for name, names in by_machine.items())
    return [f"**Warning**: runs of {task} had several machines ({where})."]


def _devices(material: Material) -> str:
    """Returns '; learner on CPU', or the devices of each side if they differ."""
    by_side: dict[str, list[str]] = {}
    for side in material.sides():
        found = [d for r in _of_side(material, side) if (d := r.measured.learner_device)]
        if found:
            by_side[side.short_name] = list(dict.fromkeys(found))
    devices = list(dict.fromkeys(device for found in by_side.values() for device in found))
    if len(devices) < 2:
        return f"; learner on {devices[0]}" if devices else ""
    return "; learners: " + ", ".join(
        f"{name} on {' and '.join(found)}" for name, found in by_side.items()
    )


def _of_side(material: Material, side: Side) -> list[results_lib.Result]:
    return [r for task in material.tasks() for r in material.of_side(task, side)]


def _elsewhere(material: Material) -> list[str]:
    """Returns warnings of runs on a machine that their settings are not meant for."""
    no_gpu = [
        result.name for result in material.all_results
        if result.settings.get("learner_device_placement") == "GPU"
        and result.measured.learner_device not in (None, "GPU")
    ]
    if material.gpu_optional and not any(
        result.measured.learner_device == "GPU" or result.machine.get("gpus")
        for result in material.all_results
    ):
        no_gpu = []  # The machine has none, and the profile does not need one.
    crowded = [  # A report on the number of actors has notes of its own on cores.
        result.name for result in material.all_results
        if material.setting != "n_actors" and (result.cores or math.inf)
        < kinds.get(result.kind).cores(result.settings)
    ]
    return [
        f"**Warning**: {what}: {', '.join(names)}."
        for what, names in (
            ("learners that were to be on a GPU and were not", no_gpu),
            ("runs with fewer cores than processes that want one, so that times are not those of "
             "the profile", crowded),
        )
        if names
    ]


def known(values: Iterable[float | None]) -> list[float]:
    """Returns the values that are not None."""
    return [value for value in values if value is not None]


def seeds(count: int) -> str:
    """Returns '1 seed' or '3 seeds'."""
    return f"{count} seed{'' if count == 1 else 's'}"


def below_fp32(
    task: str, fp32: Sequence[float], others: Mapping[str, Sequence[float]]
) -> list[str]:
    """Returns a line for each mean that is below fp32's mean less its standard deviation.

    Args:
      task: Task of the rewards.
      fp32: Final rewards of fp32; fewer than two give no line.
      others: Final rewards of others, by name.
    """
    if len(fp32) < 2:
        return []
    least = float(np.mean(fp32) - np.std(fp32, ddof=1))
    return [
        f"**{task}: final reward of {name} ({np.mean(rewards):.2f}; {seeds(len(rewards))}) is "
        f"below fp32's mean less its standard deviation ({least:.2f}; {seeds(len(fp32))}).**"
        for name, rewards in others.items()
        if rewards and np.mean(rewards) < least
    ]


def draw_means(
    material: Material,
    axes: Sequence[Any],
    quantities: Sequence[str],
    value_of: Callable[[results_lib.Result], Any],
    places: Mapping[Any, float],
) -> None:
    """Draws means over the seeds against a setting, and a faint point for each seed.

    Args:
      material: Input of the report.
      axes: Panels.
      quantities: Quantity of `results.Measured` in each panel.
      value_of: A result's value of the setting.
      places: Where the values stand on the x axis.
    """
    styles = itertools.cycle(map(str.__add__, plotting.TASK_MARKERS, plotting.TASK_STYLES))
    for task, style in zip(material.tasks(), styles, strict=False):
        of_task = f", {task}" * (len(material.tasks()) > 1)
        for bits in material.precisions():
            colour = plotting.precision_colour(bits)
            for ax, quantity in zip(axes, quantities, strict=True):
                cells = [
                    cell for cell in material.cells(task, value_of)
                    if cell.precision == bits and cell.by_seed(quantity)
                ]
                ax.plot(
                    [places[cell.value] for cell in cells],
                    [cell.mean(quantity) for cell in cells], style, markersize=5, color=colour,
                    label=f"{precision_name(bits)} actors{of_task}" if ax is axes[0] else "_",
                )
                for cell in cells:
                    seeds = cell.by_seed(quantity)
                    ax.plot(
                        [places[cell.value]] * len(seeds), seeds, ".", alpha=0.4, markersize=5,
                        color=colour,
                    )


def bullets(lines: Sequence[str]) -> str:
    """Returns lines as a Markdown list."""
    return "".join(f"- {line}\n" for line in lines)


def mean_and_deviation(values: Sequence[float | None], digits: int = 1) -> str:
    """Returns 'mean ± standard deviation', or a single value alone, leaving out None."""
    found = known(values)
    if not found:
        return NOTHING
    text = output.number(float(np.mean(found)), digits)
    return f"{text} ± {np.std(found, ddof=1):.{digits}f}" if len(found) > 1 else text


def of_all(values: Sequence[float], count: int) -> str:
    """Returns mean and deviation, and the number of values if it is not `count`."""
    text = mean_and_deviation(values)
    return text if len(values) in (0, count) else f"{text} ({len(values)} of {count})"


def mean(values: Sequence[float | None], digits: int = 1) -> str:
    """Returns the mean as a text, leaving out None."""
    return mean_and_deviation(values, digits).partition(" ")[0]


def precision_name(bits: int) -> str:
    """Returns 'fp32', 'fp16', 'int8', 'int4' or 'int3'."""
    return precisions.NAMES[bits]
