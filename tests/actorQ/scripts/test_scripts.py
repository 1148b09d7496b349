"""Golden values of the analysis scripts on hand-written logs."""

import csv
import dataclasses
import errno
import math
import os
import subprocess
import sys

import numpy as np
from PIL import Image
import pytest

from actorQ.core import config as config_lib
from actorQ.core import curves
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times
from actorQ.scripts import breakdown_table
from actorQ.scripts import plot_run
from actorQ.scripts import speedup_table


def write_log(path, **columns):
    """Writes a log whose left-out columns are empty, as `RunLogger` does."""
    name = os.path.basename(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, telemetry.FIELDS[name], restval="")
        writer.writeheader()
        for values in zip(*columns.values(), strict=True):
            writer.writerow(dict(zip(columns, values, strict=True)))


def make_run(root, name, quantize=32, algorithm="dqn", **settings):
    folder = str(root / name)
    os.makedirs(folder)
    settings = {"taskstr": "gym,CartPole-v0", **settings}
    config_lib.RunConfig(quantize=quantize, logpath=folder, **settings).save(
        folder, algorithm=algorithm, machine={"processor": "a"}, git_commit="b"
    )
    return folder


def learner(folder, seconds, returns, actor_rate=100, learner_rate=10, evaluation=1.0):
    """Writes the learner's logs: each evaluation takes `evaluation` s."""
    write_log(
        f"{folder}/learner/evaluation.csv",
        seconds=seconds,
        episode_return=returns,
        evaluation_s=[evaluation * (i + 1) for i in range(len(seconds))],
    )
    write_log(
        f"{folder}/learner/train.csv",
        seconds=[5, 15],
        actor_steps=[50, 50 + 10 * actor_rate],
        learner_steps=[7, 7 + 10 * learner_rate],
        actor_steps_per_s=[actor_rate] * 2,
        learner_steps_per_s=[learner_rate] * 2,
    )
    return folder


def curve_run(root, name, quantize, times, returns, seed=0, **kwargs):
    return learner(make_run(root, name, quantize, seed=seed), times, returns, **kwargs)


@pytest.fixture
def golden(tmp_path):
    """With a window of 1: fp32 reaches 100 at 100 s, int8 at 40 s."""
    fp32 = curve_run(tmp_path, "fp32", 32, [20, 60, 100, 120], [0, 50, 100, 100])
    int8 = curve_run(tmp_path, "int8", 8, [10, 40, 50], [50, 100, 100], actor_rate=250)
    return fp32, int8


def breakdown_run(root, name, quantize, scale=1.0, actors=2, **settings):
    """Actor i makes 1000 * i steps between first and last row, in steps of `scale` * 1 ms."""
    folder = make_run(root, name, quantize, n_actors=actors, **settings)
    for i in range(1, actors + 1):
        phases = {
            "environment_s": [9, 9.5, 9 + 0.1 * i],
            "inference_s": [50, 50, 50 + scale * i],
            "insert_s": [0, 0, 0.2 * i],
            "pull_s": [0, 0, 0.3 * i],
            "deserialize_s": [0, 0, 0.05 * i],
            "load_state_dict_s": [0, 0, 0.35 * i],
        }
        write_log(
            f"{folder}/actor_{i}/phases.csv",
            seconds=[10, 11, 20],
            actor_steps=[100, 200, 100 + 1000 * i],
            staleness_steps=[999, 4, 8],
            **phases,
        )
    write_log(
        f"{folder}/broadcaster/updates.csv",
        seconds=[1, 2, 3],
        convert_s=[0.5, 0.010, 0.020],
        message_bytes=[1000, 1000, 1000],
        fp32_bytes=[4000, 4000, 4000],
    )
    return folder


# --- curves ---


def test_running_mean_starts_short():
    np.testing.assert_allclose(curves.running_mean(np.array([2.0, 4, 9, 5]), 2), [2, 3, 6.5, 7])


