"""The parameter path's benchmark: what it measures and how it counts; it is run by hand."""

import json
import subprocess
import sys

import pytest

from actorQ.benchmarks import parameter_path
from actorQ.benchmarks import parameter_sides
from actorQ.policy.native import library


@pytest.mark.parametrize("native", [False, True])
def test_plan_covers_precisions_widths_and_both_pushes(native):
    sides = parameter_path.plan(native, quick=False)
    assert len({side.name for side in sides}) == len(sides)
    ours = [side for side in sides if side.kind == parameter_sides.PRODUCT]
    assert {side.quantize for side in ours} == ({32, 16, 8, 4, 3} if native else {32, 16, 8})
    assert {side.communication for side in ours} >= {32, 16, 8, 6, 4, 2}
    assert {side.push_precision for side in ours} == {"float32", "bfloat16"}
    assert {side.quantize for side in sides} - {side.quantize for side in ours} == set()
    assert any(side.kind == parameter_sides.ORIGINAL for side in sides)
    for side in sides:
        # Every setting is a legal one.
        assert side.config("folder", 64).quantize == side.quantize
    assert set(parameter_path.plan(native, quick=True)) <= set(sides)


def test_table_shows_medians_in_milliseconds_and_the_message_beside_fp32():
    keys = ("total_s", *parameter_path._STAGES, "hold_up_s", "learner_cpu_s")
    updates = [
        {**dict.fromkeys(keys, seconds), "message_bytes": 250_000, "fp32_bytes": 1_000_000}
        for seconds in (0.001, 0.003, 0.5)
    ]
    (row,) = parameter_path.table({"side": updates})
    assert row == ["side", *len(keys) * ["3.0"], "0.25", "0.2500"]


@pytest.mark.slow
def test_benchmark_quick_measures_the_product(tmp_path):
    command = [
        sys.executable, "-m", "actorQ.benchmarks.parameter_path", "--quick", "--repeats", "1",
        "--out", str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "parameter_path.json").read_text())["placements"]["1 core"]
    assert len(rows) == len(parameter_path.plan(library.available(), quick=True))
    assert all(update["total_s"] > 0 for updates in rows.values() for update in updates)
