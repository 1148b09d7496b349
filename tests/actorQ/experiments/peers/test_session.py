"""The session around somebody else's agent, with an agent of three lines: logs, ends, failures."""

import functools
import math
import os
import signal
import time
import types

from absl import flags
import pytest

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments.peers import session
from actorQ.experiments.run_logs import curves
from tests.actorQ import harness

# CartPole falls after 8 to 10 steps where it is always pushed to the left.
SETTINGS = {
    "batch_size": 4, "samples_per_insert": 1, "num_episodes": 20, "eval_period_steps": 5,
    "final_eval_episodes": 2, "log_period_s": 0.05,
}


class Run:
    """A session, and its agent: four environment steps and a gradient step in turn."""

    def __init__(self, folder, **settings):
        self.folder = folder
        given = {**SETTINGS, **settings}
        self.settings = kinds.get("sb3").settle(given, "gym,CartPole-v0", 32, 0, False)
        self.launched = time.time()
        self.finite = True
        self.loss = lambda step: 1 / step
        self.before_step = lambda step: None
        config = config_lib.RunConfig(
            **self.settings, logpath=str(folder / "run"), run_start_time=self.launched + 0.5
        )
        self.session = session.Session(config)

    def train(self):
        while True:
            self.before_step(self.session.learner_steps)
            for _ in range(4):
                self.session.acted()
            step = self.session.learner_steps + 1
            self.session.learned({"loss": self.loss(step)})

    def go(self):
        return self.session.run(
            session.Agent(
                "Agent", "dqn", "CPU", self.train, lambda _: 0, lambda: self.finite, 50
            )
        )

    def log(self, name):
        return curves.read_log(str(self.folder / "run"), telemetry.LEARNER, name)

    def measure(self, failure=""):
        return kinds.get("sb3").measure(
            self.settings, str(self.folder), self.launched, failure
        )


def test_run_to_the_last_step_logs_as_our_learner_does(tmp_path):
    run = Run(tmp_path)
    assert run.go() == 0
    evaluations = run.log(telemetry.EVALUATION_CSV)
    assert evaluations["learner_steps"].tolist() == [5, 10, 15, 20, 20, 20]
    assert evaluations["actor_steps"].tolist() == [20, 40, 60, 80, 80, 80]
    assert all(8 <= value <= 10 for value in evaluations["episode_return"])
    train = run.log(telemetry.TRAIN_CSV)
    assert (train["learner_steps"][0], train["learner_steps"][-1]) == (0, 20)
    assert train["loss"][-1] == pytest.approx(1 / 20)
    assert train["replay_size"][-1] == 50  # Of 80 environment steps.
    record = config_lib.load_record(str(tmp_path / "run"))
    assert record["agent"] == "Agent" and record["config"]["quantize"] == 32
    measured = run.measure()
    assert (measured.outcome, measured.learner_steps) == (results.TRAINED, 20)
    assert len(measured.final_returns) == 2 and len(measured.rewards.returns) == 4
    assert measured.message_bytes is None and measured.phases_us is None
    # The log's seconds count from the start in it, results from the launch.
    assert measured.rewards.seconds[0] == pytest.approx(evaluations["seconds"][0] + 0.5, abs=0.01)


def test_run_in_the_folder_of_another_is_refused(tmp_path):
    Run(tmp_path).go()
    with pytest.raises(errors.UserError, match=r"There is a run in .*/run: choose another --logpa"):
        Run(tmp_path)


