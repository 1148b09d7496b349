"""Runs of an experiment with a launcher that only writes logs: order, resumption, ends, results."""

import errno
import json
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from actorQ.core import provenance
from actorQ.core import telemetry
from actorQ.experiments import loading
from actorQ.experiments import plans
from actorQ.experiments import results
from actorQ.experiments import runner
from actorQ.experiments import specification
from tests.actorQ import harness
from tests.actorQ.experiments import conftest
from tests.actorQ.experiments import driver

NAMES = [f"cartpole_balance-{bits}-s{seed}" for seed in (0, 1) for bits in ("fp32", "int8")]


def test_runner_makes_all_runs_precisions_in_turn_and_reports(small):
    output = small.run()
    # Seed after seed; the second one begins with the other precision.
    assert small.made() == [NAMES[0], NAMES[1], NAMES[3], NAMES[2]]
    result = small.result(NAMES[0])
    assert result.measured.outcome == "reached"
    # Evaluations at 200, 400, ... s give 0, 50, 100, 100: held from the third on, after 3 s of
    # them. The launcher's own start-up counts, too.
    assert 600 < result.measured.time_to_target_s < 630
    assert result.measured.evaluation_to_target_s == 3
    assert result.measured.final_returns == [100, 100]
    assert list(result.measured.rewards.returns) == [0, 50, 100, 100, 100]
    # 50 steps of 128 for 1000 inserts, each worth 8 samples; one evaluation in 200 s.
    assert result.measured.data_used == pytest.approx(50 * 128 / 8000)
    assert result.measured.learner_steps_per_s == pytest.approx(0.25)
    assert result.measured.actor_steps_per_s == pytest.approx(5)
    assert result.measured.staleness_steps == pytest.approx(3.5)
    # Between the learner's first and last row: 10 steps, 1 s a phase, 4 loads.
    assert set(result.measured.phases_us.values()) == {1e5}
    assert list(result.measured.phases_us) == list(results.PHASES)
    assert result.measured.step_us == pytest.approx(200e6 / 10)
    assert result.measured.steps_per_load == pytest.approx(10 / 4)
    assert result.measured.energy.kwh == pytest.approx(1e-3)
    assert result.wall_s > 0 and result.cpu_s > 0
    assert result.parallel == 1
    assert "--stop_return=100.0" in result.command and "--pin_cpus=1" in result.command
    assert result.git_commit and result.machine["cores"] >= 1
    assert result.settings["batch_size"] == 128

    checkpoint = small.out / "runs" / NAMES[0] / "run" / "checkpoint"
    assert [path.name for path in checkpoint.iterdir()] == ["policy.safetensors"]

    row = r"cartpole_balance \| 100.00 \|  6\d\d\.\d \|  3\d\d\.\d \|\s+(1.9\d|2.0\d) \|"
    assert re.search(row, output), output
    assert len(small.report("runs.csv").splitlines()) == 5
    assert small.report("small.md").startswith("# Small")
    for name in ("speedup.png", "convergence_cartpole_balance.png"):
        assert (small.out / "report" / name).stat().st_size > 1000


def test_runner_again_makes_nothing_and_reports(small):
    small.run("--seeds=0")
    small.made()
    output = small.run("--seeds=0")
    assert small.made() == []
    assert "2 runs, 2 done; nothing is left to do" in output
    # More seeds, tasks by their whole name: only what is new is made.
    small.run("--seeds=0,5", "--tasks=dm_control,cartpole_balance")
    assert small.made() == ["cartpole_balance-int8-s5", "cartpole_balance-fp32-s5"]


def test_runner_changed_specification_is_made_again_and_the_old_one_kept(small):
    small.run("--seeds=0")
    small.made()
    small.write(conftest.SMALL.replace("batch_size: 128", "batch_size: 64"))
    output = small.run("--seeds=0")
    assert small.made() == NAMES[:2]
    assert "another specification (batch_size 128 -> 64)" in output
    assert small.result(NAMES[0]).settings["batch_size"] == 64
    assert small.result(NAMES[0] + ".old1").settings["batch_size"] == 128


