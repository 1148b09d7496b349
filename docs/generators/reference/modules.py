"""Tables of sub-packages and modules, made from the first lines of their docstrings."""

import ast
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import os
import pathlib
import re

from docs.generators import tables

_PAGES_FOLDER = tables.ROOT / "docs" / "reference"
_CAPTION = "__init__.py"
_PROGRAM = "\nif __name__ == "


def package_table(package: str) -> str:
    """Returns a table of a package's sub-packages, lowest first, with what each may import."""
    rows = []
    for folder in sorted(_folders(package), key=_height):
        if _shown(folder):
            does, imports = _caption(folder)
            rows.append([f"`{_shown(folder)}/`", does, imports])
    return tables.table(["Folder", "Responsibility", "May import"], rows, text_columns=3)


def module_table(package: str, names: Sequence[str]) -> str:
    """Returns a table of the modules of some sub-packages.

    Args:
        package: `actorQ` or `baseline`.
        names: Sub-packages with all below them; an empty name stands for the top level.
    """
    rows = []
    for folder in _folders(package):
        root = _shown(folder).partition("/")[0]
        if root in names:
            rows += [[_link(path), first_sentence(_docstring(path))] for path in _modules(folder)]
    return tables.table(["Module", "What it does"], rows, text_columns=2)


def first_sentence(text: str) -> str:
    """Returns the first sentence of a docstring as a table's cell."""
    line = text.split("\n", 1)[0].replace("|", "/")
    return re.split(r"(?<=\.) (?=[A-Z])", line, maxsplit=1)[0]


def _folders(package: str) -> Iterator[pathlib.Path]:
    for path in sorted((tables.ROOT / package).rglob(_CAPTION)):
        yield path.parent


def _height(folder: pathlib.Path) -> int:
    """Returns a folder's place in the order of imports."""
    package, root = folder.relative_to(tables.ROOT).parts[0], _shown(folder).partition("/")[0]
    groups = _GROUPS[package].values()
    return [name for names in groups for name in names].index(root)


def _modules(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the modules of a folder; those of the top level are programs."""
    return sorted(path for path in folder.glob("*.py") if path.name != _CAPTION)


def _shown(folder: pathlib.Path) -> str:
    """Returns a sub-package's path below its package; the package itself has an empty one."""
    return "/".join(folder.relative_to(tables.ROOT).parts[1:])


def _docstring(path: pathlib.Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _caption(folder: pathlib.Path) -> tuple[str, str]:
    """Returns what a sub-package does, and what its caption says of imports."""
    words = " ".join(_docstring(folder / _CAPTION).split())
    does, found, imports = re.sub(r": `python -m [\w.]+`", "", words).partition(" Imports ")
    rule = f"{imports[0].upper()}{imports[1:]}" if found else "As the folder above it."
    return does, rule


def _link(path: pathlib.Path) -> str:
    name = "/".join(path.relative_to(tables.ROOT).with_suffix("").parts[1:])
    mark = "**" if _PROGRAM in path.read_text(encoding="utf-8") else ""
    return f"{mark}[`{name}`]({os.path.relpath(path, _PAGES_FOLDER)}){mark}"


_GROUPS = {
    "actorQ": {
        "programs": [""],
        "shared": ["core", "environments", "policy"],
        "processes": ["wire", "learner", "actor", "d4pg", "dqn", "launch"],
        "experiments": ["experiments"],
        "measuring": ["scripts", "benchmarks"],
    },
    "baseline": {
        "programs": [""],
        "agents": ["tasks", "quantization", "agents"],
        "study": ["formats", "study"],
        "training": ["train", "qat"],
        "case_studies": ["deploy", "mixed_precision", "report"],
    },
}
BLOCKS: dict[str, Callable[[], str]] = {
    **{f"{package}_folders": functools.partial(package_table, package) for package in _GROUPS},
    **{
        f"{package}_{group}": functools.partial(module_table, package, names)
        for package, groups in _GROUPS.items()
        for group, names in groups.items()
    },
}
