"""The launcher with real learners, broadcasters, actors and Reverb servers."""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from unittest import mock

from absl import flags
import pytest

from actorQ import launcher
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line
from tests.actorQ import harness
from tests.actorQ.launch import test_processes


def _wait_for_acting(run, timeout_s=60):
    """Waits until the first actor has pulled weights and acted."""
    log = run / "actor_1" / telemetry.PHASES_CSV
    harness.poll(
        lambda: telemetry.last_row(str(log)).get("actor_steps", 0) > 0, timeout_s, what="acting"
    )


def _start_endless(crew, tmp_path, *flags):
    """Starts a run that does not end by itself, and waits until its actor acts."""
    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, "--num_episodes=100000000", *flags
    )
    harness.poll(lambda: (tmp_path / "logs").exists() and list((tmp_path / "logs").iterdir()))
    run = harness.run_folder(tmp_path / "logs")
    _wait_for_acting(run)
    return launched, run


def test_launcher_positional_arguments_trains_and_ends(crew, tmp_path):
    # The original's eleven arguments in their order, then flags. Enough learner steps that both
    # actors take part, even if one of them is seconds slower to start on a busy machine.
    launched = crew.launch(
        str(tmp_path / "logs"), "gym,LunarLander-v3", "32,16", "2500", "2", "16", "4", "16", "8",
        "10", "1", "--scale_observations=1", "--epsilon_zeta=2",
        *[f for f in harness.QUICK if not f.startswith(("--model", "--num_ep", "--batch"))],
    )
    harness.poll(lambda: len(launched.descendants()) >= 4, what="four processes")
    assert launched.wait(90) == 0, launched.output()
    assert not harness.alive(launched.family.values())

    run = harness.run_folder(tmp_path / "logs")
    check_record_of_positional_arguments(json.loads((run / "config.json").read_text()))
    train = telemetry.read_csv(str(run / "learner" / telemetry.TRAIN_CSV))
    assert train["learner_steps"][-1] == 2500
    test_processes.check_pipeline(run, actors=2, scaled=True)
    test_processes.check_note_on_gpu((run / "stdout" / "learner.log").read_text())
    for process in ("learner", "broadcaster", "actor_1", "actor_2"):
        assert (run / "stdout" / f"{process}.log").stat().st_size > 0
        assert list((run / process).glob("events.out*"))
    for line in ("Logs:", "Checkpoint:", "Plot:"):
        assert line in launched.output()


def check_record_of_positional_arguments(record):
    """Checks what config.json says of the run above."""
    config = record["config"]
    assert config["taskstr"] == "gym,LunarLander-v3"
    assert config["model_str"] == "32,16"
    assert config["num_episodes"] == 2500
    assert config["n_actors"] == 2
    assert config["batch_size"] == 16
    assert config["replay_table_max_times_sampled"] == 4
    assert config["quantize"] == 16
    assert config["quantize_communication"] == 8
    assert config["actor_update_period"] == 10
    assert config["weight_compress"] == 1
    assert record["algorithm"] == "dqn"
    assert record["git_commit"] and record["machine"]["cores"] >= 1


@pytest.mark.slow
def test_launcher_native_kernels_at_4_bits_train(crew, tmp_path):
    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, "--quantize=4",
        "--inference_mode=native",
    )
    assert launched.wait(90) == 0, launched.output()
    run = harness.run_folder(tmp_path / "logs")
    assert launched.output().count("Plot:") == 2
    assert "linear_0 int4, linear_1 int4, head int8" in (
        run / "stdout" / "actor_1.log"
    ).read_text()


@pytest.mark.slow
def test_launcher_stop_rule_on_the_running_mean_by_learner_steps(crew, tmp_path):
    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, "--num_episodes=100000",
        "--eval_period_steps=10", "--stop_return=0", "--stop_window=2", "--stop_smoothing=3",
    )
    assert launched.wait(90) == 0, launched.output()
    learner = harness.run_folder(tmp_path / "logs") / "learner"
    log = telemetry.read_csv(str(learner / telemetry.EVALUATION_CSV))
    # The mean of three exists from the third evaluation on, and is held at the fourth; then the
    # evaluation of the last policy.
    assert log["learner_steps"] == [10, 20, 30, 40, 40]


@pytest.mark.slow
def test_launcher_time_limit_ends_training_like_its_last_step(crew, tmp_path):
    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, "--num_episodes=100000000",
        "--max_seconds=1",  # Over before the first step.
    )
    assert launched.wait(90) == 0, launched.output()
    run = harness.run_folder(tmp_path / "logs")
    log = telemetry.read_csv(str(run / "learner" / telemetry.EVALUATION_CSV))
    assert log["learner_steps"] == [1]
    assert (run / "checkpoint" / "policy.safetensors").exists()


