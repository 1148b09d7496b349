"""Folders take their place as a whole, or not at all."""

import os
import shutil
import threading
import time

import pytest

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import saving


def test_killed_save_leaves_nothing_that_is_taken_for_an_agent(zoo, tmp_path):
    source = finding.find("ppo", "CartPole-v1", zoo.folder).parent
    with pytest.raises(SystemExit), saving.whole_folder(tmp_path / "ppo/CartPole-v1_1") as draft:
        shutil.copytree(source, draft, dirs_exist_ok=True)
        # A process that is killed here leaves this copy behind.
        shutil.copytree(draft, draft.with_name(f"{draft.name}x"))
        raise SystemExit
    (left,) = (tmp_path / "ppo").iterdir()
    assert finding.found(tmp_path) == []
    # An old draft belongs to no running process.
    os.utime(left, (time.time() - 10_000,) * 2)
    finding.load("ppo", "CartPole-v1", zoo.folder).save(tmp_path)
    assert os.listdir(tmp_path / "ppo") == ["CartPole-v1_1"]


def test_killed_while_the_old_agent_is_removed_leaves_the_new_one(tmp_path, monkeypatch):
    target = tmp_path / "agent"
    with saving.whole_folder(target) as draft:
        (draft / "a").write_text("old")
    rmtree = shutil.rmtree

    def killed(path, **kwargs):
        if "-old" in path.name:
            raise KeyboardInterrupt
        rmtree(path, **kwargs)

    monkeypatch.setattr(saving.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt), saving.whole_folder(target) as draft:
        (draft / "a").write_text("new")
    assert (target / "a").read_text() == "new"


def test_folder_that_cannot_be_put_in_place_leaves_what_was_there(tmp_path, monkeypatch):
    target = tmp_path / "agent"
    with saving.whole_folder(target) as draft:
        (draft / "a").write_text("old")
    rename = os.rename

    def failing(source, destination):
        if destination == target and "-old" not in source.name:
            raise OSError(5, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr(saving.os, "rename", failing)
    with pytest.raises(errors.UserError, match="Input/output error"):
        with saving.whole_folder(target) as draft:
            (draft / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["agent"]


def test_two_processes_may_save_the_same_agent(tmp_path):
    target = tmp_path / "agent"
    failures = []

    def write(number):
        try:
            for _ in range(100):
                with saving.whole_folder(target) as draft:
                    for name in "ab":
                        (draft / name).write_text(str(number))
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []
    assert (target / "a").read_text() == (target / "b").read_text()
    assert os.listdir(tmp_path) == ["agent"]
