"""Logs from another machine: nothing lost, nothing twice, no half rows."""

import os

import pytest

from actorQ.core import errors
from actorQ.launch.ray import mirroring


@pytest.fixture
def ends(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "actor_1").mkdir(parents=True)
    here.mkdir()
    return there, here, mirroring.Source(str(there)), mirroring.Sink(str(here))


def bring(source, sink):
    pieces = source.news(sink.acknowledged(source.incarnation))
    sink.take(source.incarnation, source.replaces, pieces)
    return pieces


def test_log_that_grows_arrives_in_whole_lines(ends):
    there, here, source, sink = ends
    log = there / "actor_1" / "phases.csv"
    log.write_text("seconds,pulls\n1,1\n2,")
    bring(source, sink)
    copy = here / "actor_1" / "phases.csv"
    assert copy.read_text() == "seconds,pulls\n1,1\n"
    with open(log, "a") as file:
        file.write("2\n3,3\n")
    bring(source, sink)
    assert copy.read_bytes() == log.read_bytes()
    assert bring(source, sink) == []


def test_answer_that_was_lost_or_came_twice_changes_nothing(ends):
    there, here, source, sink = ends
    log = there / "actor_1" / "episodes.csv"
    log.write_text("a\n1\n")
    lost = source.news({})
    with open(log, "a") as file:
        file.write("2\n")
    bring(source, sink)
    sink.take(source.incarnation, False, lost)
    assert (here / "actor_1" / "episodes.csv").read_text() == "a\n1\n2\n"


def test_process_started_elsewhere_goes_on_without_a_second_header(ends, tmp_path):
    there, here, source, sink = ends
    (there / "actor_1" / "phases.csv").write_text("seconds,pulls\n1,1\n")
    (there / "actor_1" / "events.out.1").write_bytes(b"\x00\x01")
    (there / "actor_1" / "run-1.wandb").write_bytes(b"\n\x03")
    bring(source, sink)
    with open(there / "actor_1" / "run-1.wandb", "ab") as file:
        file.write(b"\x04")
    (piece,) = source.news(sink.acknowledged(source.incarnation))
    assert (piece.begin, piece.content) == (2, b"\x04")  # It does not come as a whole again.
    sink.take(source.incarnation, False, [piece])
    assert (here / "actor_1" / "run-1.wandb").read_bytes() == b"\n\x03\x04"
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "actor_1").mkdir(parents=True)
    (elsewhere / "actor_1" / "phases.csv").write_text("seconds,pulls\n5,1\n")
    (elsewhere / "actor_1" / "events.out.2").write_bytes(b"\x02")
    bring(mirroring.Source(str(elsewhere)), sink)
    assert (here / "actor_1" / "phases.csv").read_text() == "seconds,pulls\n1,1\n5,1\n"
    assert (here / "actor_1" / "events.out.1").read_bytes() == b"\x00\x01"
    assert (here / "actor_1" / "events.out.2").read_bytes() == b"\x02"


def test_process_that_went_back_to_a_checkpoint_replaces_its_logs(ends):
    there, here, source, sink = ends
    log = there / "actor_1" / "train.csv"
    log.write_text("seconds,learner_steps\n1,10\n2,20\n3,30\n")
    bring(source, sink)
    log.write_text("seconds,learner_steps\n1,10\n")
    source.rewrite()
    bring(source, sink)
    copy = here / "actor_1" / "train.csv"
    assert copy.read_text() == log.read_text()
    with open(log, "a") as file:
        file.write("4,20\n")
    bring(source, sink)
    assert copy.read_text() == log.read_text()


def test_files_of_one_piece_come_again_when_they_change_and_replay_never(ends):
    there, here, source, sink = ends
    policy = there / "checkpoint" / "policy.safetensors"
    (there / "checkpoint" / "resume" / "000001").mkdir(parents=True)
    (there / "checkpoint" / "resume" / "000001" / "state.json").write_text("{}")
    (there / "checkpoint" / "policy.safetensors.tmp").write_bytes(b"half")
    policy.write_bytes(b"first")
    assert [piece.path for piece in bring(source, sink)] == ["checkpoint/policy.safetensors"]
    assert bring(source, sink) == []
    policy.write_bytes(b"second")
    os.utime(policy, (1, 1))
    bring(source, sink)
    assert (here / "checkpoint" / "policy.safetensors").read_bytes() == b"second"
    assert not (here / "checkpoint" / "resume").exists()


def test_long_log_comes_in_several_answers(ends, monkeypatch):
    monkeypatch.setattr(mirroring, "_MOST_BYTES", 100)
    there, here, source, sink = ends
    log = there / "actor_1" / "actor_1.log"
    log.write_text("".join(f"line {i}\n" for i in range(200)))
    answers = 0
    while bring(source, sink):
        answers += 1
    assert answers > 10
    assert (here / "actor_1" / "actor_1.log").read_bytes() == log.read_bytes()


@pytest.mark.parametrize("path", ["../outside.csv", "/etc/outside.csv", "a/../../outside.csv"])
def test_path_outside_the_run_is_refused(ends, path):
    *_, sink = ends
    with pytest.raises(errors.UserError, match="from another machine has the path"):
        sink.take("x", False, [mirroring.Piece(path, b"1\n", 0, 2)])