def test_launcher_without_native_kernels_says_so_before_it_starts(crew, tmp_path):
    code = (
        "import runpy, sys\n"
        "from actorQ.policy.native import compiling\n"
        f"compiling.library_path = lambda: {str(tmp_path / 'none.so')!r}\n"
        f"sys.argv = ['x', '--logdir', {str(tmp_path / 'logs')!r}, '--inference_mode=native']\n"
        "runpy.run_module('actorQ.launcher', run_name='__main__')\n"
    )
    launched = crew.start(sys.executable, "-c", code)
    assert launched.wait() == 1
    output = launched.output()
    assert re.search("error: .*not built: run ./setup_ubuntu.sh", output), output
    assert "Traceback" not in output
    assert not (tmp_path / "logs").exists()


def test_an_environment_of_one_s_own_is_found_in_the_folder_that_one_is_in(crew, tmp_path):
    (tmp_path / "my_tasks.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import cartpole\n"
        "class MyEnv(cartpole.CartPoleEnv):\n"
        "  pass\n"
        "gymnasium.register('MyEnv-v0', entry_point='my_tasks:MyEnv', max_episode_steps=50)\n"
    )
    launched = crew.start(
        sys.executable, "-m", "actorQ.launcher", "--taskstr=gym,my_tasks:MyEnv-v0",
        "--logdir=logs", *harness.QUICK, cwd=tmp_path,
    )
    assert launched.wait(120) == 0, launched.output()
    run = harness.run_folder(tmp_path / "logs")
    assert (run / "actor_1" / telemetry.EPISODES_CSV).exists()
    played = crew.start(
        sys.executable, "-m", "actorQ.evaluate", str(run), "--episodes", "1", cwd=tmp_path
    )
    assert played.wait() == 0, played.output()


def test_launcher_gives_processes_the_cores_that_pin_cpus_plans(tmp_path):
    (core, *_) = os.sched_getaffinity(0)
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    log = tmp_path / "child.log"
    child = processes.Child("child", [sys.executable, "-c", code], str(log), {core})
    child.start()
    harness.poll(lambda: log.exists() and log.read_text(), what="its line")
    assert log.read_text() == f"[{core}]\n"
    pinned = launcher.Launcher(config_lib.RunConfig(logpath=str(tmp_path), n_actors=2), True)
    _, *actors = pinned._peers
    planned = processes.plan_cores(2) or [None] * 3  # On one core there is nothing to share.
    assert [one._cores for one in (pinned._learner, *actors)] == planned


def test_launcher_starts_killed_peers_again_and_ctrl_c_ends_all_processes(crew, tmp_path):
    launched, run = _start_endless(crew, tmp_path)
    family = launched.descendants()
    assert len(harness.alive(family)) == 3
    for module in ("actor_main", "parameter_broadcaster"):
        (peer,) = harness.named(family, module)
        peer.kill()
    for name, log in (("actor_1", telemetry.PHASES_CSV), ("broadcaster", telemetry.UPDATES_CSV)):
        notice = re.compile(rf"{name} was ended by SIGKILL .*{processes.STARTED_AGAIN}")
        harness.poll(lambda n=notice: n.search(launched.output()), 30, what="the notice")
        rows = len((run / name / log).read_text().splitlines())
        harness.poll(
            lambda path=run / name / log, rows=rows: len(path.read_text().splitlines()) > rows + 1,
            60, what="work after the restart",
        )
    assert len(harness.alive(launched.descendants())) == 3
    launched.signal(signal.SIGINT)
    assert launched.wait(45) == 130, launched.output()
    assert not harness.alive(launched.family.values())
    # What was learned is not lost.
    assert (run / "checkpoint" / "policy.safetensors").exists()


@pytest.mark.slow
def test_launcher_peer_that_keeps_dying_ends_the_run(crew, tmp_path):
    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, "--num_episodes=100000000",
        "--connect_timeout=60",
    )
    killed = set()

    def kill_actor():
        for actor in harness.named(launched.descendants(), "actor_main"):
            if actor.pid not in killed:
                killed.add(actor.pid)
                actor.kill()
        return launched.popen.poll() is not None

    harness.poll(kill_actor, 90, what="the launcher giving up")
    assert launched.wait() == 1
    assert len(killed) == processes.MAX_FAILURES
    assert f"{processes.MAX_FAILURES} times in a row" in launched.output()
    assert not harness.alive(launched.family.values())


