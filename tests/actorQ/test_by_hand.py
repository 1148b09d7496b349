"""Learner, broadcaster and actors started by hand, as on several machines."""

import shlex
import signal
import sys

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import presets
from actorQ.core import telemetry
from actorQ.policy import saved
from actorQ.wire import connection as wire
from actorQ.wire import messages
from tests.actorQ import harness

# Each of these ends a process with one line that names the flag, the first three before anything is
# imported for it. What else is illegal: test_config.
BAD_FLAGS = [
    ("actor_main", ["--actor_id=3", "--n_actors=2"], "--actor_id=3"),
    ("learner_main", ["--vmin=1", "--vmax=1"], "--vmin"),
    ("parameter_broadcaster", ["stray"], "stray"),
    ("actor_main", ["--port=0"], "--port=0"),
    ("learner_main", ["--taskstr=gym,CarRacing-v3"], "images"),
]


def start_by_hand(crew, tmp_path, *flags, n_actors=1):
    """Starts a run without the launcher; returns its processes, learner first."""
    common = [
        *harness.QUICK, f"--port={ports.free_port()}", f"--logpath={tmp_path / 'run'}",
        f"--n_actors={n_actors}", *flags,
    ]
    started = [crew.module("learner_main", *common), crew.module("parameter_broadcaster", *common)]
    for actor_id in range(1, n_actors + 1):
        started.append(crew.module("actor_main", *common, f"--actor_id={actor_id}"))
    return started


def wait_for_row(path, timeout_s=60, **at_least):
    """Waits until the newest row of a log has values at least so large."""

    def reached():
        row = telemetry.last_row(str(path))
        return row and all(row.get(name, -1) >= value for name, value in at_least.items())

    harness.poll(reached, timeout_s, what=f"{at_least} in {path}")


def check_pipeline(run, peers=None, actors=1, scaled=False):
    """Checks the logs of a training that is over, and its policy.

    Args:
      run: the learner's folder.
      peers: that of broadcaster and actors, by default the same.
      actors: how many there are.
      scaled: whether observations were to be scaled.
    """
    train = telemetry.read_csv(str(run / "learner" / telemetry.TRAIN_CSV))
    assert train["learner_steps"][-1] >= 3
    assert np.isfinite(train["loss"][-1]) and np.isfinite(train["gradient_norm"][-1])
    assert train["gradient_norm"][-1] > 0
    assert (saved.load_policy(str(run)).observation_scale is not None) == scaled
    peers = peers or run
    updates = telemetry.read_csv(str(peers / "broadcaster" / telemetry.UPDATES_CSV))
    # Versions only grow: the same weights are never converted twice.
    assert np.all(np.diff(updates["model_version"]) > 0)
    for actor in range(1, actors + 1):
        phases = telemetry.read_csv(str(peers / f"actor_{actor}" / telemetry.PHASES_CSV))
        assert phases["actor_steps"][-1] > 0
        for phase in telemetry.PHASES:
            assert phases[phase][-1] > 0


def check_note_on_gpu(output):
    """Checks that a learner that was to use a GPU says so where TensorFlow sees none."""
    import tensorflow

    if not tensorflow.config.list_physical_devices("GPU"):
        assert "TensorFlow sees no GPU: the learner goes on with the CPU" in output


@pytest.mark.parametrize(("module", "flags", "message"), BAD_FLAGS)
def test_process_bad_flags_one_clear_line(crew, tmp_path, module, flags, message):
    process = crew.module(module, *flags, f"--logpath={tmp_path / 'run'}")
    assert process.wait(60) != 0
    lines = harness.error_lines(process.output(), module)
    assert len(lines) == 1, process.output()
    assert message in lines[0]
    assert "Traceback" not in process.output()


@pytest.mark.parametrize("module", ["learner_main", "parameter_broadcaster", "actor_main"])
def test_process_help_lists_flags_with_units(crew, module):
    process = crew.module(module, "--help")
    assert process.wait(30) == 0
    for flag in ("--taskstr", "--num_episodes", "--quantize_communication", "--actor_id"):
        assert flag in process.output()
    assert "LEARNER STEPS" in process.output()


