"""Draws the error of quantization against the width of the weights, and the weights themselves.

Used by `findings`. Imports no framework but matplotlib until weights are read.
"""

from collections.abc import Sequence
import math
import os
import re
import textwrap
from typing import Any

from absl import logging
from matplotlib import ticker
import numpy as np

from actorQ.core import errors
from actorQ.core import lean_imports
from actorQ.core import plotting
from baseline.agents import weight_files
from baseline.quantization import weight_statistics
from baseline.study import intervals
from baseline.study import sweeps as sweeps_lib
from baseline.study import weight_plots
from baseline.study import width_relation

_COLUMNS = 3
_LEAST_HEIGHT = 1.0  # Least height of a panel, in percent.
_NEAR = (0.08, 0.1)  # Parts of a panel's width and height that a number takes.
# Largest relative difference of widths between an agent and its row.
_SAME_WIDTH = 1e-3
# Colours and markers of the algorithms.
_STYLES = {
    "a2c": (plotting.INDIGO, "o"), "ppo": (plotting.OLIVE, "s"), "dqn": (plotting.WINE, "^"),
    "ddpg": (plotting.ORANGE, "D"), "d4pg": (plotting.SAND, "v"), "td3": ("0.6", "P"),
    "sac": ("black", "X"),
}
_OTHER = ("0.3", "o")


def draw_relation(path: str, relation: width_relation.Relation, described: str) -> str:
    """Draws a panel for each group, with the intervals of E; returns `path`.

    The relation has at least one group; `described` is the quantization, for the title.
    """
    over_environments = relation.over == width_relation.ENVIRONMENTS
    columns = min(2 if over_environments else _COLUMNS, len(relation.groups))
    rows = math.ceil(len(relation.groups) / columns)
    width, height = (4.6, 3.3) if over_environments else (3.4, 2.5)
    size = (max(width * columns, 6.0), height * rows + 1.1)
    figure, axes = plotting.new_grid(rows, columns, size)
    numbers = None
    if over_environments:  # Names of environments would cover each other.
        found = sorted({point.env for group in relation.groups for point in group.points})
        numbers = {name: number for number, name in enumerate(found, start=1)}
    for ax, group in zip(axes, relation.groups, strict=False):
        _draw_group(ax, group, numbers)
    for name, number in (numbers or {}).items():
        axes[0].plot([], [], linestyle="", label=f"{number}: {name}")
    for label, face in (("0 outside E's 95 % interval", "0.3"), ("0 within it", "white")):
        axes[0].plot([], [], "o", color="0.3", markerfacecolor=face, label=label)
    for ax in axes[len(relation.groups) :]:
        ax.set_axis_off()
    for ax in axes[max(0, len(relation.groups) - columns) : len(relation.groups)]:
        ax.set_xlabel("Width of the fp32 weights (central 99 %)", fontsize=plotting.TEXT)
    figure.supylabel("E (%), above zero is a loss", fontsize=plotting.TEXT)
    figure.suptitle(
        f"Width of the weights against E over {relation.over}\n{described}", fontsize=plotting.TITLE
    )
    verdict = textwrap.fill(relation.verdict(), 110)
    plotting.legend_below(figure, 3 if over_environments else 6, verdict)
    return plotting.save_figure(figure, path)


