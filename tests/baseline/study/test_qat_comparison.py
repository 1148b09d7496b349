"""Tests `baseline.study.qat_comparison` on studies of which the answers are known."""

import pytest

from baseline.study import qat_comparison
from baseline.study import qat_study
from tests.baseline import trained_rows


def compare(rows):
    """Returns the study and its comparisons by width."""
    (study,) = qat_study.studies(rows)
    return study, {one.bits: one for one in qat_comparison.compare(study, study.qat[0])}


def test_cell_has_mean_and_spread_over_trainings():
    study, found = compare(trained_rows.make_study(spread=10.0, noise=3.0))
    # Of 100, 110 and 120, and the noise's mean, which all share.
    starts = study.any_control.mean - 100.0
    cell = found["2"].qat
    assert cell.mean == pytest.approx(110.0 - 60.0 + starts)
    assert cell.std == pytest.approx(10.0)
    assert cell.seeds == (0, 1, 2)
    assert cell.seed_means == pytest.approx([40 + starts, 50 + starts, 60 + starts])
    assert qat_comparison.cell({}) is None


def test_difference_is_paired_by_training_and_start():
    # Spread and noise cancel: what is left is the loss of 60 against one of 100.
    _, found = compare(trained_rows.make_study(spread=30.0, noise=20.0))
    assert found["2"].difference[:3] == pytest.approx((40.0, 40.0, 40.0))
    assert found["2"].better == "QAT"
    assert found["8"].difference.error == pytest.approx(100.0 * 4.0**-6, abs=1e-4)


@pytest.mark.parametrize(
    "of_seeds, expected",
    (
        ((1.0, 2.0, 3.0), "QAT"),
        ((-1.0, -2.0, -3.0), "PTQ"),
        ((-1.0, 2.0, 3.0), "no difference shown"),
        ((0.0, 0.0, 0.0), "no difference shown"),
        ((5.0,), "one training"),
    ),
)
def test_better_is_what_the_interval_shows(of_seeds, expected):
    rows = []
    for seed, gain in enumerate(of_seeds):
        for method, bits, mean in (("control", "fp32", 9), ("qat", "8", 5 + gain), ("ptq", "8", 5)):
            rows.append(trained_rows.make_row(method, bits, [mean - 1.0, mean + 1.0], seed))
    _, found = compare(rows)
    assert found["8"].better == expected
    assert found["8"].difference.error == pytest.approx(sum(of_seeds) / len(of_seeds))


def test_errors_are_shares_of_fp32_over_shared_trainings():
    rows = trained_rows.make_study(spread=50.0)  # 100, 150, 200.
    rows = [row for row in rows if (row.method, row.train_seed, row.bits) != ("qat", 2, "2")]
    _, found = compare(rows)
    assert found["2"].qat_error == pytest.approx(60.0 / 125.0)
    assert found["2"].ptq_error == pytest.approx(100.0 / 150.0)
    assert found["2"].seeds == (0, 1) == found["2"].qat.seeds
    assert found["2"].difference.error == pytest.approx(40.0)


def test_errors_of_negative_fp32_are_losses_above_zero():
    _, found = compare(trained_rows.make_study(reward=-200.0))
    assert found["2"].qat_error == pytest.approx(0.3)
    assert found["8"].qat_error == 0.0


@pytest.mark.parametrize("columns", ({"reward": 0.0}, {"reward": -10.0, "spread": 10.0}))
def test_errors_where_fp32_may_be_zero_there_are_none(columns):
    study, found = compare(trained_rows.make_study(**columns))
    assert qat_comparison.may_be_zero(study)
    assert found["2"].qat_error is None
    assert found["2"].better == "QAT"  # Returns can be compared all the same.
    summary = qat_comparison.summary(list(found.values()))
    assert (summary.qat_fewest, summary.ptq_fewest, summary.qat_better) == (None, None, 7)


def test_training_without_control_counts_for_qat_only():
    rows = trained_rows.make_study(ptq={})
    rows.append(trained_rows.make_row("qat", "8", [40.0] * 6, train_seed=7))
    _, found = compare(rows)
    assert found["8"].qat.mean == pytest.approx((3 * 100 + 40) / 4)
    assert found["8"].qat_error == 0.0
    assert found["8"].difference is None and found["8"].better is None


def test_widths_are_those_of_either_side():
    qat, ptq = {"8": 0.0, "3": 1.0}, {"8": 0.0, "16": 0.0}
    _, found = compare(trained_rows.make_study(qat=qat, ptq=ptq))
    assert list(found) == ["16", "8", "3"]
    assert (found["16"].qat, found["3"].ptq) == (None, None)
    assert found["16"].num_bytes == 500


def test_summary_has_fewest_bits_and_counts():
    qat = {"8": 0.0, "6": 1.9, "4": 2.0, "3": 2.1, "2": 0.0}
    ptq = {"8": 1.0, "6": 5.0, "4": 1.0, "3": 2.1, "2": 50.0}
    _, found = compare(trained_rows.make_study(qat=qat, ptq=ptq))
    summary = qat_comparison.summary(list(found.values()))
    assert summary == ("4", "8", 5, 4, 3, 1)


def test_summary_where_the_widest_loses_there_is_no_width():
    _, found = compare(trained_rows.make_study(qat={"8": 3.0, "4": 0.0}, ptq={}))
    assert qat_comparison.summary(list(found.values())) == (None, None, 0, 0, 0, 0)


def test_numbers_are_the_same_each_time():
    rows = trained_rows.make_study(spread=3.0, noise=9.0)
    assert compare(rows)[1] == compare(rows)[1]
