/* Products of a quantized matrix with a few vectors, and the functions between two products.
 *
 * The kernels serve batches of one to a few observations, where a layer takes as long as reading
 * its weights. Weights therefore lie in the order of their use, and each is read once for up to
 * TILE observations. This file is compiled once for each instruction set; KERNELS names the result.
 *
 * Everything but the float products rounds exactly as reference.py does: compiling.py forbids the
 * compiler to fuse or reorder float operations.
 */
#include "kernels.h"
#include "vectors.h"

#include <math.h>

/* --- float weights: values[block][input][16], as float or half --- */

#define DEFINE_FLOAT_TILE(NAME, TYPE, LOAD)                                                      \
  INLINE void NAME##_tile(const TYPE *w, const float *bias, const float *x, size_t x_stride,     \
                          size_t inputs, int tile, int sums, float *y, size_t y_stride) {        \
    /* Several sums for each observation hide the latency of an addition. */                     \
    vfloat sum[TILE * 4];                                                                        \
    for (int s = 0; s < tile * sums; s++) sum[s] = vf_set1(0.0f);                                \
    size_t k = 0;                                                                                \
    for (; k + sums <= inputs; k += sums)                                                        \
      for (int s = 0; s < sums; s++) {                                                           \
        vfloat weights = LOAD(w + LANES * (k + s));                                              \
        for (int t = 0; t < tile; t++)                                                           \
          sum[t * sums + s] =                                                                    \
              vf_fma(weights, vf_set1(x[t * x_stride + k + s]), sum[t * sums + s]);              \
      }                                                                                          \
    for (; k < inputs; k++)                                                                      \
      for (int t = 0; t < tile; t++)                                                             \
        sum[t * sums] =                                                                          \
            vf_fma(LOAD(w + LANES * k), vf_set1(x[t * x_stride + k]), sum[t * sums]);            \
    for (int t = 0; t < tile; t++) {                                                             \
      for (int s = 1; s < sums; s++) sum[t * sums] = vf_add(sum[t * sums], sum[t * sums + s]);   \
      vf_store(y + t * y_stride, vf_add(sum[t * sums], vf_load(bias)));                          \
    }                                                                                            \
  }                                                                                              \
  static void NAME(const Matrix *m, const float *x, size_t x_stride, size_t batch, float *y) {   \
    const size_t y_stride = LANES * m->blocks;                                                   \
    for (size_t block = 0; block < m->blocks; block++) {                                         \
      const TYPE *w = (const TYPE *)m->values + block * m->inputs * LANES;                       \
      const float *bias = m->bias + block * LANES;                                               \
      float *out = y + block * LANES;                                                            \
      size_t b = 0;                                                                              \
      for (; b + TILE <= batch; b += TILE)                                                       \
        NAME##_tile(w, bias, x + b * x_stride, x_stride, m->inputs, TILE, 1,                     \
                    out + b * y_stride, y_stride);                                               \
      for (; b < batch; b++)                                                                     \
        NAME##_tile(w, bias, x + b * x_stride, x_stride, m->inputs, 1, 4, out + b * y_stride,    \
                    y_stride);                                                                   \
    }                                                                                            \
  }

DEFINE_FLOAT_TILE(product_float32, float, vf_load)
DEFINE_FLOAT_TILE(product_float16, uint16_t, vf_load_half)

/* --- int8 weights: values[block][quad][16][4] --- */

/* Computes `blocks` of outputs for `tile` observations. Where there are few, several `sums` of each
 * hide the latency of a product. */
INLINE void int8_tile(const Matrix *m, size_t block, int blocks, const uint8_t *x, size_t x_stride,
                      int32_t zero, const float *x_scale, int tile, int sums, float *y) {
  const size_t quads = (m->inputs + 3) / 4, y_stride = LANES * m->blocks;
  const size_t pitch = quads * 4 * LANES;
  const int8_t *w = (const int8_t *)m->values + block * pitch;
  vdot sum[PAIR * TILE * 4];
  for (int s = 0; s < blocks * tile * sums; s++) sum[s] = vd_zero();
  size_t k = 0;
  for (; k + sums <= quads; k += sums)
    for (int s = 0; s < sums; s++)
      for (int t = 0; t < tile; t++)
        for (int p = 0; p < blocks; p++) {
          vdot *to = &sum[(p * tile + t) * sums + s];
          *to = vd_u8s8(*to, x + t * x_stride + 4 * (k + s), w + p * pitch + 4 * LANES * (k + s));
        }
  for (; k < quads; k++)
    for (int t = 0; t < tile; t++)
      for (int p = 0; p < blocks; p++) {
        vdot *to = &sum[(p * tile + t) * sums];
        *to = vd_u8s8(*to, x + t * x_stride + 4 * k, w + p * pitch + 4 * LANES * k);
      }
  for (int p = 0; p < blocks; p++) {
    const size_t at = (block + p) * LANES;
    /* sum of w (x - zero) = sum of w x - zero * sum of w, with zero 0 or 128. The same holds for
     * INPUT_OFFSET, which vd_u8s8 subtracts already. */
    int32_t offset[LANES];
    for (int i = 0; i < LANES; i++) offset[i] = (zero - INPUT_OFFSET) * m->row_sum[at + i];
    for (int t = 0; t < tile; t++) {
      vdot *from = &sum[(p * tile + t) * sums];
      for (int s = 1; s < sums; s++) from[0] = vd_add(from[0], from[s]);
      vfloat reals = vi_to_float(vi_sub(vd_lanes(from[0]), vi_load(offset)));
      vfloat scale = vf_mul(vf_load(m->scale + at), vf_set1(x_scale[t]));
      vf_store(y + t * y_stride + at, vf_add(vf_mul(reals, scale), vf_load(m->bias + at)));
    }
  }
}

