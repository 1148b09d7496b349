import csv
import dataclasses
import io
import os
import zipfile

from matplotlib import image as mpl_image
import numpy as np
import pytest
import torch

from actorQ.core import errors
from baseline.quantization import weight_statistics
from baseline.study import finding_plots
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from baseline.study import width_relation

# Width of the fp32 weights, and loss at 8 bits, by algorithm and environment.
AGENTS = {
    ("a2c", "CartPole-v1"): (1.0, 0.01),
    ("a2c", "LunarLander-v2"): (2.0, 0.02),
    ("a2c", "Pendulum-v1"): (3.0, 0.05),
    ("a2c", "Acrobot-v1"): (4.0, 0.10),
    ("dqn", "CartPole-v1"): (8.0, 0.20),
    ("dqn", "LunarLander-v2"): (0.5, 0.03),
}


def _weights(width):
    """A tensor of about this width."""
    return torch.linspace(-0.5, 0.5, 400).reshape(20, 20) * width


def _measured(algo, env, bits, returns, fp32_returns, width):
    key = rows_lib.Key(algo, env, bits, "weights", "paper", "nearest", "0,2", len(returns))
    return rows_lib.measured(
        key, returns, fp32_returns, weight_min=-1.0, weight_max=1.0, weight_range=2.0,
        weight_width=width, bytes=1, seconds=1.0, commit="abc",
    )  # fmt: skip


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "ptq.csv"
    generator = np.random.default_rng(0)
    for (algo, env), (_, loss) in AGENTS.items():
        width = weight_statistics.statistics(_weights(AGENTS[algo, env][0]).numpy()).width
        fp32 = generator.normal(100, 1, size=20)
        quantized = fp32 * (1 - loss) + generator.normal(0, 0.1, size=20)
        rows_lib.append(str(path), _measured(algo, env, "fp32", fp32, None, width))
        # The quantized weights' own width is not the one that counts.
        rows_lib.append(str(path), _measured(algo, env, "8", quantized, fp32, 99.0))
    return path


@pytest.fixture
def agents(tmp_path):
    folder = tmp_path / "agents"
    for (algo, env), (width, _) in AGENTS.items():
        path = folder / algo / f"{env}_1" / f"{env}.zip"
        path.parent.mkdir(parents=True)
        buffer = io.BytesIO()
        tensors = {"action_net.weight": _weights(width), "action_net.bias": torch.ones(20) * 50}
        torch.save(tensors, buffer)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("data", "{}")
            archive.writestr("policy.pth", buffer.getvalue())
    return folder


def _points(rows):
    sweeps = sweeps_lib.sweeps(rows_lib.read(str(rows)), ["weights"], wanted=("8",))
    return sweeps, *width_relation.points(sweeps, "weights", "8")


def test_points_have_the_fp32_width_and_the_error(rows):
    _, points, left_out = _points(rows)
    assert left_out == []
    found = {(point.algo, point.env): point for point in points}
    assert set(found) == {
        (algo, env.replace("LunarLander-v2", "LunarLander-v3")) for algo, env in AGENTS
    }
    point = found["a2c", "Acrobot-v1"]
    expected = weight_statistics.statistics(_weights(4.0).numpy()).width
    assert point.width == pytest.approx(expected, rel=1e-6)
    assert point.error == pytest.approx(0.10, abs=0.005)
    assert point.low <= point.error <= point.high


def test_agents_without_a_row_or_interval_are_left_out_with_the_reason(rows):
    sweeps, _, _ = _points(rows)
    _, left_out = width_relation.points(sweeps, "weights", "4")
    assert len(left_out) == 6
    assert "a2c CartPole-v1 (no row of 4 bits)" in left_out
    returns = np.array([-1.0, 1.0])
    zero = sweeps_lib.Sweep(
        "ppo", "CartPole-v1",
        _measured("ppo", "CartPole-v1", "fp32", returns, None, 1.0),
        {"weights": {"8": _measured("ppo", "CartPole-v1", "8", returns, returns, 1.0)}},
    )
    points, left_out = width_relation.points([zero], "weights", "8")
    assert points == []
    assert left_out[0].startswith("ppo CartPole-v1 (E has no interval")


