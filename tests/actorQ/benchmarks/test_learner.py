"""Tests `actorQ.benchmarks.learner`: what it counts, its sides and its rows."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from actorQ.benchmarks import learner as benchmark
from actorQ.benchmarks import learner_sides
from actorQ.benchmarks import remote
from actorQ.benchmarks.learner_sides import Side
from actorQ.core import errors


class FakeProcess:
    """Steps of 1 s, by side and round; the reference gets faster in the second round."""

    SECONDS = {
        ("float32", "Sonnet", "memory"): [4.0, 2.0, 4.0],
        ("float32", "fused", "memory"): [2.0, 1.0, 2.0],
        ("bfloat16", "Sonnet", "memory"): [2.0, 2.0, 2.0],
        ("bfloat16", "fused", "memory"): [1.0, 0.5, 1.0],
        ("float32", "fused", "Reverb"): [2.5, 1.25, 4.0],
    }

    def __init__(self):
        self._rounds = {key: iter(values) for key, values in self.SECONDS.items()}
        self.built = None

    def call(self, function, *arguments):
        if function is learner_sides.build:
            (self.built,) = arguments
            return None
        assert function is learner_sides.measure
        side, _ = arguments
        assert side in self.built
        seconds = next(self._rounds[side.precision, side.optimizer, side.source])
        return learner_sides.Lap(seconds, 2 * seconds)


@pytest.fixture
def figures():
    sides = benchmark.Plan().sides(benchmark.ALL_THREADS, 256, 64)
    return benchmark.Figures(FakeProcess(), sides, 3, 1.0)


def test_figures_speedup_is_the_median_of_the_rounds_ratios(figures):
    plain = Side(256, 64)
    assert figures.seconds(plain) == 2.0
    assert figures.cpu(plain) == 4.0
    assert figures.speedup(plain, Side(256, 64, optimizer="Sonnet")) == 2.0
    # Rounds: 0.8, 0.8, 0.5. The medians' ratio is 0.8 too, by 2 / 2.5.
    assert figures.speedup(Side(256, 64, source="Reverb"), plain) == 0.8


def test_variant_cells_hold_rates_ratios_and_shares_of_the_peak(figures):
    side = Side(256, 64)
    peaks = {"float32": side.products_flop, "bfloat16": 4 * side.products_flop}
    cells = benchmark.variant_cells(side, figures, peaks)
    assert cells[:4] == ["0.2", "0.5", "0.5", "1.0"]
    assert cells[4:8] == ["2.00", "2.00", "4.00", "2.00"]
    assert [cell.split()[1] for cell in cells[8:]] == ["(50%)", "(25%)"]


def test_fed_cells_hold_rates_ratio_and_cpu_time(figures):
    assert benchmark.fed_cells(Side(256, 64), figures) == [
        "0.5", "0.4", "0.800", "4000.00", "5000.00"
    ]


def test_plan_sides_of_a_row_differ_in_what_the_row_compares():
    plan = benchmark.Plan()
    one_core = plan.sides(benchmark.ONE_CORE, 256, 64)
    assert {(side.precision, side.optimizer) for side in one_core} == {
        (precision, optimizer)
        for precision in ("float32", "bfloat16") for optimizer in ("Sonnet", "fused")
    }
    assert {side.source for side in one_core} == {"memory"}
    beside_an_actor = plan.sides(benchmark.ONE_THREAD, 256, 64)
    assert [side.source for side in beside_an_actor] == ["memory", "Reverb"]


def test_program_cells_hold_rates_and_ratios_over_a_step_as_before():
    sides = benchmark.Plan().programs(256, 64, learner_sides.MEMORY)
    assert [(side.compiled, side.steps_per_call) for side in sides] == [
        (False, 1), (True, 1), (False, 8), (True, 8)
    ]
    seconds = dict(zip(sides, ([4.0, 2.0], [2.0, 1.0], [4.0, 1.0], [1.0, 0.5]), strict=True))

    class Process:
        def call(self, function, *arguments):
            if function is learner_sides.measure:
                lap = seconds[arguments[0]].pop(0)
                return learner_sides.Lap(lap, lap)
            return None

    figures = benchmark.Figures(Process(), sides, 2, 1.0)
    assert benchmark.program_cells(sides, figures) == [
        "0.3", "0.7", "0.4", "1.3", "2.00", "1.50", "4.00"
    ]


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="there is a GPU")
def test_a_gpu_that_tensorflow_cannot_use_is_an_error():
    core = min(os.sched_getaffinity(0))
    with remote.remotes([core], gpu=True) as (process,):
        with pytest.raises(errors.UserError, match="no GPU here: leave out --device GPU"):
            process.call(learner_sides.set_up, [core], 1, "GPU")


@pytest.mark.parametrize(("device", "seen"), [("CPU", "-1"), ("GPU", "7")])
def test_only_the_learner_on_a_gpu_sees_gpus(device, seen, monkeypatch):
    # Its process was once hidden from every GPU, and would have measured the CPU in its place.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    found = []

    def set_up(self, function, *arguments):
        found.append(self.ask(os.getenv, "CUDA_VISIBLE_DEVICES"))
        raise errors.UserError("seen")

    monkeypatch.setattr(remote.Remote, "ask", remote.Remote.call, raising=False)
    monkeypatch.setattr(remote.Remote, "call", set_up)
    plan = dataclasses.replace(benchmark.QUICK, device=device)
    with pytest.raises(errors.UserError, match="seen"):
        benchmark.Bench(plan, 1, sorted(os.sched_getaffinity(0)))
    assert found == [seen]


def test_acmes_own_learner_makes_steps():
    learner = learner_sides._Learner(Side(8, 4, optimizer=learner_sides.SONNET))
    assert learner.measure(0.01).seconds > 0


def test_side_products_flop_is_what_the_compiled_step_multiplies():
    side = Side(24, 4)
    learner = learner_sides._Learner(side)._learner
    graph = learner._step.get_concrete_function().graph
    total = 0
    for operation in live(graph):
        if operation.type == "MatMul":
            rows = tf.TensorShape(operation.outputs[0].shape).num_elements()
            left = operation.inputs[0].shape
            inner = left[0] if operation.get_attr("transpose_a") else left[1]
            total += 2 * rows * inner
    assert total == side.products_flop


def live(graph):
    """Returns operations that an effect or output depends on; TensorFlow drops the others."""
    waiting = [o for o in graph.get_operations() if o.op_def.is_stateful]
    waiting += [tensor.op for tensor in graph.outputs]
    found = set()
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [tensor.op for tensor in operation.inputs] + operation.control_inputs
    return found


@pytest.mark.slow
def test_benchmark_quick_writes_its_files(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "actorQ.benchmarks.learner", "--quick", "--out", str(tmp_path)],
        check=True, timeout=300,
    )
    record = json.loads((tmp_path / "learner.json").read_text())
    assert {"2 / 2", "delivered", "publishing", "machine"} <= set(record)
    assert "Reverb / memory" in (tmp_path / "learner.md").read_text()
