"""Converts the learner's fp32 weights to the form in which actors receive them.

The broadcaster runs this, so that the learner spends no time on it. Imports neither the learner's
framework nor the actors'.
"""

from collections.abc import Mapping

import numpy as np

from actorQ.core import errors
from actorQ.core import precisions
from actorQ.policy import architecture
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import convert

LEARNER_SCHEME = "sonnet_float32"  # Learner to broadcaster: TensorFlow's names and layouts.
_INTEGERS = {scheme: bits for bits, scheme in precisions.SCHEMES.items() if bits <= 8}


def from_sonnet(variables: Mapping[str, model_update.Tensor]) -> dict[str, np.ndarray]:
    """Renames and transposes TensorFlow's weights to torch's names and layouts.

    Weights are matched by name, never by order:

    * `linear_0/w` [in, out] becomes `linear_0.weight` [out, in].
    * `conv_0/w` [height, width, in, out] becomes `conv_0.weight` [out, in, height, width].
    * `/b` becomes `.bias`.

    Raises:
      errors.MessageError: A name or a number of axes is not one of these.
    """
    converted = {}
    for name, tensor in variables.items():
        layer, _, kind = name.rpartition("/")
        shape = model_update.shape_of(tensor)
        if isinstance(tensor, quantization.QuantizedTensor):
            raise errors.MessageError(f"The learner's weights {name!r} are quantized.")
        if kind == "b" and len(shape) == 1:
            converted[f"{layer}.bias"] = model_update.to_float32(tensor)
        elif kind == "w" and len(shape) == 2:
            converted[f"{layer}.weight"] = convert.transposed(tensor)
        elif kind == "w" and len(shape) == 4:
            array = model_update.to_float32(tensor).transpose(3, 2, 0, 1)
            converted[f"{layer}.weight"] = np.ascontiguousarray(array)
        else:
            raise errors.MessageError(f"Cannot convert the weights {name!r} {list(shape)}.")
    return converted


def for_actors(
    update: model_update.ModelUpdate,
    quantize: int,
    quantize_communication: int = 32,
    weight_compress: bool = False,
) -> model_update.ModelUpdate:
    """Returns the weights that the learner pushed in the actors' form; see `to_actor_form`.

    Raises:
      errors.MessageError: It is not a push of a learner, or its weights are unusable.
    """
    if update.scheme != LEARNER_SCHEME:
        raise errors.MessageError(
            f"The broadcaster table holds weights of scheme {update.scheme!r}, expected "
            f"{LEARNER_SCHEME!r}: are the table names mixed up?"
        )
    try:
        return learner_to_actor_form(
            update.tensors, update.version, quantize, quantize_communication, weight_compress
        )
    except ValueError as error:
        raise errors.MessageError(
            f"The learner's weights of version {update.version} are unusable: {error}"
        ) from None


def learner_to_actor_form(
    variables: Mapping[str, model_update.Tensor],
    version: int,
    quantize: int,
    quantize_communication: int = 32,
    weight_compress: bool = False,
) -> model_update.ModelUpdate:
    """Returns `to_actor_form(from_sonnet(variables), ...)`, in one pass where there is a kernel.

    Raises:
      errors.MessageError: See `from_sonnet`.
      ValueError: See `to_actor_form`.
    """
    settings = (version, quantize, quantize_communication, weight_compress)
    if quantize > 8 or quantize_communication < quantize:
        return to_actor_form(from_sonnet(variables), *settings)
    tensors: dict[str, model_update.Tensor] = {}
    for name, tensor in variables.items():
        layer, axes = name.removesuffix("/w"), len(model_update.shape_of(tensor))
        is_matrix = name.endswith("/w") and axes == 2
        if is_matrix and not isinstance(tensor, quantization.QuantizedTensor):
            in_groups = quantize < 8 and architecture.computes_in_int4(layer, axes)
            if in_groups:
                tensors[f"{layer}.weight"] = convert.int4_groups(tensor, quantize)
            else:
                tensors[f"{layer}.weight"] = convert.int8_channels(tensor)
        else:
            tensors |= to_actor_form(from_sonnet({name: tensor}), *settings).tensors
    return model_update.ModelUpdate(version, precisions.SCHEMES[quantize], tensors)