def test_learner_killed_peers_end_with_one_line(crew, tmp_path):
    flags = [
        *harness.QUICK, "--num_episodes=100000000", f"--port={ports.free_port()}",
        f"--logpath={tmp_path / 'run'}",
    ]
    learner = crew.module("learner_main", *flags)
    harness.poll((tmp_path / "run" / telemetry.ADDRESS_FILENAME).exists, what="the server")
    broadcaster, actor = (
        crew.module(module, *flags, "--connect_timeout=5")
        for module in ("parameter_broadcaster", "actor_main")
    )
    wait_for_row(tmp_path / "run" / "actor_1" / telemetry.PHASES_CSV, 150, actor_steps=300)
    learner.signal(signal.SIGKILL)
    for process, name in ((broadcaster, "parameter_broadcaster"), (actor, "actor_main")):
        assert process.wait(45) == 1, process.output()
        assert len(harness.error_lines(process.output(), name)) == 1, process.output()
        assert "does not answer" in process.output()
        assert "No learner at" in process.output()


def test_peers_that_do_not_fit_are_refused_and_ctrl_c_ends_one_that_does(crew, tmp_path):
    flags = [
        *harness.QUICK, f"--port={ports.free_port()}", f"--logpath={tmp_path / 'run'}",
        "--n_actors=2",
    ]
    crew.module("learner_main", *flags)
    harness.poll((tmp_path / "run" / telemetry.ADDRESS_FILENAME).exists, what="the server")

    def check_refused(hint, process, module):
        assert process.wait(60) == 1, process.output()
        (line,) = harness.error_lines(process.output(), module)
        assert hint in line

    # No broadcaster, and one of other tables.
    lonely = crew.module("actor_main", *flags, "--connect_timeout=3")
    stranger = crew.module("parameter_broadcaster", *flags, "--model_table_name=other")
    check_refused("is parameter_broadcaster running?", lonely, "actor_main")
    check_refused("same table names", stranger, "parameter_broadcaster")

    broadcaster = crew.module("parameter_broadcaster", *flags)
    wrong = {
        "model": crew.module("actor_main", *flags, "--model_str=16,8"),
        "--quantize": crew.module("actor_main", *flags, "--quantize=16", "--actor_id=2"),
    }
    for hint, actor in wrong.items():
        check_refused(hint, actor, "actor_main")

    broadcaster.signal(signal.SIGINT)
    assert broadcaster.wait(45) == 130, broadcaster.output()
    assert "Traceback" not in broadcaster.output()


@pytest.mark.slow
def test_learner_nan_stops_the_run_with_a_message(crew, tmp_path):
    # Steps of 1e38 send the weights to infinity, and the losses with them.
    learner, broadcaster, actor = start_by_hand(
        crew, tmp_path, "--taskstr=gym,Pendulum-v1", "--critic_learning_rate=1e38",
        "--policy_learning_rate=1e38", "--num_episodes=100000",
    )
    assert learner.wait(90) == 1, learner.output()
    (line,) = harness.error_lines(learner.output(), "learner_main")
    assert "diverged" in line or "NaN" in line
    for process in (broadcaster, actor):
        assert process.wait(45) == 1
        assert "the run has failed" in process.output()


def test_seeds_literal_command_lines_work(crew, tmp_path):
    """The original README's commands: by hand, in actorQ/, at the fixed default port 8181."""
    arguments = (
        "--actor_update_period 300 --taskstr gym,MountainCarContinuous-v0 "
        "--model_str 2048,2048,2048 --num_episodes 100000 --quantize_communication 32 "
        "--quantize 8 --replay_table_max_times_sampled 16 --batch_size 256 --n_actors 4 "
        f"--logpath {tmp_path / 'run'} --weight_compress 0 "
        # The rest is ours: such networks take long.
        "--eval_period_s 0 --min_replay_size 300"
    )
    port = 8181
    try:
        ports.require_port(port)
    except errors.UserError:  # Somebody else's, or of these tests in another folder.
        port = ports.free_port()
        arguments += f" --port {port}"
    cwd = harness.REPOSITORY / "actorQ"

    def start(program, *extra):
        command = [sys.executable, program, *shlex.split(arguments), *extra]
        return crew.start(*command, cwd=cwd)

    learner = start("learner_main.py")
    broadcaster = start("parameter_broadcaster.py")
    # Two of the four: the others would only take longer to start on two cores.
    actors = [start("actor_main.py", "--actor_id", str(i)) for i in (1, 4)]
    wait_for_row(tmp_path / "run" / "learner" / telemetry.TRAIN_CSV, 150, learner_steps=2)
    wait_for_row(tmp_path / "run" / "actor_4" / telemetry.PHASES_CSV, actor_steps=1)
    # Ctrl-C ends an actor alone, and with the learner all others as announced.
    for process in (actors[-1], learner):
        process.signal(signal.SIGINT)
        assert process.wait(60) == 130, process.output()
        assert "Traceback" not in process.output()
    for process in (broadcaster, *actors[:-1]):
        assert process.wait(45) == 0, process.output()
    assert f"port {port}" in learner.output()
    # sigma is spread from 0 over the actors (evenly: test_exploration).
    scales = [actor.output().split("exploration ")[1].split()[0] for actor in actors]
    sigma = presets.resolve(presets.AUTO, "gym,MountainCarContinuous-v0")["sigma"]
    np.testing.assert_allclose([float(s) for s in scales], [0, sigma])


