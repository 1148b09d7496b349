"""Tests `actorQ.core.telemetry`: what is written is read back, whatever state a log is in."""

import contextlib
import math
import os
import re
import resource
import threading
import time

import pytest

from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import telemetry

ROW = {
    "actor_steps": 12, "episodes": 3, "episode_return": -1.5, "episode_length": 7,
    "model_version": 40, "staleness_steps": 2,
}
HEADER = ",".join(telemetry.EPISODE_FIELDS)


@pytest.fixture
def log_path(tmp_path):
    """Path of a log that tests write by hand."""
    return tmp_path / telemetry.EPISODES_CSV


@pytest.fixture
def make_logger(tmp_path):
    """Opens loggers of one run, and closes what is left open."""
    loggers = []

    def make(process="actor_1", start_time=0.0):
        loggers.append(run_logger.RunLogger(str(tmp_path), process, start_time))
        return loggers[-1]

    yield make
    for logger in loggers:
        with contextlib.suppress(RuntimeError):  # The test has closed it.
            logger.close()


def test_run_logger_rows_read_back_equal(make_logger):
    started = time.time() - 100.0
    logger = make_logger(start_time=started)
    logger.write(telemetry.EPISODES_CSV, 12, **ROW)
    logger.write(telemetry.EPISODES_CSV, 24, **{**ROW, "actor_steps": 24, "episode_return": 1 / 3})
    columns = telemetry.read_csv(f"{logger.folder}/{telemetry.EPISODES_CSV}")
    assert tuple(columns) == telemetry.EPISODE_FIELDS
    assert columns["actor_steps"] == [12.0, 24.0]
    assert columns["episode_return"] == [-1.5, pytest.approx(1 / 3, rel=1e-5)]
    for seconds, unix_time in zip(columns["seconds"], columns["unix_time"], strict=True):
        assert unix_time - seconds == pytest.approx(started, abs=0.05)
        assert 100.0 <= seconds < 160.0


def test_log_has_a_column_for_each_layer_in_its_first_row(make_logger):
    logger = make_logger(telemetry.BROADCASTER)
    layers = {"weight_error_linear_0": 0.125, "weight_error_head": 0.5}
    logger.write(telemetry.UPDATES_CSV, 1, model_version=1, **layers)
    logger.write(telemetry.UPDATES_CSV, 2, model_version=2, changed_share=0.25)
    logger.write(telemetry.UPDATES_CSV, 3, model_version=3, weight_error_head=0.75)
    columns = telemetry.read_csv(f"{logger.folder}/{telemetry.UPDATES_CSV}")
    assert tuple(columns) == (*telemetry.UPDATE_FIELDS, *layers)
    assert columns["weight_error_head"][::2] == [0.5, 0.75]
    assert math.isnan(columns["weight_error_head"][1])


def test_columns_of_layers_belong_to_the_meters_logs_alone(make_logger):
    with pytest.raises(ValueError, match="weight_error_head"):
        make_logger().write(telemetry.EPISODES_CSV, 1, **ROW, weight_error_head=0.5)


def test_run_logger_without_start_time_counts_from_its_own_start(make_logger):
    logger = make_logger()
    logger.write(telemetry.EPISODES_CSV, 1, **ROW)
    assert 0 <= telemetry.last_row(f"{logger.folder}/episodes.csv")["seconds"] < 60


def test_run_logger_row_is_on_disk_before_close(make_logger, tmp_path):
    make_logger().write(telemetry.EPISODES_CSV, 12, **ROW)
    lines = (tmp_path / "actor_1" / "episodes.csv").read_bytes().split(b"\r\n")
    assert lines[0].decode() == HEADER
    assert lines[1].endswith(b",12,3,-1.5,7,40,2")
    assert lines[2:] == [b""]


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no such limit here")
def test_run_logger_full_disk_loses_rows_and_nothing_else(make_logger, caplog, monkeypatch):
    monkeypatch.setattr(run_logger, "_NO_ROOM_S", 0.0)
    logger = make_logger()
    path = f"{logger.folder}/{telemetry.EPISODES_CSV}"
    logger.write(telemetry.EPISODES_CSV, 12, **ROW)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Part of a row may still be written, as on a disk that runs full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 9, limits[1]))
    try:
        logger.write(telemetry.EPISODES_CSV, 24, **ROW)
        logger.write(telemetry.EPISODES_CSV, 36, **ROW)
        # A new file, which cannot even have a header.
        logger.write(telemetry.PHASES_CSV, 36, actor_steps=36)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert logger.rows_lost == 3
    assert caplog.text.count("Cannot write logs") == 1
    assert "File too large): 1 row is lost so far; the run goes on." in caplog.text
    logger.write(telemetry.EPISODES_CSV, 48, **{**ROW, "actor_steps": 48})
    logger.write(telemetry.PHASES_CSV, 48, actor_steps=48)
    logger.close()
    assert f"Logs in {logger.folder} lack rows: 3 rows are lost." in caplog.text
    assert telemetry.read_csv(path)["actor_steps"] == [12, 48]
    assert telemetry.read_csv(f"{logger.folder}/{telemetry.PHASES_CSV}")["actor_steps"][-1] == 48