def test_mean_curve_holds_last_values():
    def curve(seconds, values):
        values = np.array(values, float)
        return curves.Curve(np.array(seconds, float), values, values, np.zeros(len(values)))

    mean = curves.mean_curve([curve([1, 3], [0, 10]), curve([2, 5], [4, 8])])
    # From 2 s, when both have a value; the first run ends at 3 s and counts with 10 from then on.
    np.testing.assert_allclose(mean.seconds, [2, 3, 5])
    np.testing.assert_allclose(mean.mean, [2, 7, 9])
    np.testing.assert_allclose(mean.low, [0, 4, 8])
    np.testing.assert_allclose(mean.high, [4, 10, 10])


def test_paper_speedups_agree_with_their_times():
    assert len(paper.SPEEDUPS) == 11
    for result in paper.SPEEDUPS.values():
        # The paper cuts some ratios off after two digits where others are rounded.
        assert result.fp32_s / result.int8_s == pytest.approx(result.speedup, abs=0.011)


def test_markdown_table_golden():
    assert output.markdown_table(["a", "bcde"], [["x", "1"]]) == (
        "| a   | bcde |\n| --- | ---: |\n| x   |    1 |\n"
    )


def test_what_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    output.write_csv(str(path), [{"a": 1}])
    before = path.read_text()

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(errors.UserError, match="No space left"):
        patched.setattr(os, "replace", full)
        output.write_csv(str(path), [{"a": 2}])
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


def test_a_table_may_go_to_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    output.write_text(str(tmp_path / "pipe"), "a table")
    assert os.read(reader, 100) == b"a table"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_write_csv_keeps_all_digits_of_counts_and_six_of_the_rest(tmp_path):
    row = {
        "count": 33628826.0, "numpy": np.float64(1e7), "whole": 12345678, "rate": 1234.56789,
        "none": math.nan, "endless": math.inf, "text": "1.0",
    }
    output.write_csv(str(tmp_path / "a.csv"), [row])
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == (
        "33628826,10000000,12345678,1234.57,,,1.0"
    )


def test_load_curve_reads_what_run_logger_writes(tmp_path):
    logger = run_logger.RunLogger(str(tmp_path), telemetry.LEARNER)
    for i, value in enumerate((1.0, 3.0)):
        logger.write(telemetry.EVALUATION_CSV, i, episode_return=value, evaluation_s=0.5 * i)
    logger.close()
    curve = curves.load_curve(str(tmp_path))
    np.testing.assert_allclose(curve.returns, [1, 3])
    np.testing.assert_allclose(curve.smoothed, [1, 2])
    np.testing.assert_allclose(curve.evaluation_s, [0, 0.5])


# --- speedup_table ---


def test_read_log_says_which_column_a_log_lacks(tmp_path):
    (tmp_path / "phases.csv").write_text("seconds,unix_time,pull_s\n1,1,0.5\n2,2,0.75\n")
    columns = curves.read_log(str(tmp_path), "phases.csv")
    assert columns["pull_s"].tolist() == [0.5, 0.75]
    with pytest.raises(errors.UserError, match="phases.csv lacks the column pulls"):
        columns["pulls"]


def test_speedup_table_of_a_run_that_inserted_nothing_has_no_ratio(tmp_path):
    fp32 = curve_run(tmp_path, "fp32", 32, [10, 20], [0, 100], actor_rate=0)
    int8 = curve_run(tmp_path, "int8", 8, [10, 20], [0, 100])
    comparison = speedup_table.compare([fp32], [int8], window=1)
    assert comparison.sides[0].actor_steps_per_s == 0
    assert "n/a" in speedup_table.markdown(comparison)


