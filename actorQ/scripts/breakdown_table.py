"""Breaks the run time of actors down into phases, runs side by side as in QuaRL's figure.

    python -m actorQ.scripts.breakdown_table logs/fp32 logs/fp16 logs/int8 --out results

Tables go to stdout, and with --out to breakdown.md and breakdown.csv, beside breakdown.png.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
import sys

from matplotlib import colors
import numpy as np

from actorQ.core import curves
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import precisions
from actorQ.core import telemetry

_NAME = "breakdown_table"
# Between two rows of an actor's log: it was dead, or waited for the learner.
_LONGEST_GAP = 5  # Times the usual.
_OUTAGE_S = 3.0  # And at least.
# The paper's phases with its names, in its order; ours follow.
PAPER_PHASES = {
    "inference_s": "step (inference)",
    "pull_s": "pull",
    "deserialize_s": "deserialize",
    "load_state_dict_s": "load_state_dict",
}
PHASE_NAMES = PAPER_PHASES | {
    phase: phase.removesuffix("_s") for phase in telemetry.PHASES if phase not in PAPER_PHASES
}


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """One run; seconds and steps are means over its actors."""

    run: curves.Run
    label: str
    actors: int
    seconds: Mapping[str, float]  # By phase, in the order of `PHASE_NAMES`.
    steps: float
    elapsed_s: float  # NaN if the logs have one row, whose process started at an unknown time.
    steady: bool  # False: an actor has one row only, from which warm-up cannot be taken.
    loads: float  # Of weights, mean over its actors; NaN if not logged.
    staleness_steps: float  # At looks for weights, median, learner steps.
    convert_ms: float  # Medians of the broadcaster.
    message_bytes: float
    fp32_bytes: float
    warnings: list[str]

    @property
    def total_s(self) -> float:
        """Seconds in all phases."""
        return sum(self.seconds.values())

    def share(self, phase: str) -> float:
        """Returns the part of `total_s` in a phase, percent."""
        return 100 * self.seconds[phase] / self.total_s if self.total_s else float("nan")

    def us_per_step(self, phase: str) -> float:
        """Returns microseconds per environment step in a phase."""
        return _per_step(1e6 * self.seconds[phase], self.steps)


def load(run: curves.Run, label: str, start_s: float = -math.inf,
         end_s: float = math.inf) -> Breakdown:
    """Reads the logs of a run.

    Args:
      run: whose logs.
      label: what it is called beside others.
      start_s: rows of actors' logs before it are left out; seconds since the launch, as logged.
      end_s: the same with rows behind it.

    Raises:
      errors.UserError: no actor, or not the broadcaster, left a log.
    """
    names, warnings, actors = list(PHASE_NAMES), [], []
    failure = errors.UserError(f"{run.folder} has no logs of actors.")
    for folder in telemetry.actor_folders(run.folder):
        try:
            actors.append(_Actor.load(folder, start_s, end_s))
        except errors.UserError as error:
            # An actor that was only just started must not hide the others.
            failure = error
            warnings.append(f"left out: {error}")
    if not actors:
        raise failure
    updates = curves.read_log(run.folder, telemetry.BROADCASTER, telemetry.UPDATES_CSV)
    phases = np.mean([actor.seconds for actor in actors], axis=0)
    return Breakdown(
        run,
        label,
        len(actors),
        dict(zip(names, phases.tolist(), strict=True)),
        float(np.mean([actor.steps for actor in actors])),
        float(np.mean([actor.elapsed_s for actor in actors])),
        all(actor.steady for actor in actors),
        float(np.mean([actor.loads for actor in actors])),
        _median(np.concatenate([actor.staleness for actor in actors])),
        1e3 * _median(updates["convert_s"]),
        _median(updates["message_bytes"]),
        _median(updates["fp32_bytes"]),
        warnings,
    )


def load_all(folders: Sequence[str]) -> list[Breakdown]:
    """Reads several runs, in the order given.

    Raises:
      errors.UserError: a log cannot be read, or a run is named twice.
    """
    runs = curves.load_runs(folders)
    labels = curves.run_labels(runs)
    return [load(run, label) for run, label in zip(runs, labels, strict=True)]


def markdown(breakdowns: Sequence[Breakdown]) -> str:
    """Returns the tables and their notes."""
    header = ["Phase"]
    for item in breakdowns:
        header += [f"{item.label}: s", "share", "µs/step"]
    rows = []
    for phase, name in PHASE_NAMES.items():
        row = [name]
        for item in breakdowns:
            row += [
                output.number(item.seconds[phase], 2),
                _percent(item.share(phase)),
                output.number(item.us_per_step(phase)),
            ]
        rows.append(row)
    total = ["all phases"]
    for item in breakdowns:
        per_step = output.number(_per_step(1e6 * item.total_s, item.steps))
        total += [output.number(item.total_s, 2), _percent(100.0), per_step]
    text = output.markdown_table(header, [*rows, total]) + "\n"

    header = [
        "Run", "Actors", "Steps/actor", "Steps/s/actor", "Time in phases", "Staleness at looks",
        "Convert, ms", "Message, bytes", "fp32, bytes", "fp32/message",
    ]
    rows = [
        [
            item.label,
            str(item.actors),
            output.number(item.steps, 0),
            output.number(item.steps / item.elapsed_s),
            _percent(100 * item.total_s / item.elapsed_s),
            output.number(item.staleness_steps),
            output.number(item.convert_ms, 2),
            output.number(item.message_bytes, 0),
            output.number(item.fp32_bytes, 0),
            output.number(item.fp32_bytes / item.message_bytes, 2),
        ]
        for item in breakdowns
    ]
    text += output.markdown_table(header, rows)
    return text + "\n" + "\n".join(f"- {line}" for line in _notes(breakdowns)) + "\n"


def csv_rows(breakdowns: Sequence[Breakdown]) -> list[dict[str, object]]:
    """Returns one row for each run and phase."""
    return [
        {
            "run": item.run.folder,
            "task": item.run.task,
            "precision": precisions.NAMES[item.run.precision],
            "actor_update_period": item.run.config.actor_update_period,
            "actors": item.actors,
            "phase": name,
            "seconds": item.seconds[phase],
            "share_percent": item.share(phase),
            "us_per_step": item.us_per_step(phase),
            "steady_state": int(item.steady),
            "steps_per_actor": item.steps,
            "staleness_steps": item.staleness_steps,
            "convert_ms": item.convert_ms,
            "message_bytes": item.message_bytes,
            "fp32_bytes": item.fp32_bytes,
        }
        for item in breakdowns
        for phase, name in PHASE_NAMES.items()
    ]


def draw(breakdowns: Sequence[Breakdown], path: str) -> str:
    """Draws grouped bars, microseconds per step by phase and run; returns `path`."""
    figure, (ax,) = plotting.new_figure()
    places = np.arange(len(PHASE_NAMES))
    width = 0.84 / len(breakdowns)
    drawn: dict[int, int] = {}
    for i, item in enumerate(breakdowns):
        precision = item.run.precision
        # Further runs of one precision have its colour, paler each time.
        repeat = drawn[precision] = drawn.get(precision, -1) + 1
        bars = ax.bar(
            places + (i - (len(breakdowns) - 1) / 2) * width,
            [np.nan_to_num(item.us_per_step(phase)) for phase in PHASE_NAMES],
            0.92 * width,
            color=_paler(plotting.PRECISION_COLOURS[precision], repeat),
            label=item.label,
        )
        # Small phases matter too, and only their numbers can be compared by eye.
        ax.bar_label(bars, fmt=_bar_text, fontsize=8 if len(breakdowns) < 4 else 6, padding=2)
    ax.set_xticks(places, list(PHASE_NAMES.values()), fontsize=9)
    ax.tick_params(axis="x", length=0)
    ax.set_ylabel("Actor's time per environment step (µs)")
    ax.margins(y=0.1)
    periods = sorted({item.run.config.actor_update_period for item in breakdowns})
    tasks = ", ".join(dict.fromkeys(item.run.task for item in breakdowns))
    ax.set_title(
        f"{tasks}: run time of one actor, update period {' and '.join(map(str, periods))}",
        fontsize=11,
    )
    if len(breakdowns) > 1:
        # Beneath the panel, where it hides no bar.
        figure.legend(loc="outside lower center", ncols=min(len(breakdowns), 4), frameon=False)
    else:
        ax.set_title(f"{ax.get_title()}, {breakdowns[0].label}", fontsize=11)
    return plotting.save_figure(figure, path)


def main(arguments: Sequence[str]) -> None:
    """Prints the tables; writes files where --out says."""
    parser = argparse.ArgumentParser(
        f"python -m actorQ.scripts.{_NAME}", description=__doc__.split("\n")[0]
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, shown side by side")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the files (made if missing)")
    options = parser.parse_args(arguments)
    breakdowns = load_all(options.runs)
    text = markdown(breakdowns)
    sys.stdout.write(text)
    if options.out:
        output.write_report(
            options.out, "breakdown", text, csv_rows(breakdowns), "breakdown.png",
            lambda path: draw(breakdowns, path),
        )


@dataclasses.dataclass(frozen=True)
class _Actor:
    seconds: np.ndarray  # [phases], in the order of `PHASE_NAMES`.
    steps: float
    elapsed_s: float
    loads: float
    steady: bool
    staleness: np.ndarray  # [T]

    @classmethod
    def load(cls, folder: str, start_s: float, end_s: float) -> "_Actor":
        """Reads an actor's log and takes its warm-up off, where there are rows enough."""
        columns = curves.read_log(folder, telemetry.PHASES_CSV)
        rows = (columns["seconds"] >= start_s) & (columns["seconds"] <= end_s)
        if not rows.any():
            raise errors.UserError(
                f"The log {os.path.join(folder, telemetry.PHASES_CSV)} has no row between "
                f"{start_s:g} and {end_s:g} s."
            )
        names = ("actor_steps", "seconds", "pulls", *PHASE_NAMES)
        table = np.stack([columns[name][rows] for name in names], axis=1)
        # An actor that died is started again, and goes on in the same file after a while (on Ray,
        # where its counters begin anew).
        gaps = np.diff(table[:, 1])
        longest = max(_LONGEST_GAP * np.median(gaps), _OUTAGE_S) if gaps.size else 0.0
        restarts = np.flatnonzero((np.diff(table[:, 0]) < 0) | (gaps > longest)) + 1
        lives = [life for life in np.split(table, restarts) if len(life) > 1]
        if lives:
            totals = np.sum([life[-1] - life[0] for life in lives], axis=0)
        else:
            totals = table[-1] * 1.0
            totals[1] = np.nan
        if not np.isfinite(totals[3:]).all():
            raise errors.UserError(
                f"The log {os.path.join(folder, telemetry.PHASES_CSV)} has empty cells."
            )
        staleness = columns["staleness_steps"][rows][1 if lives else 0 :]
        steps, elapsed_s, loads = totals[:3].tolist()
        return cls(totals[3:], steps, elapsed_s, loads, bool(lives), staleness)


