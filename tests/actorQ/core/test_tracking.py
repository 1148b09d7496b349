"""What Weights & Biases gets of a run, with a small package that stands in for its own."""

import json
import os
import sys

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.core import tracking

PACKAGE = """
import json, os, time
class Settings:
    def __init__(self, console, silent):
        assert (console, silent) == ("off", True)
class Run:
    def __init__(self, path):
        self.path = path
    def note(self, *what):
        with open(self.path, "a") as file:
            file.write(json.dumps(what) + "\\n")
    def define_metric(self, name, step_metric):
        self.note("axis", name, step_metric)
    def log(self, point):
        if "FAKE_FAILS" in os.environ:
            raise OSError("the service is gone")
        self.note("point", point)
    def finish(self):
        time.sleep(float(os.environ.get("FAKE_FINISH_S", 0)))
        self.note("finish")
def init(**options):
    if "FAKE_REFUSES" in os.environ:
        raise RuntimeError("No API key configured.")
    assert isinstance(options.pop("settings"), Settings)
    run = Run(os.path.join(options["dir"], "points"))
    run.note("init", options)
    return run
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes the stand-in importable."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "wandb.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    yield folder
    sys.modules.pop("wandb", None)


@pytest.fixture
def logger(tmp_path):
    """The log of an actor in the run folder `walker`."""
    logger = run_logger.RunLogger(str(tmp_path / "walker"), "actor_1")
    yield logger
    logger.close()


def config(**settings):
    return config_lib.RunConfig(track="wandb", **settings)


def noted(logger):
    with open(os.path.join(logger.folder, "points"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def in_tensorboard(logger):
    """The points of one process as {name: [(step, value)]}."""
    from tensorboard.backend.event_processing import plugin_event_accumulator
    from tensorboard.util import tensor_util

    events = plugin_event_accumulator.EventAccumulator(logger.folder)
    events.Reload()
    return {
        name: [
            (event.step, float(tensor_util.make_ndarray(event.tensor_proto)))
            for event in events.Tensors(name)
        ]
        for name in events.Tags()["tensors"]
    }


def test_wandb_gets_what_tensorboard_gets(logger, package, monkeypatch):
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    logger.tracker = tracking.start(config(seed=4), logger.folder)
    for step in (3, 2):  # A run that goes on from its checkpoint repeats steps.
        logger._next_point.clear()
        logger.write(telemetry.PHASES_CSV, step, actor_steps=step, pulls=0.5)
        logger.write(telemetry.EPISODES_CSV, step, episode_return=-1.5)
        logger.write(telemetry.EPISODES_CSV, step + 1, episode_return=7.0)  # Within a second.
    logger.close()
    (_, options), *rest = noted(logger)
    assert options.pop("config")["seed"] == 4
    assert options == {
        "project": "actorq", "group": "walker", "job_type": "actor_1", "name": "walker/actor_1",
        "dir": logger.folder,
    }
    points = [what[1] for what in rest if what[0] == "point"]
    assert len(points) == 4 and rest[-1] == ["finish"]
    sent = {}
    for point in points:
        (axis,) = (name for name in point if name.endswith("/step"))
        assert ["axis", axis.replace("step", "*"), axis] in rest
        step = point.pop(axis)
        for name, value in point.items():
            sent.setdefault(name, []).append((step, value))
    assert sent == in_tensorboard(logger)
    assert sent["episodes/episode_return"] == [(3, -1.5), (2, -1.5)]


def test_nothing_is_imported_where_nobody_asks(logger, package):
    assert tracking.start(config_lib.RunConfig(), logger.folder) is None
    assert "wandb" not in sys.modules


def test_missing_package_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    tracking.require(config_lib.RunConfig())
    with pytest.raises(errors.UserError, match="pip install -c .*constraints.txt wandb$"):
        tracking.require(config())


def test_release_that_does_not_fit_is_one_line_with_the_command(logger, package):
    (package / "wandb.py").write_text("raise ImportError('cannot import name Imports')")
    with pytest.raises(errors.UserError, match="name Imports. .*pip install -c .* wandb$"):
        tracking.start(config(), logger.folder)


def test_service_that_refuses_ends_a_new_run_and_no_other(logger, package, monkeypatch, caplog):
    monkeypatch.setenv("FAKE_REFUSES", "1")
    with pytest.raises(errors.UserError, match="No API key configured. .*WANDB_MODE=offline"):
        tracking.start(config(), logger.folder)
    assert tracking.start(config(restarts=1), logger.folder) is None
    assert "The run goes on without it" in caplog.text


def test_service_that_goes_away_costs_points_and_no_rows(logger, package, monkeypatch, caplog):
    logger.tracker = tracking.start(config(), logger.folder)
    monkeypatch.setenv("FAKE_FAILS", "1")
    for step in (1, 2):
        logger._next_point.clear()
        logger.write(telemetry.PHASES_CSV, step, actor_steps=step)
    assert caplog.text.count("wandb takes no points (the service is gone)") == 1
    log = os.path.join(logger.folder, telemetry.PHASES_CSV)
    assert telemetry.read_csv(log)["actor_steps"] == [1.0, 2.0]


def test_service_that_does_not_answer_does_not_hold_up_the_end(logger, package, monkeypatch):
    logger.tracker = tracking.start(config(), logger.folder)
    monkeypatch.setattr(tracking, "_FINISH_S", 0.05)
    monkeypatch.setenv("FAKE_FINISH_S", "30")
    logger.close()
    assert logger.tracker is None and noted(logger)[-1] != ["finish"]
