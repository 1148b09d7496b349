"""Benchmarks of actors and whole runs: that they measure, and what they make of it."""

import dataclasses
import json
import os
import re
import sys

import pytest

from actorQ.benchmarks import actor_loop
from actorQ.benchmarks import actor_sides
from actorQ.benchmarks import end_to_end
from actorQ.benchmarks import remote
from actorQ.benchmarks import short_runs
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import provenance
from actorQ.core import telemetry
from actorQ.core import timing
from actorQ.environments import task_errors
from actorQ.launch import processes
from actorQ.policy.native import library
from tests.actorQ import harness

TASK = "dm_control,cartpole_balance"

# --- actor_loop ---


def measurement(steps_per_s, inference_us=0.0, **others):
    phases = {"environment_s": 1e-4 * steps_per_s, "inference_s": 1e-6 * inference_us * steps_per_s}
    return actor_sides.Measurement(steps_per_s, 1.0, 0.5, phases | others)


def test_plan_covers_all_tasks_precisions_and_both_widths():
    sides = [side for group in actor_loop.plan(native=True, quick=False) for side in group]
    assert {side.task for side in sides} == set(actor_loop._TASKS)
    for task in actor_loop._TASKS:
        for width in (2048, 256):
            ours = {s.bits for s in sides if (s.task, s.width, s.loop) == (task, width, "native")}
            assert ours >= {32, 8}
            assert actor_loop.Side(task, width, "original", 8) in sides
        wide = {s.bits for s in sides if (s.task, s.width, s.loop) == (task, 2048, "native")}
        assert wide == {32, 16, 8, 4}
    assert {side.environments for side in sides} == {1, 8}
    assert len(sides) == len(set(sides))  # No two rows of the table look the same.


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_plan_every_side_is_compared_with_the_original_in_its_own_group(native, quick):
    for group in actor_loop.plan(native, quick):
        found = {side: [measurement(100)] for side in group}
        assert {row[4] for row in actor_loop.table(found)[0]} == {"1.00"}


def test_plan_of_given_tasks_has_every_precision_of_these_only():
    tasks = ["gym,Acrobot-v1", "gym,MountainCar-v0"]
    sides = [s for group in actor_loop.plan(True, False, tasks) for s in group]
    assert [side.task for side in sides] == sorted(side.task for side in sides)
    assert {side.task for side in sides} == set(tasks)
    expected = [
        ("original", 8), ("pytorch", 32), ("pytorch", 16), ("pytorch", 8),
        ("native", 32), ("native", 16), ("native", 8), ("native", 4),
    ]
    for width in (4096, 2048):  # The original code's and the papers' policy.
        wide = [s for s in sides if s.task == tasks[0] and s.width == width]
        assert [(s.loop, s.bits) for s in wide] == expected
    sides = [s for group in actor_loop.plan(False, False, tasks) for s in group]
    assert len(sides) == len(set(sides)) and not any(s.loop == "native" for s in sides)


def test_plan_without_native_kernels_measures_none():
    for quick in (True, False):
        sides = [s for group in actor_loop.plan(native=False, quick=quick) for s in group]
        assert not any(side.loop == "native" or side.bits == 4 for side in sides)


def test_plan_every_side_has_a_legal_configuration():
    for group in actor_loop.plan(native=True, quick=False):
        assert len({(side.width, side.name) for side in group}) == len(group)
        for side in group:
            config = actor_loop.run_config(side, "folder", 5)
            assert config.model_sizes == (side.width,) * 3
            assert config.envs_per_actor == side.environments


def test_table_compares_with_the_original_and_with_fp32():
    side = actor_loop.Side("dm_control,cheetah_run", 2048, "native", 8)
    found = {
        dataclasses.replace(side, loop="original"): [measurement(100)],
        dataclasses.replace(side, loop="original with pulls"): [measurement(50, pull_s=0.2)],
        dataclasses.replace(side, bits=32): [measurement(200)],
        side: [measurement(800, 300.0), measurement(900, 200.0), measurement(10, 5e4)],
    }
    rows, record = actor_loop.table(found)
    assert rows[-1][:7] == ["cheetah_run", "3x2048", "native int8", "800", "8.00", "16.00", "4.00"]
    assert rows[-1][8] == "300"  # Median inference.
    assert rows[1][10] == f"{1e6 * 0.2 / 50:.0f}"  # Its pulls are on the acting thread.
    assert record[-1]["steps_per_s"] == [800.0, 900.0, 10.0]


def check_measurement(measured):
    assert measured.steps > 0
    assert measured.cpu_s > 0
    parts = sum(measured.phases.values())
    assert 0.3 * measured.wall_s < parts <= 1.05 * measured.wall_s