TASKS = ["gym,CartPole-v1", "gym,Acrobot-v1", "gym,MountainCar-v0"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_launcher_runs_at_once_do_not_disturb_each_other(crew, tmp_path, count):
    tasks = TASKS[:count]
    logs = [tmp_path / str(number) for number in range(count)]
    runs = [
        crew.launch("--logdir", str(folder), f"--taskstr={task}", *harness.QUICK)
        for folder, task in zip(logs, tasks, strict=True)
    ]
    for run in runs:
        assert run.wait(120) == 0, run.output()
    taken = set()
    for folder, task in zip(logs, tasks, strict=True):
        config = json.loads((harness.run_folder(folder) / "config.json").read_text())["config"]
        assert config["taskstr"] == task
        taken.add(config["port"])
        # An actor of another task would have been refused by its learner.
        assert "of another" not in (harness.run_folder(folder) / "stdout/actor_1.log").read_text()
    assert len(taken) == count


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["logs", "gym,CartPole-v1", "64", "ten"], "NUM_EPISODES"),
        (["--no_such_flag=1"], "no_such_flag"),
        (["--logpath=here"], "--logdir"),
        (["--resume"], "--resume goes on with the run whose folder --logpath names"),
        (["--resume", "--logpath=/no/run"], "/no/run is not a run folder"),
    ],
)
def test_launcher_bad_input_one_clear_line(crew, tmp_path, arguments, message):
    arguments = [str(tmp_path / "logs") if a == "logs" else a for a in arguments]
    if str(tmp_path / "logs") not in arguments and "--resume" not in arguments:
        arguments = [*arguments, f"--logdir={tmp_path / 'logs'}"]
    launched = crew.launch(*arguments)
    assert launched.wait(60) != 0
    lines = [line for line in launched.output().splitlines() if ": error:" in line]
    assert len(lines) == 1, launched.output()
    assert message in lines[0]
    assert "Traceback" not in launched.output()


@pytest.fixture(name="flag_values")
def _flag_values(monkeypatch):
    """The launcher's flags in a registry of their own: absl's is global."""
    fresh = flags.FlagValues()
    with monkeypatch.context() as patch:
        for kind in ("boolean", "enum", "float", "integer", "string"):
            define = getattr(flags, f"DEFINE_{kind}")
            patch.setattr(flags, f"DEFINE_{kind}", functools.partial(define, flag_values=fresh))
        config_flags.define_flags()
        launcher.define_flags()
    return fresh


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["logs", "gym,CartPole-v1", "2048x2048"], "--model_str='2048x2048'"),
        (["logs", "gym,CartPole-v1", "64", "10", "0"], "--n_actors=0"),
        (["--quantize=12"], "32, 16, 8"),
        (["--quantize_communication=1"], "from 2 to 32"),
        (["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"], "at most 11 arguments"),
        (["logs", "--logdir=here"], "logdir is given twice"),
    ],
)
def test_launcher_arguments_that_are_not_legal_are_refused(flag_values, arguments, message):
    left = flag_values(["launcher", *arguments])
    with pytest.raises(errors.UserError) as refused:
        launcher.apply_positionals(left, flag_values)
        config_flags.from_flags(flag_values, resumable=True)
    assert message in str(refused.value)


def test_launcher_ends_with_the_line_of_a_learner_that_ends_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher.cli, "on_stop_signals", lambda *_: None)
    run = launcher.Launcher(config_lib.RunConfig(logpath=str(tmp_path)), False)
    fails = "raise SystemExit(1)"
    code = f"import time; time.sleep(1); print('learner_main: error: no such task.'); {fails}"
    log, peers_log = str(tmp_path / "learner.log"), str(tmp_path / "actor.log")
    run._learner = processes.Child("learner", [sys.executable, "-c", code], log, None)
    run._peers = [processes.Child("actor_1", [sys.executable, "-c", fails], peers_log, None)]
    with pytest.raises(errors.UserError) as ended:
        run.run()
    assert str(ended.value) == f"the learner ended with code 1: no such task. (log: {log})"
    assert run._peers[0].restarts == 0  # It has failed for the same reason.


def test_peer_that_was_killed_whenever_its_log_folder_was_away_has_gone_on(tmp_path):
    run = launcher.Launcher(config_lib.RunConfig(logpath=str(tmp_path)), False)
    (peer,) = [peer for peer in run._peers if peer.name == "actor_1"]
    folder = tmp_path / "actor_1"
    failures = processes.Failures()
    for row in range(5):  # Rows are seen while it lives; when it dies there is no folder.
        folder.mkdir(exist_ok=True)
        with open(folder / telemetry.PHASES_CSV, "a", encoding="utf-8") as log:
            log.write(f"{row}\n")
        run._logs(peer)
        folder.rename(tmp_path / "away")
        assert failures.note(-9, run._logs(peer), 1.0) == 1
        (tmp_path / "away").rename(folder)
    folder.rename(tmp_path / "away")
    assert [failures.note(-9, run._logs(peer), 1.0) for _ in range(2)] == [2, 3]


