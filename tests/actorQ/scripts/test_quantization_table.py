"""Tests the table of what runs learned in full precision and with their actors' bits."""

import csv
import math
import subprocess
import sys

import pytest

from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import meter_summary
from actorQ.policy import loaded
from actorQ.policy import saved
from actorQ.scripts import quantization_table
from tests.actorQ import harness
from tests.actorQ.experiments import log_files
from tests.actorQ.policy import test_loaded

NAMES = ("a4", "b4", "c4")


@pytest.fixture
def runs(tmp_path):
    """Returns the folders of three short runs on Pendulum, with a meter."""
    folders = []
    for seed, name in enumerate(NAMES):
        folder = log_files.make_run(
            tmp_path, name, 4, algorithm="d4pg", taskstr="gym,Pendulum-v1", seed=seed,
            inference_mode="native", learner_fake_quantize=4 if name == "b4" else 32,
        )
        checkpoint = harness.random_checkpoint(
            test_loaded.PENDULUM, test_loaded.PENDULUM_FACTS, seed
        )
        saved.save_policy(f"{folder}/checkpoint", checkpoint)
        logger = run_logger.RunLogger(folder, telemetry.BROADCASTER)
        logger.write(
            telemetry.METER_CSV, 1.0, model_version=1, action_distance=0.1 * (1 + seed),
        )
        logger.close()
        folders.append(str(folder))
    return folders


def test_both_policies_play_the_same_starts(runs):
    row = quantization_table.measure(curves.load_run(runs[1]), 2, {"Pendulum-v1": 1e6})
    for bits, found in ((32, row.return_fp32), (4, row.return_quantized)):
        played = loaded.play_episodes(loaded.load_policy(runs[1], bits, False, "native"), 2)
        assert found == pytest.approx(sum(one.episode_return for one in played) / 2)
    assert row.return_fp32 != row.return_quantized
    assert (row.run, row.bits, row.learner_bits, row.seed) == ("b4", 4, 4, 1)
    assert row.failed is True and row.figures["action_distance"] == pytest.approx(0.2)
    assert quantization_table.measure(curves.load_run(runs[1]), 1, {}).failed is None


def test_command_writes_table_rows_and_figure(runs, tmp_path, capsys):
    out = tmp_path / "out"
    returns = sorted(
        quantization_table.measure(curves.load_run(run), 1, {}).return_quantized for run in runs
    )
    limit = (returns[0] + returns[1]) / 2  # One run fails.
    quantization_table.main(
        [*runs, "--episodes", "1", "--least", f"gym,Pendulum-v1={limit}", "--out", str(out)]
    )
    with open(out / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == list(NAMES)
    assert sorted(float(row["return_quantized"]) for row in rows) == pytest.approx(returns)
    assert [row["failed"] for row in rows].count("True") == 1
    text = (out / "table.md").read_text()
    assert text in capsys.readouterr().out
    lines = [line.split("|") for line in text.splitlines() if "gym,Pendulum-v1" in line]
    assert [[cell.strip() for cell in line[2:5]] for line in lines] == [
        ["int4", "int4", "1"], ["int4", "fp32", "2"]
    ]
    assert "`action_distance`" in text and "1, 2 |" in text
    log_files.check_figure(str(out / "figures.png"))


def test_runs_of_other_precisions_are_not_compared():
    def row(bits, failed, distance):
        figures = dict.fromkeys(meter_summary.FIGURES, math.nan) | {"action_distance": distance}
        return quantization_table.Row("", "gym,A-v0", bits, 32, 0, "", 0.0, 0.0, failed, figures)

    # The failed run with 4 bits has the largest distance. All fp32 runs have the same distance.
    rows = [row(4, True, 0.3), row(4, False, 0.1), row(4, False, 0.2)]
    rows += [row(32, True, 0.0), row(32, False, 0.0)]
    assert quantization_table.areas(rows) == {"action_distance": (2.5 / 3, 2, 3)}


def test_figures_of_other_algorithms_have_no_area(runs):
    rows = [quantization_table.measure(curves.load_run(run), 1, {"Pendulum-v1": -1e9})
            for run in runs]
    assert quantization_table.areas(rows) == {}  # No run failed.
    assert all(math.isnan(row.figures["lost_q"]) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--least", "CartPole-v1"], "write TASK=RETURN"),
        (["--episodes", "0"], "--episodes=0 is not possible"),
    ],
)
def test_bad_arguments_are_one_line(runs, tmp_path, arguments, message):
    with pytest.raises(errors.UserError, match=message):
        quantization_table.main([*runs, "--out", str(tmp_path / "out"), *arguments])


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "actorQ.scripts.quantization_table", str(tmp_path), "--out",
         str(tmp_path / "out")], capture_output=True, text=True, timeout=90,
    )
    assert done.returncode == 1
    (line,) = harness.error_lines(done.stderr, "quantization_table")
    assert str(tmp_path) in line