def test_runner_settings_of_a_newer_version_do_not_void_old_results(small):
    small.run("--seeds=0")
    small.made()
    path = small.out / "runs" / NAMES[0] / "result.json"
    content = json.loads(path.read_text())
    del content["settings"]["stop_window"]  # Its default is 3, the experiment says 2.
    del content["settings"]["n_step"]  # As by default.
    path.write_text(json.dumps(content))
    assert "stop_window 3 -> 2)" in small.run("--seeds=0")
    assert small.made() == [NAMES[0]]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_runner_interrupted_ends_its_run_keeps_results_and_goes_on(small, signum):
    small.orders(sleep=[NAMES[1]])
    process = small.start()
    pids = small.out / "runs" / NAMES[1] / "run" / "pids"
    text = harness.poll(lambda: pids.exists() and pids.read_text(), what="the second run")
    process.signal(signum)
    assert process.wait(60) == 130, process.output()
    assert "Interrupted: 1 of 4 runs are done" in process.output()
    assert not any(psutil.pid_exists(int(pid)) for pid in text.split())
    assert small.result(NAMES[0]) and not small.result(NAMES[1])
    assert not (small.out / "report").exists()
    small.made()
    small.orders()
    small.run("--seeds=0")
    assert small.made() == [NAMES[1]]


def test_runner_gives_signals_back(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    # Nothing to do. What follows, report and copies, is to end at the first Ctrl-C.
    assert runner.Runner(plans.Plan("e", "laptop", False, str(tmp_path), [])).go() == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_runner_folder_that_cannot_be_removed_stops_no_other_run(tmp_path, monkeypatch, capsys):
    path = tmp_path / "small.yaml"
    path.write_text(conftest.SMALL)
    common = loading.load_common()
    runs = specification.expand(loading.load(str(path), common), common, "laptop")
    plan = plans.Plan("e", "laptop", False, str(tmp_path), runs)

    def keep(folder):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(runner.shutil, "rmtree", keep)
    for run in runs:
        os.makedirs(plans.run_folder(plan, run))
    assert runner.Runner(plan).go() == 1
    assert capsys.readouterr().out.count("not started: Cannot write") == len(runs) > 1


def test_runner_killed_leaves_no_run_behind(small):
    small.orders(sleep=NAMES)
    process = small.start()
    pids = small.out / "runs" / NAMES[0] / "run" / "pids"
    text = harness.poll(lambda: pids.exists() and pids.read_text(), what="the first run")
    run = [psutil.Process(int(pid)) for pid in text.split()]
    process.signal(signal.SIGKILL)
    harness.poll(lambda: not harness.alive(run), 30)


def test_runner_second_one_in_the_same_folder_is_refused(small):
    small.orders(sleep=NAMES)
    process = small.start()
    harness.poll(lambda: small.out.exists() and list(small.out.glob("runs/*/run/pids")))
    assert "error: Another runner works in" in small.run(code=1)
    process.signal(signal.SIGTERM)
    process.wait(60)


def test_runner_failed_run_does_not_stop_the_others_and_is_made_again(small):
    small.orders(fail=[NAMES[0]])
    output = small.run("--seeds=0", code=1)
    assert "left: nothing is left to do" in output  # The failed one not before the next time.
    assert small.made() == NAMES[:2]
    assert f"{NAMES[0]}: failed" in output and "no room left" in output
    assert "1 of 2 runs failed" in output.splitlines()[-1]
    assert f"**No result**: {NAMES[0]}: no room left" in small.report("small.md")
    small.orders()
    small.run("--seeds=0")
    assert small.made() == [NAMES[0]]
    assert "No result" not in small.report("small.md")


def test_runner_runs_that_all_failed_are_the_last_line(small):
    small.orders(fail=NAMES)
    output = small.run("--seeds=0", "--precisions=32", code=1)
    (line,) = harness.error_lines(output, "experiments.run")
    assert f"1 of 1 runs failed ({NAMES[0]}): see {small.out / 'runs'}" in line
    assert "There is no result" not in output


def test_runner_waits_for_a_learner_that_its_launcher_left_behind(small):
    small.orders(leave=[NAMES[0]])
    output = small.run("--seeds=0", code=1)
    # It would have shared the cores with the next run.
    assert small.made() == [NAMES[0], f"left-{NAMES[0]}", NAMES[1]]
    assert f"{NAMES[0]}: failed" in output and "ended by SIGKILL" in output
    assert f"{NAMES[0]}: waits for its learner" in output


def test_runner_interrupted_while_it_waits_for_a_learner_waits_for_it_the_next_time(small):
    small.orders(leave=[NAMES[0]])
    process = small.start("--seeds=0", "--precisions=fp32")
    harness.poll(lambda: "waits for its learner" in process.output(), what="the wait")
    process.signal(signal.SIGINT)
    assert process.wait(30) == 130, process.output()
    assert small.made() == [NAMES[0]]
    small.orders()
    small.run("--seeds=0", "--precisions=fp32")
    assert small.made() == [f"left-{NAMES[0]}", NAMES[0]]


@pytest.mark.parametrize(("order", "message"), [("full", "Cannot write"), ("unreadable", "")])
def test_runner_run_that_ended_well_without_a_result_is_kept(small, order, message):
    small.orders(**{order: [NAMES[0]]})
    output = small.run("--seeds=0", code=1)
    aside = small.out / "runs" / f"{NAMES[0]}.old1"
    assert f"{NAMES[0]}: failed" in output and f"the log is {aside / 'output.txt'}" in output
    assert (aside / "run" / "learner" / "evaluation.csv").exists()
    assert not (aside / "run" / "checkpoint" / telemetry.RESUME_FOLDER).exists()  # May be full.
    assert f"**No result**: {NAMES[0]}: {message}" in small.report("small.md")
    assert small.result(NAMES[1]) is not None
    small.orders()
    small.made()
    small.run("--seeds=0")
    assert small.made() == [NAMES[0]]


def test_runner_goes_on_where_nothing_can_be_printed(small):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", driver.__name__, small.file, f"--out={small.out}", "--seeds=0"],
            stdout=full, stderr=full, check=False, timeout=300, cwd=harness.REPOSITORY,
        )
    assert done.returncode == 0
    assert small.made() == NAMES[:2]
    assert small.report("small.md").startswith("# Small")


