/* A policy network on packed, quantized weights: the functions that library.py calls.
 *
 * A network holds sizes and scratch memory, for one thread at a time. Its weights are separate:
 * there may be many versions, and any thread may fill one. New weights are thus packed in the
 * background while the old ones act.
 */
#define _GNU_SOURCE
#include "kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define LANES 16
#define ALIGNMENT 64
#define HUGE_PAGE ((size_t)2 << 20)
#define MAX_LAYERS 64

enum { FLOAT32, FLOAT16, INT8, INT4 };

/* One layer, with the same fields in the same order as in library.py. */
typedef struct {
  int32_t type;         /* FLOAT32 ... */
  int32_t activation;   /* NONE ... */
  int32_t inputs;       /* Inputs of one output; kernel * kernel * channels in a convolution. */
  int32_t outputs;
  int32_t nonnegative;  /* Whether inputs cannot be negative (pixels, or behind a ReLU). */
  int32_t kernel;       /* 0 for a linear layer. */
  int32_t stride, height, width, channels; /* Stride, and input size, of a convolution. */
  float a, b;           /* Parameters of the activation. */
} Layer;

typedef struct {
  const Kernels *kernels;
  int32_t num_layers, pixels;
  size_t max_batch;
  Layer layers[MAX_LAYERS];
  float *front, *back;  /* Activations: [observations * positions][padded outputs]. */
  uint8_t *bytes;       /* Quantized activations, then patches of convolutions. */
  uint8_t *patches;
  float *float_patches;
  float *scale;         /* Scales of quantized activations. */
  int32_t *sums;        /* Sums of groups of quantized activations. */
  uint8_t *bad;         /* [batch]: whether an observation is not finite. */
} Network;

typedef struct {
  void *memory;
  size_t bytes;
  Matrix matrices[MAX_LAYERS];
} Weights;

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t blocks_of(const Layer *l) { return round_up(l->outputs, LANES) / LANES; }
static size_t groups_of(const Layer *l) { return round_up(l->inputs, GROUP) / GROUP; }
static size_t out_height(const Layer *l) {
  return l->kernel ? (size_t)(l->height - l->kernel) / l->stride + 1 : 1;
}
static size_t out_width(const Layer *l) {
  return l->kernel ? (size_t)(l->width - l->kernel) / l->stride + 1 : 1;
}
static size_t positions_of(const Layer *l) { return out_height(l) * out_width(l); }
static size_t input_size(const Layer *l) {
  return l->kernel ? (size_t)l->height * l->width * l->channels : (size_t)l->inputs;
}

static void *allocate(size_t bytes) {
  void *memory = NULL;
  bool huge = bytes >= HUGE_PAGE;
  bytes = round_up(larger(bytes, 1), huge ? HUGE_PAGE : ALIGNMENT);
  if (posix_memalign(&memory, huge ? HUGE_PAGE : ALIGNMENT, bytes)) return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE); /* The address cache misses less often. */
#endif
  memset(memory, 0, bytes);
  return memory;
}

/* --- instruction sets, numbered as in library.py --- */

/* compiling.py defines CAN_RUN_<set> for every set that it compiles, as the HAS_<feature> of every
 * feature that it compiles the set's kernels with. A feature without a test here does not
 * compile. */
#if defined(__x86_64__)
/* Compilers before gcc 11 and clang 17 cannot test for F16C by name. */
__attribute__((unused)) static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

#define HAS_avx2 __builtin_cpu_supports("avx2")
#define HAS_fma __builtin_cpu_supports("fma")
#define HAS_avxvnni __builtin_cpu_supports("avxvnni")
#define HAS_avx512f __builtin_cpu_supports("avx512f")
#define HAS_avx512bw __builtin_cpu_supports("avx512bw")
#define HAS_avx512dq __builtin_cpu_supports("avx512dq")
#define HAS_avx512vl __builtin_cpu_supports("avx512vl")
#define HAS_avx512vnni __builtin_cpu_supports("avx512vnni")
#ifndef HAS_f16c /* Tests define it as 0. */
#define HAS_f16c has_f16c()
#endif
#elif defined(__aarch64__)
/* Linux tells the features of the processor in these bits. Other systems get plain NEON. */
#if defined(__linux__)
#define HAS_dotprod ((getauxval(AT_HWCAP) >> 20 & 1) != 0)
#define HAS_i8mm ((getauxval(AT_HWCAP2) >> 13 & 1) != 0)
#else
#define HAS_dotprod false
#define HAS_i8mm false
#endif
#endif

