"""Markdown files as blocks of the page.

HTML in a file is shown as text, images by their descriptions, and links lead to web pages only: a
file of results can neither bring its own markup into the page nor make it load anything.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import re
from typing import NamedTuple

import markdown_it
from markdown_it import token as markdown_token
import markupsafe

from baseline.report import blocks
from baseline.report import result_files

_LEVEL = 4  # The level of a file's highest headings on the page.
_HEADING = re.compile(r"^(#+) +(.*?)\s*$", re.MULTILINE)
_LINK = re.compile(r"https?://")
_TABLE = '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>\n'


class Part(NamedTuple):
    """A heading of a Markdown file and the text below it, up to the next heading."""

    heading: str  # Empty before the first.
    level: int
    text: str


def parts(text: str) -> list[Part]:
    """Splits a Markdown text at its headings; parts without heading and text are left out."""
    found = list(_HEADING.finditer(text))
    starts = [match.start() for match in found] + [len(text)]
    before = text[: starts[0]]
    split = [Part("", 0, before)] if before.strip() else []
    return split + [
        Part(match[2], len(match[1]), text[match.end() : end])
        for match, end in zip(found, starts[1:], strict=True)
    ]


def document(
    path: str, folded: Callable[[str], bool] = lambda heading: False
) -> list[blocks.Block]:
    """Returns a Markdown file as blocks.

    Args:
      path: The file's path.
      folded: Takes a heading; returns whether its text is hidden until a reader opens it.

    Raises:
      errors.UserError: The file cannot be read.
    """
    split = parts(result_files.read_text(path))
    highest = min((part.level for part in split if part.heading), default=0)
    found: list[blocks.Block] = []
    for part in split:
        body = _html(part.text)
        if part.heading and folded(part.heading):
            found.append(blocks.Fold(part.heading, [body]))
            continue
        if part.heading:
            found.append(blocks.Heading(part.heading, min(6, _LEVEL + part.level - highest)))
        found.append(body)
    return found


def _html(text: str) -> blocks.Text:
    converter = _converter()
    tokens = converter.parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open" and not _LINK.match(str(child.attrGet("href"))):
                child.attrs = {}
    return blocks.Text(markupsafe.Markup(converter.renderer.render(tokens, converter.options, {})))


@functools.cache
def _converter() -> markdown_it.MarkdownIt:
    converter = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    converter.add_render_rule("image", _description)
    converter.add_render_rule("table_open", lambda *_: _TABLE)
    converter.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return converter


def _description(
    renderer: object, tokens: Sequence[markdown_token.Token], index: int, *_: object
) -> str:
    """Returns an image's description, since a page of one file has no image elsewhere."""
    del renderer
    return f"<em>{markupsafe.escape(tokens[index].content)}</em>"