def test_actor_of_the_product_is_measured(tmp_path):
    mode = "native" if library.available() else "pytorch"
    sides = [actor_loop.Side(TASK, 16, mode, 8, environments) for environments in (1, 3)]
    core = min(os.sched_getaffinity(0))
    with remote.remotes([core, core]) as (actors, servers):
        found = actor_loop.measure_group(
            actors, servers, str(tmp_path), sides, repeats=1, seconds=0.3
        )
    for side, (measured,) in found.items():
        check_measurement(measured)
        assert measured.steps % side.environments == 0
        assert "pull_s" not in measured.phases
    assert len(actor_loop.table(found)[0]) == 2


@pytest.mark.parametrize("task", [TASK, "gym,CartPole-v1"])
@pytest.mark.parametrize("pulls", [True, False])
def test_original_loop_acts_inserts_and_pulls(monkeypatch, task, pulls):
    from actorQ.benchmarks.original import loop

    port = loop.start_server(task)
    side = actor_loop.Side(task, 16, "original with pulls" if pulls else "original", 8)
    try:
        actor_sides.build("it", actor_loop.run_config(side, "", port), side.loop)
        actor, pulled = actor_sides._actors["it"][0], []
        pull = actor._pull
        monkeypatch.setattr(actor, "_pull", lambda: (pulled.append(None), pull()))
        actor_sides.measure("it", 0.2)  # The first steps take longer.
        pulled.clear()
        measured = actor_sides.measure("it", 0.5)
        check_measurement(measured)
        assert bool(pulled) == pulls
        # Acme's adder does not wait for the last of its items.
        harness.poll(lambda: actor._client.server_info()["priority_table"].current_size > 5, 10)
        signature = actor._client.server_info()["priority_table"].signature
        assert len(signature) == 6  # Five columns, and extras without any.
    finally:
        actor_sides._actors.clear()
        remote.stop_server(port)


# --- timing ---


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("actorQ/benchmarks/actor_loop.py", "actorQ.benchmarks.actor_loop"),
        ("tests/faults/campaign.py", "tests.faults.campaign"),
        ("baseline/mixed_precision/__main__.py", "baseline.mixed_precision"),
    ],
)
def test_report_names_the_command_that_ran(tmp_path, monkeypatch, path, module):
    monkeypatch.setattr(sys, "argv", [os.path.join(provenance.ROOT, path), "--quick"])
    timing.report("it", "Title", ["a"], [["b"]], {}, str(tmp_path))
    record = json.loads((tmp_path / "it.json").read_text())
    assert record["command"] == f"python -m {module} --quick"
    assert timing.parser("it", "Words.").prog == f"python -m {module}"


def test_report_that_cannot_be_printed_is_written_with_its_origin(tmp_path, monkeypatch):
    path = os.path.join(provenance.ROOT, "actorQ/benchmarks/actor_loop.py")
    monkeypatch.setattr(sys, "argv", [path, "--quick"])
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        timing.report("explain", "Title", ["a"], [["b"]], {"actors": [5]}, str(tmp_path), ["note"])
        monkeypatch.undo()
        with pytest.raises(OSError):
            full.close()
    command = "python -m actorQ.benchmarks.actor_loop --quick"
    text = (tmp_path / "explain.md").read_text()
    assert text.startswith("Title\n\n| a   |\n| --- |\n| b   |\n\n- note\n\n")
    footer = rf"`{command}` on .+, \d+ cores, commit \w+(\+changes)?, \d{{4}}-.+\.\n"
    assert re.fullmatch(footer, text.partition("- note\n\n")[2])
    record = json.loads((tmp_path / "explain.json").read_text())
    assert (record["command"], record["actors"]) == (command, [5])


@pytest.mark.parametrize("repeats", [1, 3])
def test_latencies_are_of_every_call_and_in_turn(monkeypatch, repeats):
    called = []

    def lap(call):
        call()
        return float(len(called))

    monkeypatch.setattr(timing, "seconds_per_call", lap)
    calls = {key: lambda key=key: called.append(key) for key in (("a", 1), ("b", 2))}
    figures = timing.latencies(calls, repeats)
    assert called == [("a", 1), ("b", 2), ("b", 2), ("a", 1), ("a", 1), ("b", 2)][: 2 * repeats]
    assert figures[("b", 2)] == [2.0, 3.0, 6.0][:repeats]


def test_pin_says_so_where_the_system_cannot(monkeypatch, caplog):
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert timing.pin(1) == [0] and timing.pin(4) == [0, 1]
    assert "cannot keep a process to some cores" in caplog.text


# --- remote ---


def _where():
    return os.getpid(), os.sched_getaffinity(0)


def _fail():
    raise KeyError("the reason")


def _refuse():
    raise task_errors.TaskError("no such task; it has others")