int32_t actorq_isa_usable(int32_t isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  switch (isa) {
    case 0: return 1;
#if defined(CAN_RUN_avx2)
    case 1: return CAN_RUN_avx2;
#endif
#if defined(CAN_RUN_avxvnni)
    case 2: return CAN_RUN_avxvnni;
#endif
#if defined(CAN_RUN_avx512)
    case 3: return CAN_RUN_avx512;
#endif
#if defined(CAN_RUN_neon)
    case 4: return CAN_RUN_neon;
#endif
#if defined(CAN_RUN_dotprod)
    case 5: return CAN_RUN_dotprod;
#endif
#if defined(CAN_RUN_i8mm)
    case 6: return CAN_RUN_i8mm;
#endif
    default: return 0;
  }
}

static const Kernels *kernels_of(int32_t isa) {
  switch (isa) {
#if defined(CAN_RUN_avx2)
    case 1: return &actorq_avx2;
#endif
#if defined(CAN_RUN_avxvnni)
    case 2: return &actorq_avxvnni;
#endif
#if defined(CAN_RUN_avx512)
    case 3: return &actorq_avx512;
#endif
#if defined(CAN_RUN_neon)
    case 4: return &actorq_neon;
#endif
#if defined(CAN_RUN_dotprod)
    case 5: return &actorq_dotprod;
#endif
#if defined(CAN_RUN_i8mm)
    case 6: return &actorq_i8mm;
#endif
    default: return &actorq_portable;
  }
}

/* --- networks --- */

void actorq_network_free(Network *n) {
  if (!n) return;
  free(n->front);
  free(n->back);
  free(n->bytes);
  free(n->patches);
  free(n->float_patches);
  free(n->scale);
  free(n->sums);
  free(n->bad);
  free(n);
}

/* Returns NULL where memory or instructions are missing. The caller checks the sizes. */
Network *actorq_network_new(const Layer *layers, int32_t num_layers, int32_t pixels,
                            int32_t max_batch, int32_t isa) {
  if (num_layers < 1 || num_layers > MAX_LAYERS || !actorq_isa_usable(isa)) return NULL;
  Network *n = calloc(1, sizeof *n);
  if (!n) return NULL;
  n->kernels = kernels_of(isa);
  n->num_layers = num_layers;
  n->pixels = pixels;
  n->max_batch = max_batch;
  memcpy(n->layers, layers, num_layers * sizeof *layers);
  size_t floats = 0, bytes = 0, patches = 0, float_patches = 0, rows = max_batch, sums = 0;
  for (int32_t i = 0; i < num_layers; i++) {
    const Layer *l = &layers[i];
    size_t positions = positions_of(l);
    size_t outputs = max_batch * positions * blocks_of(l) * LANES;
    floats = larger(floats, larger(outputs, max_batch * input_size(l)));
    bytes = larger(bytes, max_batch * round_up(input_size(l), GROUP));
    rows = larger(rows, larger(positions, (size_t)max_batch));
    sums = larger(sums, max_batch * groups_of(l));
    if (l->kernel && l->type == INT8)
      patches = larger(patches, positions * round_up(l->inputs, 4));
    else if (l->kernel)
      float_patches = larger(float_patches, positions * l->inputs);
  }
  n->front = allocate(floats * sizeof(float));
  n->back = allocate(floats * sizeof(float));
  n->bytes = allocate(bytes);
  n->patches = allocate(patches);
  n->float_patches = allocate(float_patches * sizeof(float));
  n->scale = allocate(rows * sizeof(float));
  n->sums = allocate(sums * sizeof(int32_t));
  n->bad = allocate(max_batch);
  if (!n->front || !n->back || !n->bytes || !n->patches || !n->float_patches || !n->scale ||
      !n->sums || !n->bad) {
    actorq_network_free(n);
    return NULL;
  }
  return n;
}

