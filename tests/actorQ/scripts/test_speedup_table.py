"""Golden values of the speed-up table on hand-written logs."""

import csv
import os
import subprocess
import sys

import pytest

from actorQ.core import errors
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import times
from actorQ.scripts import speedup_table
from tests.actorQ.experiments import log_files


def other_run(root, name, quantize, seconds, returns, **settings):
    """A run that has other settings than the rest."""
    folder = log_files.make_run(root, name, quantize, **settings)
    return log_files.learner(folder, seconds, returns)


@pytest.fixture
def golden(tmp_path):
    """Without smoothing, fp32 holds 100 from 100 s on, int8 from 40 s."""
    fp32 = log_files.curve_run(
        tmp_path, "fp32", 32, [20, 60, 100, 120, 140], [0, 50, 100, 100, 100]
    )
    int8 = log_files.curve_run(
        tmp_path, "int8", 8, [10, 40, 50, 60], [50, 100, 100, 100], actor_rate=250
    )
    return fp32, int8


def test_speedup_table_of_a_run_that_inserted_nothing_has_no_ratio(tmp_path):
    fp32 = log_files.curve_run(tmp_path, "fp32", 32, [10, 20], [0, 100], actor_rate=0)
    int8 = log_files.curve_run(tmp_path, "int8", 8, [10, 20], [0, 100])
    comparison = speedup_table.compare([fp32], [int8], smoothing=1)
    assert comparison.sides[0].steps_per_s[0] == 0
    assert "n/a" in speedup_table.markdown(comparison)


def test_speedup_golden(golden):
    comparison = speedup_table.compare([golden[0]], [golden[1]], smoothing=1)
    fp32, int8 = comparison.sides
    assert comparison.target == 100
    assert (fp32.reach.seconds, int8.reach.seconds) == (100, 40)
    # Less 3 and 2 evaluations of 1 s.
    assert (fp32.reach.evaluation_s, int8.reach.evaluation_s) == (3, 2)
    assert comparison.speedup(int8) == times.Speedup(2.5, "")
    assert int8.steps_per_s == (250, 10)
    first, *_, last = speedup_table.markdown(comparison).split("\n\n")[0].splitlines()
    assert [cell.strip() for cell in first.split("|")[1:-1]] == [
        "Task", "Reward", "fp32 s", "int8 s", "speed-up", "paper: reward", "fp32 s", "int8 s",
        "speed-up",
    ]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == [
        "gym,CartPole-v0", "100.00", "100.0", "40.0", "2.50", "198.22", "963.67", "260.10", "3.70"
    ]


def test_reward_that_is_not_held_is_not_reached(tmp_path, golden):
    fp32 = log_files.curve_run(
        tmp_path, "a", 32, [10, 20, 30, 40, 50, 60], [0, 100, 0, 100, 100, 100]
    )
    side = speedup_table.compare([fp32], [golden[1]], target=100, smoothing=1).sides[0]
    assert side.reach == times.Reach(40, 4, True)


def test_rule_is_shortened_for_few_evaluations(golden):
    # Three of int8's four evaluations in a row must have a mean of two at the reward.
    comparison = speedup_table.compare([golden[0]], [golden[1]])
    assert (comparison.window, comparison.smoothing) == (3, 2)
    # fp32 25, 75, 100, 100; int8 75, 100, 100.
    assert comparison.target == 75
    assert [side.reach.seconds for side in comparison.sides] == [100, 40]
    assert "a run has only 4 evaluations" in speedup_table.markdown(comparison)


def test_rule_is_that_of_the_runs(tmp_path):
    fp32, int8 = (
        other_run(tmp_path, str(q), q, [10, 20, 30], [0, 9, 9], stop_window=2) for q in (32, 8)
    )
    comparison = speedup_table.compare([fp32], [int8], smoothing=1)
    assert (comparison.window, comparison.target) == (2, 9)


def test_seeds_are_listed_and_their_median_counts(tmp_path):
    seconds = [10, 20, 30, 40, 50]
    fp32 = [
        log_files.curve_run(tmp_path, "a", 32, seconds, [50, 100, 100, 100, 100], seed=0),
        log_files.curve_run(tmp_path, "b", 32, seconds, [0, 50, 100, 100, 100], seed=1),
    ]
    int8 = [log_files.curve_run(tmp_path, "c", 8, [10, 20, 30], [75, 75, 75])]
    comparison = speedup_table.compare(fp32, int8, smoothing=1)
    side = comparison.sides[0]
    assert [reach.seconds for reach in side.seed_reaches] == [20, 30]
    assert side.reach.seconds == 25
    assert "20.0, 30.0" in speedup_table.markdown(comparison)


