"""Tools that benchmarks share: pinning, interleaved repeats, medians, table and JSON.

The sides of a comparison run one after another within every repeat, in turning order, so that a
slow minute of a shared machine falls on all of them. This module imports no framework.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os
import signal
import statistics
import sys
import time
from typing import Any
from typing import TypeVar

from absl import logging

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import provenance

Key = TypeVar("Key")
Figure = TypeVar("Figure")


def parser(name: str, description: str, repeats: int | None = 5) -> argparse.ArgumentParser:
    """Returns a parser with the options of every benchmark: --out, and most often --repeats.

    Args:
      name: Name of the benchmark.
      description: One line for --help.
      repeats: Default of --repeats. None makes no such option, for a benchmark without rounds.
    """
    made = argparse.ArgumentParser(f"python -m {_program(name)}", description=description)
    made.add_argument(
        "--out", metavar="FOLDER", help="Folder that the JSON and Markdown files are written to."
    )
    if repeats is not None:
        made.add_argument(
            "--repeats", type=positive, default=repeats, metavar="N",
            help="Every side is measured so often, and medians are shown (default: %(default)s).",
        )
    return made


def add_device(made: argparse.ArgumentParser) -> None:
    """Adds the option --device, the device of the learner."""
    made.add_argument(
        "--device", choices=("CPU", "GPU"), default="CPU",
        help="Device of the learner (default: %(default)s).",
    )


def require_device(asked: str, taken: str) -> None:
    """Makes sure that the learner computes on the device of --device.

    Raises:
      errors.UserError: TensorFlow took the CPU in place of a GPU.
    """
    if asked != taken:
        raise errors.UserError(
            f"The learner's steps are computed on the {taken}, because TensorFlow can use no "
            f"{asked} here: leave out --device {asked}, or run ./setup_ubuntu.sh --gpu."
        )


def parse(
    made: argparse.ArgumentParser, argv: Sequence[str], **quick: Any
) -> argparse.Namespace:
    """Parses a command line whose --quick stands for other defaults.

    Args:
      made: Parser that has --quick.
      argv: Command line without the program.
      **quick: Defaults that --quick sets, by name.
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

    It takes the last ones, since interrupts tend to be served by the first. Threads that exist
    already (a framework's pool) stay where they are: call it before importing a framework.

    Returns:
      The cores. A system that cannot pin gets a warning and the numbers of the first cores.

    Raises:
      errors.UserError: The process may use fewer cores.
    """
    if not hasattr(os, "sched_setaffinity"):  # Only Linux has it.
        logging.warning("This system cannot keep a process to some cores: times may vary more.")
        return list(range(min(cores, os.cpu_count() or 1)))
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < cores:
        raise errors.UserError(f"This benchmark needs {cores} cores, {len(usable)} are usable.")
    chosen = usable[-cores:]
    os.sched_setaffinity(0, chosen)
    return chosen


def interleave(
    sides: Mapping[Key, Callable[[], Figure]], repeats: int
) -> dict[Key, list[Figure]]:
    """Measures every side `repeats` times, in turn.

    Args:
      sides: Maps each side to a function that measures it once and returns the figure.
      repeats: Number of rounds. Each begins one side later than the round before.

    Returns:
      The figures of each side, in the order of the rounds.
    """
    names = list(sides)
    figures: dict[Key, list[Figure]] = {name: [] for name in names}
    for turn in range(repeats):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            figures[name].append(sides[name]())
    return figures


def latencies(calls: Mapping[Key, Callable[[], Any]], repeats: int) -> dict[Key, list[float]]:
    """Measures the `seconds_per_call` of every call `repeats` times, in turn."""
    return interleave(
        {name: functools.partial(seconds_per_call, call) for name, call in calls.items()}, repeats
    )


def seconds_per_call(call: Callable[[], Any], at_least_s: float = 0.05) -> float:
    """Returns the median seconds of one call, over as many calls as `at_least_s` holds.

    The first call is not counted: it may compile, or bring weights into caches.
    """
    return statistics.median(seconds_of_calls(call, at_least_s))


def seconds_of_calls(
    call: Callable[[], Any], at_least_s: float = 0.05, at_least: int = 1
) -> list[float]:
    """Returns the seconds of single calls.

    Args:
      call: Called again and again. The first call is not counted.
      at_least_s: Seconds that the calls take together, at least.
      at_least: Number of calls, at least.
    """
    clock = time.perf_counter
    call()
    laps: list[float] = []
    started = clock()
    while len(laps) < at_least or clock() - started < at_least_s:
        before = clock()
        call()
        laps.append(clock() - before)
    return laps


def progress(text: str) -> None:
    """Prints a line of progress on stderr."""
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
      name: Name of the files.
      title: Line above the table, with the unit of its figures.
      header: Column names.
      rows: Cells as text.
      record: Raw figures for the JSON. Machine, commit, command and date are added here.
      out: Folder, made if missing, or None.
      notes: Lines under the last table.
      more: Further tables: title, header, rows.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    tables = [(title, header, rows), *more]
    text = "\n".join(
        f"{line}\n\n{output.markdown_table(names, cells)}" for line, names, cells in tables
    )
    if notes:
        text += "\n" + "".join(f"- {note}\n" for note in notes)
    output.write_measured(_program(name), name, text, record, out)


def _program(name: str) -> str:
    """Returns the module that was started, as `python -m` takes it.

    Args:
      name: Name of a benchmark, which stands in where Python was started in another way.
    """
    path = os.path.splitext(os.path.relpath(sys.argv[0], provenance.ROOT))[0]
    parts = path.split(os.sep)
    if not all(part.isidentifier() for part in parts):
        return f"actorQ.benchmarks.{name}"
    return ".".join(parts).removesuffix(".__main__")


def run(name: str, main: Callable[[Sequence[str]], None]) -> None:
    """Runs a benchmark: an error that the user can mend becomes one line and exit code 1.

    SIGTERM, and a terminal that closes, end it as Ctrl-C does, by way of every `finally`:
    processes that it started end with it.
    """
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:  # nohup ignores SIGHUP.
            signal.signal(signum, lambda number, _: sys.exit(128 + number))
    output.run_script(name, main)
