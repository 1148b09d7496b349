"""Files that are whole or not there; folders with one process in them."""

import os
import resource
import signal
import subprocess
import sys

import pytest

from actorQ.core import errors
from actorQ.core import files

HOLD = """
import sys
from actorQ.core import files
with files.locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_replaced_at_once_and_keeps_nothing_unfinished(tmp_path):
    path = tmp_path / "file.json"
    files.write(path, "größer")
    files.write(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(RuntimeError), files.draft(path) as unfinished:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write("half")
        raise RuntimeError
    assert path.read_bytes() == b"new"


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write(path, "old")
    synced = []

    def fsync(opened):
        synced.append((os.readlink(f"/proc/self/fd/{opened}"), path.read_text()))

    monkeypatch.setattr(files.os, "fsync", fsync)
    files.write(path, "new")
    assert synced == [(f"{path}.tmp", "old")]
    assert path.read_text() == "new"


def test_what_cannot_be_written_is_said_in_one_line(tmp_path):
    with pytest.raises(errors.UserError, match=r"Cannot write .*none/file: No such file"):
        files.write(tmp_path / "none" / "file", "")
    with pytest.raises(errors.UserError, match="Cannot open .*none: No such file"):
        with files.locked(tmp_path / "none"):
            pass


def test_a_locked_folder_keeps_others_out_until_the_process_ends(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(errors.UserError, match="somebody is in it"):
        with files.locked(tmp_path, "somebody is in it"):
            pass
    holder.kill()
    holder.wait()
    with files.locked(tmp_path, "somebody is in it"):
        pass
    with files.locked(tmp_path):
        pass


def test_a_lock_is_not_kept_by_what_its_holder_forked(tmp_path):
    with files.locked(tmp_path, "somebody is in it"):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:  # It is like a simulator that outlives its parent.
            os.write(writing, b"1")
            signal.pause()
        os.read(reading, 1)
    try:
        with files.locked(tmp_path, "somebody is in it"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_run_folder_is_for_one_learner(tmp_path):
    folder = tmp_path / "logs" / "run"
    with files.run_folder(folder):
        assert folder.is_dir()
        with pytest.raises(errors.UserError, match="Another learner trains in .*run"):
            with files.run_folder(folder):
                pass
    with files.run_folder(folder):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="Cannot write logs"):
        with files.run_folder(tmp_path / "file" / "run"):
            pass


def test_sync_takes_whole_folders(tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    for path in (tmp_path / "a", tmp_path / "below" / "b"):
        path.write_text("x")
    synced = []
    monkeypatch.setattr(
        files.os, "fsync", lambda opened: synced.append(os.readlink(f"/proc/self/fd/{opened}"))
    )
    files.sync(tmp_path)
    expected = [tmp_path, tmp_path / "a", tmp_path / "below", tmp_path / "below" / "b"]
    assert sorted(synced) == [str(path) for path in expected]
    synced.clear()
    files.sync(tmp_path, deep=False)
    assert synced == [str(tmp_path)]


def test_write_problem_names_the_reason_and_leaves_nothing(tmp_path):
    assert files.write_problem(tmp_path) == ""
    assert files.write_problem(tmp_path / "away") == "No such file or directory"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # Much as on a disk that is full.
    try:
        assert files.write_problem(tmp_path) == "File too large"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
