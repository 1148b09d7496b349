"""Trainings of many widths and seeds are made once, whatever interrupts them."""

import dataclasses
import logging
import os
import pathlib
import signal
import subprocess

import psutil
import pytest

from actorQ.core import errors
from baseline.agents import finding
from baseline.qat import model as qat_model
from baseline.qat import runs
from baseline.qat import sweep
from baseline.qat import training
from baseline.study import parallel
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.train import callbacks
from baseline.train import settings as training_settings
from baseline.train import state
from tests import commands

CARTPOLE = "CartPole-v1"
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "baseline/qat_benchmark.sh"


def rows_of(folder):
    return rows_lib.measured_rows(str(folder / qat_rows.CSV_NAME), qat_rows.TrainedRow)


@pytest.mark.slow
def test_a_sweep_trains_quantizes_and_evaluates_what_is_missing(tmp_path, run_commands):
    command = [
        "a2c", CARTPOLE, "-n", "400", "--bits=32,8,3", "--train_seeds=0,1", "--episodes=1",
        "--seeds=0,2", f"--folder={tmp_path}", "--jobs=2", "--calibration_episodes=1",
        "--device=cpu", "--input_bits=7",
    ]
    (first,) = run_commands("qat_sweep", [command])
    assert first.code == 0 and not first.err, first
    assert "[6/6] " in first.out and "[2/2] PTQ" in first.out
    assert f"baseline.collate --qat a2c {CARTPOLE} --results {tmp_path}" in first.out
    rows = rows_of(tmp_path)
    assert {(row.method, row.bits, row.train_seed) for row in rows.values()} == {
        (method, bits, seed) for seed in (0, 1)
        for method, bits in (("control", "fp32"), ("qat", "8"), ("qat", "3"), ("ptq", "8"),
                             ("ptq", "3"))
    }
    for row in rows.values():
        quantized = row.method != "control"
        assert (row.train_steps, row.episodes) == (400, 2)
        assert row.quant_delay == (200 if row.method == "qat" else None)
        assert row.input_bits == (7 if quantized else None)
        assert row.ranges == {"control": "", "qat": "frozen", "ptq": "calibrated-1"}[row.method]
    by_kind = {(row.method, row.bits, row.train_seed): row for row in rows.values()}
    for seed in (0, 1):
        control = by_kind["control", "fp32", seed]
        # QAT and PTQ quantize the same tensors of the same agent, hence equal bytes.
        assert by_kind["qat", "3", seed].bytes == by_kind["ptq", "3", seed].bytes
        folder = tmp_path / "32/a2c" / control.run / sweep.PTQ_FOLDER / "calibrated-1-input7"
        assert finding.load("a2c", CARTPOLE, folder / "3-activations").quantization[0].bits == "3"
        # Training is the same until quantization starts, so that pairs can be compared.
        assert control.commit == by_kind["ptq", "8", seed].commit

    (again,) = run_commands("qat_sweep", [command])
    assert again.code == 0 and "6 of 6 runs are there already." in again.out
    assert again.seconds < 15

    # A row is lost, another seed and width asked for: only these are made. An agent without a row
    # is not trained again.
    path = tmp_path / qat_rows.CSV_NAME
    lines = path.read_text().splitlines(keepends=True)
    lost = next(line for line in lines if line.startswith(f"a2c,{CARTPOLE},8") and ",qat," in line)
    path.write_text("".join(line for line in lines if line != lost))
    (more,) = run_commands("qat_sweep", [[*command, "--bits=32,8,3,2", "--train_seeds=0,1"]])
    assert more.code == 0 and "5 of 8 runs are there already." in more.out, more
    assert "[3/3] " in more.out and "[2/2] PTQ" in more.out
    assert len(rows_of(tmp_path)) == len(rows) + 4
    assert len(list((tmp_path / "8/a2c").iterdir())) == 2
    old, new = (next(row for key, row in found.items() if (
        row.method, row.bits, row.train_seed) == ("qat", "8", 0)
    ) for found in (rows, rows_of(tmp_path)))
    assert old.returns == new.returns


def find_run(made):
    return runs.find(made.settings, made.qat, made.columns)


def wait_for_episodes(folders):
    for folder in folders:
        monitor = folder / "0.monitor.csv"
        commands.wait_for(lambda at=monitor: at.exists() and at.read_text().count("\n") > 5)


