"""Headings of folders and files of results; `templates/headings.yaml` has their words."""

from collections.abc import Sequence
import pathlib

import yaml

from baseline.report import blocks

_TEXTS = pathlib.Path(__file__).parent / "templates" / "headings.yaml"
_HEADINGS: dict[str, str] = yaml.safe_load(_TEXTS.read_text(encoding="utf-8"))


def known(*place: str) -> str:
    """Returns the heading of a folder, inner folder or file; "" if there is none.

    Args:
      *place: Name of the folder of results, and that of the inner folder or file without ending.
    """
    return _HEADINGS.get("/".join(place), "")


def titled(
    place: Sequence[str], content: Sequence[blocks.Block], otherwise: str
) -> tuple[str, list[blocks.Block]]:
    """Returns a folder's heading, and its content without a title that says the same.

    Args:
      place: See `known`.
      content: Tables and texts of the folder.
      otherwise: The heading if nothing else is known.
    """
    text = known(*place)
    first = content[0] if content else None
    if isinstance(first, blocks.Heading) and all(
        block.level > first.level for block in content[1:] if isinstance(block, blocks.Heading)
    ):
        return text or first.text, list(content[1:])
    return text or otherwise, list(content)
