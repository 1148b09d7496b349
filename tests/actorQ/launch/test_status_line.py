"""The launcher's messages to people."""

import contextlib
import os
import pathlib
import sys

import pytest

from actorQ.core import config as config_lib
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.launch import status_line


def test_status_line_nobody_can_read_does_not_end_the_run(tmp_path, monkeypatch):
    line = status_line.StatusLine(config_lib.RunConfig(logpath=str(tmp_path)))
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left"):
            print("x", flush=True)
        for live in (False, True):
            line._live, line._next = live, 0.0
            monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((80, 24)))
            line.update()
            line.say("text")
            line.end()
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


class Run:
    """A status line over the logs of a run."""

    def __init__(self, folder, **settings):
        config = config_lib.RunConfig(logpath=str(folder), **settings)
        self.logger = run_logger.RunLogger(str(folder), telemetry.LEARNER)
        self.line = status_line.StatusLine(config)

    def train(self, **columns):
        row = dict.fromkeys(telemetry.TRAIN_FIELDS[len(telemetry.TIME_FIELDS) :], 0.0) | columns
        for _ in range(12):
            self.logger.write(telemetry.TRAIN_CSV, 0, **row)

    def evaluate(self, *returns):
        for value in returns:
            self.logger.write(telemetry.EVALUATION_CSV, 0, episode_return=float(value))

    def report(self, capsys):
        self.line.report(lambda folder: ())
        return capsys.readouterr().out.splitlines()


@pytest.fixture(name="run")
def _run(tmp_path):
    made = Run(tmp_path)
    yield made
    made.logger.close()


def test_live_line_has_the_remark_behind_the_return(run):
    run.train()
    run.evaluate(190)
    assert "  return 190.0  learner 0/6000 " in run.line.compose()
    run.train(targets_below_vmin=0.9)
    assert "  return 190.0  (targets below --vmin)  learner 0/6000 " in run.line.compose()


def test_live_line_ends_with_what_quantization_does_to_the_policy(run, tmp_path):
    run.train()
    assert run.line.compose().endswith("  model v0")
    logger = run_logger.RunLogger(str(tmp_path), telemetry.BROADCASTER)
    logger.write(telemetry.UPDATES_CSV, 1, model_version=1, weight_error_head=0.02)
    assert run.line.compose().endswith("  model v0")  # There is no version before.
    logger.write(telemetry.UPDATES_CSV, 2, model_version=2, changed_share=0.03456)
    assert run.line.compose().endswith("  model v0  int8: 3.46 % changed")
    logger.write(telemetry.METER_CSV, 2, model_version=2, action_distance=0.012345)
    assert run.line.compose().endswith("  int8: 3.46 % changed, actions 0.012 off")
    logger.write(telemetry.METER_CSV, 3, model_version=3, agreement=0.984375)
    assert run.line.compose().endswith("  int8: 3.46 % changed, 98.4 % same actions")
    logger.close()


def test_report_of_a_policy_that_has_learned_has_its_line_of_old(run, capsys):
    run.train()
    run.evaluate(150, 300, 800, *[999] * 10)
    first, second, *_ = run.report(capsys)
    assert first == (
        "Trained: return 999.0 (mean of the last 10 evaluation episodes, full-precision policy)."
    )
    assert second.startswith("Logs:       ")


def test_report_of_a_policy_that_has_not_learned_says_so_with_the_flag(run, capsys):
    run.train(targets_above_vmax=0.9)
    run.evaluate(100, 110, 90, *[101] * 10)
    first, second, third, *_ = run.report(capsys)
    assert first == "Not learned: return 101.0 (the first evaluations had 100.0)."
    assert second.startswith("Hint:       90% of the critic's targets lie above --vmax=150: ")
    assert third.startswith("Logs:       ")


def test_report_of_a_policy_that_has_not_learned_without_a_reason_points_to_the_page(run, capsys):
    run.evaluate(100, 110, 90, *[101] * 10)
    first, second, *_ = run.report(capsys)
    assert first.startswith("Not learned: ")
    assert second == "Hint:       docs/start/troubleshooting.md says what helps."


