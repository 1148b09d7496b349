"""Half precision in Stable-Baselines3's models, and the choice of it."""

import numpy as np
import pytest
import stable_baselines3 as sb3
from stable_baselines3.common import logger
import torch

from actorQ.core import errors
from baseline.agents import model_building
from baseline.agents import zoo_files
from baseline.train import half_precision
from baseline.train import precision_choice
from baseline.train import settings as training_settings
from baseline.train import state as training_state
from baseline.train import training as train

CPU = torch.device("cpu")
OBSERVATIONS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))


def model(steps=40, **kwargs):
    with model_building.no_compiler():
        made = sb3.DQN(
            "MlpPolicy", "CartPole-v1", seed=0, device="cpu", learning_starts=0, batch_size=16,
            train_freq=100, policy_kwargs={"net_arch": [32, 32]}, **kwargs,
        )
    made.set_logger(logger.Logger(None, []))
    made.learn(steps)  # Fills the replay buffer.
    made.policy.optimizer.zero_grad()
    return made


def gradient_steps(made, count):
    np.random.seed(0)
    made.train(count, 16)
    return torch.cat([weight.detach().flatten().clone() for weight in made.q_net.parameters()])


def gradients(made):
    made.policy.set_training_mode(True)
    made.policy.optimizer.zero_grad()
    (made.q_net(OBSERVATIONS) * torch.tensor([1.0, -0.5])).mean().backward()
    made.policy.optimizer.step()  # This step looks for fp16's overflows.
    return [weight.grad for weight in made.q_net.parameters()]


@pytest.mark.parametrize(("precision", "step"), [("bf16", 2**-8), ("fp16", 2**-11)])
def test_networks_compute_in_half_precision_and_weights_stay_fp32(precision, step):
    made = model()
    weights = [weight.detach().clone() for weight in made.q_net.parameters()]
    full = made.q_net_target(OBSERVATIONS)
    undo = half_precision.apply(made, precision)

    half = made.q_net_target(OBSERVATIONS)

    assert half.dtype == torch.float32
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert torch.equal(half, half.to(dtype).float())  # The last layer's output has few digits.
    assert 0 < (half - full).abs().max() < 20 * step * full.abs().max()
    for weight, before in zip(made.q_net.parameters(), weights, strict=True):
        assert weight.dtype == torch.float32
        assert torch.equal(weight, before)
    undo()
    assert torch.equal(made.q_net_target(OBSERVATIONS), full)


def test_dqn_learns_in_half_precision_and_acts_in_full():
    made = model()
    made.policy.set_training_mode(True)
    full = made.q_net(OBSERVATIONS)
    half_precision.apply(made, "bf16")
    assert not torch.equal(made.q_net(OBSERVATIONS), full)
    made.policy.set_training_mode(False)
    assert torch.equal(made.q_net(OBSERVATIONS), full)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("fp16", 0.05)])
def test_gradients_are_those_of_fp32_but_for_rounding(precision, tolerance):
    full = gradients(model())
    made = model()
    half_precision.apply(made, precision)

    for half, exact in zip(gradients(made), full, strict=True):
        assert half.dtype == torch.float32
        assert float((half - exact).norm() / exact.norm()) < tolerance


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_training_stays_near_that_of_fp32(precision):
    full = gradient_steps(model(), 20)
    made = model()
    start = torch.cat([weight.detach().flatten() for weight in made.q_net.parameters()]).clone()
    half_precision.apply(made, precision)

    half = gradient_steps(made, 20)

    assert not torch.equal(half, full)
    assert float((half - full).norm() / (full - start).norm()) < 0.2


def test_small_gradients_vanish_in_fp16_but_for_the_scale():
    def of(scaled):
        made = model()
        undo = half_precision.apply(made, "fp16")
        if not scaled:
            made.q_net.forward.args[-1].value = 1.0
        made.policy.set_training_mode(True)
        (made.q_net(OBSERVATIONS).sum() * 1e-9).backward()
        found = float(made.q_net.q_net[0].weight.grad.abs().max())
        undo()
        return found

    assert of(scaled=False) == 0.0
    assert of(scaled=True) > 0.0


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_overflows_changes_the_scale_alone(fused):
    made = model()
    made.policy.optimizer = torch.optim.Adam(made.q_net.parameters(), 0.1, fused=fused)
    half_precision.apply(made, "fp16")
    scale = made.q_net.forward.args[-1]
    before = [weight.detach().clone() for weight in made.q_net.parameters()]
    made.policy.set_training_mode(True)

    (made.q_net(OBSERVATIONS).sum() * 1e4).backward()
    torch.nn.utils.clip_grad_norm_(made.policy.parameters(), 10.0)
    made.policy.optimizer.step()

    assert (scale.value, scale.skipped) == (2.0**15, 1)
    for weight, was in zip(made.q_net.parameters(), before, strict=True):
        assert torch.equal(weight, was)
    made.q_net(OBSERVATIONS).sum().mul(1e-3).backward()
    made.policy.optimizer.step()
    assert scale.skipped == 1
    assert not torch.equal(made.q_net.q_net[0].weight, before[0])


