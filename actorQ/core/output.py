"""Tables, text and CSV files of scripts, benchmarks and reports, and scripts' error lines.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import csv
import io
import json
import os
import shlex
import sys
from typing import Any

import numpy as np

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import provenance

NOT_AVAILABLE = "n/a"


def number(value: float, digits: int = 1) -> str:
    """Returns a number for a table, NaN as `NOT_AVAILABLE`."""
    return f"{value:.{digits}f}" if np.isfinite(value) else NOT_AVAILABLE


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table: first column to the left, the others to the right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = [row[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    return "\n".join([line(cells[0]), line(rule), *(line(row) for row in cells[1:])]) + "\n"


def python() -> str:
    """Returns this Python's path for a printed command, quoted for a shell."""
    return shlex.quote(sys.executable)


def make_folder(folder: str) -> None:
    """Makes a folder for output.

    Raises:
      errors.UserError: The folder cannot be made.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.UserError(f"Cannot make the folder {folder}: {error.strerror}.") from error


def write_text(path: str, text: str) -> None:
    """Writes a file; if that fails, its old content is still there.

    Raises:
      errors.UserError: The file cannot be written.
    """
    if os.path.isfile(path) and not os.path.islink(path) or not os.path.lexists(path):
        files.write(path, text)
        return
    with files.writing(path), open(path, "w", encoding="utf-8") as file:  # A device or a pipe.
        file.write(text)


def write_csv(path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows of equal keys, NaN as an empty cell; see `write_text`.

    Raises:
      errors.UserError: The file cannot be written.
    """
    content = io.StringIO()
    writer = csv.DictWriter(content, list(rows[0]))
    writer.writeheader()
    writer.writerows({key: _csv_cell(value) for key, value in row.items()} for row in rows)
    write_text(path, content.getvalue())


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if not np.isfinite(value):
        return ""
    # Counts keep all their digits.
    return int(value) if value.is_integer() else f"{value:.6g}"


def write_report(
    folder: str,
    stem: str,
    text: str,
    rows: Sequence[Mapping[str, object]],
    figure_name: str,
    draw: Callable[[str], object],
) -> None:
    """Writes a script's results: `stem`.md, `stem`.csv and a figure.

    Args:
      folder: Folder to write to, made if missing.
      stem: Name of the files without ending.
      text: Markdown.
      rows: Rows of the CSV file.
      figure_name: Name of the PNG file.
      draw: Draws the figure into the path that it is given.
    """
    make_folder(folder)
    write_text(os.path.join(folder, f"{stem}.md"), text)
    write_csv(os.path.join(folder, f"{stem}.csv"), rows)
    draw(os.path.join(folder, figure_name))


def write_measured(
    program: str,
    name: str,
    text: str,
    record: Mapping[str, Any] | None,
    out: str | None,
) -> None:
    """Writes measured figures and their origin to files if `out` is given; prints the text.

    Args:
      program: Module that measured; the command in the files is made of it and the arguments.
      name: Name of the files: NAME.md for the text, NAME.json for the record.
      text: Markdown.
      record: Raw figures; None: no JSON file.
      out: Folder to write to, made if missing; None: no files.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    try:
        if out:
            facts = provenance.facts(shlex.join(["python", "-m", program, *sys.argv[1:]]))
            machine = facts["machine"]
            footer = (
                f"\n`{facts['command']}` on {machine['processor']}, {machine['cores']} cores, "
                f"commit {provenance.short(facts['git_commit'])}, {facts['date']}.\n"
            )
            make_folder(out)
            write_text(os.path.join(out, f"{name}.md"), text + footer)
            if record is not None:
                path = os.path.join(out, f"{name}.json")
                write_text(path, json.dumps({**facts, **record}, indent=1) + "\n")
    finally:  # If files cannot be written, the text is all that is left of the measurement.
        # If they were written, nothing is lost when printing fails (`| head`, a full disk).
        with contextlib.suppress(OSError if out else BrokenPipeError):
            sys.stdout.write(text)
            sys.stdout.flush()


def run_script(name: str, main: Callable[[Sequence[str]], None]) -> None:
    """Runs a script whose arguments argparse parses: absl has no lists of folders.

    An error that the user can mend becomes one line on stderr and exit code 1, as in `cli.run`.

    Args:
      name: Name of the script, for the line.
      main: Takes the arguments without the program.
    """
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except errors.UserError as error:
        errors.report(name, str(error))
        raise SystemExit(1) from None
    except OSError as error:
        # Output that is still in stdout's buffer would fail again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `| head` has seen enough.
            errors.report(name, f"Cannot read or write: {error}.")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        errors.report(name, "Interrupted.")
        raise SystemExit(130) from None
