"""The mixed-precision study: run time, parity of losses and of returns, its command."""

from concurrent import futures
import csv
import json
import logging
import os
import signal
from unittest import mock

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common import callbacks
import torch

from actorQ.core import errors
from baseline.mixed_precision import parity
from baseline.mixed_precision import returns
from baseline.mixed_precision import study
from baseline.mixed_precision import timing
from baseline.mixed_precision import wide_policies
from baseline.study import paper
from baseline.tasks import navigation
from baseline.train import half_precision
from baseline.train import state
from tests import commands
from tests.baseline import small_agents

PONG = "PongNoFrameskip-v4"


@pytest.fixture
def small(monkeypatch):
    """Policies that take no time, and sides in threads of this process."""
    for name, filters in (("A", 4), ("B", 8)):
        row = paper.MIXED_PRECISION[name]._replace(filters=filters, units=16)
        monkeypatch.setitem(paper.MIXED_PRECISION, name, row)
    monkeypatch.setattr(timing, "_process", lambda: futures.ThreadPoolExecutor(1))
    yield
    timing._models.clear()


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_policies_have_the_papers_sizes():
    row = paper.MIXED_PRECISION["A"]
    space = wide_policies.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    network = wide_policies.WideCnn(space, row.filters, row.units)

    shapes = [tuple(weight.shape) for weight in network.parameters() if weight.ndim > 1]
    assert shapes == [(128, 4, 8, 8), (128, 128, 4, 4), (128, 128, 3, 3), (128, 49 * 128)]
    assert network.features_dim == 128
    sizes = {name: (row.filters, row.units) for name, row in paper.MIXED_PRECISION.items()}
    assert sizes == {"A": (128, 128), "B": (512, 512), "C": (1024, 2048)}
    for row in paper.MIXED_PRECISION.values():
        assert row.speedup == pytest.approx(row.fp32_minutes / row.half_minutes, abs=0.06)


def test_weights_depend_on_the_seed_alone(small):
    made = [wide_policies.make(PONG, "A", seed, "cpu", 4) for seed in (0, 0, 1)]
    first, second, third = ([*model.q_net.parameters()] for model in made)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], third[0])
    assert isinstance(made[0].q_net.q_net[0], torch.nn.Linear) and len(made[0].q_net.q_net) == 1


def test_peak_bytes_are_known_without_proc(monkeypatch):
    peaks = [wide_policies.peak_bytes(torch.device("cpu"))]
    monkeypatch.setattr(wide_policies.sys, "platform", "darwin")
    usage = mock.Mock(ru_maxrss=3 * 2**30)  # macOS counts bytes.
    monkeypatch.setattr(wide_policies.resource, "getrusage", lambda who: usage)
    peaks.append(wide_policies.peak_bytes(torch.device("cpu")))
    assert peaks[0] > 2**26 and peaks[1] == 3 * 2**30


def settings(**changes):
    values = {
        "env": PONG, "policies": ("A",), "precision": "bf16", "threads": (1,), "turns": 2,
        "gradient_steps": 2, "transitions": 100, "seed": 0, "device": "cpu", **changes,
    }
    return timing.Settings(**values)


def test_timing_measures_both_precisions_and_keeps_them(small, tmp_path, capsys):
    full, half = timing.run(settings(precision="auto"), str(tmp_path))

    assert (full.asked, half.asked) == ("fp32", "auto")
    assert len(full.turns) == len(half.turns) == 2
    assert all(0 < turn.gradient_s < turn.seconds for turn in full.turns + half.turns)
    assert min(full.peak_bytes, half.peak_bytes) > 2**26
    text = capsys.readouterr().out
    assert "| A (3x4, 16)" in text and f"auto is {half.precision}:" in text
    assert text.strip() in (tmp_path / "mixed_precision_timing.md").read_text()
    record = json.loads((tmp_path / "mixed_precision_timing.json").read_text())
    assert len(record["rows"][1]["turns"]) == 2 and record["machine"]["processor"]
    rows = rows_of(tmp_path / "mixed_precision_timing.csv")
    assert [row["asked"] for row in rows] == ["fp32", "auto"]
    # The measured stretch is a training: gradient steps moved the weights.
    model = timing._models["auto"]
    assert (model._n_updates, model.num_timesteps) == (6, 124)


