"""The report's sections on ActorQ: experiments, benchmarks, energy."""

from collections.abc import Sequence
import os
import statistics

from actorQ.experiments import plans
from baseline.report import claims as claims_lib
from baseline.report import experiments
from baseline.report import markup
from baseline.report import origins
from baseline.report import sections as parts
from baseline.report.sections import Section
from baseline.report.sections import Subject

_BY_SEED = "final_reward_by_seed"  # Column of a sweep's table.
_REPORT = "report"  # Folder of a published experiment that has tables and plots.
_EXPERIMENT = "actorQ/results/reproduce.sh {}"
BENCHMARKS = "benchmarks"
_BENCHMARKS = Subject(
    BENCHMARKS, "Benchmarks of each part",
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
SUBJECTS: tuple[tuple[Subject, tuple[str, ...]], ...] = (
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
      results: folder of ActorQ's results.

    Raises:
      errors.UserError: a file is damaged.
    """
    named = {name for _, names in SUBJECTS for name in names}
    others = [
        folder for folder in _folders(results)
        if os.path.isdir(folder) and os.path.basename(folder) not in {*named, BENCHMARKS}
    ]
    found = [_section(subject, results, names) for subject, names in SUBJECTS]
    for subject, folders in (
        (_BENCHMARKS, [os.path.join(results, BENCHMARKS)]), (_OTHERS, others),
    ):
        body = "".join(_folder(folder, subject is _BENCHMARKS) for folder in folders)
        if body or subject is not _OTHERS:
            found.append(parts.section(subject, folders, body))
    return found


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
    return parts.section(subject, folders, experiments.energy_table(rows))


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


def _section(subject: Subject, results: str, names: Sequence[str]) -> Section:
    folders = [os.path.join(results, name) for name in names]
    return parts.section(subject, folders, "".join(_folder(folder) for folder in folders))


def _folder(folder: str, folded: bool = False) -> str:
    """Returns tables and plots of a folder of results, or of the report in it, and of those below.

    Args:
      folder: of results.
      folded: whether each table is hidden until someone asks for it.
    """
    where = os.path.join(folder, _REPORT)
    where = where if os.path.isdir(where) else folder
    name = _words(folder)
    text = _content(where, folded)
    if not parts.files(where, "md"):
        text += "".join(_csv(path) for path in parts.files(where, "csv"))
    if text and not folded and where == folder:
        text = markup.heading(name, 3) + text
    for below in _folders(folder):
        if os.path.basename(below) not in (_REPORT, plans.RUNS_FOLDER):
            if found := _content(below, folded):
                text += markup.heading(f"{name}: {_words(below)}", 3) + found
    return text


def _content(folder: str, folded: bool) -> str:
    paths = parts.files(folder, "md")
    if folded:
        text = "".join(
            markup.fold(parts.titled(path), parts.tables([path])) for path in paths
        )
    else:
        text = parts.tables(paths)
    return text + parts.plots(parts.files(folder, "png"))


def _words(folder: str) -> str:
    return os.path.basename(folder).replace("_", " ")


def _csv(path: str) -> str:
    """Returns a CSV file as a table, for results that have no Markdown."""
    rows = origins.read_csv(path)
    return markup.table(list(rows[0]), [list(row.values()) for row in rows]) if rows else ""


def _folders(results: str) -> list[str]:
    names = sorted(os.listdir(results)) if os.path.isdir(results) else ()
    return [os.path.join(results, name) for name in names]


def _fp32_phases(results: str) -> dict[str, dict[str, float]]:
    """Returns microseconds a step by phase, for fp32 actors, of every breakdown there is."""
    cells: dict[str, dict[str, float]] = {}
    for folder in _folders(results):
        name = os.path.basename(folder)
        path = os.path.join(folder, _REPORT, f"{name}.csv")
        for row in origins.read_csv(path) if os.path.isfile(path) else ():
            if row.get("precision") == "fp32" and row.get("phase"):
                cell = cells.setdefault(f"{name} {row.get('task')} {row.get('value')}", {})
                cell[row["phase"]] = origins.number(row, "us_per_step", path)
    return cells


def _final_rewards(results: str) -> dict[str, dict[str, float]]:
    """Returns final rewards by update period, by task and precision: medians of the seeds.

    Medians, since one seed that forgot what it had learned says nothing about its period.
    """
    path = os.path.join(results, "staleness", _REPORT, "staleness.csv")
    rewards: dict[str, dict[str, float]] = {}
    for row in origins.read_csv(path) if os.path.isfile(path) else ():
        if row.get(_BY_SEED):
            side = rewards.setdefault(f"{row.get('task')} {row.get('precision')}", {})
            each = row[_BY_SEED].split(";")
            seeds = [origins.number({_BY_SEED: part}, _BY_SEED, path) for part in each]
            side[row.get("value", "")] = statistics.median(seeds)
    return rewards
