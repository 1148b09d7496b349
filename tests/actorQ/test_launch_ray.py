"""Runs on a Ray cluster of several nodes on this machine; skipped where Ray is not installed."""

import contextlib
import json
import signal
import sys
import time
import types

import psutil
import pytest

from actorQ import launch_ray
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.launch.ray import cluster as cluster_lib
from tests.actorQ import harness


def test_without_ray_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.UserError, match="not installed: run ./setup_ubuntu.sh"):
        cluster_lib.connect("auto")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:{free}", "refused"),
        ("head", "auto or HOST:PORT"),
        ("head:x", "auto or HOST:PORT"),
    ],
)
def test_no_cluster_there_says_so_at_once(monkeypatch, address, why):
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))  # It is not even asked.
    with pytest.raises(errors.UserError, match=f"No Ray cluster at .*{why}.*ray start --head"):
        cluster_lib.connect(address.format(free=ports.free_port()))


def test_ray_that_does_not_start_here_is_not_called_a_cluster(monkeypatch):
    ray = types.ModuleType("ray")

    def init(**options):
        raise RuntimeError("no room in /dev/shm")

    ray.init = init
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(errors.UserError, match="Ray does not start on this machine: no room"):
        cluster_lib.connect("")


def test_actors_on_a_gpu_are_refused(monkeypatch):
    config = config_lib.RunConfig(quantize=32, actor_device_placement="GPU")
    monkeypatch.setattr(launch_ray.command_line, "apply_positionals", lambda argv: None)
    monkeypatch.setattr(launch_ray.run_folders, "config_of_flags", lambda flag_values: (config, ""))
    with pytest.raises(errors.UserError, match="--actor_device_placement=GPU .* no GPU. Leave it"):
        launch_ray.main([])


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    from ray import cluster_utils

    small = {"object_store_memory": 150 << 20}
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False, **small}
    )
    made.add_node(num_cpus=1, **small)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def launch(crew, cluster, logdir, *flags):
    return crew.start(
        sys.executable, "-m", "actorQ.launch_ray", f"--address={cluster.address}",
        f"--logdir={logdir}", "--run_name=run", *harness.QUICK, *flags,
    )


