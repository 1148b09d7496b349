"""Tests `baseline.study.qat_tables`: text and CSV rows of studies with known answers."""

import csv

import pytest

from actorQ.core import output
from baseline.study import qat_comparison
from baseline.study import qat_tables
from tests.baseline import trained_rows


def compared(rows):
    return qat_tables.compared(qat_comparison.studies(rows))


def cells(text, first):
    """Returns the cells of the line that begins so."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_has_every_number_of_a_width():
    text = qat_tables.markdown(compared(trained_rows.make_study(spread=50.0)))
    assert cells(text, "2") == [
        "2", "90.0 ± 50.0", "50.0 ± 50.0", "150.0 ± 50.0", "40.0 [40.0, 40.0]", "40.0 %",
        "66.7 %", "QAT", "3", "62",
    ]
    assert cells(text, "ppo CartPole-v1") == [
        "ppo CartPole-v1", "3", "150.0 ± 50.0", "3", "5", "7 of 7", "7 of 7", "0 of 7",
    ]
    assert "Trained for 1000 steps with seeds 0, 1, 2; evaluated on 6 episodes each" in text
    assert "quantized from step 500 on, ranges frozen, observations at 8 bits, output not" in text
    assert "PTQ: ranges calibrated over 5 episodes, observations at 8 bits, output not" in text
    assert "Not measured" not in text and "left out" not in text
    assert "With three trainings it is coarse" in text


def test_markdown_says_what_is_lacking():
    rows = [
        row
        for row in trained_rows.make_study()
        if (row.method, row.train_seed) != ("qat", 2) or row.bits in "87"
        if (row.method, row.bits) != ("ptq", "3")
    ]
    rows.append(trained_rows.make_row("qat", "8", [1.0] * 6, quant_delay=3))
    text = qat_tables.markdown(compared(rows))
    assert cells(text, "8")[-2] == "3"
    assert cells(text, "4")[-2] == "QAT 2, PTQ 3, fp32 3"
    assert cells(text, "3")[2:8] == ["n/a", "100.0 ± 0.0", "n/a", "0.0 %", "n/a", "n/a"]
    assert cells(text, "ppo CartPole-v1")[1] == "2 to 3"
    assert (
        "Not measured: QAT of seed 2 at 6, 5, 4, 3, 2 bits; PTQ of seeds 0, 1, 2 at 3 bits." in text
    )
    assert "1 other row is left out" in text


def test_markdown_without_ptq_or_a_control_of_a_seed():
    rows = trained_rows.make_study(ptq={}, hyperparams="n_steps:8")
    text = qat_tables.markdown(compared([row for row in rows[:-8] if row.method != "ptq"]))
    assert "with seeds 0, 1, n_steps:8;" in text
    assert "Not measured: PTQ." in text
    assert cells(text, "ppo CartPole-v1")[3:] == ["3", "n/a", "n/a", "n/a", "n/a"]
    text = qat_tables.markdown(compared([row for row in rows if row is not rows[8]]))
    assert "Not measured: PTQ; fp32 of seed 1." in text
    assert cells(text, "8")[-2] == "QAT 3, PTQ 0, fp32 2"


def test_markdown_of_one_training_has_no_spread_and_no_verdict():
    text = qat_tables.markdown(compared(trained_rows.make_study(train_seeds=(4,))))
    assert cells(text, "2")[1:] == [
        "40.0", "0.0", "100.0", "40.0 [40.0, 40.0]", "60.0 %", "100.0 %", "one training", "1", "62",
    ]
    assert "with seed 4;" in text


def test_markdown_where_fp32_may_be_zero_there_is_no_share():
    text = qat_tables.markdown(compared(trained_rows.make_study(reward=-1.0, spread=1.0)))
    assert cells(text, "2")[5:7] == ["n/a", "n/a"]
    assert cells(text, "ppo CartPole-v1")[3:5] == ["n/a", "n/a"]


def test_markdown_of_one_episode_has_no_interval():
    text = qat_tables.markdown(compared(trained_rows.make_study(train_seeds=(0,), episodes=1)))
    assert cells(text, "2")[4] == "40.0"


def test_frozen_and_moving_get_a_table_each():
    rows = trained_rows.make_study(reward=5000.0)
    rows += [r for r in trained_rows.make_study(reward=5000.0, ranges="moving") if r.ranges[:1]]
    found = compared(rows)
    assert [one.name for one in found] == [
        "ppo CartPole-v1, frozen ranges", "ppo CartPole-v1, moving ranges",
    ]
    assert cells(qat_tables.markdown(found), "ppo CartPole-v1, moving ranges")[2] == "5000 ± 0"


def test_csv_rows_have_the_numbers(tmp_path):
    rows = qat_tables.csv_rows(compared(trained_rows.make_study(spread=50.0)))
    rows += qat_tables.csv_rows(compared(trained_rows.make_study(env="LunarLander-v2", ptq={})))
    path = tmp_path / "table.csv"
    output.write_csv(str(path), rows)
    read = list(csv.DictReader(path.open()))
    assert len(read) == 14
    row = read[6]
    assert (row["algo"], row["env"], row["bits"], row["ranges"]) == (
        "ppo", "CartPole-v1", "2", "frozen",
    )
    expected = {
        "qat_mean": 90, "qat_std": 50, "ptq_mean": 50, "fp32_mean": 150, "difference": 40,
        "difference_low": 40, "difference_high": 40, "error_qat": 40, "error_ptq": 200 / 3,
        "bytes": 62, "train_steps": 1000, "episodes": 6,
    }
    assert {name: float(row[name]) for name in expected} == pytest.approx(expected, rel=1e-5)
    assert (row["qat_seeds"], row["better"]) == ("0 1 2", "QAT")
    assert read[7]["env"] == "LunarLander-v3"
    assert read[7]["ptq_mean"] == read[7]["difference"] == read[7]["better"] == ""
