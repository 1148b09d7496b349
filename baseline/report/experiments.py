"""Compares fp32 and int8 actors by the published results (result.json) of ActorQ's runs.

`actorQ.experiments.reports.reaching` defines medians and censored seeds. Imports no framework but
matplotlib.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import glob
import os
from typing import NamedTuple

from actorQ.experiments import kinds
from actorQ.experiments import plans
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import times
from baseline.report import blocks

MAIN = "time_to_reward"  # The experiment of the headline figures.


class Compared(NamedTuple):
    """fp32 and int8 actors on one task of one experiment.

    Attributes:
      experiment: The experiment's name.
      setting: What tells the experiment's comparisons of one task apart; "" where there is one.
      task: 'suite,name'.
      target: Return to reach.
      seconds: Time to the reward, fp32 and int8; a bound where seeds missed it.
      seeds: Number of seeds that both sides have. All fields describe these seeds only.
      reached: 'fp32 3 of 3, int8 2 of 3'.
      watt_hours: Energy to the reward, fp32 and int8; None where it is not known.
      grams: CO2 to the reward, fp32 and int8; None where it is not known.
      cpu_energy: Where the CPUs' energy comes from: 'measured', 'modelled', or both.
      grid: Factors of CO2.
    """

    experiment: str
    setting: str
    task: str
    target: float
    seconds: tuple[times.Reach, times.Reach]
    seeds: int
    reached: str
    watt_hours: tuple[times.Reach, times.Reach] | None
    grams: tuple[times.Reach, times.Reach] | None
    cpu_energy: str = ""
    grid: str = ""

    @property
    def name(self) -> str:
        """The experiment, with what tells its comparisons apart."""
        return ", ".join(part for part in (self.experiment, self.setting) if part)


def compared(actorq_results: str) -> list[Compared]:
    """Returns every task that has results of fp32 and of int8 actors with a reward to reach.

    The tasks of the main experiment come first, those of the others by its name.

    Raises:
      errors.UserError: A result is damaged.
    """
    results = _results(actorq_results)
    return [
        comparison
        for name, found in sorted(results.items(), key=lambda item: (item[0] != MAIN, item[0]))
        for setting, group in _by_setting(found)
        for comparison in _compared(name, setting, group)
    ]


def main(rows: Sequence[Compared]) -> list[Compared]:
    """Returns those comparisons that claims are judged by: one a task of the main experiment.

    The comparison with most seeds counts where a task has several, and the first of equals.
    """
    chosen: dict[str, Compared] = {}
    for row in rows:
        if row.experiment == MAIN:
            before = chosen.get(row.task)
            if before is None or row.seeds > before.seeds:
                chosen[row.task] = row
    return list(chosen.values())


def variations(rows: Sequence[Compared]) -> list[Compared]:
    """Returns all other comparisons: the same question with other settings, without verdicts."""
    judged = main(rows)
    return [row for row in rows if row not in judged]


def time_table(rows: Sequence[Compared]) -> blocks.Table:
    """Returns the times to the reward, with the experiment's name in every row."""
    header = ["Experiment", "Task", "Reward", "Seeds that reached it", "fp32, s", "int8, s",
              "fp32 / int8"]
    return blocks.Table(header, [
        [
            row.name, specification.short_task(row.task), f"{row.target:.2f}", row.reached,
            *(reach.text() for reach in row.seconds),
            times.speedup_between(*row.seconds).text(),
        ]
        for row in rows
    ])


def energy_table(rows: Sequence[Compared]) -> blocks.Table:
    """Returns energy and CO2 to the reward; no rows where no run has logged them."""
    cells = []
    for row in rows:
        if row.watt_hours is None or row.grams is None:
            continue
        cells.append([
            row.name, specification.short_task(row.task), f"{row.target:.2f}", row.reached,
            *(_amount(reach) for reach in row.watt_hours),
            times.speedup_between(*row.watt_hours).text(),
            *(_amount(reach) for reach in row.grams),
            times.speedup_between(*row.grams).text(), row.cpu_energy, row.grid,
        ])
    header = ["Experiment", "Task", "Reward", "Seeds that reached it", "fp32, Wh", "int8, Wh",
              "fp32 / int8", "fp32, g CO2", "int8, g CO2", "fp32 / int8", "CPU energy", "Grid"]
    return blocks.Table(header, cells)


