"""When a run has held a reward."""

import pytest

from actorQ.experiments.run_logs import times


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([0, 9, 9, 9], times.Reach(2, 0.2, True)),
        ([9, 0, 9, 9], times.Reach(3, 0.3, True)),
        ([9, 0, 9, 0], times.Reach(4, 0.4, False)),
        ([9, 0, 0, 9], times.Reach(4, 0.4, False)),
        ([0, 0, 0, 0], times.Reach(4, 0.4, False)),
    ],
)
def test_held_counts_from_the_start_of_the_row(returns, expected):
    assert times.held([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], returns, 9, 2, 1) == expected


def test_held_misses_up_to_the_row_that_the_end_cut_short():
    reach = times.held([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], [0, 0, 9, 9], 9, 3, 1)
    assert reach == times.Reach(3, 0.3, False)


def test_best_held_is_the_highest_level_of_a_row():
    assert times.best_held([0, 50, 100, 70, 20], window=2, smoothing=1) == 70
    # Means of two: 25, 75, 85, 45.
    assert times.best_held([0, 50, 100, 70, 20], window=2, smoothing=2) == 75
