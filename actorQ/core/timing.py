"""What the benchmarks share: pinning, interleaved repeats, medians, table and JSON.

The sides of a comparison run one after another within every repeat, in turning order, so that a
slow minute of a shared machine falls on all of them. Imports no framework.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import signal
import statistics
import sys
import time
from typing import Any

from absl import logging

from actorQ.core import errors
from actorQ.core import output


def parser(name: str, description: str, repeats: int | None = 5) -> argparse.ArgumentParser:
    """Returns a parser with the options of every benchmark: --out, and most often --repeats.

    Args:
      name: of the module within `actorQ.benchmarks`.
      description: one line.
      repeats: default of --repeats; None: it measures no times, and has no such option.
    """
    made = argparse.ArgumentParser(f"python -m actorQ.benchmarks.{name}", description=description)
    made.add_argument("--out", metavar="FOLDER", help="folder for JSON and Markdown")
    if repeats is not None:
        made.add_argument(
            "--repeats", type=positive, default=repeats, metavar="N",
            help="times that every side is measured; medians are shown (default: %(default)s)",
        )
    return made


def parse(
    made: argparse.ArgumentParser, argv: Sequence[str], **quick: Any
) -> argparse.Namespace:
    """Parses a command line whose --quick stands for other defaults.

    Args:
      made: the parser, with --quick.
      argv: the command line.
      **quick: those defaults, by name.
    """
    arguments = made.parse_args(argv)
    if arguments.quick:
        made.set_defaults(**quick)
        arguments = made.parse_args(argv)
    return arguments


def positive(text: str) -> int:
    """Parses a positive whole number, for argparse."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def pin(cores: int) -> list[int]:
    """Keeps this process, its later threads and children to the last `cores` usable cores.

    The last ones, since interrupts tend to be served by the first. Threads that exist already
    (a framework's pool) stay where they are: call it before importing one.

    Returns:
      The cores. Where the system cannot do that, which is said, the first ones.

    Raises:
      errors.UserError: there are not so many.
    """
    if not hasattr(os, "sched_setaffinity"):  # Linux alone has it.
        logging.warning("This system cannot keep a process to some cores: times may vary more.")
        return list(range(min(cores, os.cpu_count() or 1)))
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < cores:
        raise errors.UserError(f"This benchmark needs {cores} cores, {len(usable)} are usable.")
    chosen = usable[-cores:]
    os.sched_setaffinity(0, chosen)
    return chosen


def interleave(
    sides: Mapping[str, Callable[[], float]], repeats: int
) -> dict[str, list[float]]:
    """Measures every side `repeats` times, in turn.

    Args:
      sides: name to a function that measures once and returns the figure.
      repeats: rounds; each begins one side later than the one before.

    Returns:
      Name to figures, in the order of the rounds.
    """
    names = list(sides)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            figures[name].append(sides[name]())
    return figures


def medians(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the median of every side."""
    return {name: statistics.median(values) for name, values in figures.items()}


def latencies(calls: Mapping[Any, Callable[[], Any]], repeats: int) -> dict[Any, list[float]]:
    """Measures the `seconds_per_call` of every call `repeats` times, in turn."""
    return interleave(
        {name: lambda call=call: seconds_per_call(call) for name, call in calls.items()}, repeats
    )


def seconds_per_call(call: Callable[[], Any], at_least_s: float = 0.05) -> float:
    """Returns the median seconds of one call, over as many calls as `at_least_s` holds.

    A call before them is not counted: it may compile, or bring weights into caches.
    """
    clock = time.perf_counter
    call()
    laps = []
    started = clock()
    while not laps or clock() - started < at_least_s:
        before = clock()
        call()
        laps.append(clock() - before)
    return statistics.median(laps)


def progress(text: str) -> None:
    """Tells on stderr what is being measured."""
    print(text, file=sys.stderr, flush=True)


def report(
    name: str,
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    record: Mapping[str, Any],
    out: str | None,
    notes: Sequence[str] = (),
    more: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = (),
) -> None:
    """Prints a table as Markdown; with `out` writes it to NAME.md and everything to NAME.json.

    Args:
      name: of the benchmark.
      title: one line above the table, with the unit of its figures.
      header: column names.
      rows: cells as text.
      record: raw figures, for the JSON; machine, commit, command and date are added here.
      out: folder, made if missing, or None.
      notes: lines under the last table.
      more: further tables: title, header, rows.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    tables = [(title, header, rows), *more]
    text = "\n".join(
        f"{line}\n\n{output.markdown_table(names, cells)}" for line, names, cells in tables
    )
    if notes:
        text += "\n" + "".join(f"- {note}\n" for note in notes)
    module = os.path.splitext(os.path.basename(sys.argv[0]))[0]  # Not `name`: a mode has its own.
    output.write_measured(f"actorQ.benchmarks.{module}", name, text, record, out)


def run(name: str, main: Callable[[Sequence[str]], None]) -> None:
    """Runs a benchmark: an error that the user can mend becomes one line and exit code 1.

    SIGTERM, and a terminal that closes, end it as Ctrl-C does, by way of every `finally`: what it
    started ends with it.
    """
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:  # As nohup has it.
            signal.signal(signum, lambda number, _: sys.exit(128 + number))
    output.run_script(name, main)