def test_runner_diverged_training_is_a_result_that_missed(small):
    small.orders(diverge=[NAMES[0]], returns=[0, 10, 20])
    output = small.run("--seeds=0")
    result = small.result(NAMES[0])
    assert result.measured.outcome == "diverged"
    assert 600 < result.measured.censored_at_s < 630  # No final evaluation.
    assert result.measured.final_reward is None
    assert f"**{NAMES[0]}: training diverged**" in output


def test_runner_run_whose_learner_died_in_between_is_no_measurement(small):
    small.orders(restart=[NAMES[0]])
    output = small.run("--seeds=0", code=1)
    assert f"{NAMES[0]}: failed" in output and "the learner was ended by SIGKILL" in output
    assert small.result(NAMES[0]) is None and small.result(NAMES[1]) is not None
    small.orders()
    small.run("--seeds=0")
    assert small.result(NAMES[0]).measured.outcome == "reached"


def test_runner_seed_that_misses_is_censored_not_dropped(small):
    # The final evaluation, behind the clock, does not count.
    small.orders(returns=[0, 50, 100, 50, 100])
    output = small.run("--seeds=0", "--precisions=int8")
    result = small.result(NAMES[1])
    assert result.measured.outcome == "missed"
    assert result.measured.time_to_target_s is None
    assert 500 < result.measured.censored_at_s < 530
    assert result.measured.final_reward == 100
    assert re.search(r"> 5\d\d\.\d \(0 of 1\)", output)
    assert ",missed,100,,,5" in small.report("runs.csv")


def test_runner_rate_run_whose_time_is_over_before_it_learned_is_no_measurement(small):
    small.write(
        conftest.changed("{stop_return: 100}", "{}").replace("time_to_reward", "final_reward")
    )
    small.orders(late=[NAMES[1]])
    output = small.run("--seeds=0", "--precisions=int8", code=1)
    assert f"{NAMES[1]}: failed" in output
    assert "it made 3 learner steps in the last 1 s of its 120 s, too few to measure" in output
    assert small.result(NAMES[1]) is None
    small.orders()
    small.run("--seeds=0", "--precisions=int8")
    assert small.result(NAMES[1]).measured.learner_steps_per_s == pytest.approx(0.5)


