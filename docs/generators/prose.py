"""Wraps sentences and lists that are made of figures."""

from collections.abc import Callable
import functools
import textwrap

_WIDTH = 100


def wrapped(make: Callable[[], str]) -> Callable[[], str]:
    """Makes a function's paragraphs and list items at most 100 characters wide."""

    @functools.wraps(make)
    def text() -> str:
        return "\n".join(map(_line, make().split("\n")))

    return text


def _line(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(
        line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