def test_speedup_golden(golden):
    comparison = speedup_table.compare([golden[0]], [golden[1]], window=1)
    fp32, int8 = comparison.sides
    assert comparison.target == 100
    assert (fp32.reach.seconds, int8.reach.seconds) == (100, 40)
    # Less 3 and 2 evaluations of 1 s.
    assert (fp32.reach.evaluation_s, int8.reach.evaluation_s) == (3, 2)
    assert comparison.speedup(int8) == times.Speedup(2.5, "")
    assert (int8.actor_steps_per_s, int8.learner_steps_per_s) == (250, 10)
    first, *_, last = speedup_table.markdown(comparison).split("\n\n")[0].splitlines()
    assert [cell.strip() for cell in first.split("|")[1:-1]] == [
        "Task", "Reward", "fp32 s", "int8 s", "speed-up", "paper: reward", "fp32 s", "int8 s",
        "speed-up",
    ]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == [
        "gym,CartPole-v0", "100.00", "100.0", "40.0", "2.50", "198.22", "963.67", "260.10", "3.70"
    ]


def test_default_window_smooths(golden):
    # Running means of 10 (all so far): fp32 0, 25, 50, 62.5; int8 50, 75, 83.3. Common: 62.5.
    comparison = speedup_table.compare([golden[0]], [golden[1]])
    assert comparison.target == pytest.approx(62.5)
    assert [side.reach.seconds for side in comparison.sides] == [120, 40]


def test_seeds_are_averaged_and_listed(tmp_path):
    # Mean of the seeds: 25 at 10 s, 75 at 20 s, 100 at 30 s. They alone reach 75 at 20 and 30 s.
    fp32 = [
        curve_run(tmp_path, "a", 32, [10, 20, 30], [50, 100, 100], seed=0),
        curve_run(tmp_path, "b", 32, [10, 20, 30], [0, 50, 100], seed=1),
    ]
    int8 = [curve_run(tmp_path, "c", 8, [10], [75])]
    side = speedup_table.compare(fp32, int8, window=1).sides[0]
    assert side.reach.seconds == 20
    assert [reach.seconds for reach in side.seed_reaches] == [20, 30]
    assert side.seeds_text() == "20.0 to 30.0 (2 of 2 seeds)"


def test_censored_seed_is_shown(tmp_path):
    fp32 = [curve_run(tmp_path, "a", 32, [10, 812], [0, 100])]
    int8 = [
        curve_run(tmp_path, "b", 8, [10, 400], [0, 200], seed=1),
        curve_run(tmp_path, "c", 8, [10, 500], [0, 60], seed=2),
    ]
    comparison = speedup_table.compare(fp32, int8, target=100, window=1)
    side = comparison.sides[1]
    # By 400 s the seeds have spent 2 s and 1 s on evaluation.
    assert side.reach == times.Reach(400, 1.5, True)
    assert side.seeds_text() == "400.0 to > 500.0 (1 of 2 seeds)"
    assert "int8 seed 2" in speedup_table.markdown(comparison)
    assert speedup_table.csv_rows(comparison)[1]["seed_seconds"] == "400.0;> 500.0"


@pytest.mark.parametrize(
    "fp32_return, int8_return, text",
    [(100, 100, "1.90"), (50, 100, "> 1.90"), (100, 50, "< 1.90"), (50, 50, "n/a")],
)
def test_unreached_mean_curve_gives_a_bound(tmp_path, fp32_return, int8_return, text):
    fp32 = curve_run(tmp_path, "a", 32, [10, 190], [0, fp32_return])
    int8 = curve_run(tmp_path, "b", 8, [10, 100], [0, int8_return])
    comparison = speedup_table.compare([fp32], [int8], target=100, window=1)
    assert comparison.speedup(comparison.sides[1]).text() == text
    report = speedup_table.markdown(comparison)
    assert ("> 190.0" in report) == (fp32_return < 100)
    assert ("The mean curve of int8 did not reach" in report) == (int8_return < 100)


