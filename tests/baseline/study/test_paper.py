"""Tests `baseline.study.paper`: what is printed there agrees with itself."""

import pytest

from baseline.study import paper

ROWS = [(algo, row) for algo, rows in paper.REWARDS.items() for row in rows]


def percent(fp32, quantized):
    return 100 * (fp32 - quantized) / abs(fp32)


@pytest.mark.parametrize("algo, row", ROWS, ids=[f"{algo}-{row.env}" for algo, row in ROWS])
def test_printed_error_agrees_with_printed_rewards(algo, row):
    assert row.error_fp16 == pytest.approx(percent(row.fp32, row.fp16), abs=0.006)
    assert row.error_int8 == pytest.approx(percent(row.fp32, row.int8), abs=0.006)


@pytest.mark.parametrize("algo", paper.REWARDS)
def test_printed_means_agree_with_printed_errors(algo):
    rows = paper.REWARDS[algo]
    mean = paper.MEANS[algo]
    for name in ("error_fp16", "error_int8"):
        values = [getattr(row, name) for row in rows]
        assert getattr(mean, name) == pytest.approx(sum(values) / len(values), abs=0.006)


def test_means_are_the_figures_to_reach():
    assert {algo: mean.error_int8 for algo, mean in paper.MEANS.items()} == {
        "a2c": 2.31, "ppo": 0.54, "ddpg": 4.93, "dqn": 8.60,
    }


@pytest.mark.parametrize(
    "algo, env, name",
    (
        ("ppo", "CartPole-v1", "CartPole"),
        ("ppo", "CartPole-v0", None),
        ("dqn", "PongNoFrameskip-v4", "Pong"),
        ("dqn", "ALE/Breakout-v5", "Breakout"),
        ("dqn", "AsteroidsNoFrameskip-v4", None),
        ("a2c", "SeaquestNoFrameskip-v4", "Seaguest"),
        ("ppo", "SeaquestNoFrameskip-v4", "Seaquest"),
        ("ddpg", "HalfCheetahBulletEnv-v0", "HalfCheetah"),
        ("ddpg", "HalfCheetah-v3", None),
        ("ddpg", "Walker2DBulletEnv-v0", "Walker2D"),
        ("ddpg", "BipedalWalker-v3", "BipedalWalker"),
        ("ddpg", "MountainCarContinuous-v0", "MountainCarContinuous"),
        ("ddpg", "CartPole-v1", None),
        ("d4pg", "CartPole-v1", None),
    ),
)
def test_result_finds_the_papers_row(algo, env, name):
    row = paper.rewards(algo, env)
    assert (row.env if row else None) == name


def test_deployments_speedup_agrees_with_its_times():
    for row in paper.DEPLOYMENT:
        # Printed with two digits or more: 1.18 of 1.185, 14 of 14.007.
        assert row.speedup == pytest.approx(row.fp32_ms / row.int8_ms, rel=0.006)
        assert row.fp32_success > row.int8_success


def test_deployment_finds_the_row_of_a_network():
    assert paper.deployment((4096, 512, 1024)).speedup == 18.85
    assert paper.deployment((64, 64, 64)).name == "Policy I"
    assert paper.deployment((64, 64)) is None
