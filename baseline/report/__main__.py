"""Gathers all results into one HTML page, with tables and plots beside the paper's figures.

    python -m baseline.report [--baseline_results=FOLDER] [--actorq_results=FOLDER] [--out=FILE]

The page is one file: its plots are inside, it loads nothing and runs nothing. Verdicts are computed
from the files. The page names results that do not exist yet, with the command that makes them.
"""

import os
import shlex
import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import files

_NAME = "report"
_MEGABYTE = 1e6


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "baseline_results", "baseline/results",
        "Folder with ptq, qat, findings, integer, atari, mixed_precision and deployment; any of "
        "them may be missing.",
    )
    flags.DEFINE_string(
        "actorq_results", "actorQ/results",
        "Folder with published experiments (EXPERIMENT/runs, EXPERIMENT/report) and benchmarks.",
    )
    flags.DEFINE_string("out", "report.html", "File to write.")


def main(argv: list[str]) -> int:
    """Writes the page and prints its path; `cli.run` handles errors."""
    del argv
    values = flags.FLAGS
    for folder in (values.baseline_results, values.actorq_results):
        if not os.path.isdir(folder):
            raise errors.UserError(
                f"There is no folder {folder}: run this in the repository's root, or name one."
            )
    from actorQ.core import output
    from baseline.report import page as report_page

    command = shlex.join(["python", "-m", f"baseline.{_NAME}", *sys.argv[1:]])
    page = report_page.build(values.baseline_results, values.actorq_results, command)
    output.make_folder(os.path.dirname(values.out) or ".")
    files.write(values.out, page)
    print(f"{values.out}: {len(page.encode()) / _MEGABYTE:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, name=_NAME)
