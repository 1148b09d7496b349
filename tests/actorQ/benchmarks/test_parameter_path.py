"""The parameter path's benchmark: what it measures and how it counts; it is run by hand."""

import json
import subprocess
import sys
from unittest import mock

import pytest

from actorQ.benchmarks import parameter_path
from actorQ.benchmarks import parameter_sides
from actorQ.core import provenance
from actorQ.learner import publisher
from actorQ.policy.native import library
from actorQ.wire import connection


@pytest.mark.parametrize("native", [False, True])
def test_plan_covers_precisions_widths_and_both_pushes(native):
    sides = parameter_path.plan(native, quick=False)
    assert len({side.name for side in sides}) == len(sides)
    ours = [side for side in sides if side.kind == parameter_sides.PRODUCT]
    assert {side.quantize for side in ours} == ({32, 16, 8, 4} if native else {32, 16, 8})
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


def test_busy_learner_may_push_for_its_share_of_a_container_s_cores(monkeypatch, tmp_path):
    shares = []

    class Publisher:
        pushes = 0

        def __init__(self, *arguments):
            shares.append(arguments[-1])

        def publish(self, version, wait=False):
            self.pushes += 1

    (tmp_path / "cpu.max").write_text("400000 100000\n")
    monkeypatch.setattr(provenance, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(provenance.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(provenance.os, "sched_getaffinity", lambda _: {5, 6})
    monkeypatch.setattr(publisher, "VariablePublisher", Publisher)
    monkeypatch.setattr(connection, "Connection", mock.Mock())
    monkeypatch.setattr(parameter_sides, "learner_policy", mock.Mock())
    monkeypatch.setattr(parameter_sides, "_publishers", {})
    monkeypatch.setitem(parameter_sides._steps, 64, lambda: None)
    config = parameter_sides.Side(parameter_sides.PRODUCT, 8).config("folder", 64)
    parameter_sides.busy_steps_per_s(config, 0.01, 0.1)
    assert shares == [2 * config.push_share]  # The publisher counts the two cores that it gets.


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