/* --- weights --- */

static size_t value_bytes(const Layer *l) {
  size_t rows = blocks_of(l) * LANES;
  switch (l->type) {
    case FLOAT32: return rows * l->inputs * 4;
    case FLOAT16: return rows * l->inputs * 2;
    case INT8: return rows * round_up(l->inputs, 4);
    default: return rows * groups_of(l) * GROUP / 2;
  }
}

void actorq_weights_free(Weights *w) {
  if (!w) return;
  free(w->memory);
  free(w);
}

size_t actorq_weights_bytes(const Weights *w) { return w->bytes; }

/* Finds the places of all layers' weights, in the order in which they are read. Returns the bytes
 * that they take. memory: where they lie; NULL: it is not known yet. */
static size_t lay_out(const Network *n, Weights *w, const char *memory) {
  size_t offset = 0;
  for (int32_t i = 0; i < n->num_layers; i++) {
    const Layer *l = &n->layers[i];
    Matrix *m = &w->matrices[i];
    size_t rows = blocks_of(l) * LANES, groups = l->type == INT4 ? groups_of(l) : 0;
    const size_t sizes[] = {value_bytes(l), rows * 4, l->type == INT8 ? rows * 4 : 0,
                            l->type == INT8 ? rows * 4 : 0, groups * rows * 2};
    const void **parts[] = {&m->values, (const void **)&m->bias, (const void **)&m->scale,
                            (const void **)&m->row_sum, (const void **)&m->group_scale};
    for (int part = 0; part < 5; part++) {
      if (memory) *parts[part] = memory + offset;
      offset += round_up(sizes[part], ALIGNMENT);
    }
    m->inputs = l->inputs;
    m->blocks = blocks_of(l);
  }
  return offset;
}

/* Allocates one piece of memory for all layers. */
Weights *actorq_weights_new(const Network *n) {
  Weights *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->bytes = lay_out(n, w, NULL);
  w->memory = allocate(w->bytes);
  if (!w->memory) {
    free(w);
    return NULL;
  }
  lay_out(n, w, w->memory);
  return w;
}

/* Reads all weights once. No pass can take less time. */
uint32_t actorq_weights_read(const Network *n, const Weights *w) {
  return n->kernels->read(w->memory, w->bytes / sizeof(uint32_t));
}

/* Packing reads sixteen rows side by side, so that it writes without gaps. */

#define DEFINE_PACK_FLOAT(NAME, TYPE)                                         \
  static void NAME(const Layer *l, const TYPE *values, TYPE *to) {            \
    const size_t inputs = l->inputs, outputs = l->outputs;                    \
    for (size_t r = 0; r < outputs; r += LANES) {                             \
      const size_t lanes = outputs - r < LANES ? outputs - r : LANES;         \
      for (size_t k = 0; k < inputs; k++)                                     \
        for (size_t i = 0; i < lanes; i++)                                    \
          to[r * inputs + k * LANES + i] = values[(r + i) * inputs + k];      \
    }                                                                         \
  }

DEFINE_PACK_FLOAT(pack_float32, float)
DEFINE_PACK_FLOAT(pack_float16, uint16_t)

static void pack_int8(const Layer *l, const int8_t *values, int8_t *to, int32_t *row_sum) {
  const size_t inputs = l->inputs, outputs = l->outputs, whole = inputs / 4;
  const size_t quads = (inputs + 3) / 4;
  for (size_t r = 0; r < outputs; r += LANES) {
    const size_t lanes = outputs - r < LANES ? outputs - r : LANES;
    int8_t *block = to + r * quads * 4;
    for (size_t k = 0; k < quads; k++)
      for (size_t i = 0; i < lanes; i++)
        memcpy(block + (k * LANES + i) * 4, values + (r + i) * inputs + 4 * k,
               k < whole ? 4 : inputs % 4);
    for (size_t i = 0; i < lanes; i++) {
      int32_t sum = 0;
      for (size_t k = 0; k < inputs; k++) sum += values[(r + i) * inputs + k];
      row_sum[r + i] = sum;
    }
  }
}