def workers(folder):
    """Processes of runs below a folder, and of all that have their own, on this machine."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            command = process.cmdline()
            # The learner works in the run's folder, all others in folders of workers.
            place = f"={folder}" if "actorQ.learner_main" in command else "/actorq_worker_"
            if any(place in part for part in command):
                found.append(process)
    return found


@pytest.mark.slow
def test_run_on_two_nodes_trains_ends_and_brings_all_logs(crew, cluster, tmp_path):
    # Long enough for the second actor to come to act, however much later Ray starts it.
    steps = 8000
    launched = launch(
        crew, cluster, tmp_path, "--n_actors=2", "--taskstr=gym,CartPole-v1",
        f"--num_episodes={steps}",
    )
    assert launched.wait(240) == 0, launched.output()
    run = tmp_path / "run"
    train = telemetry.read_csv(str(run / "learner" / telemetry.TRAIN_CSV))
    assert train["learner_steps"][-1] == steps
    assert (run / "checkpoint" / "policy.safetensors").is_file()
    assert (run / "plots" / "learning_curve.png").is_file()
    for name in ("actor_1", "actor_2"):
        assert telemetry.read_csv(str(run / name / telemetry.PHASES_CSV))["actor_steps"][-1] > 0
        assert "announced the end" in (run / "stdout" / f"{name}.log").read_text()
    assert "Trained: return" in launched.output()
    assert not workers(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])  # The cluster has room for two: one waits for a while.
def test_runs_on_one_cluster_mix_neither_tables_nor_logs(crew, cluster, tmp_path, count):
    # Tasks, and the size of their observations: others are refused.
    tasks = [("gym,CartPole-v1", 4), ("gym,Acrobot-v1", 6), ("gym,MountainCar-v0", 2)]
    sizes = dict(tasks[:count])
    runs = {
        task: launch(
            crew, cluster, tmp_path / str(size), f"--taskstr={task}", "--num_episodes=500"
        )
        for task, size in sizes.items()
    }
    inserted = {}
    for task, launched in runs.items():
        assert launched.wait(300) == 0, launched.output()
        run = tmp_path / str(sizes[task]) / "run"
        assert json.loads((run / "config.json").read_text())["config"]["taskstr"] == task
        train = telemetry.read_csv(str(run / "learner" / telemetry.TRAIN_CSV))
        acted = telemetry.read_csv(str(run / "actor_1" / telemetry.PHASES_CSV))
        inserted[task] = train["actor_steps"][-1]
        # The learner counts the steps of its own actor, except those that are on their way.
        assert train["learner_steps"][-1] == 500
        assert acted["actor_steps"][-1] == pytest.approx(inserted[task], rel=0.2)
    assert not workers(tmp_path)


@pytest.mark.slow
def test_learner_and_actor_killed_are_started_again_where_they_were(crew, cluster, tmp_path):
    launched = launch(
        crew, cluster, tmp_path, "--n_actors=1", "--taskstr=gym,CartPole-v1",
        "--num_episodes=100000000", "--replay_table_max_times_sampled=64",
        "--checkpoint_period_s=2",
    )
    train = tmp_path / "run" / "learner" / telemetry.TRAIN_CSV
    phases = tmp_path / "run" / "actor_1" / telemetry.PHASES_CSV

    def newest(path, field):
        return telemetry.last_row(str(path)).get(field, 0.0)

    harness.poll(lambda: newest(train, "learner_steps") > 500, 120, what="training")
    time.sleep(4)  # A checkpoint.
    for module, path, field, notice in (
        ("learner_main", train, "learner_steps", "the learner was ended by SIGKILL"),
        ("actor_main", phases, "unix_time", "actor_1 was ended by SIGKILL"),
    ):
        (process,) = harness.named(workers(tmp_path), module)
        process.kill()
        harness.poll(lambda text=notice: text in launched.output(), 60, what=notice)
        before = newest(path, field)
        harness.poll(lambda p=path, f=field, b=before: newest(p, f) > b, 60, what=f"{module} on")
    launched.signal(signal.SIGTERM)
    assert launched.wait(120) == 130, launched.output()
    steps = telemetry.read_csv(str(train))["learner_steps"]
    assert steps == sorted(steps)
    harness.poll(lambda: not workers(tmp_path), 30, what="the end of all processes")


@pytest.mark.slow
def test_run_that_is_told_to_end_goes_on_with_the_same_command(crew, cluster, tmp_path):
    run = tmp_path / "run"
    command = (
        sys.executable, "-m", "actorQ.launch_ray", f"--address={cluster.address}",
        "--resume=auto", f"--logpath={run}", *harness.QUICK, "--n_actors=1",
        "--taskstr=gym,CartPole-v1", "--replay_table_max_times_sampled=64",
    )
    train = run / "learner" / telemetry.TRAIN_CSV
    launched = crew.start(*command, "--num_episodes=100000000")
    harness.poll(
        lambda: telemetry.last_row(str(train)).get("learner_steps", 0) > 200, 120, what="training"
    )
    launched.signal(signal.SIGUSR1)
    assert launched.wait(120) == 75, launched.output()
    assert "actorQ.launch_ray --address=" in launched.output()  # The line that says how to go on.
    steps = snapshots.Store(str(run)).newest().state.learner_steps
    resumed = crew.start(*command, f"--num_episodes={steps + 300}", "--learning_rate=5e-5")
    assert resumed.wait(240) == 0, resumed.output()
    assert f"Changed after {steps} learner steps: " in resumed.output()
    rows = telemetry.read_csv(str(train))
    assert rows["learner_steps"] == sorted(rows["learner_steps"])
    assert rows["learner_steps"][-1] == steps + 300
    versions = telemetry.read_csv(str(run / "broadcaster" / telemetry.UPDATES_CSV))
    assert versions["model_version"] == sorted(set(versions["model_version"]))
    (life,) = json.loads((run / "config.json").read_text())["resumed"]
    assert life["learner_steps"] == steps
    assert not list(run.glob(".launch_*"))
    harness.poll(lambda: not workers(tmp_path), 30, what="the end of all processes")


@pytest.mark.slow
def test_node_removed_its_actor_goes_on_elsewhere(crew, cluster, tmp_path):
    # Room for what will be lost, before the machine is busy: starting a node takes CPU time.
    node, _ = (cluster.add_node(num_cpus=2, object_store_memory=150 << 20) for _ in range(2))
    cluster.wait_for_nodes()
    launched = launch(
        crew, cluster, tmp_path, "--n_actors=4", "--taskstr=gym,CartPole-v1",
        "--num_episodes=100000000", "--replay_table_max_times_sampled=64",
    )
    run = tmp_path / "run"
    names = [telemetry.actor_name(actor) for actor in range(1, 5)]

    def rows(name):
        path = run / name / telemetry.PHASES_CSV
        return len(path.read_text().splitlines()) if path.exists() else 0

    harness.poll(lambda: all(rows(name) > 3 for name in names), 180, what="actors acting")
    cluster.remove_node(node, allow_graceful=False)
    harness.poll(lambda: "was lost" in launched.output(), 90, what="the notice")
    harness.poll(lambda: "is back, on" in launched.output(), 120, what="the actor's return")
    before = {name: rows(name) for name in names}
    harness.poll(
        lambda: all(rows(name) > before[name] + 2 for name in names), 90, what="all acting again"
    )
    launched.signal(signal.SIGTERM)
    assert launched.wait(120) == 130, launched.output()
    for name in names:
        telemetry.read_csv(str(run / name / telemetry.PHASES_CSV))
    harness.poll(lambda: not workers(tmp_path), 30, what="the end of all processes")


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["a_cluster", "this_machine_alone"])
def test_killed_launcher_leaves_no_process(crew, cluster, tmp_path, own):
    endless = (
        "--n_actors=2", "--taskstr=gym,CartPole-v1", "--num_episodes=100000000",
        "--replay_table_max_times_sampled=64",
    )
    if own:  # Its Ray has to end with it, too.
        launched = crew.start(
            sys.executable, "-m", "actorQ.launch_ray", f"--logdir={tmp_path}", "--run_name=run",
            *harness.QUICK, *endless,
        )
    else:
        launched = launch(crew, cluster, tmp_path, *endless)
    phases = tmp_path / "run" / "actor_2" / telemetry.PHASES_CSV
    harness.poll(
        lambda: phases.exists() and len(phases.read_text().splitlines()) > 3, 180,
        what="actors acting",
    )
    started = {*launched.descendants(), *workers(tmp_path)}
    assert len(started) >= 4
    launched.signal(signal.SIGKILL)
    harness.poll(lambda: not workers(tmp_path), 30, what="the end of our processes")
    # Agents of Ray's own notice within a minute or so.
    harness.poll(lambda: not harness.alive(started), 150, what="the end of all processes")


@pytest.mark.slow
def test_cluster_too_small_says_what_is_missing(crew, cluster, tmp_path):
    launched = launch(crew, cluster, tmp_path, "--n_actors=50", "--placement_timeout=3")
    assert launched.wait(90) == 1
    (line,) = harness.error_lines(launched.output(), "launch_ray")
    assert "the run wants 51" in line and "--n_actors=50" in line
