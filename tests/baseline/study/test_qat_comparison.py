"""Tests `baseline.study.qat_comparison`: the rows it takes, and studies with known answers."""

import pytest

from baseline.study import qat_comparison
from baseline.study import qat_rows
from tests.baseline import trained_rows


def compare(rows):
    """Returns the study and its comparisons by width."""
    (study,) = qat_comparison.studies(rows)
    return study, {one.bits: one for one in qat_comparison.compare(study, study.qat[0])}


def test_cell_has_mean_and_spread_over_trainings():
    study, found = compare(trained_rows.make_study(spread=10.0, noise=3.0))
    # The trainings' means are 100, 110 and 120 plus the noise's mean, which all share.
    starts = study.any_control.mean - 100.0
    cell = found["2"].qat
    assert cell.mean == pytest.approx(110.0 - 60.0 + starts)
    assert cell.std == pytest.approx(10.0)
    assert cell.seeds == (0, 1, 2)
    assert cell.seed_means == pytest.approx([40 + starts, 50 + starts, 60 + starts])


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


def one(rows, **settings):
    (study,) = qat_comparison.studies(rows, **settings)
    return study


def test_studies_of_full_data_have_everything():
    study = one(trained_rows.make_study())
    assert (study.algo, study.env, study.left_out) == ("ppo", "CartPole-v1", 0)
    assert study.train_seeds == [0, 1, 2] == list(study.control)
    (qat,) = study.qat
    assert list(qat.rows) == list(study.ptq.rows) == list("8765432")
    assert {row.method for rows in qat.rows.values() for row in rows.values()} == {"qat"}
    assert list(qat.rows["2"]) == [0, 1, 2]
    assert qat.kind == ("weights+activations", 500, "frozen", 8, False, "paper", "")


def test_kinds_of_training_are_compared_side_by_side_and_never_mixed():
    common = {"qat": {"3": 1.0, "2": 2.0}, "ptq": {"3": 5.0, "2": 9.0}}
    rows = trained_rows.make_study(**common)
    for changes in ({"ranges": "learned"}, {"widths": "last:8"}, {"ranges": "learned-99"}):
        rows += [
            row for row in trained_rows.make_study(**common, **changes) if row.method == "qat"
        ]
    channel = [
        row for row in trained_rows.make_study(**common, granularity="channel")
        if row.method == "qat"
    ]
    study = one(rows + channel)
    assert [sweep.kind.name for sweep in study.qat] == [
        "frozen ranges", "frozen ranges, channel granularity", "frozen ranges, last:8",
        "learned ranges", "learned-99 ranges",
    ]
    assert all(sweep.count == 6 for sweep in study.qat)
    assert study.ptq.count == 6 and study.left_out == 0


def test_studies_are_sorted_and_need_control_and_qat():
    rows = trained_rows.make_study(algo="ppo", env="LunarLander-v2")
    rows += trained_rows.make_study(algo="a2c", env="B-v0")
    rows += trained_rows.make_study(algo="a2c", env="NoControl-v0")[1:8]
    rows += trained_rows.make_study(algo="a2c", env="NoQat-v0", qat={})
    found = qat_comparison.studies(rows)
    assert [(study.algo, study.shown_env) for study in found] == [
        ("a2c", "B-v0"), ("ppo", "LunarLander-v3"),
    ]


def test_studies_never_mix_evaluations_steps_or_hyperparameters():
    rows = trained_rows.make_study(ptq={})
    for other in (
        {"seeds": "1"}, {"episodes": 4}, {"train_steps": 2000}, {"hyperparams": "n_steps:8"},
    ):
        few = trained_rows.make_study(reward=-5.0, qat={"8": 0.0, "16": 0.0}, ptq={}, **other)
        for both in (rows + few, few + rows):
            study = one(both)
            assert study.left_out == len(few) == 9
            assert study.any_control.mean == 100.0
            assert list(study.qat[0].rows) == list("8765432")
    # A control of other steps is none.
    alone = [row for row in rows if row.method == "qat"]
    assert not qat_comparison.studies(
        alone + [trained_rows.make_row("control", "fp32", [1.0] * 6, train_steps=5)]
    )


