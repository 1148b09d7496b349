"""Changes of basis that leave a network's function as it is: folded into the layer before.

An activation f with f(s x) = s f(x) for s > 0 lets scales pass. Nothing else lets rotations pass.
"""


import numpy as np
import torch
from torch import nn

from baseline.quantization import acting_path

_HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU)


def producer(
    network: acting_path.PolicyNetwork, name: str, through: tuple[type[nn.Module], ...]
) -> acting_path.WithWeights | None:
    """Returns the layer whose outputs alone are a layer's inputs, number by number.

    Args:
      network: The acting path.
      name: Name of the layer.
      through: Kinds of layers that may stand between them.

    Returns:
      None where there is none, or where another layer takes its outputs as well.
    """
    sources = {layer: inputs for layer, _, inputs in network.steps()}
    modules = dict(network.layers)
    consumers: dict[str, int] = {}
    for inputs in sources.values():
        for one in inputs:
            consumers[one] = consumers.get(one, 0) + 1
    at = sources[name][0]
    while at != acting_path.OBSERVATION and consumers[at] == 1:
        module = modules[at]
        if isinstance(module, acting_path.WITH_WEIGHTS):
            same = isinstance(module, type(modules[name]))
            return module if same and list(modules.values()).count(module) == 1 else None
        if not isinstance(module, through) or len(sources[at]) != 1:
            return None
        at = sources[at][0]
    return None


def fold_scales(
    network: acting_path.PolicyNetwork, name: str, scales: np.ndarray
) -> bool:
    """Multiplies a layer's weights by scales, and divides the outputs before it by them.

    Args:
      network: The acting path, which changes in place; its function stays.
      name: Name of the layer.
      scales: Positive, one for each input channel, float32 [channels].

    Returns:
      Whether it could be done; if not, nothing has changed.
    """
    before = producer(network, name, _HOMOGENEOUS)
    if before is None:
        return False
    module = dict(network.with_weights())[name]
    _scale_outputs(before, 1.0 / scales)
    with torch.no_grad():
        along = torch.from_numpy(scales).reshape(1, -1, *[1] * (module.weight.ndim - 2))
        module.weight.mul_(along)
    return True


def fold_rotation(
    network: acting_path.PolicyNetwork, name: str, rotation: np.ndarray
) -> bool:
    """Rotates the inputs of a linear layer whose inputs are another one's outputs.

    Args:
      network: The acting path, which changes in place; its function stays.
      name: Name of the layer.
      rotation: Orthogonal matrix, float32 [inputs, inputs].

    Returns:
      Whether it could be done; if not, nothing has changed.
    """
    before = producer(network, name, ())
    if before is None or not isinstance(before, nn.Linear):
        return False
    module = dict(network.with_weights())[name]
    turn = torch.from_numpy(rotation)
    with torch.no_grad():
        module.weight.copy_(module.weight @ turn)
        before.weight.copy_(turn.T @ before.weight)
        if before.bias is not None:
            before.bias.copy_(turn.T @ before.bias)
    return True


def input_maxima(x: torch.Tensor, mean: bool = False) -> np.ndarray:
    """Returns the largest (or mean) absolute input of each channel, float32 [channels].

    Args:
      x: Inputs of a layer, [B, channels, ...].
      mean: Whether to take the mean.
    """
    sizes = x.abs().transpose(0, 1).flatten(1)
    return (sizes.mean(dim=1) if mean else sizes.amax(dim=1)).numpy()


def per_column(module: acting_path.WithWeights, by_channel: np.ndarray) -> np.ndarray:
    """Returns a number of each input channel for every column of a layer's matrix."""
    return np.repeat(by_channel, int(np.prod(module.weight.shape[2:], dtype=int)))


def normalized(scales: np.ndarray) -> np.ndarray:
    """Returns scales whose smallest and largest have the product 1, float32, none of them zero."""
    floor = max(float(scales.max()) * 1e-4, 1e-8)
    kept = np.maximum(scales, floor)
    return (kept / np.sqrt(kept.max() * kept.min())).astype(np.float32)


def _scale_outputs(module: acting_path.WithWeights, factors: np.ndarray) -> None:
    along = torch.from_numpy(factors.astype(np.float32))
    with torch.no_grad():
        module.weight.mul_(along.reshape(-1, *[1] * (module.weight.ndim - 1)))
        if module.bias is not None:
            module.bias.mul_(along)


