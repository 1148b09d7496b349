"""Snapshots on disk: whole or not at all."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import resuming
from actorQ.core import settings as settings_lib
from actorQ.core import snapshots
from tests.actorQ import harness


def state(steps, **changes):
    values = {
        "run_id": 7, "settings": {"taskstr": "gym,A"}, "learner_steps": steps,
        "versions_skipped": 3, "returns": [1.0, -2.5], "best_return": None, "evaluation_s": 0.5,
        "checkpoint_s": 0.25, "pushes": 9, "log_bytes": {"train.csv": 100},
    }
    return snapshots.State(**{**values, **changes})


def write_parts(store):
    """Writes what TensorFlow and Reverb write; returns Reverb's folder."""
    folder = store.begin()
    pathlib.Path(folder, "learner.index").write_bytes(b"x")
    replay = pathlib.Path(store.reverb_folder, "2026-11-21T00:00:00")
    replay.mkdir()
    for name in ("tables.tfrecord", "items.tfrecord", "chunks.tfrecord", "DONE"):
        (replay / name).write_bytes(b"y")
    return str(replay)


def take(store, steps):
    store.commit(state(steps), write_parts(store))


@pytest.fixture(name="store")
def _store(tmp_path):
    store = snapshots.Store(str(tmp_path))
    store.prepare(fresh=True)
    return store


def test_newest_is_the_last_and_the_only_one_on_disk(store):
    assert not store.newest_name()
    take(store, 10)
    take(store, 20)
    snapshot = store.newest()
    assert snapshot.state == state(20)
    assert os.path.exists(snapshot.learner_prefix + ".index")
    assert sorted(os.listdir(store.folder)) == ["000002", "reverb"]
    assert os.listdir(store.reverb_folder) == []
    assert not store.being_written()
    store.begin()
    assert store.being_written()


def test_what_a_failed_snapshot_left_is_deleted(store):
    take(store, 10)
    write_parts(store)  # Reverb's part fails on a full disk, and stays.
    store.discard()
    assert sorted(os.listdir(store.folder)) == ["000001", "reverb"]
    assert os.listdir(store.reverb_folder) == []
    write_parts(store)
    store.begin()  # Nobody came to discard it.
    assert os.listdir(store.reverb_folder) == []
    assert store.newest().state == state(10)


@pytest.mark.parametrize("moment", ["fsync", "rename", "rmtree"])
def test_commit_killed_at_any_moment_leaves_a_whole_snapshot(store, tmp_path, moment):
    take(store, 10)
    code = (
        "import os, shutil, signal, sys\n"
        "from tests.actorQ.core import test_snapshots as t\n"
        "from actorQ.core import snapshots\n"
        f"store = snapshots.Store({str(tmp_path)!r})\n"
        "replay = t.write_parts(store)\n"
        "die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"moment = {moment!r}\n"
        "if moment == 'fsync': os.fsync = die\n"
        "if moment == 'rmtree': shutil.rmtree = die\n"
        "rename = os.rename\n"
        "if moment == 'rename':\n"
        "    os.rename = lambda a, b: die() if b.endswith('2') else rename(a, b)\n"
        "store.commit(t.state(20), replay)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=harness.REPOSITORY, timeout=60)
    assert done.returncode == -9
    steps = 20 if moment == "rmtree" else 10
    assert store.newest().state.learner_steps == steps
    store.prepare(fresh=False)  # A learner that is started again does this.
    assert store.newest().state.learner_steps == steps
    assert len([name for name in os.listdir(store.folder) if name.isdecimal()]) == 1
    assert "unfinished" not in os.listdir(store.folder)
    take(store, 30)
    assert store.newest().state.learner_steps == 30


def test_fresh_run_takes_over_nothing(store):
    take(store, 10)
    record = snapshots.VersionRecord(store)
    record.note_start()
    store.prepare(fresh=True)
    assert not store.newest_name()
    assert snapshots.VersionRecord(store).starts == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", b""), ("state.json", b"[]"), ("state.json", b'{"format": 99}'),
        ("state.json", b'{"format": 1, "learner_steps": 3}'), ("state.json", None),
        ("learner.index", None), ("replay/DONE", None), ("replay/chunks.tfrecord", None),
    ],
)
def test_newest_damaged_names_the_folder(store, name, content):
    take(store, 10)
    path = pathlib.Path(store.newest().folder, name)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(errors.UserError, match="000001 is damaged"):
        store.newest()