def test_runner_run_that_ends_while_at_the_reward_missed_it_up_to_then(small):
    small.write(conftest.SMALL.replace("stop_window: 2", "stop_window: 3"))
    small.orders(returns=[0, 50, 100, 100])
    small.run("--seeds=0", "--precisions=int8")
    measured = small.result(NAMES[1]).measured
    assert measured.outcome == "missed"
    # With one more evaluation it would have held it from the first of these on.
    assert measured.censored_at_s == measured.rewards.seconds[2]


def test_runner_several_at_once(small):
    small.run("--parallel=2")
    assert sorted(small.made()) == sorted(NAMES)
    assert small.result(NAMES[0]).parallel == 2
    assert small.result(NAMES[0]).cpu_s is None
    # Those that it had.
    cores = max(1, provenance.usable_cores() // 2)
    assert small.result(NAMES[0]).machine["usable_cores"] == cores
    assert 1 <= small.result(NAMES[0]).cores <= cores
    assert "runs had others beside them" in small.report("small.md")


def test_runner_smoke_makes_one_seed_of_all_with_few_steps(small):
    output = small.run("--smoke")
    assert small.made() == NAMES[:2]
    settings = small.result(NAMES[0]).settings
    assert (settings["num_episodes"], settings["stop_return"]) == (100, None)
    assert (settings["batch_size"], settings["samples_per_insert"]) == (128, 8)
    assert "starts, and nothing else" in output
    assert "made only" not in output  # The fake one makes 250 steps, whatever it is told.


def test_runner_report_alone_makes_no_runs(small):
    assert "error: There is no result in" in small.run("--report", code=1)
    small.run("--seeds=0", "--precisions=32")
    small.made()
    output = small.run("--report")
    assert small.made() == []
    assert f"**No result**: {', '.join((NAMES[1], NAMES[3], NAMES[2]))}: not made yet" in output


def test_runner_damaged_result_is_one_clear_line(small):
    small.run("--seeds=0")
    path = small.out / "runs" / NAMES[0] / "result.json"
    path.write_text(path.read_text()[:-40])
    lines = harness.error_lines(small.run("--seeds=0", code=1), "experiments.run")
    assert len(lines) == 1 and "is damaged" in lines[0] and str(path) in lines[0]


@pytest.mark.parametrize(
    ("report", "vary", "value"),
    [
        ("staleness", "actor_update_period: [1, 10, 100]", "100 "),
        ("communication", "quantize_communication: [32, 8, 2]", "2 "),
        ("learner_precision", "learner_precision: [float32, bfloat16]", "bfloat16 "),
    ],
)
def test_runner_varied_setting_has_its_own_runs_and_report(small, report, vary, value):
    text = conftest.SMALL.replace("time_to_reward", report).replace("[32, 8]\ns", "[32]\ns")
    text = text.replace("{stop_return: 100}", "{}")
    small.write(f"{text}\nvary: {{{vary}}}\n")
    output = small.run()
    name, values = vary.removesuffix("]").split(": [")
    names = [f"cartpole_balance-fp32-{name}{v}-s{s}" for s in (0, 1) for v in values.split(", ")]
    assert small.made() == names
    assert small.result(names[0]).measured.outcome == "trained"
    assert f"\n| {value}" in output
    assert (small.out / "report" / "small.png").stat().st_size > 1000
    assert len(small.report("small.csv").splitlines()) == 1 + len(values.split(", "))
    if report == "communication":
        assert re.search(r"\| 2 +\| +fp32 \| +2 \| +100.0 ± 0.0 \|", output), output
        assert " 0.062 |" in output


def test_runner_final_reward_has_a_row_for_each_precision(small):
    text = conftest.SMALL.replace("time_to_reward", "final_reward")
    small.write(text.replace("{stop_return: 100}", "{}"))
    output = small.run()
    for bits, name in ((32, "fp32"), (8, "int8")):
        assert re.search(rf"\| {bits} +\| +{name} \| +2 \| +100.0 ± 0.0 \|", output), output
    assert (small.out / "report" / "small.png").stat().st_size > 1000
    assert len(small.report("small.csv").splitlines()) == 3
