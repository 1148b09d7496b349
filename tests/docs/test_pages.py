"""Pages say what code and results say, keep to their length, and are in plain English."""

import importlib
import importlib.util
import pathlib
import re

import pytest

from docs import generate

ROOT = generate.ROOT
README = ROOT / "README.md"
PAGES = generate.pages()
FRONT = [README, *(ROOT / name / "README.md" for name in (
    "baseline", "actorQ/results", "baseline/results",
)), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
ALL = sorted({*PAGES, *FRONT})
EACH_TEXT = pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_NOT_PROSE = re.compile(r"\s*(\||#|!\[|    )")


def _text(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8")


@EACH
def test_blocks_are_what_code_and_results_say(page):
    assert generate.filled(_text(page)) == _text(page), "run python -m docs.generate"


def test_every_block_stands_on_one_page():
    text = "\n".join(map(_text, PAGES))
    for module, full_name in generate.modules().items():
        for name in getattr(importlib.import_module(full_name), "BLOCKS", {}):
            assert text.count(f"<!-- made: {module}.{name} -->") == 1, (module, name)


def test_a_changed_figure_is_noticed():
    page = ROOT / "docs" / "results" / "time-to-reward.md"
    text = _text(page)
    changed = re.sub(r"(<!-- made: [\w.]+ -->.*?\d)(\d)", r"\1x\2", text, count=1, flags=re.DOTALL)
    assert changed != text
    assert generate.filled(changed) == text


def test_readme_is_short():
    assert len(_text(README).splitlines()) <= 220
    assert len(_text(README).encode()) <= 14 * 1024


@EACH
def test_a_page_has_at_most_250_lines(page):
    assert len(_text(page).splitlines()) <= 250


def test_contributing_is_short():
    assert len(_text(ROOT / "CONTRIBUTING.md").splitlines()) <= 80


def _sentences(text: str) -> list[str]:
    """Returns the sentences of a page's prose: no tables, headings, pictures or code."""
    text = re.sub(r"<!-- .*? -->", "", _FENCE.sub("", text), flags=re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )|\n(?=#)", text)
    sentences = []
    for block in blocks:
        if _NOT_PROSE.match(block):
            continue
        block = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)
        block = re.sub(r"`[^`]*`", "CODE", block)
        block = re.sub(r"^\s*(?:[-*+]|\d+\.|>|!!! \w+) *", "", block)
        sentences += re.split(r"(?<=[.!?:])\s+(?=[A-Z\"'*`(])", " ".join(block.split()))
    return sentences


@EACH_TEXT
def test_sentences_are_short(page):
    """LAYOUT's rule for all texts: a reader takes in a sentence at once."""
    for sentence in _sentences(_text(page)):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        assert len(words) < 25, sentence


@EACH_TEXT
def test_links_lead_to_files(page):
    """The site's build checks anchors, and these links too; this needs no mkdocs."""
    for target in re.findall(r"\]\((?![a-z]+:|/|#)([^()\s#]+)", _FENCE.sub("", _text(page))):
        assert (page.parent / target).is_file(), target


def test_modules_in_commands_exist():
    text = "\n".join(map(_text, ALL))
    modules = set(re.findall(r"python -m\s+((?:actorQ|baseline|docs|tests)[\w.]*\w)", text))
    assert {"actorQ.learner_main", "actorQ.evaluate", "actorQ.scripts.speedup_table"} <= modules
    assert {f"baseline.{tool}" for tool in ("train", "ptq", "enjoy", "collate")} <= modules
    for module in modules:
        assert importlib.util.find_spec(module), module


def test_flags_in_commands_exist():
    """Every long flag that a page's commands name is a flag of some program."""
    tables = "\n".join(re.findall(r"^\|.*", "\n".join(map(_text, PAGES)), re.MULTILINE))
    known = set(re.findall(r"--(\w+)", tables))
    for page in ALL:
        for fence in re.findall(r"^ *```bash\n(.*?)^ *```", _text(page), re.MULTILINE | re.DOTALL):
            for command in re.split(r"(?<!\\)\n", re.sub(r"[A-Z]+_FLAGS=\S+", "", fence)):
                if re.search(r"-m (actorQ|baseline)\.|run_multiprocess\.sh|benchmark\.sh", command):
                    for name in re.findall(r"(?<![\w-])--(?:no-)?([a-z][\w-]+)", command):
                        assert name.replace("-", "_") in known | {"help"}, (page, name)


def test_test_command_is_what_ci_runs():
    command = ".venv/bin/python -m pytest -n 2 --dist worksteal"
    assert command in _text(README)
    assert command in _text(ROOT / ".ci" / "run")
    assert "docs/requirements.txt -c constraints.txt" in _text(ROOT / ".ci" / "run")