def test_run_logger_without_room_for_tensorboard_speaks_of_no_lost_rows(
    make_logger, caplog, monkeypatch
):
    def fail(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_logger, "_tensorboard_writer", fail)
    make_logger().close()
    assert "No space left on device): TensorBoard lacks points; the run goes on." in caplog.text
    assert "lost" not in caplog.text


def test_run_logger_fields_left_out_read_as_nan(make_logger):
    logger = make_logger("learner")
    logger.write(telemetry.TRAIN_CSV, 5, learner_steps=5, loss=0.25)
    columns = telemetry.read_csv(f"{logger.folder}/train.csv")
    assert columns["loss"] == [0.25]
    assert math.isnan(columns["policy_loss"][0])
    row = telemetry.last_row(f"{logger.folder}/train.csv")
    assert row["learner_steps"] == 5.0
    assert "policy_loss" not in row


def test_run_logger_field_it_does_not_know_raises(make_logger):
    with pytest.raises(ValueError, match="no_such_field"):
        make_logger().write(telemetry.EPISODES_CSV, 1, no_such_field=1.0)


def test_run_logger_reopened_appends_without_second_header(make_logger, tmp_path):
    for step in (1, 2):
        logger = make_logger()
        logger.write(telemetry.EPISODES_CSV, step, **{**ROW, "actor_steps": step})
        logger.close()
    path = tmp_path / "actor_1" / "episodes.csv"
    assert path.read_text().count("unix_time") == 1
    assert telemetry.read_csv(str(path))["actor_steps"] == [1.0, 2.0]


def test_run_logger_reopened_behind_half_a_row_starts_a_new_line(make_logger, tmp_path):
    # A killed actor may leave half a row; the launcher starts it again on the same log.
    logger = make_logger()
    logger.write(telemetry.EPISODES_CSV, 1, **ROW)
    logger.close()
    path = tmp_path / "actor_1" / "episodes.csv"
    with open(path, "ab") as file:
        file.write(b"3.1,17")
    make_logger().write(telemetry.EPISODES_CSV, 2, **{**ROW, "actor_steps": 99})
    assert telemetry.read_csv(str(path))["actor_steps"] == [12.0, 99.0]


def test_run_logger_empty_file_gets_a_header(make_logger, tmp_path):
    path = tmp_path / "actor_1" / "episodes.csv"
    path.parent.mkdir()
    path.touch()
    make_logger().write(telemetry.EPISODES_CSV, 1, **ROW)
    assert path.read_text().startswith(HEADER)


def test_run_logger_goes_on_in_a_log_of_a_version_with_other_columns(make_logger, tmp_path):
    path = tmp_path / "actor_1" / telemetry.PHASES_CSV
    path.parent.mkdir()
    old = [name for name in telemetry.PHASE_FIELDS if name != "transfer_s"] + ["gone"]
    path.write_text(",".join(old) + "\r\n" + ",".join(["1.5"] * len(old)) + "\r\n", newline="")
    make_logger().write(telemetry.PHASES_CSV, 9, actor_steps=9, pull_s=2.5, transfer_s=0.5)
    columns = telemetry.read_csv(str(path))
    assert columns["actor_steps"] == [1.5, 9.0] and columns["pull_s"] == [1.5, 2.5]
    assert math.isnan(columns["gone"][1]) and "transfer_s" not in columns
    assert telemetry.last_row(str(path))["actor_steps"] == 9.0


def test_run_logger_scalars_reach_tensorboard(make_logger, tmp_path):
    from tensorboard.backend.event_processing import event_file_loader

    logger = make_logger()
    logger.write(telemetry.EPISODES_CSV, 12, **ROW)
    logger.close()
    (events,) = (tmp_path / "actor_1").glob("events.out*")
    scalars = {
        value.tag: (event.step, value.tensor.float_val[0])
        for event in event_file_loader.EventFileLoader(str(events)).Load()
        for value in event.summary.value
    }
    assert scalars == {f"episodes/{name}": (12, float(value)) for name, value in ROW.items()}


