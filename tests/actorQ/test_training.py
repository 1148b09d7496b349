"""Whole trainings through the launcher, which must reach a return."""

import sys

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import telemetry
from actorQ.policy import loaded
from tests.actorQ import harness


def _train(crew, tmp_path, *arguments, timeout_s):
    launched = crew.launch("--logdir", str(tmp_path / "logs"), *arguments)
    assert launched.wait(timeout_s) == 0, launched.output()
    run = harness.run_folder(tmp_path / "logs")
    log = telemetry.read_csv(str(run / "learner" / telemetry.EVALUATION_CSV))
    return run, np.array(log["episode_return"]), launched.output()


def test_dqn_int8_actor_solves_cartpole(crew, tmp_path):
    run, returns, output = _train(
        crew, tmp_path, "--taskstr=gym,CartPole-v0", "--num_episodes=12000", "--eval_period_s=2",
        "--stop_return=195", "--stop_window=3", "--batch_size=128", timeout_s=240,
    )
    assert "Trained: return" in output
    # Training ends when three evaluations in a row solve the task. Some of the ten final ones may
    # start in states where the pole falls. (A random policy holds it for 22 steps.)
    assert returns[:-10][-3:].min() >= 195
    assert returns[-10:].mean() >= 120
    # The policy on disk plays as well, in full precision and in int8.
    for quantize in (32, 8):
        played = loaded.play_episodes(loaded.load_policy(str(run), quantize), 5, seed=1)
        assert np.mean([episode.episode_return for episode in played]) >= 120


def test_d4pg_finds_the_span_of_pendulums_returns(crew, tmp_path):
    run, _, _ = _train(
        crew, tmp_path, *harness.QUICK, "--taskstr=gym,Pendulum-v1", "--vmin=auto", "--vmax=auto",
        "--min_replay_size=1000", "--max_episode_steps=200", timeout_s=120,
    )
    # A step costs up to 16.3, 100 steps count at a discount of 0.99, and the margin is 1.5. A
    # policy that knows nothing yet meets most of this.
    found = config_lib.load_record(str(run))["found"]
    assert -2600 <= found["vmin"] <= -1400 and found["vmax"] == 0
    log = (run / telemetry.STDOUT_FOLDER / "learner.log").read_text()
    (line,) = [line for line in log.splitlines() if "The critic spans returns from" in line]
    assert f"from {found['vmin']:g} to 0: the first " in line


@pytest.mark.slow
def test_d4pg_int8_actor_balances_the_pole(crew, tmp_path):
    _, returns, output = _train(
        crew, tmp_path, "--taskstr=dm_control,cartpole_balance", "--num_episodes=6000",
        "--stop_return=900", timeout_s=900,
    )
    assert "Trained: return" in output
    assert returns[-10:].mean() >= 900


_FLAT = """
import gymnasium
import numpy as np


class Flat(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.5, False, False, {}


gymnasium.register("Flat-v0", entry_point="flat:Flat", max_episode_steps=50)
"""


def _ended(crew, tmp_path, *arguments):
    """Returns what a run prints, and its learner's log."""
    launched = crew.start(
        sys.executable, "-m", "actorQ.launcher", "--logdir", str(tmp_path / "logs"),
        "--model_str=64,64", "--eval_period_s=1", "--max_seconds=60", "--samples_per_insert=0",
        "--log_period_s=0.2", *arguments, cwd=tmp_path,
    )
    assert launched.wait(240) == 0, launched.output()
    log = harness.run_folder(tmp_path / "logs") / "stdout" / "learner.log"
    return launched.output(), log.read_text()


def test_a_run_that_does_not_learn_says_so_and_names_the_flag(crew, tmp_path):
    (tmp_path / "flat.py").write_text(_FLAT)
    output, log = _ended(crew, tmp_path, "--taskstr=gym,flat:Flat-v0", "--num_episodes=1000")
    assert "Not learned: return 25.0" in output and "Trained" not in output
    hint = "Every reward so far was 0.5: explore more"
    assert hint in output.partition("Not learned")[2]
    assert log.count(hint) == 1 and log.count("Not learned: return 25.0") == 1


def test_a_critic_whose_range_is_too_narrow_is_told_of(crew, tmp_path):
    # Pendulum's discounted returns are far below this --vmin.
    output, log = _ended(
        crew, tmp_path, "--taskstr=gym,Pendulum-v1", "--critic_str=64,64", "--num_episodes=1500",
        "--vmin=-150",
    )
    hint = "of the critic's targets lie below --vmin=-150: take a lower --vmin, or auto."
    assert "Hint:" in output and hint in output
    assert log.count(hint) == 1