@pytest.mark.parametrize("row", [0, 3, -1])
def test_run_whose_log_lacks_an_evaluation_is_no_measurement(tmp_path, row):
    run = Run(tmp_path)
    run.go()
    path = tmp_path / "run" / telemetry.LEARNER / telemetry.EVALUATION_CSV
    header, *rows = path.read_text().splitlines()
    del rows[row]
    path.write_text("\n".join([header, *rows, ""]))
    with pytest.raises(errors.UserError, match="its log has 5 of 6 evaluations: rows were lost"):
        run.measure()
    assert run.measure(errors.DIVERGED).outcome == results.DIVERGED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quantize=8"], "--quantize=8 is not possible.* in 32 bits only"),
        (["--resume"], "--resume is not possible.* no checkpoints"),
        (["--quantize=32"], ""),
        ([], ""),
    ],
)
def test_flags_that_a_peer_cannot_follow_are_refused(arguments, message, monkeypatch):
    values = flags.FlagValues()  # Of its own: absl's is global.
    monkeypatch.setattr(config_flags, "flags", types.SimpleNamespace(**{
        name: functools.partial(getattr(flags, name), flag_values=values)
        for name in dir(flags) if name.startswith("DEFINE")
    }))
    config_flags.define_flags()
    values(["agent", *arguments])
    if not message:
        assert session.config_from_flags(values).quantize == 32
        return
    with pytest.raises(errors.UserError, match=message):
        session.config_from_flags(values)


def test_run_stops_when_the_return_is_held(tmp_path):
    run = Run(tmp_path, stop_return=8.0, stop_window=2, num_episodes=10**6)
    assert run.go() == 0
    measured = run.measure()
    assert measured.outcome == results.REACHED and measured.learner_steps == 10
    assert measured.time_to_target_s == measured.rewards.seconds[0]


def test_run_stops_at_the_time_limit_also_before_it_learns(tmp_path):
    run = Run(tmp_path, stop_return=500.0, max_seconds=1.0, num_episodes=10**6)
    run.train = lambda: [run.session.acted() for _ in iter(int, 1)]
    assert run.go() == 0
    assert run.session.learner_steps == 0 and run.session.actor_steps > 0


def test_run_evaluates_by_time_where_told(tmp_path):
    run = Run(tmp_path, eval_period_steps=0, eval_period_s=0.05, num_episodes=3)
    run.before_step = lambda step: time.sleep(0.06)
    run.go()
    assert run.log(telemetry.EVALUATION_CSV)["learner_steps"].tolist() == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_run_interrupted_ends_cleanly(tmp_path, signum):
    before = signal.getsignal(signum)
    run = Run(tmp_path, num_episodes=10**6)

    def before_step(step):
        if step == 7:
            os.kill(os.getpid(), signum)
            harness.poll(lambda: run.session._interrupted, 10, what="the signal")

    run.before_step = before_step
    assert run.go() == cli.EXIT_INTERRUPTED
    assert run.session.learner_steps == 7
    assert run.log(telemetry.TRAIN_CSV)["learner_steps"][-1] == 7
    assert signal.getsignal(signum) == before


def test_run_infinite_loss_has_diverged(tmp_path):
    run = Run(tmp_path, stop_return=500.0)
    run.loss = lambda step: math.nan if step == 12 else 1.0
    with pytest.raises(errors.UserError, match="loss is nan after 12 learner steps: training has"):
        run.go()
    measured = run.measure(f"it failed: {errors.DIVERGED}")
    assert measured.outcome == results.DIVERGED
    assert measured.censored_at_s == measured.rewards.seconds[-1]
    assert run.measure("no room left") is None


def test_run_infinite_weights_have_diverged_whatever_failed(tmp_path):
    run = Run(tmp_path)

    def fail(step):
        if step == 3:
            raise ArithmeticError("a simulation that was given NaN")

    run.before_step = fail
    with pytest.raises(ArithmeticError):
        run.go()
    run = Run(tmp_path / "other")
    run.before_step, run.finite = fail, False
    with pytest.raises(errors.UserError, match="after 3 learner steps: training has diverged"):
        run.go()


def test_run_infinite_weights_at_the_end_have_diverged(tmp_path):
    run = Run(tmp_path)
    run.finite = False
    with pytest.raises(errors.UserError, match="after 20 learner steps: training has diverged"):
        run.go()
