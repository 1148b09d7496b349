"""Folders of runs that the launcher starts or resumes, and what a resumed run keeps of flags."""

import errno
from unittest import mock

from absl import flags
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry
from actorQ.launch import run_folders


@pytest.fixture
def resume(tmp_path, monkeypatch):
    """Resumes the run in the folder of the test, which has a checkpoint of its settings."""
    monkeypatch.setattr(run_folders.resuming, "check_resumed", lambda *_: None)
    monkeypatch.setattr(run_folders.snapshots.Store, "newest", lambda _: mock.Mock())

    def call(**settings):
        config = config_lib.RunConfig(logpath=str(tmp_path), resume=True, **settings)
        return run_folders.resumed(config)

    return call


def test_resume_of_a_run_that_is_alive_leaves_its_address(tmp_path, resume):
    address = tmp_path / telemetry.ADDRESS_FILENAME
    address.write_text("localhost:1")
    elsewhere = "192.168.1.7:8181"
    with files.run_folder(tmp_path), pytest.raises(errors.UserError, match="Another learner"):
        resume(server_address=elsewhere)
    assert address.exists()
    assert not resume(server_address=elsewhere).server_address  # Processes go where it is now.
    assert not address.exists()


def test_resume_of_a_run_that_cannot_be_written_says_so(tmp_path, resume, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(run_folders.os, "remove", refuse)
    with pytest.raises(errors.WriteError, match=f"Cannot write {tmp_path}: Permission denied"):
        resume()


@pytest.fixture
def launch_of(tmp_path):
    """Returns what a launch is told in the folder of the test."""

    def call(*arguments, resume=True):
        values = flags.FlagValues()
        for name in ("port", "pin_cpus", "learner_threads"):
            flags.DEFINE_integer(name, 0, "As the launcher has it.", flag_values=values)
        values(["run_multiprocess.sh", *arguments])
        # A resumed run finds the threads that the first launch planned.
        config = config_lib.RunConfig(logpath=str(tmp_path), resume=resume, learner_threads=7)
        return run_folders.launch_of_flags(config, values)

    return call


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ([], [], run_folders.Launch(None, False)),
        (["--learner_threads=3"], [], run_folders.Launch(None, False, 3)),
        (["--learner_threads=3"], ["--learner_threads=0"], run_folders.Launch(None, False, 0)),
        (["--port=8181", "--pin_cpus=1"], [], run_folders.Launch(8181, True)),
        (["--port=8181", "--pin_cpus=1"], ["--port=9000"], run_folders.Launch(9000, True)),
        (["--port=8181", "--pin_cpus=1"], ["--pin_cpus=0"], run_folders.Launch(8181, False)),
        ([], ["--port=9000", "--pin_cpus=1"], run_folders.Launch(9000, True)),
    ],
)
def test_resumed_run_keeps_what_its_launch_was_told(launch_of, tmp_path, first, then, expected):
    run_folders.save_launch(launch_of(*first, resume=False), str(tmp_path))
    assert launch_of(*then) == expected


def test_new_run_knows_nothing_of_another(launch_of, tmp_path):
    run_folders.save_launch(run_folders.Launch(8181, True), str(tmp_path))
    assert launch_of(resume=False) == run_folders.Launch(None, False)


def test_run_without_a_record_was_told_nothing(launch_of):
    assert launch_of() == run_folders.Launch(None, False, 7)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "\x00", '{"port": "8181", "pin_cpus": true}', '{"port": 8181, "pin_cpus": 1}',
     '{"port": true, "pin_cpus": true}', '{"host": 1}', '{"learner_threads": null}'],
)
def test_damaged_record_of_a_launch_says_what_to_do(launch_of, tmp_path, content):
    (tmp_path / run_folders.LAUNCH_FILENAME).write_text(content)
    with pytest.raises(errors.UserError, match="launch.json cannot be read: .* Remove it, and"):
        launch_of()