def test_an_interrupted_sweep_saves_and_goes_on(tmp_path, run_commands):
    command = [
        "a2c", CARTPOLE, "-n", "6000", "--bits=32,4", "--train_seeds=0", "--episodes=1",
        "--seeds=0", "--save_freq=0", f"--folder={tmp_path}", "--jobs=2", "--device=cpu",
        "--calibration_episodes=1",
    ]
    pid = run_commands.start("qat_sweep", [*command, "--bits=32,4,8"])
    folders = [tmp_path / f"{bits}/a2c/{CARTPOLE}_1" for bits in (32, 4)]
    wait_for_episodes(folders)
    family = psutil.Process(pid).children(recursive=True)
    # The terminal closes: everybody gets this, and then the workers get SIGTERM from the sweep.
    os.killpg(pid, signal.SIGHUP)
    answer = run_commands.wait(pid)
    assert answer.code == 130 and "goes on from here" in answer.err
    commands.wait_for(lambda: all(commands.ended(process) for process in family), 10)
    assert not rows_of(tmp_path)
    assert all((folder / f"{CARTPOLE}.zip").exists() for folder in folders)
    assert not (tmp_path / "8").exists()  # Queued jobs have not begun.
    assert find_run(job(tmp_path, 6001)) == (None, False)
    assert find_run(job(tmp_path, 6000)) == (None, True)
    # Nobody else may train there meanwhile.
    with state.locked(folders[1]):
        (other,) = run_commands("qat", [[
            "--algo=a2c", f"--env={CARTPOLE}", "-q", "4", "--resume", f"--folder={tmp_path}",
        ]])
        assert "is being trained by another process" in other.error("qat")

    (done,) = run_commands("qat_sweep", [command])
    assert done.code == 0, done
    assert {(row.run, row.method, row.train_steps) for row in rows_of(tmp_path).values()} == {
        (f"{CARTPOLE}_1", method, 6000) for method in qat_rows.METHODS
    }
    for folder in folders:
        assert [path.name for path in folder.parent.iterdir()] == [f"{CARTPOLE}_1"]


def test_a_worker_that_dies_ends_a_sweep_and_the_other_training_is_saved(tmp_path, run_commands):
    pid = run_commands.start("qat_sweep", [
        "a2c", CARTPOLE, "-n", "10000000", "--bits=32,4,8", "--train_seeds=0", "--episodes=1",
        "--seeds=0", "--save_freq=0", f"--folder={tmp_path}", "--jobs=2", "--device=cpu",
    ])
    folders = [tmp_path / f"{bits}/a2c/{CARTPOLE}_1" for bits in (32, 4)]
    wait_for_episodes(folders)
    family = psutil.Process(pid).children(recursive=True)
    worker = next(each for each in family if "spawn_main" in " ".join(each.cmdline()))
    mapped = pathlib.Path(f"/proc/{worker.pid}/maps").read_text()
    worker.kill()
    answer = run_commands.wait(pid)
    commands.wait_for(lambda: all(commands.ended(process) for process in family), 10)
    assert "A worker process died" in answer.err
    assert len([folder for folder in folders if (folder / f"{CARTPOLE}.zip").exists()]) == 1
    assert not (tmp_path / "8").exists()  # Queued jobs have not begun.
    # TensorBoard's curves need no TensorFlow.
    assert "libtorch" in mapped and "libtensorflow" not in mapped


