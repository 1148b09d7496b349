"""The formulas for ranges of returns, with sparse, negative, huge and missing rewards."""

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.learner import return_ranges

AUTO = {"vmin": "auto", "vmax": "auto", "max_abs_reward": "auto"}
TASK = return_ranges.Task(1000, None)


def config(**settings):
    return config_lib.RunConfig(**{**AUTO, **settings})


def windows(singles, discounts=None, **settings):
    """Returns the windows of n steps in a row, each with one and the same reward."""
    made = config(**settings)
    steps = return_ranges.discounted_steps(made.discount, made.n_step)
    rewards = np.float32(singles) * np.float32(steps)
    if discounts is None:
        discounts = np.full(len(rewards), made.discount ** (made.n_step - 1), np.float32)
    return return_ranges.summarize(rewards, discounts, made)


def span(found, **settings):
    return return_ranges.find_span(found, config(**settings), TASK)[:2]


@pytest.mark.parametrize(
    ("discount", "steps", "expected"),
    [
        (0.99, 1000, 100.0),  # A time limit is no terminal state: values reach beyond it.
        (0.99, 200, 100.0),
        (0.999, 200, 2 * (1 - 0.999**200) / 0.001),  # Values reach only so far in a run.
        (1.0, 200, 400.0),
        (0.0, 200, 1.0),
        (0.9, 1, 2.0),
    ],
)
def test_horizon_is_that_of_the_discount_and_limited_by_episodes(discount, steps, expected):
    assert return_ranges.horizon(discount, steps) == pytest.approx(expected)


@pytest.mark.parametrize("n_step", [1, 5])
@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_rates_are_rewards_per_step_whatever_the_window(n_step, discount):
    if n_step > 1 and not discount:
        return  # Such a window has one reward, and looks like one that ends.
    found = windows([-2.0, 0.5], n_step=n_step, discount=discount)
    np.testing.assert_allclose([found.lowest_rate, found.highest_rate], [-2.0, 0.5], rtol=1e-5)
    assert (found.lowest_end, found.highest_end) == (0.0, 0.0)


def test_short_windows_at_a_time_limit_are_seen_as_short():
    made = config()
    rewards = np.float32([3.0, 3.0 * 1.99])
    found = return_ranges.summarize(rewards, np.float32([1.0, 0.99]), made)
    np.testing.assert_allclose([found.lowest_rate, found.highest_rate], [3.0, 3.0], rtol=1e-5)


def test_returns_after_a_terminal_state_are_not_repeated():
    # A lander that crashes loses 100 once, and not in every step.
    found = return_ranges.summarize(
        np.float32([-100.0, 0.5, -0.5]), np.float32([0.0, 0.99**4, 0.99**4]), config()
    )
    assert (found.lowest_end, found.highest_end) == (-100.0, -100.0)
    assert span(found) == (-150.0, 31.0)
    assert found.largest == 100.0


@pytest.mark.parametrize(
    ("singles", "expected"),
    [
        ([-16.0, -0.1], (-2400.0, 0.0)),  # No positive reward so far: none is expected.
        ([0.0, 2.0], (0.0, 600.0)),
        ([-1.0, 1.0], (-150.0, 300.0)),
        ([0.0] * 99 + [1.0], (0.0, 300.0)),  # Rewards are sparse.
        ([0.0, 1e-6], (0.0, 3e-4)),
        ([-1e30, 1e36], (-1.5e32, 1e37)),
        ([0.0, 0.0], (-100.0, 100.0)),
        ([0.0, 1e-40], (-100.0, 100.0)),
    ],
)
def test_span_follows_from_rewards_with_margins(singles, expected):
    np.testing.assert_allclose(span(windows(singles)), expected, rtol=1e-6)


def test_span_of_zeros_says_what_it_assumes():
    found = return_ranges.find_span(windows([0.0]), config(), TASK)
    assert "all rewards of the first 1 transitions were 0" in found.reason
    assert "[-1, 1]" in found.reason


def test_span_of_rewards_with_bounds_needs_neither_rewards_nor_margins():
    task = return_ranges.Task(1000, (0.0, 1.0))
    found = return_ranges.find_span(windows([0.0]), config(), task)
    assert found[:2] == (0.0, 100.0)
    assert "[0, 1] by definition" in found.reason


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"vmin": -5.0}, (-5.0, 300.0)),
        ({"vmax": 400.0}, (-150.0, 400.0)),
        ({"vmin": 1000.0}, (1000.0, 2100.0)),
        ({"vmax": -500.0}, (-1100.0, -500.0)),
    ],
)
def test_a_bound_that_is_given_stays(given, expected):
    assert span(windows([-1.0, 1.0]), **given) == expected


@pytest.mark.parametrize(
    ("singles", "expected"),
    [([1.0], 9.9), ([-300.0, 1.0], 3000.0), ([1e37], 1e37), ([0.0], (1 - 0.99**5) / 0.01)],
)
def test_scale_covers_the_largest_sum_with_a_margin(singles, expected):
    scale, reason = return_ranges.find_scale(windows(singles), config())
    assert scale == pytest.approx(expected)
    assert ("were 0" in reason) == (singles == [0.0])


def test_no_transition_at_all_is_as_good_as_zeros():
    found = return_ranges.summarize(np.zeros(0), np.zeros(0), config())
    assert found == (0, 0.0, 0.0, 0.0, 0.0, 0.0)
