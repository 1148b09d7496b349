"""The README says what the code does: flags, modules, commands."""

import importlib.util
import pathlib
import re

import pytest

from actorQ.experiments import cluster
from actorQ.experiments import run as experiments
from actorQ.scripts import flags_table
from baseline import flags_table as baseline_flags_table

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text()
BASELINE_README = (REPOSITORY / "baseline" / "README.md").read_text()
EITHER = pytest.mark.parametrize("folder", [".", "baseline"])


def test_readme_flag_table_is_the_codes():
    assert "\n".join(flags_table.rows()) in README, (
        "paste the output of python -m actorQ.scripts.flags_table into the README"
    )


def test_readme_flag_table_of_experiments_is_the_codes():
    assert "\n".join(experiments.flag_rows()) in README, (
        "paste the output of python -m actorQ.scripts.flags_table --experiments into the README"
    )


def test_readme_flag_table_of_the_cluster_simulation_is_the_codes():
    assert "\n".join(cluster.flag_rows()) in README, (
        "paste the output of python -m actorQ.scripts.flags_table --cluster into the README"
    )


def test_readme_flag_table_of_the_ray_launcher_is_the_codes():
    assert "\n".join(flags_table.ray_rows()) in README, (
        "paste the output of python -m actorQ.scripts.flags_table --ray into the README"
    )


def test_baseline_readme_flag_table_is_the_codes():
    assert "\n".join(baseline_flags_table.rows()) in BASELINE_README, (
        "paste the output of python -m baseline.flags_table into baseline/README.md"
    )


def test_readme_modules_exist():
    modules = set(re.findall(r"python -m ((?:actorQ|baseline)[\w.]*)", README + BASELINE_README))
    assert {"actorQ.learner_main", "actorQ.evaluate", "actorQ.scripts.speedup_table"} <= modules
    assert {f"baseline.{tool}" for tool in ("train", "ptq", "enjoy", "collate")} <= modules
    for module in modules:
        assert importlib.util.find_spec(module), module


@EITHER
def test_readme_links_to_files_that_exist(folder):
    targets = re.findall(
        r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)", (REPOSITORY / folder / "README.md").read_text()
    )
    for target in targets:
        assert (REPOSITORY / folder / target).exists(), target


@EITHER
def test_readme_has_no_unfilled_places(folder):
    assert "@@" not in (REPOSITORY / folder / "README.md").read_text()


def test_readme_test_command_is_what_ci_runs():
    command = ".venv/bin/python -m pytest -n 2 --dist worksteal"
    assert command in README
    assert command in (REPOSITORY / ".ci" / "run").read_text()