/* values: two's complement in bytes, -8 to 7. scales: bfloat16 [outputs][groups]. */
static void pack_int4(const Layer *l, const int8_t *values, const uint16_t *scales, uint8_t *to,
                      uint16_t *group_scale) {
  const size_t groups = groups_of(l), inputs = l->inputs;
  /* Places without a weight hold 8, which stands for zero. */
  memset(to, 0x88, value_bytes(l));
  for (size_t r = 0; r < (size_t)l->outputs; r++)
    for (size_t g = 0; g < groups; g++) {
      const int8_t *from = values + r * inputs + g * GROUP;
      size_t count = inputs - g * GROUP < GROUP ? inputs - g * GROUP : GROUP;
      int8_t group[GROUP] = {0};
      memcpy(group, from, count);
      size_t place = r / LANES * groups + g;
      for (size_t k = 0; k < GROUP / 8; k++)
        for (size_t j = 0; j < 4; j++) {
          uint8_t low = group[4 * k + j] + 8, high = group[GROUP / 2 + 4 * k + j] + 8;
          to[((place * GROUP / 8 + k) * LANES + r % LANES) * 4 + j] = low | high << 4;
        }
      group_scale[place * LANES + r % LANES] = scales[r * groups + g];
    }
}

/* Fills one layer.
 * values: [outputs][inputs] of the layer's type. A convolution's inputs have the order kernel row,
 *   kernel column, channel.
 * scales: float [outputs] for int8, bfloat16 [outputs][groups] for int4, otherwise NULL.
 * bias: float [outputs]. */
void actorq_weights_set(const Network *n, Weights *w, int32_t layer, const void *values,
                        const void *scales, const float *bias) {
  const Layer *l = &n->layers[layer];
  const Matrix *m = &w->matrices[layer];
  void *to = (void *)m->values;
  switch (l->type) {
    case FLOAT32: pack_float32(l, values, to); break;
    case FLOAT16: pack_float16(l, values, to); break;
    case INT8:
      pack_int8(l, values, to, (int32_t *)m->row_sum);
      memcpy((float *)m->scale, scales, l->outputs * sizeof(float));
      break;
    default: pack_int4(l, values, scales, to, (uint16_t *)m->group_scale);
  }
  memcpy((float *)m->bias, bias, l->outputs * sizeof(float));
}

/* --- one pass --- */

/* Copies the patches of an image [height][width][channels] into rows of `row` bytes. */
static void cut_patches(const Layer *l, const uint8_t *image, size_t item, uint8_t *to,
                        size_t row) {
  size_t line = (size_t)l->kernel * l->channels * item;
  size_t pitch = (size_t)l->width * l->channels * item;
  for (size_t y = 0; y < out_height(l); y++)
    for (size_t x = 0; x < out_width(l); x++, to += row) {
      const uint8_t *corner =
          image + y * l->stride * pitch + x * l->stride * (size_t)l->channels * item;
      for (int32_t k = 0; k < l->kernel; k++) memcpy(to + k * line, corner + k * pitch, line);
    }
}

/* Quantizes x[count]. Returns the scale, or infinity if a number is not finite. */
static float quantize(const Kernels *kernels, const float *x, size_t count, float levels,
                      int32_t zero, uint8_t *q) {
  float most = kernels->largest(x, count);
  if (isinf(most)) return most;
  if (most < 1e-30f) { /* All zero, or too small for a scale. */
    memset(q, zero, count);
    return 1.0f;
  }
  kernels->round(x, levels / most, zero, count, q);
  return most / levels;
}

