"""Writes the layers of a policy as C: their constants, and the calls that compute them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import integer_form
from baseline.formats.c_functions import literal
from baseline.quantization import acting_layers

MOST_INPUTS = 2**31 // (255 * 255)  # More products of 255 and 255 could exceed 32 bits.
_LINE = 96


class Constants:
    """Constant arrays of a file, in order.

    Attributes:
      code: Their definitions.
      num_bytes: Their size.
    """

    def __init__(self) -> None:
        self.code: list[str] = []
        self.num_bytes = 0

    def add(self, name: str, c_type: str, values: np.ndarray) -> str:
        """Adds an array; returns its name."""
        if values.dtype.kind == "f":
            words = [literal(value) for value in values.ravel().tolist()]
        else:
            words = [str(value) for value in values.ravel().tolist()]
        self.num_bytes += values.size * np.dtype(_TYPES[c_type]).itemsize
        self.code.append(
            f"static const {c_type} {name}[{values.size}] = {{\n{_lines(words)}\n}};\n"
        )
        return name


_TYPES = {"float": "f4", "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2",
          "int": "i4", "int32_t": "i4", "int64_t": "i8"}


def _lines(words: Sequence[str]) -> str:
    """Returns words with commas, in lines of some length."""
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) + 2 > _LINE:
            lines.append(line)
            line = ""
        line += f"{word}, " if line else f"    {word}, "
    return "\n".join(text.rstrip() for text in [*lines, line])


class Written(NamedTuple):
    """A layer with weights in C.

    Attributes:
      function: Name of the function that computes it.
      structure: Name of its constant structure.
      integers: Whether it takes `levels`.
    """

    function: str
    structure: str
    integers: bool


def with_weights(
    constants: Constants, index: int, name: str, module: nn.Linear | nn.Conv2d,
    form: integer_form.Form, shapes: tuple[Sequence[int], Sequence[int]],
) -> Written:
    """Adds the constants of a layer with weights.

    Args:
      constants: Where to add them.
      index: Number of the layer, which the constants' names have.
      name: Name of the layer.
      module: The layer.
      form: The policy.
      shapes: Shapes of its input and its output.

    Raises:
      errors.UserError: The layer has no form in C.
    """
    weight, bias = form.weights[name], form.bias(name)
    fields = {"bias": constants.add(f"bias_{index}", "float", bias)}
    convolution = isinstance(module, nn.Conv2d)
    kind = "convolution" if convolution else "linear"
    if isinstance(weight, quantization.QuantizedTensor):
        if weight.values[0].size > MOST_INPUTS:
            raise errors.UserError(
                f"Layer {name} has {weight.values[0].size} inputs: sums of 32 bits hold those of "
                f"{MOST_INPUTS} at most."
            )
        packs = weight.bits <= 4 and not convolution
        grouped = weight.scale.ndim == 2
        function = "grouped4" if grouped else f"{kind}{4 if packs else 8}"
        c_type, values, zero = packed_weights(weight, packs)
        fields["weights"] = constants.add(f"weights_{index}", c_type, values)
        if grouped:
            halves = quantization.to_bfloat16(weight.scale)
            fields["scale"] = constants.add(f"scale_{index}", "uint16_t", halves)
        else:
            fields["scale"] = constants.add(f"scale_{index}", "float", weight.scale)
            fields["zero"] = constants.add(f"zero_{index}", "int16_t", zero)
            fields["scale_step"] = str(int(weight.scale.size > 1))
            fields["zero_step"] = str(int(zero.size > 1))
    else:
        width = 8 * weight.dtype.itemsize
        function = f"{kind}{width}"
        values = weight.view(np.uint16) if width == 16 else weight
        c_type = "uint16_t" if width == 16 else "float"
        fields["weights"] = constants.add(f"weights_{index}", c_type, values)
    if isinstance(module, nn.Conv2d):
        fields |= convolution_fields(name, module, *shapes)
    else:
        fields |= {"inputs": str(weight_shape(module)[1]), "outputs": str(len(bias))}
    structure = f"layer_{index}"
    text = ", ".join(f".{field} = {value}" for field, value in fields.items())
    constants.code.append(f"static const {function}_t {structure} = {{\n{_wrapped(text)}}};\n")
    return Written(function, structure, isinstance(weight, quantization.QuantizedTensor))


def weight_shape(module: nn.Linear | nn.Conv2d) -> tuple[int, ...]:
    """Returns the shape of a layer's weights."""
    return tuple(module.weight.shape)


