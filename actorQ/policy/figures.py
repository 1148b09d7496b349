"""Figures of what quantization does to a policy: to its weights, and to what it does.

`wire.meter` measures them for the versions that a run publishes. Imports no framework.
"""

from collections.abc import Mapping

import numpy as np

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy import reference

Tensors = Mapping[str, model_update.Tensor]

AT_BOUND = 0.99  # Actions beyond this are at a bound, as in an evaluation's `actions_at_bounds`.
_MOST_WEIGHTS = 32_768  # Weights of a layer that are looked at.


def sampled_weights(tensors: Tensors) -> dict[str, model_update.Tensor]:
    """Returns matrices and convolutions with some of their output channels.

    The channels are evenly spaced, and the same for every version. They hold at most 32,768 weights
    of a layer, so that large networks cost no more than small ones.

    Args:
      tensors: Weights with torch's names and layouts, in the form of a message.
    """
    sampled: dict[str, model_update.Tensor] = {}
    for name, tensor in tensors.items():
        shape = model_update.shape_of(tensor)
        if len(shape) < 2:
            continue
        rows = slice(None, None, _step(shape[0], int(np.prod(shape[1:]))))
        if isinstance(tensor, quantization.QuantizedTensor):
            scale = tensor.scale[rows] if tensor.scale.size > 1 else tensor.scale
            tensor = tensor._replace(values=tensor.values[rows], scale=scale)
        elif isinstance(tensor, model_update.Bfloat16):
            tensor = model_update.Bfloat16(tensor.upper[rows])
        else:
            tensor = tensor[rows]
        sampled[name] = tensor
    return sampled


def sampled_variables(variables: Tensors) -> dict[str, np.ndarray]:
    """Returns the same channels of the learner's weights, with torch's names and layouts.

    Args:
      variables: Weights with TensorFlow's names and layouts, whose last axis has the outputs.
    """
    sampled: dict[str, model_update.Tensor] = {}
    for name, tensor in variables.items():
        shape = model_update.shape_of(tensor)
        if len(shape) < 2:
            continue
        step = _step(shape[-1], int(np.prod(shape[:-1])))
        if isinstance(tensor, model_update.Bfloat16):
            sampled[name] = model_update.Bfloat16(tensor.upper[..., ::step])
        else:
            sampled[name] = model_update.to_float32(tensor)[..., ::step]
    return forms.from_sonnet(sampled)


def _step(channels: int, weights: int) -> int:
    """Returns the distance between two channels of `weights` weights each."""
    return -(-channels // max(1, _MOST_WEIGHTS // weights))


def changed_share(before: Tensors, now: Tensors) -> float:
    """Returns the share of numbers in two versions' weights that differ, 0 to 1.

    Integers are compared as they are: a new scale alone changes none of them.

    Args:
      before: Weights of the version before.
      now: Weights of the same names and shapes.
    """
    stored = [
        (model_update.stored_values(before[name]), model_update.stored_values(tensor))
        for name, tensor in now.items()
    ]
    changed = sum(int(np.count_nonzero(old != new)) for old, new in stored)
    return changed / sum(new.size for _, new in stored)


def weight_errors(weights: Mapping[str, np.ndarray], tensors: Tensors) -> dict[str, float]:
    """Returns each layer's relative error, |W - Q(W)| / |W| with the norms of Frobenius.

    Args:
      weights: float32 weights `layer.weight`.
      tensors: The same weights in the form that actors compute with.

    Returns:
      Layer to error; 0 for a layer of zeros.
    """
    found = {}
    for name, weight in weights.items():
        norm = np.linalg.norm(weight)
        error = np.linalg.norm(weight - model_update.to_float32(tensors[name]))
        found[name.removesuffix(".weight")] = float(error / norm) if norm else 0.0
    return found


def compare_policies(
    architecture: architecture_lib.PolicyArchitecture,
    weights: Tensors,
    tensors: Tensors,
    observations: np.ndarray,
    activations: reference.Activations,
    together: int = 1,
) -> dict[str, float]:
    """Compares the full-precision policy with the actors', for the same observations.

    Args:
      architecture: Layers of the policy.
      weights: The learner's weights with torch's names and layouts.
      tensors: The same weights in the form that actors compute with.
      observations: float32 [B, D], or pixels uint8 [B, H, W, C].
      activations: Decides how actors quantize the inputs of their layers.
      together: Observations in one call of an actor; B is a multiple of it.

    Returns:
      Columns of `telemetry.METER_FIELDS`, and the range of each layer's outputs, before tanh or
      ReLU, in full precision.
    """
    found = {
        "observations": len(observations),
        "observation_low": float(observations.min()),
        "observation_high": float(observations.max()),
    }

    def watch(layer: str, numbers: np.ndarray) -> None:
        found[f"activation_low_{layer}"] = float(numbers.min())
        found[f"activation_high_{layer}"] = float(numbers.max())

    outputs = reference.forward(architecture, weights, observations, watch=watch)
    acting = reference.forward(architecture, tensors, observations, activations, together)
    if architecture.head == architecture_lib.Q_VALUES_HEAD:
        return found | _compare_values(outputs, acting)
    return found | _compare_actions(outputs, acting)


def _compare_actions(actions: np.ndarray, acting: np.ndarray) -> dict[str, float]:
    """Compares actions [B, A] in [-1, 1]."""
    distances = np.abs(actions - acting)
    return {
        "action_distance": float(distances.mean()),
        "action_distance_max": float(distances.max()),
        "actions_at_bounds": float(np.mean(np.abs(actions) > AT_BOUND)),
        "quantized_actions_at_bounds": float(np.mean(np.abs(acting) > AT_BOUND)),
    }


def _compare_values(values: np.ndarray, acting: np.ndarray) -> dict[str, float]:
    """Compares Q-values [B, A]; the full-precision ones say what another choice loses."""
    chosen = acting.argmax(axis=1)
    taken = np.take_along_axis(values, chosen[:, None], axis=1)[:, 0]
    return {
        "agreement": float(np.mean(values.argmax(axis=1) == chosen)),
        "lost_q": float(np.mean(values.max(axis=1) - taken)),
    }
