"""What the analysis scripts share: runs, curves against time, tables, figures and error lines.

Imports no framework but matplotlib, and of that only the figures that need no display.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import dataclasses
import io
import os
import sys
from typing import Any
from typing import NamedTuple

from matplotlib import figure as mpl_figure
import numpy as np

from actorQ import config as config_lib
from actorQ import config_checks
from actorQ import errors
from actorQ import files
from actorQ import telemetry

# As ActorQ's results page: "running mean (window=10)" (arXiv:1910.01055's project).
DEFAULT_WINDOW = 10
PRECISION_NAMES = config_checks.PRECISION_NAMES
# Told apart by the colour-blind, too (Okabe and Ito's palette).
PRECISION_COLOURS = {32: "#0072B2", 16: "#009E73", 8: "#D55E00", 4: "#CC79A7"}
_TASK_STYLES = ("-", "--", ":", "-.")
NOT_AVAILABLE = "n/a"
# Settings in which the runs of one comparison may differ without harm.
PRIVATE_SETTINGS = frozenset(
    ("quantize", "seed", "logpath", "port", "server_address", "run_start_time", "launch_id",
     "actor_id")
)


@dataclasses.dataclass(frozen=True)
class Run:
    """One run folder and what its config.json says."""

    folder: str
    config: config_lib.RunConfig
    algorithm: str  # Resolved, where the learner recorded it; else the flag, maybe "auto".
    surroundings: Mapping[str, Any]  # Processor, cores, learner device, commit: to compare.

    @property
    def task(self) -> str:
        """The task as 'suite,task'."""
        text = self.config.taskstr
        return text if "," in text else f"gym,{text}"

    @property
    def precision(self) -> int:
        """Bits of the actors' inference."""
        return self.config.quantize


class Curve(NamedTuple):
    """Evaluations of one run, all of shape [T]."""

    seconds: np.ndarray
    returns: np.ndarray  # One episode each.
    smoothed: np.ndarray  # Running mean of `returns`.
    evaluation_s: np.ndarray  # Cumulative seconds spent on evaluation.


class MeanCurve(NamedTuple):
    """Running means of several seeds on one time grid, all of shape [T]."""

    seconds: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # Lowest seed.
    high: np.ndarray  # Highest seed.
    evaluation_s: np.ndarray  # Mean over the seeds.


def load_run(folder: str) -> Run:
    """Reads what a run was.

    Raises:
      errors.UserError: `folder` is not a run folder.
    """
    record = config_lib.load_record(folder)
    config = config_lib.RunConfig.load(folder)
    about = surroundings(
        record.get("machine", {}), record.get("learner_device"), record.get("git_commit")
    )
    return Run(folder, config, record.get("algorithm", config.algorithm), about)


def surroundings(
    machine: Mapping[str, Any], learner_device: str | None, git_commit: str | None
) -> dict[str, Any]:
    """Returns what `Run` knows of a run besides its settings; what was not noted is None."""
    return {
        "processor": machine.get("processor"),
        "usable_cores": machine.get("usable_cores"),
        "learner_device": learner_device,
        "git_commit": git_commit,
    }


def load_runs(folders: Sequence[str]) -> list[Run]:
    """Reads what the runs were.

    Raises:
      errors.UserError: one is not a run folder, or appears twice.
    """
    seen = set()
    for folder in folders:
        if os.path.realpath(folder) in seen:
            raise errors.UserError(f"The run {folder} is named twice.")
        seen.add(os.path.realpath(folder))
    return [load_run(folder) for folder in folders]


def differing_settings(runs: Sequence[Run], allowed: Sequence[str] = ()) -> list[str]:
    """Returns 'setting (value, value)' for each setting in which the runs differ.

    Args:
      runs: the runs to compare.
      allowed: settings that may differ besides `PRIVATE_SETTINGS`.
    """
    settings = [{**dataclasses.asdict(run.config), **run.surroundings} for run in runs]
    lines = []
    for name in settings[0]:
        values = list(dict.fromkeys(str(setting[name]) for setting in settings))
        if name in runs[0].surroundings:  # What an older version did not note is not known.
            values = [value for value in values if value != "None"]
        if len(values) > 1 and name not in PRIVATE_SETTINGS and name not in allowed:
            lines.append(f"{name} ({', '.join(values)})")
    return lines


def run_labels(runs: Sequence[Run]) -> list[str]:
    """Returns the shortest labels that tell the runs apart: precision, period, folder."""
    names = [PRECISION_NAMES[run.precision] for run in runs]
    if len(set(names)) == len(names):
        return names
    names = [
        f"{name}, period {run.config.actor_update_period}"
        for name, run in zip(names, runs, strict=True)
    ]
    if len(set(names)) == len(names):
        return names
    return [
        f"{PRECISION_NAMES[run.precision]} ({os.path.basename(os.path.abspath(run.folder))})"
        for run in runs
    ]


def task_style(index: int) -> str:
    """Returns the line style of a task, where a figure has several."""
    return _TASK_STYLES[index % len(_TASK_STYLES)]


