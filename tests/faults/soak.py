"""A soak test: memory, open files and queues of a run at full speed must stay flat.

    python -m tests.faults.soak --minutes 30 --out DIR

Every few seconds the test samples resident memory, open files and threads of every process, and the
items in the server's tables. The beginning does not count, in which replay fills up, and pools and
caches grow to their size. After it, no process may grow by more than 2 %, open files must not grow,
and a mailbox never holds more than one item. The test prints a table and draws a plot. It ends with
exit code 1 if something grows.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import math
import os
import shutil
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import psutil

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.core import timing
from actorQ.wire import connection as wire
from tests.faults import live_run

_NAME = "soak"
_PERIOD_S = 5.0
_ANSWER_S = 10  # Longest wait for the server.
_START_S = 120.0
_WARM_UP = 1 / 3  # Share of the time that is warm-up, and at least ...
_FULL_S = 60.0  # ... until replay has been full for so long.
_MOST_GROWTH = 0.02
_WINDOW = 1 / 6  # Share of the later samples in the first and in the last window.
_TASK = "dm_control,cartpole_balance"
_REPLAY = 50_000  # This many transitions come within a minute.
FLAGS = (
    f"--taskstr={_TASK}", "--n_actors=1", "--inference_mode=native", "--min_replay_size=1000",
    f"--replay_table_max_replay_size={_REPLAY}", "--num_episodes=1000000000",
    "--replay_table_max_times_sampled=0", "--learner_device_placement=CPU",
)
_LARGEST = {config_lib.RunConfig.replay_table_name: _REPLAY}  # All other tables hold one item.
_PARTS = ("rss_mb", "open_files", "threads")
# Colours and lines of the processes in the plot, in a circle.
_STYLES = (
    (plotting.INDIGO, "-"), (plotting.OLIVE, "--"), (plotting.WINE, "-."), ("black", ":"),
)


class Samples:
    """Samples of each process over time.

    Attributes:
      series: Values by process and by part ("rss_mb", ...), as long as `seconds`.
      seconds: Times of the samples since the start, by process.
      pending: Largest number of items seen in a table, by table.
      last_pids: Process ids, by process. A process that was started again has another one.
      full_s: Time at which replay was full for the first time.
    """

    def __init__(self) -> None:
        """Begins with none."""
        self.series: dict[str, dict[str, list[float]]] = {}
        self.seconds: dict[str, list[float]] = {}
        self.pending: dict[str, int] = {}
        self.last_pids: dict[str, int] = {}
        self.full_s = math.inf

    def take(self, seconds: float, running: Mapping[str, psutil.Process]) -> None:
        """Takes one sample of each process.

        Raises:
          errors.UserError: A process was started again meanwhile.
        """
        for name, process in running.items():
            if self.last_pids.setdefault(name, process.pid) != process.pid:
                raise errors.UserError(f"{name} was started again during the soak.")
            with contextlib.suppress(psutil.NoSuchProcess):
                taken = {
                    "rss_mb": process.memory_info().rss / 1e6,
                    "open_files": process.num_fds(),
                    "threads": process.num_threads(),
                }
                parts = self.series.setdefault(name, {part: [] for part in _PARTS})
                for part, value in taken.items():
                    parts[part].append(float(value))
                self.seconds.setdefault(name, []).append(seconds)

    def note(self, table: str, items: int) -> None:
        """Notes the number of items that a table holds."""
        self.pending[table] = max(self.pending.get(table, 0), items)

    def growth(self, name: str, part: str, warm_up_s: float) -> tuple[float, float]:
        """Returns the medians of the first and of the last window after the warm-up."""
        seconds = np.asarray(self.seconds[name])
        values = np.asarray(self.series[name][part])[seconds >= warm_up_s]
        if len(values) < 2:
            raise errors.UserError(
                f"There are too few samples of {name} after the warm-up: soak for longer."
            )
        window = max(1, int(len(values) * _WINDOW))
        return float(statistics.median(values[:window])), float(statistics.median(values[-window:]))


def verdicts(samples: Samples, warm_up_s: float) -> tuple[list[list[str]], list[str]]:
    """Judges the samples.

    Returns:
      A row for each process (memory, open files, threads: from, to), and descriptions of growth.
    """
    rows, grown = [], []
    for name in samples.series:
        row = [name]
        for part in _PARTS:
            first, last = samples.growth(name, part, warm_up_s)
            row.append(f"{first:.0f} to {last:.0f}")
            if part == "rss_mb":
                share = last / first - 1
                row.append(f"{100 * share:+.1f} %")
                if share > _MOST_GROWTH:
                    grown.append(f"memory of {name} by {100 * share:.1f} %")
            elif part == "open_files" and last > first:
                grown.append(f"open files of {name} from {first:.0f} to {last:.0f}")
        rows.append(row)
    for table, count in samples.pending.items():
        if count > _LARGEST.get(table, 1):
            grown.append(f"{table} to {count} items")
    return rows, grown


def soak(
    run: live_run.LiveRun, config: config_lib.RunConfig, minutes: float, samples: Samples
) -> None:
    """Watches a run.

    Args:
      run: Run that trains.
      config: Configuration with its table names and address.
      minutes: Length of the watch.
      samples: Place for the samples.

    Raises:
      errors.UserError: The run ended, or a process was started again.
    """
    connection = wire.Connection(config)
    started = time.monotonic()
    next_progress = 0.0
    while (seconds := time.monotonic() - started) < 60 * minutes:
        if run.code is not None:
            raise errors.UserError(f"The run ended (code {run.code}): see {run.log_path}.")
        running = {**run.processes(), "launcher": run.launcher}
        missing = sorted({*samples.series} - {*running})
        if missing:
            raise errors.UserError(f"{missing[0]} went away during the soak.")
        samples.take(seconds, running)
        status = connection.status()
        for table, info in connection.client.server_info(timeout=_ANSWER_S).items():
            samples.note(table, info.current_size)
        if status.replay_size >= _REPLAY:
            samples.full_s = min(samples.full_s, seconds)
        if seconds >= next_progress:
            next_progress += 60
            row = run.last_row(telemetry.LEARNER, telemetry.TRAIN_CSV)
            memory = ", ".join(
                f"{name} {parts['rss_mb'][-1]:.0f} MB" for name, parts in samples.series.items()
            )
            timing.progress(
                f"{seconds / 60:.0f}/{minutes:g} min  learner "
                f"{row.get('learner_steps_per_s', 0):.0f}/s, actors "
                f"{row.get('actor_steps_per_s', 0):.0f}/s; {memory}"
            )
        time.sleep(_PERIOD_S)


def draw(samples: Samples, warm_up_s: float, path: str) -> None:
    """Draws memory and open files against time."""
    figure, axes = plotting.new_figure(2, 4.8)
    for axis, part, label in zip(
        axes, ("rss_mb", "open_files"), ("Resident memory (MB)", "Open files"), strict=True
    ):
        for (name, parts), (colour, line) in zip(
            samples.series.items(), itertools.cycle(_STYLES), strict=False
        ):
            minutes = np.asarray(samples.seconds[name]) / 60
            axis.plot(minutes, parts[part], line, color=colour, linewidth=2, label=name)
        axis.axvline(warm_up_s / 60, color="0.5", linestyle=":", label="end of warm-up")
        axis.set_ylim(bottom=0)
        axis.set_ylabel(label)
    axes[-1].set_xlabel("Time (minutes)")
    plotting.legend_below(figure, 3)
    plotting.save_figure(figure, path)


def rows_of(samples: Samples) -> list[dict[str, Any]]:
    """Returns every sample, for a CSV file."""
    return [
        {"seconds": seconds, "process": name} | {part: parts[part][index] for part in _PARTS}
        for name, parts in samples.series.items()
        for index, seconds in enumerate(samples.seconds[name])
    ]


def main(argv: Sequence[str]) -> None:
    """Soaks and prints the growth.

    Raises:
      errors.UserError: Something grew.
    """
    parser = timing.parser(
        _NAME, "Watches memory and open files of a long run.", repeats=None
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, metavar="M",
        help="Length of the run in minutes (default: %(default)s).",
    )
    options = parser.parse_args(argv)
    if not options.minutes > 0:
        raise errors.UserError(f"--minutes={options.minutes:g} is not possible: choose above 0.")
    folder = tempfile.mkdtemp(prefix="actorq_soak_")
    port = ports.free_port()
    run = live_run.LiveRun(folder, [*FLAGS, f"--port={port}"])
    samples = Samples()
    try:
        run.wait_for(
            "training",
            lambda: run.newest(telemetry.LEARNER, telemetry.TRAIN_CSV, "learner_steps") > 1,
            _START_S,
        )
        soak(run, config_lib.RunConfig(taskstr=_TASK, port=port), options.minutes, samples)
    finally:
        try:
            run.end()
        finally:  # The samples are kept even if the run failed.
            warm_up_s = max(60 * options.minutes * _WARM_UP, samples.full_s + _FULL_S)
            if options.out and samples.series:
                output.make_folder(options.out)
                output.write_csv(os.path.join(options.out, f"{_NAME}.csv"), rows_of(samples))
                draw(samples, warm_up_s, os.path.join(options.out, f"{_NAME}.png"))
    rows, grown = verdicts(samples, warm_up_s)
    held = ", ".join(f"{table} {items}" for table, items in samples.pending.items())
    timing.report(
        _NAME, f"{options.minutes:g} minutes; medians after {warm_up_s / 60:.0f} minutes, and at "
        "the end",
        ["process", "memory, MB", "growth", "open files", "threads"], rows,
        {"minutes": options.minutes, "grown": grown, "pending": samples.pending}, options.out,
        notes=[
            f"Growth: {', '.join(grown) or 'none'}.",
            f"Most items seen in a table of the server: {held}. Replay holds at most {_REPLAY}, "
            "every mailbox 1.",
        ],
    )
    if grown:
        raise errors.UserError(f"The run does not stay flat: {'; '.join(grown)}. Logs: {folder}")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    timing.run(_NAME, main)
