"""Child processes, how often they may fail, and the cores that they get."""

import sys

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.launch import processes


@pytest.mark.parametrize("code", [-9, -15, 130, 75])
def test_peer_that_somebody_ends_may_be_started_again_while_its_work_goes_on(code):
    peer = processes.Process("actor_1", "log")
    peer.code = code
    assert [peer.note_failure(rows) for rows in range(5)] == [1] * 5
    assert [peer.note_failure(4) for _ in range(2)] == [2, 3]


def test_peer_that_ends_itself_may_not_though_its_work_goes_on():
    peer = processes.Process("actor_1", "log")
    peer.code = 1
    assert [peer.note_failure(rows) for rows in range(3)] == [1, 2, 3]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Pretends that this process may use these CPUs, of cores as the system says."""

    def make(cpus, siblings):
        monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: set(cpus))
        monkeypatch.setattr(processes, "_SIBLINGS", str(tmp_path / "cpu{}"))
        for cpu, text in siblings.items():
            (tmp_path / f"cpu{cpu}").write_text(text + "\n")

    return make


@pytest.mark.parametrize("told", [True, False])
def test_plan_cores_actors_get_their_own_then_share(machine, told):
    machine(range(4), {cpu: str(cpu) for cpu in range(4)} if told else {})
    assert processes.plan_cores(1) == [{0, 1, 2}, {3}]
    assert processes.plan_cores(3) == [{0}, {1}, {2}, {3}]
    assert processes.plan_cores(5) == [{0}, {1}, {2}, {3}, {1}, {2}]


def test_plan_cores_hyperthreads_of_a_core_stay_together(machine):
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    machine(range(8), siblings)
    assert processes.plan_cores(1) == [{0, 1, 2, 4, 5, 6}, {3, 7}]
    assert processes.plan_cores(4) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}, {1, 5}]
    machine([1, 2, 6], siblings)  # taskset
    assert processes.plan_cores(1) == [{1}, {2, 6}]
    machine([1, 5], siblings)  # Better two threads of a core than everything on both.
    assert processes.plan_cores(1) == [{1}, {5}]
    machine([1], siblings)
    assert processes.plan_cores(1) is None


def test_child_that_cannot_start_is_one_line(tmp_path):
    child = processes.Child("c", ["true"], str(tmp_path / "none" / "c.log"), None)
    with pytest.raises(errors.UserError, match="Cannot start c, .*: No such file or directory."):
        child.start()
    child = processes.Child("c", [str(tmp_path / "program")], str(tmp_path / "c.log"), None)
    with pytest.raises(errors.UserError, match="Cannot start c, "):
        child.start()


def test_child_log_tail_and_exit_description(tmp_path):
    child = processes.Child(
        "c", [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"],
        str(tmp_path / "c.log"), None,
    )
    child.start()
    assert child.wait(20) and child.code == 3
    assert child.last_line() == "two"
    assert child.log_tail() == "  c: one\n  c: two"
    assert processes.describe_exit(3) == "ended with code 3"
    assert processes.describe_exit(-9) == "was ended by SIGKILL"
    assert processes.describe_exit(-40) == "was ended by signal 40"


def failures(tmp_path, code, *progresses):
    child = processes.Child("c", [sys.executable, "-c", code], str(tmp_path / "c.log"), None)
    counts = []
    for progress in progresses:
        child.start()
        assert child.wait(20)
        counts.append(child.note_failure(progress))
    return counts


def test_child_failures_count_in_a_row(tmp_path):
    killed = "import os; os.kill(os.getpid(), 9)"
    assert failures(tmp_path, killed, 5, 5, 5) == [1, 2, 3]
    # Somebody kills it, but its work goes on.
    assert failures(tmp_path, killed, 5, 6, 6, 7) == [1, 1, 2, 1]
    # It ends itself, whatever it does before.
    assert failures(tmp_path, "raise SystemExit(1)", 5, 6, 7) == [1, 2, 3]


@pytest.mark.parametrize(
    ("lines", "repeats"),
    [
        (["actor: error: no such joint"] * 2, [False, True]),
        (["actor: error: a", "actor: error: b", "actor: error: b"], [False, False, True]),
        (["Traceback"] * 3, [False] * 3),  # No clear line says that it is the same.
    ],
)
def test_child_that_reports_the_same_error_twice_is_known_by_it(tmp_path, lines, repeats):
    found = []
    path = tmp_path / "line"
    command = [sys.executable, "-c", f"print(open({str(path)!r}).read()); raise SystemExit(1)"]
    child = processes.Child("actor_1", command, str(tmp_path / "log"), None)
    for line in lines:
        path.write_text(line)
        child.start()
        assert child.wait(20)
        child.note_failure(None)
        found.append(child.repeats_error)
    assert found == repeats


def test_child_that_lived_long_starts_a_new_row(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_STEADY_S", 0.0)
    assert failures(tmp_path, "raise SystemExit(1)", 5, 5, 5) == [1, 1, 1]


@pytest.mark.parametrize(
    ("actors", "cores", "advice"),
    [(1, 1, ""), (2, 2, ""), (3, 2, "--n_actors=1"), (8, 6, "--n_actors=5"), (2, 1, "=1")],
)
def test_more_actors_than_cores_get_a_hint(monkeypatch, actors, cores, advice):
    monkeypatch.setattr(processes.provenance, "usable_cores", lambda: cores)
    hint = processes.crowd_hint(config_lib.RunConfig(n_actors=actors))
    assert bool(hint) == bool(advice) and advice in hint
    assert not processes.crowd_hint(config_lib.RunConfig(n_actors=actors, actors_yield=1))
