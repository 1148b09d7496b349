"""Tests `baseline.study.intervals` against closed forms and scipy's bootstrap."""

import numpy as np
import pytest
from scipy import stats

from baseline.study import intervals


def make_pairs(seed, count=60, loss=0.1, noise=10.0):
    """Returns whose shared part is wide, and whose E is `loss` plus a little noise."""
    rng = np.random.default_rng([3, seed])
    fp32 = 100 + 30 * rng.normal(size=count)
    return fp32, fp32 * (1 - loss) + noise * rng.normal(size=count)


def statistic(fp32, quantized, axis=-1):
    mean = np.mean(fp32, axis=axis)
    return (mean - np.mean(quantized, axis=axis)) / np.abs(mean)


@pytest.mark.parametrize(
    "fp32, quantized, expected",
    (
        ((100, 300), (150, 150), 0.25),
        ((-100, -300), (-250, -250), 0.25),
        ((-100, -300), (-100, -100), -0.5),
        ((500, 500), (500, 500), 0.0),
        ((1, -1), (5, 5), None),
        ((0, 0), (0, 0), None),
        ((0.1, 0.2, -0.3), (1, 1, 1), None),  # Sums to 5.6e-17.
    ),
)
def test_relative_error_closed_form(fp32, quantized, expected):
    assert intervals.relative_error(fp32, quantized) == (
        None if expected is None else pytest.approx(expected)
    )


@pytest.mark.parametrize("seed", range(4))
def test_paired_agrees_with_scipy(seed):
    pairs = make_pairs(seed)
    got = intervals.paired(*pairs)
    expected = stats.bootstrap(
        pairs, statistic, paired=True, vectorized=True, method="percentile",
        n_resamples=10_000, rng=np.random.default_rng(99),
    ).confidence_interval
    width = expected.high - expected.low
    assert got.error == pytest.approx(statistic(*pairs))
    # Both are draws: their ends have a standard error of about 2 % of the width.
    assert got.low == pytest.approx(expected.low, abs=0.08 * width)
    assert got.high == pytest.approx(expected.high, abs=0.08 * width)


def test_paired_agrees_with_delta_method():
    fp32, quantized = make_pairs(0, count=4000)
    ratio = quantized.mean() / fp32.mean()
    error = np.std(quantized - ratio * fp32) / fp32.mean() / len(fp32) ** 0.5
    got = intervals.paired(fp32, quantized)
    assert got.low == pytest.approx(1 - ratio - 1.96 * error, abs=0.1 * error)
    assert got.high == pytest.approx(1 - ratio + 1.96 * error, abs=0.1 * error)


def test_paired_luck_shared_by_both_cancels():
    fp32, quantized = make_pairs(1, noise=0.5)
    together = intervals.paired(fp32, quantized)
    shuffled = intervals.paired(fp32, np.random.default_rng(0).permutation(quantized))
    assert together.high - together.low < 0.1 * (shuffled.high - shuffled.low)
    exact = intervals.paired(fp32, 0.75 * fp32)
    assert exact == (pytest.approx(0.25), pytest.approx(0.25), pytest.approx(0.25), "")


def test_paired_equal_sides_have_an_interval_of_zero():
    fp32, _ = make_pairs(2)
    assert intervals.paired(fp32, fp32) == (0.0, 0.0, 0.0, "")
    assert intervals.paired([500] * 9, [500] * 9) == (0.0, 0.0, 0.0, "")


def test_paired_scale_and_sign_of_rewards():
    fp32, quantized = make_pairs(3)
    one, scaled = intervals.paired(fp32, quantized), intervals.paired(7 * fp32, 7 * quantized)
    assert scaled == pytest.approx(one)
    # Costs instead of rewards: what was lost is won.
    negative = intervals.paired(-fp32, -quantized)
    assert negative[:3] == pytest.approx((-one.error, -one.high, -one.low))


def test_paired_covers_the_truth_about_as_often_as_it_says():
    trials = 300
    hits = 0
    for trial in range(trials):
        interval = intervals.paired(*make_pairs(100 + trial, count=40), resamples=1000)
        hits += interval.low <= 0.1 <= interval.high
    assert 0.90 <= hits / trials <= 0.98


def test_paired_is_deterministic_and_depends_on_seed():
    pairs = make_pairs(4)
    assert intervals.paired(*pairs) == intervals.paired(*pairs)
    assert intervals.paired(*pairs, seed=1) != intervals.paired(*pairs)


def test_paired_more_draws_than_a_block_are_the_same_draws(monkeypatch):
    pairs = make_pairs(5)
    whole = intervals.paired(*pairs)
    intervals._times_drawn.cache_clear()
    monkeypatch.setattr(intervals, "_BLOCK", 10_000)
    assert intervals.paired(*pairs) == whole


@pytest.mark.parametrize(
    "fp32, reason",
    (
        ((1.0, -1.0, 1.0, -1.0), "the fp32 mean is zero"),
        ((1.0, -1.0, 1.0, -0.9), "the interval of the fp32 mean includes zero"),
        ((3.0,), "one episode"),
    ),
)
def test_paired_without_interval_gives_the_reason(fp32, reason):
    interval = intervals.paired(fp32, [1.0] * len(fp32))
    assert (interval.low, interval.high) == (None, None)
    assert reason in interval.reason
    assert (interval.error is None) == (reason == "the fp32 mean is zero")


@pytest.mark.parametrize("sides", (([1.0], [1.0, 2.0]), ([], [])))
def test_paired_of_what_are_no_pairs_is_refused(sides):
    with pytest.raises(ValueError, match="pairs"):
        intervals.paired(*sides)


