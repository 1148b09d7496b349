"""Blocks about experiments (their files, keys, profiles and cost) and about precisions."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import statistics
from typing import Any

import pydantic

from actorQ.core import precisions
from actorQ.experiments import kinds
from actorQ.experiments import loading
from actorQ.experiments import plans
from actorQ.experiments import specification
from docs.generators import tables
from docs.generators.training import reward_runs

_NONE = "–"
_MANY = 4  # So many tasks are named; more are counted.
_TASK = "cartpole_balance"
_COMMON = loading.load_common()

# Type and meaning of every key, by the part of a file that has it.
_LAYER = {
    "settings": ("mapping", "Training flags without `--`, for all tasks."),
    "tasks": ("mapping", "Task to further flags of that task alone."),
}
_EXPERIMENT = {
    "title": ("text", "Title of tables and figures."),
    "kind": ("text", "Kind of the runs: `training`, the only one that is not a peer."),
    "report": ("text", "Report on the results, one of the table below."),
    "precisions": ("list of bits", "Precisions of the actors: of 32, 16, 8, 4, 3."),
    "seeds": ("list of whole numbers", "A run is made for each seed."),
    "settings": _LAYER["settings"],
    "tasks": (
        "mapping",
        "Task (`suite,task`) to the flags of that task alone, perhaps `{}`. It names the tasks of "
        "the experiment.",
    ),
    "peers": ("mapping", "`acme`, `sb3` or `zoo` to the keys below, perhaps `{}`."),
    "vary": ("mapping", "One flag to a list of its values: one more axis."),
    "profiles": ("mapping", "Profile to the keys below: settings for one kind of machine."),
}
_PROFILE = _LAYER | {
    "preset": ("text", "Name of a preset of `common.yaml`, whose settings come first."),
    "vary": ("mapping", "Other values of the flag that the experiment varies."),
}
_PEER = {
    "tasks": ("list of texts", "Tasks of the peer, with or without suite; empty: all."),
    "seeds": ("list of whole numbers", "Seeds of the peer's runs; empty: the experiment's."),
    "settings": ("mapping", "Flags for this peer alone, which it must read."),
}
_COMMON_KEYS = {
    "tasks": ("mapping", "Task to flags, for every experiment that has the task."),
    "presets": ("mapping", "Name to flags, which a profile of an experiment may take."),
    "profiles": ("mapping", "Name to the keys below: a kind of machine."),
}
_MACHINE = _LAYER | {
    "about": ("text", "Purpose of the profile, and reasons of its settings."),
    "gpu_optional": ("true or false", "Whether it suits machines without a GPU, too."),
}


def _experiments() -> list[specification.Experiment]:
    return [loading.load(name, _COMMON) for name in loading.names()]


def experiments() -> str:
    """Returns a row for each experiment that comes with the code."""
    rows = []
    for each in _experiments():
        names = [specification.short_task(task) for task in each.tasks]
        varied = _NONE
        if each.vary:
            varied = f"`{each.vary[0]}`: {', '.join(map(str, each.vary[1]))}"
        peers = ", ".join(kinds.PEERS[peer.kind].library for peer in each.peers)
        rows.append((
            f"[`{each.name}`](../../actorQ/experiments/definitions/{each.name}.yaml)",
            each.title,
            ", ".join(names) if len(names) <= _MANY else f"{len(names)} tasks",
            ", ".join(precisions.NAMES[bits] for bits in each.precisions),
            str(len(each.seeds)),
            varied,
            peers or _NONE,
            str(len(specification.expand(each, _COMMON, "laptop"))),
        ))
    head = ("Experiment", "Measures", "Tasks", "Actors", "Seeds", "Varies", "Peers", "Runs")
    return tables.table(head, rows, 7)


def reports() -> str:
    """Returns the reports, with the setting that each of them shows."""
    rows = {
        each.report: (
            f"`{each.report}`",
            f"`{each.vary[0]}`" if each.vary else "nothing",
        )
        for each in _experiments()
    }
    return tables.table(("`report`", "`vary` must name"), sorted(rows.values()), 2)


def keys(model: type[pydantic.BaseModel], meanings: Mapping[str, tuple[str, str]]) -> str:
    """Returns the keys of a part of a file.

    Args:
        model: Model that checks the part.
        meanings: Type and meaning of each key.

    Raises:
        KeyError: A key has no meaning.
    """
    rows = []
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field.default)
        rows.append((f"`{name}`", meanings[name][0], default, meanings[name][1]))
    return tables.table(("Key", "Value", "If left out", "Meaning"), rows, 4)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if value else "none"


def peers() -> str:
    """Returns the peers, with the facts that a reader of results must know."""
    rows = [
        (
            f"`{name}`",
            peer.library,
            ", ".join(f"{agent} for {ours}" for ours, agent in peer.agents.items()),
            peer.about,
            ", ".join(f"`{setting}`" for setting in peer.not_read),
        )
        for name, peer in kinds.PEERS.items()
    ]
    head = ("`--peers`", "Library", "Agents", "About", "Flags that it does not read")
    return tables.table(head, rows, 5)


def _time_left(name: str, profile: str, chosen: Mapping[str, Any]) -> str:
    runs = specification.expand(loading.load(name, _COMMON), _COMMON, profile, **chosen)
    return plans.time_left(runs, {}).removeprefix("at most ")


_PAIR: Mapping[str, Any] = {
    "seeds": [0], "tasks": [_TASK], "precisions": [32, 8], "peers": None
}


def pair_cost() -> str:
    """Returns how long the comparison of fp32 and int8 takes, as measured and at most."""
    rows = [
        row for row in tables.csv_rows(tables.ACTORQ_RESULTS / "time_to_reward/report/runs.csv")
        if (row["task"], row["kind"], row["seed"]) == (f"dm_control,{_TASK}", "training", "0")
        and row["precision"] in ("fp32", "int8")
    ]
    minutes = sum(float(row["wall_s"]) for row in rows) / 60
    return (
        f"On the processor of our tables the two runs took {minutes:.0f} minutes. They take at "
        f"most {_time_left('time_to_reward', 'laptop', _PAIR)}."
    )


def paper_cost() -> str:
    """Returns how long runs of the profile `paper` may take."""
    one = _time_left("time_to_reward", "paper", _PAIR)
    ours = _time_left("time_to_reward", "paper", {"peers": None})
    everything = _time_left("time_to_reward", "paper", {})
    return tables.table(
        ("Part of `time_to_reward`, profile `paper`", "Takes at most"),
        [
            ("one task, fp32 and int8, one seed, no peers", one),
            ("all tasks, precisions and seeds, no peers", ours),
            ("the same with the peers", everything),
        ],
    )


# Columns of the report's tables that the page explains, by the row that is shown of each task.
_EXAMPLE = (
    (("Task", "Reward", "fp32 s", "int8 s", "int8 speed-up"), (f"dm_control,{_TASK}",)),
    (("Task", "Actors", "Learner steps/s", "Data used"), (f"{_TASK} fp32", f"{_TASK} int8")),
)


def report_example() -> str:
    """Returns some rows and columns of the published report on `time_to_reward`."""
    path = tables.ACTORQ_RESULTS / "time_to_reward/report/time_to_reward.md"
    found = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
        for part in path.read_text(encoding="utf-8").split("\n\n") if part.startswith("|")
    ]
    shown = []
    for lines, (names, wanted) in zip(found, _EXAMPLE, strict=False):
        places = [lines[0].index(name) for name in names]
        rows = [
            [line[place] for place in places]
            for line in lines[2:] if line[0] in wanted or f"{line[0]} {line[1]}" in wanted
        ]
        shown.append(tables.table(names, rows))
    return "\n\n".join(shown)


def quick() -> str:
    """Returns what `actor_loop --quick` prints about precisions, and the same of 3x256."""
    task = "dm_control,cheetah_run"
    original = reward_runs.loop_rates("", task, 2048, "original")[8]
    rows = [("3x2048", "original int8", tables.number(original), "")]
    for width in (2048, 256):
        rates = reward_runs.loop_rates("", task, width)
        rows += [
            (
                f"3x{width}", f"native {precisions.NAMES[bits]}", tables.number(rates[bits]),
                f"{rates[bits] / rates[32]:.2f}",
            )
            for bits in (32, 8)
        ]
    return tables.table(("policy", "actor", "steps/s", "x fp32"), rows, 2)


def inference() -> str:
    """Returns how fast each backend computes at each precision, against its own fp32."""
    measured = tables.read_json(tables.ACTORQ_RESULTS / "benchmarks" / "inference.json")
    sides: Sequence[tuple[str, str]] = [
        ("torch", "fp16"), ("torch", "int8"), ("native", "fp16"), ("native", "int8"),
        ("native", "int4"),
    ]
    rows = []
    for policy, part in measured.items():
        if not (isinstance(part, dict) and "seconds" in part):
            continue
        medians = {name: statistics.median(times) for name, times in part["seconds"].items()}
        rows.append((
            policy,
            *(
                tables.number(medians[f"{backend} fp32"] / medians[f"{backend} {name}"], 2)
                for backend, name in sides
            ),
        ))
    return tables.table(("Policy", *(f"{backend} {name}" for backend, name in sides)), rows)


# The models are private to `loading`, which alone reads files.
BLOCKS: dict[str, Callable[[], str]] = {
    "experiments": experiments,
    "reports": reports,
    "keys_experiment": lambda: keys(loading._ExperimentFile, _EXPERIMENT),
    "keys_profile": lambda: keys(loading._ProfilePart, _PROFILE),
    "keys_peer": lambda: keys(loading._PeerPart, _PEER),
    "keys_common": lambda: keys(loading._CommonFile, _COMMON_KEYS),
    "keys_machine": lambda: keys(loading._ProfileFile, _MACHINE),
    "peers": peers,
    "pair_cost": pair_cost,
    "paper_cost": paper_cost,
    "report_example": report_example,
    "quick": quick,
    "inference": inference,
}
