"""Folders of runs that the launcher starts or resumes, and what a resumed run keeps of flags."""

import errno

from absl import flags
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry
from actorQ.launch import run_folders


@pytest.fixture
def resume(tmp_path):
    """Makes the folder of the test ready for a run that goes on."""
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
def begin(tmp_path):
    """Enters the folder of a run with flags of the launcher."""

    def call(*arguments, logpath="walker"):
        values = flags.FlagValues()
        for name, default in (("logpath", "logs/run"), ("logdir", "logs"), ("run_name", "")):
            flags.DEFINE_string(name, default, "As the launcher has it.", flag_values=values)
        flags.DEFINE_string("resume", "", "As the launcher has it.", flag_values=values)
        values(["run_multiprocess.sh", "--resume=auto", *arguments])
        run_folders._require_named(values)
        return run_folders.entered(
            config_lib.RunConfig(logpath=str(tmp_path / logpath)), values
        )

    return call


def test_auto_begins_in_the_folder_that_logpath_names(tmp_path, begin):
    config = begin("--logpath=it")
    assert config.logpath == str(tmp_path / "walker")
    assert (tmp_path / "walker" / telemetry.STDOUT_FOLDER).is_dir()
    assert config.launch_id and config.run_start_time
    (tmp_path / "walker" / telemetry.ADDRESS_FILENAME).write_text("an earlier start's")
    again = begin("--logpath=it")  # A launch that was ended before its first checkpoint.
    assert again.launch_id != config.launch_id
    assert not (tmp_path / "walker" / telemetry.ADDRESS_FILENAME).exists()
    with files.run_folder(tmp_path / "walker"), pytest.raises(
        errors.UserError, match="Another learner"
    ):
        begin("--logpath=it")


def test_auto_overwrites_no_run_that_has_lost_its_checkpoints(tmp_path, begin):
    log = tmp_path / "walker" / telemetry.LEARNER / telemetry.TRAIN_CSV
    log.parent.mkdir(parents=True)
    log.write_text("row")
    with pytest.raises(errors.UserError, match="no checkpoint to go on from: choose another"):
        begin("--logpath=it")
    assert log.read_text() == "row"


@pytest.mark.parametrize("arguments", [[], ["--logpath=it", "--logdir=logs"]])
def test_auto_wants_the_folder_named_by_logpath_alone(begin, arguments):
    with pytest.raises(errors.UserError, match="whose folder --logpath names"):
        begin(*arguments)


@pytest.fixture
def launch_of(tmp_path):
    """Returns what a launch is told in the folder of the test."""

    def call(*arguments, resume=True):
        values = flags.FlagValues()
        for name in ("port", "pin_cpus", "learner_threads"):
            flags.DEFINE_integer(name, 0, "As the launcher has it.", flag_values=values)
        flags.DEFINE_string("listen", "local", "As the launcher has it.", flag_values=values)
        values(["run_multiprocess.sh", *arguments])
        # A resumed run finds the threads that the first launch planned, and that Ray's was open.
        config = config_lib.RunConfig(
            logpath=str(tmp_path), resume=resume, learner_threads=7, listen="all"
        )
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
        (["--listen=all"], [], run_folders.Launch(listen="all")),
        (["--listen=all"], ["--listen=local"], run_folders.Launch(listen="local")),
    ],
)
def test_resumed_run_keeps_what_its_launch_was_told(launch_of, tmp_path, first, then, expected):
    run_folders.save_launch(launch_of(*first, resume=False), str(tmp_path))
    assert launch_of(*then) == expected


def test_new_run_knows_nothing_of_another(launch_of, tmp_path):
    run_folders.save_launch(run_folders.Launch(8181, True), str(tmp_path))
    assert launch_of(resume=False) == run_folders.Launch(None, False)


def test_run_without_a_record_was_told_nothing(launch_of):
    assert launch_of() == run_folders.Launch(None, False, 7, "all")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "\x00", '{"port": "8181", "pin_cpus": true}', '{"port": 8181, "pin_cpus": 1}',
     '{"port": true, "pin_cpus": true}', '{"host": 1}', '{"learner_threads": null}'],
)
def test_damaged_record_of_a_launch_says_what_to_do(launch_of, tmp_path, content):
    (tmp_path / run_folders.LAUNCH_FILENAME).write_text(content)
    with pytest.raises(errors.UserError, match="launch.json cannot be read: .* Remove it, and"):
        launch_of()
