"""The README says what the code does: flags, modules, commands."""

import importlib.util
import pathlib
import re

from actorQ.scripts import flags_table

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text()


def test_readme_flag_table_is_the_codes():
    assert "\n".join(flags_table.rows()) in README, (
        "paste the output of python -m actorQ.scripts.flags_table into the README"
    )


def test_readme_modules_exist():
    modules = set(re.findall(r"python -m (actorQ[\w.]*)", README))
    assert {"actorQ.learner_main", "actorQ.evaluate", "actorQ.scripts.speedup_table"} <= modules
    for module in modules:
        assert importlib.util.find_spec(module), module


def test_readme_links_to_files_that_exist():
    targets = re.findall(r"\]\((?!https?://|#)([^)]+)\)", README)
    for target in targets:
        assert (REPOSITORY / target).exists(), target


def test_readme_has_no_unfilled_places():
    assert "@@" not in README


def test_readme_test_command_is_what_ci_runs():
    command = ".venv/bin/python -m pytest"
    assert command in README
    assert command in (REPOSITORY / ".ci" / "run").read_text()