def test_several_precisions_have_a_column_each(tmp_path, golden):
    fp16 = curve_run(tmp_path, "fp16", 16, [50, 80], [0, 100])
    comparison = speedup_table.compare([golden[0]], [golden[1], fp16], window=1)
    assert [side.name for side in comparison.sides] == ["fp32", "fp16", "int8"]
    header = speedup_table.markdown(comparison).splitlines()[0]
    assert "fp16 speed-up" in header and "int8 speed-up" in header
    assert [comparison.speedup(side).value for side in comparison.sides] == [1, 1.25, 2.5]


def test_cartpole_v1_is_not_the_papers_task(tmp_path):
    runs = [
        learner(make_run(tmp_path, str(q), q, taskstr="CartPole-v1"), [10], [5]) for q in (32, 8)
    ]
    comparison = speedup_table.compare(runs[:1], runs[1:])
    assert comparison.task == "gym,CartPole-v1"
    assert comparison.published is None


def test_mismatched_runs_are_refused(tmp_path, golden):
    fp32, int8 = golden
    other_task = learner(make_run(tmp_path, "t", 8, taskstr="gym,Acrobot-v1"), [10], [5])
    other_algorithm = learner(make_run(tmp_path, "g", 8, algorithm="d4pg"), [10], [5])
    with pytest.raises(errors.UserError, match="differ in their task: .*Acrobot-v1 in"):
        speedup_table.compare([fp32], [int8, other_task])
    with pytest.raises(errors.UserError, match="differ in their algorithm"):
        speedup_table.compare([fp32], [other_algorithm])
    with pytest.raises(errors.UserError, match="does not belong to --fp32"):
        speedup_table.compare([int8], [fp32])
    with pytest.raises(errors.UserError, match="named twice"):
        speedup_table.compare([fp32, fp32 + "/."], [int8])
    with pytest.raises(errors.UserError, match="--window=0"):
        speedup_table.compare([fp32], [int8], window=0)


def test_differing_settings_are_warned_of(tmp_path, golden):
    other = learner(make_run(tmp_path, "o", 8, batch_size=64, seed=5, port=9), [10], [100])
    text = speedup_table.markdown(speedup_table.compare([golden[0]], [other], window=1))
    assert "differ in more than precision and seed: batch_size (256, 64)." in text
    text = speedup_table.markdown(speedup_table.compare([golden[0]], [golden[1]], window=1))
    assert "Warning" not in text


@pytest.mark.parametrize(
    ("processors", "expected"),
    [(("a", "b"), ["processor (a, b)"]), (("a", None), []), (("a", "a"), [])],
)
def test_surroundings_that_were_not_noted_are_not_known_to_differ(golden, processors, expected):
    run = curves.load_run(golden[0])
    runs = [
        dataclasses.replace(run, surroundings={"processor": processor}) for processor in processors
    ]
    assert curves.differing_settings(runs) == expected


def test_runs_that_end_early_are_warned_of(tmp_path, golden):
    short = curve_run(tmp_path, "s", 8, [10], [100], seed=1)
    comparison = speedup_table.compare([golden[0]], [golden[1], short], window=1)
    assert any("end between 10.0 s and 50.0 s" in line for line in comparison.warnings)


def test_bad_logs_give_one_message(tmp_path, golden):
    fp32, int8 = golden
    path = f"{int8}/learner/evaluation.csv"
    with open(path, encoding="utf-8") as file:
        whole = file.read()
    for content, expected in [
        ("", "is empty"),
        (whole.splitlines()[0] + "\n", "has no rows yet"),
        ("a,b\n1,2\n", "not a log of this kind"),
        (whole + whole.splitlines()[1] + "\n", "goes back in time"),
        (whole.replace("100", ""), [50.0]),  # Rows without a return do not count.
        (whole + "60,,1", [50.0, 100.0, 100.0]),  # A row cut short does not either.
    ]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        if isinstance(expected, str):
            with pytest.raises(errors.UserError, match=expected):
                speedup_table.compare([fp32], [int8])
        else:
            speedup_table.compare([fp32], [int8])
            assert curves.load_curve(int8).returns.tolist() == expected
    os.remove(path)
    with pytest.raises(errors.UserError, match="No log at .*evaluation.csv"):
        speedup_table.compare([fp32], [int8])
    os.remove(f"{fp32}/config.json")
    with pytest.raises(errors.UserError, match="is not a run folder"):
        speedup_table.compare([fp32], [int8])


