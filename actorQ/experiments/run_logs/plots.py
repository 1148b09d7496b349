"""Draws a run's learning curve, throughput and quantization into RUN/plots.

The launcher draws them at the end of a run, `actorQ.scripts.plot_run` at any time. Imports no
framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any

from absl import logging
import numpy as np

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import precisions
from actorQ.core import telemetry
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import meter_plot

PLOTS_FOLDER = "plots"
LEARNING_CURVE_PNG = "learning_curve.png"
THROUGHPUT_PNG = "throughput.png"
_TIME_LABEL = "Time since the start of the run (s)"


def plot_run(run_folder: str) -> list[str]:
    """Writes the figures for which the run has logs; warns of logs that are missing.

    Args:
      run_folder: Folder of a finished, failed or running run.

    Returns:
      Paths of the figures.

    Raises:
      errors.UserError: The folder is not a run folder, or has no log at all.
    """
    run = curves.load_run(run_folder)
    missing: list[str] = []
    learner = os.path.join(run_folder, telemetry.LEARNER)
    evaluations = _read(missing, learner, telemetry.EVALUATION_CSV)
    train = _read(missing, learner, telemetry.TRAIN_CSV)
    actors = telemetry.actor_folders(run_folder)
    episodes, phases = (
        [log for folder in actors if (log := _read(missing, folder, name))]
        for name in (telemetry.EPISODES_CSV, telemetry.PHASES_CSV)
    )
    if not (evaluations or train or episodes or phases):
        raise errors.UserError(f"{run_folder} has no logs to draw. {missing[0]}")
    for message in missing:
        logging.warning("Not drawn: %s", message)

    folder = os.path.join(run_folder, PLOTS_FOLDER)
    output.make_folder(folder)
    paths = []
    if evaluations or episodes:
        path = os.path.join(folder, LEARNING_CURVE_PNG)
        paths.append(_draw_learning_curve(run, evaluations, episodes, path))
    if train or phases:
        path = os.path.join(folder, THROUGHPUT_PNG)
        paths.append(_draw_throughput(run, train, phases, path))
    if metered := meter_plot.read(run_folder):
        # The end of a run alone needs matplotlib.
        from actorQ.core import plotting

        path = os.path.join(folder, meter_plot.QUANTIZATION_PNG)
        colour = plotting.precision_colour(run.precision)
        paths.append(meter_plot.draw(metered, _title(run), colour, _TIME_LABEL, path))
    return paths


def _read(missing: list[str], *path: str) -> dict[str, np.ndarray] | None:
    try:
        return curves.read_log(*path)
    except errors.UserError as error:
        missing.append(str(error))
        return None


def _draw_learning_curve(
    run: curves.Run,
    evaluations: Mapping[str, np.ndarray] | None,
    episodes: Sequence[Mapping[str, np.ndarray]],
    path: str,
) -> str:
    # The end of a run alone needs matplotlib.
    from actorQ.core import plotting

    figure, (ax,) = plotting.new_figure()
    colour = plotting.precision_colour(run.precision)
    if episodes:
        seconds = np.concatenate([log["seconds"] for log in episodes])
        returns = np.concatenate([log["episode_return"] for log in episodes])
        # Many points are drawn fainter, so that they do not fill the panel.
        alpha = float(np.clip(150 / len(seconds), 0.12, 0.6))
        actors = f"{len(episodes)} actor{'s' * (len(episodes) > 1)}"
        ax.plot(
            seconds, returns, ".", color=colour, alpha=alpha, markersize=6, markeredgewidth=0,
            label=f"episodes of {actors} ({precisions.NAMES[run.precision]}, exploring)",
        )
    if evaluations:
        seconds, returns = evaluations["seconds"], evaluations["episode_return"]
        bits = run.config.learner_fake_quantize
        played = "full precision" if bits == 32 else precisions.NAMES[bits]
        ax.plot(
            seconds, returns, "o-", color="0.6", linewidth=0.8, markersize=2.5,
            label=f"evaluation ({played}, greedy)",
        )
        ax.plot(
            seconds, curves.running_mean(returns, curves.DEFAULT_WINDOW), color="black",
            linewidth=2, marker="o" if len(seconds) == 1 else "",
            label=f"evaluation, running mean of {curves.DEFAULT_WINDOW}",
        )
    ax.set_xlabel(_TIME_LABEL)
    ax.set_ylabel("Episode return")
    ax.set_xlim(left=0)
    legend = figure.legend(
        loc="outside lower center", ncols=2, frameon=False, fontsize=plotting.SMALL
    )
    for handle in legend.get_lines():
        handle.set_alpha(1)
    ax.set_title(_title(run), fontsize=plotting.TITLE)
    return plotting.save_figure(figure, path)


def _draw_throughput(
    run: curves.Run,
    train: Mapping[str, np.ndarray] | None,
    phases: Sequence[Mapping[str, np.ndarray]],
    path: str,
) -> str:
    from actorQ.core import plotting

    figure, axes = plotting.new_figure(panels=3, height=5.6)
    colour = plotting.precision_colour(run.precision)
    for ax, name in zip(axes, ("actor_steps_per_s", "learner_steps_per_s"), strict=False):
        _draw_rate(ax, train, name, colour)
    axes[0].set_ylabel(f"Actor steps/s\n(all {run.config.n_actors})")
    axes[1].set_ylabel("Learner steps/s")
    _draw_rate(axes[2], _merge(phases), "staleness_steps", colour, len(phases))
    axes[2].set_ylabel("Staleness\n(learner steps)")
    axes[2].set_xlabel(_TIME_LABEL)
    for ax in axes:
        ax.set_ylim(0, max(1.0, ax.get_ylim()[1]))
        ax.set_xlim(left=0)
    axes[0].set_title(
        f"{_title(run)}\ndots: rows of the log; line: running mean of {curves.DEFAULT_WINDOW}",
        fontsize=plotting.TITLE,
    )
    figure.align_ylabels(axes)
    return plotting.save_figure(figure, path)


def _merge(logs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray] | None:
    """Puts the actors' rows into one log, by time."""
    if not logs:
        return None
    order = np.argsort(np.concatenate([log["seconds"] for log in logs]), kind="stable")
    return {name: np.concatenate([log[name] for log in logs])[order] for name in logs[0]}


def _draw_rate(
    ax: Any, log: Mapping[str, np.ndarray] | None, name: str, colour: str, writers: int = 1
) -> None:
    """Draws a column and its running mean over DEFAULT_WINDOW rows of each writer of the log."""
    whole = np.isfinite(log[name]) if log else np.zeros(0, bool)
    if log is None or not whole.any():
        ax.text(0.5, 0.5, "no log", transform=ax.transAxes, ha="center", color="0.5")
        return
    seconds, values = log["seconds"][whole], log[name][whole]
    ax.plot(seconds, values, ".", color=colour, alpha=0.2, markersize=5, markeredgewidth=0)
    mean = curves.running_mean(values, curves.DEFAULT_WINDOW * writers)
    # A single point makes no visible line, so it gets a marker.
    ax.plot(seconds, mean, "o" if len(seconds) == 1 else "-", color=colour, linewidth=1.6)


def _title(run: curves.Run) -> str:
    precision = precisions.NAMES[run.precision]
    return f"{run.task} ({run.algorithm}), {precision} actors, seed {run.config.seed}"

