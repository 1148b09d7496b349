"""HTML from what results are: Markdown, rows of tables, PNG plots. All text is escaped.

Nothing that a file says can bring markup of its own into the page, or make it load anything.
"""

import base64
from collections.abc import Callable
from collections.abc import Sequence
import functools
import html
import os
import re
import struct
from typing import NamedTuple

import markdown_it
from markdown_it import token as markdown_token

from actorQ.core import errors

_PNG = b"\x89PNG\r\n\x1a\n"
_HEADING = re.compile(r"^(#+) +(.*?)\s*$", re.MULTILINE)
_LINK = re.compile(r"https?://")
_SCROLL = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'


class Part(NamedTuple):
    """A heading of a Markdown file and what stands below it, up to the next heading."""

    heading: str  # Empty before the first.
    level: int
    text: str


def escape(text: object) -> str:
    """Returns a text as HTML shows it."""
    return html.escape(str(text), quote=True)


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


def markdown(text: str) -> str:
    """Returns Markdown (headings: see `parts`) as HTML; links lead to web pages only."""
    converter = _converter()
    tokens = converter.parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open" and not _LINK.match(str(child.attrGet("href"))):
                child.attrs = {}
    return converter.renderer.render(tokens, converter.options, {})


def document(
    text: str, level: int, folded: Callable[[str], bool] = lambda heading: False
) -> str:
    """Returns a Markdown file as HTML.

    Args:
      text: Markdown.
      level: of its highest headings on the page, 1 to 6.
      folded: takes a heading; whether its text is hidden until someone asks for it.
    """
    split = parts(text)
    highest = min((part.level for part in split if part.heading), default=0)
    pieces = []
    for part in split:
        body = markdown(part.text)
        if part.heading and folded(part.heading):
            pieces.append(fold(part.heading, body))
        elif part.heading:
            pieces.append(heading(part.heading, min(6, level + part.level - highest)) + body)
        else:
            pieces.append(body)
    return "".join(pieces)


def heading(text: str, level: int) -> str:
    """Returns a heading."""
    return f"<h{level}>{escape(text)}</h{level}>\n"


def fold(title: str, body: str) -> str:
    """Returns HTML that is hidden until someone asks for it."""
    return f"<details><summary>{escape(title)}</summary>\n{body}</details>\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], classes: str = "") -> str:
    """Returns a table of texts (not HTML).

    Args:
      header: of the columns.
      rows: cells.
      classes: of the table, for CSS.
    """
    lines = [_row("th", header, ' scope="col"')]
    lines += [_row("td", row) for row in rows]
    return (
        f'{_SCROLL}<table class="{escape(classes)}">\n<thead>\n{lines[0]}</thead>\n<tbody>\n'
        f"{''.join(lines[1:])}</tbody>\n</table></div>\n"
    )


def figure(path: str, caption: str) -> str:
    """Returns a PNG file as a figure that brings its image along.

    Raises:
      errors.UserError: it cannot be read, or is no PNG.
    """
    data = read(path)
    if not data.startswith(_PNG) or len(data) < 24:
        raise errors.UserError(f"{path} is damaged: it is no PNG image. Make it again.")
    width, height = struct.unpack(">II", data[16:24])
    image = base64.b64encode(data).decode("ascii")
    return (
        f'<figure><img src="data:image/png;base64,{image}" width="{width}" height="{height}" '
        f'alt="{escape(caption)}">\n<figcaption>{escape(caption)}</figcaption></figure>\n'
    )


def read(path: str) -> bytes:
    """Returns a file's content.

    Raises:
      errors.UserError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None


def read_text(path: str) -> str:
    """Returns a text file's content.

    Raises:
      errors.UserError: it cannot be read, or is no UTF-8.
    """
    try:
        return read(path).decode("utf-8")
    except UnicodeDecodeError:
        raise errors.UserError(f"{path} is damaged: it is no text. Make it again.") from None


def stem(path: str) -> str:
    """Returns a file's name without folder and ending."""
    return os.path.splitext(os.path.basename(path))[0]


def _row(tag: str, cells: Sequence[str], attributes: str = "") -> str:
    texts = (f"<{tag}{attributes}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{''.join(texts)}</tr>\n"


@functools.cache
def _converter() -> markdown_it.MarkdownIt:
    converter = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    converter.add_render_rule("image", _no_image)
    converter.add_render_rule("table_open", lambda *_: f"{_SCROLL}<table>\n")
    converter.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return converter


def _no_image(
    renderer: object, tokens: Sequence[markdown_token.Token], index: int, *_: object
) -> str:
    """Returns an image's description: a page that is one file has no image elsewhere."""
    del renderer
    return f"<em>{escape(tokens[index].content)}</em>"
