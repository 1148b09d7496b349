"""A worker of a Ray cluster, without Ray: its folder on the machine where it runs."""

import os
import tempfile
from unittest import mock

import pytest

from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch.ray import worker as ray_worker


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray_worker, "_reconstructed", lambda: False)  # Ray is asked on a cluster.
    return tmp_path


def worker(name="actor_1"):
    return ray_worker.Worker(name, "this", (), "127.0.0.1")


def homes(folder):
    return sorted(path.name.split("_")[2] for path in folder.glob("actorq_worker_*"))


@pytest.mark.parametrize("keep", [False, True])
def test_worker_removes_its_folder_unless_somebody_must_look_into_it(temporary, keep):
    made = worker()
    assert homes(temporary) == ["actor"]
    folder = made.report("", {}).folder
    made.close(keep)
    assert os.path.isdir(folder) == keep


def test_worker_sweeps_what_killed_workers_left_and_nothing_else(temporary):
    living, kept = worker("living"), worker("kept")
    kept.close(keep=True)
    (temporary / "actorq_worker_killed_1" / "run").mkdir(parents=True)
    (temporary / "actorq_worker_new_1").mkdir()
    (temporary / "actorq_other_1").mkdir()
    for path in temporary.iterdir():
        if "new" not in path.name:
            os.utime(path, (0, 0))
    worker("next").close()
    assert homes(temporary) == ["kept", "living", "new"]
    assert (temporary / "actorq_other_1").exists()
    living.close()
    assert homes(temporary) == ["kept", "new"]


@pytest.mark.parametrize(
    ("module", "marked", "shares"),
    [(processes.LEARNER_MODULE, True, True), (processes.LEARNER_MODULE, False, False),
     (processes.ACTOR_MODULE, True, False)],
)
def test_learner_works_in_the_run_s_folder_where_its_machine_has_it(
    temporary, monkeypatch, module, marked, shares
):
    started = []
    monkeypatch.setattr(processes.Child, "start", lambda child: started.append(child._command))
    run = temporary / "walker"
    run.mkdir()
    (run / "config.json").write_text("{}")
    mark = run / ".launch_1"
    if marked:
        mark.touch()
    made = ray_worker.Worker("it", module, (), "127.0.0.1", mark=str(mark))
    report = made.report("", {})
    assert made.shares_folder() == shares and (report.folder == str(run)) == shares
    assert os.path.basename(report.folder) == "walker"  # Trackers group processes by this name.
    (command,) = started
    assert f"--logpath={report.folder}" in command
    assert not report.pieces  # What is in the run's folder comes to nobody twice.
    made.close()
    assert (run / "config.json").exists() and os.path.exists(report.folder) == shares


@pytest.mark.parametrize(
    ("host", "address"), [("10.0.0.7", "10.0.0.7:8181"), ("fd00::1", "[fd00::1]:8181")]
)
def test_worker_tells_the_address_of_its_server_once_it_is_up(host, address):
    made = ray_worker.Worker("learner", "this", (), host)
    made._port = 8181
    assert made.address() == ""
    folder = made.report("", {}).folder
    with open(os.path.join(folder, telemetry.ADDRESS_FILENAME), "w", encoding="utf-8"):
        pass
    assert made.address() == address
    made.close()


def test_worker_starts_a_learner_again_at_its_checkpoint(temporary, monkeypatch):
    made = worker("learner")
    learner = os.path.join(made.report("", {}).folder, "learner")
    os.makedirs(learner)
    log = os.path.join(learner, telemetry.TRAIN_CSV)
    with open(log, "w", encoding="utf-8") as file:
        file.write("row\nrow\n")
    state = mock.Mock(log_bytes={telemetry.TRAIN_CSV: 4})
    monkeypatch.setattr(made, "_store", mock.Mock(newest=lambda: mock.Mock(state=state)))
    made._process = mock.Mock()
    made.restart(("--restarts=1", "--resume"))
    made._process.restart.assert_called_once_with("--restarts=1", "--resume")
    with open(log, encoding="utf-8") as file:
        assert file.read() == "row\n"
    assert made._source.replaces  # The logs here are written anew.
    made.close()


@pytest.mark.parametrize(("country", "seen"), [("DEU", "DEU"), ("", "FRA")])
def test_worker_s_process_has_the_country_of_the_run_or_of_its_machine(
    monkeypatch, country, seen
):
    monkeypatch.setenv("ACTORQ_COUNTRY", "FRA")
    made = ray_worker.Worker("actor_1", "this", (), "127.0.0.1", country)
    assert os.environ["ACTORQ_COUNTRY"] == seen
    made.close()
