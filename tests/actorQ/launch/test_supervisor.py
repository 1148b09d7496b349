"""Who is started again, and when a run ends."""

import sys
from unittest import mock

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line
from actorQ.launch import supervisor


class Process(processes.Process):
    """A process that ends as it is told."""

    def __init__(self, name="actor_1", ends=None):
        super().__init__(name, "/no/log")
        self.ends = ends
        self.starts = []

    def start(self, *arguments):
        self.starts.append(arguments)

    def poll(self):
        self.code = self.ends
        return self.code

    def wait(self, timeout_s):
        return self.poll() is not None


def supervise(tmp_path, learner=None, *peers):
    """A supervisor of a learner that is up."""
    (tmp_path / telemetry.ADDRESS_FILENAME).write_text("localhost:1")
    config = config_lib.RunConfig(logpath=str(tmp_path))
    return supervisor.Supervisor(
        config, learner or Process("learner"), peers, snapshots.Store(str(tmp_path)),
        status_line.StatusLine(config), poll_s=0.01,
    )


def test_run_ends_with_the_line_of_a_learner_that_ends_itself(tmp_path):
    fails = "raise SystemExit(1)"
    code = f"import time; time.sleep(1); print('learner_main: error: no such task.'); {fails}"
    log, peers_log = str(tmp_path / "learner.log"), str(tmp_path / "actor.log")
    learner = processes.Child("learner", [sys.executable, "-c", code], log, None)
    peer = processes.Child("actor_1", [sys.executable, "-c", fails], peers_log, None)
    run = supervise(tmp_path, learner, peer)
    (tmp_path / telemetry.ADDRESS_FILENAME).unlink()

    def start():
        learner.start()
        peer.start()
        return True

    with pytest.raises(errors.UserError) as ended:
        run.run(start)
    assert str(ended.value) == f"the learner ended with code 1: no such task. (log: {log})"
    assert peer.restarts == 0  # It has failed for the same reason.


def test_run_that_was_interrupted_at_its_start_ends_all_processes(tmp_path):
    run = supervise(tmp_path)
    run._learner.kill = mock.Mock()
    run._learner.terminate = mock.Mock()
    run._learner.ends = 130
    assert run.run(lambda: False) == 130
    run._learner.kill.assert_called_once()


@pytest.mark.parametrize("checkpoint", ["", "3"])
def test_learner_ended_by_a_signal_goes_on_from_its_checkpoint(tmp_path, checkpoint):
    run = supervise(tmp_path, Process("learner", -9))
    run._checkpoints = mock.Mock(newest_name=lambda: checkpoint)
    learner = run._learner
    for count in range(1, supervisor.MAX_FAILURES):
        run._revive_learner(learner.poll())
        assert learner.starts[-1] == (f"--restarts={count}", *["--resume"] * bool(checkpoint))
    with pytest.raises(errors.UserError, match="was ended by SIGKILL, 3 times in a row"):
        run._revive_learner(learner.poll())  # No newer checkpoint was written meanwhile.


def test_learner_without_a_checkpoint_does_not_train_twice(tmp_path):
    run = supervise(tmp_path, Process("learner", -9))
    (tmp_path / "learner").mkdir()
    (tmp_path / "learner" / telemetry.TRAIN_CSV).write_text("")
    with pytest.raises(errors.UserError, match="left no checkpoint to go on from"):
        run._revive_learner(run._learner.poll())
    assert not run._learner.starts


def test_peer_that_was_killed_whenever_its_log_folder_was_away_has_gone_on(tmp_path):
    peer = Process(ends=-9)
    run = supervise(tmp_path, None, peer)
    folder = tmp_path / "actor_1"
    for row in range(5):  # Rows are seen while it lives; when it dies there is no folder.
        folder.mkdir(exist_ok=True)
        with open(folder / telemetry.PHASES_CSV, "a", encoding="utf-8") as log:
            log.write(f"{row}\n")
        run._note_logs(peer)
        folder.rename(tmp_path / "away")
        peer.poll()
        run._revive(peer)
        (tmp_path / "away").rename(folder)
    folder.rename(tmp_path / "away")
    run._revive(peer)
    with pytest.raises(errors.UserError, match="3 times in a row"):
        run._revive(peer)


def test_learner_that_was_never_started_is_not_waited_for(tmp_path, monkeypatch):
    learner = processes.Child("learner", ["true"], str(tmp_path / "learner.log"), None)
    # A crash of the machine in the middle of a checkpoint leaves such a folder.
    monkeypatch.setattr(snapshots.Store, "being_written", lambda _: pytest.fail("waits"))
    supervise(tmp_path, learner)._wait_for_learner()


