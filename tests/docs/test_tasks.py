"""The page on tasks and published rewards."""

import pytest

from actorQ.experiments import loading
from actorQ.experiments import results
from actorQ.experiments import specification
from docs.generators import tables
from docs.generators.training import reward_runs
from docs.generators.training import tasks
from tests.actorQ.experiments.reports import test_reports


@pytest.fixture(autouse=True)
def _results(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "ACTORQ_RESULTS", tmp_path / "actorQ" / "results")
    monkeypatch.setattr(reward_runs, "rows", reward_runs.rows.__wrapped__)


def test_blocks_with_results_of_two_tasks(tmp_path):
    common = loading.load_common()
    runs = specification.expand(loading.load("tasks", common), common, "laptop", [0])
    folder = tmp_path / "actorQ" / "results" / "tasks"
    for run in runs:
        if run.task in ("gym,Pendulum-v1", "dm_control,walker_walk"):
            (folder / "runs" / run.name).mkdir(parents=True)
            made = test_reports.result(run)
            made.machine["processor"] = "a"
            results.write(made, str(folder / "runs" / run.name))
    (folder / "report").mkdir()
    for name in ("tasks.png", "runs.csv"):
        (folder / "report" / name).touch()
    lines = tasks.BLOCKS["main"]().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| walker_walk", "| Pendulum-v1"]
    assert "on 2 of 2 tasks" in tasks.BLOCKS["answer"]()
    assert "actorQ/results/tasks/report/tasks.png" in tasks.BLOCKS["figure"]()
    assert tasks.BLOCKS["raw"]().startswith("- `tasks`: [runs]")
    assert "SB3 zoo" in tasks.BLOCKS["commits"]()
    assert tasks.BLOCKS["not_learned"]() == ""
