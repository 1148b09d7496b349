"""The origin of results: command, machine, commit and date, as their own files note them."""

from collections.abc import Iterable
from collections.abc import Mapping
import glob
import os
import re
from typing import Any

from actorQ.core import provenance
from baseline.report import blocks
from baseline.report import result_files

_COMMIT_COLUMNS = ("commit", "git_commit")
# The last line of a table that `output.write_measured` writes.
_FOOTER = re.compile(
    r"`(?P<command>[^`\n]+)` on (?P<machine>.+?), commit (?P<commit>\w+)"
    r"(?:, (?P<date>\d{4}-\d\d-\d\d[^\n]*?))?\.?$",
    re.MULTILINE,
)
_COMMIT = re.compile(r"^Commit (?P<commit>[0-9a-f]{12,}(?:\+changes)?)\.$", re.MULTILINE)


def of_folders(folders: Iterable[str]) -> blocks.Origin:
    """Returns the notes of all files below some folders; files other than .json, .md, .csv: none.

    Raises:
      errors.UserError: A file is damaged.
    """
    notes: list[Mapping[str, str]] = []
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "**"), recursive=True)):
            if os.path.isfile(path):
                notes += _notes(path)
    machines = _distinct(notes, "machine")
    return blocks.Origin(
        _distinct(notes, "command"),
        # 'AMD EPYC' says less than 'AMD EPYC, 2 cores' does.
        tuple(
            one for one in machines if not any(other.startswith(f"{one},") for other in machines)
        ),
        tuple(dict.fromkeys(provenance.short(commit) for commit in _distinct(notes, "commit"))),
        _distinct(notes, "date"),
    )


def _notes(path: str) -> list[Mapping[str, str]]:
    if path.endswith(".json"):
        return [_json_notes(result_files.read_json(path))]
    if path.endswith(".md"):
        text = result_files.read_text(path)
        matches = [*_FOOTER.finditer(text), *_COMMIT.finditer(text)]
        return [match.groupdict() for match in matches]
    if path.endswith(".csv"):
        rows = result_files.read_csv(path)
        commits = {row[name]: None for row in rows for name in _COMMIT_COLUMNS if row.get(name)}
        return [{"commit": commit} for commit in commits]
    return []


def _json_notes(content: Any) -> dict[str, str]:
    """Returns the notes of `provenance.facts`, a result.json or a run's config.json."""
    if not isinstance(content, dict):
        return {}
    notes = {name: content.get(name) for name in ("command", "date")}
    notes["commit"] = content.get("git_commit")
    machine = content.get("machine")
    if isinstance(machine, dict) and isinstance(machine.get("processor"), str):
        cores = machine.get("cores")
        notes["machine"] = machine["processor"] + (
            f", {cores} core{'s' * (cores != 1)}" if isinstance(cores, int) else ""
        )
    return {name: value for name, value in notes.items() if isinstance(value, str)}


def _distinct(notes: Iterable[Mapping[str, str]], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note[name] for note in notes if note.get(name)))