def test_newest_where_there_is_none_says_so(tmp_path):
    with pytest.raises(errors.UserError, match="no checkpoint to resume from"):
        snapshots.Store(str(tmp_path)).newest()


def test_version_record_survives_and_only_grows(store):
    record = snapshots.VersionRecord(store)
    assert (record.starts, record.highest) == (0, -1)
    record.note_start()
    for version in (5, 12345678901, 7):
        record.note(version)
    again = snapshots.VersionRecord(store)
    assert (again.starts, again.highest) == (1, 12345678901)


def test_version_record_damaged_is_named(store):
    path = pathlib.Path(store.folder, "versions")
    path.write_text("many")
    with pytest.raises(errors.UserError, match="versions is damaged"):
        snapshots.VersionRecord(store)


def test_every_setting_may_change_or_has_a_reason_why_not():
    names = {field.name for field in dataclasses.fields(config_lib.RunConfig)}
    assert names - config_lib.names_of(settings_lib.Kind.CHANGEABLE) == resuming.KEPT.keys()


def test_check_lets_change_what_is_not_stored_and_says_why_the_rest_must_not():
    before = config_lib.RunConfig()
    settings = {**vars(before)}
    changed = config_lib.RunConfig(
        num_episodes=9, stop_return=1.0, max_seconds=5.0, n_actors=3, logpath="elsewhere",
        resume=True, restarts=4, run_start_time=5.0, launch_id=8, port=0, learning_rate=5e-5,
        policy_learning_rate=0.0, batch_size=64, target_update_period=7, compress=1,
    )
    resuming.check_resumed(changed, settings)
    why = "--taskstr was .*--discount was 0.99, not 0.5 .replay holds sums of rewards"
    with pytest.raises(errors.UserError, match=why):
        resuming.check_resumed(config_lib.RunConfig(taskstr="gym,B", discount=0.5), settings)
    del settings["discount"]  # A run of a version without it: it was as by default.
    resuming.check_resumed(changed, settings)
    with pytest.raises(errors.UserError, match="--discount was 0.99, not 0.5"):
        resuming.check_resumed(config_lib.RunConfig(discount=0.5), settings)


def test_save_config_of_a_resumed_run_compares_like_a_whole_one(tmp_path):
    config = config_lib.RunConfig(logpath=str(tmp_path), num_episodes=10)
    resuming.save_config(config, None, machine="a")
    again = config_lib.RunConfig(
        logpath=str(tmp_path), num_episodes=20, resume=True, restarts=1000
    )
    for steps in (5, 7):
        if steps == 7:  # It is changed once, and stays so.
            again = dataclasses.replace(again, learning_rate=5e-5)
            line = "Changed after 7 learner steps: --learning_rate from 0.0001 to 5e-05."
            assert str(resuming.changes(again, steps)) == line
        resuming.save_config(again, steps, machine="b")
    resuming.save_config(again, 8, machine="b")
    assert str(resuming.changes(again, 9)) == ""
    record = json.loads((tmp_path / "config.json").read_text())
    assert config_lib.RunConfig.load(str(tmp_path)) == config_lib.RunConfig(
        logpath=str(tmp_path), num_episodes=20, learning_rate=5e-5
    )
    assert [(life["learner_steps"], life["changed"]) for life in record["resumed"]] == [
        (5, {"num_episodes": [10, 20]}), (7, {"learning_rate": [1e-4, 5e-5]}), (8, {}),
    ]
    assert record["machine"] == "b"
