"""The acting path of a policy as a list of layers, each with the names of its inputs.

Quantizers, calibration and exporters work on this list, whatever library trained the agent. The
layers are the model's own modules: a change of their parameters changes the model.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common import base_class
from stable_baselines3.common import policies as sb3_policies
from stable_baselines3.common import preprocessing
from stable_baselines3.dqn import policies as dqn_policies
from stable_baselines3.sac import policies as sac_policies
from stable_baselines3.td3 import policies as td3_policies
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import acting_layers
from baseline.quantization import names
from baseline.quantization import tracing
from baseline.tasks import environments

WITH_WEIGHTS = acting_layers.WITH_WEIGHTS
WithWeights = acting_layers.WithWeights
OBSERVATION = tracing.OBSERVATION  # Names the input in `PolicyNetwork.sources`.
OUTPUT = "output"  # Names the last layer's output; inputs have the names of their layers.
# Pixels become 0 to 1. As integers they keep their values, each of which stands for value / 255.
PIXEL_LEVELS = tracing.PIXEL_LEVELS  # Levels above black.
PIXEL_MAP = quantization.AffineMap(np.array(1.0 / PIXEL_LEVELS, np.float32), np.array(0, np.int64))
PIXEL_RANGE = 0.0, (PIXEL_LEVELS + 1) / PIXEL_LEVELS  # The 2^8 steps of that map.
_RECURRENT = "sb3_contrib.common.recurrent."
_HEADS = {  # Places of the acting path's modules, by the module of the policy's class.
    "sb3_contrib.qrdqn.policies": "quantiles",
    "sb3_contrib.tqc.policies": "squashed actor",
    "sb3_contrib.common.maskable.policies": "logits",
}

Tap = Callable[[str, torch.Tensor], torch.Tensor]


class PolicyNetwork(NamedTuple):
    """The layers that turn a batch of (normalized) observations into actions.

    Attributes:
      layers: Names (paths inside the model's policy) and modules of `acting_layers.KINDS`, in the
        order in which they are computed.
      head: How outputs become actions:
        "argmax": The action is discrete, the index of the largest output.
        "argmaxes": There are several discrete actions, each the index of the largest in its part.
        "positive": There are several actions of 0 and 1: 1 where the output is above 0.
        "clip": The action is continuous, clipped to low and high.
        "scale": The last layer is a tanh, whose -1 to 1 is stretched to low and high.
      low: float32 [A], smallest actions; None if discrete.
      high: float32 [A], largest actions; None if discrete.
      image: Whether observations are uint8 [B, C, H, W], to be divided by 255. Otherwise they are
        float32 [B, ...]. Without convolutions, the first layer flattens them.
      sources: Names of a layer's inputs, where these are others than the layer before it (of the
        first: OBSERVATION).
      fields: Parts of flat observations float32 [B, D], in order; empty where they are arrays.
      sizes: Numbers of outputs of the discrete actions of "argmaxes".
      num_inputs: Numbers of a flat observation; None: those that the first layer takes.
    """

    layers: tuple[tuple[str, nn.Module], ...]
    head: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    image: bool = False
    sources: Mapping[str, tuple[str, ...]] = {}
    fields: tuple[tracing.Field, ...] = ()
    sizes: tuple[int, ...] = ()
    num_inputs: int | None = None

    def with_weights(self) -> list[tuple[str, WithWeights]]:
        """Returns the linear and convolutional layers."""
        return [(name, module) for name, module in self.layers if isinstance(module, WITH_WEIGHTS)]

    def steps(self) -> Iterator[tuple[str, nn.Module, tuple[str, ...]]]:
        """Yields the layers in order: name, module, and the names of its inputs."""
        before = OBSERVATION
        for name, module in self.layers:
            yield name, module, self.sources.get(name, (before,))
            before = name

    @property
    def num_outputs(self) -> int:
        """Numbers that the last layer gives, A."""
        for _, module in reversed(self.layers):
            if isinstance(module, acting_layers.QuantileMean):
                return module.actions
            if isinstance(module, WITH_WEIGHTS):
                return module.weight.shape[0]
        raise errors.UserError("The policy has no layer with weights: nothing to export.")

    def observation_shape(self, image_size: Sequence[Any] | None) -> list[Any]:
        """Returns the shape of one observation, as files take it.

        Args:
          image_size: Height and width of images, numbers or names.

        Raises:
          errors.UserError: The policy has no layer with weights, or images have no size.
        """
        if self.num_inputs is not None:
            return [self.num_inputs]
        for _, module in self.with_weights():
            if isinstance(module, nn.Conv2d):
                if image_size is None:
                    raise errors.UserError("A policy of images needs their size.")
                return [module.in_channels, *image_size]
        for _, module in self.with_weights():
            return [module.weight.shape[1]]
        raise errors.UserError("The policy has no layer with weights: nothing to export.")


def policy_network(model: base_class.BaseAlgorithm, num_masked: int = 0) -> PolicyNetwork:
    """Returns the acting path of an SB3 model: no value function, no target networks.

    Args:
      model: A model of SB3 or of sb3-contrib.
      num_masked: Length of the mask of allowed actions that observations end with, as those of
        MaskablePPO may; 0: there is none.

    Raises:
      errors.UserError: A layer, a space or an algorithm has no quantized form here.
    """
    policy, observed = model.policy, model.observation_space
    environments.check_observations(observed)
    extractor, parts, squashed = _parts(policy)
    actions = _actions(model.action_space, squashed, _outputs_per_bit(policy))
    traced = tracing.trace(
        policy, extractor, parts, observed, policy.normalize_images, num_masked
    )
    arrays = not traced.fields
    convolved = any(isinstance(module, nn.Conv2d) for _, module in traced.layers)
    size = sum(field.size for field in traced.fields)
    if arrays:
        assert observed.shape is not None  # Boxes and MultiBinary have one.
        size = math.prod(observed.shape)
    return actions._replace(
        layers=traced.layers,
        sources=traced.sources,
        fields=traced.fields,
        image=arrays and policy.normalize_images and preprocessing.is_image_space(observed),
        num_inputs=None if arrays and convolved else size,
    )


def _parts(policy: Any) -> tuple[nn.Module, list[nn.Module], bool]:
    """Returns features extractor, the modules behind it, and whether they end with a tanh."""
    kind = type(policy)
    if any(base.__module__.startswith(_RECURRENT) for base in kind.__mro__):
        raise errors.UserError(names.REFUSED_ALGOS["ppo_lstm"])
    lies = next((_HEADS[base.__module__] for base in kind.__mro__ if base.__module__ in _HEADS), "")
    if lies == "logits" or isinstance(policy, sb3_policies.ActorCriticPolicy):
        parts = [policy.mlp_extractor.policy_net, policy.action_net]
        squashed = policy.squash_output
        return policy.pi_features_extractor, [*parts, *[nn.Tanh()] * squashed], squashed
    if isinstance(policy, dqn_policies.DQNPolicy):
        return policy.q_net.features_extractor, [policy.q_net.q_net], False
    if lies == "quantiles":
        network = policy.quantile_net
        mean = acting_layers.QuantileMean(int(policy.action_space.n))
        return network.features_extractor, [network.quantile_net, mean], False
    if isinstance(policy, td3_policies.TD3Policy):
        return policy.actor.features_extractor, [policy.actor.mu], True
    if lies == "squashed actor" or isinstance(policy, sac_policies.SACPolicy):
        actor = policy.actor
        # The squashed mean is the action without exploration, also with gSDE.
        return actor.features_extractor, [actor.latent_pi, actor.mu, nn.Tanh()], True
    raise errors.UserError(
        f"No acting path is known for {kind.__name__}. Those of A2C, PPO, DQN, DDPG, TD3, SAC, "
        "QR-DQN, TQC and MaskablePPO are."
    )


def _outputs_per_bit(policy: Any) -> int:
    """Returns how many outputs tell one action of a MultiBinary space: MaskablePPO has two."""
    maskable = any(_HEADS.get(base.__module__) == "logits" for base in type(policy).__mro__)
    return 2 if maskable else 1


def _actions(space: gym.Space, squashed: bool, outputs_per_bit: int) -> PolicyNetwork:
    """Returns a network without layers that has the head for a space of actions."""
    if isinstance(space, gym.spaces.Discrete):
        return PolicyNetwork((), "argmax")
    if isinstance(space, gym.spaces.MultiDiscrete) and len(space.shape) == 1:
        return PolicyNetwork((), "argmaxes", sizes=tuple(int(size) for size in space.nvec))
    if isinstance(space, gym.spaces.MultiBinary) and len(space.shape) == 1:
        if outputs_per_bit == 1:
            return PolicyNetwork((), "positive")
        return PolicyNetwork((), "argmaxes", sizes=(outputs_per_bit,) * space.shape[0])
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
        raise errors.UserError(
            f"Actions of {space} have no quantized form here: those of Discrete, MultiDiscrete and "
            "MultiBinary spaces and of Boxes have one, each with one number or one vector."
        )
    return PolicyNetwork(
        (), "scale" if squashed else "clip", np.asarray(space.low, np.float32),
        np.asarray(space.high, np.float32),
    )


def mask_length(space: gym.Space) -> int:
    """Returns the length of a mask of actions, as sb3-contrib defines it."""
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, gym.spaces.MultiBinary):
        return 2 * math.prod(space.shape)
    assert isinstance(space, gym.spaces.Discrete)  # MaskablePPO has no other actions.
    return int(space.n)


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
        return outputs(network, torch.as_tensor(observations), tap)


def outputs(
    network: PolicyNetwork, observations: torch.Tensor, tap: Tap | None = None
) -> torch.Tensor:
    """Returns the last layer's output as `forward` does, but with gradients."""
    x = observations.float() / PIXEL_LEVELS if network.image else observations.float()
    values = {OBSERVATION: x}
    for name, module, sources in network.steps():
        inputs = [values[source] for source in sources]
        if tap is not None and isinstance(module, WITH_WEIGHTS):
            inputs = [tap(name, inputs[0])]
        x = values[name] = acting_layers.call(module, inputs)
    return x if tap is None else tap(OUTPUT, x)


def choices(network: PolicyNetwork, outputs: torch.Tensor) -> list[torch.Tensor]:
    """Returns the outputs of each discrete action [B, its choices] for the last layer's [B, A].

    The largest output of an action is the choice.
    """
    if network.head == "argmaxes":
        return list(outputs.split(network.sizes, dim=1))
    if network.head == "positive":  # The alternative to an action of 1 has the output 0.
        return [
            torch.stack([torch.zeros_like(column), column], dim=1) for column in outputs.unbind(1)
        ]
    return [outputs]


def to_actions(network: PolicyNetwork, outputs: np.ndarray) -> np.ndarray:
    """Returns actions for the last layer's outputs [B, A].

    One discrete action is int64 [B], several are int64 [B, K], and continuous ones float32 [B, A].
    """
    if network.head == "argmax":
        return outputs.argmax(axis=1)
    if network.head == "argmaxes":
        parts = np.split(outputs, np.cumsum(network.sizes)[:-1], axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1)
    if network.head == "positive":
        return (outputs > 0).astype(np.int64)
    assert network.low is not None and network.high is not None
    if network.head == "scale":
        return network.low + 0.5 * (outputs + 1.0) * (network.high - network.low)
    return np.clip(outputs, network.low, network.high)