@pytest.mark.parametrize("code", [-9, -15, 130])
def test_peer_that_somebody_ends_may_be_started_again_while_its_work_goes_on(code):
    failures = processes.Failures()
    assert [failures.note(code, rows, 1.0) for rows in range(5)] == [1] * 5
    assert [failures.note(code, 4, 1.0) for _ in range(2)] == [2, 3]


def test_peer_that_ends_itself_may_not_though_its_work_goes_on():
    failures = processes.Failures()
    assert [failures.note(1, rows, 1.0) for rows in range(3)] == [1, 2, 3]


def test_learner_that_was_never_started_is_not_waited_for(tmp_path, monkeypatch):
    run = launcher.Launcher(config_lib.RunConfig(logpath=str(tmp_path)), False)
    # As a crash of the machine in the middle of a checkpoint leaves it.
    monkeypatch.setattr(launcher.snapshots.Store, "being_written", lambda _: pytest.fail("waits"))
    run._wait_for_learner()


def test_peer_that_saw_an_end_which_did_not_come_is_started_again(tmp_path, monkeypatch):
    run = launcher.Launcher(config_lib.RunConfig(logpath=str(tmp_path)), False)
    (tmp_path / telemetry.ADDRESS_FILENAME).write_text("localhost:1")
    peer = mock.Mock(restarts=0, poll=lambda: 0)
    peer.name = "actor_1"
    assert run._revive(peer)
    peer.restart.assert_not_called()  # The learner is ending, as announced.
    monkeypatch.setattr(launcher, "FOLLOWS_S", -1.0)
    assert run._revive(peer)
    peer.restart.assert_called_once_with("--restarts=1")


def test_launcher_port_in_use_is_refused_before_anything_starts(crew, tmp_path):
    with socket.create_server(("", 0)) as holder:
        port = holder.getsockname()[1]
        launched = crew.launch("--logdir", str(tmp_path / "logs"), f"--port={port}")
        assert launched.wait(60) == 1
    (line,) = harness.error_lines(launched.output(), "run_multiprocess.sh")
    assert f"Port {port} is in use" in line
    assert not (tmp_path / "logs").exists()


def test_port_that_another_process_has_claimed_is_refused():
    port = ports.free_port()
    program = (
        "import sys; from actorQ.core import ports; held = ports.claim(int(sys.argv[1]));"
        "print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"held\n"
        ports.require_port(port)  # Nobody listens yet.
        with pytest.raises(errors.UserError, match=f"Port {port} is in use"):
            ports.claim(port)
        ports.claim(ports.free_port()).close()
    finally:
        other.communicate()
    ports.claim(port).close()


@pytest.mark.slow
def test_launchers_that_take_the_same_port_at_once_do_not_mix(crew, tmp_path):
    port = ports.free_port()
    runs = [
        crew.launch("--logdir", str(tmp_path / str(number)), f"--port={port}", *harness.QUICK)
        for number in range(3)
    ]
    codes = [run.wait(120) for run in runs]
    assert sorted(codes) == [0, 1, 1], [run.output() for run in runs]
    for run, code in zip(runs, codes, strict=True):
        if code:
            (line,) = harness.error_lines(run.output(), "run_multiprocess.sh")
            assert f"{port}" in line
    for number, code in enumerate(codes):
        if not (tmp_path / str(number)).exists():  # It had seen that the port is in use.
            continue
        folder = harness.run_folder(tmp_path / str(number))
        for log in (f"broadcaster/{telemetry.UPDATES_CSV}", f"actor_1/{telemetry.PHASES_CSV}"):
            # Nothing was done with another run's learner.
            row = telemetry.last_row(str(folder / log))
            assert bool(row) == (code == 0), (number, log, row)


def test_status_line_nobody_can_read_does_not_end_the_run(tmp_path, monkeypatch):
    line = status_line.StatusLine(config_lib.RunConfig(logpath=str(tmp_path)))
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left"):
            print("x", flush=True)
        for live in (False, True):
            line._live, line._next = live, 0.0
            monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((80, 24)))
            line.update()
            line.say("text")
            line.end()
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_run_multiprocess_script_runs_the_launcher(crew):
    if not (harness.REPOSITORY / ".venv").exists():
        pytest.skip("the script wants the .venv of setup_ubuntu.sh")
    launched = crew.start(str(harness.REPOSITORY / "run_multiprocess.sh"), "--help")
    assert launched.wait(60) == 0
    assert "QUANTIZE_COMMUNICATION ACTOR_UPDATE_PERIOD WEIGHT_COMPRESS" in launched.output()
    assert "--pin_cpus" in launched.output()


