"""The launcher with real learners, broadcasters, actors and Reverb servers."""

import importlib.util
import json
import re
import signal
import socket
import sys

import pytest

from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import supervisor
from tests.actorQ import harness
from tests.actorQ import test_by_hand


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
    test_by_hand.check_pipeline(run, actors=2, scaled=True)
    test_by_hand.check_note_on_gpu((run / "stdout" / "learner.log").read_text())
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
        "gymnasium.register('MyEnv-v0', entry_point='my_tasks:MyEnv', max_episode_steps=150)\n"
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


def test_launcher_starts_killed_peers_again_and_ctrl_c_ends_all_processes(crew, tmp_path):
    launched, run = _start_endless(crew, tmp_path)
    family = launched.descendants()
    assert len(harness.alive(family)) == 3
    for module in ("actor_main", "parameter_broadcaster"):
        (peer,) = harness.named(family, module)
        peer.kill()
    for name, log in (("actor_1", telemetry.PHASES_CSV), ("broadcaster", telemetry.UPDATES_CSV)):
        notice = re.compile(rf"{name} was ended by SIGKILL; .*{processes.STARTED_AGAIN}")
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
    # The policy is not lost.
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
    assert len(killed) == supervisor.MAX_FAILURES
    assert f"{supervisor.MAX_FAILURES} times in a row" in launched.output()
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
        (["--resume=auto"], "--resume goes on with the run whose folder --logpath names"),
        (["--track=wandb"], "--track=wandb needs a package that is not installed: "),
    ],
)
def test_launcher_bad_input_one_clear_line(crew, tmp_path, arguments, message):
    if "--track=wandb" in arguments and importlib.util.find_spec("wandb"):
        pytest.skip("wandb is installed here")
    arguments = [str(tmp_path / "logs") if a == "logs" else a for a in arguments]
    if str(tmp_path / "logs") not in arguments and "resume" not in str(arguments):
        arguments = [*arguments, f"--logdir={tmp_path / 'logs'}"]
    launched = crew.launch(*arguments)
    assert launched.wait(60) != 0
    lines = [line for line in launched.output().splitlines() if ": error:" in line]
    assert len(lines) == 1, launched.output()
    assert message in lines[0]
    assert "Traceback" not in launched.output()


def test_launcher_port_in_use_is_refused_before_anything_starts(crew, tmp_path):
    with socket.create_server(("", 0)) as holder:
        port = holder.getsockname()[1]
        launched = crew.launch("--logdir", str(tmp_path / "logs"), f"--port={port}")
        assert launched.wait(60) == 1
    (line,) = harness.error_lines(launched.output(), "run_multiprocess.sh")
    assert f"Port {port} is in use" in line
    assert not (tmp_path / "logs").exists()


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
