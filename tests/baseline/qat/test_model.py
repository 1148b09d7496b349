"""Fake quantization in SB3's models: what is replaced, what stays valid, what acts alike."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
from stable_baselines3.common import logger
from stable_baselines3.common import policies
import torch
from torch import nn

from actorQ.core import errors
from baseline.qat import callback as qat_callback
from baseline.qat import model as qat_model
from baseline.quantization import acting_path
from baseline.quantization import fake_layers
from baseline.quantization import schemes

SMALL = {"net_arch": [16, 16]}
OFF_POLICY = {"learning_starts": 20, "train_freq": 4, "buffer_size": 500, "batch_size": 16}


class Images(gym.Env):
    """Random images, for convolutions; what is done makes no difference."""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def __init__(self, discrete=True):
        self.action_space = (
            gym.spaces.Discrete(3) if discrete else gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
        )
        self._left = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 20
        return self._observe(), {}

    def step(self, action):
        self._left -= 1
        return self._observe(), float(self.np_random.random()), self._left <= 0, False, {}

    def _observe(self):
        return self.np_random.integers(0, 256, (36, 36, 1), np.uint8)


MODELS = {
    "a2c": lambda: sb3.A2C(
        "MlpPolicy", "CartPole-v1", policy_kwargs=dict(SMALL), seed=0, device="cpu"
    ),
    "a2c gSDE": lambda: sb3.A2C(
        "MlpPolicy", "Pendulum-v1", use_sde=True, policy_kwargs=dict(SMALL), seed=0, device="cpu"
    ),
    "ppo": lambda: sb3.PPO(
        "MlpPolicy", "Pendulum-v1", n_steps=32, batch_size=16, n_epochs=2,
        policy_kwargs=dict(SMALL), seed=0, device="cpu",
    ),
    "ppo images": lambda: sb3.PPO(
        "CnnPolicy", Images(), n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu"
    ),
    "dqn": lambda: sb3.DQN(
        "MlpPolicy", "CartPole-v1", target_update_interval=8, policy_kwargs=dict(SMALL), seed=0,
        device="cpu", **OFF_POLICY,
    ),
    "dqn images": lambda: sb3.DQN("CnnPolicy", Images(), seed=0, device="cpu", **OFF_POLICY),
    "ddpg": lambda: sb3.DDPG(
        "MlpPolicy", "Pendulum-v1", policy_kwargs=dict(SMALL), seed=0, device="cpu", **OFF_POLICY
    ),
    "td3": lambda: sb3.TD3(
        "MlpPolicy", "Pendulum-v1", policy_kwargs=dict(SMALL), seed=0, device="cpu", **OFF_POLICY
    ),
    "sac": lambda: sb3.SAC(
        "MlpPolicy", "Pendulum-v1", policy_kwargs=dict(SMALL), seed=0, device="cpu", **OFF_POLICY
    ),
    # The mean's layer is followed by a Hardtanh.
    "sac gSDE": lambda: sb3.SAC(
        "MlpPolicy", "Pendulum-v1", use_sde=True, policy_kwargs=dict(SMALL), seed=0, device="cpu",
        **OFF_POLICY,
    ),
    "ddpg images": lambda: sb3.DDPG(
        "CnnPolicy", Images(discrete=False), seed=0, device="cpu", **OFF_POLICY
    ),
}
SETTINGS = {
    "frozen": qat_model.QatSettings(4, delay=60),
    "moving": qat_model.QatSettings(4, delay=60, ranges="moving"),
    "output": qat_model.QatSettings(8, delay=60, output=True),
    "percentile": qat_model.QatSettings(4, delay=60, percentile=98.0),
    "lsq": qat_model.QatSettings(4, delay=60, estimator="lsq"),
    "lsq, all apart": qat_model.QatSettings(
        4, delay=60, estimator="lsq", granularity="channel", input_bits=6, weight_bits=3,
        activation_bits=5, first_bits=7, last_bits=8,
    ),
}


class KeepsGoing(qat_callback.FakeQuantizationSchedule):
    """Leaves the model as it trained."""

    def _on_training_end(self):
        pass


class Recorder(KeepsGoing):
    """Notes at which steps the policy acted quantized."""

    def __init__(self):
        super().__init__()
        self.started_at = []

    def _on_step(self):
        going_on = super()._on_step()
        self.started_at.append((self.num_timesteps, qat_model.find(self.model).started))
        return going_on


def trained(name, settings, steps=100, callback=None):
    model = MODELS[name]()
    qat_model.prepare(model, settings)
    model.learn(steps, callback=callback or KeepsGoing())
    return model


def observations(model, count=9):
    space = model.observation_space
    space.seed(1)
    return np.stack([space.sample() for _ in range(count)]).clip(-20, 255).astype(space.dtype)


@pytest.mark.parametrize(
    ("name", "how"),
    # SAC squashes its actions outside of its layers.
    [(name, how) for name in MODELS for how in SETTINGS if (name[:3], how) != ("sac", "output")],
)
def test_a_converted_model_acts_bit_for_bit_as_in_training(name, how):
    settings = SETTINGS[how]
    model = trained(name, settings)
    seen = observations(model)
    expected, _ = model.predict(seen, deterministic=True)

    converted = qat_model.convert(model)

    assert converted
    network = acting_path.policy_network(model)
    tap = schemes.ActivationQuantizer(settings.scheme, converted["ranges"])
    outputs = acting_path.forward(network, seen, tap).numpy()
    np.testing.assert_array_equal(acting_path.to_actions(network, outputs), expected)
    assert (acting_path.OUTPUT in converted["ranges"]) == (how == "output")
    if how == "output":
        assert len(np.unique(outputs)) <= 2**8
    first, *_, last = (name for name, _ in network.with_weights())
    for name, layer in network.with_weights():
        assert type(layer) in (nn.Linear, nn.Conv2d)
        by_channel = isinstance(layer, nn.Conv2d) or settings.granularity == "channel"
        rows = layer.weight if by_channel else [layer.weight]
        bits, _ = settings.layer_bits(name == first, name == last)
        assert all(2 <= len(row.unique()) <= 2**bits for row in rows)
        assert len(layer.weight.unique()) > 2
    assert not any("quant" in key for key in model.policy.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_prepared_models_act_as_before_until_quantization_starts(name):
    model = MODELS[name]()
    seen = observations(model)
    before, _ = model.predict(seen, deterministic=True)
    parameters = list(model.policy.parameters())

    whole = qat_model.prepare(model, qat_model.QatSettings(2))

    np.testing.assert_array_equal(model.predict(seen, deterministic=True)[0], before)
    assert all(a is b for a, b in zip(model.policy.parameters(), parameters, strict=True))
    whole.start()
    assert not np.array_equal(model.predict(observations(model, 99), deterministic=True)[0], before)


@pytest.mark.parametrize("name", ["sac", "sac gSDE"])
def test_outputs_that_are_squashed_outside_of_layers_are_not_quantized(name):
    with pytest.raises(errors.UserError, match="leave --quantize_output out"):
        qat_model.prepare(MODELS[name](), SETTINGS["output"])


@pytest.mark.parametrize("name", ["a2c", "dqn", "ddpg", "td3", "sac"])
def test_the_optimizer_goes_on_with_the_same_parameters(name):
    model = MODELS[name]()
    qat_model.prepare(model, qat_model.QatSettings(4, delay=60))
    part = getattr(model, "actor", model.policy)
    layers = [layer for _, layer in qat_model.layers(model)]
    before = [layer.weight.detach().clone() for layer in layers]
    owned = {id(p) for group in part.optimizer.param_groups for p in group["params"]}

    model.learn(100, callback=KeepsGoing())

    assert all({id(layer.weight), id(layer.bias)} <= owned for layer in layers)
    for layer, old in zip(layers, before, strict=True):
        assert not torch.equal(layer.weight, old)
        assert layer.weight in part.optimizer.state
        # The optimizer's weights are not the quantized ones.
        assert len(layer.weight.unique()) > 2**4 or layer.weight.numel() <= 2**4


@pytest.mark.parametrize("name", ["a2c", "dqn", "td3", "sac"])
def test_steps_are_learned_by_the_optimizer_of_the_acting_path_alone(name):
    model = MODELS[name]()
    whole = qat_model.prepare(model, SETTINGS["lsq"])
    part = getattr(model, "actor", model.policy)
    groups = len(part.optimizer.param_groups)
    assert groups == 2

    model.learn(80, callback=KeepsGoing())
    layers = [layer for _, layer in qat_model.layers(model)]
    quantizers = [q for layer in layers for q in (layer.input_quantizer, layer.weight_quantizer)]
    before = [quantizer.learned.detach().clone() for quantizer in quantizers]
    assert whole.started and all(float(step) < 0.0 for step in before)  # Logarithms.
    model.learn(80, callback=KeepsGoing(), reset_num_timesteps=False)

    assert all(
        not torch.equal(quantizer.learned, old)
        for quantizer, old in zip(quantizers, before, strict=True)
    )
    # A target's update averages parameters, and must leave the shared steps alone.
    assert not {id(q.learned) for q in quantizers} & {id(p) for p in model.policy.parameters()}
    for quantizer in quantizers:  # A look at the ranges, as curves take it, changes nothing.
        with torch.no_grad():
            quantizer.learned.add_(0.5)
    whole_ranges = qat_model.ranges(model)
    for name, layer in qat_model.layers(model):
        numbers = layer.input_quantizer(torch.linspace(-999.0, 999.0, 999)[None])
        assert numbers.max() < whole_ranges[name][1] <= numbers.max() * 1.2
    qat_model.convert(model)
    assert len(part.optimizer.param_groups) == 1
    assert not any(quantizer.learned in part.optimizer.state for quantizer in quantizers)


def test_pixels_keep_their_range_where_steps_are_learned():
    model = trained("dqn images", SETTINGS["lsq"])
    first, *others = (name for name, _ in qat_model.layers(model))
    found = qat_model.ranges(model)
    assert found[first] == pytest.approx((*acting_path.PIXEL_RANGE, 8))
    assert all(found[name][0] == 0.0 for name in others)  # Rectifiers give no negative numbers.


def test_ranges_that_start_from_a_percentile_are_narrower():
    wide = qat_model.ranges(trained("dqn", SETTINGS["frozen"], 61))
    narrow = qat_model.ranges(trained("dqn", SETTINGS["percentile"], 61))
    assert all(narrow[name][1] < wide[name][1] for name in wide)
    assert all(narrow[name][2:] == wide[name][2:] for name in wide)


def test_widths_are_those_of_their_layers():
    model = trained("sac", SETTINGS["lsq, all apart"])
    assert [
        (layer.weight_quantizer.bits, layer.input_quantizer.bits)
        for _, layer in qat_model.layers(model)
    ] == [(7, 6), (3, 5), (8, 8)]
    assert SETTINGS["lsq, all apart"].widths == "activations:5 first:7 last:8"
    assert qat_model.convert(model)["training"] == {
        "quant_delay": 60, "ranges": "learned", "widths": "activations:5 first:7 last:8",
    }


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["a2c", "dqn", "ddpg"])
def test_layers_act_with_the_weights_of_the_last_update(name, fused):
    model = MODELS[name]()
    part = model.actor if name == "ddpg" else model.policy
    part.optimizer = torch.optim.Adam(part.parameters(), lr=0.1, fused=fused)
    qat_model.prepare(model, qat_model.QatSettings(6, delay=0, ranges="moving"))
    qat_model.find(model).start()
    layers = [layer for _, layer in qat_model.layers(model)]
    for parameter in part.parameters():
        parameter.grad = torch.randn_like(parameter)
    with torch.no_grad():
        before = [layer._weights().clone() for layer in layers]
        part.optimizer.step()
        for layer, old in zip(layers, before, strict=True):
            assert not torch.equal(layer._weights(), old)
            assert torch.equal(layer._weights(), layer.weight_quantizer.quantize(layer.weight))


def test_a_control_trains_as_a_plain_model_does():
    plain = MODELS["a2c"]().learn(200)
    control = trained("a2c", qat_model.QatSettings(32), 200)

    weights = control.policy.state_dict()
    for key, tensor in plain.policy.state_dict().items():
        assert torch.equal(tensor, weights[key])
    ranges = qat_model.ranges(control)
    assert all(high > low for low, high, *_ in ranges.values())
    converted = qat_model.convert(control)
    assert not converted


def test_value_heads_and_critics_stay_in_full_precision():
    for name, parts in (
        ("a2c", ["mlp_extractor.value_net", "value_net"]), ("ddpg", ["critic"]),
        ("td3", ["critic", "critic_target"]), ("sac", ["critic", "critic_target", "actor.log_std"]),
    ):
        model = MODELS[name]()
        qat_model.prepare(model, qat_model.QatSettings(8))
        for part in parts:
            kinds = {type(module) for module in model.policy.get_submodule(part).modules()}
            assert not kinds & {fake_layers.FakeQuantLinear, fake_layers.FakeQuantTanh}


def test_observations_may_have_bits_of_their_own():
    model = trained("dqn", qat_model.QatSettings(2, delay=60))
    (first, layer), *others = qat_model.layers(model)

    assert layer.input_quantizer.bits == 8 and layer.weight_quantizer.bits == 2
    assert all(other.input_quantizer.bits == 2 for _, other in others)
    found = qat_model.ranges(model)
    assert found[first][2:] == (8,)
    assert all(len(found[name]) == 2 for name, _ in others)


@pytest.mark.parametrize("name", ["dqn", "ddpg", "td3", "dqn images"])
def test_targets_have_the_ranges_of_the_networks_they_follow(name):
    model = trained(name, qat_model.QatSettings(4, delay=60, output=True))
    online, target = (
        (model.q_net, model.q_net_target) if "dqn" in name else (model.actor, model.actor_target)
    )
    pairs = list(zip(online.modules(), target.modules(), strict=True))
    fakes = [(a, b) for a, b in pairs if isinstance(a, fake_layers.FakeQuantLinear)]
    assert len(fakes) >= 2
    for a, b in fakes:
        assert b.input_quantizer is a.input_quantizer and b.input_quantizer.started
        assert b.weight is not a.weight
    target.load_state_dict(online.state_dict())
    seen = torch.as_tensor(observations(model))

    with torch.no_grad():
        assert torch.equal(online(seen), target(seen))


@pytest.mark.parametrize(("name", "delay", "first"), [("a2c", 63, 63), ("dqn", 50, 50)])
def test_quantization_starts_at_the_delay_and_not_before(name, delay, first):
    recorder = Recorder()
    trained(name, qat_model.QatSettings(3, delay), 100, recorder)

    assert [step for step, started in recorder.started_at if started][0] == first
    assert [step for step, started in recorder.started_at if not started][-1] == first - 1


def test_the_delay_is_half_of_the_training_by_default():
    recorder = Recorder()
    model = trained("a2c", qat_model.QatSettings(8), 100, recorder)

    assert [step for step, started in recorder.started_at if started][0] == 50
    assert qat_model.find(model).settings.delay == 50


def test_without_a_delay_moving_ranges_quantize_from_the_first_step():
    recorder = Recorder()
    model = trained("a2c", qat_model.QatSettings(8, 0, "moving"), 20, recorder)

    assert all(started for _, started in recorder.started_at)
    assert all(high > low for low, high, *_ in qat_model.ranges(model).values())
    with pytest.raises(errors.UserError, match="--ranges=moving"):
        qat_model.QatSettings(8, 0)


@pytest.mark.parametrize("delay", [100, 5000])
def test_a_delay_that_the_training_does_not_outlast_is_an_error(delay):
    with pytest.raises(errors.UserError, match="none of the 100 steps"):
        trained("a2c", qat_model.QatSettings(8, delay), 100)


def test_a_delay_within_the_random_steps_is_an_error_with_frozen_ranges_only():
    with pytest.raises(errors.UserError, match="first 20 steps are random"):
        trained("dqn", qat_model.QatSettings(8, 20))
    trained("dqn", qat_model.QatSettings(8, 20, "moving"))


def test_curves_have_ranges_and_once_quantization_has_started_errors(monkeypatch):
    monkeypatch.setattr(qat_callback, "MIN_CURVE_STEPS", 1)
    model = MODELS["a2c"]()
    points = []

    class Output(logger.KVWriter):
        def write(self, key_values, key_excluded, step=0):
            points.append((step, dict(key_values)))

        def close(self):
            pass

    model.set_logger(logger.Logger(None, [Output()]))
    qat_model.prepare(model, qat_model.QatSettings(4, 60))
    model.learn(100, callback=qat_callback.FakeQuantizationSchedule(), log_interval=2)

    name = "quantization/action_net/"
    assert all({f"{name}low", f"{name}weight_high"} <= set(point) for _, point in points)
    errors_at = {step: point[f"{name}weight_error"] for step, point in points
                 if f"{name}weight_error" in point}
    assert min(errors_at) == 60 and max(errors_at) == 100
    assert all(0.0 < error < 0.2 for error in errors_at.values())


def test_dead_units_are_told(caplog):
    model = MODELS["a2c"]()
    with torch.no_grad():
        model.policy.mlp_extractor.policy_net[0].weight.zero_()
        model.policy.mlp_extractor.policy_net[0].bias.zero_()
    for parameter in model.policy.mlp_extractor.policy_net.parameters():
        parameter.requires_grad = False
    qat_model.prepare(model, qat_model.QatSettings(4, 10))

    with caplog.at_level("WARNING", logger="absl"):
        model.learn(20, callback=KeepsGoing())

    assert "the input of mlp_extractor.policy_net.2" in caplog.text
    assert model.predict(observations(model))[0].shape == (9,)


def test_checkpoints_go_on_bit_for_bit_and_only_with_the_same_settings():
    settings = qat_model.QatSettings(4, delay=60)
    model = trained("ppo", settings)
    parameters = model.get_parameters()
    seen = observations(model)
    expected, _ = model.predict(seen, deterministic=True)

    other = MODELS["ppo"]()
    whole = qat_model.prepare(other, qat_model.QatSettings(4))
    other.set_parameters(parameters, exact_match=True)

    np.testing.assert_array_equal(other.predict(seen, deterministic=True)[0], expected)
    assert whole.started and whole.settings.delay == 60
    for changed, flag in (
        (qat_model.QatSettings(5), "-q 4, not 5"),
        (qat_model.QatSettings(4, 70), "--quant-delay 60, not 70"),
        (qat_model.QatSettings(4, ranges="moving"), "--ranges frozen, not moving"),
        (qat_model.QatSettings(4, output=True), "--quantize_output False, not True"),
    ):
        other = MODELS["ppo"]()
        qat_model.prepare(other, changed)
        with pytest.raises(errors.UserError, match=flag):
            other.set_parameters(parameters, exact_match=True)


def test_checkpoints_of_learned_steps_go_on_bit_for_bit_and_only_with_their_settings():
    settings = SETTINGS["lsq, all apart"]
    model = trained("ppo", settings)
    parameters = model.get_parameters()
    seen = observations(model)
    expected, _ = model.predict(seen, deterministic=True)

    other = MODELS["ppo"]()
    qat_model.prepare(other, settings)
    other.set_parameters(parameters, exact_match=True)

    np.testing.assert_array_equal(other.predict(seen, deterministic=True)[0], expected)
    for changes, message in (
        ({"estimator": "ste"}, "with --estimator lsq, not ste"),
        ({"granularity": "paper"}, "with --granularity channel, not paper"),
        ({"weight_bits": None}, "with --weight_bits 3, not without it"),
        ({"percentile": 99.5}, "without --percentile, not with 99.5"),
    ):
        other = MODELS["ppo"]()
        qat_model.prepare(other, dataclasses.replace(settings, **changes))
        with pytest.raises(errors.UserError, match=message):
            other.set_parameters(parameters, exact_match=True)


def test_defaults_of_later_settings_leave_no_trace():
    """Files and checkpoints of earlier versions have none of them."""
    settings = qat_model.QatSettings(4, 60)
    assert set(settings.noted) == {"bits", "delay", "ranges", "output", "input_bits"}
    model = trained("a2c", settings)
    whole = qat_model.find(model)
    assert set(whole.state_dict()) == {"bits", "input_bits", "moving", "output", "delay"}
    facts = qat_model.convert(model)
    assert facts["training"] == {"quant_delay": 60, "ranges": "frozen"}
    assert all(len(ends) == 2 for ends in facts["weight_ranges"].values())


def test_checkpoints_of_plain_models_are_refused_by_name():
    parameters = MODELS["ppo"]().get_parameters()
    other = MODELS["ppo"]()
    qat_model.prepare(other, qat_model.QatSettings(4))

    with pytest.raises(errors.UserError, match="without fake quantization"):
        other.set_parameters(parameters, exact_match=True)


def test_converted_models_save_and_load_with_sb3_alone(tmp_path):
    model = trained("a2c", qat_model.QatSettings(4, delay=60))
    qat_model.convert(model)
    model.save(tmp_path / "model.zip")
    seen = observations(model)

    loaded = sb3.A2C.load(tmp_path / "model.zip", device="cpu")

    np.testing.assert_array_equal(loaded.predict(seen)[0].shape, (9,))
    for key, tensor in model.policy.state_dict().items():
        assert torch.equal(tensor, loaded.policy.state_dict()[key])
    assert isinstance(loaded.policy, policies.ActorCriticPolicy)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"bits": 33}, "Cannot train with 33 bits"),
        ({"bits": 4, "input_bits": 20}, "Observations .* have 2 to 16 bits, not 20"),
        ({"bits": 4, "input_bits": 32}, "Observations .* have 2 to 16 bits, not 32"),
        ({"bits": 4, "weight_bits": 1}, "--weight_bits is 2 to 16, not 1"),
        ({"bits": 4, "last_bits": 32}, "--last_bits is 2 to 16, not 32"),
        ({"bits": 4, "estimator": "pact"}, "estimator must be ste or lsq, not 'pact'"),
        ({"bits": 4, "granularity": "row"}, "granularity must be paper or channel, not 'row'"),
        ({"bits": 4, "percentile": 50.0}, "--percentile is above 50, at most 100, not 50"),
        ({"bits": 4, "percentile": float("nan")}, "--percentile is above 50"),
        ({"bits": 4, "estimator": "lsq", "ranges": "moving"}, "leave --ranges=moving out"),
        ({"bits": 4, "percentile": 99.0, "ranges": "moving"}, "leave one of both out"),
        ({"bits": 4, "estimator": "lsq", "delay": 0}, "give --quant-delay=1 or more.$"),
    ],
)
def test_impossible_widths_are_named_by_what_has_them(widths, message):
    with pytest.raises(errors.UserError, match=message):
        qat_model.QatSettings(**widths)