static void product_int8(const Matrix *m, const uint8_t *x, size_t x_stride, int32_t zero,
                         const float *x_scale, size_t batch, float *y) {
  const size_t y_stride = LANES * m->blocks, tiled = batch / TILE * TILE;
  for (size_t block = 0; block < m->blocks;) {
    const int blocks = m->blocks - block < PAIR ? 1 : PAIR;
    for (size_t b = 0; b < tiled; b += TILE) {
      const uint8_t *rows = x + b * x_stride;
      float *to = y + b * y_stride;
      if (blocks == PAIR)
        int8_tile(m, block, PAIR, rows, x_stride, zero, x_scale + b, TILE, 1, to);
      else
        int8_tile(m, block, 1, rows, x_stride, zero, x_scale + b, TILE, 1, to);
    }
    for (int p = 0; p < blocks; p++)
      for (size_t b = tiled; b < batch; b++)
        int8_tile(m, block + p, 1, x + b * x_stride, x_stride, zero, x_scale + b, 1, SUMS,
                  y + b * y_stride);
    block += blocks;
  }
}

/* --- int4 weights: values[block][group][8][16][4], two inputs to a byte ---
 * A byte's low nibble belongs to an input of the group's first half, its high nibble to an input of
 * the second half. 8 stands for zero. */

INLINE void int4_tile(const Matrix *m, size_t block, const int8_t *x, size_t x_stride,
                      const int32_t *x_sum, const float *x_scale, int tile, float *y) {
  const size_t groups = (m->inputs + GROUP - 1) / GROUP, y_stride = LANES * m->blocks;
  const uint8_t *w = (const uint8_t *)m->values + block * groups * (GROUP / 2) * LANES;
  const uint16_t *scale = m->group_scale + block * groups * LANES;
  vfloat total[TILE];
  for (int t = 0; t < tile; t++) total[t] = vf_set1(0.0f);
  for (size_t g = 0; g < groups; g++) {
    vfloat group_scale = vf_load_bfloat(scale + g * LANES);
    vnib sum[TILE];
    for (int t = 0; t < tile; t++) sum[t] = vn_zero();
    for (int k = 0; k < GROUP / 8; k++)
      for (int t = 0; t < tile; t++) {
        const int8_t *low = x + t * x_stride + g * GROUP + 4 * k;
        sum[t] = vn_s8u4(sum[t], low, low + GROUP / 2, w + (g * GROUP / 8 + k) * 4 * LANES);
      }
    for (int t = 0; t < tile; t++) {
      vint lanes = vi_sub(vn_lanes(sum[t]), vi_set1(8 * x_sum[t * groups + g]));
      total[t] = vf_add(total[t], vf_mul(vi_to_float(lanes), group_scale));
    }
  }
  for (int t = 0; t < tile; t++)
    vf_store(y + t * y_stride + block * LANES,
             vf_add(vf_mul(total[t], vf_set1(x_scale[t])), vf_load(m->bias + block * LANES)));
}

static void product_int4(const Matrix *m, const int8_t *x, size_t x_stride, const int32_t *x_sum,
                         const float *x_scale, size_t batch, float *y) {
  const size_t groups = (m->inputs + GROUP - 1) / GROUP, y_stride = LANES * m->blocks;
  for (size_t block = 0; block < m->blocks; block++) {
    size_t b = 0;
    for (; b + TILE <= batch; b += TILE)
      int4_tile(m, block, x + b * x_stride, x_stride, x_sum + b * groups, x_scale + b, TILE,
                y + b * y_stride);
    for (; b < batch; b++)
      int4_tile(m, block, x + b * x_stride, x_stride, x_sum + b * groups, x_scale + b, 1,
                y + b * y_stride);
  }
}

