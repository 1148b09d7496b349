"""The shape of a policy, told once for TensorFlow, torch and the checks of messages.

Imports no framework.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from actorQ.environments import base

TANH_HEAD = "tanh"  # Deterministic policy: actions in [-1, 1].
Q_VALUES_HEAD = "q_values"  # One value for each action.

HEAD = "head"  # Name of the last layer.

# The convolutional torso of DQN (Mnih et al. 2015): filters, kernel size, stride; ReLU, no padding.
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


def smallest_image() -> int:
    """Returns how many pixels each way the convolutional torso needs at least."""
    size = 1
    for _, kernel, stride in reversed(CONVOLUTIONS):
        size = (size - 1) * stride + kernel
    return size


@dataclasses.dataclass(frozen=True)
class PolicyArchitecture:
    """Layers of a policy or Q-network.

    Vector observations go straight into the hidden layers; pixels (uint8 [H, W, C]) are divided
    by 255 and pass the convolutional torso first, whose output is flattened in H, W, C order.
    Every hidden layer is followed by tanh; the head is linear, with a tanh behind it for actions.

    Attributes:
      observation_shape: [D], or [H, W, C] for pixels.
      hidden_sizes: units of the hidden layers.
      num_outputs: action dimensions, or number of discrete actions.
      head: TANH_HEAD or Q_VALUES_HEAD.
    """

    observation_shape: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    num_outputs: int
    head: str

    @property
    def pixels(self) -> bool:
        """Whether observations are images."""
        return len(self.observation_shape) == 3

    @property
    def convolutions(self) -> tuple[tuple[str, int, int, int, int], ...]:
        """Name, input channels, filters, kernel size and stride of every convolution."""
        if not self.pixels:
            return ()
        channels = self.observation_shape[2]
        layers = []
        for index, (filters, kernel, stride) in enumerate(CONVOLUTIONS):
            layers.append((f"conv_{index}", channels, filters, kernel, stride))
            channels = filters
        return tuple(layers)

    @property
    def linears(self) -> tuple[tuple[str, int, int], ...]:
        """Name, inputs and outputs of every linear layer, the head last."""
        if self.pixels:
            height, width, channels = self.observation_shape
            for _, _, channels, kernel, stride in self.convolutions:  # noqa: B007
                height = (height - kernel) // stride + 1
                width = (width - kernel) // stride + 1
            inputs = height * width * channels
        else:
            inputs = math.prod(self.observation_shape)
        layers = []
        for index, units in enumerate(self.hidden_sizes):
            layers.append((f"linear_{index}", inputs, units))
            inputs = units
        layers.append((HEAD, inputs, self.num_outputs))
        return tuple(layers)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of all layers, first to last."""
        return tuple(layer[0] for layer in (*self.convolutions, *self.linears))

    @property
    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape of every weight in the wire's (= torch's) layout, output channel first."""
        shapes = {}
        for name, inputs, filters, kernel, _ in self.convolutions:
            shapes[f"{name}.weight"] = (filters, inputs, kernel, kernel)
            shapes[f"{name}.bias"] = (filters,)
        for name, inputs, outputs in self.linears:
            shapes[f"{name}.weight"] = (outputs, inputs)
            shapes[f"{name}.bias"] = (outputs,)
        return shapes

    def to_json(self) -> dict[str, Any]:
        """Returns plain data from which `from_json` rebuilds this object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "PolicyArchitecture":
        """Undoes `to_json`."""
        return cls(
            observation_shape=tuple(data["observation_shape"]),
            hidden_sizes=tuple(data["hidden_sizes"]),
            num_outputs=int(data["num_outputs"]),
            head=str(data["head"]),
        )


def make(spec: base.EnvironmentSpec, hidden_sizes: tuple[int, ...]) -> PolicyArchitecture:
    """Returns the architecture for an environment: Q-values for discrete actions, else a policy."""
    return PolicyArchitecture(
        observation_shape=tuple(spec.observation_shape),
        hidden_sizes=hidden_sizes,
        num_outputs=spec.num_actions if spec.discrete else spec.action_size,
        head=Q_VALUES_HEAD if spec.discrete else TANH_HEAD,
    )


def computes_in_int4(layer: str, axes: int) -> bool:
    """Returns whether the int4 scheme has 4 bits for a layer's weights, or else 8.

    Convolutions and the head stay at 8: convolutions are under a twentieth of Nature's network,
    the head under a hundredth of a 3x2048 policy. And a coarse head confuses Q-values, which
    differ little between actions (CartPole, 3x256: two policies that reach 197 and 200 this way
    reach 146 and 160 with a head of 4 bits).

    Args:
      layer: its name.
      axes: of the weights.
    """
    return axes == 2 and layer != HEAD