def _median(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def _per_step(value: float, steps: float) -> float:
    return value / steps if steps > 0 else float("nan")


def _bar_text(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _percent(value: float) -> str:
    return f"{value:.1f} %" if np.isfinite(value) else output.NOT_AVAILABLE


def _paler(colour: str, times: int) -> tuple[float, float, float]:
    red, green, blue = colors.to_rgb(colour)
    keep = 0.5**times
    return 1 - keep * (1 - red), 1 - keep * (1 - green), 1 - keep * (1 - blue)


def _notes(breakdowns: Sequence[Breakdown]) -> list[str]:
    notes = [
        f"**Warning**: {item.label}: {warning}" for item in breakdowns for warning in item.warnings
    ]
    differing = curves.differing_settings(
        [item.run for item in breakdowns], allowed=("actor_update_period",)
    )
    if differing:
        notes.append(
            "**Warning**: the runs differ in more than precision, update period and seed: "
            f"{'; '.join(differing)}."
        )
    for item in breakdowns:
        if not item.steady:
            notes.append(
                f"**Warning**: {item.label}: an actor has a single row, so its numbers include "
                "warm-up."
            )
    notes.append(
        "Steady state without warm-up: last row less first row of each actor's log, mean over the "
        "actors. Share: of all phases together."
    )
    notes.append(
        "Pull and deserialize run on a thread of their own beside the other phases: their seconds "
        "delay the actor's steps only as far as the two share a core, and all phases together can "
        "exceed the time that went by."
    )
    notes.append(
        "Staleness at looks: learner steps by which the weights in use lag behind when an actor "
        "has looked for newer ones, median over the rows of the actors' logs (mean over time: "
        "actorQ.experiments.run_logs.staleness). Convert and bytes: medians of the broadcaster."
    )
    return notes


if __name__ == "__main__":
    output.run_script(_NAME, main)