def test_learner_that_saves_is_waited_for(tmp_path, monkeypatch):
    learner = Process("learner")
    run = supervise(tmp_path, learner)
    waits = iter([False, False, False, True])
    learner.wait = lambda timeout_s: next(waits)
    run._checkpoints = mock.Mock(being_written=lambda: True)
    run._wait_for_learner()
    assert list(waits) == []


def test_peer_that_saw_an_end_which_did_not_come_is_started_again(tmp_path, monkeypatch):
    peer = Process(ends=0)
    run = supervise(tmp_path, None, peer)
    peer.poll()
    run._revive(peer)
    assert not peer.starts  # The learner is ending, as announced.
    monkeypatch.setattr(supervisor, "_FOLLOWS_S", -1.0)
    run._revive(peer)
    assert peer.starts == [("--restarts=1",)]


def test_peer_that_ends_before_the_learner_has_begun_is_told_once(tmp_path, capsys):
    peer = Process(ends=1)
    run = supervise(tmp_path, None, peer)
    (tmp_path / telemetry.ADDRESS_FILENAME).unlink()
    peer.poll()
    for _ in range(2):
        run._revive(peer)
    assert not peer.starts
    assert capsys.readouterr().out.count("actor_1 ended with code 1. The learner is still") == 1


def printing(tmp_path, text, code):
    """Returns a learner that has printed a text and ended."""
    log = tmp_path / "learner.log"
    log.write_text(text)
    learner = Process("learner", code)
    learner.log_path, learner._log_start = str(log), 0
    learner.poll()
    return learner


CHATTER = "".join(f"I0000 somelib.cc:{number} did a thing\n" for number in range(20))


def test_reason_stands_behind_the_chatter_of_libraries(tmp_path, capsys):
    learner = printing(tmp_path, CHATTER, -9)
    run = supervise(tmp_path, learner)
    for _ in range(supervisor.MAX_FAILURES - 1):
        learner.note_failure("")
    with pytest.raises(errors.UserError) as ended:
        run._revive_learner(-9)
    assert capsys.readouterr().out.endswith("  learner: I0000 somelib.cc:19 did a thing\n")
    assert str(ended.value) == (
        "the learner was ended by SIGKILL, 3 times in a row. The system sends SIGKILL where memory "
        f"runs out; otherwise somebody did. (log: {learner.log_path})"
    )


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        # An error line of some library is no reason for a kill.
        ("lib: error: x\n", -9, "ended by SIGKILL; the last line of its log is 'lib: error: x'"),
        ("", -9, "was ended by SIGKILL; it is started again."),
        ("actor_main: error: no room\n" + CHATTER, 1, "ended with code 1: no room; it is started"),
    ],
)
def test_last_line_of_a_log_is_not_told_as_the_cause(tmp_path, capsys, text, code, words):
    peer = printing(tmp_path, text, code)
    supervise(tmp_path, None, peer)._restart_after_failure(peer, f"it {peer.describe_end()}", 1)
    assert words in capsys.readouterr().out


def test_learner_that_could_not_write_down_its_reason_has_the_disk_s(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor.files, "write_problem", lambda _: "No space left on device")
    run = supervise(tmp_path, printing(tmp_path, "", 1))
    with pytest.raises(errors.UserError) as ended:
        run._revive_learner(1)
    assert f"can be written to {tmp_path} (No space left on device): make room" in str(ended.value)


@pytest.mark.parametrize(("country", "words"), [("DEU", "grid of DEU."), ("", "world's mean grid")])
def test_run_that_logs_energy_begins_with_its_factor_of_co2(
    tmp_path, monkeypatch, capsys, country, words
):
    monkeypatch.setenv("ACTORQ_COUNTRY", country)
    config = config_lib.RunConfig(logpath=str(tmp_path), track_energy=1)
    run = supervisor.Supervisor(
        config, Process("learner", 130), (), snapshots.Store(str(tmp_path)),
        status_line.StatusLine(config),
    )
    run._learner.terminate = run._learner.kill = mock.Mock()
    run.run(lambda: False)
    assert words in capsys.readouterr().out


def test_run_that_was_interrupted_says_which_logs_it_lacks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(status_line.files, "write_problem", lambda _: "No space left on device")
    run = supervise(tmp_path, Process("learner", 130))
    run._learner.terminate = run._learner.kill = mock.Mock()
    run.run(lambda: False)
    assert "Hint:       Nothing can be written to " in capsys.readouterr().out
