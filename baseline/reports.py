"""Prints what a benchmark found, and keeps it with its origin: text as .md, figures as .json.

Imports no framework.
"""

from collections.abc import Mapping
import contextlib
import json
import os
import sys
from typing import Any

from actorQ import provenance
from actorQ.scripts import output


def write(
    program: str, name: str, text: str, record: Mapping[str, Any] | None, out: str | None
) -> None:
    """With `out` writes the text to NAME.md, and a record to NAME.json; then prints the text.

    Args:
      program: module that measured; with the command line's words it makes the command.
      name: of the files.
      text: Markdown.
      record: raw figures; None: no JSON.
      out: folder, made if missing; None: nothing is written.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    try:
        if out:
            _write_files(program, name, text, record, out)
    finally:  # Where files cannot be written, the text is all that is left of what was measured.
        # And where they are, nothing is lost: `| head` may have seen enough, a disk be full.
        with contextlib.suppress(OSError if out else BrokenPipeError):
            sys.stdout.write(text)
            sys.stdout.flush()


def _write_files(
    program: str, name: str, text: str, record: Mapping[str, Any] | None, out: str
) -> None:
    facts = provenance.facts(" ".join([f"python -m {program}", *sys.argv[1:]]))
    footer = (
        f"\n`{facts['command']}` on {facts['machine']['processor']}, commit "
        f"{provenance.short(facts['git_commit'])}, {facts['date']}.\n"
    )
    output.make_folder(out)
    output.write_text(os.path.join(out, f"{name}.md"), text + footer)
    if record is not None:
        path = os.path.join(out, f"{name}.json")
        output.write_text(path, json.dumps({**facts, **record}, indent=1) + "\n")