def test_server_address_serves_other_machines(crew, tmp_path):
    """Broadcaster and actor with a folder and an address of their own, as on other machines."""
    port = ports.free_port()
    common = [*harness.QUICK, "--taskstr=dm_control,ball_in_cup_catch", "--track_energy=1"]
    learner = crew.module(
        "learner_main", *common, f"--port={port}", f"--logpath={tmp_path / 'learner'}",
        "--learner_device_placement=CPU",
    )
    remote = [
        *common, f"--server_address=127.0.0.1:{port}", f"--logpath={tmp_path / 'other'}"
    ]
    others = [crew.module("parameter_broadcaster", *remote), crew.module("actor_main", *remote)]
    for process in (learner, *others):
        assert process.wait(90) == 0, process.output()
    check_pipeline(tmp_path / "learner", tmp_path / "other")
    assert "sees no GPU" not in learner.output()  # It was not asked for one.
    for folder in ("learner/learner", "other/broadcaster", "other/actor_1"):
        assert (tmp_path / folder / telemetry.EMISSIONS_CSV).exists()


@pytest.mark.slow
def test_seed_fixes_the_first_weights(crew, tmp_path):
    first = []
    for number, seed in enumerate((5, 5, 6)):
        port, run = ports.free_port(), tmp_path / str(number)
        crew.module(
            "learner_main", *harness.QUICK, f"--port={port}", f"--logpath={run}", f"--seed={seed}"
        )
        connection = wire.Connection(config_lib.RunConfig(port=port, connect_timeout=60))
        assert connection.wait_until_up()
        header, blob = connection.fetch("broadcaster_table")
        update = messages.decode(header, blob)
        assert update.version == 0
        first.append(np.concatenate([array.ravel() for array in update.tensors.values()]))
    np.testing.assert_array_equal(first[0], first[1])
    assert np.mean(first[0] != first[2]) > 0.5


@pytest.mark.slow
def test_first_weights_survive_a_broadcaster_that_dies_with_them(crew, tmp_path):
    """Nothing else would ever be pushed: without actors' data the learner makes no step."""
    port = ports.free_port()
    flags = [*harness.QUICK, f"--port={port}", f"--logpath={tmp_path / 'run'}"]
    learner = crew.module("learner_main", *flags)
    connection = wire.Connection(config_lib.RunConfig(port=port, connect_timeout=60))
    assert connection.wait_until_up()
    connection.fetch("broadcaster_table")  # Taken, and lost.
    others = [crew.module("parameter_broadcaster", *flags), crew.module("actor_main", *flags)]
    for process in (learner, *others):
        assert process.wait(90) == 0, process.output()


SUITES = [
    ("mujoco,HalfCheetah-v5", []),
    ("pybullet,HopperBulletEnv-v0", []),
    ("atari,Pong", ["--num_episodes=3", "--batch_size=8", "--max_episode_steps=60"]),
]


@pytest.mark.slow  # dm_control and gym: test_server_address_..., test_launcher.
@pytest.mark.parametrize(("task", "flags"), SUITES)
def test_suite_runs_through_the_whole_pipeline(crew, tmp_path, task, flags):
    started = start_by_hand(crew, tmp_path, f"--taskstr={task}", *flags)
    for process in started:
        assert process.wait(120) == 0, process.output()
    check_note_on_gpu(started[0].output())
    check_pipeline(tmp_path / "run")
