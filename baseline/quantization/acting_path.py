"""The acting path of a policy as a plain list of layers.

Quantizers, calibration and exporters work on this list, whatever library trained the agent. The
layers are the model's own modules: a change of their parameters changes the model.
"""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common import base_class
from stable_baselines3.common import policies as sb3_policies
from stable_baselines3.common import preprocessing
from stable_baselines3.common import torch_layers
from stable_baselines3.dqn import policies as dqn_policies
from stable_baselines3.sac import policies as sac_policies
from stable_baselines3.td3 import policies as td3_policies
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.tasks import environments

LAYER_TYPES = (nn.Linear, nn.Conv2d, nn.ReLU, nn.Tanh, nn.ELU, nn.Flatten)
WITH_WEIGHTS = (nn.Linear, nn.Conv2d)
OUTPUT = "output"  # Names the last layer's output; inputs have the names of their layers.
# Pixels become 0 to 1. As integers they keep their values, each of which stands for value / 255.
PIXEL_LEVELS = 255  # Levels above black.
PIXEL_MAP = quantization.AffineMap(np.array(1.0 / PIXEL_LEVELS, np.float32), np.array(0, np.int64))
PIXEL_RANGE = 0.0, (PIXEL_LEVELS + 1) / PIXEL_LEVELS  # The 2^8 steps of that map.

WithWeights = nn.Linear | nn.Conv2d
Tap = Callable[[str, torch.Tensor], torch.Tensor]


class PolicyNetwork(NamedTuple):
    """The layers that turn a batch of (normalized) observations into actions.

    Attributes:
      layers: Names (paths inside the model's policy) and modules of LAYER_TYPES, in order.
      head: How outputs become actions:
        "argmax": The action is discrete, the index of the largest output.
        "clip": The action is continuous, clipped to low and high.
        "scale": The last layer is a tanh, whose -1 to 1 is stretched to low and high.
      low: float32 [A], smallest actions; None if discrete.
      high: float32 [A], largest actions; None if discrete.
      image: Whether observations are uint8 [B, C, H, W], to be divided by 255. Otherwise they are
        float32 [B, ...]. Without convolutions, the first layer flattens them.
    """

    layers: tuple[tuple[str, nn.Module], ...]
    head: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    image: bool = False

    def with_weights(self) -> list[tuple[str, WithWeights]]:
        """Returns the linear and convolutional layers."""
        return [(name, module) for name, module in self.layers if isinstance(module, WITH_WEIGHTS)]


def policy_network(model: base_class.BaseAlgorithm) -> PolicyNetwork:
    """Returns the acting path of an SB3 model: no value function, no target networks.

    Raises:
      errors.UserError: A layer has no quantized form here, or observations are not arrays.
    """
    policy, observed = model.policy, model.observation_space
    environments.check_observations(observed)
    if isinstance(policy, sb3_policies.ActorCriticPolicy):
        extractor = policy.pi_features_extractor
        parts = [policy.mlp_extractor.policy_net, policy.action_net]
        squashed = policy.squash_output
        if squashed:
            parts.append(nn.Tanh())
    elif isinstance(policy, dqn_policies.DQNPolicy):
        extractor = policy.q_net.features_extractor
        parts, squashed = [policy.q_net.q_net], False
    elif isinstance(policy, td3_policies.TD3Policy):
        extractor = policy.actor.features_extractor
        parts, squashed = [policy.actor.mu], True
    elif isinstance(policy, sac_policies.SACPolicy):
        extractor = policy.actor.features_extractor
        # The squashed mean is the action without exploration.
        parts, squashed = [policy.actor.latent_pi, policy.actor.mu, nn.Tanh()], True
    else:
        raise errors.UserError(
            f"No acting path is known for {type(policy).__name__}. Those of A2C, PPO, DQN, DDPG, "
            "TD3 and SAC are."
        )
    names = {module: name for name, module in policy.named_modules()}
    layers = []
    for part in [*_extractor_parts(extractor), *parts]:
        modules = part if isinstance(part, nn.Sequential) else [part]
        for module in modules:
            name = names.get(module, "squash")
            if not isinstance(module, LAYER_TYPES):
                raise errors.UserError(
                    f"Layer {name} is a {type(module).__name__}, which has no quantized form here "
                    f"(known: {', '.join(kind.__name__ for kind in LAYER_TYPES)})."
                )
            layers.append((name, module))
    space = model.action_space
    image = policy.normalize_images and preprocessing.is_image_space(observed)
    if isinstance(space, gym.spaces.Discrete):
        return PolicyNetwork(tuple(layers), "argmax", image=image)
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise errors.UserError(
            f"Actions of {space} are neither discrete nor continuous (one number or one vector)."
        )
    return PolicyNetwork(
        tuple(layers),
        "scale" if squashed else "clip",
        np.asarray(space.low, np.float32),
        np.asarray(space.high, np.float32),
        image,
    )


def forward(
    network: PolicyNetwork, observations: np.ndarray, tap: Tap | None = None
) -> torch.Tensor:
    """Returns the last layer's output [B, A], float32.

    Args:
      network: The acting path.
      observations: Normalized observations [B, ...].
      tap: Sees and may replace the input of every layer with weights (under the layer's name) and
        the last output (under OUTPUT).
    """
    with torch.inference_mode():
        x = torch.as_tensor(observations)
        x = x.float() / PIXEL_LEVELS if network.image else x.float()
        for name, module in network.layers:
            if tap is not None and isinstance(module, WITH_WEIGHTS):
                x = tap(name, x)
            x = module(x)
        return x if tap is None else tap(OUTPUT, x)


def to_actions(network: PolicyNetwork, outputs: np.ndarray) -> np.ndarray:
    """Returns actions for the last layer's outputs [B, A]: int64 [B], or float32 [B, A]."""
    if network.head == "argmax":
        return outputs.argmax(axis=1)
    assert network.low is not None and network.high is not None
    if network.head == "scale":
        return network.low + 0.5 * (outputs + 1.0) * (network.high - network.low)
    return np.clip(outputs, network.low, network.high)


def _extractor_parts(extractor: nn.Module) -> list[nn.Module]:
    if isinstance(extractor, torch_layers.FlattenExtractor):
        return [extractor.flatten]
    if isinstance(extractor, torch_layers.NatureCNN):
        return [extractor.cnn, extractor.linear]
    raise errors.UserError(
        f"The features extractor {type(extractor).__name__} has no quantized form here (known: "
        "FlattenExtractor, NatureCNN)."
    )