def test_run_logger_folder_that_cannot_be_made_is_a_user_error(tmp_path):
    (tmp_path / "learner").write_text("a file is in the way")
    with pytest.raises(errors.UserError, match="Cannot write logs to .*learner"):
        run_logger.RunLogger(str(tmp_path), "learner")


def test_run_logger_started_again_waits_for_its_folder(tmp_path, monkeypatch, caplog):
    path = tmp_path / "learner"
    path.write_text("a file is in the way")
    threading.Timer(1.0, path.unlink).start()
    run_logger.RunLogger(str(tmp_path), "learner", again=True).close()
    assert path.is_dir() and "waiting up to 60 s" in caplog.text
    monkeypatch.setattr(run_logger, "_PATIENCE_S", 0.1)
    (tmp_path / "actor_1").write_text("for good")
    with pytest.raises(errors.UserError, match="Cannot write logs to .*actor_1"):
        run_logger.RunLogger(str(tmp_path), "actor_1", again=True)


def full_row(number):
    """A row of EPISODE_FIELDS; every cell is `number` with a fraction, so that cuts show."""
    return ",".join([f"{number}.125"] * len(telemetry.EPISODE_FIELDS))


def test_read_csv_row_cut_anywhere_is_left_out(log_path):
    row = full_row(7)
    for end in range(len(row) + 1):
        log_path.write_text(f"{HEADER}\r\n{full_row(3)}\r\n{row[:end]}", newline="")
        columns = telemetry.read_csv(str(log_path))
        assert columns["episode_length"] == [3.125]
        assert columns["staleness_steps"] == [3.125]


def test_read_csv_plain_newlines_read_the_same(log_path):
    log_path.write_text(f"{HEADER}\n{full_row(3)}\n{full_row(4)}\n")
    assert telemetry.read_csv(str(log_path))["seconds"] == [3.125, 4.125]


def test_read_csv_more_columns_than_known_keeps_them(log_path):
    log_path.write_text(f"{HEADER},later\n{full_row(3)},9\n")
    assert telemetry.read_csv(str(log_path))["later"] == [9.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (HEADER.encode()[:20], "is empty|not a log of this kind"),
        (HEADER.encode() + b"\r\n", "has no rows yet"),
        (HEADER.encode() + b"\r\n3.1,17", "has no rows yet"),
        (b"seconds,unix_time\r\n1,2\r\n", "not a log of this kind"),
        (b"1,2,3\r\n4,5,6\r\n", "not a log of this kind"),
        (HEADER.encode() + b"\r\n" + full_row(3).replace("3.125", "x", 1).encode() + b"\r\n",
         "is damaged.*'x'"),
        (b"\xff\xfe\x00\x80\r\n\x81\r\n", "is damaged"),
    ],
)
def test_read_csv_unusable_log_is_a_user_error(log_path, content, message):
    log_path.write_bytes(content)
    with pytest.raises(errors.UserError, match=message) as caught:
        telemetry.read_csv(str(log_path))
    assert str(log_path) in str(caught.value)


def test_read_csv_missing_log_is_a_user_error(log_path):
    with pytest.raises(errors.UserError, match=f"No log at {re.escape(str(log_path))}"):
        telemetry.read_csv(str(log_path))


def test_last_row_while_a_row_is_written_is_the_row_before(log_path):
    row = full_row(7) + "\r\n"
    before = dict.fromkeys(telemetry.EPISODE_FIELDS, 3.125)
    for end in range(len(row)):
        log_path.write_text(f"{HEADER}\r\n{full_row(3)}\r\n{row[:end]}", newline="")
        assert telemetry.last_row(str(log_path)) == before
    log_path.write_text(f"{HEADER}\r\n{full_row(3)}\r\n{row}", newline="")
    assert telemetry.last_row(str(log_path)) == dict.fromkeys(telemetry.EPISODE_FIELDS, 7.125)


def test_last_row_of_a_long_log_is_the_newest(log_path):
    rows = "".join(f"{full_row(number)}\r\n" for number in range(2000))
    log_path.write_text(f"{HEADER}\r\n{rows}", newline="")
    assert telemetry.last_row(str(log_path))["episodes"] == 1999.125


@pytest.mark.parametrize("content", ["", HEADER[:10], HEADER, HEADER + "\r\n", HEADER + "\r\n1,2"])
def test_last_row_without_a_row_is_empty(log_path, content):
    log_path.write_text(content, newline="")
    assert telemetry.last_row(str(log_path)) == {}


def test_last_row_of_no_file_is_empty(log_path):
    assert telemetry.last_row(str(log_path)) == {}
    assert telemetry.last_rows(str(log_path), 3) == telemetry.first_rows(str(log_path), 3) == []


