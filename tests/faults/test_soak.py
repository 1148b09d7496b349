"""The soak test's judgement, on series made by hand."""

import numpy as np
import pytest

from actorQ.core import errors
from tests.faults import soak


def make(memory, files=None, pending=None):
    samples = soak.Samples()
    count = len(memory)
    samples.series["learner"] = {
        "rss_mb": list(memory), "open_files": list(files or [20.0] * count),
        "threads": [9.0] * count,
    }
    samples.seconds["learner"] = list(np.arange(count) * 10.0)
    samples.pending = pending or {}
    return samples


def test_growth_before_the_end_of_the_warm_up_does_not_count():
    memory = [*np.linspace(300, 500, 20), *[500.0] * 40]
    rows, grown = soak.verdicts(make(memory), 200)
    assert grown == []
    assert rows == [["learner", "500 to 500", "+0.0 %", "20 to 20", "9 to 9"]]


def test_memory_that_creeps_up_is_found():
    _, grown = soak.verdicts(make(np.linspace(500, 520, 60)), 200)
    assert grown == ["memory of learner by 2.3 %"]


def test_files_left_open_are_found():
    _, grown = soak.verdicts(make([500.0] * 60, [20.0] * 50 + [21.0] * 10), 200)
    assert grown == ["open files of learner from 20 to 21"]


@pytest.mark.parametrize(
    ("table", "items", "found"),
    [("broadcaster_table", 1, False), ("broadcaster_table", 2, True),
     ("replay_table", 50_000, False), ("replay_table", 50_001, True)],
)
def test_items_that_pile_up_are_found(table, items, found):
    _, grown = soak.verdicts(make([500.0] * 60, pending={table: items}), 200)
    assert bool(grown) == found


def test_too_short_a_soak_says_so():
    with pytest.raises(errors.UserError, match="soak for longer"):
        soak.verdicts(make([500.0] * 3), 25)


def test_plot_and_rows(tmp_path):
    samples = make([500.0] * 60)
    soak.draw(samples, 200, str(tmp_path / "soak.png"))
    assert (tmp_path / "soak.png").stat().st_size > 10_000
    rows = soak.rows_of(samples)
    assert len(rows) == 60
    assert rows[1] == {
        "seconds": 10.0, "process": "learner", "rss_mb": 500.0, "open_files": 20.0, "threads": 9.0,
    }


def test_plot_of_a_run_that_died_before_replay_was_full(tmp_path):
    samples = make([500.0] * 6)
    soak.draw(samples, samples.full_s, str(tmp_path / "soak.png"))  # Infinite: no such moment.
    assert (tmp_path / "soak.png").stat().st_size > 10_000
