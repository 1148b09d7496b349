/* The functions that kernels.c defines for one instruction set. */
#ifndef ACTORQ_KERNELS_H
#define ACTORQ_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define GROUP 64 /* Inputs that share a scale in the 4-bit scheme. */

/* Activations, numbered as in library.py. Two parameters are a and b. */
enum {
  NONE, TANH, RELU,
  LEAKY_RELU,           /* a: slope below 0 */
  ELU,                  /* a: factor below 0, b: factor above 0 */
  SILU, MISH, SIGMOID, GELU, GELU_TANH,
  SOFTPLUS,             /* a: beta, b: threshold */
  HARDTANH              /* a: smallest, b: largest */
};

/* Weights of a linear layer, or of a convolution in that form. Rows are output channels in blocks
 * of 16. Zeros fill up the last block. */
typedef struct {
  const void *values; /* See pack_* in policy.c. */
  const float *bias;  /* [16 * blocks] */
  const float *scale; /* int8: [16 * blocks] */
  const int32_t *row_sum; /* int8: sum of a row's integers, [16 * blocks] */
  const uint16_t *group_scale; /* int4: bfloat16 [blocks][groups][16] */
  size_t inputs, blocks;
} Matrix;

/* Products write y[b][16 * blocks] for inputs x[b], b < batch. */
typedef struct {
  void (*float32)(const Matrix *m, const float *x, size_t x_stride, size_t batch, float *y);
  void (*float16)(const Matrix *m, const float *x, size_t x_stride, size_t batch, float *y);
  /* x: unsigned integers with zero point `zero`, and one scale for each row of x. */
  void (*int8)(const Matrix *m, const uint8_t *x, size_t x_stride, int32_t zero,
               const float *x_scale, size_t batch, float *y);
  /* x: signed integers, with the sum of each group, [batch][groups]. */
  void (*int4)(const Matrix *m, const int8_t *x, size_t x_stride, const int32_t *x_sum,
               const float *x_scale, size_t batch, float *y);
  void (*activate)(float *x, size_t count, int32_t activation, float a, float b);
  /* Returns the largest magnitude, or infinity where a number is not finite. */
  float (*largest)(const float *x, size_t count);
  /* Computes q = rint(x * factor) + zero, as bytes. */
  void (*round)(const float *x, float factor, int32_t zero, size_t count, uint8_t *q);
  /* Reads memory as fast as possible and returns a digest of it, for benchmarks. */
  uint32_t (*read)(const uint32_t *words, size_t count);
} Kernels;

extern const Kernels actorq_portable, actorq_avx2, actorq_avxvnni, actorq_avx512;
extern const Kernels actorq_neon, actorq_dotprod, actorq_i8mm;

#endif