def _draw_group(ax: Any, group: width_relation.Group, numbers: dict[str, int] | None) -> None:
    """Draws the agents, named by their environments' numbers, or by their algorithms."""
    ax.axhline(0, color="0.5", linewidth=0.8)
    ax.margins(x=0.15, y=0.18)
    for point in group.points:
        colour, marker = _STYLES.get(point.algo, _OTHER)
        # Error bars have to hold their point, which bootstrap intervals need not.
        ax.vlines(
            point.width, 100 * point.low, 100 * point.high, color=colour, linewidth=1.4
        )
        ax.plot(
            point.width, 100 * point.error, marker, color=colour, markersize=6,
            markerfacecolor=colour if point.certain else "white",
        )
        if numbers is None:
            ax.plot([], [], f"{marker}-", color=colour, label=point.algo.upper())
    for point, near in zip(group.points, _near(group.points), strict=True):
        if numbers is not None:
            first = near[0] if near else point
            ax.annotate(
                str(numbers[point.env]), (point.width, 100 * first.error),
                textcoords="offset points", xytext=(5, 3 + plotting.SMALL * len(near)),
                fontsize=plotting.SMALL, color="0.25",
            )
    name = group.name if numbers is None else group.name.upper()
    correlation = "" if group.correlation is None else f"ρ = {group.correlation:+.2f}, "
    ax.set_title(f"{name}: {correlation}n = {len(group.points)}", fontsize=plotting.TEXT)
    plotting.keep_flat(ax, _LEAST_HEIGHT)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(ticker.MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    ax.tick_params(labelsize=plotting.SMALL)


def _near(points: Sequence[width_relation.Point]) -> list[list[width_relation.Point]]:
    """Returns for each point those before it that are so near that their numbers would meet."""
    wide = _NEAR[0] * (max(p.width for p in points) - min(p.width for p in points))
    high = _NEAR[1] * (max(p.high for p in points) - min(p.low for p in points))
    return [
        [
            other for other in points[:index]
            if abs(point.width - other.width) <= wide and abs(point.error - other.error) <= high
        ]
        for index, point in enumerate(points)
    ]


def draw_weights(
    agents: Sequence[width_relation.Point],
    relations: Sequence[width_relation.Relation],
    sweeps: Sequence[sweeps_lib.Sweep],
    folder: str,
    out: str,
) -> list[str]:
    """Draws the weights of each group's agents side by side; returns the paths.

    The sweeps tell the agents' names in their folder, FOLDER/ALGO/ENV_1/ENV.zip.

    Raises:
      errors.UserError: none of the agents is there, or one is damaged.
    """
    # An environment may have several names; the width tells which one the agent has.
    old_names = {
        (sweep.algo, sweep.shown_env, sweep.fp32.weight_width): sweep.env for sweep in sweeps
    }
    models = {}
    for point in agents:
        weights = _weights(point, old_names[point[:3]], folder)
        if weights is not None:
            models[point] = weights
    if not models:
        raise errors.UserError(f"{folder} has none of the agents (FOLDER/ALGO/ENV_1/ENV.zip).")
    paths = []
    for relation in relations:
        for group in relation.groups:
            over_environments = relation.over == width_relation.ENVIRONMENTS
            shown = [
                weight_plots.Model(
                    point.env if over_environments else point.algo.upper(),
                    f"width {point.width:.3g}, E {intervals.fixed(100 * point.error, 2)} %",
                    models[point],
                )
                for point in group.points
                if point in models
            ]
            if len(shown) < 2:
                continue
            name = group.name.upper() if over_environments else group.name
            paths.append(
                weight_plots.draw_models(
                    os.path.join(out, f"weights-{_file_name(group.name)}.png"),
                    f"{name}\nWeights over {relation.over}, narrowest to widest",
                    shown,
                )
            )
    return paths


def _weights(point: width_relation.Point, env: str, folder: str) -> np.ndarray | None:
    """Returns an agent's weights [N], or None with a warning if it is not there."""
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from baseline.agents import finding

    if (point.algo, env) not in finding.found(folder):
        logging.warning("Not drawn: %s has no agent %s %s.", folder, point.algo, env)
        return None
    path = finding.find(point.algo, env, folder)
    numbers = weight_statistics.flatten(weight_files.read(path).weights())
    width = weight_statistics.statistics(numbers).width
    if abs(width - point.width) > _SAME_WIDTH * abs(point.width):
        logging.warning(
            "Not drawn: %s is not the agent of the rows (width %.4g there, %.4g here).",
            path, point.width, width,
        )
        return None
    return numbers


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name).strip("_")