def test_speedups_are_those_of_turns_side_by_side():
    full = timing.Row("C", 1, "fp32", "fp32", "", tuple(
        timing.Turn(seconds, 0.8 * seconds, seconds) for seconds in (2.0, 4.0, 10.0)
    ), 10)
    half = timing.Row("C", 1, "bf16", "bf16", "", tuple(
        timing.Turn(seconds, 0.5 * seconds, seconds) for seconds in (1.0, 2.0, 10.0)
    ), 5)

    found = timing.summary(half, full, settings(gradient_steps=10))

    assert found["speedup"] == 2.0 and found["gradient_speedup"] == pytest.approx(3.2)
    assert found["gradient_step_ms"] == pytest.approx(100.0)
    assert found["environment_step_ms"] == pytest.approx(25.0)
    assert found["gradient_share"] == 0.5 and found["peak_bytes"] == 5
    assert found["hours_per_million_steps"] == pytest.approx(2.0 / 40 * 1e6 / 3600)
    assert found["paper_speedup"] == 1.61


def test_parity_takes_the_same_steps_in_both_precisions(small, tmp_path, capsys):
    chosen = timing.AtariSettings(PONG, ("A", "B"), "bf16", 25, 200, 0, "cpu")
    losses = parity.run(chosen, str(tmp_path))

    for found in losses.values():
        assert found["fp32"].shape == found["bf16"].shape == (25,)
        assert not np.array_equal(found["fp32"], found["bf16"])
        np.testing.assert_allclose(found["bf16"], found["fp32"], rtol=0.2, atol=1e-3)
    again = parity.train(chosen, "A", "fp32", parity.record_replay(chosen))
    np.testing.assert_array_equal(again, losses["A"]["fp32"])
    assert "| B " in capsys.readouterr().out
    rows = rows_of(tmp_path / "mixed_precision_parity.csv")
    assert len(rows) == 25
    assert list(rows[0]) == ["gradient_step", "A_fp32", "A_bf16", "B_fp32", "B_bf16"]
    assert (tmp_path / "mixed_precision_parity.png").stat().st_size > 10_000


def test_returns_trains_what_is_missing_and_plays_the_same_starts(tmp_path, monkeypatch, capsys):
    chosen = returns.Settings(
        "CartPole-v1", "bf16", (0,), 300, 3, 0, str(tmp_path / "agents"), "cpu"
    )
    full, half = returns.run(chosen, str(tmp_path))

    assert (full["precision"], half["precision"]) == ("fp32", "bf16")
    assert "seed_0/dqn/CartPole-v1_1" in half["path"] and len(half["returns"]) == 3
    assert "fp32: " in capsys.readouterr().out
    assert rows_of(tmp_path / "mixed_precision_returns.csv")[1]["precision"] == "bf16"
    monkeypatch.setattr("baseline.train.training.train",
        lambda settings: pytest.fail("is there"))
    assert returns.run(chosen, None) == [full, half]


@pytest.mark.parametrize(("device", "place"), [("cpu", "fp32"), ("cuda", "cuda/fp32")])
def test_a_training_of_another_device_is_not_taken(tmp_path, monkeypatch, device, place):
    asked = []
    monkeypatch.setattr(
        "baseline.train.training.train",
        lambda to_train, stop_requested: asked.append(to_train.folder)
    )
    chosen = returns.Settings("CartPole-v1", "bf16", (0,), 300, 3, 0, str(tmp_path), device)
    returns.trained(chosen, "fp32", 0)
    assert asked == [f"{tmp_path}/{place}/seed_0"]


def test_an_interrupted_training_is_saved_and_goes_on(tmp_path, monkeypatch):
    step = callbacks.ConvertCallback._on_step

    def interrupted(self):
        if self.num_timesteps == 20:
            os.kill(os.getpid(), signal.SIGINT)
            commands.wait_for(lambda: not step(self))
        return step(self)

    monkeypatch.setattr(callbacks.ConvertCallback, "_on_step", interrupted)
    chosen = returns.Settings("CartPole-v1", "bf16", (0,), 300, 3, 0, str(tmp_path), "cpu")
    with pytest.raises(KeyboardInterrupt):
        returns.trained(chosen, "fp32", 0)
    (run,) = state.runs(str(tmp_path / "fp32/seed_0"), "dqn", "CartPole-v1")
    assert not run.finished

    assert returns.trained(chosen, "fp32", 0) == run.folder / "CartPole-v1.zip"


@pytest.mark.parametrize(
    ("env", "message"),
    [("Foo-v0", "There is no environment Foo-v0"), ("Pendulum-v1", "of a Discrete space, but")],
)
def test_returns_of_what_dqn_cannot_train_on_are_refused(tmp_path, env, message):
    chosen = returns.Settings(env, "bf16", (0,), None, 3, 0, str(tmp_path), "cpu")
    with pytest.raises(errors.UserError, match=message):
        returns.run(chosen, None)