def test_mean_over_agents_of_one_is_that_agents():
    pairs = make_pairs(6)
    one, several = intervals.paired(*pairs), intervals.mean_over_agents([pairs])
    assert several.error == one.error
    assert several[:3] == pytest.approx(one[:3], abs=0.1 * (one.high - one.low))


def test_mean_over_agents_narrows_with_the_root_of_their_number():
    # Sixteen agents of independent noise: a quarter of one's interval, about the mean of E.
    agents = [make_pairs(seed, count=100) for seed in range(16)]
    singles = [intervals.paired(*agent) for agent in agents]
    got = intervals.mean_over_agents(agents)
    width = np.mean([single.high - single.low for single in singles]) / 4
    assert got.error == pytest.approx(np.mean([single.error for single in singles]))
    assert got.high - got.low == pytest.approx(width, rel=0.1)


def test_mean_over_agents_equal_copies_do_not_share_their_draws():
    pairs = make_pairs(7)
    one, four = intervals.paired(*pairs), intervals.mean_over_agents([pairs] * 4)
    assert four.high - four.low == pytest.approx((one.high - one.low) / 2, rel=0.1)


def test_mean_over_agents_resampled_agrees_with_closed_form():
    # No spread within an agent: the means of n agents drawn with replacement are what varies.
    losses = np.random.default_rng(0).normal(0.1, 0.05, size=40)
    agents = [([100.0, 100.0], [100 * (1 - loss)] * 2) for loss in losses]
    fixed = intervals.mean_over_agents(agents)
    assert fixed[:3] == pytest.approx([losses.mean()] * 3)
    drawn = intervals.mean_over_agents(agents, resample_agents=True)
    half = 1.96 * losses.std() / len(losses) ** 0.5
    assert drawn.error == pytest.approx(losses.mean())
    assert drawn.high - drawn.low == pytest.approx(2 * half, rel=0.05)


def test_mean_agrees_with_normal_interval():
    values = np.random.default_rng(1).normal(5, 2, size=2000)
    got = intervals.mean(values)
    half = 1.96 * values.std() / len(values) ** 0.5
    assert got.error == pytest.approx(values.mean())
    assert (got.low, got.high) == pytest.approx(
        (values.mean() - half, values.mean() + half), abs=0.1 * half
    )
    assert intervals.mean([3.0])[:3] == (3.0, None, None)


@pytest.mark.parametrize(
    "interval, text",
    (
        (intervals.Interval(0.01234, -0.00001, 0.5), "1.23 % [0.00, 50.00]"),
        (intervals.Interval(-0.00001, None, None, "why"), "0.00 %"),
        (intervals.Interval(None, None, None, "why"), "n/a"),
    ),
)
def test_interval_text_is_in_percent(interval, text):
    assert interval.text() == text


@pytest.mark.parametrize(
    "values, expected",
    (
        # All draws are the first training with probability 1/4 (two trainings) or 1/27 (three).
        ([[0.0, 0.0], [1.0, 1.0]], (0.5, 0.0, 1.0)),
        ([[1.0] * 5, [2.0] * 5, [6.0] * 5], (3.0, 1.0, 6.0)),
        ([[4.0] * 5] * 3, (4.0, 4.0, 4.0)),
        ([[-2.0, -2.0]], (-2.0, -2.0, -2.0)),
    ),
)
def test_mean_over_trainings_known_answers(values, expected):
    assert intervals.mean_over_trainings(values)[:3] == pytest.approx(expected)


def test_mean_over_trainings_of_one_is_that_over_its_episodes():
    values = np.random.default_rng(5).normal(size=40)
    nested, plain = intervals.mean_over_trainings([values]), intervals.mean(values)
    assert nested[:3] == pytest.approx(plain[:3], abs=0.02)


def test_mean_over_trainings_has_both_variances():
    rng = np.random.default_rng(6)
    values = 3.0 * rng.normal(size=(60, 1)) + rng.normal(size=(60, 30))
    interval = intervals.mean_over_trainings(values)
    # The variance of a drawn mean: that between trainings' means, and of episodes within.
    error = np.sqrt((values.mean(axis=1).var() + values.var(axis=1).mean() / 30) / 60)
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * error, rel=0.04)


def test_mean_over_trainings_covers_where_trainings_are_many():
    covered = 0
    for trial in range(200):
        rng = np.random.default_rng([7, trial])
        values = 7.0 + 2.0 * rng.normal(size=(20, 1)) + rng.normal(size=(20, 5))
        interval = intervals.mean_over_trainings(values, resamples=500)
        covered += interval.low <= 7.0 <= interval.high
    assert covered / 200 > 0.88


def test_mean_over_trainings_is_the_same_each_time_and_in_blocks(monkeypatch):
    values = np.random.default_rng(8).normal(size=(3, 10))
    first = intervals.mean_over_trainings(values)
    assert intervals.mean_over_trainings(values) == first
    monkeypatch.setattr(intervals, "_BLOCK", 300)
    assert intervals.mean_over_trainings(values)[:3] == pytest.approx(first[:3], abs=0.05)


def test_mean_over_trainings_of_one_episode_has_no_interval():
    assert intervals.mean_over_trainings([[3.0]])[:3] == (3.0, None, None)
    for values in ([], [[]], [1.0, 2.0]):
        with pytest.raises(ValueError, match="shape"):
            intervals.mean_over_trainings(values)