def test_launcher_existing_run_name_is_refused(crew, tmp_path):
    (tmp_path / "logs" / "mine").mkdir(parents=True)
    launched = crew.launch("--logdir", str(tmp_path / "logs"), "--run_name=mine")
    assert launched.wait() == 1
    assert "exists already" in launched.output()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Pretends that this process may use these CPUs, of cores as the system says."""

    def make(cpus, siblings):
        monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: set(cpus))
        monkeypatch.setattr(processes, "_SIBLINGS", str(tmp_path / "cpu{}"))
        for cpu, text in siblings.items():
            (tmp_path / f"cpu{cpu}").write_text(text + "\n")

    return make


@pytest.mark.parametrize("told", [True, False])
def test_plan_cores_actors_get_their_own_then_share(machine, told):
    machine(range(4), {cpu: str(cpu) for cpu in range(4)} if told else {})
    assert processes.plan_cores(1) == [{0, 1, 2}, {3}]
    assert processes.plan_cores(3) == [{0}, {1}, {2}, {3}]
    assert processes.plan_cores(5) == [{0}, {1}, {2}, {3}, {1}, {2}]


def test_plan_cores_hyperthreads_of_a_core_stay_together(machine):
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    machine(range(8), siblings)
    assert processes.plan_cores(1) == [{0, 1, 2, 4, 5, 6}, {3, 7}]
    assert processes.plan_cores(4) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}, {1, 5}]
    machine([1, 2, 6], siblings)  # taskset
    assert processes.plan_cores(1) == [{1}, {2, 6}]
    machine([1, 5], siblings)  # Better two threads of a core than everything on both.
    assert processes.plan_cores(1) == [{1}, {5}]
    machine([1], siblings)
    assert processes.plan_cores(1) is None


def test_child_that_cannot_start_is_one_line(tmp_path):
    child = processes.Child("c", ["true"], str(tmp_path / "none" / "c.log"), None)
    with pytest.raises(errors.UserError, match="Cannot start c, .*: No such file or directory."):
        child.start()
    child = processes.Child("c", [str(tmp_path / "program")], str(tmp_path / "c.log"), None)
    with pytest.raises(errors.UserError, match="Cannot start c, "):
        child.start()


def test_peer_that_ends_before_the_learner_has_begun_is_told_once(tmp_path, capsys):
    run = launcher.Launcher(config_lib.RunConfig(logpath=str(tmp_path)), False)
    peer = mock.Mock(restarts=0, poll=lambda: 1, last_line=lambda: "no learner")
    peer.name = "actor_1"
    assert run._revive(peer) and run._revive(peer)
    peer.restart.assert_not_called()
    assert capsys.readouterr().out.count("actor_1 ended with code 1 (no learner)") == 1


def test_child_log_tail_and_exit_description(tmp_path):
    child = processes.Child(
        "c", [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"],
        str(tmp_path / "c.log"), None,
    )
    child.start()
    assert child.wait(20) == 3
    assert child.last_line() == "two"
    assert child.log_tail() == "  c: one\n  c: two"
    assert processes.describe_exit(3) == "ended with code 3"
    assert processes.describe_exit(-9) == "was ended by SIGKILL"
    assert processes.describe_exit(-40) == "was ended by signal 40"


def failures(tmp_path, code, *progresses):
    child = processes.Child("c", [sys.executable, "-c", code], str(tmp_path / "c.log"), None)
    counts = []
    for progress in progresses:
        child.start()
        assert child.wait(20) is not None
        counts.append(child.note_failure(progress))
    return counts


def test_child_failures_count_in_a_row(tmp_path):
    killed = "import os; os.kill(os.getpid(), 9)"
    assert failures(tmp_path, killed, 5, 5, 5) == [1, 2, 3]
    # Somebody kills it, but its work goes on.
    assert failures(tmp_path, killed, 5, 6, 6, 7) == [1, 1, 2, 1]
    # It ends itself, whatever it does before.
    assert failures(tmp_path, "raise SystemExit(1)", 5, 6, 7) == [1, 2, 3]


def test_child_that_lived_long_starts_a_new_row(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_STEADY_S", 0.0)
    assert failures(tmp_path, "raise SystemExit(1)", 5, 5, 5) == [1, 1, 1]