static void linear(Network *n, const Layer *l, const Matrix *m, const float *x, size_t x_stride,
                   size_t batch, float *y) {
  const Kernels *kernels = n->kernels;
  const size_t inputs = l->inputs;
  if (l->type == FLOAT32) {
    kernels->float32(m, x, x_stride, batch, y);
  } else if (l->type == FLOAT16) {
    kernels->float16(m, x, x_stride, batch, y);
  } else if (l->type == INT8) {
    const size_t stride = round_up(inputs, GROUP);
    const float levels = l->nonnegative ? 255.0f : 127.0f;
    const int32_t zero = l->nonnegative ? 0 : 128;
    for (size_t b = 0; b < batch; b++) {
      n->scale[b] =
          quantize(kernels, x + b * x_stride, inputs, levels, zero, n->bytes + b * stride);
      if (isinf(n->scale[b])) n->bad[b] = 1;
    }
    kernels->int8(m, n->bytes, stride, zero, n->scale, batch, y);
  } else {
    const size_t groups = groups_of(l), stride = groups * GROUP;
    int8_t *q = (int8_t *)n->bytes;
    for (size_t b = 0; b < batch; b++) {
      int8_t *row = q + b * stride;
      memset(row + (groups - 1) * GROUP, 0, GROUP);
      n->scale[b] = quantize(kernels, x + b * x_stride, inputs, 127.0f, 0, (uint8_t *)row);
      if (isinf(n->scale[b])) n->bad[b] = 1;
      for (size_t g = 0; g < groups; g++) {
        int32_t sum = 0;
        for (size_t k = 0; k < GROUP; k++) sum += row[g * GROUP + k];
        n->sums[b * groups + g] = sum;
      }
    }
    kernels->int4(m, q, stride, n->sums, n->scale, batch, y);
  }
}

/* Convolves one image. pixels: its bytes, or NULL where x holds it as floats. */
static void convolve(Network *n, const Layer *l, const Matrix *m, const uint8_t *pixels,
                     const float *x, size_t b, float *y) {
  const size_t positions = positions_of(l), size = input_size(l);
  if (l->type == INT8) {
    const size_t row = round_up(l->inputs, 4);
    float scale = 1.0f / 255.0f;
    if (!pixels) {
      scale = quantize(n->kernels, x, size, 255.0f, 0, n->bytes);
      if (isinf(scale)) n->bad[b] = 1;
      pixels = n->bytes;
    }
    for (size_t p = 0; p < positions; p++) n->scale[p] = scale;
    cut_patches(l, pixels, 1, n->patches, row);
    n->kernels->int8(m, n->patches, row, 0, n->scale, positions, y);
    return;
  }
  if (pixels) { /* Then nothing else uses x. */
    float *floats = (float *)x;
    for (size_t i = 0; i < size; i++) floats[i] = (float)pixels[i] / 255.0f;
  }
  cut_patches(l, (const uint8_t *)x, sizeof(float), (uint8_t *)n->float_patches,
              l->inputs * sizeof(float));
  if (l->type == FLOAT32)
    n->kernels->float32(m, n->float_patches, l->inputs, positions, y);
  else
    n->kernels->float16(m, n->float_patches, l->inputs, positions, y);
}

/* Computes the policy for `batch` observations: float [batch][inputs] or, for pixels, bytes
 * [batch][height][width][channels]. Writes float [batch][outputs]. At 8 and 4 bits, an observation
 * that is not finite gets NaN. */
void actorq_run(Network *n, const Weights *w, const void *observations, int32_t batch,
                float *outputs) {
  const float *x = n->pixels ? NULL : observations;
  size_t x_stride = n->layers[0].inputs;
  float *front = n->front, *back = n->back;
  memset(n->bad, 0, batch);
  for (int32_t i = 0; i < n->num_layers; i++) {
    const Layer *l = &n->layers[i];
    const Matrix *m = &w->matrices[i];
    const size_t per_position = blocks_of(l) * LANES;
    const size_t y_stride = positions_of(l) * per_position;
    if (l->kernel) {
      const size_t size = input_size(l);
      for (int32_t b = 0; b < batch; b++) {
        const uint8_t *pixels = i ? NULL : (const uint8_t *)observations + b * size;
        convolve(n, l, m, pixels, i ? x + b * x_stride : back, b, front + b * y_stride);
      }
    } else {
      linear(n, l, m, x, x_stride, batch, front);
    }
    if (l->activation != NONE)
      n->kernels->activate(front, batch * y_stride, l->activation, l->a, l->b);
    x = front;
    x_stride = y_stride;
    front = back;
    back = (float *)x;
  }
  const size_t count = n->layers[n->num_layers - 1].outputs;
  for (int32_t b = 0; b < batch; b++)
    for (size_t i = 0; i < count; i++)
      outputs[b * count + i] = n->bad[b] ? NAN : x[b * x_stride + i];
}
