"""DQN on an Atari game with the three policies of the paper's mixed-precision study."""

import resource
import sys
import time
from typing import Any

from gymnasium import spaces
import stable_baselines3 as sb3
from stable_baselines3.common import env_util
from stable_baselines3.common import logger
from stable_baselines3.common import torch_layers
from stable_baselines3.common import utils
from stable_baselines3.common import vec_env
import torch
from torch import nn

from actorQ.core import errors
from baseline.study import paper
from baseline.tasks import atari
from baseline.tasks import environments
from baseline.train import precision_choice

TRAIN_FREQ = 4  # Environment steps for a gradient step.
# rl_zoo3 tuned these for Atari (hyperparams/dqn.yml).
TUNED: dict[str, Any] = {
    "learning_rate": 1e-4, "batch_size": 32, "target_update_interval": 1000,
    "train_freq": TRAIN_FREQ, "gradient_steps": 1,
    # For most of a training one in a hundred actions is random, and the others are the network's.
    "exploration_initial_eps": 0.01, "exploration_final_eps": 0.01,
}


class WideCnn(torch_layers.BaseFeaturesExtractor):
    """Three convolutions with kernels and strides of the Nature paper, and a dense layer.

    Attributes:
      layers: Module from images in [0, 1], float32 [B, C, H, W], to features [B, units].
    """

    def __init__(self, observation_space: spaces.Box, filters: int, units: int):
        """Makes the layers.

        Args:
          observation_space: Images, channels first.
          filters: Filters of each convolution.
          units: Units of the dense layer.
        """
        super().__init__(observation_space, units)
        convolutions = nn.Sequential(
            nn.Conv2d(observation_space.shape[0], filters, 8, 4), nn.ReLU(),
            nn.Conv2d(filters, filters, 4, 2), nn.ReLU(),
            nn.Conv2d(filters, filters, 3, 1), nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            size = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
        self.layers = nn.Sequential(*convolutions, nn.Linear(size, units), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Returns the features of images."""
        return self.layers(observations)


class TimedDqn(sb3.DQN):
    """DQN that notes how long its gradient steps take.

    Attributes:
      gradient_s: Seconds in gradient steps so far.
      losses: Losses so far, one for each call of `train`.
    """

    gradient_s = 0.0
    losses: list[float]

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Takes gradient steps."""
        precision_choice.wait_for(self.device)
        started = time.perf_counter()
        super().train(gradient_steps, batch_size)
        precision_choice.wait_for(self.device)
        self.gradient_s += time.perf_counter() - started
        self.losses.append(float(self.logger.name_to_value["train/loss"]))


def make(env: str, policy: str, seed: int, device: str, transitions: int) -> TimedDqn:
    """Makes a model whose weights depend on policy and seed alone, ready for its first step.

    Args:
      env: Atari game, "...NoFrameskip-v4".
      policy: One of `paper.MIXED_PRECISION`.
      seed: Seed of everything random.
      device: "auto", "cpu" or "cuda".
      transitions: Size of the replay buffer; as many transitions are played at random before the
        first gradient step.

    Raises:
      errors.UserError: The environment is no such game.
    """
    environments.check_name(env)
    if not atari.shows_every_frame(env):
        raise errors.UserError(
            f"{env} is no Atari environment without frame skip (...NoFrameskip-v4)."
        )
    games = vec_env.VecFrameStack(env_util.make_atari_env(env, n_envs=1, seed=seed), n_stack=4)
    size = paper.MIXED_PRECISION[policy]
    utils.set_random_seed(seed)
    model = TimedDqn(
        "CnnPolicy", games, device=device, seed=seed,
        buffer_size=transitions, learning_starts=transitions,
        policy_kwargs={
            "features_extractor_class": WideCnn,
            "features_extractor_kwargs": {"filters": size.filters, "units": size.units},
            "net_arch": [],
            # Both precisions update the weights in one pass over memory.
            "optimizer_kwargs": {"fused": True},
        },
        **TUNED,
    )
    model.losses = []
    model.set_logger(logger.Logger(None, []))
    return model


def play(model: TimedDqn, steps: int) -> None:
    """Takes environment steps, and the gradient steps between them.

    Args:
      model: Model from `make`.
      steps: Environment steps, a multiple of `TRAIN_FREQ`.
    """
    model.learn(steps, reset_num_timesteps=False)


def peak_bytes(device: torch.device) -> int:
    """Returns this process's peak memory so far, on the GPU if it trains on one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform != "linux":  # On Linux ru_maxrss would contain a parent's peak.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/status", encoding="ascii") as file:
        kilobytes = next(line for line in file if line.startswith("VmHWM:")).split()[1]
    return int(kilobytes) * 1024
