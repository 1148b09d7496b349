"""PNG plots as figures of the page, with captions by their place and name."""

import base64
from collections.abc import Sequence
import os
import pathlib
import re
import struct

import yaml

from actorQ.core import errors
from baseline.report import blocks
from baseline.report import result_files
from baseline.study import paper

_PNG = b"\x89PNG\r\n\x1a\n"
_MANY = 6  # More plots than these: all but the overviews are hidden at first.
_TEXTS = pathlib.Path(__file__).parent / "templates" / "captions.yaml"
_CAPTIONS = yaml.safe_load(_TEXTS.read_text(encoding="utf-8"))


def figures(paths: Sequence[str]) -> list[blocks.Block]:
    """Returns plots as figures; where they are many, plots of one agent are hidden at first.

    Raises:
      errors.UserError: A file is no PNG.
    """
    overview = [path for path in paths if _is_overview(path)] if len(paths) > _MANY else paths
    rest = [_figure(path) for path in paths if path not in overview]
    shown: list[blocks.Block] = [_figure(path) for path in overview]
    return [*shown, blocks.Fold(f"{len(rest)} more plots, one by one", rest)] if rest else shown


def caption(path: str) -> str:
    """Returns a plot's caption, by its place and name."""
    place = path.replace(os.sep, "/").removesuffix(".png")
    for pattern, text in _CAPTIONS.items():
        if match := re.search(f"{pattern}$", place):
            name = match[1] if match.groups() and match[1] else ""
            name = name or os.path.basename(os.path.dirname(path))
            first, space, rest = name.replace("_", " ").partition(" ")
            return text.format((first.upper() if first in paper.MEANS else first) + space + rest)
    return result_files.titled(path)


def _figure(path: str) -> blocks.Figure:
    data = result_files.read(path)
    if not data.startswith(_PNG) or len(data) < 24:
        raise errors.UserError(f"{path} is damaged: it is no PNG image. Make it again.")
    width, height = struct.unpack(">II", data[16:24])
    return blocks.Figure(base64.b64encode(data).decode("ascii"), width, height, caption(path))


def _is_overview(path: str) -> bool:
    return os.path.basename(path).startswith(("overview_", "width_error_", "speedup"))
