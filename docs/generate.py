"""Writes what pages take from the code and from the committed results.

    python -m docs.generate

A block stands between `<!-- made: MODULE.NAME -->` and `<!-- end -->`. `MODULE` is a module below
`docs/generators`, and `NAME` is a key of its `BLOCKS`.
"""

import functools
import importlib
import pathlib
import pkgutil
import re

from docs import generators

ROOT = pathlib.Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"<!-- made: (\w+)\.(\w+) -->\n.*?<!-- end -->", re.DOTALL)


def pages() -> list[pathlib.Path]:
    """Returns the README and all pages of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@functools.cache
def modules() -> dict[str, str]:
    """Returns the full names of all generators by their last parts, which are unique."""
    found = pkgutil.walk_packages(generators.__path__, f"{generators.__name__}.")
    return {one.name.rpartition(".")[2]: one.name for one in found if not one.ispkg}


def filled(page: str) -> str:
    """Returns the text of a page with its blocks made anew.

    Raises:
        KeyError: A block names a module that is not there, or that does not make it.
    """

    def made(match: re.Match[str]) -> str:
        module, name = match.groups()
        blocks = importlib.import_module(modules()[module]).BLOCKS
        return f"<!-- made: {module}.{name} -->\n\n{blocks[name]().strip()}\n\n<!-- end -->"

    return _BLOCK.sub(made, page)


def main() -> None:
    """Writes every page whose blocks have changed."""
    for path in pages():
        before = path.read_text(encoding="utf-8")
        after = filled(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"Wrote {path.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