def test_studies_of_equal_size_the_last_is_taken():
    first, second = (trained_rows.make_study(seeds=seeds) for seeds in ("0,2,4", "1,3"))
    assert one(first + second).any_control.seeds == "1,3"
    assert one(second + first).any_control.seeds == "0,2,4"


def test_qat_of_other_delay_is_left_out():
    rows = trained_rows.make_study()
    rows += [
        trained_rows.make_row("qat", bits, [0.0] * 6, quant_delay=10) for bits in "432"
    ]
    study = one(rows)
    assert study.left_out == 3
    assert study.qat[0].kind.quant_delay == 500


def test_qat_frozen_and_moving_are_both_taken_only_if_both_are_full():
    rows = trained_rows.make_study()
    moving = [
        row for row in trained_rows.make_study(ranges="moving") if row.method == qat_rows.QAT
    ]
    study = one(moving + rows)
    assert [sweep.kind.ranges for sweep in study.qat] == ["frozen", "moving"]
    assert study.left_out == 0
    study = one(rows + moving[:-1])
    assert [sweep.kind.ranges for sweep in study.qat] == ["frozen"]
    assert study.left_out == 20
    study = one(moving + [row for row in rows if row.method != "qat" or row.bits != "2"])
    assert [sweep.kind.ranges for sweep in study.qat] == ["moving"]


def test_qat_widths_beyond_8_and_quantized_outputs_are_one_kind():
    rows = trained_rows.make_study(qat={bits: 0.0 for bits in ("16", "8", "4")}, ptq={})
    assert list(one(rows).qat[0].rows) == ["16", "8", "4"]
    own = [
        trained_rows.make_row("qat", bits, [3.0] * 6, output_bits=int(bits), train_seed=seed)
        for bits in ("16", "8", "4", "2") for seed in range(3)
    ]
    study = one(rows + own)
    assert study.qat[0].kind.output and list(study.qat[0].rows) == ["16", "8", "4", "2"]


def test_widths_of_two_input_bits_are_not_mixed():
    rows = trained_rows.make_study(qat={"12": 0.0, "8": 0.0}, ptq={})
    again = [
        trained_rows.make_row("qat", "12", [3.0] * 6, input_bits=8, train_seed=seed)
        for seed in (0, 1)
    ]
    study = one(rows + again)
    assert {row.input_bits for row in study.qat[0].rows["12"].values()} == {8}
    assert sorted(study.qat[0].rows["12"]) == [0, 1] and sorted(study.qat[0].rows["8"]) == [0, 1, 2]
    assert study.left_out == 3  # The width's others, though of another seed.


def test_ptq_of_like_inputs_is_preferred_then_the_fullest():
    rows = trained_rows.make_study(ptq={"8": 0.0})
    raw = [
        trained_rows.make_row("ptq", bits, [1.0] * 6, input_bits=None) for bits in "8765432"
    ]
    assert one(rows + raw).ptq.kind.input_bits == 8
    without = [row for row in rows if row.method != "ptq"]
    assert one(without + raw).ptq.kind.input_bits is None
    assert one(without).ptq is None


def test_ptq_of_weights_only_is_not_compared():
    rows = trained_rows.make_study(ptq={})
    weights = trained_rows.make_row("ptq", "8", [1.0] * 6)
    object.__setattr__(weights, "scheme", "weights")
    assert one([*rows, weights]).ptq is None


def test_train_seeds_without_control_are_seen():
    rows = trained_rows.make_study()
    study = one([row for row in rows if row.method != "control" or row.train_seed != 1])
    assert study.train_seeds == [0, 1, 2] and list(study.control) == [0, 2]
