"""Agents of many kinds on a small task whose spaces are chosen by the test."""

from typing import NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common import torch_layers
import torch
from torch import nn

ENV_ID = "Spaces-v0"
LENGTH = 12  # Steps of an episode.
VECTOR = gym.spaces.Box(-2, 2, (4,), np.float32)
FORCES = gym.spaces.Box(-3, 1, (2,), np.float32)
MIXED = gym.spaces.Dict({
    "vector": gym.spaces.Box(-2, 2, (3,), np.float32),
    "image": gym.spaces.Box(0, 255, (36, 36, 1), np.uint8),  # Its channels come last.
    "choice": gym.spaces.Discrete(3),
    "bits": gym.spaces.MultiBinary(2),
})


class Task(gym.Env):
    """Shows random observations, and refuses actions that are not of its space or forbidden."""

    def __init__(self, observed, actions):
        self.observation_space, self.action_space = observed, actions
        self._steps = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action)), action
        self._steps += 1
        reward = float(np.sum(action))
        return self.observation_space.sample(), reward, False, self._steps >= LENGTH, {}


class MaskedTask(Task):
    """Forbids some actions, others at every step."""

    def action_masks(self):
        space = self.action_space
        sizes = [space.n] if isinstance(space, gym.spaces.Discrete) else list(space.nvec)
        parts = [np.arange(size) != self._steps % size for size in sizes]
        return np.concatenate(parts)

    def step(self, action):
        allowed, start = self.action_masks(), 0
        space = self.action_space
        sizes = [space.n] if isinstance(space, gym.spaces.Discrete) else list(space.nvec)
        for chosen, size in zip(np.atleast_1d(action), sizes, strict=True):
            assert allowed[start + chosen], (action, allowed)
            start += size
        return super().step(action)


class Residual(torch_layers.BaseFeaturesExtractor):
    """An own features extractor of known layers."""

    def __init__(self, space, features_dim=8):
        super().__init__(space, features_dim)
        self.first = nn.Linear(space.shape[0], features_dim)
        self.second = nn.Linear(features_dim, features_dim)
        self.norm = nn.LayerNorm(features_dim)
        self.activation = nn.SiLU()

    def forward(self, x):
        x = torch.relu(self.first(x.view(x.size(0), -1)))
        return self.activation(x + self.activation(self.norm(self.second(x))))


class Pixels(torch_layers.BaseFeaturesExtractor):
    """An own features extractor of images, with a residual connection."""

    def __init__(self, space):
        super().__init__(space, 324)
        self.first = nn.Conv2d(space.shape[0], 4, 4, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = nn.functional.relu(self.first(x), inplace=True)
        x = x + torch.tanh(self.second(x))
        return torch.flatten(x, start_dim=1)


class Kind(NamedTuple):
    """An agent: algorithm, spaces, further arguments, and its environment's class."""

    algo: str
    observed: gym.Space = VECTOR
    actions: gym.Space = gym.spaces.Discrete(4)
    policy_kwargs: dict = {}
    arguments: dict = {}
    task: type = Task


KINDS = {
    "SiLU": Kind("ppo", policy_kwargs={"activation_fn": nn.SiLU}),
    "GELU": Kind("dqn", policy_kwargs={"activation_fn": nn.GELU}),
    "LeakyReLU": Kind("a2c", actions=FORCES, policy_kwargs={"activation_fn": nn.LeakyReLU}),
    "own extractor": Kind("ppo", policy_kwargs={"features_extractor_class": Residual}),
    "own extractor of SAC": Kind(
        "sac", actions=FORCES, policy_kwargs={"features_extractor_class": Residual}
    ),
    "own extractor of images": Kind(
        "a2c", gym.spaces.Box(0, 255, (36, 36, 1), np.uint8),
        policy_kwargs={"features_extractor_class": Pixels},
    ),
    "Discrete": Kind("ppo", gym.spaces.Discrete(7)),
    "Discrete of DQN": Kind("dqn", gym.spaces.Discrete(7)),
    "MultiDiscrete": Kind("a2c", gym.spaces.MultiDiscrete([3, 2, 4])),
    "several actions": Kind("ppo", actions=gym.spaces.MultiDiscrete([3, 2])),
    "bits as actions": Kind("a2c", actions=gym.spaces.MultiBinary(3)),
    "Dict": Kind("ppo", MIXED),
    "Dict of TD3": Kind("td3", MIXED, FORCES),
    "Dict with a mask that is an observation": Kind("a2c", gym.spaces.Dict({
        "action_mask": gym.spaces.MultiBinary(4), "observation": VECTOR,
    })),
    "Dict of one": Kind("dqn", gym.spaces.Dict({"only": VECTOR})),
    "QR-DQN": Kind("qrdqn", policy_kwargs={"n_quantiles": 5}),
    "TQC": Kind("tqc", actions=FORCES),
    "TRPO": Kind("trpo"),
    "MaskablePPO": Kind("maskable_ppo", task=MaskedTask),
    "MaskablePPO, several actions": Kind(
        "maskable_ppo", gym.spaces.Discrete(5), gym.spaces.MultiDiscrete([3, 2]), task=MaskedTask
    ),
    "MaskablePPO without masks": Kind("maskable_ppo"),
    "gSDE of SAC": Kind("sac", actions=FORCES, arguments={"use_sde": True}),
    "gSDE of TQC": Kind("tqc", actions=FORCES, arguments={"use_sde": True}),
    "gSDE of PPO": Kind(
        "ppo", actions=FORCES, arguments={"use_sde": True}, policy_kwargs={"squash_output": True}
    ),
}