def test_speedup_main_writes_files(tmp_path, capsys, golden):
    out = str(tmp_path / "deep" / "out")
    fp16 = curve_run(tmp_path, "fp16", 16, [50, 80], [0, 100])
    speedup_table.main(
        ["--fp32", golden[0], f"--quantized={golden[1]}", f"--quantized={fp16}", "--out", out,
         "--target", "100", "--window=1"]
    )
    printed = capsys.readouterr().out
    with open(f"{out}/speedup.md", encoding="utf-8") as file:
        assert file.read() == printed
    with open(f"{out}/speedup.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["precision"], float(row["seconds"]), float(row["speedup"])) for row in rows] == [
        ("fp32", 100, 1), ("fp16", 80, 1.25), ("int8", 40, 2.5)
    ]
    assert rows[2]["paper_speedup"] == "3.7"
    check_figure(f"{out}/convergence.png")


def test_run_script_turns_errors_into_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path)])
    with pytest.raises(SystemExit) as raised:
        output.run_script("plot_run", plot_run.main)
    assert raised.value.code == 1
    line = capsys.readouterr().err
    assert line.startswith("plot_run: error: ") and line.count("\n") == 1


def test_run_script_without_anywhere_to_print_to_is_one_line(tmp_path, golden):
    run = [sys.executable, "-m", "actorQ.scripts.speedup_table", "--fp32", golden[0], "--window=1",
           "--quantized", golden[1]]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1


def test_unreadable_files_of_a_run_are_one_line(tmp_path, golden):
    for name in ("learner/evaluation.csv", "config.json"):
        path = os.path.join(golden[1], name)
        os.remove(path)
        os.mkdir(path)
        with pytest.raises(errors.UserError, match=f"Cannot read .*{name}: Is a directory"):
            speedup_table.compare([golden[0]], [golden[1]])


def test_unwritable_output_is_a_user_error(tmp_path, golden):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="Cannot make the folder"):
        speedup_table.main(
            ["--fp32", golden[0], "--quantized", golden[1], "--out", str(tmp_path / "file")]
        )


# --- breakdown_table ---


def test_breakdown_golden(tmp_path):
    (item,) = breakdown_table.load_all([breakdown_run(tmp_path, "r", 8)])
    # Actors 1 and 2: 1000 and 2000 steps, 1 and 2 s of inference; warm-up's 50 s do not count.
    assert (item.actors, item.steps, item.elapsed_s, item.steady) == (2, 1500, 10, True)
    assert item.seconds["inference_s"] == pytest.approx(1.5)
    assert item.us_per_step("inference_s") == pytest.approx(1000)
    assert item.us_per_step("load_state_dict_s") == pytest.approx(350)
    # Per second of inference: 0.1 + 1 + 0.2 + 0.3 + 0.05 + 0.35 = 2 s.
    assert item.total_s == pytest.approx(3)
    assert item.share("inference_s") == pytest.approx(50)
    assert item.share("environment_s") == pytest.approx(5)
    assert (item.convert_ms, item.message_bytes, item.fp32_bytes) == (20, 1000, 4000)
    assert item.staleness_steps == 6