def test_the_scale_grows_after_enough_good_steps(monkeypatch):
    monkeypatch.setattr(half_precision.LossScale, "GROWTH_INTERVAL", 2)
    made = model()
    half_precision.apply(made, "fp16")
    gradients(made)
    gradients(made)
    assert made.q_net.forward.args[-1].value == 2.0**17


def test_fp16_is_refused_where_it_would_be_emulated(monkeypatch):
    monkeypatch.setattr(half_precision, "computes", lambda precision, device: precision == "fp32")
    with pytest.raises(errors.UserError, match="--precision bf16"):
        half_precision.check("fp16", CPU)
    half_precision.check("bf16", CPU)  # Slow, but right.
    assert half_precision.half_of(CPU) is None


def test_half_precision_is_for_dqn_and_images_and_fp16_for_dqn():
    ppo = sb3.PPO("MlpPolicy", "CartPole-v1", device="cpu", n_steps=8, batch_size=8)
    with pytest.raises(errors.UserError, match="images"):
        half_precision.apply(ppo, "bf16")
    assert precision_choice.choose(ppo).precision == "fp32"


@pytest.mark.parametrize(("speedup", "expected"), [(0.9, "fp32"), (1.04, "fp32"), (1.6, "bf16")])
def test_auto_takes_half_precision_where_it_is_faster(monkeypatch, speedup, expected):
    monkeypatch.setattr(half_precision, "half_of", lambda device: "bf16")
    monkeypatch.setattr(precision_choice, "measure", lambda made, half: speedup)
    choice = precision_choice.resolve(model(), "auto")
    assert choice.precision == expected
    assert f"{speedup:.2f}" in choice.reason


def test_auto_is_fp32_where_the_device_has_no_half_precision(monkeypatch):
    monkeypatch.setattr(half_precision, "half_of", lambda device: None)
    assert precision_choice.choose(model()).precision == "fp32"


def test_measuring_changes_nothing_of_the_model():
    made, untouched = model(), model()
    training = made.policy.training
    state = np.random.get_state()[1].copy()
    torch_state = torch.get_rng_state()

    assert precision_choice.measure(made, "bf16") > 0.0

    assert np.array_equal(np.random.get_state()[1], state)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert made.policy.training == training
    assert all(weight.grad is None for weight in made.policy.parameters())
    assert torch.equal(gradient_steps(made, 3), gradient_steps(untouched, 3))


def test_a_training_in_bf16_leaves_a_plain_agent_and_goes_on_in_bf16(tmp_path, caplog):
    settings = training_settings.TrainSettings(
        "dqn", "CartPole-v1", 400, 0, str(tmp_path), device="cpu", progress=False,
        precision="bf16", hyperparams={"learning_starts": 40, "train_freq": 8, "gradient_steps": 1},
    )
    left = iter(range(200))
    path = train.train(settings, stop_requested=lambda: next(left, None) is None)
    (run,) = training_state.runs(str(tmp_path), "dqn", "CartPole-v1")
    assert run.arguments["precision"] == "bf16" and not run.finished

    with caplog.at_level("INFO", logger="absl"):
        train.train(training_settings.TrainSettings(
            "dqn", "CartPole-v1", folder=str(tmp_path), resume=True, progress=False, device="cpu",
        ))

    assert "The networks train in bf16" in caplog.text
    agent = sb3.DQN.load(path, device="cpu")
    assert type(agent) is sb3.DQN and "forward" not in vars(agent.q_net)
    assert {weight.dtype for weight in agent.q_net.parameters()} == {torch.float32}
    assert all(
        tensor.dtype == torch.float32 for tensor in zoo_files.read_zip(path).state_dict.values()
    )


def test_runs_of_before_the_flag_go_on_as_they_were_started():
    settings = training_settings.TrainSettings("dqn", "CartPole-v1", resume=True)
    arguments = {"n_timesteps": 10, "seed": 0, "hyperparams": {}, "bfloat16": True}
    assert training_settings.as_started(settings, arguments, "run").precision == "bf16"
    arguments["bfloat16"] = False
    assert training_settings.as_started(settings, arguments, "run").precision == "fp32"
