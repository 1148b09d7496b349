"""The shape of a policy, defined once for TensorFlow, torch and the checks of messages.

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
    """Returns the smallest height and width in pixels that the convolutional torso can take."""
    size = 1
    for _, kernel, stride in reversed(CONVOLUTIONS):
        size = (size - 1) * stride + kernel
    return size


@dataclasses.dataclass(frozen=True)
class PolicyArchitecture:
    """Layers of a policy or Q-network.

    Vector observations enter the hidden layers directly. Pixels (uint8 [H, W, C]) are divided by
    255 and pass the convolutional torso first, whose output is flattened in H, W, C order. A tanh
    follows every hidden layer. The head is linear, and a tanh follows it for actions.

    Attributes:
      observation_shape: [D], or [H, W, C] for pixels.
      hidden_sizes: Units of the hidden layers.
      num_outputs: Action dimensions, or number of discrete actions.
      head: TANH_HEAD or Q_VALUES_HEAD.
    """

    observation_shape: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    num_outputs: int
    head: str

    @property
    def pixels(self) -> bool:
        """Says whether observations are images."""
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
        convolutions = [name for name, *_ in self.convolutions]
        return (*convolutions, *(name for name, *_ in self.linears))

    @property
    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape of every weight in the wire's (= torch's) layout, output channel first."""
        shapes: dict[str, tuple[int, ...]] = {}
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
        """Returns the object from which `to_json` made this data."""
        return cls(
            observation_shape=tuple(data["observation_shape"]),
            hidden_sizes=tuple(data["hidden_sizes"]),
            num_outputs=int(data["num_outputs"]),
            head=str(data["head"]),
        )


def of_weights(
    shapes: Mapping[str, tuple[int, ...]], observation_shape: tuple[int, ...], head: str
) -> PolicyArchitecture:
    """Returns the architecture of a policy's weights.

    Args:
      shapes: Shapes of the weights by torch's names, as `parameter_shapes` has them.
      observation_shape: [D], or [H, W, C] for pixels.
      head: TANH_HEAD or Q_VALUES_HEAD.
    """
    linears = sum(name.startswith("linear_") and name.endswith(".weight") for name in shapes)
    return PolicyArchitecture(
        observation_shape=observation_shape,
        hidden_sizes=tuple(shapes[f"linear_{index}.weight"][0] for index in range(linears)),
        num_outputs=shapes[f"{HEAD}.weight"][0],
        head=head,
    )


def make(spec: base.EnvironmentSpec, hidden_sizes: tuple[int, ...]) -> PolicyArchitecture:
    """Returns the architecture for an environment: Q-values for discrete actions, else a policy."""
    num_outputs = spec.action_size if spec.num_actions is None else spec.num_actions
    assert num_outputs is not None  # A task has one of the two.
    return PolicyArchitecture(
        observation_shape=tuple(spec.observation_shape),
        hidden_sizes=hidden_sizes,
        num_outputs=num_outputs,
        head=Q_VALUES_HEAD if spec.discrete else TANH_HEAD,
    )


def computes_in_int4(layer: str, axes: int) -> bool:
    """Returns whether the int4 scheme gives a layer's weights 4 bits; otherwise they have 8.

    Convolutions and the head keep 8 bits, because they are small: convolutions are under a
    twentieth of Nature's network, the head is under a hundredth of a 3x2048 policy. A coarse head
    also confuses Q-values, which differ little between actions. On CartPole with 3x256, two
    policies that reach 197 and 200 this way reach 146 and 160 with a head of 4 bits.

    Args:
      layer: Name of the layer.
      axes: Number of axes of its weights.
    """
    return axes == 2 and layer != HEAD
