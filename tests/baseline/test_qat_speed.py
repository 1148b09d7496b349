"""The comparison of training times."""

import json

import gymnasium
import pytest

from actorQ.core import errors
from baseline.qat import speed
from baseline.tasks import navigation


def test_every_kind_trains_in_turns():
    seconds = speed.measure("a2c", "CartPole-v1", 40, 4, 2)

    assert list(seconds) == list(speed.KINDS)
    assert all(len(turns) == 2 and min(turns) > 0.0 for turns in seconds.values())


def test_times_are_compared_turn_by_turn_with_plain_training():
    found = speed.cells({"plain": [1.0, 2.0, 4.0], "frozen": [1.1, 2.2, 8.0]}, 100)

    assert found == {"plain": "50 steps/s", "frozen": "1.10 [1.10, 1.55]"}


def test_pairs_are_trained_by_the_names_of_today(monkeypatch):
    # A new process does not know the environment yet.
    monkeypatch.delitem(gymnasium.registry, navigation.ENV_ID, raising=False)
    asked = [("ppo2", "LunarLander-v2"), ("dqn", navigation.ENV_ID)]
    assert speed.trainable(asked) == [("ppo", "LunarLander-v3"), ("dqn", navigation.ENV_ID)]
    with pytest.raises(errors.UserError, match="There is no environment Foo-v0"):
        speed.trainable([("ppo", "CartPole-v1"), ("ppo", "Foo-v0")])
    with pytest.raises(errors.UserError, match="ddpg chooses actions of a Box space"):
        speed.trainable([("ddpg", "CartPole-v1")])


def test_tables_and_figures_are_kept(tmp_path, run_commands):
    (answer,) = run_commands(
        "qat_speed", [["a2c", "CartPole-v1", "-n", "40", "--turns=2", f"--out={tmp_path}"]]
    )
    assert answer.code == 0, answer
    assert "| a2c CartPole-v1 |" in answer.out
    assert answer.out.strip() in (tmp_path / "qat_speed.md").read_text()
    record = json.loads((tmp_path / "qat_speed.json").read_text())
    assert record["command"].startswith("python -m baseline.qat_speed a2c CartPole-v1 -n 40")
    assert set(record["measured"][0]["seconds"]) == set(speed.KINDS)
    (wrong,) = run_commands("qat_speed", [["tqc", "CartPole-v1"]])
    assert "no algorithm 'tqc'" in wrong.error("qat_speed")
