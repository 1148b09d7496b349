"""Breaks the run time of actors down into phases, several runs side by side.

    python -m actorQ.scripts.breakdown_table logs/fp32 logs/fp16 logs/int8 --out results

The tables go to stdout. With --out they also go to breakdown.md and breakdown.csv, and the bars of
QuaRL's figure to breakdown.png.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import sys

import numpy as np

from actorQ.core import output
from actorQ.core import precisions
from actorQ.experiments.reports import breakdown as breakdown_report
from actorQ.experiments.run_logs import actor_time
from actorQ.experiments.run_logs import curves

_NAME = "breakdown_table"


def markdown(breakdowns: Mapping[str, actor_time.Breakdown]) -> str:
    """Returns the tables and their notes."""
    header = ["Phase"]
    for label in breakdowns:
        header += [f"{label}: s", "share", "µs/step"]
    rows = []
    for phase, name in actor_time.PHASE_NAMES.items():
        row = [name]
        for item in breakdowns.values():
            row += [
                output.number(item.seconds[phase], 2),
                _percent(item.share(phase)),
                output.number(item.phases_us[phase]),
            ]
        rows.append(row)
    total = ["all phases"]
    for item in breakdowns.values():
        per_step = output.number(sum(item.phases_us.values()))
        total += [output.number(item.total_s, 2), _percent(100.0), per_step]
    text = output.markdown_table(header, [*rows, total]) + "\n"

    header = [
        "Run", "Actors", "Steps/actor", "Steps/s/actor", "Time in phases", "Staleness at looks",
        "Convert, ms", "Message, bytes", "fp32, bytes", "fp32/message",
    ]
    rows = [
        [
            label,
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
        for label, item in breakdowns.items()
    ]
    text += output.markdown_table(header, rows)
    return text + "\n" + "\n".join(f"- {line}" for line in _notes(breakdowns)) + "\n"


def csv_rows(breakdowns: Mapping[str, actor_time.Breakdown]) -> list[dict[str, object]]:
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
            "us_per_step": item.phases_us[phase],
            "steady_state": int(item.steady),
            "steps_per_actor": item.steps,
            "staleness_steps": item.staleness_steps,
            "convert_ms": item.convert_ms,
            "message_bytes": item.message_bytes,
            "fp32_bytes": item.fp32_bytes,
        }
        for item in breakdowns.values()
        for phase, name in actor_time.PHASE_NAMES.items()
    ]


def draw(breakdowns: Mapping[str, actor_time.Breakdown], path: str) -> str:
    """Draws a bar of phases for each run; returns `path`."""
    bars = [
        breakdown_report.Bar(label, item.phases_us, item.step_us)
        for label, item in breakdowns.items()
    ]
    tasks = dict.fromkeys(item.run.task for item in breakdowns.values())
    periods = sorted({item.run.config.actor_update_period for item in breakdowns.values()})
    panel = f"actor_update_period {' and '.join(map(str, periods))}"
    return breakdown_report.draw(", ".join(tasks), {panel: bars}, path)


def main(arguments: Sequence[str]) -> None:
    """Prints the tables; writes files where --out says."""
    parser = argparse.ArgumentParser(
        f"python -m actorQ.scripts.{_NAME}",
        description="Breaks the run time of actors down into phases, several runs side by side.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, shown side by side")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the files (made if missing)")
    options = parser.parse_args(arguments)
    runs = curves.load_runs(options.runs)
    labels = curves.run_labels(runs)
    breakdowns = {label: actor_time.load(run) for run, label in zip(runs, labels, strict=True)}
    text = markdown(breakdowns)
    sys.stdout.write(text)
    if options.out:
        output.write_report(
            options.out, "breakdown", text, csv_rows(breakdowns), "breakdown.png",
            lambda path: draw(breakdowns, path),
        )


def _percent(value: float) -> str:
    return f"{value:.1f} %" if np.isfinite(value) else output.NOT_AVAILABLE


def _notes(breakdowns: Mapping[str, actor_time.Breakdown]) -> list[str]:
    notes = [
        f"**Warning**: {label}: {warning}"
        for label, item in breakdowns.items() for warning in item.warnings
    ]
    differing = curves.differing_settings(
        [item.run for item in breakdowns.values()], allowed=("actor_update_period",)
    )
    if differing:
        notes.append(
            "**Warning**: the runs differ in more than precision, update period and seed: "
            f"{'; '.join(differing)}."
        )
    notes += [
        f"**Warning**: {label}: an actor has a single row, so its numbers include warm-up."
        for label, item in breakdowns.items() if not item.steady
    ]
    return [
        *notes,
        "The numbers are of the steady state without warm-up: last row less first row of each "
        "actor's log, mean over the actors. Shares are of all phases together.",
        "Pull and deserialize run on a thread of their own beside the other phases. They delay "
        "the actor's steps only as far as the two share a core, and all phases together can "
        "exceed the time that went by.",
        "Staleness at looks is the number of learner steps by which the weights in use lag behind "
        "when an actor has looked for newer ones: the median over the rows of the actors' logs. "
        "actorQ.experiments.run_logs.staleness has the mean over time. Conversion and bytes are "
        "medians of the broadcaster.",
    ]


if __name__ == "__main__":
    output.run_script(_NAME, main)