def test_breakdown_of_a_stretch_leaves_out_the_rows_around_it(tmp_path):
    (run,) = curves.load_runs([breakdown_run(tmp_path, "r", 8, actors=1)])
    item = breakdown_table.load(run, "r", 10.5, 20)
    # From the second row on: 200 to 1100 steps in 9 s.
    assert (item.steps, item.elapsed_s, item.steady) == (900, 9, True)
    assert item.seconds["inference_s"] == pytest.approx(1)
    assert item.staleness_steps == 8
    assert not breakdown_table.load(run, "r", 10.5, 19).steady
    with pytest.raises(errors.UserError, match="no row between 21 and inf s"):
        breakdown_table.load(run, "r", 21)


def test_breakdown_counts_loads(tmp_path):
    folder = breakdown_run(tmp_path, "r", 8, actors=1)
    values = {phase: [1.0, 2.0] for phase in telemetry.PHASES}
    write_log(
        f"{folder}/actor_1/phases.csv", seconds=[10, 20], actor_steps=[100, 1100],
        staleness_steps=[1, 1], pulls=[3, 8], **values,
    )
    assert breakdown_table.load_all([folder])[0].loads == 5


def test_breakdown_phases_begin_with_the_papers():
    assert list(breakdown_table.PHASE_NAMES.values()) == [
        "step (inference)", "pull", "deserialize", "load_state_dict", "environment", "insert"
    ]
    assert set(breakdown_table.PHASE_NAMES) == set(telemetry.PHASES)


def test_breakdown_of_a_single_row_says_so(tmp_path):
    folder = make_run(tmp_path, "r", 8)
    write_log(
        f"{folder}/actor_1/phases.csv", seconds=[3], actor_steps=[1000], staleness_steps=[""],
        **{phase: [1.0] for phase in telemetry.PHASES},
    )
    write_log(f"{folder}/broadcaster/updates.csv", seconds=[1], convert_s=[1], message_bytes=[1],
              fp32_bytes=[4])
    (item,) = breakdown_table.load_all([folder])
    assert not item.steady
    assert item.us_per_step("pull_s") == 1000
    text = breakdown_table.markdown([item])
    assert "include warm-up" in text and "n/a" in text


def test_breakdown_adds_up_the_lives_of_a_restarted_actor(tmp_path):
    folder = breakdown_run(tmp_path, "r", 8, actors=1)
    values = {phase: [1.0, 2.0, 0.5, 1.0] for phase in telemetry.PHASES}
    write_log(
        f"{folder}/actor_1/phases.csv", seconds=[10, 20, 30, 35],
        actor_steps=[100, 1100, 50, 550], staleness_steps=[1, 1, 1, 1], **values,
    )
    (item,) = breakdown_table.load_all([folder])
    # 1000 steps in 10 s and 1 s a phase, then 500 steps in 5 s and 0.5 s a phase.
    assert (item.steps, item.elapsed_s, item.seconds["pull_s"]) == (1500, 15, 1.5)


def test_breakdown_leaves_out_the_time_in_which_an_actor_was_dead(tmp_path):
    folder = breakdown_run(tmp_path, "r", 8, actors=1)
    values = {phase: [1.0, 2.0, 3.0, 3.0, 3.5] for phase in telemetry.PHASES}
    write_log(
        f"{folder}/actor_1/phases.csv", seconds=[10, 11, 12, 24, 25],
        actor_steps=[100, 200, 300, 300, 350], staleness_steps=[1, 1, 1, 1, 1], **values,
    )
    (item,) = breakdown_table.load_all([folder])
    assert (item.steps, item.elapsed_s, item.seconds["pull_s"]) == (250, 3, 2.5)


def test_breakdown_leaves_out_an_actor_without_rows(tmp_path):
    folder = breakdown_run(tmp_path, "r", 8)
    os.makedirs(f"{folder}/actor_3")
    (item,) = breakdown_table.load_all([folder])
    assert item.actors == 2
    assert "left out: No log at" in breakdown_table.markdown([item])


