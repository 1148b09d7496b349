"""Processes on a Ray cluster that do and do not answer, without a cluster."""

import os
from unittest import mock

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import supervisor
from actorQ.launch.ray import member as ray_member
from actorQ.launch.ray import mirroring
from actorQ.launch.ray import worker

ray = pytest.importorskip("ray")

UNAVAILABLE = ray.exceptions.ActorUnavailableError("away", b"\1" * 16)


class Worker:
    """A worker that gives one answer after another, the last of them for ever."""

    def __init__(self):
        self.answers = []
        self.closed = []
        for name in ("report", "restart", "terminate", "close"):
            call = mock.Mock(side_effect=lambda *args, n=name, **kwargs: (n, args, kwargs))
            setattr(self, name, mock.Mock(remote=call))

    def answer(self, reference):
        if reference[0] != "report":
            return None
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def report(code=None, pieces=(), checkpoint=""):
    return worker.Report("life", False, list(pieces), code, checkpoint, False, "there", "/x")


def piece(name="actor_1", text="row\n"):
    path = os.path.join(name, telemetry.PHASES_CSV)
    return mirroring.Piece(path, text.encode(), 0, len(text))


@pytest.fixture(name="handle")
def _handle(monkeypatch):
    handle = Worker()
    monkeypatch.setattr(ray, "get", lambda reference, timeout=None: handle.answer(reference))
    monkeypatch.setattr(
        ray, "wait", lambda waiting, timeout: (waiting if handle.answers else [], [])
    )
    monkeypatch.setattr(ray, "kill", mock.Mock())
    return handle


def start(handle, tmp_path, kind=ray_member.Member, name="actor_1"):
    made = kind(name, str(tmp_path), lambda arguments: handle, mock.Mock(), mock.Mock())
    made.start()
    return made


def said(member):
    return [call.args[0] for call in member._status.say.call_args_list]


def test_member_that_is_not_placed_is_told_of_and_not_waited_for(handle, tmp_path, monkeypatch):
    member = start(handle, tmp_path)
    assert member.poll() is None
    member._waits.assert_called_once_with(member)
    assert not member.wait(0.1)  # Its worker may come any moment.
    monkeypatch.setattr(ray_member, "_PLACED_S", -1.0)
    assert member.wait(60)
    member.terminate()
    member.kill()
    handle.terminate.remote.assert_not_called()
    handle.close.remote.assert_not_called()  # It would wait for an answer.
    ray.kill.assert_called_once()
    assert said(member) == []


def test_last_rows_of_a_member_are_here_before_its_end_is_told(handle, tmp_path):
    member = start(handle, tmp_path)
    handle.answers = [report(1, [piece()]), report(1)]
    assert member.poll() is None and member.code == 1
    assert member.poll() == 1
    assert (tmp_path / "actor_1" / telemetry.PHASES_CSV).read_text() == "row\n"
    member.kill()
    handle.close.remote.assert_called_once_with(keep=False)


def test_end_is_told_without_rows_that_do_not_come(handle, tmp_path, monkeypatch):
    member = start(handle, tmp_path)
    handle.answers = [report(1, [piece()])]
    assert member.poll() is None
    monkeypatch.setattr(ray_member, "_LAST_ROWS_S", -1.0)
    assert member.poll() == 1
    member.kill()
    handle.close.remote.assert_called_once_with(keep=True)
    (line,) = said(member)
    assert line == "Not all that actor_1 wrote is here: see there:/x."


def test_member_whose_machine_went_away_is_back_elsewhere(handle, tmp_path):
    member = start(handle, tmp_path)
    handle.answers = [report(), UNAVAILABLE, UNAVAILABLE, report()]
    assert [member.poll() for _ in range(4)] == [None] * 4
    lost, back = said(member)
    assert lost == "actor_1 was lost with there; Ray starts it elsewhere."
    assert back == "actor_1 is back, on there."


def test_worker_that_cannot_say_how_it_does_is_started_again_a_few_times(handle, tmp_path):
    member = start(handle, tmp_path)
    handle.answers = [ray.exceptions.RayTaskError("report", "Traceback", OSError("stale disk"))]
    config = config_lib.RunConfig(logpath=str(tmp_path))
    (tmp_path / telemetry.ADDRESS_FILENAME).write_text("there:1")
    learner = mock.Mock(wait=lambda timeout_s: False)
    status = mock.Mock()
    run = supervisor.Supervisor(config, learner, [member], mock.Mock(), status)
    for _ in range(supervisor.MAX_FAILURES - 1):
        assert member.poll() is not None
        run._revive(member)
        assert member.code is None
    assert member.poll() is not None
    with pytest.raises(errors.UserError, match="3 times in a row"):
        run._revive(member)
    lines = [call.args[0] for call in status.say.call_args_list]
    assert lines[0].startswith("actor_1 was lost with its worker: ")
    assert lines[0].endswith(processes.STARTED_AGAIN)


def test_learner_is_started_again_where_it_is(handle, tmp_path):
    learner = start(handle, tmp_path, ray_member.Learner, "learner")
    handle.answers = [report(-9, checkpoint="2"), report()]
    assert learner.poll() == -9 and learner.newest_name() == "2"
    learner.restart("--restarts=1", "--resume")
    handle.restart.remote.assert_called_once_with(("--restarts=1", "--resume"))
    assert learner.poll() is None and learner.restarts == 1


def test_learner_whose_machine_is_gone_ends_the_run(handle, tmp_path, monkeypatch):
    learner = start(handle, tmp_path, ray_member.Learner, "learner")
    handle.answers = [report(), UNAVAILABLE]
    assert learner.poll() is None and learner.poll() is None  # It may be back.
    monkeypatch.setattr(ray_member, "_UNSEEN_S", -1.0)
    with pytest.raises(errors.UserError, match="machine is gone .*Replay was there; the"):
        learner.poll()


def test_learner_saves_until_all_of_its_files_are_here(handle, tmp_path):
    learner = start(handle, tmp_path, ray_member.Learner, "learner")
    handle.answers = [report(0, [piece("learner")]), report(0)]
    learner.poll()
    assert learner.being_written()
    assert learner.wait(10)
    assert learner.code == 0 and not learner.being_written()