def test_first_and_last_rows_leave_out_a_row_that_is_being_written(log_path):
    rows = "".join(f"{full_row(number)}\r\n" for number in range(4))
    log_path.write_text(f"{HEADER}\r\n{rows}{full_row(4)}", newline="")
    last = telemetry.last_rows(str(log_path), 2)
    assert [row["episodes"] for row in last] == [2.125, 3.125]
    first = telemetry.first_rows(str(log_path), 9)
    assert [row["episodes"] for row in first] == [0.125, 1.125, 2.125, 3.125]
    assert telemetry.first_rows(str(log_path), 1) == first[:1]


def test_actor_folders_are_ordered_by_number(tmp_path):
    for name in ("actor_10", "actor_2", "actor_1", "learner", "actor_old", "stdout"):
        (tmp_path / name).mkdir()
    folders = telemetry.actor_folders(str(tmp_path))
    assert folders == [str(tmp_path / f"actor_{number}") for number in (1, 2, 10)]


def test_actor_folders_of_no_folder_is_a_user_error(tmp_path):
    with pytest.raises(errors.UserError, match="is not a folder"):
        telemetry.actor_folders(str(tmp_path / "none"))


def test_fields_every_log_begins_with_the_time():
    for fields in telemetry.FIELDS.values():
        assert fields[:2] == ("seconds", "unix_time")
        assert len(set(fields)) == len(fields)


def test_logger_purge_step_makes_tensorboard_forget_what_was_later(tmp_path):
    from tensorboard.backend.event_processing import plugin_event_accumulator

    for purge_step, steps in ((None, (1, 2, 3)), (2, (2,))):
        logger = run_logger.RunLogger(str(tmp_path), "learner", purge_step=purge_step)
        for step in steps:
            logger._next_point.clear()
            logger.write(telemetry.TRAIN_CSV, step, learner_steps=step)
        logger.close()
    events = plugin_event_accumulator.EventAccumulator(str(tmp_path / "learner"))
    events.Reload()
    assert [event.step for event in events.Tensors("train/learner_steps")] == [1, 2]


def test_clock_of_a_run_does_not_follow_the_machines(tmp_path, monkeypatch):
    logger = run_logger.RunLogger(str(tmp_path), "learner", time.time() - 20.0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7200.0)  # It was set right.
    assert logger.seconds() == pytest.approx(20.0, abs=60.0)
    logger.write(telemetry.TRAIN_CSV, 1, learner_steps=1)
    logger.close()
    row = telemetry.last_row(str(tmp_path / "learner" / telemetry.TRAIN_CSV))
    assert row["seconds"] == pytest.approx(20.0, abs=60.0)
    # A process that is started again after the clock was set back does not go back.
    monkeypatch.setattr(time, "time", lambda: real() - 7200.0)
    again = run_logger.RunLogger(str(tmp_path), "learner", real() - 20.0, again=True)
    assert again.seconds() >= row["seconds"]
    again.close()


def test_log_that_goes_away_while_it_is_looked_at_has_no_length(tmp_path, monkeypatch):
    folder = tmp_path / "learner"
    folder.mkdir()
    (folder / telemetry.TRAIN_CSV).write_text("x")
    assert telemetry.log_bytes(str(folder)) == {telemetry.TRAIN_CSV: 1}
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    (folder / telemetry.TRAIN_CSV).unlink()
    assert telemetry.log_bytes(str(folder)) == {}


def test_clock_and_versions_go_on_where_the_logs_end(tmp_path):
    assert telemetry.last_seconds(str(tmp_path)) == 0.0
    assert telemetry.last_version(str(tmp_path)) == -1
    for folder, name, version, seconds in (
        ("learner", telemetry.TRAIN_CSV, 4, 20.5), ("actor_1", telemetry.PHASES_CSV, 3, 31.25),
    ):
        logger = run_logger.RunLogger(str(tmp_path), folder, time.time() - seconds)
        logger.write(name, 1, model_version=version)
        logger.close()
    assert telemetry.last_seconds(str(tmp_path)) == pytest.approx(31.25, abs=1.0)
    assert telemetry.last_version(str(tmp_path / "actor_1")) == 3
    assert telemetry.newest_version(str(tmp_path)) == 3  # The learner's versions are its steps.
    assert telemetry.start_time(str(tmp_path), 12.0, resumed=True) == 12.0
    assert telemetry.start_time(str(tmp_path), 0.0, resumed=False) == 0.0
    resumed = telemetry.start_time(str(tmp_path), 0.0, resumed=True)
    assert time.time() - resumed == pytest.approx(31.25, abs=1.0)
