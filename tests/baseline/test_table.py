"""Tests `baseline.table` and `baseline.study.paper_tables` on sweeps that were never measured."""

import csv
import re
import subprocess
import sys

import numpy as np
import pytest

from baseline.study import intervals
from baseline.study import paper_tables
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from tests.baseline import sweep_rows

BOTH = "weights+activations"


def lossy_rows(algo, env, losses, reward=100.0, spread=10.0, episodes=100, note="", **key):
    """Rows that lose exactly `losses[bits]`, a fraction, in every episode."""
    starts = reward + spread * np.random.default_rng(0).normal(size=episodes)
    base = rows_lib.Key(algo, env, "fp32", "weights", "paper", "nearest", "0,2,4", episodes)
    rows = [rows_lib.measured(base, starts, note=note, **sweep_rows.WEIGHTS)]
    for bits, loss in losses.items():
        rows.append(
            rows_lib.measured(
                base._replace(bits=bits, **key), starts - abs(starts) * loss, starts,
                **sweep_rows.WEIGHTS,
            )
        )
    return rows


def sweeps_of(*rows, scheme="weights"):
    return sweeps_lib.sweeps([row for part in rows for row in part], [scheme])


def cells(text, name):
    """The cells of the first line that begins with a name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_row_stands_beside_the_papers():
    text = paper_tables.markdown(
        sweeps_of(lossy_rows("a2c", "CartPole-v1", {"fp16": 0.01, "8": 0.02}, spread=0)), "weights"
    )
    assert cells(text, "Environment") == [
        "Environment", "fp32", "fp16", "E_fp16", "int8", "E_int8",
        "paper: fp32", "paper: fp16", "paper: E_fp16", "paper: int8", "paper: E_int8",
    ]
    assert cells(text, "CartPole-v1") == [
        "CartPole-v1", "100.0", "99.0", "1.00 % [1.00, 1.00]", "98.0", "2.00 % [2.00, 2.00]",
        "500", "500", "0.00 %", "500", "0.00 %",
    ]
    # The paper's other rows follow, and shared rows appear once.
    assert cells(text, "Breakout")[:7] == ["Breakout", *"-----", "379"]
    assert text.count("| CartPole") == 2  # Here, and in the table of widths.


def test_markdown_two_names_of_one_game_stand_beside_the_same_row():
    text = paper_tables.markdown(
        sweeps_of(
            lossy_rows("dqn", "PongNoFrameskip-v4", {"8": 0.02}, 20.0, 1.0),
            lossy_rows("dqn", "ALE/Pong-v5", {"8": 0.04}, 20.0, 1.0),
        ),
        "weights",
    )
    for name in ("PongNoFrameskip-v4", "ALE/Pong-v5"):
        assert cells(text, name)[6:] == ["21", "21", "0.00 %", "21", "0.00 %"]
    assert "| Pong " not in text


def test_markdown_own_environments_have_no_paper_cells():
    text = paper_tables.markdown(
        sweeps_of(lossy_rows("ddpg", "HalfCheetah-v3", {"fp16": 0.0, "8": 0.1}, 2000.0)), "weights"
    )
    # MuJoCo's is not the paper's, which stays in a row of its own.
    assert cells(text, "HalfCheetah-v4")[6:] == ["-"] * 5
    assert cells(text, "HalfCheetah ")[6:] == ["2553", "2551", "0.08 %", "2473", "3.13 %"]


def test_markdown_mean_and_verdict():
    rows = (
        lossy_rows("dqn", "CartPole-v1", {"fp16": 0.0, "8": 0.02}),
        lossy_rows("dqn", "Acrobot-v1", {"fp16": -0.02, "8": 0.04}, reward=-100.0),
    )
    text = paper_tables.markdown(sweeps_of(*rows), "weights")
    mean = cells(text, "Mean")
    assert mean[3].startswith("-1.00 % [") and mean[5].startswith("3.00 % [")
    assert mean[8] == "-0.88 %" and mean[10] == "8.60 %"
    assert "Mean E_int8 of 2 agents: 3.00 % [3.00, 3.00]" in text
    assert "median 3.00 %); the paper's: 8.60 %, reached: all of the interval" in text


@pytest.mark.parametrize(
    "low, high, expected",
    (
        (0.01, 0.02, "reached: all of the interval is at or below it"),
        (0.01, 0.03, "reached: the mean is at or below it, the interval reaches above it"),
        (-0.5, 0.5, "reached: the mean is at or below it, the interval reaches above it"),
        (0.02, 0.03, "cannot be said: the mean is above it, the interval includes it"),
        (0.0231, 0.03, "cannot be said: the mean is above it, the interval includes it"),
        (0.024, 0.03, "not reached: all of the interval is above it"),
        (None, None, "cannot be said: there is no interval"),
    ),
)
def test_verdict_says_reached_only_where_the_mean_is_as_good(low, high, expected):
    error = 0.02 if low is None else (low + high) / 2
    interval = intervals.Interval(error, low, high)
    assert ": ".join(sweeps_lib.verdict(interval, 2.31)) == expected


def test_mean_error_leaves_out_agents_without_an_interval_and_names_them():
    sweeps = sweeps_of(
        lossy_rows("ppo", "CartPole-v1", {"8": 0.1}),
        lossy_rows("ppo", "LunarLander-v2", {"8": 0.5}, reward=0.1, spread=50.0),
        lossy_rows("ppo", "Pendulum-v1", {"8": 0.3}, episodes=1),
        lossy_rows("ppo", "Acrobot-v1", {"16": 0.9}),
    )
    mean = sweeps_lib.mean_error(sweeps, "weights", "8")
    assert mean.agents == 1
    assert mean.fixed.error == pytest.approx(0.1)
    assert mean.left_out == [
        "LunarLander-v3 (the interval of the fp32 mean includes zero)",
        "Pendulum-v1 (one episode has no spread)",
    ]
    text = paper_tables.markdown(sweeps, "weights")
    assert "Not in the mean of E_int8: LunarLander-v3 (the interval" in text
    assert "No mean of E_fp16: no agent has" in text


def test_mean_error_is_that_of_all_episodes_together():
    sweeps = sweeps_of(*(lossy_rows("ppo", f"E{i}-v0", {"8": 0.01 * i}) for i in range(5)))
    mean = sweeps_lib.mean_error(sweeps, "weights", "8")
    assert (mean.agents, mean.median) == (5, pytest.approx(0.02))
    assert mean.fixed.error == pytest.approx(0.02)
    # No episode's loss differs from another's: all of the spread is between agents.
    assert mean.fixed.high - mean.fixed.low < 0.001 < mean.drawn.high - mean.drawn.low


def test_markdown_notes_and_few_episodes_get_footnotes():
    text = paper_tables.markdown(
        sweeps_of(
            lossy_rows("ppo", "A-v0", {"8": 0.1}, episodes=30, note="slow environment"),
            lossy_rows("ppo", "B-v0", {"8": 0.1}, episodes=30),
            lossy_rows("ppo", "C-v0", {"8": 0.1}),
        ),
        "weights",
    )
    assert cells(text, "A-v0")[0] == "A-v0 [1] [2]"
    assert cells(text, "B-v0")[0] == "B-v0 [1]"
    assert cells(text, "C-v0")[0] == "C-v0"
    assert "- [1] 30 episodes\n- [2] slow environment\n" in text


def test_markdown_widths_fall_and_lack_what_was_not_measured():
    text = paper_tables.markdown(
        sweeps_of(
            lossy_rows("ppo", "A-v0", {"2": 1.0, "32": 0.0, "16": 0.001}, reward=2000.0, spread=0),
            lossy_rows("ppo", "B-v0", {"fp16": -0.0001, "4": 0.5}, spread=0),
        ),
        "weights",
    )
    assert "int8 (weights)\n" in text
    widths = text[text.index("every width") :]
    assert cells(widths, "Environment") == ["Environment", "", "fp32", "32", "16", "fp16", "4", "2"]
    assert cells(widths, "A-v0") == ["A-v0", "reward", "2000", "2000", "1998", "-", "-", "0.00"]
    assert cells(widths, " ") == ["", "E, %", "", "0.0", "0.1", "-", "-", "100.0"]
    assert "-0.0 " not in widths
    assert "every width" not in paper_tables.markdown(
        sweeps_of(lossy_rows("ppo", "A-v0", {"8": 0.0})), "weights", widths=False
    )
    other = paper_tables.markdown(
        sweeps_of(lossy_rows("ppo", "A-v0", {"8": 0.0})), "weights",
        granularity="channel", rounding="nearest",
    )
    assert "every width (weights, channel granularity)\n" in other


def test_by_algorithm_has_the_papers_order():
    rows = [lossy_rows(algo, "A-v0", {"8": 0.0}) for algo in ("d4pg", "ddpg", "ppo", "dqn", "a2c")]
    found = paper_tables.by_algorithm(sweeps_of(*rows))
    assert list(found) == ["a2c", "dqn", "ppo", "ddpg", "d4pg"]
    # The paper has nothing of D4PG to stand beside.
    assert "paper:" not in paper_tables.markdown(sweeps_of(rows[0]), "weights")


def test_csv_rows_are_of_one_form_and_in_percent():
    rows = paper_tables.csv_rows(
        sweeps_of(
            lossy_rows("ppo", "CartPole-v1", {"fp16": 0.0, "8": 0.02}),
            lossy_rows("d4pg", "gym,Pendulum-v1", {"8": 0.04}),
        ),
        "weights",
    )
    assert [(row["algo"], row["env"]) for row in rows] == [
        ("ppo", "CartPole-v1"), ("ppo", "mean"), ("d4pg", "gym,Pendulum-v1"), ("d4pg", "mean"),
    ]
    assert len({tuple(row) for row in rows}) == 1
    assert rows[0]["error_int8"] == pytest.approx(2.0, rel=1e-5)  # Returns have 7 digits.
    assert rows[0]["error_int8_low"] == pytest.approx(2.0, rel=1e-5)
    assert (rows[0]["paper_env"], rows[0]["paper_int8"]) == ("CartPole", 500)
    assert (rows[1]["paper_error_int8"], rows[1]["agents"]) == (0.54, 1)
    assert (rows[2]["fp16"], rows[2]["error_fp16"], rows[2]["paper_fp32"]) == ("", "", "")


@pytest.mark.parametrize(
    "value, text",
    ((2904.4, "2904"), (500.0, "500.0"), (-12.34, "-12.3"), (3.456, "3.46"), (-0.001, "0.00")),
)
def test_reward_has_digits_that_say_something(value, text):
    assert paper_tables.reward(value) == text


def test_command_prints_and_writes(tmp_path, run_commands):
    path = str(tmp_path / "ptq.csv")
    for algo in ("ppo", "a2c"):
        for row in lossy_rows(algo, "CartPole-v1", {"fp16": 0.0, "8": 0.02}):
            rows_lib.append(path, row)
    out = tmp_path / "new" / "table.csv"
    ppo, everything = run_commands(
        "table",
        [["--results", path, "--algo", "ppo2", "--out", out],
         ["--results", path, "--nowidths", "--out", "table.md"]],
        cwd=tmp_path,
    )
    assert (ppo.code, everything.code) == (0, 0), (ppo, everything)
    assert "## PPO" in ppo.out and "## A2C" not in ppo.out
    with open(out, encoding="utf-8", newline="") as file:
        assert [row["env"] for row in csv.DictReader(file)] == ["CartPole-v1", "mean"]
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == everything.out
    assert "## A2C" in everything.out and "every width" not in everything.out


@pytest.mark.parametrize(
    "arguments, message",
    (
        ((), "no results in quantized/ptq.csv"),
        (("--results=ptq.csv", "--algo=ddpg"), "no rows of ddpg .*has: ppo.*benchmark.sh"),
        (
            ("--results=ptq.csv", f"--scheme={BOTH}", "--granularity=channel"),
            "no rows of any algorithm .*has: none.*"
            r"benchmark.sh ALGO ENV --scheme weights\+activations --granularity channel measures",
        ),
        (("--results=ptq.csv", "--out=table.txt"), "neither in .md nor in .csv"),
        (("--results=ptq.csv", "ppo"), "does not know what to do with 'ppo'"),
    ),
)
def test_command_mistakes_get_one_line(tmp_path, run_commands, arguments, message):
    for row in lossy_rows("ppo", "CartPole-v1", {"8": 0.0}):
        rows_lib.append(str(tmp_path / "ptq.csv"), row)
    (done,) = run_commands("table", [arguments], cwd=tmp_path)
    assert re.search(message, done.error("table")), done


def test_file_is_written_though_what_is_printed_cannot_be(tmp_path):
    rows = lossy_rows("a2c", "CartPole-v1", {"fp16": 0.01, "8": 0.02})
    for row in rows:
        rows_lib.append(str(tmp_path / "sweep.csv"), row)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "baseline.table", f"--results={tmp_path / 'sweep.csv'}",
             "--scheme=weights", f"--out={tmp_path / 'table.md'}"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )
    assert done.returncode != 0, done.stderr
    assert "| CartPole-v1" in (tmp_path / "table.md").read_text()