def job(folder, steps, bits=4, seed=0, **changes):
    settings = training_settings.TrainSettings(
        "a2c", CARTPOLE, steps, seed, str(folder / str(bits)), device="cpu", progress=False,
    )
    quantization = qat_model.QatSettings(bits, **{"delay": steps // 2, **changes})
    return sweep.Job(settings, quantization, str(folder / qat_rows.CSV_NAME), (0,), 1)


def test_workers_show_progress_and_warnings_only():
    def is_shown(path, level):
        return sweep._is_progress_or_warning(
            logging.LogRecord("absl", level, path, 1, "text", None, None)
        )

    assert is_shown(callbacks.__file__, logging.INFO)
    assert not is_shown(training.__file__, logging.INFO)
    assert is_shown(training.__file__, logging.WARNING)


def test_only_runs_of_the_same_settings_are_taken(tmp_path):
    made = job(tmp_path, 200)
    path = training.train(made.settings, made.qat)
    assert find_run(made) == (path, False)
    assert training.evaluate(path, "a2c", (0,), 1).key == made.key()
    for other in (
        job(tmp_path, 201), job(tmp_path, 200, seed=1), job(tmp_path, 200, delay=90),
        job(tmp_path, 200, ranges="moving"), job(tmp_path, 200, output=True),
        job(tmp_path, 200, input_bits=4), job(tmp_path, 200, estimator="lsq"),
        job(tmp_path, 200, granularity="channel"), job(tmp_path, 200, last_bits=8),
        job(tmp_path, 200, percentile=99.0),
        dataclasses.replace(
            made, settings=dataclasses.replace(made.settings, hyperparams={"gamma": 0.9})
        ),
    ):
        assert find_run(other) == (None, False)
        assert other.key() != made.key()


def test_hyperparams_are_part_of_a_row(tmp_path):
    made = job(tmp_path, 200, bits=32)
    made = dataclasses.replace(made, settings=dataclasses.replace(
        made.settings, num_envs=2, hyperparams={
            "policy_kwargs": {"ortho_init": False, "net_arch": [8]}, "n_steps": 8, "gamma": 0.9,
        }
    ))
    row = training.evaluate(training.train(made.settings, made.qat), "a2c", (0,), 1)
    assert row.hyperparams == (
        "gamma:0.9 n_envs:2 n_steps:8 policy_kwargs:{'net_arch': [8], 'ortho_init': False}"
    )
    assert row.key == made.key()


def test_mistakes_are_one_line_each(tmp_path, run_commands):
    old = tmp_path / "old"
    old.mkdir()
    (old / qat_rows.CSV_NAME).write_text("algo,env\n")
    for arguments, message in (
        ([], "takes ALGO ENV"),
        (["a2c"], "'a2c' has no environment"),
        (["a2c", CARTPOLE, "--bits=32,x"], "--bits are numbers with commas"),
        (["a2c", CARTPOLE, "--bits=1"], "2 to 16"),
        (["a2c", CARTPOLE, "--estimator=ste,pact"], "must be ste or lsq, not 'pact'"),
        (["a2c", CARTPOLE, "--first_bits=1"], "--first_bits is 2 to 16, not 1"),
        (["a2c", CARTPOLE, "--train_seeds=0,0"], "--train_seeds"),
        (["a2c", CARTPOLE, "-n=100", "--quant_delay=100"], "none of the 100 steps"),
        (["ddpg", CARTPOLE], "ddpg chooses actions of a Box space"),
        (["tqc", CARTPOLE], "not 'tqc'"),
        (["a2c", "CartPole-v7"], "CartPole-v7"),
        (["a2c", CARTPOLE, f"--folder={old}"], "other columns"),
    ):
        (answer,) = run_commands("qat_sweep", [[f"--folder={tmp_path / 'new'}", *arguments]])
        assert message in answer.error("qat_sweep"), (arguments, answer)
    assert not (tmp_path / "new").exists()


def test_a_run_that_fails_stops_no_other_and_has_one_line(tmp_path, run_commands):
    (answer,) = run_commands("qat_sweep", [[
        "dqn", CARTPOLE, "-n", "300", "--bits=32,4", "--train_seeds=0", "--episodes=1",
        "--seeds=0", f"--folder={tmp_path}", "--quant_delay=5", "--jobs=1", "--noptq",
        "--hyperparams", "learning_rate:0.001", "gamma:0.9",
    ]])
    assert "[2/2] " in answer.out
    reason = f"dqn {CARTPOLE} 4 bits seed 0: With --quant-delay=5"
    assert answer.error("qat_sweep").startswith(reason)
    (row,) = rows_of(tmp_path).values()
    assert (row.bits, row.hyperparams) == ("fp32", "gamma:0.9 learning_rate:0.001")


def test_help_is_complete():
    answer = subprocess.run(
        [SCRIPT, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 0
    for name in ("--train_seeds", "--quant_delay", "--jobs", "--steps", "--calibration_episodes"):
        assert name in answer.stdout


@pytest.mark.parametrize("arguments", [[], ["a2c"], ["a2c", "b", "c"]])
def test_pairs_are_whole(arguments):
    with pytest.raises(errors.UserError, match="takes .*ALGO ENV"):
        parallel.pairs(arguments)


def test_a_control_is_quantized_once_for_all_estimators(tmp_path):
    control = job(tmp_path, 200, bits=32)
    jobs = [
        control, job(tmp_path, 200), job(tmp_path, 200, estimator="lsq"),
        job(tmp_path, 200, estimator="lsq", last_bits=8),  # PTQ has one width for all layers.
        job(tmp_path, 200, granularity="channel"),
    ]
    how = sweep.Ptq(3)
    assert not list(sweep._missing_ptq(jobs, how))
    row = training.evaluate(training.train(control.settings, control.qat), "a2c", (0,), 1)
    rows_lib.append(control.csv_path, row)

    (todo,) = sweep._missing_ptq(jobs, how)

    assert [other.scheme.granularity for other in todo.others] == ["paper", "channel"]
    sweep._quantize(todo)
    assert not list(sweep._missing_ptq(jobs, how))
    found = [row for row in rows_of(tmp_path).values() if row.method == "ptq"]
    assert [(row.granularity, row.widths) for row in found] == [("paper", ""), ("channel", "")]

    # Another method makes rows of its own.
    (more,) = sweep._missing_ptq(jobs[:2], sweep.Ptq(3, "auto"))
    sweep._quantize(more)
    assert not list(sweep._missing_ptq(jobs[:2], more.how))
    *_, last = rows_of(tmp_path).values()
    assert last.ranges == "calibrated-3-auto" and "; chosen: " in last.note
    folder = tmp_path / "32/a2c" / last.run / sweep.PTQ_FOLDER / "calibrated-3-input8"
    assert finding.load("a2c", CARTPOLE, folder / "4-activations-auto").quantization


@pytest.mark.slow
def test_a_sweep_trains_every_estimator_and_goes_on(tmp_path, run_commands):
    command = [
        "sac", "Pendulum-v1", "-n", "240", "--bits=32,3", "--train_seeds=0", "--episodes=1",
        "--seeds=0", f"--folder={tmp_path}", "--jobs=1", "--estimator=ste,lsq", "--noptq",
        "--device=cpu",
    ]
    (first,) = run_commands("qat_sweep", [command])
    assert first.code == 0 and "[3/3] " in first.out, first
    assert {(row.method, row.ranges) for row in rows_of(tmp_path).values()} == {
        ("control", ""), ("qat", "frozen"), ("qat", "learned")
    }
    (again,) = run_commands("qat_sweep", [command])
    assert again.code == 0 and "3 of 3 runs are there already." in again.out
