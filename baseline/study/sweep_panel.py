"""What a plot of reward against bits shows: panels, their curves and points, and its words.

Knows nothing of files and rows, so that sweeps of any kind can be drawn.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

FP32 = "fp32"
INT8 = "8*"  # Of agents quantized after training, where the widths are of another method.
FP32_COLOUR = "0.35"
# Told apart by the colour-blind, too (Okabe and Ito's palette).
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"


class Point(NamedTuple):
    """What was earned at one precision.

    Attributes:
      bits: a width, or what stands to the left of the widths: "fp16", "bf16", `INT8`, `FP32`.
      mean: return over all episodes.
      low: lower end of the band, see `Words`; None where there is none.
      high: upper end.
      seed_means: return of each seed.
    """

    bits: str
    mean: float
    low: float | None
    high: float | None
    seed_means: tuple[float, ...] = ()


class Series(NamedTuple):
    """A curve of a panel.

    Attributes:
      label: for the legend.
      colour: of matplotlib.
      points: the widths, and maybe what stands to their left.
      best: width with the best mean, to be marked; None: none.
      fewest: the sweet spot, to be marked; None: none.
      light: whether it is there for comparison only, and drawn so.
    """

    label: str
    colour: str
    points: Sequence[Point]
    best: str | None = None
    fewest: str | None = None
    light: bool = False


class Panel(NamedTuple):
    """What one agent's panel shows.

    Attributes:
      title: above it.
      fp32: at full precision, as a line from side to side.
      series: the curves; at least one with a point.
      fp32_place: whether fp32 has a place on the axis as well.
    """

    title: str
    fp32: Point
    series: Sequence[Series]
    fp32_place: bool = False


class Words(NamedTuple):
    """What a legend says.

    Attributes:
      band: what the bands are.
      dots: what the dots are.
      note: above all; may be empty.
    """

    band: str = "95 % interval of the mean"
    dots: str = "each seed"
    note: str = ""


def line_style(series: Series, small: bool = False) -> dict[str, Any]:
    """Returns what matplotlib is to draw a series with.

    The squares of a light one are seen around the points of another that lies on it.
    """
    if series.light:
        return {
            "color": series.colour, "linewidth": 0.8 if small else 1.2, "alpha": 0.8,
            "marker": "s", "markersize": 3.6 if small else 6.5, "markerfacecolor": "white",
            "markeredgewidth": 0.7 if small else 1.0, "zorder": 1.95,
        }
    return {
        "color": series.colour, "linewidth": 1.2 if small else 1.8,
        "marker": "o", "markersize": 2.2 if small else 3.8,
    }
