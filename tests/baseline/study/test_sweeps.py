"""Tests `baseline.study.sweeps`: which rows belong together, and where the sweet spot is."""

import dataclasses

import pytest

from baseline.study import sweeps as sweeps_lib
from tests.baseline import sweep_rows


def test_sweeps_sorts_pairs_and_widths():
    rows = sweep_rows.make_sweep("ppo", "B-v0", ("2", "32", "fp16", "16"))
    rows += sweep_rows.make_sweep("a2c", "C-v0", ("8",)) + sweep_rows.make_sweep("ppo", "A-v0", ())
    found = sweeps_lib.sweeps(rows)
    assert [(sweep.algo, sweep.env) for sweep in found] == [
        ("a2c", "C-v0"), ("ppo", "A-v0"), ("ppo", "B-v0"),
    ]
    assert list(found[2].quantized["weights"]) == ["32", "16", "fp16", "2"]
    assert found[1].quantized == {}


def test_sweeps_without_fp32_there_is_none():
    assert sweeps_lib.sweeps(sweep_rows.make_sweep()[1:]) == []


def test_sweeps_never_mixes_evaluations():
    short = sweep_rows.make_sweep(widths=("8", "4"), episodes=9)
    long = sweep_rows.make_sweep(widths=("8", "fp16"), episodes=30)
    other_seeds = sweep_rows.make_sweep(widths=("6",), episodes=30, seeds="1")
    (sweep,) = sweeps_lib.sweeps(short + long + other_seeds)
    rows = [sweep.fp32, *sweep.quantized["weights"].values()]
    assert {(row.episodes, row.seeds) for row in rows} == {(30, "0,2,4")}
    assert list(sweep.quantized["weights"]) == ["fp16", "8"]


def test_sweeps_prefers_wanted_precisions_then_episodes_then_the_last():
    full = sweep_rows.make_sweep(episodes=9)
    long = sweep_rows.make_sweep(widths=("8", "fp16"), episodes=30)
    again = sweep_rows.make_sweep(widths=("8", "fp16"), episodes=30, seeds="1,3")
    (sweep,) = sweeps_lib.sweeps(full + long)
    assert sweep.fp32.episodes == 9
    (sweep,) = sweeps_lib.sweeps(full + long, wanted=("fp16", "8"))
    assert sweep.fp32.episodes == 30
    (sweep,) = sweeps_lib.sweeps(long + again, wanted=("fp16", "8"))
    assert sweep.fp32.seeds == "1,3"


def test_sweeps_takes_schemes_granularity_and_rounding_asked_for():
    both = "weights+activations"
    rows = sweep_rows.make_sweep(widths=("8",))
    rows += sweep_rows.make_sweep(widths=("8", "6"), scheme=both)[1:]
    rows += sweep_rows.make_sweep(widths=("4",), granularity="channel", rounding="floor")[1:]
    (sweep,) = sweeps_lib.sweeps(rows)
    assert {scheme: list(found) for scheme, found in sweep.quantized.items()} == {
        "weights": ["8"], both: ["8", "6"],
    }
    (sweep,) = sweeps_lib.sweeps(rows, schemes=[both])
    assert list(sweep.quantized) == [both]
    (sweep,) = sweeps_lib.sweeps(rows, granularity="channel", rounding="floor")
    assert list(sweep.quantized["weights"]) == ["4"]


def of_widths(**columns):
    """Rows by width, like `of_widths(w8={"mean": 1})`."""
    (row,) = sweep_rows.make_sweep(widths=("8",))[1:]
    return {
        name[1:]: dataclasses.replace(row, bits=name[1:], **values)
        for name, values in columns.items()
    }


def test_best_width_highest_mean_then_fewest_bits():
    rows = of_widths(w8={"mean": 1.0}, w6={"mean": 3.0}, w4={"mean": 3.0}, w2={"mean": 2.0})
    assert sweeps_lib.best_width(rows).bits == "4"
    assert sweeps_lib.best_width({}) is None
    half = dataclasses.replace(rows["8"], bits="fp16", mean=9.0)
    assert sweeps_lib.best_width({**rows, "fp16": half}).bits == "4"


@pytest.mark.parametrize(
    "lows, expected",
    (
        ({"w8": 0.0, "w6": 0.02, "w4": 0.021}, "6"),
        ({"w8": 0.0, "w6": 0.5, "w4": -9.0}, "8"),  # The first failure ends the search.
        ({"w8": 0.1, "w6": 0.0}, None),
        ({"w8": 0.0, "w6": None}, "8"),
        ({"w4": 0.0, "w16": 0.0}, "4"),
        ({}, None),
    ),
)
def test_fewest_bits_narrowest_that_is_not_shown_to_lose(lows, expected):
    rows = of_widths(**{name: {"error_low": low} for name, low in lows.items()})
    row = sweeps_lib.fewest_bits(rows)
    assert (row.bits if row else None) == expected


@pytest.mark.parametrize(
    "losses, expected",
    (
        ({"8": 0.0, "4": 0.02, "3": 0.03, "2": 0.0}, "4"),
        ({"2": -0.5, "8": -0.1}, "2"),
        ({"8": 0.0, "4": None, "2": 0.0}, "8"),
        ({"8": 0.3, "2": 0.0}, None),
        ({"fp16": 0.9, "8": 0.0}, "8"),
    ),
)
def test_narrowest_is_kept_with_all_wider_ones(losses, expected):
    assert sweeps_lib.narrowest(losses) == expected
