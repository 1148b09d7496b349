"""The report's sections on ActorQ: experiments, benchmarks, energy."""

from collections.abc import Sequence
import os
import statistics

from actorQ.experiments import plans
from baseline.report import blocks
from baseline.report import claims as claims_lib
from baseline.report import experiments
from baseline.report import plots
from baseline.report import result_files
from baseline.report import sections as sections_lib
from baseline.report.sections import Section
from baseline.report.sections import Subject

_BY_SEED = "final_reward_by_seed"  # Column of a sweep's table.
_REPORT = "report"  # Folder of a published experiment that has tables and plots.
_EXPERIMENT = "actorQ/results/reproduce.sh {}"
_BENCHMARKS = Subject(
    "benchmarks", "Benchmarks of each part",
    "What inference, an actor's loop, the way of the weights and the learner cost, each beside "
    "what it replaces. \"Original\" is a stand-in written after the description of the original.",
    "python -m actorQ.benchmarks.inference --out actorQ/results/benchmarks",
)
_OTHERS = Subject(
    "others", "Other experiments", "Published results that no section above is about.",
    _EXPERIMENT.format("EXPERIMENT"),
)
_BREAKDOWNS = ("breakdown", "breakdown_torch")
# Section, and the folders of results that belong to it.
_SUBJECTS: tuple[tuple[Subject, tuple[str, ...]], ...] = (
    (
        Subject(
            "time_to_reward", "ActorQ: time to reward",
            "One learner in full precision trains while actors play with a quantized copy of its "
            "policy. How long, from the launch, until the paper's reward is held? '>' is a bound: "
            "that seed had not reached it when its time was up.",
            _EXPERIMENT.format("time_to_reward"),
        ),
        ("time_to_reward",),
    ),
    (
        Subject(
            "breakdown", "ActorQ: where an actor's time goes",
            "The phases of one environment step of an actor: computing the action (step, the "
            "inference), fetching newer weights (pull, deserialize, load_state_dict), the "
            "environment itself, and storing what happened (insert).",
            _EXPERIMENT.format("breakdown breakdown_torch"),
        ),
        _BREAKDOWNS,
    ),
    (
        Subject(
            "throughput", "ActorQ: throughput",
            "Steps per second of all actors, and of the learner, for one actor and for more.",
            _EXPERIMENT.format("throughput"),
        ),
        ("throughput", "throughput_4096"),
    ),
    (
        Subject(
            "staleness", "ActorQ: staleness",
            "Actors that fetch weights rarely act with old ones. What does that cost in reward?",
            _EXPERIMENT.format("staleness"),
        ),
        ("staleness",),
    ),
    (
        Subject(
            "final_reward", "ActorQ: final reward",
            "What quantized actors cost in reward where all train equally long.",
            _EXPERIMENT.format("final_reward final_reward_2048"),
        ),
        ("final_reward", "final_reward_2048"),
    ),
    (
        Subject(
            "communication", "ActorQ: quantized communication",
            "The weights on their way to the actors, in fewer and fewer bits.",
            _EXPERIMENT.format("communication"),
        ),
        ("communication",),
    ),
    (
        Subject(
            "learner_precision", "ActorQ: a learner in half precision",
            "What bfloat16 matrix products in the learner cost in reward, and how many more steps "
            "it makes with them.",
            _EXPERIMENT.format("learner_precision"),
        ),
        ("learner_precision",),
    ),
    (
        Subject(
            "cluster", "ActorQ: simulated cluster",
            "How many actors would keep a faster learner busy, over slower networks? A simulation "
            "that is fed with measured rates, not a measurement.",
            "python -m actorQ.experiments.cluster --rates=actorQ/results/throughput "
            "--out=actorQ/results/cluster",
        ),
        ("cluster",),
    ),
)


def sections(results: str) -> list[Section]:
    """Returns the sections on ActorQ but energy.

    Args:
      results: The folder of ActorQ's results.

    Raises:
      errors.UserError: A file is damaged.
    """
    found = [_section(subject, [os.path.join(results, name) for name in names])
             for subject, names in _SUBJECTS]
    found.append(_section(_BENCHMARKS, [os.path.join(results, _BENCHMARKS.anchor)], folded=True))
    named = {_BENCHMARKS.anchor, *(name for _, names in _SUBJECTS for name in names)}
    others = _section(
        _OTHERS,
        [path for path in result_files.folders(results) if os.path.basename(path) not in named],
    )
    return [*found, others] if others.blocks else found


