"""Writes a policy as C without floats, for processors that have no floating point unit.

Observations, outputs and continuous actions are int32 in steps of 1/65536 (Q16.16). The integers of
`integer_form` stay; what lies between two layers is approximated:

- A factor is an integer and a shift. The bias is added before the shift, with the factor's digits.
- An activation is two slopes and the rest of it in a table. Numbers between are interpolated.

Layers must follow each other in a chain: linear ones, convolutions, and activations.
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

import numpy as np
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import c_functions
from baseline.formats import c_header
from baseline.formats import c_integer_functions as functions
from baseline.formats import c_layers
from baseline.formats import integer_form
from baseline.quantization import acting_layers
from baseline.quantization import acting_path


def export(form: integer_form.Form, facts: Sequence[str]) -> c_header.Policy:
    """Returns a policy in C without floats.

    Args:
      form: The policy, with calibrated maps.
      facts: Lines for people on what it is, for the comment at the top.

    Raises:
      errors.UserError: It has none, or a layer has no form without floats.
    """
    if form.maps is None:
        raise errors.UserError(
            "--float=none needs calibrated ranges: 8 or fewer bits and "
            "--scheme=weights+activations."
        )
    return _Writer(form).run(facts)


class _Layer(NamedTuple):
    """A layer with weights, and the activation behind it."""

    name: str
    module: nn.Linear | nn.Conv2d
    following: tuple[str, nn.Module] | None
    given: tuple[int, ...]
    made: tuple[int, ...]


class _Writer:
    """Walks along the chain of layers."""

    def __init__(self, form: integer_form.Form):
        assert form.maps is not None
        self._form = form
        self._maps = form.maps
        self._network = form.network
        self._constants = c_layers.Constants()
        self._kernels: dict[str, None] = {}
        shape = tuple(form.network.observation_shape(form.image_size))
        self._inputs = math.prod(shape)
        self._layers = self._chain(shape)

    def _chain(self, shape: tuple[int, ...]) -> list[_Layer]:
        """Returns the layers in order.

        Raises:
          errors.UserError: They are no chain of layers with weights and activations.
        """
        found: list[_Layer] = []
        before = acting_path.OBSERVATION
        for name, module, sources in self._network.steps():
            given, shape = shape, acting_layers.output_shape(name, module, [shape])
            if sources != (before,):
                raise errors.UserError(
                    f"Layer {name} does not take the output of the layer before it, which has no "
                    "form without floats: leave --float=none out."
                )
            before = name
            if isinstance(module, nn.Flatten):
                continue
            if isinstance(module, acting_layers.WITH_WEIGHTS):
                found.append(_Layer(name, module, None, given, shape))
                continue
            functions.shape_of(name, module)
            if not found or found[-1].following is not None:
                raise errors.UserError(
                    f"Layer {name} follows no layer with weights, which has no form without "
                    "floats: leave --float=none out."
                )
            found[-1] = found[-1]._replace(following=(name, module))
        return found

    def run(self, facts: Sequence[str]) -> c_header.Policy:
        """Returns the policy."""
        statements = [self._observe(), self._pad("levels", 0)]
        sides = ("levels", "other_levels")
        sizes = [self._inputs + self._padding(0), 1]
        for place, layer in enumerate(self._layers):
            last = place == len(self._layers) - 1
            source, target = sides[place % 2], "outputs" if last else sides[(place + 1) % 2]
            if not last:
                index = (place + 1) % 2
                sizes[index] = max(
                    sizes[index], math.prod(layer.made) + self._padding(place + 1)
                )
            following = None if last else self._layers[place + 1].name
            statements.append(self._layer(place, layer, source, target, following))
            if not last:
                statements.append(self._pad(target, place + 1))
        outputs = self._network.num_outputs
        head, actions, action_type = self._head()
        ram = 2 * sum(sizes) + 4 * outputs
        header = c_header.header_of(
            [
                *facts,
                "It has no floats. "
                + ("" if self._network.image else "Observations are in steps of 1/65536. ")
                + "Outputs and continuous actions are in steps of 1/65536.",
            ],
            self._network.head, 
            c_header.Sizes(self._inputs, actions, outputs, self._constants.num_bytes, ram),
            c_header.Types(
                *(("uint8_t" if self._network.image else "int32_t"), action_type, "int32_t"),
                1 if self._network.image else 2**functions.FRACTION,
                2**functions.FRACTION if action_type == "int32_t" else 1,
            ),
        )
        source = "\n".join([
            header, "#include <stddef.h>", c_functions.INCLUDES,
            f"static int16_t levels[{sizes[0]}];", f"static int16_t other_levels[{sizes[1]}];",
            f"static int32_t outputs[{outputs}];", "",
            *functions.FUNCTIONS.values(),
            *(functions.PRODUCTS[name] for name in self._kernels if name in functions.PRODUCTS),
            *(functions.KERNELS[name] for name in self._kernels),
            *self._constants.code,
            "static void forward(const policy_observation_t *observation) {",
            "".join(statements) + "}\n",
            c_header.FUNCTIONS_OF_OUTPUTS.format(
                forward="forward(observation);\n  const int32_t *output = outputs;",
                outputs=outputs, head=head,
            ),
        ])
        return c_header.Policy(source, self._constants.num_bytes, ram)

    def _padding(self, place: int) -> int:
        """Returns how many levels of 0 follow the inputs of a layer."""
        layer = self._layers[place]
        weight = self._form.weights[layer.name]
        assert isinstance(weight, quantization.QuantizedTensor)
        if isinstance(layer.module, nn.Conv2d):
            return 0
        return c_layers.padding_of(layer.module.in_features, weight.bits <= 4)

    def _pad(self, array: str, place: int) -> str:
        """Returns the statement that writes these levels."""
        padding = self._padding(place)
        if not padding:
            return ""
        count = math.prod(self._layers[place].given)
        return f"  for (int i = {count}; i < {count + padding}; i++) {array}[i] = 0;\n"

    def _observe(self) -> str:
        """Returns the statements that turn an observation into integers."""
        count = self._inputs
        if self._network.image:
            return f"  for (int i = 0; i < {count}; i++) levels[i] = observation[i];\n"
        name = self._layers[0].name
        delta = float(self._maps[name].delta)
        zero, most = int(self._maps[name].zero_point), 2 ** self._form.bits[name] - 1
        mean, deviation, clip = np.zeros(count), np.ones(count), np.full(count, np.inf)
        if self._form.normalization is not None:
            mean, deviation, clip = map(
                np.asarray, integer_form.constants(self._form.normalization)
            )
        unit = delta * 2**functions.FRACTION
        each = [functions.factors(np.array([1 / (unit * d)])) for d in deviation.tolist()]
        ends = np.clip(np.rint(clip.astype(np.float64) / delta), 0, 2**14)
        arrays = {
            "mean": ("int32_t", _int32(mean.astype(np.float64) * 2**functions.FRACTION)),
            "factor": ("int32_t", _int32(np.array([one.integer[0] for one in each]))),
            "shift": ("int8_t", np.array([one.shift for one in each], np.int8)),
            "low": ("int16_t", np.maximum(-zero, -ends).astype(np.int16)),
            "high": ("int16_t", np.minimum(most - zero, ends).astype(np.int16)),
        }
        for key, (c_type, values) in arrays.items():
            self._constants.add(f"observation_{key}", c_type, values)
        return (
            f"  for (int i = 0; i < {count}; i++) {{\n"
            "    const int64_t x = (int64_t)observation[i] - observation_mean[i];\n"
            "    levels[i] = (int16_t)between(shifted(x * observation_factor[i], "
            "observation_shift[i]),\n"
            "                                 observation_low[i], observation_high[i]);\n  }\n"
        )

    def _layer(
        self, place: int, layer: _Layer, source: str, target: str, following: str | None
    ) -> str:
        """Adds a layer's constants; returns its statements.

        Args:
          place: Number of the layer.
          layer: The layer.
          source: Array of its input in C.
          target: Array of its output in C.
          following: The next layer with weights; None: it is the last.
        """
        weight = self._form.weights[layer.name]
        assert isinstance(weight, quantization.QuantizedTensor)
        if weight.values[0].size > c_layers.MOST_INPUTS:
            raise errors.UserError(
                f"Layer {layer.name} has {weight.values[0].size} inputs: sums of 32 bits hold "
                f"those of {c_layers.MOST_INPUTS} at most."
            )
        module = layer.module
        convolution = isinstance(module, nn.Conv2d)
        packs = weight.bits <= 4 and not convolution
        kernel = "convolution8" if convolution else "linear4" if packs else "linear8"
        self._kernels[kernel] = None
        step, low, high = 2.0**-functions.FRACTION, -functions.INT32 - 1, functions.INT32
        if following is not None:
            affine = self._maps[following]
            step, zero = float(affine.delta), int(affine.zero_point)
            low, high = -zero, 2 ** self._form.bits[following] - 1 - zero
        if place == 0 and self._network.image:
            x_scale = 1 / acting_path.PIXEL_LEVELS
        else:
            x_scale = float(self._maps[layer.name].delta)
        fraction = min(max(math.ceil(math.log2(16 / step)), 8), 20)
        factor = functions.factors(weight.scale.astype(np.float64) * x_scale * 2.0**fraction)
        bias = self._form.bias(layer.name).astype(np.float64) * 2.0 ** (fraction + factor.shift)
        c_type, values, zeros = c_layers.packed_weights(weight, packs)
        names = {
            "weights": self._constants.add(f"weights_{place}", c_type, values),
            "zero": self._constants.add(f"zero_{place}", "int16_t", zeros),
            "factor": self._constants.add(f"factor_{place}", "int32_t", _int32(factor.integer)),
            "bias": self._constants.add(
                f"bias_{place}", "int64_t",
                np.clip(np.rint(bias), -(2.0**61), 2.0**61).astype(np.int64),
            ),
            "zero_step": str(int(zeros.size > 1)), "factor_step": str(int(weight.scale.size > 1)),
            "shift": str(factor.shift),
            "activation": self._activation(place, layer.following, step, fraction, low, high),
        }
        if isinstance(module, nn.Conv2d):
            names |= c_layers.convolution_fields(layer.name, module, layer.given, layer.made)
        else:
            names["inputs"] = str(module.in_features)
        text = ",\n    ".join(f".{field} = {value}" for field, value in names.items())
        self._constants.code.append(
            f"static const {kernel}_t layer_{place} = {{\n    {text}}};\n"
        )
        cast = "" if following is None else "(int16_t)"
        if isinstance(module, nn.Conv2d):
            filters, *size = layer.made
            return (
                f"  for (int o = 0; o < {filters}; o++) {{\n"
                f"    for (int i = 0; i < {math.prod(size)}; i++) {{\n"
                f"      {target}[o * {math.prod(size)} + i] = "
                f"{cast}{kernel}(&layer_{place}, {source}, o, i);\n    }}\n  }}\n"
            )
        return (
            f"  const int32_t total_{place} = total_of({source}, {module.in_features});\n"
            f"  for (int o = 0; o < {layer.made[0]}; o++) {{\n"
            f"    {target}[o] = {cast}{kernel}(&layer_{place}, {source}, total_{place}, o);\n  }}\n"
        )

    def _activation(
        self, place: int, following: tuple[str, nn.Module] | None, step: float, fraction: int,
        low: int, high: int,
    ) -> str:
        """Adds the table of an activation; returns its structure in C.

        Args:
          place: Number of the layer.
          following: The activation, or None.
          step: What an integer of the result stands for.
          fraction: Bits of fractions of the argument.
          low: Smallest result.
          high: Largest result.
        """
        shape = functions.Shape(1.0, 1.0, 0)
        if following is not None:
            shape = functions.shape_of(*following)
        unit = 2.0**functions.LEVEL_FRACTION / step
        slopes = functions.factors(np.array([shape.above, shape.below]) * unit / 2.0**fraction)
        table = "NULL"
        if shape.reach:
            assert following is not None
            end = shape.reach * functions.TABLE_STEPS
            x = np.arange(-end, end + 1) / functions.TABLE_STEPS
            made = integer_form.without_weights(following[1], [x.astype(np.float32)])
            rest = made - shape.above * np.maximum(x, 0) - shape.below * np.minimum(x, 0)
            table = self._constants.add(f"table_{place}", "int32_t", _int32(rest * unit))
        ends = [
            int(min(max(np.rint(end / step), low), high)) if math.isfinite(end) else default
            for end, default in ((shape.low, low), (shape.high, high))
        ]
        above, below = slopes.integer.tolist()
        low_text = "INT32_MIN" if ends[0] == -functions.INT32 - 1 else str(ends[0])
        return (
            f"{{{above}, {below}, {slopes.shift}, {table}, {shape.reach}, {fraction}, "
            f"{functions.LEVEL_FRACTION}, {low_text}, {ends[1]}}}"
        )

    def _head(self) -> tuple[str, int, str]:
        """Returns the statements of the head, the numbers of an action, and their type."""
        network = self._network
        if network.low is None or network.high is None:
            return c_header.discrete_head(network, "0")
        outputs = network.num_outputs
        low, high = (
            _int32(np.asarray(end, np.float64) * 2**functions.FRACTION)
            for end in (network.low, network.high)
        )
        low_name = self._constants.add("action_low", "int32_t", low)
        high_name = self._constants.add("action_high", "int32_t", high)
        if network.head == "clip":
            line = f"action[i] = between(output[i], {low_name}[i], {high_name}[i]);"
        else:
            line = (
                f"const int64_t width = (int64_t){high_name}[i] - {low_name}[i];\n"
                f"    action[i] = (int32_t)({low_name}[i] + shifted(((int64_t)output[i] + 65536) * "
                f"width, {functions.FRACTION + 1}));"
            )
        return f"  for (int i = 0; i < {outputs}; i++) {{\n    {line}\n  }}\n", outputs, "int32_t"


def _int32(values: np.ndarray) -> np.ndarray:
    """Returns the nearest integers of 32 bits."""
    return np.clip(np.rint(values), -functions.INT32, functions.INT32).astype(np.int32)
