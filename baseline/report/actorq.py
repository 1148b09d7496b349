"""The report's sections on ActorQ: experiments, benchmarks, energy."""

from collections.abc import Sequence
import os
import statistics

from actorQ.experiments import plans
from baseline.report import blocks
from baseline.report import claims as claims_lib
from baseline.report import experiments
from baseline.report import headings
from baseline.report import plots
from baseline.report import result_files
from baseline.report import sections as sections_lib
from baseline.report.sections import SUBJECTS
from baseline.report.sections import Section
from baseline.report.sections import Subject

_BY_SEED = "final_reward_by_seed"  # Column of a sweep's table.
_VARIATIONS = "variations"  # The section on the main question with other settings.
_FOLDED = ("benchmarks",)  # Folders whose tables are hidden until a reader opens them.
_REPORT = "report"  # Folder of a published experiment that has tables and plots.


def sections(results: str, rows: Sequence[experiments.Compared]) -> list[Section]:
    """Returns the sections on ActorQ but energy.

    Args:
      results: The folder of ActorQ's results.
      rows: The comparisons of all experiments.

    Raises:
      errors.UserError: A file is damaged.
    """
    table = experiments.time_table(experiments.variations(rows))
    before = {_VARIATIONS: [table] if table.rows else []}
    found = [
        _section(
            subject, [os.path.join(results, name) for name in subject.folders],
            before.get(subject.anchor, ()),
        )
        for subject in SUBJECTS.values() if subject.folders
    ]
    named = {name for subject in SUBJECTS.values() for name in subject.folders}
    others = _section(
        SUBJECTS["others"],
        [path for path in result_files.folders(results) if os.path.basename(path) not in named],
    )
    return [*found, others] if others.blocks else found


def energy(results: str, rows: Sequence[experiments.Compared]) -> Section:
    """Returns the section with the table of energy and CO2 to a reward.

    Args:
      results: The folder of ActorQ's results.
      rows: The comparisons of all experiments.

    Raises:
      errors.UserError: A file is damaged.
    """
    names = dict.fromkeys(row.experiment for row in rows if row.grams is not None)
    folders = [os.path.join(results, name) for name in names]
    content: list[blocks.Block] = []
    judged = experiments.energy_table(experiments.main(rows))
    if judged.rows:
        content.append(judged)
    others = experiments.energy_table(experiments.variations(rows))
    if others.rows:
        content += [blocks.Heading("With other settings", 3), others]
    return sections_lib.section(SUBJECTS["energy"], folders, content)


def claims(results: str, rows: Sequence[experiments.Compared]) -> list[claims_lib.Claim]:
    """Returns the paper's claims on ActorQ but energy, beside ours.

    Args:
      results: The folder of ActorQ's results.
      rows: The comparisons of all experiments.

    Raises:
      errors.UserError: A file is damaged.
    """
    judged = experiments.main(rows)
    found = [
        claim
        for row in judged
        for claim in claims_lib.time_to_reward(row.task, row.target, row.seconds, row.seeds)
    ]
    found += claims_lib.unmeasured(
        [row.task for row in judged], [row.task for row in experiments.variations(rows)]
    )
    found += claims_lib.breakdown(_fp32_phases(results))
    return found + claims_lib.staleness(_final_rewards(results))


def _section(
    subject: Subject, folders: Sequence[str], before: Sequence[blocks.Block] = ()
) -> Section:
    content = [
        block for folder in folders for block in _folder(folder, alone=len(subject.folders) == 1)
    ]
    return sections_lib.section(subject, folders, [*before, *content])


def _folder(folder: str, alone: bool) -> list[blocks.Block]:
    """Returns tables and plots of a folder of results, or of its report, and of inner folders.

    Args:
      folder: The folder.
      alone: Whether the section has no other folder: the section's heading is the folder's.
    """
    report = os.path.join(folder, _REPORT)
    where = report if os.path.isdir(report) else folder
    name = os.path.basename(folder)
    content = _part(where, name)
    if alone and content:
        content = content[1:]
    for below in result_files.folders(folder):
        inner = os.path.basename(below)
        if inner not in (_REPORT, plans.RUNS_FOLDER):
            content += _part(below, name, inner)
    return content


def _part(where: str, name: str, *inner: str) -> list[blocks.Block]:
    """Returns tables and plots of one folder below their heading; [] if it has none.

    Args:
      where: The folder that has the files.
      name: Name of the folder of results.
      *inner: Name of an inner folder.
    """
    paths = result_files.files(where, "md")
    found: list[blocks.Block] = []
    for path in paths:
        stem = os.path.splitext(os.path.basename(path))[0]
        title = headings.known(name, stem) or result_files.titled(path)
        text = sections_lib.tables([path])
        if name in _FOLDED:
            text = [blocks.Fold(title, text)]
        elif len(paths) > 1 and text and not isinstance(text[0], blocks.Heading):
            text.insert(0, blocks.Heading(title, 4))
        found += text
    if not paths and not inner:
        found_tables = [_csv(path) for path in result_files.files(where, "csv")]
        found += [table for table in found_tables if table.rows]
    words = ": ".join((name, *inner)).replace("_", " ")
    title, found = headings.titled((name, *inner), found, words)
    content = blocks.beside(found, plots.figures(result_files.files(where, "png")))
    return [blocks.Heading(title, 3), *content] if content else []


def _csv(path: str) -> blocks.Table:
    """Returns a CSV file as a table, for results that have no Markdown."""
    rows = result_files.read_csv(path)
    return blocks.Table(list(rows[0]) if rows else [], [list(row.values()) for row in rows])


def _fp32_phases(results: str) -> dict[str, dict[str, float]]:
    """Returns the microseconds of each phase of an fp32 actor's step, for every breakdown."""
    cells: dict[str, dict[str, float]] = {}
    for folder in result_files.folders(results):
        name = os.path.basename(folder)
        path = os.path.join(folder, _REPORT, f"{name}.csv")
        for row in result_files.read_csv(path):
            if row.get("precision") == "fp32" and row.get("phase"):
                cell = cells.setdefault(f"{name} {row.get('task')} {row.get('value')}", {})
                cell[row["phase"]] = result_files.number(row, "us_per_step", path)
    return cells


def _final_rewards(results: str) -> dict[str, dict[str, float]]:
    """Returns the median final reward by update period, for each task and precision.

    A mean would let one seed that forgot its task decide about its period.
    """
    path = os.path.join(results, "staleness", _REPORT, "staleness.csv")
    rewards: dict[str, dict[str, float]] = {}
    for row in result_files.read_csv(path):
        if row.get(_BY_SEED):
            side = rewards.setdefault(f"{row.get('task')} {row.get('precision')}", {})
            each = row[_BY_SEED].split(";")
            seeds = [result_files.number({_BY_SEED: part}, _BY_SEED, path) for part in each]
            side[row.get("value", "")] = statistics.median(seeds)
    return rewards
