"""Writes the files of quantization-aware training: a plain agent, its integers, integer models.

- The agent's zip has plain layers with the values of its integers: SB3's own loader takes it.
- `quantization.json` beside it lets `finding.load` quantize activations as in training. It has the
  form of post-training quantization's, with the ranges of the weights as well.
- `packed.safetensors` has the integers, packed to their width.
- `policy.onnx` and `policy.tflite` are models that compute with the integers.
"""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

import numpy as np
import onnx

from actorQ.core import errors
from actorQ.core import files
from actorQ.policy import quantization
from baseline.agents import agent as agent_lib
from baseline.agents import optional_tensorflow
from baseline.formats import onnx_policy
from baseline.formats import tflite_layers
from baseline.formats import tflite_micro
from baseline.formats import tflite_policy
from baseline.quantization import acting_path
from baseline.quantization import names
from baseline.quantization import packed_policy
from baseline.quantization import schemes

PACKED_FILENAME = "packed.safetensors"
ONNX_FILENAME = "policy.onnx"
TFLITE_FILENAME = "policy.tflite"
INTEGER_BITS = 8  # Width of ONNX Runtime's integers.
TFLITE_BITS = tflite_layers.MAX_BITS  # The most; narrower integers take a byte each.
# Exceptions from a quantization.json that holds other things than numbers.
_DAMAGE = (LookupError, TypeError, ValueError, OverflowError, AttributeError)


def write(facts: Mapping[str, Any], path: pathlib.Path) -> None:
    """Writes `quantization.json` beside an agent's zip, unless it is not quantized.

    Args:
      facts: what `qat_model.convert` returned for the model that was saved.
      path: path of the zip, in the zoo's layout.

    Raises:
      errors.UserError: a file cannot be written.
    """
    if facts:
        files.write(_beside(path) / schemes.FILENAME, json.dumps(facts, indent=1))


def is_trained(path: pathlib.Path) -> bool:
    """Returns whether an agent has integers of its training, as `write` notes them.

    Raises:
      errors.UserError: the file is damaged.
    """
    return bool(_noted(path))


def training_facts(path: pathlib.Path) -> dict[str, Any]:
    """Returns the settings of an agent's training with quantization; for a control, none.

    Args:
      path: path of its zip.

    Returns:
      `quant_delay`, `ranges` and `widths` as rows have them (no `widths`: ""), `input_bits`,
      `output_bits` (None: its output is not quantized), and `granularity`.

    Raises:
      errors.UserError: the agent was quantized otherwise, or the file is damaged.
    """
    if not (_beside(path) / schemes.FILENAME).exists():
        return {}
    facts = _facts(path)
    try:
        # The layers are in order; a range names its bits only where these are others.
        bits = {
            name: int(own[0] if own else facts["bits"])
            for name, (_, _, *own) in facts["ranges"].items()
        }
        return {
            **facts["training"],
            "input_bits": next(iter(bits.values())),
            "output_bits": bits.get(acting_path.OUTPUT),
            "granularity": facts.get("granularity", names.PAPER),
        }
    except (*_DAMAGE, StopIteration):
        raise errors.UserError(
            f"The facts about the quantization of {path} are damaged: train it again."
        ) from None


def integer_weights(agent: agent_lib.Agent) -> dict[str, quantization.QuantizedTensor]:
    """Returns the integers of an agent's weights by layer, with the maps of its training.

    Raises:
      errors.UserError: the agent was not trained with quantization, rounds down, or its files do
        not fit.
    """
    facts = _facts(agent.path)
    if _quantization(agent)[0].rounding != "nearest":
        raise errors.UserError(f"{agent.path} rounds down, which its integer forms do not.")
    tensors = {}
    for name, module in agent.network.with_weights():
        reals = module.weight.detach().numpy()
        try:
            *ends, own = (*facts["weight_ranges"][name], facts["bits"])[:3]
            bits = int(own)
            low, high = (np.asarray(end, np.float32) for end in ends)
            affine = quantization.affine_map(low, high, bits)
            if affine.delta.shape not in ((), reals.shape[:1]) or facts["ranges"] is None:
                raise ValueError(f"ranges of another shape for {name}, or none")
        except _DAMAGE as error:
            raise errors.UserError(
                f"The facts about the quantization of {agent.path} are damaged: {error}."
            ) from None
        tensor = quantization.QuantizedTensor(
            quantization.affine_values(reals, affine, bits),
            np.atleast_1d(affine.delta),
            affine.zero_point if affine.zero_point.ndim else int(affine.zero_point),
            bits,
        )
        if not np.array_equal(quantization.dequantize(tensor), reals):
            raise errors.UserError(
                f"The weights of {agent.path} do not fit {schemes.FILENAME} beside it."
            )
        tensors[name] = tensor
    return tensors


def packed(agent: agent_lib.Agent) -> packed_policy.Policy:
    """Returns an agent's integers, biases and ranges.

    Raises:
      errors.UserError: see `integer_weights`.
    """
    biases = {
        name: module.bias.detach().numpy()
        for name, module in agent.network.with_weights()
        if module.bias is not None
    }
    return packed_policy.Policy(integer_weights(agent), biases, _quantization(agent)[1])


def ranges_with_bits(agent: agent_lib.Agent) -> schemes.Ranges:
    """Returns the ranges of activations, each with its bits.

    Raises:
      errors.UserError: the agent was not trained with quantization.
    """
    scheme, ranges = _quantization(agent)
    bits = int(scheme.bits)
    return {name: (low, high, *(own or (bits,))) for name, (low, high, *own) in ranges.items()}