def _results(actorq_results: str) -> dict[str, list[results_lib.Result]]:
    """Returns the results by experiment, without those of smoke runs."""
    found: dict[str, list[results_lib.Result]] = {}
    pattern = os.path.join(
        glob.escape(actorq_results), "*", plans.RUNS_FOLDER, "*", results_lib.RESULT_FILENAME
    )
    for path in sorted(glob.glob(pattern)):
        folder = os.path.dirname(path)
        result = results_lib.read(folder)
        if result is not None and not result.smoke:
            name = os.path.basename(os.path.dirname(os.path.dirname(folder)))
            found.setdefault(name, []).append(result)
    return found


def _by_setting(
    found: Sequence[results_lib.Result],
) -> Iterator[tuple[str, list[results_lib.Result]]]:
    """Yields groups of results that differ in task, precision and seed only, with their names."""
    profiles = {result.profile for result in found}
    values = {repr(result.varied) for result in found}
    for profile, value in dict.fromkeys((r.profile, repr(r.varied)) for r in found):
        parts = [f"profile {profile}"] * (len(profiles) > 1) + [value] * (len(values) > 1)
        group = [r for r in found if (r.profile, repr(r.varied)) == (profile, value)]
        yield ", ".join(parts), group


def _compared(
    name: str, setting: str, found: Sequence[results_lib.Result]
) -> Iterator[Compared]:
    for task, rows in reaching.rows_by_task(_material(name, found)).items():
        before, after = rows.get(reaching.FP32), rows.get(reaching.INT8)
        if before is None or after is None:
            continue
        # A seed of one side only would be luck of that side; the experiment's own tables agree.
        shared = before.by_seed.keys() & after.by_seed.keys()
        if not shared:
            continue
        fp32, int8 = _of_seeds(before, shared), _of_seeds(after, shared)
        counts = [
            f"{side.name} {side.reached} of {len(side.reaches)}" for side in (fp32, int8)
        ]
        yield Compared(
            name, setting, task, reaching.target(rows), (fp32.median, int8.median), len(shared),
            ", ".join(counts), _both(fp32, int8, "kwh_to_target"),
            _both(fp32, int8, "co2_kg_to_target"),
            *results_lib.energy_origins([*fp32.results, *int8.results]),
        )


def _of_seeds(row: reaching.Row, seeds: Collection[int]) -> reaching.Row:
    """Returns a row of some of its seeds."""
    reaches = [reach for seed, reach in row.by_seed.items() if seed in seeds]
    results = [result for result in row.results if result.seed in seeds]
    return dataclasses.replace(
        row, results=results, reaches=reaches, median=reaching.median_reach(reaches)
    )


def _material(name: str, found: Sequence[results_lib.Result]) -> reporting.Material:
    """Returns an experiment as `reaching` takes it; it has results but no definition."""
    experiment = specification.Experiment(
        name, name, kinds.TRAINING, "", (), (), specification.Layer({}, {}), None, {}
    )
    runs = [
        specification.Run(
            r.name, r.kind, r.task, r.precision, r.seed, r.varied, r.settings
        )
        for r in found
    ]
    return reporting.Material(experiment, "", runs, {r.name: r for r in found}, {}, "")


def _both(
    fp32: reaching.Row, int8: reaching.Row, quantity: str
) -> tuple[times.Reach, times.Reach] | None:
    """Returns both medians in Wh or g, of the seeds that note it on both sides.

    Seeds that missed the reward are bounds, as they are for times.
    """
    known = [reaching.amounts(row, quantity) for row in (fp32, int8)]
    shared = known[0].keys() & known[1].keys()
    if not shared:
        return None
    before, after = (
        reaching.median_reach([amounts[seed] for seed in shared]) for amounts in known
    )
    return before, after


def _amount(reach: times.Reach) -> str:
    return ("" if reach.reached else "> ") + f"{reach.seconds:.3g}"
