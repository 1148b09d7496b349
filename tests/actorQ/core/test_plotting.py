"""Tests `plotting`: the colours of precisions, and that plots take colours from there only."""

import pathlib
import re

import pytest

from actorQ.core import plotting
from actorQ.core import precisions

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Shades of grey ("0.6", "black") are free for all.
COLOUR = re.compile(r"""["'](?:#[0-9A-Fa-f]{3,8}|tab:\w+|C\d)["']""")
OTHERS = (plotting.INDIGO, plotting.OLIVE, plotting.WINE, plotting.SAND, plotting.ORANGE)


def test_every_precision_has_a_colour_of_its_own():
    assert set(precisions.NAMES.values()) < set(plotting.PRECISION_COLOURS)
    colours = [*plotting.PRECISION_COLOURS.values(), *OTHERS]
    assert len({*colours}) == len(colours)
    assert plotting.precision_colour(8) == plotting.PRECISION_COLOURS["int8"]


@pytest.mark.parametrize("folder", ("actorQ", "baseline", "tests/faults"))
def test_plots_take_their_colours_from_plotting(folder):
    own = [
        str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")
        if COLOUR.search(path.read_text())
    ]
    assert own == (["actorQ/core/plotting.py"] if folder == "actorQ" else [])


def test_legend_names_each_label_once():
    figure, axes = plotting.new_figure(2)
    for ax in axes:
        ax.plot([0, 1], [0, 1], label="fp32")
    plotting.legend_below(figure, 2, "note")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fp32"]