/* --- between the products --- */

/* Rounds to the nearest integer, ties to even, for |x| < 2^22. */
INLINE float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

/* Returns e^y within 2e-7 of it, for y from -87 to 80: e^y = 2^n e^r with |r| <= ln(2) / 2. */
INLINE float exp_of(float y) {
  float n = nearest(y * 1.44269504f);
  float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float e = 1.0f / 720.0f; /* Taylor's series; the next term is below 2e-7 of the sum. */
  e = e * r + 1.0f / 120.0f;
  e = e * r + 1.0f / 24.0f;
  e = e * r + 1.0f / 6.0f;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  memcpy(&power, &bits, 4);
  return e * power;
}

/* Within 1e-7: tanh |x| = 1 - 2 / (e^{2|x|} + 1). */
INLINE float tanh_of(float x) {
  float magnitude = fabsf(x);
  float y = magnitude < 10.0f ? 2.0f * magnitude : 20.0f;
  float result = 1.0f - 2.0f / (exp_of(y) + 1.0f);
  return copysignf(x == x ? result : x, x);
}

/* Returns e^x of a number below 0, and 1 of others. */
INLINE float exp_below_0(float x) {
  float y = x < -87.0f ? -87.0f : x;
  return exp_of(y < 0.0f ? y : 0.0f);
}

INLINE float sigmoid_of(float x) {
  float e = exp_below_0(-fabsf(x));
  float result = (x < 0.0f ? e : 1.0f) / (1.0f + e);
  return x == x ? result : x;
}

INLINE float elu_of(float x, float a, float b) {
  return x < 0.0f ? a * (exp_below_0(x) - 1.0f) : b * x;
}

/* With e = e^x, tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2). */
INLINE float mish_of(float x) {
  float y = x < -87.0f ? -87.0f : x;
  float e = exp_of(y < 20.0f ? y : 20.0f), part = e * (e + 2.0f);
  return x * (part / (part + 2.0f));
}

INLINE float softplus_of(float x, float beta, float threshold) {
  float y = x * beta;
  if (y > threshold) return x;
  return ((y > 0.0f ? y : 0.0f) + log1pf(expf(-fabsf(y)))) / beta;
}

INLINE float gelu_tanh_of(float x) {
  return 0.5f * x * (1.0f + tanh_of(0.797884561f * (x + 0.044715f * x * x * x)));
}

#define EACH_NUMBER(RESULT)                 \
  for (size_t i = 0; i < count; i++) {      \
    const float v = x[i];                   \
    x[i] = RESULT;                          \
  }                                         \
  break

static void activate_all(float *x, size_t count, int32_t activation, float a, float b) {
  switch (activation) {
    case TANH: EACH_NUMBER(tanh_of(v));
    case RELU: EACH_NUMBER(v < 0.0f ? 0.0f : v);
    case LEAKY_RELU: EACH_NUMBER(v < 0.0f ? a * v : v);
    case ELU: EACH_NUMBER(elu_of(v, a, b));
    case SILU: EACH_NUMBER(v * sigmoid_of(v));
    case MISH: EACH_NUMBER(mish_of(v));
    case SIGMOID: EACH_NUMBER(sigmoid_of(v));
    case GELU: EACH_NUMBER(0.5f * v * (1.0f + erff(v * 0.707106781f)));
    case GELU_TANH: EACH_NUMBER(gelu_tanh_of(v));
    case SOFTPLUS: EACH_NUMBER(softplus_of(v, a, b));
    case HARDTANH: EACH_NUMBER(v < a ? a : v > b ? b : v);
  }
}

static float largest(const float *x, size_t count) {
  int32_t most = 0; /* Magnitudes have the order of their bits, with infinity and NaN above all. */
  for (size_t i = 0; i < count; i++) {
    int32_t bits;
    memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  if (most >= 0x7f800000) return INFINITY;
  float result;
  memcpy(&result, &most, 4);
  return result;
}

static void round_all(const float *x, float factor, int32_t zero, size_t count, uint8_t *q) {
  for (size_t i = 0; i < count; i++) q[i] = (uint8_t)((int32_t)nearest(x[i] * factor) + zero);
}

static uint32_t read_all(const uint32_t *words, size_t count) {
  uint32_t digest[4 * LANES] = {0};
  for (size_t i = 0; i + 4 * LANES <= count; i += 4 * LANES)
    for (size_t j = 0; j < 4 * LANES; j++) digest[j] ^= words[i + j];
  for (size_t j = 1; j < 4 * LANES; j++) digest[0] ^= digest[j];
  return digest[0];
}

const Kernels KERNELS = {
    product_float32, product_float16, product_int8, product_int4,
    activate_all,    largest,         round_all,    read_all,
};
