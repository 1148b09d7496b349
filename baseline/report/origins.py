"""Where results come from: command, machine, commit and date, as their own files note them."""

from collections.abc import Iterable
from collections.abc import Mapping
import csv
import glob
import json
import os
import re
from typing import Any
from typing import NamedTuple

from actorQ.core import errors
from actorQ.core import provenance
from baseline.report import markup

_SHOWN = 3  # Commands that are shown at once.
_COMMIT_COLUMNS = ("commit", "git_commit")
# Last line of what `output.write_measured` writes.
_FOOTER = re.compile(
    r"`(?P<command>[^`\n]+)` on (?P<machine>.+?), commit (?P<commit>\w+)"
    r"(?:, (?P<date>\d{4}-\d\d-\d\d[^\n]*?))?\.?$",
    re.MULTILINE,
)
_COMMIT = re.compile(r"^Commit (?P<commit>[0-9a-f]{12,}(?:\+changes)?)\.$", re.MULTILINE)


class Origin(NamedTuple):
    """What files say of their making; each without repetition, empty where nothing is noted."""

    commands: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()

    def html(self) -> str:
        """Returns a paragraph for the page."""
        lines = []
        for name, found in (("Machine", self.machines), ("Commit", self.commits)):
            text = markup.escape("; ".join(found)) or "not noted in these files"
            lines.append(f"{name}{'s' * (len(found) > 1)}: {text}.")
        if self.dates:
            ends = dict.fromkeys((min(self.dates), max(self.dates)))
            lines.append(f"Made: {markup.escape(' to '.join(ends))}.")
        commands = [f"<code>{markup.escape(command)}</code>" for command in self.commands]
        if len(commands) == 1:
            lines.append(f"Command: {commands[0]}")
        text = f'<p class="origin">{" ".join(lines)}</p>\n'
        if len(commands) < 2:
            return text
        items = f"<ul class=\"origin\">{''.join(f'<li>{one}</li>' for one in commands)}</ul>\n"
        if len(commands) <= _SHOWN:
            return text + items
        return text + markup.fold(f"{len(commands)} commands, as the files note them", items)


def of_folders(folders: Iterable[str]) -> Origin:
    """Returns what all files below some folders note.

    Raises:
      errors.UserError: a file is damaged.
    """
    paths = [
        path
        for folder in folders
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "**"), recursive=True))
        if os.path.isfile(path)
    ]
    return of_files(paths)


def of_files(paths: Iterable[str]) -> Origin:
    """Returns what some files note (.json, .md, .csv; others nothing).

    Raises:
      errors.UserError: a file is damaged.
    """
    notes: list[Mapping[str, str]] = []
    for path in paths:
        if path.endswith(".json"):
            notes.append(_of_json(read_json(path)))
        elif path.endswith(".md"):
            text = markup.read_text(path)
            notes += [match.groupdict() for match in _FOOTER.finditer(text)]
            notes += [match.groupdict() for match in _COMMIT.finditer(text)]
        elif path.endswith(".csv"):
            notes += [{"commit": commit} for commit in _commits(read_csv(path))]
    machines = {note["machine"] for note in notes if note.get("machine")}
    return Origin(
        _distinct(notes, "command"),
        # 'AMD EPYC' says less than 'AMD EPYC, 2 cores' does.
        tuple(
            one for one in _distinct(notes, "machine")
            if not any(other.startswith(f"{one},") for other in machines)
        ),
        tuple(dict.fromkeys(provenance.short(commit) for commit in _distinct(notes, "commit"))),
        _distinct(notes, "date"),
    )


def read_json(path: str) -> Any:
    """Returns what a JSON file holds.

    Raises:
      errors.UserError: it cannot be read, or is damaged.
    """
    try:
        return json.loads(markup.read_text(path))
    except ValueError as error:
        raise errors.UserError(f"{path} is damaged: {error}. Make it again.") from None


def read_csv(path: str) -> list[dict[str, str]]:
    """Returns the rows of a CSV file.

    Raises:
      errors.UserError: it cannot be read, or is damaged.
    """
    try:
        rows = list(csv.DictReader(markup.read_text(path).splitlines()))
    except csv.Error as error:
        raise errors.UserError(f"{path} is damaged: {error}. Make it again.") from None
    if any(None in row or None in row.values() for row in rows):
        raise errors.UserError(
            f"{path} is damaged: a row has not as many cells as there are columns. Make it again."
        )
    return rows


def number(row: Mapping[str, str], name: str, path: str) -> float:
    """Returns a number of a CSV row.

    Args:
      row: of the file.
      name: of the column.
      path: of the file, for the message.

    Raises:
      errors.UserError: it is not there.
    """
    try:
        return float(row[name])
    except (KeyError, ValueError):
        raise errors.UserError(
            f"{path} is damaged: {name} has to be a number, not {row.get(name)!r}. Make it again."
        ) from None


def _of_json(content: Any) -> dict[str, str]:
    """Returns what is noted by `provenance.facts`, a result.json or a run's config.json."""
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


def _commits(rows: Iterable[Mapping[str, str]]) -> list[str]:
    found = (row.get(name) for row in rows for name in _COMMIT_COLUMNS)
    return list(dict.fromkeys(commit for commit in found if commit))


def _distinct(notes: Iterable[Mapping[str, str]], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note[name] for note in notes if note.get(name)))
