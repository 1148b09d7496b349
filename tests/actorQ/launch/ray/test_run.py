"""Placement of processes on Ray, and the wait for room, without a cluster."""

import dataclasses
import time
from unittest import mock

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.launch.ray import run as ray_run

ray = pytest.importorskip("ray")


@pytest.fixture(name="run")
def _run(tmp_path):
    config = config_lib.RunConfig(logpath=str(tmp_path), n_actors=2)
    return ray_run.RayRun(config, 1, 10.0, mock.Mock())


def said(run):
    return [call.args[0] for call in run._status.say.call_args_list]


def let_wait(member, seconds):
    member._started_at = time.monotonic() - seconds


@pytest.fixture
def learner(run, monkeypatch):
    """The learner's handle, whose calls are their own answers."""
    run.learner.handle = mock.Mock()
    run.learner.handle.address.remote = mock.Mock(return_value="")
    monkeypatch.setattr(ray, "get", lambda reference, timeout=None: reference)
    monkeypatch.setattr(ray, "wait", lambda waiting, timeout: (waiting, []))
    return run.learner


@pytest.mark.parametrize(
    ("shares", "message"),
    [(False, "does not see the checkpoint in .*all machines share"), (True, "ended with code 1")],
)
def test_learner_that_cannot_go_on_says_whether_it_is_for_want_of_the_folder(
    run, learner, monkeypatch, shares, message
):
    run._config = dataclasses.replace(run._config, resume=True)
    learner.handle.shares_folder.remote = mock.Mock(return_value=shares)
    monkeypatch.setattr(learner, "poll", lambda: 1)
    learner.code = 1
    with pytest.raises(errors.UserError, match=message):
        run._wait_for_address()


@pytest.mark.parametrize("shares", [False, True])
def test_run_whose_checkpoints_stay_elsewhere_says_so(run, learner, monkeypatch, shares):
    monkeypatch.setattr(run, "_has_room", lambda: True)
    monkeypatch.setattr(run, "_wait_for_address", lambda: "there:1")
    for member in (learner, *run._peers):
        monkeypatch.setattr(member, "start", lambda: None)
    learner.handle.shares_folder.remote = mock.Mock(return_value=shares)
    assert run._start()
    assert any("cannot be resumed" in line for line in said(run)) == (not shares)


def test_actor_without_room_is_named_once_and_the_run_goes_on(run):
    placed, late = run.actors
    placed.place = "here:/x"
    let_wait(late, 9)
    run._mention_wait(late)
    let_wait(late, 11)
    for _ in range(3):
        run._mention_wait(late)
    (line,) = said(run)
    assert "actor_2 found no room" in line and "--placement_timeout=10 s" in line


def test_no_actor_with_room_ends_the_run(run):
    run._peers[0].place = "here:/x"  # The broadcaster alone.
    let_wait(run.actors[0], 11)
    with pytest.raises(errors.UserError, match="No actor found room .* --placement_timeout=10 s"):
        run._mention_wait(run.actors[0])


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


@pytest.mark.parametrize(
    ("device", "gpus", "wanted"), [("GPU", 2.0, 1), ("GPU", 0.0, None), ("CPU", 2.0, None)]
)
def test_learner_asks_for_a_gpu_where_it_is_to_have_one_and_there_is_one(
    tmp_path, monkeypatch, device, gpus, wanted
):
    config = config_lib.RunConfig(logpath=str(tmp_path), learner_device_placement=device)
    run = ray_run.RayRun(config, 3, 10.0, mock.Mock())
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": gpus})
    run._place = mock.Mock()
    run._place_learner(())
    options = run._place.call_args.args[3]
    assert options.get("num_gpus") == wanted and options["num_cpus"] == 3
