"""The functions in C of which a policy's file has those that it calls.

Their numbers and the order of their operations are those of `float32` and `integer_form`.
"""

from collections.abc import Iterable
import re
from typing import NamedTuple

from actorQ.policy import quantization
from baseline.formats import integer_form
from baseline.quantization import float32


class Function(NamedTuple):
    """A function in C, and the names of those that it calls."""

    code: str
    calls: tuple[str, ...] = ()


def literal(value: float) -> str:
    """Returns a float32 number as C writes it exactly."""
    number = integer_form.as_float32(value)
    text = re.sub(r"\.?0*p", "p", number.hex()) + "f"  # Of its 13 digits 6 count.
    return text if number >= 0 else f"({text})"


def _series(terms: Iterable[float], times: str) -> str:
    first, *others = map(literal, terms)
    return f"{first};\n" + "".join(f"  sum = sum * {times} + {term};\n" for term in others)


_FAR = literal(integer_form.FAR)
_LINEAR = """\
typedef struct {{
  const {type} *weights; /* [outputs][inputs]{packed} */
  const float *bias;     /* [outputs] */
{scales}  int inputs, outputs;
}} {name}_t;
"""
_SCALES = """\
  const float *scale;    /* Scales of the weights. */
  const int16_t *zero;   /* The integer that stands for 0. */
  int scale_step, zero_step; /* 1: the array is [outputs]; 0: it has one number. */
"""
INCLUDES = """\
#if defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
#define PAIRS /* Products of pairs of 16 bits. */
#include <arm_acle.h>
#include <string.h>
#endif
"""
FOUR = """\
/* Adds the products of four levels with four weights, which lie in the order 0, 2, 1, 3. */
static inline int32_t four(int32_t sum, const int8_t *w, const int16_t *x) {
#ifdef PAIRS
  uint32_t weights, pairs[2];
  memcpy(&weights, w, sizeof(weights));
  memcpy(pairs, x, sizeof(pairs));
  sum = __smlad(__sxtb16(weights), (int16x2_t)pairs[0], sum);
  return __smlad(__sxtb16(weights >> 8), (int16x2_t)pairs[1], sum);
#else
  return sum + w[0] * x[0] + w[2] * x[1] + w[1] * x[2] + w[3] * x[3];
#endif
}
"""
EIGHT = """\
/* Adds the products of eight levels with eight weights of 0 to 15. Their order by nibbles, the
 * lowest first, is 0, 2, 4, 6, 1, 3, 5, 7. */
static inline int32_t eight(int32_t sum, const uint8_t *w, const int16_t *x) {
#ifdef PAIRS
  const uint32_t low = 0x000F000Fu;
  uint32_t weights, pairs[4];
  memcpy(&weights, w, sizeof(weights));
  memcpy(pairs, x, sizeof(pairs));
  sum = __smlad((int16x2_t)(weights & low), (int16x2_t)pairs[0], sum);
  sum = __smlad((int16x2_t)(weights >> 4 & low), (int16x2_t)pairs[1], sum);
  sum = __smlad((int16x2_t)(weights >> 8 & low), (int16x2_t)pairs[2], sum);
  return __smlad((int16x2_t)(weights >> 12 & low), (int16x2_t)pairs[3], sum);
#else
  return sum + (w[0] & 15) * x[0] + (w[2] & 15) * x[1] + (w[0] >> 4) * x[2] + (w[2] >> 4) * x[3] +
         (w[1] & 15) * x[4] + (w[3] & 15) * x[5] + (w[1] >> 4) * x[6] + (w[3] >> 4) * x[7];
#endif
}
"""


def _integer_linear(name: str, c_type: str, product: str, at_once: int, per_byte: int) -> str:
    """Returns a linear layer of integers.

    Args:
      name: Its name.
      c_type: Type of its weights.
      product: Function that adds some products.
      at_once: Number of these products.
      per_byte: Weights in a byte.
    """
    structure = _LINEAR.format(
        type=c_type, packed=f", as `{product}` takes them", name=name, scales=_SCALES
    )
    x = "levels + i" if per_byte == 1 else f"levels + {per_byte} * i"
    return structure + f"""\
static void {name}(const {name}_t *layer, float x_scale, float *to) {{
  const int stride = (layer->inputs + {at_once - 1}) / {at_once} * {at_once // per_byte};
  int32_t total = 0;
  for (int i = 0; i < layer->inputs; i++) total += levels[i];
  for (int o = 0; o < layer->outputs; o += 2) {{ /* Two outputs share the loads of levels. */
    const {c_type} *w = layer->weights + o * stride;
    const {c_type} *v = o + 1 < layer->outputs ? w + stride : w;
    int32_t sums[2] = {{0, 0}};
    for (int i = 0; i < stride; i += 4) {{
      sums[0] = {product}(sums[0], w + i, {x});
      sums[1] = {product}(sums[1], v + i, {x});
    }}
    for (int p = o; p < o + 2 && p < layer->outputs; p++) {{
      const int32_t sum = sums[p - o] - layer->zero[p * layer->zero_step] * total;
      to[p] = (float)sum * (layer->scale[p * layer->scale_step] * x_scale) + layer->bias[p];
    }}
  }}
}}
"""


