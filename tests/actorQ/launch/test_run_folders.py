"""Folders of runs that the launcher starts or resumes."""

import errno
from unittest import mock

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry
from actorQ.launch import run_folders


@pytest.fixture
def resume(tmp_path, monkeypatch):
    """Resumes the run in the folder of the test, which has a checkpoint of its settings."""
    monkeypatch.setattr(run_folders.resuming, "check", lambda *_: None)
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
