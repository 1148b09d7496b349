"""Draws which sub-package imports which, in layers: every arrow must point down.

    python -m tests.import_graph OUT.png

A box stands one layer above the highest box that it imports. `tests/test_imports.py` holds the
rules themselves.
"""

import collections
import functools
import sys

from matplotlib import pyplot as plt

from tests import test_imports


def folder_of(name):
    """Returns the sub-package of a module; programs of the top level share one box."""
    parts = name.split(".")
    below = test_imports.SOURCES[name].name == "__init__.py" or len(parts) > 2
    return ".".join(parts[:2]) if below and len(parts) > 1 else f"{parts[0]} programs"


def edges():
    """Returns the sub-packages that each sub-package imports, functions included."""
    found = collections.defaultdict(set)
    for name in test_imports.SOURCES:
        if "." not in name:
            continue
        here = folder_of(name)
        for other in test_imports.all_imports(name) & test_imports.SOURCES.keys():
            there = folder_of(other)
            if there != here and "." in other:
                found[here].add(there)
        found.setdefault(here, set())
    return found


def layers(graph):
    """Returns the layer of every box: 0 where nothing of ours is imported."""

    @functools.cache
    def layer(box):
        return max((layer(other) + 1 for other in graph[box]), default=0)

    return {box: layer(box) for box in graph}  # A circle would never end: a test refuses it.


def draw(graph, path):
    """Draws the boxes in their layers, and an arrow to each box that is not implied by others."""
    level = layers(graph)
    rows = collections.defaultdict(list)
    for box in sorted(graph):
        rows[level[box]].append(box)
    at = {
        box: ((index - (len(row) - 1) / 2) * 3.2, number)
        for number, row in rows.items() for index, box in enumerate(row)
    }
    figure, axes = plt.subplots(figsize=(13, 1.1 * len(rows) + 1))
    for box, others in graph.items():
        implied = set().union(*(graph[other] for other in others)) if others else set()
        for other in sorted(others - implied):
            axes.annotate(
                "", at[other], at[box],
                arrowprops={"arrowstyle": "->", "color": "0.6", "shrinkA": 12, "shrinkB": 12},
            )
    for box, place in at.items():
        color = "tab:blue" if box.startswith("actorQ") else "tab:orange"
        axes.text(
            *place, box, ha="center", va="center", fontsize=9,
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": color},
        )
    axes.set_xlim(min(x for x, _ in at.values()) - 2, max(x for x, _ in at.values()) + 2)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.axis("off")
    figure.savefig(path, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    draw(edges(), sys.argv[1])
