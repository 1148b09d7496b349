"""Lets pages link to files of the repository that lie outside `docs/`.

The README is the site's first page. A linked file goes into the site below `files/`, and a linked
Markdown file becomes a page there, which the navigation and the search leave out.
"""

from collections.abc import Iterator
import os
import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|/|#)([^()\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the README, and what it and all pages link to outside `docs/`."""
    files.append(_file(README, config))
    waiting = [pathlib.Path(file.abs_src_path or "") for file in files.documentation_pages()]
    while waiting:
        for target in _targets(waiting.pop()):
            if target.is_file() and files.get_file_from_path(_uri(target)) is None:
                files.append(_file(target, config))
                if target.suffix == ".md":
                    waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns a page's links into those of the site."""
    path = pathlib.Path(page.file.abs_src_path or "")
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri.startswith("files/"):
        page.meta["search"] = {"exclude": True}

    def within_site(match: re.Match[str]) -> str:
        return posixpath.relpath(_uri(_resolved(path, match[1])), folder or ".")

    return _LINK.sub(within_site, markdown)


def _targets(path: pathlib.Path) -> Iterator[pathlib.Path]:
    for link in _LINK.findall(path.read_text(encoding="utf-8")):
        yield _resolved(path, link)


def _resolved(page: pathlib.Path, link: str) -> pathlib.Path:
    return pathlib.Path(os.path.normpath(page.parent / link))


def _uri(path: pathlib.Path) -> str:
    """Returns where a file of the repository is in the site."""
    if path == README:
        return "index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"files/{path.relative_to(ROOT).as_posix()}"


def _file(path: pathlib.Path, config: MkDocsConfig) -> File:
    return File.generated(config, _uri(path), abs_src_path=str(path))
