"""Holds functions in C that compute without floats, and the factors and shapes that they take."""

import math
from typing import NamedTuple

import numpy as np
from torch import nn

from actorQ.core import errors
from baseline.formats import c_functions
from baseline.quantization import float32

FRACTION = 16  # Bits of fractions of observations, outputs and actions.
_FACTOR_BITS = 24
LEVEL_FRACTION = 7  # Bits of fractions of levels in tables.
TABLE_STEPS = 8  # Entries for each unit of a table's argument, 2^3.
_MOST_SHIFT = 62
INT32 = 2**31 - 1


class Shape(NamedTuple):
    """An activation: above * max(x, 0) + below * min(x, 0) + rest(x), or a clamped x.

    Attributes:
      above: Slope for positive numbers.
      below: Slope for negative ones.
      reach: The rest is constant beyond this size of x; 0: there is none.
      low: Smallest result.
      high: Largest result.
    """

    above: float
    below: float
    reach: int
    low: float = -math.inf
    high: float = math.inf


def shape_of(name: str, module: nn.Module) -> Shape:
    """Returns the shape of an activation.

    Raises:
      errors.UserError: The layer is none, or its rest has no end.
    """
    if isinstance(module, nn.LeakyReLU):
        return Shape(1.0, module.negative_slope, 0)
    if isinstance(module, nn.Hardtanh):
        return Shape(1.0, 1.0, 0, module.min_val, module.max_val)
    if isinstance(module, nn.SELU):
        return Shape(float32.SELU_SCALE, 0.0, 16)
    if isinstance(module, nn.Tanh):
        return Shape(0.0, 0.0, 8)
    if isinstance(module, nn.Sigmoid):
        return Shape(0.0, 0.0, 16)
    if isinstance(module, nn.ReLU):
        return Shape(1.0, 0.0, 0)
    if isinstance(module, nn.ELU | nn.SiLU | nn.Mish | nn.GELU | nn.Softplus):
        return Shape(1.0, 0.0, 16)
    raise errors.UserError(
        f"Layer {name}, a {type(module).__name__}, has no form without floats: leave --float=none "
        "out."
    )


class Factor(NamedTuple):
    """A positive or negative number as integer / 2^shift."""

    integer: np.ndarray
    shift: int


def factors(values: np.ndarray) -> Factor:
    """Returns numbers with one shift, the largest with 24 bits."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return Factor(np.zeros(values.shape, np.int64), 1)
    shift = _FACTOR_BITS - 1 - math.floor(math.log2(largest))
    shift = min(max(shift, 1), _MOST_SHIFT)
    return Factor(np.rint(values.astype(np.float64) * 2.0**shift).astype(np.int64), shift)


FUNCTIONS = {
    "shifted": """\
/* Returns x / 2^shift, rounded to the nearest. */
static int64_t shifted(int64_t x, int shift) {
  const int64_t half = (int64_t)1 << (shift - 1);
  return x >= 0 ? (x + half) >> shift : -((half - x) >> shift);
}
""",
    "between": """\
static int32_t between(int64_t x, int32_t low, int32_t high) {
  return x < low ? low : x > high ? high : (int32_t)x;
}
""",
    "activation_t": """\
typedef struct {
  int32_t above, below;   /* Slopes, in steps of 2^-slope_shift. */
  int slope_shift;
  const int32_t *table;   /* The rest, or NULL; for x = -reach, -reach + 1/8, ... */
  int reach, fraction;    /* x has so many bits of fraction. */
  int result_shift;
  int32_t low, high;      /* Ends of the result. */
} activation_t;

static int32_t activated(const activation_t *a, int64_t x) {
  int64_t result = shifted(x * (x >= 0 ? a->above : a->below), a->slope_shift);
  if (a->table) {
    const int32_t most = a->reach << a->fraction;
    const uint32_t place = (uint32_t)(between(x, -most, most - 1) + most);
    const uint32_t index = place >> (a->fraction - 3);
    const int32_t rest = (int32_t)(place & ((1u << (a->fraction - 3)) - 1));
    const int64_t step = (int64_t)a->table[index + 1] - a->table[index];
    result += a->table[index] + shifted(step * rest, a->fraction - 3);
  }
  return between(shifted(result, a->result_shift), a->low, a->high);
}
""",
    "total_of": """\
static int32_t total_of(const int16_t *from, int count) {
  int32_t total = 0;
  for (int i = 0; i < count; i++) total += from[i];
  return total;
}
""",
}
_STRUCTURE = """\
typedef struct {{
  const {type} *weights;
  const int16_t *zero;    /* The integer that stands for 0. */
  const int32_t *factor;  /* Factors of the sums. */
  const int64_t *bias;    /* Biases, with the digits of the factor. */
  int zero_step, factor_step; /* 1: the array is [outputs]; 0: it has one number. */
  int shift;
  activation_t activation;
{fields}}} {name}_t;

/* Returns one output of a layer, as an integer of the next one. */
static int32_t {name}(const {name}_t *layer, const int16_t *from, {arguments}) {{
{sum}  return activated(&layer->activation,
                   shifted((int64_t)sum * layer->factor[o * layer->factor_step] + layer->bias[o],
                           layer->shift));
}}
"""
PRODUCTS = {"linear8": c_functions.FOUR, "linear4": c_functions.EIGHT}


def _linear(name: str, c_type: str, product: str, at_once: int, per_byte: int) -> str:
    """Returns a linear layer, see `c_functions`."""
    x = "from + i" if per_byte == 1 else f"from + {per_byte} * i"
    return _STRUCTURE.format(
        type=c_type, name=name, fields="  int inputs;\n", arguments="int32_t total, int o",
        sum=f"""\
  const int stride = (layer->inputs + {at_once - 1}) / {at_once} * {at_once // per_byte};
  const {c_type} *w = layer->weights + o * stride;
  int32_t sum = 0;
  for (int i = 0; i < stride; i += 4) sum = {product}(sum, w + i, {x});
  sum -= layer->zero[o * layer->zero_step] * total;
""",
    )


KERNELS = {
    "linear8": _linear("linear8", "int8_t", "four", 4, 1),
    "linear4": _linear("linear4", "uint8_t", "eight", 8, 2),
    "convolution8": _STRUCTURE.format(
        type="int8_t", name="convolution8", arguments="int o, int out", fields="""\
  int channels, height, width, filters, out_height, out_width;
  int kernel[2], stride[2], dilation[2], before[2]; /* Vertical, then horizontal. */
""",
        sum="""\
  const int8_t *w = layer->weights + o * layer->channels * layer->kernel[0] * layer->kernel[1];
  const int top = out / layer->out_width * layer->stride[0] - layer->before[0];
  const int left = out % layer->out_width * layer->stride[1] - layer->before[1];
  const int zero = layer->zero[o * layer->zero_step];
  int32_t sum = 0;
  for (int c = 0; c < layer->channels; c++) {
    for (int ky = 0; ky < layer->kernel[0]; ky++) {
      for (int kx = 0; kx < layer->kernel[1]; kx++, w++) {
        const int y = top + ky * layer->dilation[0], x = left + kx * layer->dilation[1];
        if (y < 0 || y >= layer->height || x < 0 || x >= layer->width) continue;
        sum += (*w - zero) * from[(c * layer->height + y) * layer->width + x];
      }
    }
  }
""",
    ),
}
