"""The blocks that a section of the page consists of; `templates/blocks.html.j2` shows them."""

from collections.abc import Sequence
import dataclasses

import markupsafe


@dataclasses.dataclass(frozen=True)
class Text:
    """HTML that needs no escaping: Markdown whose own HTML was escaped."""

    html: markupsafe.Markup


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading of level 1 to 6."""

    text: str
    level: int


@dataclasses.dataclass(frozen=True)
class Fold:
    """Blocks that stay hidden until a reader opens them."""

    title: str
    blocks: Sequence["Block"]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of plain texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A plot that lies inside of the page.

    Attributes:
      image: The PNG file in base64.
      width: In pixels.
      height: In pixels.
      caption: The text below it, and for readers who see no images.
    """

    image: str
    width: int
    height: int
    caption: str


@dataclasses.dataclass(frozen=True)
class Origin:
    """The notes that files hold of their making, each once; empty where nothing is noted."""

    commands: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()

    @property
    def period(self) -> list[str]:
        """Returns the first and the last date; one of them where both are the same."""
        return sorted({min(self.dates), max(self.dates)}) if self.dates else []


@dataclasses.dataclass(frozen=True)
class Beside:
    """Plots beside what they show; below it, in a narrow window."""

    blocks: Sequence["Block"]
    plots: Sequence["Block"]


def beside(content: Sequence["Block"], plots: Sequence["Block"]) -> list["Block"]:
    """Returns plots beside tables and texts; what is there, if only one of both is."""
    if content and plots:
        return [Beside(content, plots)]
    return [*content, *plots]


Block = Text | Heading | Fold | Table | Figure | Origin | Beside
