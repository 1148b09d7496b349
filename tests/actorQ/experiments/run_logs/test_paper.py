"""The published speed-ups."""

import pytest

from actorQ.experiments.run_logs import paper


def test_paper_speedups_agree_with_their_times():
    assert len(paper.SPEEDUPS) == 11
    for result in paper.SPEEDUPS.values():
        # The paper cuts some ratios off after two digits where others are rounded.
        assert result.fp32_s / result.int8_s == pytest.approx(result.speedup, abs=0.011)
