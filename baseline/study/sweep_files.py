"""Draws many agents' sweeps into files: a plot for each, and a grid for each algorithm."""

from collections.abc import Sequence
import os
import re
from typing import NamedTuple

from actorQ.core import output
from baseline.study import sweep_panel
from baseline.study import sweep_plot

FOLDER = "plots"  # Beside the results.


class Sheet(NamedTuple):
    """One agent's plot.

    Attributes:
      algo: algorithm.
      env: environment, as in the results' file.
      shown_env: as it is called today, for the panel in a grid.
      panel: with the title of a plot of its own.
    """

    algo: str
    env: str
    shown_env: str
    panel: sweep_panel.Panel


def plot_name(algo: str, env: str, settings: Sequence[str] = ()) -> str:
    """Returns the file name of a pair's plot; names such as ALE/Pong-v5 lose their slash.

    Args:
      algo: algorithm, or "overview".
      env: environment, or the algorithm of an overview.
      settings: that are not the default.
    """
    return "_".join((algo, re.sub(r"[/,]", "_", env), *settings)) + ".png"


def draw(
    folder: str,
    sheets: Sequence[Sheet],
    words: sweep_panel.Words,
    grid_title: str | None,
    settings: Sequence[str] = (),
) -> list[str]:
    """Draws the plots; returns their paths, those of grids last.

    Args:
      folder: for the PNGs, made if missing.
      sheets: the agents.
      words: of the legends.
      grid_title: of the grids, behind the algorithm; None: no grids.
      settings: that are not the default, for the names of the files.

    Raises:
      errors.UserError: a file cannot be written.
    """
    output.make_folder(folder)
    paths = [
        sweep_plot.draw(
            os.path.join(folder, plot_name(one.algo, one.env, settings)), one.panel, words
        )
        for one in sheets
    ]
    for algo in dict.fromkeys(one.algo for one in sheets) if grid_title is not None else ():
        panels = [one.panel._replace(title=one.shown_env) for one in sheets if one.algo == algo]
        path = os.path.join(folder, plot_name("overview", algo, settings))
        paths.append(sweep_plot.draw_grid(path, f"{algo}: {grid_title}", panels, words))
    return paths
