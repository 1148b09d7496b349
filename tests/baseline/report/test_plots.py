"""Captions of the plots on the page."""

import pytest

from baseline.report import plots


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("r/ptq/plots/ppo_CartPole-v1.png", "PPO CartPole-v1: mean return against bits"),
        ("r/qat/plots/overview_a2c.png", "A2C: mean return"),
        ("r/time_to_reward/report/convergence_cartpole_balance.png", "cartpole balance"),
        ("r/cartpole_gym/convergence.png", "cartpole gym"),
        ("r/cartpole_gym/breakdown.png", "phase by phase: cartpole gym"),
        ("r/breakdown/report/breakdown_finger_spin.png", "phase by phase: finger spin"),
        ("r/cluster/cluster_blocking.png", "blocking downloads"),
        ("r/mixed_precision/loss_parity.png", "Loss parity"),
        ("x/mixed_precision/mixed_precision_timing.png", "Run time in fp32 over run time in half"),
        ("x/mixed_precision/auto/mixed_precision_timing.png", "that was chosen by itself"),
        ("x/deployment/deployment.png", "Latency of the fp32 file over that of the int8 file"),
    ],
)
def test_captions_come_from_names(path, text):
    assert text in plots.caption(path)