def test_returns_knows_our_own_environment(tmp_path, monkeypatch):
    monkeypatch.delitem(gymnasium.registry, navigation.ENV_ID, raising=False)  # Not known yet.
    asked = []
    monkeypatch.setattr(
        "baseline.train.training.train",
        lambda to_train, stop_requested: asked.append(to_train)
    )
    chosen = returns.Settings(navigation.ENV_ID, "bf16", (0,), None, 3, 0, str(tmp_path), "cpu")
    returns.trained(chosen, "fp32", 0)
    assert asked[0].env == navigation.ENV_ID and asked[0].steps >= 1_000_000


def test_returns_are_played_in_environments_with_a_namespace(tmp_path, own_environment):
    made = small_agents.model("dqn", small_agents.vector(own_environment))
    path = small_agents.save(tmp_path, "dqn", own_environment, made)
    chosen = returns.Settings(own_environment, "bf16", (0,), 300, 2, 0, str(tmp_path), "cpu")
    row = returns.play(chosen, "fp32", 0, path)
    assert len(row["returns"]) == 2 and 0 < max(row["returns"]) <= 50


def test_returns_writes_before_it_trains(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(returns, "trained", lambda *asked: pytest.fail("trains first"))
    chosen = returns.Settings("CartPole-v1", "bf16", (0,), 300, 3, 0, str(tmp_path), "cpu")
    with pytest.raises(errors.UserError, match="file"):
        returns.run(chosen, str(tmp_path / "file" / "out"))


def test_a_precision_that_is_emulated_is_told_whoever_chose_it(monkeypatch, caplog):
    monkeypatch.setattr(half_precision, "computes", lambda precision, device: precision == "fp32")
    cpu = torch.device("cpu")
    assert study._precision("auto", study.TIMING, cpu) == "auto"
    assert not caplog.messages
    for what in (study.PARITY, study.RETURNS):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="absl"):
            assert study._precision("auto", what, cpu) == "bf16"
        assert "no instructions for bf16" in caplog.text


def test_sides_leave_interruptions_to_their_parent():
    with timing._process() as process:
        pid = process.submit(os.getpid).result(60)
        assert process.submit(os.kill, pid, signal.SIGINT).exception(60) is None
        assert process.submit(os.getpid).result(60) == pid
    with pytest.raises(KeyboardInterrupt), timing._process() as process:
        (side,) = process._processes.values()
        raise KeyboardInterrupt
    assert side.exitcode is not None


def test_a_side_that_dies_is_told_with_the_flag_that_helps():
    with (
        pytest.raises(errors.UserError, match="died .*: --policy chooses others"),
        timing._process() as process,
    ):
        process.submit(os._exit, 1).result(60)


def test_an_environment_that_is_no_atari_game_is_refused():
    with pytest.raises(errors.UserError, match="no Atari environment"):
        wide_policies.make("CartPole-v1", "A", 0, "cpu", 4)


def test_what_users_get_wrong_is_one_line(run_commands):
    wrong = [
        (["speed"], "timing, parity, returns"), (["--policy=D"], "A, B, C"),
        (["--threads=0"], "such as 1,2"), (["returns", "--train_seeds=x"], "--train_seeds"),
    ]
    if half_precision.half_of(torch.device("cpu")):  # Otherwise a warning precedes it.
        wrong.append((["parity", "--env=CartPole-v1"], "no Atari environment"))
    # Where these are no mistakes, they would measure for minutes.
    if not half_precision.computes("fp16", torch.device("cpu")):
        wrong.append((["--precision=fp16"], "bf16"))
    if not torch.cuda.is_available():
        wrong.append((["--device=cuda"], "--device"))
    answers = run_commands("mixed_precision", [command for command, _ in wrong])
    for answer, (_, message) in zip(answers, wrong, strict=True):
        assert message in answer.error("mixed_precision")


@pytest.mark.slow
def test_sides_are_processes_of_their_own(run_commands, tmp_path):
    (answer,) = run_commands("mixed_precision", [[
        "--policy=A", "--turns=2", "--gradient_steps=1", "--transitions=100", f"--out={tmp_path}",
    ]])
    assert answer.code == 0, answer
    assert answer.out.strip() in (tmp_path / "mixed_precision_timing.md").read_text()
