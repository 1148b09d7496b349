"""The processes of a run on this machine."""

import os
import sys
from unittest import mock

from actorQ.core import config as config_lib
from actorQ.launch import local
from actorQ.launch import processes
from actorQ.launch import status_line
from tests.actorQ import harness


def test_processes_get_the_cores_that_pin_cpus_plans(tmp_path):
    (core, *_) = os.sched_getaffinity(0)
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    log = tmp_path / "child.log"
    child = processes.Child("child", [sys.executable, "-c", code], str(log), {core})
    child.start()
    harness.poll(lambda: log.exists() and log.read_text(), what="its line")
    assert log.read_text() == f"[{core}]\n"
    config = config_lib.RunConfig(logpath=str(tmp_path), n_actors=2)
    learner, _, *actors = local.children(config, pin_cpus=True)
    planned = processes.plan_cores(2) or [None] * 3  # On one core there is nothing to share.
    assert [one._cores for one in (learner, *actors)] == planned


def test_run_with_more_actors_than_cores_has_one_hint(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes.provenance, "usable_cores", lambda: 2)
    ended = mock.Mock(run=lambda start: 0)
    monkeypatch.setattr(local.supervisor, "Supervisor", lambda *arguments: ended)
    for actors in (2, 8):
        config = config_lib.RunConfig(logpath=str(tmp_path), n_actors=actors)
        assert local.run(config, False, status_line.StatusLine(config)) == 0
    output = capsys.readouterr().out
    assert output.count("Hint: ") == 1
    assert "Hint: 8 actors share 2 cores with the learner and slow it down" in output
