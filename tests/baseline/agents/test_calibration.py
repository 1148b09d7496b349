"""Ranges of activations are those that the agent's own play shows."""

import gymnasium as gym
import numpy as np
from stable_baselines3.common import monitor
import torch

from actorQ.core import seeding
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.quantization import acting_path
from baseline.quantization import schemes


def test_ranges_are_those_of_what_was_seen(zoo):
    agent = finding.load("a2c", "Pendulum-v1", zoo.folder)
    ranges = calibration.ranges(agent, 2, seed=1)
    assert list(ranges) == [name for name, _ in agent.network.with_weights()]
    # The expected ranges come from one environment, one state at a time.
    seen = {name: [] for name in ranges}
    hidden = {}
    for name, module in agent.network.with_weights():
        module.register_forward_hook(
            lambda _, inputs, __, name=name: hidden.__setitem__(name, inputs[0].numpy())
        )
    env = agent.make_env()
    starts = seeding.derive(1, "calibration")
    for number in range(2):
        observation, _ = env.reset(seed=evaluation.episode_seed(starts, number))
        over = False
        while not over:
            output = acting_path.forward(agent.network, agent.normalize(observation[None])).numpy()
            for name in ranges:
                seen[name].append(hidden[name])
            observation, _, terminated, truncated, _ = env.step(
                acting_path.to_actions(agent.network, output)[0]
            )
            over = terminated or truncated
    for name, (low, high) in ranges.items():
        np.testing.assert_allclose(
            (low, high), (np.min(seen[name]), np.max(seen[name])), rtol=1e-3, atol=1e-3
        )
    # The policy itself is as before, and the starts are not those of evaluations.
    assert agent.tap is None
    assert starts not in range(100)


def test_pixels_have_the_range_whose_levels_are_the_pixels(atari_zoo):
    agent = finding.load("dqn", "BreakoutNoFrameskip-v4", atari_zoo.folder)
    make_env = agent.make_env  # Three steps suffice.
    agent.make_env = lambda: monitor.Monitor(gym.wrappers.TimeLimit(make_env(), 3))
    ranges = calibration.ranges(agent, 1)
    assert ranges["q_net.features_extractor.cnn.0"] == (0.0, 256 / 255)
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    tap = schemes.ActivationQuantizer(scheme, ranges)
    pixels = torch.arange(256) / 255
    quantized = tap("q_net.features_extractor.cnn.0", pixels)
    np.testing.assert_allclose(quantized.numpy(), pixels.numpy(), rtol=1e-6)