def _wrapped(text: str) -> str:
    return _lines(text.split(", "))


def packed_weights(
    weight: quantization.QuantizedTensor, packs: bool
) -> tuple[str, np.ndarray, np.ndarray]:
    """Returns the C type of a layer's integers, these as they are stored, and their zero points.

    Args:
      weight: The integers.
      packs: Whether two lie in a byte.
    """
    offset = 0
    if weight.scale.ndim == 2:  # Integers of -7 to 7 become 1 to 15.
        offset = -8
    elif weight.bits == 8 and weight.values.dtype == np.uint8:
        offset = 128
    values = weight.values.astype(np.int16) - offset
    zero = np.atleast_1d(np.asarray(weight.zero_point)).astype(np.int16) - offset
    if packs:
        return "uint8_t", _packed(values), zero
    values = values.astype(np.int8)
    return "int8_t", _in_fours(values) if values.ndim == 2 else values, zero


def padding_of(inputs: int, packs: bool) -> int:
    """Returns how many levels of 0 follow the inputs of a linear layer, as its weights do."""
    return -inputs % (8 if packs else 4)


def _padded(values: np.ndarray, packs: bool, dtype: type[np.integer]) -> np.ndarray:
    rows, columns = values.shape
    padded = np.zeros((rows, columns + padding_of(columns, packs)), dtype)
    padded[:, :columns] = values
    return padded


def _in_fours(values: np.ndarray) -> np.ndarray:
    """Returns rows in the order that `four` of `c_functions` takes."""
    rows = len(values)
    fours = _padded(values, False, np.int8).reshape(rows, -1, 4)
    return fours[:, :, [0, 2, 1, 3]].reshape(rows, -1)