def test_of_two_names_of_one_environment_the_last_counts(rows, agents, tmp_path):
    fp32 = np.random.default_rng(1).normal(100, 1, size=20)
    width = weight_statistics.statistics(_weights(5.0).numpy()).width
    env = "LunarLander-v3"
    rows_lib.append(str(rows), _measured("a2c", env, "fp32", fp32, None, width))
    rows_lib.append(str(rows), _measured("a2c", env, "8", 0.9 * fp32, fp32, 99.0))
    sweeps, points, left_out = _points(rows)
    assert left_out == ["a2c LunarLander-v2 (LunarLander-v3 is the same today)"]
    (point,) = (point for point in points if (point.algo, point.env) == ("a2c", env))
    assert (len(points), point.width) == (6, pytest.approx(width))
    # The last one has no row, so that the other is drawn from its own folder.
    only_v2 = [s for s in sweeps if s.env != env] + [
        dataclasses.replace(s, quantized={}) for s in sweeps if s.env == env
    ]
    found, left_out = width_relation.points(only_v2, "weights", "8")
    assert left_out == ["a2c LunarLander-v3 (no row of 8 bits)"]
    relations = [width_relation.relation(found, width_relation.ALGORITHMS)]
    paths = finding_plots.draw_weights(found, relations, only_v2, str(agents), str(tmp_path))
    assert "weights-LunarLander-v3.png" in [os.path.basename(path) for path in paths]


def test_report_has_verdicts_correlations_and_agents(rows):
    _, points, _ = _points(rows)
    relations = [
        width_relation.relation(points, over)
        for over in (width_relation.ENVIRONMENTS, width_relation.ALGORITHMS)
    ]
    text = width_relation.markdown(points, relations, ["ppo X (no row)"], "8 bits")
    assert "6 agents; the 95 % interval of E leaves zero out for 6 of them" in text
    assert "| a2c       |   4 |    +1.00 |" in text
    assert "of 6 pairs of agents with different errors the wider one lost more in 6" in text
    # CartPole: the wider lost more; LunarLander: less.
    assert "of 2 pairs of agents with different errors the wider one lost more in 1" in text
    assert "| dqn CartPole-v1    |" in text
    assert "Left out: ppo X (no row)." in text


def test_command_writes_report_rows_and_figures(rows, agents, tmp_path, run_commands):
    out = tmp_path / "out"
    (done,) = run_commands("findings", [["--results", rows, "--out", out, "--folder", agents]])
    assert done.code == 0 and done.err == "", done
    assert sorted(path.name for path in out.iterdir()) == [
        "findings.csv",
        "findings.md",
        "weights-CartPole-v1.png",
        "weights-LunarLander-v3.png",
        "weights-a2c.png",
        "width_error_algorithms.png",
        "width_error_environments.png",
    ]
    for path in out.glob("*.png"):
        assert mpl_image.imread(path).std() > 0.05
        assert str(path) in done.out
    assert "Commit " in (out / "findings.md").read_text()
    with open(out / "findings.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 6
    assert set(table[0]) == {"algo", "env", "width", "error", "low", "high"}


def test_other_agents_than_the_rows_are_not_drawn(rows, agents, tmp_path):
    sweeps, points, _ = _points(rows)
    relations = [width_relation.relation(points, width_relation.ENVIRONMENTS)]
    other = agents / "a2c" / "Acrobot-v1_1" / "Acrobot-v1.zip"
    other.write_bytes((agents / "a2c" / "CartPole-v1_1" / "CartPole-v1.zip").read_bytes())
    (agents / "a2c" / "Pendulum-v1_1" / "Pendulum-v1.zip").unlink()
    drawn = finding_plots._weights
    shown = {p.env: drawn(p, "Acrobot-v1", str(agents)) for p in points if p.env == "Acrobot-v1"}
    assert shown == {"Acrobot-v1": None}
    paths = finding_plots.draw_weights(points, relations, sweeps, str(agents), str(tmp_path))
    assert [os.path.basename(path) for path in paths] == ["weights-a2c.png"]
    with pytest.raises(errors.UserError, match="has none of the agents"):
        finding_plots.draw_weights(points, relations, sweeps, str(tmp_path / "none"), str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--results", "nowhere.csv"), "There are no results in nowhere.csv"),
        (("--results", "{rows}", "--bits", "4"), "has no agent with rows of fp32 and of 4 bits"),
        (("--results", "{rows}", "--bits", "99"), "bits is '99'"),
    ],
)
def test_mistakes_are_one_line(rows, tmp_path, run_commands, arguments, message):
    command = [*(text.format(rows=rows) for text in arguments), "--out", tmp_path / "out"]
    (done,) = run_commands("findings", [command])
    assert message in done.error("findings")
    assert not (tmp_path / "out").exists()