def test_remote_runs_in_a_process_on_its_core_and_tells_failures():
    core = max(os.sched_getaffinity(0))
    with remote.remotes([core]) as (process,):
        pid, cores = process.call(_where)
        assert pid != os.getpid()
        assert cores == {core}
        with pytest.raises(RuntimeError, match="the reason"):
            process.call(_fail)
        with pytest.raises(errors.UserError) as refused:
            process.call(_refuse)
        assert str(refused.value) == "no such task; it has others"
        assert process.call(_where) == (pid, cores)
        with pytest.raises(RuntimeError, match="ended with code 3"):
            process.call(os._exit, 3)


# --- end_to_end ---


def reading(time, learner_steps, actor_steps, seconds=0.0, cpu=0.0):
    phases = dict.fromkeys(telemetry.PHASES, seconds)
    return short_runs._Reading(time, learner_steps, actor_steps, phases, cpu, 2 * cpu)


def test_end_to_end_rates():
    rates = short_runs.rates(reading(10, 5, 1000, 1.0, 1.0), reading(20, 105, 3000, 2.0, 5.0))
    assert rates.actor_steps_per_s == 200
    assert rates.learner_steps_per_s == 10
    assert rates.actor_cpu_us == pytest.approx(2000)
    assert rates.learner_cpu_ms == pytest.approx(80)
    assert list(rates.phases_us.values()) == pytest.approx([500] * len(telemetry.PHASES))


def test_end_to_end_run_that_stands_still_is_an_error():
    with pytest.raises(errors.UserError, match="0 learner steps"):
        short_runs.rates(reading(10, 5, 0), reading(20, 5, 10))


def test_end_to_end_run_that_dies_while_it_is_measured_is_an_error(tmp_path):
    train = tmp_path / telemetry.LEARNER / telemetry.TRAIN_CSV
    train.parent.mkdir()
    train.write_text("unix_time,learner_steps\n1.0,2\n")
    command = ["sh", "-c", "echo launcher: error: no room left; exit 1"]
    launcher = processes.Child("the launcher", command, str(tmp_path / "output.txt"), None)
    launcher.start()
    assert launcher.wait(30)
    with pytest.raises(errors.UserError, match="while it was measured: no room left"):
        short_runs._read(launcher, str(tmp_path))


def test_end_to_end_flags_are_the_launchers():
    run = end_to_end.Run(2, 4, "64,64", "gym,CartPole-v1", "native", 3, 32, 5, pinned="on")
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in run.flags("folder"))
    launchers_own = {"logdir", "run_name", "pin_cpus"}
    fields = {field.name: field for field in dataclasses.fields(config_lib.RunConfig)}
    assert set(flags) - launchers_own <= set(fields)
    assert (flags["n_actors"], flags["quantize"], flags["envs_per_actor"]) == ("2", "4", "5")
    assert flags["pin_cpus"] == "1"


def test_end_to_end_compares_precisions_within_environments_and_pinning(monkeypatch, tmp_path):
    def measured(run, seconds):
        steps = 100.0 * run.environments * (3 if run.bits == 8 else 1) + (run.pinned == "on")
        return short_runs.Rates(steps, 1.0, 1.0, 1.0, dict.fromkeys(telemetry.PHASES, 1.0))

    monkeypatch.setattr(short_runs, "measure", measured)
    monkeypatch.setattr(timing, "pin", lambda cores: None)  # The other tests keep their cores.
    end_to_end.main([
        "--actors", "1", "--envs_per_actor", "1", "4", "--pin_cpus", "off", "on",
        "--cores", "1", "--out", str(tmp_path),
    ])
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")][1:6]
        for line in (tmp_path / "end_to_end.md").read_text().splitlines() if line.startswith("| 1")
    ]
    assert rows == [
        ["1", "off", "fp32", "100", "1.00"], ["1", "off", "int8", "300", "3.00"],
        ["1", "on", "fp32", "101", "1.00"], ["1", "on", "int8", "301", "2.98"],
        ["4", "off", "fp32", "400", "1.00"], ["4", "off", "int8", "1200", "3.00"],
        ["4", "on", "fp32", "401", "1.00"], ["4", "on", "int8", "1201", "3.00"],
    ]


def test_end_to_end_refuses_a_learner_that_is_not_on_the_gpu(monkeypatch, tmp_path):
    rates = short_runs.Rates(1.0, 1.0, 1.0, 1.0, {}, "CPU")
    monkeypatch.setattr(short_runs, "measure", lambda run, seconds: rates)
    monkeypatch.setattr(timing, "pin", lambda cores: None)
    with pytest.raises(errors.UserError, match="computed on the CPU.*leave out --device GPU"):
        end_to_end.main(["--actors", "1", "--device", "GPU", "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())