def num_bytes(agent: agent_lib.Agent) -> int:
    """Returns the size of the acting path's parameters: packed, where they are integers."""
    if agent.quantization is not None:
        return packed_policy.num_bytes(packed(agent))
    return sum(
        4 * parameter.numel()
        for _, module in agent.network.with_weights()
        for parameter in module.parameters()
    )


def write_packed(agent: agent_lib.Agent) -> pathlib.Path:
    """Writes the integers beside an agent; returns the file.

    Raises:
      errors.UserError: see `integer_weights`; or the file cannot be written.
    """
    path = _beside(agent.path) / PACKED_FILENAME
    packed_policy.write(path, packed(agent))
    return path


def export(agent: agent_lib.Agent, normalizes: bool = False) -> onnx.ModelProto:
    """Returns an 8-bit agent as a model that computes with its integers and ranges.

    Args:
      agent: an agent trained with 8 bits.
      normalizes: whether the model normalizes observations itself.

    Raises:
      errors.UserError: weights or activations have other bits, or the agent was not trained with
        quantization.
    """
    weights = integer_weights(agent)
    scheme, ranges = _quantization(agent)
    if scheme.width != INTEGER_BITS:
        raise errors.UserError(
            f"{agent.path} has {scheme.bits} bits, but ONNX Runtime computes with {INTEGER_BITS}: "
            + (
                "`deploy --format tflite` takes it, and "
                if scheme.width is not None and scheme.width <= TFLITE_BITS
                else ""
            )
            + f"{PACKED_FILENAME} beside it has its integers, packed."
        )
    for name, tensor in weights.items():
        if tensor.bits != INTEGER_BITS:
            raise errors.UserError(
                f"{agent.path}: the weights of {name} have {tensor.bits} bits, but ONNX Runtime "
                f"computes with {INTEGER_BITS}."
            )
    for name, (_, _, *own) in ranges.items():
        if own and own[0] != INTEGER_BITS:
            what = "output has" if name == acting_path.OUTPUT else f"input of {name} has"
            raise errors.UserError(
                f"{agent.path}: the {what} {own[0]} bits, but ONNX Runtime computes with "
                f"{INTEGER_BITS}."
            )
    ends = {name: (low, high) for name, (low, high, *_) in ranges.items()}
    return onnx_policy.export(
        agent.network, INTEGER_BITS, ends, scheme.granularity,
        normalization=agent.normalization if normalizes else None, weights=weights,
        image_size=agent.image_size(),
    )


def export_tflite(agent: agent_lib.Agent, normalizes: bool = False) -> bytes:
    """Returns an agent of at most 8 bits as a TFLite file, as `export` does.

    Args:
      agent: an agent trained with 2 to 8 bits.
      normalizes: whether the model normalizes observations itself.

    Raises:
      errors.UserError: weights or activations have more bits, or the agent was not trained with
        quantization.
    """
    weights = integer_weights(agent)
    scheme, ranges = _quantization(agent)
    assert scheme.width is not None  # The weights are integers.
    try:
        return tflite_policy.export(
            agent.network, ranges, weights, scheme.width,
            agent.normalization if normalizes else None, agent.image_size(),
        )
    except optional_tensorflow.MissingError:
        raise
    except errors.UserError as error:
        raise errors.UserError(f"{agent.path}: {error}") from None


def export_tflite_micro(agent: agent_lib.Agent, ranges: schemes.Ranges) -> bytes:
    """Returns an 8-bit agent as a TFLite file for TensorFlow Lite Micro.

    Weights have no zero points there, so that some are rounded again. Those of a channel keep their
    integers where all of them lie within 127 of the zero point.

    Args:
      agent: an agent trained with 8 bits.
      ranges: ranges of its training, and that of the output, see `tflite_micro.export`.

    Raises:
      errors.UserError: the agent was not trained with quantization, or has no such form.
    """
    steps = {name: tensor.scale for name, tensor in integer_weights(agent).items()}
    try:
        return tflite_micro.export(
            agent.network, ranges, steps, agent.normalization, agent.image_size()
        )
    except optional_tensorflow.MissingError:
        raise
    except errors.UserError as error:
        raise errors.UserError(f"{agent.path}: {error}") from None


def _quantization(agent: agent_lib.Agent) -> tuple[schemes.Scheme, schemes.Ranges]:
    """Returns how an agent was quantized in its training, which `_facts` has established."""
    if agent.quantization is None or agent.quantization[1] is None:
        raise errors.UserError(f"{agent.path} was not trained with quantized activations.")
    return agent.quantization[0], agent.quantization[1]


def _beside(path: pathlib.Path) -> pathlib.Path:
    return path.parent / path.stem


def _facts(path: pathlib.Path) -> Mapping[str, Any]:
    if facts := _noted(path):
        return facts
    raise errors.UserError(f"{path} was not trained with quantization: see baseline.qat.")


def _noted(path: pathlib.Path) -> Mapping[str, Any]:
    """Returns the facts that `write` wrote beside an agent's zip; none without that file."""
    facts_path = _beside(path) / schemes.FILENAME
    try:
        facts = json.loads(facts_path.read_text())
        return facts if "weight_ranges" in facts else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise errors.UserError(f"Cannot read {facts_path}: {errors.summary(error)}") from None
