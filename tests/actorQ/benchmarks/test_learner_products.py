"""Tests `actorQ.benchmarks.learner_products`."""

import json
import subprocess
import sys

import pytest

from actorQ.benchmarks import learner_products as benchmark
from tests.actorQ import harness


def test_row_compares_within_rounds():
    seconds = {
        benchmark.OWN.name: [0.3, 0.6, 0.3],
        benchmark.ONEDNN.name: [0.2, 0.2, 0.3],  # 1.5, 3 and 1 times as fast.
        benchmark.PADDED.name: [0.1, 0.1, 0.1],
    }
    assert benchmark.row(512, 64, seconds) == [
        "3x512", "64", "300.0", "200.0", "100.0", "1.50", "3.00"
    ]


@pytest.mark.slow
def test_benchmark_quick_measures_three_different_ways(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "actorQ.benchmarks.learner_products", "--quick", "--out",
         str(tmp_path)],
        check=True, timeout=300, cwd=harness.REPOSITORY,
    )
    ((shape, seconds),) = json.loads(
        (tmp_path / "learner_products.json").read_text()
    )["seconds"].items()
    assert shape == "3x1024, 8"
    assert [len(values) for values in seconds.values()] == [2, 2, 2]
    assert "oneDNN, padded: times as fast" in (tmp_path / "learner_products.md").read_text()
