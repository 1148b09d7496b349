"""Tests `baseline.study.qat_study`: which rows of trainings are compared with each other."""

from baseline.study import qat_rows
from baseline.study import qat_study
from tests.baseline import trained_rows


def one(rows, **settings):
    (study,) = qat_study.studies(rows, **settings)
    return study


def test_studies_of_full_data_have_everything():
    study = one(trained_rows.make_study())
    assert (study.algo, study.env, study.left_out) == ("ppo", "CartPole-v1", 0)
    assert study.train_seeds == [0, 1, 2] == list(study.control)
    (qat,) = study.qat
    assert list(qat.rows) == list(study.ptq.rows) == list("8765432")
    assert {row.method for rows in qat.rows.values() for row in rows.values()} == {"qat"}
    assert list(qat.rows["2"]) == [0, 1, 2]
    assert qat.kind == ("weights+activations", 500, "frozen", 8, False)


def test_studies_are_sorted_and_need_control_and_qat():
    rows = trained_rows.make_study(algo="ppo", env="LunarLander-v2")
    rows += trained_rows.make_study(algo="a2c", env="B-v0")
    rows += trained_rows.make_study(algo="a2c", env="NoControl-v0")[1:8]
    rows += trained_rows.make_study(algo="a2c", env="NoQat-v0", qat={})
    found = qat_study.studies(rows)
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
    assert not qat_study.studies(
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


def test_studies_take_granularity_and_rounding_asked_for():
    rows = trained_rows.make_study()
    channel = trained_rows.make_study(qat={"8": 0.0}, granularity="channel", rounding="floor")
    both = rows + [row for row in channel if row.method != "control"]
    assert one(both).qat[0].count == 21
    assert one(both, granularity="channel", rounding="floor").qat[0].count == 3
    assert qat_study.studies(both, granularity="channel") == []


def test_train_seeds_without_control_are_seen():
    rows = trained_rows.make_study()
    study = one([row for row in rows if row.method != "control" or row.train_seed != 1])
    assert study.train_seeds == [0, 1, 2] and list(study.control) == [0, 2]