def energy(results: str, rows: Sequence[experiments.Compared]) -> Section:
    """Returns the section with the table of energy and CO2 to a reward.

    Args:
      results: folder of ActorQ's results.
      rows: of all experiments.

    Raises:
      errors.UserError: a file is damaged.
    """
    subject = Subject(
        "energy", "Energy and CO2 to a reward",
        "What all processes of a training together are estimated to have used until the reward "
        "was held. Modelled, not measured: codecarbon derives power from the CPU load of each "
        "process and takes a constant for the machine's memory, which counts once; CO2 is that "
        "energy times the mean of a country's grid (ACTORQ_COUNTRY, else the USA's). Until the "
        "reward: as if power had been the same all the time. Medians of the seeds that both sides "
        "have; '>' is a bound, where a seed that missed the reward decides the median. The paper "
        "reports 1.9 to 3.76 times less CO2 than full-precision training.",
        _EXPERIMENT.format("time_to_reward"),
    )
    names = dict.fromkeys(row.experiment for row in rows if row.grams is not None)
    folders = [os.path.join(results, name) for name in names]
    table = experiments.energy_table(rows)
    return sections_lib.section(subject, folders, [table] if table.rows else [])


def claims(results: str, rows: Sequence[experiments.Compared]) -> list[claims_lib.Claim]:
    """Returns the paper's claims on ActorQ but energy, beside ours.

    Args:
      results: folder of ActorQ's results.
      rows: of all experiments.

    Raises:
      errors.UserError: a file is damaged.
    """
    judged = {
        row.task: claims_lib.time_to_reward(row.task, row.target, row.seconds, row.seeds)
        for row in rows
    }
    found = [claim for claims_of_task in judged.values() for claim in claims_of_task]
    found += claims_lib.unmeasured(judged)
    found += claims_lib.breakdown(_fp32_phases(results))
    return found + claims_lib.staleness(_final_rewards(results))


def _section(subject: Subject, folders: Sequence[str], folded: bool = False) -> Section:
    content = [block for folder in folders for block in _folder(folder, folded)]
    return sections_lib.section(subject, folders, content)


def _folder(folder: str, folded: bool) -> list[blocks.Block]:
    """Returns tables and plots of a folder of results, or of its report, and of inner folders.

    Args:
      folder: The folder of results.
      folded: Whether each table is hidden until a reader opens it.
    """
    report = os.path.join(folder, _REPORT)
    where = report if os.path.isdir(report) else folder
    name = os.path.basename(folder).replace("_", " ")
    content = _content(where, folded)
    if not result_files.files(where, "md"):
        found_tables = [_csv(path) for path in result_files.files(where, "csv")]
        content += [table for table in found_tables if table.rows]
    if content and not folded and where == folder:
        content.insert(0, blocks.Heading(name, 3))
    for below in result_files.folders(folder):
        inner = os.path.basename(below)
        if inner not in (_REPORT, plans.RUNS_FOLDER) and (found := _content(below, folded)):
            content += [blocks.Heading(f"{name}: {inner.replace('_', ' ')}", 3), *found]
    return content


def _content(folder: str, folded: bool) -> list[blocks.Block]:
    if not folded:
        return sections_lib.tables_and_plots(folder)
    folds: list[blocks.Block] = [
        blocks.Fold(result_files.titled(path), sections_lib.tables([path]))
        for path in result_files.files(folder, "md")
    ]
    return [*folds, *plots.figures(result_files.files(folder, "png"))]


def _csv(path: str) -> blocks.Table:
    """Returns a CSV file as a table, for results that have no Markdown."""
    rows = result_files.read_csv(path)
    return blocks.Table(list(rows[0]) if rows else [], [list(row.values()) for row in rows])


def _fp32_phases(results: str) -> dict[str, dict[str, float]]:
    """Returns microseconds a step by phase, for fp32 actors, of every breakdown there is."""
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
    """Returns final rewards by update period, by task and precision: medians of the seeds.

    Medians, since one seed that forgot what it had learned says nothing about its period.
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