def test_breakdown_without_logs_is_a_user_error(tmp_path):
    empty = make_run(tmp_path, "e", 8)
    with pytest.raises(errors.UserError, match="has no logs of actors"):
        breakdown_table.load_all([empty])
    os.makedirs(f"{empty}/actor_1")
    with pytest.raises(errors.UserError, match="No log at .*phases.csv"):
        breakdown_table.load_all([empty])
    folder = breakdown_run(tmp_path, "r", 8)
    os.remove(f"{folder}/broadcaster/updates.csv")
    with pytest.raises(errors.UserError, match="No log at .*updates.csv"):
        breakdown_table.load_all([folder])


def test_breakdown_labels_tell_runs_apart(tmp_path):
    runs = [
        breakdown_run(tmp_path, "a", 32),
        breakdown_run(tmp_path, "b", 8),
        breakdown_run(tmp_path, "c", 8, actor_update_period=300),
        breakdown_run(tmp_path, "d", 8, seed=3),
    ]

    def labels(*indices):
        return curves.run_labels(curves.load_runs([runs[i] for i in indices]))

    assert labels(0, 1) == ["fp32", "int8"]
    assert labels(1, 2) == ["int8, period 30", "int8, period 300"]
    assert labels(1, 3) == ["int8 (b)", "int8 (d)"]


def test_breakdown_main_writes_files(tmp_path, capsys):
    out = str(tmp_path / "out")
    runs = [breakdown_run(tmp_path, f"q{q}", q, scale=q / 8) for q in (32, 16, 8)]
    breakdown_table.main([*runs, "--out", out])
    lines = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    # Inference takes 4, 2 and 1 s of 5, 3 and 2 s per 1000 steps.
    assert cells == [
        "step (inference)", "6.00", "80.0 %", "4000.0", "3.00", "66.7 %", "2000.0", "1.50",
        "50.0 %", "1000.0",
    ]
    with open(f"{out}/breakdown.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(telemetry.PHASES)
    assert (rows[0]["precision"], rows[0]["us_per_step"]) == ("fp32", "4000")
    check_figure(f"{out}/breakdown.png")


# --- plot_run ---


def episodes(folder, seconds):
    write_log(
        f"{folder}/actor_1/episodes.csv", seconds=seconds, episode_return=[9] * len(seconds)
    )


def test_plot_run_draws_both_figures(tmp_path):
    folder = learner(breakdown_run(tmp_path, "r", 8), [10, 20, 30], [0, 5, 9])
    episodes(folder, [10, 20])
    paths = plot_run.plot_run(folder)
    assert paths == [
        f"{folder}/plots/learning_curve.png", f"{folder}/plots/throughput.png"
    ]
    for path in paths:
        check_figure(path)


def test_plot_run_copes_with_single_rows(tmp_path):
    folder = make_run(tmp_path, "r", 8)
    write_log(f"{folder}/learner/evaluation.csv", seconds=[3], episode_return=[1],
              evaluation_s=[1])
    write_log(f"{folder}/learner/train.csv", seconds=[3], actor_steps_per_s=[50],
              learner_steps_per_s=[0])
    episodes(folder, [2])
    for path in plot_run.plot_run(folder):
        check_figure(path)


def test_plot_run_draws_what_there_is(tmp_path):
    folder = make_run(tmp_path, "r", 8)
    episodes(folder, [2, 3])
    assert plot_run.plot_run(folder) == [f"{folder}/plots/learning_curve.png"]


def test_plot_run_without_logs_is_a_user_error(tmp_path):
    with pytest.raises(errors.UserError, match="has no logs to draw"):
        plot_run.plot_run(make_run(tmp_path, "r", 8))


def check_figure(path):
    """Asserts a readable size, and that something is drawn in colour."""
    with Image.open(path) as image:
        assert image.width >= 1000 and image.height >= 500
        pixels = np.asarray(image.convert("RGB")).astype(int)
    coloured = (pixels.max(-1) - pixels.min(-1) > 40).mean()
    # A single point is little, but more than no colour.
    assert coloured > 5e-5, f"{path} shows nothing"
