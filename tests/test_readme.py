"""The README says what the code does: flags, modules, commands."""

import importlib.util
import pathlib
import re

import pytest

from docs import flag_tables

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (".", "baseline", "actorQ/results", "baseline/results")
TEXTS = {folder: (REPOSITORY / folder / "README.md").read_text() for folder in FOLDERS}
README = TEXTS["."]
BASELINE_README = TEXTS["baseline"]
EACH = pytest.mark.parametrize("folder", FOLDERS)


def _anchors(text: str) -> set[str]:
    """Names that GitHub gives the headings, outside of code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", flag_tables.PAGES)
def test_tables_of_flags_are_the_codes(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert flag_tables.filled(text) == text, "run python -m docs.flag_tables"


def test_every_table_of_flags_is_in_a_page():
    texts = [(REPOSITORY / page).read_text(encoding="utf-8") for page in flag_tables.PAGES]
    for name in flag_tables.TABLES:
        assert sum(f"<!-- flags: {name} -->\n\n| " in text for text in texts) == 1


def test_readme_names_every_folder_of_actorq():
    table = README.partition("| Folder | Responsibility |\n")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()]
    named = set(re.findall("`(.*?)/`", " ".join(cells)))
    package = REPOSITORY / "actorQ"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders <= named
    assert all((package / name).is_dir() for name in named)


def test_readme_modules_exist():
    texts = "\n".join(TEXTS.values())
    modules = set(re.findall(r"python -m\s+((?:actorQ|baseline)[\w.]*)", texts))
    assert {"actorQ.learner_main", "actorQ.evaluate", "actorQ.scripts.speedup_table"} <= modules
    assert {f"baseline.{tool}" for tool in ("train", "ptq", "enjoy", "collate")} <= modules
    for module in modules:
        assert importlib.util.find_spec(module), module


@EACH
def test_readme_links_lead_somewhere(folder):
    links = re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", TEXTS[folder])
    assert links
    for target, anchor in links:
        path = REPOSITORY / folder / (target or "README.md")
        assert path.exists(), target
        if anchor:
            assert anchor in _anchors(path.read_text()), f"{target}#{anchor}"


@EACH
def test_readme_has_no_unfilled_places(folder):
    assert "@@" not in TEXTS[folder]


def test_readme_test_command_is_what_ci_runs():
    command = ".venv/bin/python -m pytest -n 2 --dist worksteal"
    assert command in README
    assert command in (REPOSITORY / ".ci" / "run").read_text()
