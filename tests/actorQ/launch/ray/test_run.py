"""How a run on Ray treats members that do not answer, without a cluster."""

import dataclasses
import time
from unittest import mock

import pytest

from actorQ import launcher
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch.ray import run as ray_run

ray = pytest.importorskip("ray")


class Member:
    """A peer that answers as it is told."""

    def __init__(self, name, place="", answer=False, started=0.0):
        self.name, self.place, self.answer = name, place, answer
        self.started, self.code, self.lost, self.node = started, None, False, "here"

    def poll(self, timeout_s):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(name="run")
def _run(tmp_path):
    run = ray_run.RayRun(config_lib.RunConfig(logpath=str(tmp_path), n_actors=2), 1, 10.0)
    run._status = mock.Mock()
    return run


def said(run):
    return [call.args[0] for call in run._status.say.call_args_list]


def test_actor_without_room_is_named_once_and_the_run_goes_on(run):
    late = Member("actor_2", started=time.monotonic() - 11)
    run.peers = {"actor_1": Member("actor_1", place="here:/x"), "actor_2": late}
    fresh = Member("actor_1", started=time.monotonic())
    run._poll_peer(fresh)
    for _ in range(3):
        run._poll_peer(late)
    (line,) = said(run)
    assert "actor_2 found no room" in line and "--placement_timeout=10 s" in line


def test_no_actor_with_room_ends_the_run(run):
    late = Member("actor_1", started=time.monotonic() - 11)
    broadcaster = Member(telemetry.BROADCASTER, place="here:/x")
    run.peers = {telemetry.BROADCASTER: broadcaster, "actor_1": late}
    with pytest.raises(errors.UserError, match="No actor found room .* --placement_timeout=10 s"):
        run._poll_peer(late)


def test_worker_that_cannot_say_how_it_does_is_started_again_a_few_times(run):
    failure = ray.exceptions.RayTaskError("report", "Traceback", OSError("stale disk"))
    peer = Member("actor_1", place="here:/x", answer=failure)
    run._restart = mock.Mock()
    for _ in range(processes.MAX_FAILURES - 1):
        run._poll_peer(peer)
    assert run._restart.call_count == processes.MAX_FAILURES - 1
    with pytest.raises(errors.UserError, match="actor_1 could not be started 3 times"):
        run._poll_peer(peer)


def test_cpus_that_others_use_are_no_room(run, monkeypatch):
    run._placement_timeout_s = 0.0
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 64.0})
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 2.0})
    with pytest.raises(errors.UserError, match="2 free CPUs and the run wants 3"):
        run._has_room()
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 3.0})
    assert run._has_room()


def test_gpu_that_another_run_uses_is_no_room(run, monkeypatch):
    run._placement_timeout_s = 0.0
    run._config = dataclasses.replace(run._config, learner_device_placement="GPU")
    free = {"CPU": 8.0}  # Ray leaves out what there is none of.
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 64.0, "GPU": 1.0})
    monkeypatch.setattr(ray, "available_resources", lambda: free)
    with pytest.raises(errors.UserError, match="GPUs .* taken.*--learner_device_placement=CPU"):
        run._has_room()
    run._config = dataclasses.replace(run._config, learner_device_placement="CPU")
    assert run._has_room()
    run._config = dataclasses.replace(run._config, learner_device_placement="GPU")
    free["GPU"] = 1.0
    assert run._has_room()


def test_end_does_not_wait_for_what_was_never_placed(run):
    waiting = Member("actor_2")
    placed = mock.Mock(place="here:/x", complete=True, code=0)
    run.peers = {"actor_1": placed, "actor_2": waiting}
    waiting.drop = mock.Mock()
    run.learner = mock.Mock(place="", started=0.0, code=None)
    run._end_all()
    for member in (waiting, run.learner):
        member.drop.assert_called_once()
    run.learner.close.assert_not_called()  # Which would wait for an answer.
    placed.close.assert_called_once()
    assert said(run) == []


def test_what_an_actor_wrote_last_is_fetched_before_it_is_started_again(run, monkeypatch):
    class Ended(Member):
        """Answers with its exit code and the last rows at once, and then that this was all."""

        reason, complete, closed, answers = "killed", False, False, 0

        def poll(self, timeout_s):
            self.answers += 1
            self.complete = self.answers > 1
            return True

        def close(self):
            self.closed = True
            return self.complete

    monkeypatch.setattr(ray_run, "_LEARNER_FIRST_S", 0.1)
    peer = Ended("actor_1", place="here:/x")
    peer.code = 1
    run.learner = mock.Mock(code=None)
    run._poll_learner = lambda timeout_s: run._stop.wait(0.01)
    run._failures["actor_1"] = processes.Failures()
    run._peer_member = mock.Mock()
    run._poll_peer(peer)
    assert peer.closed and run.peers["actor_1"] is run._peer_member.return_value
    (line,) = said(run)
    assert line.startswith("actor_1 ended: killed")


def test_peer_that_saw_an_end_which_did_not_come_is_started_again(run, monkeypatch):
    peer = Member("actor_1", place="here:/x", answer=True)
    peer.code = 0
    run._restart = mock.Mock()
    run._poll_peer(peer)
    run._restart.assert_not_called()  # The learner is ending, as announced.
    monkeypatch.setattr(launcher, "FOLLOWS_S", -1.0)
    run._poll_peer(peer)
    run._restart.assert_called_once()


@pytest.mark.parametrize(
    ("device", "gpus", "wanted"), [("GPU", 2.0, 1), ("GPU", 0.0, None), ("CPU", 2.0, None)]
)
def test_learner_asks_for_a_gpu_where_it_is_to_have_one_and_there_is_one(
    tmp_path, monkeypatch, device, gpus, wanted
):
    config = config_lib.RunConfig(logpath=str(tmp_path), learner_device_placement=device)
    run = ray_run.RayRun(config, 3, 10.0)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": gpus})
    run._member = mock.Mock()
    run._learner_member()
    options = run._member.call_args.args[3]
    assert options.get("num_gpus") == wanted and options["num_cpus"] == 3