def test_report_of_a_run_without_evaluations_at_its_start_says_so(run, capsys):
    run.evaluate(*[101] * 10)
    first, second, *_ = run.report(capsys)
    assert first == (
        "Too short to tell: return 101.0 (mean of the last 10 evaluation episodes, full-precision "
        "policy)."
    )
    assert second.startswith("Hint:       No evaluation shows what the policy had at the start: ")


def test_report_of_a_policy_worse_than_the_best_names_it(run, capsys):
    run.evaluate(150, 300, 800, *[995] * 8, *[622] * 10)
    first, second, third, *_ = run.report(capsys)
    assert first.startswith("Trained: return 622.0 (mean of")
    assert second.startswith("Hint:       Returns fell from 995.0 to 622.0: ")
    assert "--best" in second and third.startswith("Logs:")


def test_report_without_evaluations_says_nothing_of_returns(run, capsys):
    assert run.report(capsys)[0].startswith("Logs:       ")


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """A clock of the launcher's that stands until it is told."""
    now = [100.0]
    monkeypatch.setattr(status_line.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(name="disk")
def _disk(monkeypatch):
    """Holds why the disk takes no files; "" while it does."""
    problem = [""]
    monkeypatch.setattr(status_line.files, "write_problem", lambda folder: problem[0])
    return problem


def still(log, clock, seconds, row):
    clock[0] += seconds
    return log.look(row)


def test_disk_that_fills_in_mid_run_is_told_in_the_live_line_and_at_the_end(clock, disk):
    log = status_line._LogWatch("run", 10.0)
    full = "cannot write logs: No space left on device"
    assert still(log, clock, 9.0, {}) == ""
    disk[0] = "No space left on device"
    # A log's last block may still take some rows.
    assert [still(log, clock, 20.0, {"seconds": second}) for second in (9.0, 10.0)] == [full] * 2
    disk[0] = ""
    assert still(log, clock, 20.0, {"seconds": 49.0}) == ""
    assert log.summary({"seconds": 49.0}) == (
        "For 40 s nothing could be written to run (No space left on device): rows and checkpoints "
        "of that time may be missing."
    )
    disk[0] = "Disk quota exceeded"  # And so it stays.
    assert log.summary({"seconds": 49.0}).startswith(
        "Nothing can be written to run (Disk quota exceeded): rows and checkpoints may be missing."
    )


def test_log_that_stands_still_for_another_reason_is_no_full_disk(clock, disk):
    log = status_line._LogWatch("run", 10.0)
    assert still(log, clock, 30.0, {}) == ""  # It is starting.
    assert still(log, clock, 1.0, {"seconds": 1.0}) == ""
    assert still(log, clock, 30.0, {"seconds": 1.0}) == "no news for 30 s"
    assert log.summary({"seconds": 1.0}) == ""


def test_live_line_says_so_before_other_remarks(run, clock, disk, capsys):
    run.train(targets_below_vmin=0.9)
    run.evaluate(190)
    assert "  return 190.0  (targets below --vmin)  " in run.line.compose()
    disk[0] = "No space left on device"
    clock[0] += 60.0
    assert "  return 190.0  (cannot write logs: No space left on device)  " in run.line.compose()
    run.line.tell_missing_logs()
    assert capsys.readouterr().out.startswith("Hint:       Nothing can be written to ")


def test_disk_that_is_full_at_the_start_is_told(tmp_path, clock, disk):
    line = status_line.StatusLine(config_lib.RunConfig(logpath=str(tmp_path)))
    disk[0] = "No space left on device"
    clock[0] += 30.0
    assert line.compose().endswith("starting ...  (cannot write logs: No space left on device)")


def test_report_says_how_much_energy_was_measured_and_by_which_grid_co2_counts(run, capsys):
    folder = pathlib.Path(run.logger.folder)
    (folder / telemetry.EMISSIONS_CSV).write_text(
        "timestamp,duration,emissions,energy_consumed,cpu_energy,ram_energy,gpu_energy,"
        "country_iso_code,tracking_mode\n"
        "2026-11-27T10:00:00,60.0,0.00762,0.02,0.015,0.005,0.0,DEU,machine\n"
    )
    assert run.report(capsys)[0] == (
        "Energy:     20 Wh (CPU measured, memory modelled) and 7.62 g of CO2, at 381 g/kWh: "
        "the mean grid of DEU."
    )
