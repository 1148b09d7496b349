"""Finds the layers of a policy's acting path by tracing it with torch.fx.

Modules of `acting_layers.KINDS` are layers as they are. Functions and operators that policies call
between them become layers of our own. Everything else is refused by its name.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

import gymnasium as gym
from stable_baselines3.common import preprocessing
from torch import fx
from torch import nn

from actorQ.core import errors
from baseline.quantization import acting_layers
from baseline.quantization import graph_layers

OBSERVATION = graph_layers.OBSERVATION
MASK = "action_mask"  # Names the part of the input that says which actions are allowed.
PIXEL_LEVELS = 255  # Levels above black.


class Field(NamedTuple):
    """One part of a flat observation.

    Attributes:
      name: Its key in a Dict space, OBSERVATION, or MASK.
      shape: Shape of its numbers as the environment gives them.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Count of its numbers."""
        return math.prod(self.shape)


class Traced(NamedTuple):
    """The layers of an acting path.

    Attributes:
      layers: Names and modules, in the order in which they are computed.
      sources: Names of a layer's inputs, where these are others than the layer before it.
      fields: Parts of the flat observation; none where observations are arrays.
    """

    layers: tuple[tuple[str, nn.Module], ...]
    sources: Mapping[str, tuple[str, ...]]
    fields: tuple[Field, ...] = ()


def fields_of(space: gym.Space, num_masked: int = 0) -> tuple[Field, ...]:
    """Returns the parts of flat observations: the keys of a Dict in order, then the mask.

    Args:
      space: The model's space of observations.
      num_masked: Length of the mask of actions that the observation ends with; 0: no mask.
    """
    parts = dict(space.spaces) if isinstance(space, gym.spaces.Dict) else {OBSERVATION: space}
    fields = [Field(str(name), _raw_shape(part)) for name, part in parts.items()]
    if num_masked:
        fields.append(Field(MASK, (num_masked,)))
    return tuple(fields)


def is_flat(space: gym.Space) -> bool:
    """Returns whether observations become flat vectors, since they are no plain arrays."""
    return not isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary)


def trace(
    policy: nn.Module,
    extractor: nn.Module,
    parts: Sequence[nn.Module],
    space: gym.Space,
    normalize_images: bool,
    num_masked: int = 0,
) -> Traced:
    """Traces a policy from its observations to its last outputs.

    Args:
      policy: The policy, whose modules the layers are named after.
      extractor: Its features extractor.
      parts: The modules that compute the outputs from the features, one after the other.
      space: The model's space of observations.
      normalize_images: Whether bytes of images become 0 to 1.
      num_masked: Length of the mask of actions that the observation ends with; 0: no mask.

    Raises:
      errors.UserError: The path has a part without a quantized form, whose name is given.
    """
    flat = is_flat(space) or num_masked > 0
    fields = fields_of(space, num_masked) if flat else ()
    shape = (sum(field.size for field in fields),) if flat else _raw_shape(space)
    path = graph_layers.Path(shape)
    keys = list(space.spaces) if isinstance(space, gym.spaces.Dict) else None
    actor = _Actor(policy, extractor, parts, keys)
    try:
        graph = _Tracer().trace(actor)
    except Exception as error:  # A stranger's module may do anything with what it is given.
        raise errors.UserError(
            f"The policy cannot be traced, so that its layers are not known (features extractor "
            f"{type(extractor).__name__}): {errors.summary(error)}"
        ) from None
    encoded = _encoded(path, space, fields, normalize_images)
    output = graph_layers.Reader(path, actor, encoded).read(graph)
    if num_masked:
        start = sum(field.size for field in fields[:-1])
        mask = path.add(MASK, acting_layers.Part(start, (num_masked,)), OBSERVATION)
        output = path.add("masked", acting_layers.Masked(), output, mask)
    return Traced(*path.needed_for(output), fields)


def _encoded(
    path: graph_layers.Path, space: gym.Space, fields: Sequence[Field], normalize_images: bool
) -> graph_layers.Name | dict[str, graph_layers.Name]:
    """Adds the layers that encode flat observations, as SB3's `preprocess_obs` does.

    Returns:
      The name of the encoded observation, or names by key.
    """
    if not fields:
        return graph_layers.Name(OBSERVATION)
    spaces = dict(space.spaces) if isinstance(space, gym.spaces.Dict) else {OBSERVATION: space}
    encoded: dict[str, graph_layers.Name] = {}
    start = 0
    for (key, part), field in zip(spaces.items(), fields, strict=False):  # A mask has no space.
        image = normalize_images and preprocessing.is_image_space(part)
        divisor = float(PIXEL_LEVELS) if image else 1.0
        name = graph_layers.Name(OBSERVATION)
        if len(fields) > 1 or len(field.shape) > 1:
            cut = acting_layers.Part(start, field.shape, divisor)
            name = path.add(f"{OBSERVATION}.{field.name}", cut, OBSERVATION)
        if isinstance(part, gym.spaces.Discrete):
            name = path.add(f"{name}.one_hot", acting_layers.OneHot([int(part.n)]), name)
        elif isinstance(part, gym.spaces.MultiDiscrete):
            one_hot = acting_layers.OneHot([int(size) for size in part.nvec])
            name = path.add(f"{name}.one_hot", one_hot, name)
        encoded[key] = name
        start += field.size
    return encoded if isinstance(space, gym.spaces.Dict) else encoded[OBSERVATION]


def _raw_shape(space: gym.Space) -> tuple[int, ...]:
    """Returns the shape of one observation; a whole number is a vector of one."""
    if isinstance(space, gym.spaces.Discrete):
        return (1,)
    assert space.shape is not None  # Boxes, MultiBinary and MultiDiscrete have one.
    return tuple(space.shape)


class _Actor(nn.Module):
    """Computes a policy's last outputs. Only `policy` is registered, so that it names the layers.

    The other modules are parts of the policy, or stand for steps that it has no module for.
    """

    def __init__(
        self,
        policy: nn.Module,
        extractor: nn.Module,
        parts: Sequence[nn.Module],
        keys: Sequence[str] | None,
    ):
        super().__init__()
        self.policy = policy
        known = set(policy.modules())
        for part in parts:
            if part not in known:
                self.add_module(
                    "squash" if isinstance(part, nn.Tanh) else type(part).__name__.lower(), part
                )
        self._path = (extractor, *parts)  # A tuple registers nothing.
        self._keys = keys

    def forward(self, observation: Any) -> Any:
        """Returns the outputs [B, A] for encoded observations."""
        x = observation
        if self._keys is not None:  # Extractors may ask a dictionary for its items.
            x = {key: observation[key] for key in self._keys}
        for module in self._path:
            x = module(x)
        return x


class _Tracer(fx.Tracer):
    """Takes torch's modules, and ours, as layers; looks into all others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Returns whether a module is a layer."""
        del module_qualified_name
        if isinstance(m, nn.Sequential):
            return False
        return graph_layers.kind_of(m) is not None or type(m).__module__.startswith("torch.nn.")
