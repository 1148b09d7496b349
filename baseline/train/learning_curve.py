"""Draws the scores of a training run: every episode's, and their running mean.

`baseline.train` draws them at its end, `baseline.learning_curve` at any time. Both read the run's
monitor files and write `learning_curve.png` and `learning_curve.csv` (the running mean at 200
points).

Steps are those that the monitors saw; for Atari games these are frames, four to a step of the
agent. A killed run goes on from its last checkpoint, so that episodes played after it count twice.
"""

import csv
import json
import os
import pathlib

from absl import flags
import numpy as np

from actorQ.core import errors

WINDOW = 100  # Episodes in the running mean, as the zoo prints it.
POINTS = 200
NAME = "learning_curve"
STEPS, FRAMES = "environment_steps", "frames"


def read(run_folder: str | pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps (see `unit`) made at the end of every episode, and its score.

    Args:
      run_folder: Folder with SB3's `*.monitor.csv`, one for each environment. Environments take
        steps in turn: n steps of one are about n times the number of files in all.

    Returns:
      Two arrays, float64 [episodes], in order of the steps.

    Raises:
      errors.UserError: There are no files, or no episodes in them.
    """
    files = sorted(pathlib.Path(run_folder).glob("*monitor.csv"))
    steps: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    for path in files:
        rows = []
        for row in csv.reader(path.read_text(errors="replace").splitlines()):
            try:
                rows.append((float(row[0]), float(row[1])))
            except (ValueError, IndexError):  # This is a header, or an unfinished line.
                continue
        if rows:
            file_scores, lengths = np.array(rows).T
            scores.append(file_scores)
            steps.append(np.cumsum(lengths) * len(files))
    if not scores:
        raise errors.UserError(
            f"There are no scores in {run_folder}: name a run's folder (ALGO/ENV_<n>) in which an "
            "episode has ended."
        )
    order = np.argsort(np.concatenate(steps), kind="stable")
    return np.concatenate(steps)[order], np.concatenate(scores)[order]


def unit(run_folder: str | pathlib.Path) -> str:
    """Returns the unit of the steps in a run's monitor files: STEPS, or FRAMES of an Atari game.

    Games that skip frames themselves (ALE/...-v5) have steps like any other environment.
    """
    for path in sorted(pathlib.Path(run_folder).glob("*monitor.csv")):
        header = path.read_text(errors="replace").partition("\n")[0]
        try:
            env_id = json.loads(header.removeprefix("#"))["env_id"]
        except (ValueError, TypeError, KeyError):  # SB3 did not write this header.
            continue
        return FRAMES if "NoFrameskip" in str(env_id) else STEPS
    return STEPS


def draw(run_folder: str | pathlib.Path, out: str | pathlib.Path | None = None) -> pathlib.Path:
    """Writes the figure and its numbers; returns the figure's path.

    Raises:
      errors.UserError: See `read`, or the files cannot be written.
    """
    from matplotlib import ticker

    from actorQ.core import output
    from actorQ.core import plotting
    from actorQ.experiments.run_logs import curves

    steps, scores = read(run_folder)
    mean = curves.running_mean(scores, WINDOW)
    figure, (axes,) = plotting.new_figure()
    axes.plot(steps, scores, ".", color="0.75", markersize=3, label="one episode")
    axes.plot(
        steps, mean, color=plotting.WINE, linewidth=2,
        label=f"running mean of {WINDOW} episodes",
    )
    name = unit(run_folder)
    axes.set_xlabel(name.replace("_", " ").capitalize())
    axes.set_ylabel("Return")
    path = pathlib.Path(run_folder).resolve()
    axes.set_title(f"{path.parent.name} {path.name.rpartition('_')[0] or path.name}")
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    plotting.legend_below(figure, 2)
    folder = str(out or run_folder)
    output.make_folder(folder)
    chosen = np.unique(np.linspace(0, len(mean) - 1, POINTS).astype(int))
    output.write_csv(
        os.path.join(folder, f"{NAME}.csv"),
        [{name: int(steps[i]), "running_mean": float(mean[i])} for i in chosen],
    )
    return pathlib.Path(plotting.save_figure(figure, os.path.join(folder, f"{NAME}.png")))


def define_flags() -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_string("out", "", "Folder for the figure; empty: the run's own.")


def main(argv: list[str]) -> int:
    """Draws one run; see `cli.run` for errors."""
    if len(argv) != 2:
        raise errors.UserError("takes one argument: the folder of a run (ALGO/ENV_<n>).")
    print(draw(argv[1], flags.FLAGS.out or None))
    return 0