FUNCTIONS: dict[str, Function] = {
    "clamp": Function("""\
static float clamp(float x, float low, float high) {
  return x > low ? (x < high ? x : high) : low; /* NaN becomes low. */
}
"""),
    "size": Function("static float size(float x) { return x < 0.0f ? -x : x; }\n"),
    "round_even": Function("""\
/* Rounds to the nearest whole number, ties to even, where |x| < 4194304. */
static float round_even(float x) {
  return (x + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23 leaves no room for fractions. */
}
"""),
    "bits_of": Function("""\
static int32_t bits_of(float x) {
  union { float number; int32_t bits; } both;
  both.number = x;
  return both.bits;
}
"""),
    "of_bits": Function("""\
static float of_bits(int32_t bits) {
  union { float number; int32_t bits; } both;
  both.bits = bits;
  return both.number;
}
"""),
    "exp_2": Function(f"""\
/* Returns e^x for x from {float32.EXP_LOW:g} to {float32.EXP_HIGH:g}: 2^n e^r. */
static float exp_2(float x) {{
  float n = round_even(x * {literal(float32.LOG2_E)});
  float r = (x - n * {literal(float32.LN2_HIGH)}) - n * ({literal(float32.LN2_LOW)});
  float sum = {_series(float32.EXP_TERMS, "r")}\
  return sum * of_bits(((int32_t)n + 127) * 8388608);
}}
""", ("round_even", "of_bits")),
    "exp_of": Function(f"""\
static float exp_of(float x) {{
  return exp_2(clamp(x, {literal(float32.EXP_LOW)}, {literal(float32.EXP_HIGH)}));
}}
""", ("clamp", "exp_2")),
    "log_above_1": Function(f"""\
static float log_above_1(float x) {{
  int32_t bits = bits_of(x);
  int32_t power = (bits - 0x3F400000) / 8388608; /* x = m 2^n with m from 0.75 to 1.5. */
  float n = (float)power, m = of_bits(bits - power * 8388608);
  float s = (m - 1.0f) / (m + 1.0f), square = s * s;
  float sum = {_series(float32.LOG_TERMS, "square")}\
  return n * {literal(float32.LN2_HIGH)} + (n * ({literal(float32.LN2_LOW)}) + sum * s);
}}
""", ("bits_of", "of_bits")),
    "erf_of": Function(f"""\
static float erf_of(float x) {{
  float y = clamp(size(x), 0.0f, 6.0f), t = 1.0f / (1.0f + {literal(float32.ERF_P)} * y);
  float sum = {_series(float32.ERF_TERMS, "t")}\
  y = 1.0f - (sum * t) * exp_of(-(y * y));
  return bits_of(x) < 0 ? -y : y;
}}
""", ("size", "clamp", "exp_of", "bits_of")),
    "tanh_of": Function("""\
static float tanh_of(float x) {
  float y = 2.0f * size(x);
  y = 1.0f - 2.0f / (exp_2(y < 20.0f ? y : 20.0f) + 1.0f);
  return bits_of(x) < 0 ? -y : y;
}
""", ("size", "exp_2", "bits_of")),
    "relu": Function("static float relu(float x) { return x > 0.0f ? x : 0.0f; }\n"),
    "leaky_relu": Function("""\
static float leaky_relu(float x, float slope) { return x > 0.0f ? x : x * slope; }
"""),
    "elu": Function("""\
static float elu(float x, float alpha) { return x > 0.0f ? x : alpha * (exp_of(x) - 1.0f); }
""", ("exp_of",)),
    "selu": Function(f"""\
static float selu(float x) {{
  return {literal(float32.SELU_SCALE)} *
         (x > 0.0f ? x : {literal(float32.SELU_ALPHA)} * (exp_of(x) - 1.0f));
}}
""", ("exp_of",)),
    "sigmoid": Function("""\
static float sigmoid(float x) { return 1.0f / (1.0f + exp_of(-x)); }
""", ("exp_of",)),
    "silu": Function(f"""\
static float silu(float x) {{
  return x > {literal(float32.EXP_LOW)} ? x * sigmoid(x) : 0.0f;
}}
""", ("sigmoid",)),
    "mish": Function(f"""\
static float mish(float x) {{
  float u = exp_of(clamp(x, {literal(float32.EXP_LOW)}, 20.0f)), product = u * (u + 2.0f);
  return x > {literal(float32.EXP_LOW)} ? x * (product / (product + 2.0f)) : 0.0f;
}}
""", ("clamp", "exp_of")),
    "softplus": Function("""\
static float softplus(float x, float beta, float threshold) {
  float steep = x * beta;
  return steep > threshold ? x : log_above_1(1.0f + exp_of(steep)) / beta;
}
""", ("log_above_1", "exp_of")),
    "gelu": Function(f"""\
static float gelu(float x) {{
  return (x * 0.5f) * (erf_of(x * {literal(float32.SQRT_HALF)}) + 1.0f);
}}
""", ("erf_of",)),
    "gelu_by_tanh": Function(f"""\
static float gelu_by_tanh(float x) {{
  float inner = x + ((x * x) * x) * {literal(float32.GELU_CUBE)};
  return (x * 0.5f) * (tanh_of(inner * {literal(float32.SQRT_2_PI)}) + 1.0f);
}}
""", ("tanh_of",)),
    "layer_norm": Function("""\
/* weight or bias may be NULL. */
static void layer_norm(const float *from, float *to, int count, float epsilon, const float *weight,
                       const float *bias) {
  float mean = 0.0f, variance = 0.0f;
  for (int i = 0; i < count; i++) mean = mean + from[i];
  mean = mean / (float)count;
  for (int i = 0; i < count; i++) {
    float centred = from[i] - mean;
    variance = variance + centred * centred;
  }
  float root = sqrtf(variance / (float)count + epsilon);
  for (int i = 0; i < count; i++) {
    float x = (from[i] - mean) / root;
    if (weight) x = x * weight[i];
    to[i] = bias ? x + bias[i] : x;
  }
}
"""),
    "to_levels": Function(f"""\
/* Quantizes numbers by a calibrated map; levels of 0 stand for 0. */
static void to_levels(const float *from, int count, float delta, int zero, int most) {{
  for (int i = 0; i < count; i++) {{
    int level = (int)round_even(clamp(from[i] / delta, -{_FAR}, {_FAR})) + zero;
    level = level < 0 ? 0 : level > most ? most : level;
    levels[i] = (int16_t)(level - zero);
  }}
}}
""", ("round_even", "clamp")),
    "to_own_levels": Function("""\
/* Quantizes numbers with a scale of this observation, which it returns. */
static float to_own_levels(const float *from, int count, float most) {
  float largest = 0.0f;
  for (int i = 0; i < count; i++) {
    float x = size(from[i]);
    largest = x > largest ? x : largest;
  }
  if (!(largest >= 1e-30f)) {
    for (int i = 0; i < count; i++) levels[i] = 0;
    return 1.0f;
  }
  float factor = most / largest;
  for (int i = 0; i < count; i++) {
    levels[i] = (int16_t)round_even(clamp(from[i] * factor, -most, most));
  }
  return largest / most;
}
""", ("size", "round_even", "clamp")),
    "of_half": Function("""\
/* Returns the number that a float16 stands for. */
static float of_half(uint16_t half) {
  float x = of_bits((int32_t)(half & 0x7FFFu) * 8192) * 0x1p112f;
  return half & 0x8000u ? -x : x;
}
""", ("of_bits",)),
    "four": Function(FOUR),
    "eight": Function(EIGHT),
    "linear8": Function(_integer_linear("linear8", "int8_t", "four", 4, 1), ("four",)),
    "linear4": Function(_integer_linear("linear4", "uint8_t", "eight", 8, 2), ("eight",)),
    "grouped4": Function(_LINEAR.format(
        type="uint8_t", packed=", in eights, 8 more than the weight", name="grouped4",
        scales=f"""\
  const uint16_t *scale; /* bfloat16, [outputs][groups of {quantization.INT4_GROUP} inputs]. */
""") + f"""\
static void grouped4(const grouped4_t *layer, float x_scale, float *to) {{
  const int stride = (layer->inputs + 7) / 8 * 8;
  const uint8_t *w = layer->weights;
  const uint16_t *scale = layer->scale;
  for (int o = 0; o < layer->outputs; o++) {{
    float total = 0.0f;
    for (int i = 0; i < stride;) {{
      const int group = i + {quantization.INT4_GROUP}, end = group < stride ? group : stride;
      int32_t sum = 0, ones = 0;
      for (; i < end; i += 8, w += 4) {{
        sum = eight(sum, w, levels + i);
        ones = eight(ones, eights, levels + i);
      }}
      total = total + (float)(sum - ones) * of_bits((int32_t)((uint32_t)*scale++ << 16));
    }}
    to[o] = total * x_scale + layer->bias[o];
  }}
}}
""", ("of_bits", "eight", "eights")),
    "eights": Function("static const uint8_t eights[4] = {0x88, 0x88, 0x88, 0x88};\n"),
}
_CONVOLUTION = """\
typedef struct {{
  const {type} *weights; /* [filters][channels][kernel][kernel] */
  const float *bias;     /* [filters] */
{scales}  int channels, height, width, filters, out_height, out_width;
  int kernel[2], stride[2], dilation[2], before[2]; /* Vertical, then horizontal. */
}} {name}_t;

static void {name}(const {name}_t *layer, {parameters}float *to) {{
  const int size = layer->channels * layer->kernel[0] * layer->kernel[1];
  for (int f = 0; f < layer->filters; f++) {{
    for (int out = 0; out < layer->out_height * layer->out_width; out++) {{
      const {type} *w = layer->weights + f * size;
      const int top = out / layer->out_width * layer->stride[0] - layer->before[0];
      const int left = out % layer->out_width * layer->stride[1] - layer->before[1];
      {sums};
      for (int c = 0; c < layer->channels; c++) {{
        for (int ky = 0; ky < layer->kernel[0]; ky++) {{
          for (int kx = 0; kx < layer->kernel[1]; kx++, w++) {{
            const int y = top + ky * layer->dilation[0], x = left + kx * layer->dilation[1];
            if (y < 0 || y >= layer->height || x < 0 || x >= layer->width) continue;
            const int place = (c * layer->height + y) * layer->width + x;
            {add}
          }}
        }}
      }}
      {result}
    }}
  }}
}}
"""
FUNCTIONS["convolution8"] = Function(_CONVOLUTION.format(
    type="int8_t", name="convolution8", parameters="float x_scale, ", scales="""\
  const float *scale;    /* Scales of the weights. */
  const int16_t *zero;   /* The integer that stands for 0. */
  int scale_step, zero_step; /* 1: the array is [filters]; 0: it has one number. */
""", sums="int32_t sum = 0", add="sum += (*w - layer->zero[f * layer->zero_step]) * levels[place];",
    result="""*to++ = (float)sum * (layer->scale[f * layer->scale_step] * x_scale) +
              layer->bias[f];""",
))
for _name, _type, _weight, _calls in (
    ("convolution32", "float", "*w", ()),
    ("convolution16", "uint16_t", "of_half(*w)", ("of_half",)),
):
    FUNCTIONS[_name] = Function(_CONVOLUTION.format(
        type=_type, name=_name, parameters="const float *from, ", scales="",
        sums="float sum = 0.0f",
        add=f"sum = sum + {_weight} * from[place];", result="*to++ = sum + layer->bias[f];",
    ), _calls)
for _name, _type, _weight, _calls in (
    ("linear32", "float", "*w++", ()), ("linear16", "uint16_t", "of_half(*w++)", ("of_half",)),
):
    FUNCTIONS[_name] = Function(
        _LINEAR.format(type=_type, packed="", name=_name, scales="") + f"""\
static void {_name}(const {_name}_t *layer, const float *from, float *to) {{
  const {_type} *w = layer->weights;
  for (int o = 0; o < layer->outputs; o++) {{
    float sum = 0.0f;
    for (int i = 0; i < layer->inputs; i++) sum = sum + {_weight} * from[i];
    to[o] = sum + layer->bias[o];
  }}
}}
""", _calls)


def needed(called: Iterable[str]) -> list[str]:
    """Returns the code of functions and of all that they call, those that are called first."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        for other in FUNCTIONS[name].calls:
            add(other)
        found[name] = None

    for name in called:
        add(name)
    return [FUNCTIONS[name].code for name in found]
