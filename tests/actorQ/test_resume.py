"""Runs that are killed, ended and resumed, with real processes."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from actorQ.core import ports
from actorQ.core import snapshots
from actorQ.core import telemetry
from tests.actorQ import harness

# Checkpoints and evaluations often; steps enough that a run outlives what is done to it.
ENDLESS = (
    *harness.QUICK, "--num_episodes=100000000", "--checkpoint_period_s=1", "--eval_period_s=0.5",
    "--taskstr=gym,CartPole-v1", "--replay_table_max_times_sampled=64",
)


def wait_for_checkpoint(run, steps=1):
    """Waits for a checkpoint of so many learner steps, and returns its state."""
    store = snapshots.Store(str(run))

    def newest():
        try:
            state = store.newest().state
        except Exception:  # There is none yet, or it has just been replaced.
            return None
        return state if state.learner_steps >= steps else None

    return harness.poll(newest, 90, what=f"a checkpoint of {steps} steps")


def start(crew, logdir, *flags):
    launched = crew.launch("--logdir", str(logdir), *ENDLESS, *flags)
    harness.poll(lambda: logdir.exists() and list(logdir.iterdir()), what="the run's folder")
    return launched, harness.run_folder(logdir)


def read(run, process, name):
    return telemetry.read_csv(str(run / process / name))


def check_logs(run, actors=1):
    """Checks that the logs are those of one run, in which nothing goes back or counts twice."""
    train = read(run, "learner", telemetry.TRAIN_CSV)
    for name in ("seconds", "learner_steps", "actor_steps", "model_version", "evaluation_s"):
        assert np.all(np.diff(train[name]) >= 0), name
    assert np.nanmin(train["learner_steps_per_s"]) >= 0
    evaluation = read(run, "learner", telemetry.EVALUATION_CSV)
    for name in ("seconds", "learner_steps", "actor_steps"):
        assert np.all(np.diff(evaluation[name]) >= 0), name
    updates = read(run, "broadcaster", telemetry.UPDATES_CSV)
    assert np.all(np.diff(updates["model_version"]) > 0)
    assert np.all(np.diff(updates["refused"]) >= 0)
    for actor in range(1, actors + 1):
        phases = read(run, f"actor_{actor}", telemetry.PHASES_CSV)
        for name in ("seconds", "model_version", "actor_steps", "pulls", *telemetry.TIMED):
            assert np.all(np.diff(phases[name]) >= 0), name
        episodes = read(run, f"actor_{actor}", telemetry.EPISODES_CSV)
        for name in ("actor_steps", "episodes"):
            assert np.all(np.diff(episodes[name]) > 0), name
        assert np.all(np.asarray(phases["staleness_steps"]) >= 0)
    return train, evaluation


def test_killed_learner_is_resumed_and_killed_launcher_leaves_no_process(crew, tmp_path):
    launched, run = start(crew, tmp_path / "logs", "--n_actors=2")
    wait_for_checkpoint(run, 50)
    for actor in (1, 2):  # One alone feeds the learner; the other may not have reached it yet.
        phases = run / telemetry.actor_name(actor) / telemetry.PHASES_CSV
        harness.poll(phases.exists, 60, what=f"actor {actor} to act")
    (learner,) = harness.named(launched.descendants(), "learner_main")
    peers = {p.pid for p in harness.alive(launched.descendants())} - {learner.pid}
    learner.kill()
    killed = time.monotonic()
    harness.poll(
        lambda: "the learner was ended by SIGKILL" in launched.output(), 30, what="the notice"
    )
    lost = telemetry.last_row(str(run / "learner" / telemetry.TRAIN_CSV))["learner_steps"]
    resumed = harness.poll(
        lambda: (steps := wait_for_checkpoint(run).learner_steps) > lost + 50 and steps, 120,
        what="training to go on",
    )
    assert resumed and time.monotonic() - killed < 120
    # The same processes: they were not started again.
    assert peers <= {process.pid for process in harness.alive(launched.descendants())}
    assert launched.output().count("it is started again") == 1
    assert "Resumed after" in (run / "stdout" / "learner.log").read_text()
    for name in ("broadcaster", "actor_1", "actor_2"):
        log = run / "stdout" / f"{name}.log"
        # Training goes on as soon as one actor is back: another may still ask the old server.
        waits = harness.poll(
            lambda log=log: log.read_text().count("aiting up to"), 30, what=f"{name} to lose it"
        )
        # Twice where a peer reaches the new server before the learner counts its start there.
        assert waits in (1, 2)
    # Where the launcher itself is killed, the kernel ends its children with SIGTERM, and more than
    # one; the learner saves nevertheless.
    last = telemetry.last_row(str(run / "learner" / telemetry.TRAIN_CSV))["learner_steps"]
    launched.signal(signal.SIGKILL)
    family = launched.family.values()
    harness.poll(lambda: not harness.alive(family), 60, what="the end of all processes")
    assert snapshots.Store(str(run)).newest().state.learner_steps >= last
    record = json.loads((run / "config.json").read_text())
    assert len(record["resumed"]) == 1 and not record["config"]["resume"]
    check_logs(run, 2)


def test_sigterm_then_resume_goes_on(crew, tmp_path):
    port = ports.free_port()
    launched, run = start(crew, tmp_path / "logs", f"--port={port}")
    wait_for_checkpoint(run, 50)
    assert len(launched.descendants()) >= 3
    launched.signal(signal.SIGTERM)
    assert launched.wait(60) == 130, launched.output()
    assert not harness.alive(launched.family.values())
    assert f"--resume --logpath={run}" in launched.output()
    before = snapshots.Store(str(run)).newest().state
    last = telemetry.last_row(str(run / "learner" / telemetry.TRAIN_CSV))
    rows = len(read(run, "learner", telemetry.TRAIN_CSV)["seconds"])
    # Steps that were done when it was told to end are not lost.
    assert before.learner_steps >= last["learner_steps"]

    refused = crew.launch("--resume", f"--logpath={run}", "--n_step=2", "--model_str=32")
    assert refused.wait(60) == 1
    (line,) = harness.error_lines(refused.output(), "run_multiprocess.sh")
    assert "--n_step was 5, not 2" in line and "--model_str was 16,16, not 32" in line

    steps = before.learner_steps + 300
    resumed = crew.launch("--resume", f"--logpath={run}", f"--num_episodes={steps}")
    assert resumed.wait(120) == 0, resumed.output()
    assert "it is started again" not in resumed.output()
    # A firewall may have been told of the port.
    assert json.loads((run / "config.json").read_text())["config"]["port"] == port
    train, evaluation = check_logs(run)
    assert train["learner_steps"][-1] == steps
    assert train["learner_steps"][rows] >= before.learner_steps
    assert train["actor_steps"][rows] >= last["actor_steps"]
    # The time between the two launches does not count.
    assert train["seconds"][-1] - train["seconds"][0] < (
        train["unix_time"][-1] - train["unix_time"][0]
    )
    assert len(evaluation["seconds"]) > len(before.returns)
    assert not harness.alive(resumed.family.values())


def test_sigusr1_asks_for_the_same_command_which_goes_on_with_another_step_size(crew, tmp_path):
    run = tmp_path / "logs" / "walker"
    command = ("--resume=auto", f"--logpath={run}", *ENDLESS, "--learning_rate=0.0002")
    launched = crew.launch(*command)
    wait_for_checkpoint(run, 50)
    for process in harness.alive(launched.descendants()):  # Slurm tells all processes of a step.
        process.send_signal(signal.SIGUSR1)
    launched.signal(signal.SIGUSR1)
    assert launched.wait(60) == 75, launched.output()
    assert not harness.alive(launched.family.values())
    before = snapshots.Store(str(run)).newest().state
    last = telemetry.last_row(str(run / "learner" / telemetry.TRAIN_CSV))
    assert before.learner_steps >= last["learner_steps"]

    resumed = crew.launch(
        *command, f"--num_episodes={before.learner_steps + 300}", "--learning_rate=5e-5"
    )
    assert resumed.wait(120) == 0, resumed.output()
    line = f"Changed after {before.learner_steps} learner steps: "
    assert line in resumed.output() and "--learning_rate from 0.0002 to 5e-05" in resumed.output()
    assert line in (run / "stdout" / "learner.log").read_text()
    (life,) = json.loads((run / "config.json").read_text())["resumed"]
    assert life["learner_steps"] == before.learner_steps
    assert life["changed"]["learning_rate"] == [2e-4, 5e-5]
    check_logs(run)


@pytest.mark.slow
def test_learner_that_keeps_dying_is_given_up(crew, tmp_path):
    launched, run = start(crew, tmp_path / "logs", "--checkpoint_period_s=1000")
    killed = set()

    def kill_learner():
        for learner in harness.named(launched.descendants(), "learner_main"):
            if learner.pid not in killed and snapshots.Store(str(run)).newest_name():
                killed.add(learner.pid)
                learner.kill()
        return launched.popen.poll() is not None

    harness.poll(kill_learner, 120, what="the launcher giving up")
    assert launched.wait() == 1
    assert len(killed) == 3
    *_, last = launched.output().splitlines()
    assert "error: the learner was ended by SIGKILL, 3 times in a row. The system sends" in last
    assert not harness.alive(launched.family.values())


def test_resume_with_a_damaged_replay_says_so(crew, tmp_path):
    # Reverb itself reads it: hence a process. What else may be damaged: test_learner_process.
    run = tmp_path / "run"
    learner = crew.module("learner_main", *ENDLESS, "--port=0", f"--logpath={run}")
    state = wait_for_checkpoint(run, 0)
    assert state.learner_steps == 0  # A run can be resumed from its beginning on.
    # It waits for nobody for long: it has no data, and there are no peers.
    learner.signal(signal.SIGINT)
    assert learner.wait(60) == 130, learner.output()
    assert "Traceback" not in learner.output()
    path = pathlib.Path(snapshots.Store(str(run)).newest().replay_folder) / "tables.tfrecord"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    learner = crew.module("learner_main", "--resume", "--port=0", f"--logpath={run}")
    assert learner.wait(90) == 1, learner.output()
    (line,) = harness.error_lines(learner.output(), "learner_main")
    assert "may be damaged" in line


@pytest.mark.slow
def test_any_process_killed_again_and_again_training_goes_on(crew, tmp_path):
    launched, run = start(crew, tmp_path / "logs", "--n_actors=2")
    generator = np.random.default_rng(0)
    modules = ["learner_main", "parameter_broadcaster", "actor_main"]
    for _ in range(10):
        steps = wait_for_checkpoint(run).learner_steps
        wait_for_checkpoint(run, steps + 30)
        for module in generator.permutation(modules)[: generator.integers(1, 3)]:
            for process in harness.named(launched.descendants(), module)[:1]:
                process.kill()
        time.sleep(generator.uniform(0, 2))  # Also while others are still starting.
    wait_for_checkpoint(run, wait_for_checkpoint(run).learner_steps + 100)
    launched.signal(signal.SIGTERM)
    assert launched.wait(60) == 130, launched.output()
    assert not harness.alive(launched.family.values())
    check_logs(run, 2)


@contextlib.contextmanager
def small_disk(folder, megabytes):
    """A file system of a few megabytes, in memory."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    subprocess.run(["mount", *options], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path):
    """Takes all the room that there is on a disk."""
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a file system needs root"
)
def test_processes_killed_while_the_disk_is_full_come_back(crew, tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        launched, run = start(crew, disk / "logs")
        steps = wait_for_checkpoint(run, 50).learner_steps
        updates = run / "broadcaster" / telemetry.UPDATES_CSV
        for _ in range(20):  # A checkpoint that is discarded meanwhile makes room again.
            fill(disk / "filler")
            time.sleep(0.1)
        log = run / "stdout" / "learner.log"
        for module, name in (("learner_main", "learner"), ("actor_main", "actor_1")):
            (process,) = harness.named(launched.descendants(), module)
            process.kill()
            harness.poll(
                lambda n=name: f"{n} was ended by SIGKILL" in launched.output(), 30,
                what="the notice",
            )
            fill(disk / "filler")
            harness.poll(
                lambda m=module: harness.named(launched.descendants(), m), 30, what="the next life"
            )
        time.sleep(15)
        fill(disk / "filler")
        assert launched.popen.poll() is None, launched.output()
        version = telemetry.last_row(str(updates))["model_version"]
        (disk / "filler").unlink()
        harness.poll(
            lambda: wait_for_checkpoint(run).learner_steps > steps + 50, 90,
            what="checkpoints to go on",
        )
        harness.poll(
            lambda: telemetry.last_row(str(updates))["model_version"] > version + 50, 60,
            what="logs to go on",
        )
        launched.signal(signal.SIGTERM)
        assert launched.wait(60) == 130, launched.output()
        assert "Resumed after" in log.read_text() or "Traceback" not in log.read_text()
        check_logs(run)


@pytest.mark.slow
def test_ctrl_c_while_reconnecting_ends_each_process(crew, tmp_path):
    from tests.actorQ import test_by_hand

    learner, broadcaster, actor = test_by_hand.start_by_hand(
        crew, tmp_path, "--num_episodes=100000000"
    )
    test_by_hand.wait_for_row(
        tmp_path / "run" / "actor_1" / telemetry.PHASES_CSV, actor_steps=300
    )
    learner.signal(signal.SIGKILL)
    for process in (broadcaster, actor):
        harness.poll(lambda p=process: "aiting up to" in p.output(), 30, what="the wait")
        process.signal(signal.SIGINT)
        assert process.wait(20) == 130, process.output()
