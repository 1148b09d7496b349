"""Writes the files of agents that are quantized already, with their own integers and ranges."""

import onnx

from actorQ.core import errors
from baseline.agents import agent as agent_lib
from baseline.agents import integers
from baseline.agents import optional_tensorflow
from baseline.formats import onnx_policy
from baseline.formats import tflite_layers
from baseline.formats import tflite_micro
from baseline.formats import tflite_policy
from baseline.quantization import acting_path
from baseline.quantization import schemes

INTEGER_BITS = 8  # Width of ONNX Runtime's integers.
TFLITE_BITS = tflite_layers.MAX_BITS  # The most; narrower integers take a byte each.


def onnx_file(agent: agent_lib.Agent, normalizes: bool = False) -> onnx.ModelProto:
    """Returns an 8-bit agent as a model that computes with its integers and ranges.

    Args:
      agent: An agent of 8 bits.
      normalizes: Whether the model normalizes observations itself.

    Raises:
      errors.UserError: Weights or activations have other bits, or the agent does not tell its
        integers.
    """
    weights = integers.weights(agent)
    scheme, ranges = integers.with_activations(agent)
    if scheme.width != INTEGER_BITS:
        raise errors.UserError(
            f"{agent.path} has {scheme.bits} bits, but ONNX Runtime computes with {INTEGER_BITS}."
            + (
                " `deploy --format tflite` takes it."
                if scheme.width is not None and scheme.width <= TFLITE_BITS
                else ""
            )
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


def tflite_file(agent: agent_lib.Agent, normalizes: bool = False) -> bytes:
    """Returns an agent of at most 8 bits as a TFLite file, as `onnx_file` does.

    Args:
      agent: An agent of 2 to 8 bits.
      normalizes: Whether the model normalizes observations itself.

    Raises:
      errors.UserError: Weights or activations have more bits, or the agent does not tell its
        integers.
    """
    weights = integers.weights(agent)
    scheme, ranges = integers.with_activations(agent)
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


def tflite_micro_file(agent: agent_lib.Agent, ranges: schemes.Ranges) -> bytes:
    """Returns an 8-bit agent as a TFLite file for TensorFlow Lite Micro.

    Weights have no zero points there, so that some are rounded again. Those of a channel keep their
    integers where all of them lie within 127 of the zero point.

    Args:
      agent: An agent of 8 bits.
      ranges: Its ranges of activations, and that of the output, see `tflite_micro.export`.

    Raises:
      errors.UserError: The agent does not tell its integers, or has no such form.
    """
    steps = {name: tensor.scale for name, tensor in integers.weights(agent).items()}
    try:
        return tflite_micro.export(
            agent.network, ranges, steps, agent.normalization, agent.image_size()
        )
    except optional_tensorflow.MissingError:
        raise
    except errors.UserError as error:
        raise errors.UserError(f"{agent.path}: {error}") from None