def test_censored_seed_is_shown(tmp_path):
    fp32 = [log_files.curve_run(tmp_path, "a", 32, [10, 812, 900, 990], [0, 100, 100, 100])]
    int8 = [
        log_files.curve_run(tmp_path, "b", 8, [10, 400, 450, 500], [0, 200, 200, 200], seed=1),
        log_files.curve_run(tmp_path, "c", 8, [10, 400, 500, 600], [0, 60, 60, 60], seed=2),
    ]
    comparison = speedup_table.compare(fp32, int8, target=100, smoothing=1)
    side = comparison.sides[1]
    # The missing seed counts with more than its 600 s, and four evaluations of a second each.
    assert side.reach == times.Reach(500, 3, False)
    assert side.seeds_reached == 1
    assert "400.0, > 600.0" in speedup_table.markdown(comparison)
    assert speedup_table.csv_rows(comparison)[1]["seed_seconds"] == "400.0;> 600.0"


@pytest.mark.parametrize(
    "fp32_return, int8_return, text",
    [(100, 100, "1.92"), (50, 100, "> 1.94"), (100, 50, "< 1.88"), (50, 50, "n/a")],
)
def test_unreached_median_gives_a_bound(tmp_path, fp32_return, int8_return, text):
    fp32 = log_files.curve_run(tmp_path, "a", 32, [10, 188, 189, 190], [0] + 3 * [fp32_return])
    int8 = log_files.curve_run(tmp_path, "b", 8, [10, 98, 99, 100], [0] + 3 * [int8_return])
    comparison = speedup_table.compare([fp32], [int8], target=100, smoothing=1)
    assert comparison.speedup(comparison.sides[1]).text() == text
    report = speedup_table.markdown(comparison)
    assert ("> 190.0" in report) == (fp32_return < 100)
    assert ("> 100.0" in report) == (int8_return < 100)


def test_several_precisions_have_a_column_each(tmp_path, golden):
    fp16 = log_files.curve_run(tmp_path, "fp16", 16, [50, 80, 90, 99], [0, 100, 100, 100])
    comparison = speedup_table.compare([golden[0]], [golden[1], fp16], smoothing=1)
    assert [side.name for side in comparison.sides] == ["fp32", "fp16", "int8"]
    header = speedup_table.markdown(comparison).splitlines()[0]
    assert "fp16 speed-up" in header and "int8 speed-up" in header
    assert [comparison.speedup(side).value for side in comparison.sides] == [1, 1.25, 2.5]


def test_cartpole_v1_is_not_the_papers_task(tmp_path):
    runs = [
        other_run(tmp_path, str(q), q, [10], [5], taskstr="CartPole-v1") for q in (32, 8)
    ]
    comparison = speedup_table.compare(runs[:1], runs[1:])
    assert comparison.task == "gym,CartPole-v1"
    assert comparison.published is None


def test_mismatched_runs_are_refused(tmp_path, golden):
    fp32, int8 = golden
    other_task = other_run(tmp_path, "t", 8, [10], [5], taskstr="gym,Acrobot-v1")
    other_algorithm = other_run(tmp_path, "g", 8, [10], [5], algorithm="d4pg")
    with pytest.raises(errors.UserError, match="differ in their task: .*Acrobot-v1 in"):
        speedup_table.compare([fp32], [int8, other_task])
    with pytest.raises(errors.UserError, match="differ in their algorithm"):
        speedup_table.compare([fp32], [other_algorithm])
    with pytest.raises(errors.UserError, match="does not belong to --fp32"):
        speedup_table.compare([int8], [fp32])
    with pytest.raises(errors.UserError, match="named twice"):
        speedup_table.compare([fp32, fp32 + "/."], [int8])
    with pytest.raises(errors.UserError, match="--window=0"):
        speedup_table.compare([fp32], [int8], smoothing=0)


def test_differing_settings_are_warned_of(tmp_path, golden):
    other = other_run(tmp_path, "o", 8, [10], [100], batch_size=64, seed=5, port=9)
    text = speedup_table.markdown(speedup_table.compare([golden[0]], [other], smoothing=1))
    assert "differ in more than precision and seed: batch_size (256, 64)." in text
    text = speedup_table.markdown(speedup_table.compare([golden[0]], [golden[1]], smoothing=1))
    assert "Warning" not in text


def test_runs_that_end_early_are_warned_of(tmp_path, golden):
    short = log_files.curve_run(tmp_path, "s", 8, [10], [100], seed=1)
    comparison = speedup_table.compare([golden[0]], [golden[1], short], smoothing=1)
    assert any("end between 10.0 s and 60.0 s" in line for line in comparison.warnings)


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
        (whole + "60,,1", [50.0, 100.0, 100.0, 100.0]),  # A row cut short does not either.
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
    fp16 = log_files.curve_run(tmp_path, "fp16", 16, [50, 80, 90, 99], [0, 100, 100, 100])
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
    log_files.check_figure(f"{out}/convergence.png")


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


def test_run_script_without_anywhere_to_print_to_is_one_line(tmp_path, golden):
    run = [sys.executable, "-m", "actorQ.scripts.speedup_table", "--fp32", golden[0], "--window=1",
           "--quantized", golden[1]]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1