def read_log(*path: str) -> dict[str, np.ndarray]:
    """Reads a log into arrays.

    Args:
      *path: parts of the path, to be joined.

    Raises:
      errors.UserError: missing, empty or damaged, or several runs wrote to one file.
    """
    name = os.path.join(*path)
    columns = {key: np.asarray(values) for key, values in telemetry.read_csv(name).items()}
    if np.any(np.diff(columns["seconds"]) < 0):
        raise errors.UserError(
            f"The log {name} goes back in time: several runs wrote to this folder. Give every run "
            "a --logpath of its own."
        )
    return columns


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Returns the mean of each value and its up to `window` - 1 predecessors, shape [T]."""
    sums = np.cumsum(np.concatenate(([0.0], values)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def load_curve(run_folder: str, window: int = DEFAULT_WINDOW) -> Curve:
    """Reads the learner's evaluations.

    Raises:
      errors.UserError: there are none.
    """
    path = os.path.join(run_folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
    columns = read_log(path)
    whole = np.isfinite(columns["episode_return"]) & np.isfinite(columns["evaluation_s"])
    if not whole.any():
        raise errors.UserError(f"The log {path} has no whole row.")
    returns = columns["episode_return"][whole]
    return Curve(
        columns["seconds"][whole],
        returns,
        running_mean(returns, window),
        columns["evaluation_s"][whole],
    )


def mean_curve(curves: Sequence[Curve]) -> MeanCurve:
    """Averages the running means of several seeds.

    The grid is every moment at which any seed was evaluated, from the moment on at which all
    have been; between its evaluations, and after its end, a seed holds its last value.
    """
    start = max(curve.seconds[0] for curve in curves)
    grid = np.unique(np.concatenate([curve.seconds for curve in curves]))
    grid = grid[grid >= start]

    def hold(seconds: np.ndarray, values: np.ndarray) -> np.ndarray:
        return values[np.searchsorted(seconds, grid, side="right") - 1]

    smoothed = np.stack([hold(curve.seconds, curve.smoothed) for curve in curves])
    evaluation_s = np.stack([hold(curve.seconds, curve.evaluation_s) for curve in curves])
    return MeanCurve(
        grid, smoothed.mean(0), smoothed.min(0), smoothed.max(0), evaluation_s.mean(0)
    )


def throughput(run_folder: str) -> tuple[float, float]:
    """Returns actor steps/s and learner steps/s of a run, NaN where one row is all there is.

    Raises:
      errors.UserError: the learner's log cannot be read.
    """
    columns = read_log(run_folder, telemetry.LEARNER, telemetry.TRAIN_CSV)
    elapsed_s = columns["seconds"][-1] - columns["seconds"][0]
    if elapsed_s <= 0:
        return float("nan"), float("nan")
    actor, learner = (
        (columns[name][-1] - columns[name][0]) / elapsed_s
        for name in ("actor_steps", "learner_steps")
    )
    return float(actor), float(learner)


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


def make_folder(folder: str) -> None:
    """Makes a folder for output.

    Raises:
      errors.UserError: it cannot be made.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.UserError(f"Cannot make the folder {folder}: {error.strerror}.") from error


def write_text(path: str, text: str) -> None:
    """Writes a file; should that fail, what it held before is still there.

    Raises:
      errors.UserError: it cannot be written.
    """
    if os.path.isfile(path) and not os.path.islink(path) or not os.path.lexists(path):
        files.write(path, text)
        return
    with files.writing(path), open(path, "w", encoding="utf-8") as file:  # Such as /dev/stdout.
        file.write(text)


def write_csv(path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows of equal keys, NaN as an empty cell; see `write_text`.

    Raises:
      errors.UserError: the file cannot be written.
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
    # Counts are exact: of more than six digits, too.
    return int(value) if value.is_integer() else f"{value:.6g}"


def new_figure(panels: int = 1, height: float = 4.2) -> tuple[mpl_figure.Figure, list[Any]]:
    """Returns a figure and its panels, one above the other on one time axis.

    Args:
      panels: number of panels.
      height: of the figure, inches.
    """
    return new_grid(panels, 1, (7.0, height), sharex=True)


def new_grid(
    rows: int, columns: int, size: tuple[float, float], **shared: bool
) -> tuple[mpl_figure.Figure, list[Any]]:
    """Returns a figure and its panels, row after row.

    Args:
      rows: of panels.
      columns: of panels.
      size: of the figure, width and height, inches.
      **shared: axes that panels have in common, sharex and sharey, as matplotlib takes them.
    """
    figure = mpl_figure.Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, **shared).ravel())
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def keep_flat(axis: Any, least: float) -> None:
    """Gives a y axis a least height: else luck, or rounding, would fill a panel as a loss does.

    Args:
      axis: drawn already.
      least: between its ends.
    """
    low, high = axis.get_ylim()
    lacking = least - (high - low)
    if lacking > 0:
        axis.set_ylim(low - lacking / 2, high + lacking / 2)


def save_figure(figure: mpl_figure.Figure, path: str) -> str:
    """Writes a figure and returns its path.

    Raises:
      errors.UserError: it cannot be written.
    """
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from error
    return path


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
      folder: made if missing.
      stem: name of the files without ending.
      text: Markdown.
      rows: of the CSV.
      figure_name: of the PNG.
      draw: draws the figure into the path that it is given.
    """
    make_folder(folder)
    write_text(os.path.join(folder, f"{stem}.md"), text)
    write_csv(os.path.join(folder, f"{stem}.csv"), rows)
    draw(os.path.join(folder, figure_name))


def run_script(name: str, main: Callable[[Sequence[str]], None]) -> None:
    """Runs a script whose arguments argparse parses: absl has no lists of folders.

    An error that the user can mend becomes one line on stderr and exit code 1, as in `cli.run`.

    Args:
      name: of the script, for the line.
      main: takes the arguments without the program.
    """
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except errors.UserError as error:
        errors.report(name, str(error))
        raise SystemExit(1) from None
    except OSError as error:
        # What is still in stdout's buffer would fail again at the very end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `| head` has seen enough.
            errors.report(name, f"Cannot read or write: {error}.")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        errors.report(name, "Interrupted.")
        raise SystemExit(130) from None