def to_actor_form(
    weights: Mapping[str, np.ndarray],
    version: int,
    quantize: int,
    quantize_communication: int = 32,
    weight_compress: bool = False,
) -> model_update.ModelUpdate:
    """Quantizes weights for the wire and for the actors' arithmetic.

    Matrices and convolutions (axes >= 2) travel as follows:

    * `quantize_communication` below `quantize`: They become integers of that width, with one scale
      and zero point for each tensor. The actor expands them to its own form, and up to 7 bits fit
      into int8 exactly.
    * Otherwise they have the actor's own form: fp32, fp16, int8 per output channel, or 4 or 3 bits
      per group of inputs (where `architecture.computes_in_int4` says so).
    * `weight_compress`: Everything that is still wider than 8 bits becomes 8-bit integers.

    Biases are under 0.1 % of a 3x2048 policy. They travel and add in fp32, unless
    `weight_compress` makes them 8-bit integers too.

    Args:
      weights: float32 arrays with torch's names and layouts.
      version: Learner steps.
      quantize: 32, 16, 8, 4 or 3.
      quantize_communication: 2 to 32.
      weight_compress: See above.

    Raises:
      ValueError: The weights hold NaN or infinity, or a width is not possible.
    """
    wire_bits = min(quantize_communication, 8) if weight_compress else quantize_communication
    tensors: dict[str, model_update.Tensor] = {}
    for name, array in weights.items():
        if array.ndim < 2:
            tensors[name] = quantization.quantize_affine(array, 8) if weight_compress else array
        elif wire_bits < quantize:
            tensors[name] = quantization.quantize_affine(array, wire_bits)
        elif quantize <= 8:
            tensors[name] = _to_integers(name, array, quantize)
        elif quantize == 16:
            if not np.all(np.isfinite(array)):
                raise ValueError(f"The weights {name!r} hold NaN or infinity.")
            tensors[name] = _to_float16(array)
        else:
            tensors[name] = array
    return model_update.ModelUpdate(version, precisions.SCHEMES[quantize], tensors)


def expand(update: model_update.ModelUpdate) -> dict[str, model_update.Tensor]:
    """Turns the tensors of a message into those that the scheme computes with.

    Returns:
      Name to tensor. Biases are float32. Weights are float32, float16, int8 per output channel, or
      4 or 3 bits per group, as `update.scheme` says.
    """
    expanded: dict[str, model_update.Tensor] = {}
    for name, tensor in update.tensors.items():
        if isinstance(tensor, model_update.Bfloat16):
            tensor = model_update.to_float32(tensor)
        if len(model_update.shape_of(tensor)) < 2 or update.scheme == precisions.SCHEMES[32]:
            expanded[name] = model_update.to_float32(tensor)
        elif update.scheme in _INTEGERS:
            expanded[name] = _to_integers(name, tensor, _INTEGERS[update.scheme])
        else:
            expanded[name] = _to_float16(tensor)
    return expanded


def _to_integers(
    name: str, tensor: model_update.Tensor, bits: int
) -> quantization.QuantizedTensor:
    """Returns a matrix or convolution in the form that actors at 8, 4 or 3 bits compute with."""
    layer, axes = name.rpartition(".")[0], len(model_update.shape_of(tensor))
    in_groups = bits < 8 and architecture.computes_in_int4(layer, axes)
    if isinstance(tensor, quantization.QuantizedTensor):
        width, scale_axes = (bits, 2) if in_groups else (8, 1)
        if (tensor.values.dtype, tensor.scale.ndim, tensor.bits) == (np.int8, scale_axes, width):
            return tensor
        if tensor.scale.ndim == 1 and tensor.bits < width:
            if in_groups:
                return quantization.to_int4_groups(tensor, bits)
            return quantization.to_int8_channels(tensor)
    numbers = model_update.to_float32(tensor)
    if in_groups:
        return quantization.quantize_int4_groups(numbers, bits)
    return quantization.quantize_int8_channels(numbers)


def _to_float16(tensor: model_update.Tensor) -> np.ndarray:
    """Returns the tensor in float16, without a copy where it has that form already."""
    if isinstance(tensor, np.ndarray) and tensor.dtype == np.float16:
        return tensor
    return quantization.to_float16(model_update.to_float32(tensor))
