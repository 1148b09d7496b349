"""The campaign of faults, the soak and the fuzzing of messages, for `results/faults.md`."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics
from typing import Any

from docs.generators import prose
from docs.generators import tables

_FOLDER = tables.ACTORQ_RESULTS / "faults"
_CAMPAIGNS = ("", "again/", "again_30/")
_FAULTS = {
    "kill": "killed", "stop": "stopped (SIGSTOP) for up to 12 s",
    "no log folder": "killed while its log folder is away for up to 12 s",
    "no writing": "cannot write a file for up to 12 s",
}
_VICTIMS = ("learner", "broadcaster", "actor")
_WARM_UP = 1 / 3  # The soak leaves out this share of the time, ...
_WINDOW = 1 / 6  # ... and compares the first and the last such share of the rest.


@functools.cache
def _record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = tables.read_json(_FOLDER / f"{name}.json")
    return found


def _rounds(campaign: str = "") -> list[dict[str, Any]]:
    """Returns the rounds of a campaign, with the seconds of learning that each one lost."""
    rounds = _record(f"{campaign}faults")["rounds"]
    rate = statistics.median(one["rate"] for one in rounds)
    return [{**one, "lost_s": one["held_up_s"] - one["steps"] / rate} for one in rounds]


def _of(kind: str, victim: str, campaign: str = "") -> list[dict[str, Any]]:
    return [one for one in _rounds(campaign) if one["group"] == f"{kind} {victim}"]


def survived(campaign: str = "") -> tuple[int, int]:
    """Returns the rounds that a campaign survived, and the rounds that it was to have."""
    record = _record(f"{campaign}faults")
    words = record["command"].split()
    return len(record["rounds"]), int(words[words.index("--rounds") + 1])


def _lost(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds > 0 else "none"


def _faults_table() -> str:
    rows = []
    for kind, text in _FAULTS.items():
        for victim in _VICTIMS:
            found = _of(kind, victim)
            recovery = [one["recovery_s"] for one in found]
            lost = [one["lost_s"] for one in found]
            rows.append([
                f"{victim} {text}", str(len(found)),
                f"{statistics.median(recovery):.1f}", f"{max(recovery):.1f}",
                _lost(statistics.median(lost)), _lost(max(lost)),
            ])
    return tables.table(
        ["Fault", "Rounds", "back to normal after it, s: median", "most",
         "learning lost, s: median", "most"],
        rows,
    )


@prose.wrapped
def _answer() -> str:
    done, planned = survived()
    fuzz = _record("fuzz_messages")
    return (
        f"**Answer.** A live run survived {done} of {planned} rounds of random faults. "
        f"Of {fuzz['inputs']:,} damaged messages, {len(fuzz['failures']) or 'none'} got through "
        "that a process must refuse."
    )


def _again() -> str:
    lines = []
    notes = {
        "": "25 minutes",
        "again/": "with checks of every process's counters, and of rewards in replay",
        "again_30/": "a short one",
    }
    for campaign in _CAMPAIGNS:
        record = _record(f"{campaign}faults")
        done, planned = survived(campaign)
        kills = [
            one["recovery_s"] for victim in _VICTIMS for one in _of("kill", victim, campaign)
        ]
        lines.append([
            f"`{record['git_commit'][:7]}`", str(record["seed"]), f"{done} of {planned}",
            f"{min(kills):.1f} to {max(kills):.1f}", notes[campaign],
        ])
    return tables.table(
        ["Commit", "seed", "rounds survived", "back to normal after a kill, s", "remark"], lines
    )


def _growths(process: str, part: str) -> tuple[float, float]:
    """Returns the medians of the first and of the last window of a process after the warm-up."""
    warm_up_s = 60 * _record("soak")["minutes"] * _WARM_UP
    values = [
        float(row[part]) for row in _soak_rows()
        if row["process"] == process and float(row["seconds"]) >= warm_up_s
    ]
    window = max(1, int(len(values) * _WINDOW))
    return statistics.median(values[:window]), statistics.median(values[-window:])


@functools.cache
def _soak_rows() -> Sequence[Mapping[str, str]]:
    return tables.csv_rows(_FOLDER / "soak.csv")


def _soak_table() -> str:
    rows = []
    for process in dict.fromkeys(row["process"] for row in _soak_rows()):
        first, last = _growths(process, "rss_mb")
        rows.append([
            process.replace("_1", ""), f"{first:.0f} to {last:.0f}",
            f"{100 * (last / first - 1):.1f} %",
            *(f"{_growths(process, part)[1]:.0f}" for part in ("open_files", "threads")),
        ])
    return tables.table(
        ["Process", "resident memory, MB", "growth", "open files", "threads"], rows
    )


@prose.wrapped
def _soak_caveats() -> str:
    first, last = _growths("learner", "rss_mb")
    pending = _record("soak")["pending"]
    minutes = _record("soak")["minutes"] * (1 - _WARM_UP)
    # The windows' middles are that far apart.
    rate = (last - first) / (minutes * (1 - _WINDOW))
    return (
        f"- The learner is not quite flat. It grew by {last - first:.0f} MB from the first to the "
        f"last of six parts of these {minutes:.0f} minutes, or {rate:.1f} MB a minute.\n"
        "- The cause of this growth is not known. A night would take 300 MB if it went on.\n"
        f"- Replay never held more than its {pending['replay_table']:,} transitions. The "
        "broadcaster's mailbox never held a message that waited."
    )


def _fuzz_table() -> str:
    record = _record("fuzz_messages")
    refused, taken = record["refused"], record["taken"]
    rows = [
        [kind, *(tables.number(of.get(kind, 0)) for of in (refused, taken))]
        for kind in dict.fromkeys([*refused, *taken])
    ]
    rows.append(["all", tables.number(sum(refused.values())), tables.number(sum(taken.values()))])
    return tables.table(["Fault of a message", "refused", "taken"], rows)


@prose.wrapped
def _fuzz_reading() -> str:
    record = _record("fuzz_messages")
    kinds = {*record["refused"], *record["taken"]}
    grown = record["grown_bytes"]
    return (
        f"The {record['inputs']:,} messages have {len(kinds)} kinds of faults. The test took "
        f"{record['seconds']:.0f} s, and the process's peak memory grew by {grown / 1e6:.0f} MB."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": _answer,
    "campaign": _faults_table,
    "campaigns": _again,
    "soak": _soak_table,
    "soak_caveats": _soak_caveats,
    "fuzz": _fuzz_table,
    "fuzz_reading": _fuzz_reading,
}
