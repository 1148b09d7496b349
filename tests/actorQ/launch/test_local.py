"""The processes of a run on this machine."""

import os
import sys

from actorQ.core import config as config_lib
from actorQ.launch import local
from actorQ.launch import processes
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