def _packed(values: np.ndarray) -> np.ndarray:
    """Returns rows of numbers of 0 to 15, two in a byte, in the order that `eight` takes."""
    rows = len(values)
    nibbles = _padded(values, True, np.uint8).reshape(rows, -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
    return (nibbles[:, :, 0::2] | (nibbles[:, :, 1::2] << 4)).reshape(rows, -1)


def convolution_fields(
    name: str, module: nn.Conv2d, given: Sequence[int], made: Sequence[int]
) -> dict[str, str]:
    """Returns the sizes of a convolution as fields of its structure."""
    if module.groups != 1 or module.padding_mode != "zeros":
        raise errors.UserError(
            f"Layer {name}, {module}, has no form in C: groups and other padding than zeros have "
            "none."
        )
    (up, _), (left, _) = integer_form.padding(module)
    pairs = {
        "kernel": module.kernel_size, "stride": module.stride, "dilation": module.dilation,
        "before": (up, left),
    }
    channels, height, width = given
    filters, out_height, out_width = made
    numbers = {
        "channels": channels, "height": height, "width": width, "filters": filters,
        "out_height": out_height, "out_width": out_width,
    }
    return {
        **{field: str(number) for field, number in numbers.items()},
        **{field: f"{{{a}; {b}}}".replace(";", ",") for field, (a, b) in pairs.items()},
    }


def activation(module: nn.Module) -> tuple[str, tuple[float, ...]] | None:
    """Returns the function in C of an activation, and its numbers behind x; None: it has none."""
    if isinstance(module, nn.LeakyReLU):
        return "leaky_relu", (module.negative_slope,)
    if isinstance(module, nn.ELU):
        return "elu", (module.alpha,)
    if isinstance(module, nn.Softplus):
        return "softplus", (float(module.beta), float(module.threshold))
    if isinstance(module, nn.GELU):
        return ("gelu_by_tanh" if module.approximate == "tanh" else "gelu"), ()
    if isinstance(module, nn.Hardtanh):
        return "clamp", (module.min_val, module.max_val)
    plain = {
        nn.ReLU: "relu", nn.Tanh: "tanh_of", nn.Sigmoid: "sigmoid", nn.SELU: "selu",
        nn.SiLU: "silu", nn.Mish: "mish",
    }
    name = next((name for kind, name in plain.items() if isinstance(module, kind)), None)
    return None if name is None else (name, ())


def without_weights(
    constants: Constants, index: int, name: str, module: nn.Module, inputs: Sequence[str],
    to: str, sizes: Sequence[int],
) -> tuple[str, tuple[str, ...]]:
    """Returns the statement of a layer without weights, and the functions that it calls.

    Args:
      constants: Where to add its constants.
      index: Number of the layer.
      name: Name of the layer.
      module: The layer, none of nn.Flatten.
      inputs: Its inputs in C.
      to: Its output in C.
      sizes: Numbers of each input, then of the output.

    Raises:
      errors.UserError: The layer has no form in C.
    """
    x, count = inputs[0], sizes[-1]
    found = activation(module)
    if found is not None:
        call = ", ".join([f"{x}[i]", *map(literal, found[1])])
        return _loop(count, f"{to}[i] = {found[0]}({call});"), (found[0],)
    if isinstance(module, nn.LayerNorm):
        arrays = [
            "NULL" if tensor is None
            else constants.add(f"{key}_{index}", "float", tensor.detach().cpu().numpy())
            for key, tensor in (("weights", module.weight), ("bias", module.bias))
        ]
        values = ", ".join([str(count), literal(module.eps), *arrays])
        return f"  layer_norm({x}, {to}, {values});\n", ("layer_norm",)
    if isinstance(module, acting_layers.Part):
        source = f"{x}[{module.start} + i]"
        if module.divisor != 1.0:
            source += f" / {literal(module.divisor)}"
        return _loop(count, f"{to}[i] = {source};"), ()
    if isinstance(module, acting_layers.OneHot):
        columns = constants.add(f"columns_{index}", "int", module.columns.numpy())
        values = constants.add(f"values_{index}", "float", module.values.numpy())
        return _loop(count, f"{to}[i] = {x}[{columns}[i]] == {values}[i] ? 1.0f : 0.0f;"), ()
    if isinstance(module, acting_layers.Scaled):
        line = f"{to}[i] = {x}[i] * {literal(module.factor)} + {literal(module.summand)};"
        return _loop(count, line), ()
    if isinstance(module, acting_layers.QuantileMean):
        quantiles = sizes[0] // module.actions
        inner = f"for (int q = 0; q < {quantiles}; q++) sum = sum + {x}[q * {module.actions} + i];"
        return _loop(
            count, f"float sum = 0.0f; {inner} {to}[i] = sum / {literal(float(quantiles))};"
        ), ()
    if isinstance(module, acting_layers.Concatenate):
        text, start = "", 0
        for source, size in zip(inputs, sizes, strict=False):
            text += _loop(size, f"{to}[{start} + i] = {source}[i];") if size else ""
            start += size
        return text, ()
    if isinstance(module, acting_layers.Add | acting_layers.Multiply):
        sign = "+" if isinstance(module, acting_layers.Add) else "*"
        return _loop(count, f"{to}[i] = {x}[i] {sign} {inputs[1]}[i];"), ()
    if isinstance(module, acting_layers.Masked):
        line = f"{to}[i] = {x}[i] + ({inputs[1]}[i] - 1.0f) * {literal(module.fall)};"
        return _loop(count, line), ()
    raise errors.UserError(f"Layer {name}, a {type(module).__name__}, has no form in C.")


def _loop(count: int, body: str) -> str:
    return f"  for (int i = 0; i < {count}; i++) {{ {body} }}\n"
