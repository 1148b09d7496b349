"""Draws what quantization did to a run's policy, from the logs of the broadcaster's meter.

Imports no framework but matplotlib.
"""

from collections.abc import Mapping
import os
from typing import NamedTuple

import numpy as np

from actorQ.core import telemetry
from actorQ.experiments.run_logs import curves

QUANTIZATION_PNG = "quantization.png"
_PANEL_HEIGHT = 1.9  # Inches.

Log = Mapping[str, np.ndarray]


class _Line(NamedTuple):
    """A line of a panel.

    Attributes:
      log: Log whose column `seconds` has the times.
      values: Numbers to draw; NaN for rows that have none.
      layer: Layer that they belong to; "" for the whole policy.
      style: Style of matplotlib.
    """

    log: Log
    values: np.ndarray
    layer: str = ""
    style: str = "-"


def read(run_folder: str) -> dict[str, Log]:
    """Returns the logs that hold figures of the meter, by name; older runs have none.

    Args:
      run_folder: Folder of a run.
    """
    logs: dict[str, Log] = {}
    needed = {telemetry.UPDATES_CSV: "changed_share", telemetry.METER_CSV: "seconds"}
    for name, column in needed.items():
        path = os.path.join(run_folder, telemetry.BROADCASTER, name)
        if any(column in row for row in telemetry.last_rows(path, 2)):
            logs[name] = curves.read_log(path)
    return logs


def draw(logs: Mapping[str, Log], title: str, colour: str, time_label: str, path: str) -> str:
    """Draws a panel for each figure that the logs have.

    Args:
      logs: Result of `read`, not empty.
      title: Title of the figure.
      colour: Colour of the run's precision.
      time_label: Label of the time axis.
      path: Path of the picture.

    Returns:
      The path.
    """
    # The end of a run alone needs matplotlib.
    from actorQ.core import plotting

    panels = _panels(logs)
    palette = (plotting.INDIGO, plotting.ORANGE, plotting.WINE, plotting.OLIVE, plotting.SAND)
    layers = dict.fromkeys(line.layer for lines in panels.values() for line in lines if line.layer)
    colours = {layer: palette[index % len(palette)] for index, layer in enumerate(layers)}
    figure, axes = plotting.new_figure(len(panels), 1.2 + _PANEL_HEIGHT * len(panels))
    for ax, (label, lines) in zip(axes, panels.items(), strict=True):
        for line in lines:
            whole = np.isfinite(line.values)
            ax.plot(
                line.log["seconds"][whole], line.values[whole], line.style, linewidth=1.4,
                color=colours.get(line.layer, colour), label=line.layer or None,
                marker="o" if whole.sum() == 1 else "",  # A single point makes no visible line.
                clip_on=False, zorder=3,  # A line at 0 shows above the axis.
            )
        ax.set_ylabel(label)
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
    axes[-1].set_xlabel(time_label)
    axes[0].set_title(
        f"{title}\nsolid: mean distance, quantized policy; dotted: largest, full precision",
        fontsize=plotting.TITLE,
    )
    figure.align_ylabels(axes)
    plotting.legend_below(figure, 5)
    return plotting.save_figure(figure, path)


def _panels(logs: Mapping[str, Log]) -> dict[str, list[_Line]]:
    """Returns the lines of each panel that has any, by its label."""
    updates, compared = logs.get(telemetry.UPDATES_CSV, {}), logs.get(telemetry.METER_CSV, {})

    def columns(log: Log, factor: float, *names: str) -> list[_Line]:
        return [
            _Line(log, factor * log[name], style=style)
            for name, style in zip(names, ("-", ":"), strict=False)
            if name in log
        ]

    def layers(log: Log, prefix: str) -> list[str]:
        return [name.removeprefix(prefix) for name in log if name.startswith(prefix)]

    errors = [
        _Line(updates, 100 * updates[f"weight_error_{layer}"], layer)
        for layer in layers(updates, "weight_error_")
    ]
    largest = [
        _Line(
            compared,
            np.maximum(
                np.abs(compared[f"activation_low_{layer}"]),
                np.abs(compared[f"activation_high_{layer}"]),
            ),
            layer,
        )
        for layer in layers(compared, "activation_low_")
    ]
    others = []
    if "agreement" in compared:
        others = [_Line(compared, 100 * (1.0 - compared["agreement"]))]
    panels = {
        "Integers\nchanged (%)": columns(updates, 100, "changed_share"),
        "Weight error\n(%)": errors,
        "Action\ndistance": columns(compared, 1, "action_distance", "action_distance_max"),
        "Other\nactions (%)": others,
        "Lost Q": columns(compared, 1, "lost_q"),
        "Largest\nactivation": largest,
        "Actions at\nbounds (%)": columns(
            compared, 100, "quantized_actions_at_bounds", "actions_at_bounds"
        ),
    }
    # A column without numbers belongs to the other algorithm.
    whole = {
        label: [line for line in lines if np.isfinite(line.values).any()]
        for label, lines in panels.items()
    }
    return {label: lines for label, lines in whole.items() if lines}
