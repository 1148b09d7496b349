"""Writes a policy as one C99 file and its header, for processors without an operating system.

The file has the integers and the arithmetic of `integer_form`, the normalization of observations
and the bounds of actions. It takes no memory at run time, and needs no library but for LayerNorm's
square root.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import c_functions
from baseline.formats import c_header
from baseline.formats import c_layers
from baseline.formats import integer_form
from baseline.quantization import acting_layers
from baseline.quantization import acting_path

_LARGEST = float(np.finfo(np.float32).max)


def export(form: integer_form.Form, facts: Sequence[str]) -> c_header.Policy:
    """Returns a policy in C.

    Args:
      form: The policy.
      facts: Lines for people on what it is, for the comment at the top.

    Raises:
      errors.UserError: A layer has no form in C.
    """
    return _Writer(form).run(facts)


@dataclasses.dataclass
class _Buffer:
    """A place for floats in the static array."""

    start: int
    size: int


class _Writer:
    """Walks along the layers and writes their code."""

    def __init__(self, form: integer_form.Form):
        self._form = form
        self._network = form.network
        self._constants = c_layers.Constants()
        self._called: dict[str, None] = {}
        self._statements: list[str] = []
        self._num_levels = 0
        self._steps = list(self._network.steps())
        self._last_use = {
            source: place for place, (*_, sources) in enumerate(self._steps) for source in sources
        }
        self._buffers: dict[str, _Buffer] = {}
        self._num_floats = 0

    def run(self, facts: Sequence[str]) -> c_header.Policy:
        """Returns the policy."""
        network = self._network
        shape = tuple(network.observation_shape(self._form.image_size))
        shapes: dict[str, tuple[int, ...]] = {acting_path.OBSERVATION: shape}
        self._observe(math.prod(shape))
        for place, (name, module, sources) in enumerate(self._steps):
            given = [shapes[source] for source in sources]
            shapes[name] = acting_layers.output_shape(name, module, given)
            self._layer(place, name, module, sources, shapes)
        last = self._steps[-1][0]
        output = self._floats(last)
        num_outputs = network.num_outputs
        if self._form.maps is not None and acting_path.OUTPUT in self._form.maps:
            affine = self._form.maps[acting_path.OUTPUT]
            self._to_levels(acting_path.OUTPUT, output, num_outputs)
            self._say(
                f"  for (int i = 0; i < {num_outputs}; i++) {{ {output}[i] = (float)levels[i] * "
                f"{c_functions.literal(float(affine.delta))}; }}\n"
            )
        head, actions, action_type = self._head(output)
        return self._policy(
            facts, math.prod(shape), num_outputs, actions, action_type, output, head
        )

    def _say(self, statement: str, *functions: str) -> None:
        self._statements.append(statement)
        self._called |= dict.fromkeys(functions)

    def _floats(self, name: str) -> str:
        """Returns a value's array of floats in C."""
        buffer = self._buffers[name]
        return f"(floats + {buffer.start})" if buffer.start else "floats"

    def _reserve(self, name: str, size: int, place: int) -> str:
        """Finds room for a value that is made by the step at a place; returns its array in C."""
        busy = sorted(
            (buffer.start, buffer.start + buffer.size)
            for other, buffer in self._buffers.items()
            if self._last_use.get(other, len(self._steps)) >= place
        )
        start = 0
        for low, high in busy:
            if start + size <= low:
                break
            start = max(start, high)
        self._buffers[name] = _Buffer(start, size)
        self._num_floats = max(self._num_floats, start + size)
        return self._floats(name)

    def _is_free_after(self, name: str, place: int) -> bool:
        """Returns whether no step behind a place reads a value, or another one that lies there."""
        return all(
            self._last_use.get(other, len(self._steps)) <= place
            for other, buffer in self._buffers.items() if buffer is self._buffers[name]
        )

    def _observe(self, count: int) -> None:
        """Writes the normalization of observations."""
        if self._network.image:
            return
        to = self._reserve(acting_path.OBSERVATION, count, -1)
        if self._form.normalization is None:
            self._say(f"  for (int i = 0; i < {count}; i++) {{ {to}[i] = observation[i]; }}\n")
            return
        names = ("mean", "deviation", "clip")
        mean, deviation, clip = (
            self._constants.add(f"observation_{name}", "float", values)
            for name, values in zip(
                names, integer_form.constants(self._form.normalization), strict=True
            )
        )
        self._say(
            f"  for (int i = 0; i < {count}; i++) {{\n"
            f"    {to}[i] = clamp((observation[i] - {mean}[i]) / {deviation}[i], -{clip}[i], "
            f"{clip}[i]);\n  }}\n",
            "clamp",
        )

    def _layer(
        self, place: int, name: str, module: nn.Module, sources: Sequence[str],
        shapes: dict[str, tuple[int, ...]],
    ) -> None:
        """Writes a layer."""
        pixels = sources[0] not in self._buffers
        size = math.prod(shapes[name])
        if isinstance(module, nn.Flatten) and not pixels:
            # It moves nothing: the value keeps its place until its last use.
            self._buffers[name] = self._buffers[sources[0]]
            self._last_use[sources[0]] = max(
                self._last_use[sources[0]], self._last_use.get(name, len(self._steps))
            )
            return
        if isinstance(module, nn.Flatten):
            raise errors.UserError(
                f"Layer {name} flattens an image before any convolution, which has no form in C."
            )
        if isinstance(module, acting_layers.WITH_WEIGHTS):
            written = c_layers.with_weights(
                self._constants, place, name, module, self._form,
                (shapes[sources[0]], shapes[name]),
            )
            self._weighted(place, name, written, sources[0], math.prod(shapes[sources[0]]), size)
            return
        if pixels:
            raise errors.UserError(
                f"Layer {name}, a {type(module).__name__}, takes pixels, which has no form in C."
            )
        inputs = [self._floats(source) for source in sources]
        if c_layers.activation(module) is not None and self._is_free_after(sources[0], place):
            self._buffers[name] = self._buffers[sources[0]]
            to = inputs[0]
        else:
            to = self._reserve(name, size, place)
        statement, functions = c_layers.without_weights(
            self._constants, place, name, module, inputs, to,
            [*(math.prod(shapes[source]) for source in sources), size],
        )
        self._say(statement, *functions)

    def _weighted(
        self, place: int, name: str, written: c_layers.Written, source: str, count: int, size: int
    ) -> None:
        """Writes the call of a layer with weights."""
        pixels = source not in self._buffers
        if written.integers:
            scale = self._quantize(name, source, count, pixels)
            linear = not written.function.startswith("convolution")
            end = count + linear * c_layers.padding_of(count, not written.function.endswith("8"))
            self._num_levels = max(self._num_levels, end)
            if end > count:
                self._say(f"  for (int i = {count}; i < {end}; i++) {{ levels[i] = 0; }}\n")
            self._called |= {written.function: None}
            to = self._reserve(name, size, place + 1)  # Its input lies in `levels` now.
            self._say(f"  {written.function}(&{written.structure}, {scale}, {to});\n")
            return
        if pixels:
            self._reserve(source, count, -1)
            self._say(
                f"  for (int i = 0; i < {count}; i++) {{ {self._floats(source)}[i] = "
                f"(float)observation[i] / {float(acting_path.PIXEL_LEVELS)}f; }}\n"
            )
        to = self._reserve(name, size, place)
        self._say(
            f"  {written.function}(&{written.structure}, {self._floats(source)}, {to});\n",
            written.function,
        )

    def _quantize(self, name: str, source: str, count: int, pixels: bool) -> str:
        """Writes the quantization of a layer's input; returns the scale of its integers in C."""
        if pixels:
            self._say(f"  for (int i = 0; i < {count}; i++) {{ levels[i] = observation[i]; }}\n")
            return c_functions.literal(float(1 / np.float32(acting_path.PIXEL_LEVELS)))
        if self._form.maps is not None:
            return self._to_levels(name, self._floats(source), count)
        weight = self._form.weights[name]
        assert isinstance(weight, quantization.QuantizedTensor)
        unsigned = self._form.not_negative(name) and weight.scale.ndim == 1
        self._say(
            f"  x_scale = to_own_levels({self._floats(source)}, {count}, "
            f"{255 if unsigned else 127}.0f);\n",
            "to_own_levels",
        )
        return "x_scale"

    def _to_levels(self, name: str, x: str, count: int) -> str:
        """Writes the quantization of numbers by a calibrated map; returns its scale in C."""
        assert self._form.maps is not None
        self._num_levels = max(self._num_levels, count)
        affine = self._form.maps[name]
        delta = c_functions.literal(float(affine.delta))
        most = 2 ** self._form.bits[name] - 1
        self._say(
            f"  to_levels({x}, {count}, {delta}, {int(affine.zero_point)}, {most});\n", "to_levels"
        )
        return delta

    def _head(self, output: str) -> tuple[str, int, str]:
        """Returns the statements of the head, the numbers of an action, and their type."""
        network = self._network
        outputs = network.num_outputs
        if network.low is None or network.high is None:
            return c_header.discrete_head(network, "0.0f")
        low, high = (
            np.clip(end, -_LARGEST, _LARGEST).astype(np.float32)
            for end in (network.low, network.high)
        )
        if network.head == "clip":
            low_name = self._constants.add("action_low", "float", low)
            high_name = self._constants.add("action_high", "float", high)
            line = f"action[i] = clamp(output[i], {low_name}[i], {high_name}[i]);"
            self._called |= {"clamp": None}
        else:
            low_name = self._constants.add("action_low", "float", low)
            width = self._constants.add("action_width", "float", high - low)
            line = f"action[i] = {low_name}[i] + (0.5f * (output[i] + 1.0f)) * {width}[i];"
        return f"  for (int i = 0; i < {outputs}; i++) {{ {line} }}\n", outputs, "float"

    def _policy(
        self, facts: Sequence[str], inputs: int, outputs: int, actions: int, action_type: str,
        output: str, head: str,
    ) -> c_header.Policy:
        """Returns the whole file."""
        flash = self._constants.num_bytes
        ram = 4 * self._num_floats + 2 * self._num_levels
        header = c_header.header_of(
            facts, self._network.head, c_header.Sizes(inputs, actions, outputs, flash, ram),
            c_header.Types("uint8_t" if self._network.image else "float", action_type, "float"),
        )
        own_scale = ["  float x_scale;\n"] if "to_own_levels" in self._called else []
        norm = "layer_norm" in self._called
        levels = [f"static int16_t levels[{self._num_levels}];"] if self._num_levels else []
        source = "\n".join([
            header, *["#include <math.h>\n#include <stddef.h>"] * norm,
            *[c_functions.INCLUDES] * bool(self._num_levels),
            f"static float floats[{self._num_floats}];", *levels, "",
            *c_functions.needed(self._called), *self._constants.code,
            "static const float *forward(const policy_observation_t *observation) {",
            "".join([*own_scale, *self._statements]) + f"  return {output};\n}}\n",
            c_header.FUNCTIONS_OF_OUTPUTS.format(
                forward="const float *output = forward(observation);", outputs=outputs, head=head
            ),
        ])
        return c_header.Policy(source, flash, ram)
