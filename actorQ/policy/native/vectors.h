/* Sixteen lanes of arithmetic, with the instructions that the processor has.
 *
 * Lanes are output channels. Every kernel in kernels.c is written once with these operations, and
 * that file is compiled once for each instruction set (see compiling.py). Integer results are
 * exact, so that all instruction sets give the same numbers. Float sums differ in rounding (FMA).
 *
 * A "quad" is four neighbouring inputs. One 64-byte vector of weights holds a quad for each of
 * sixteen output channels: [16][4].
 */
#ifndef ACTORQ_VECTORS_H
#define ACTORQ_VECTORS_H

#include <stdint.h>
#include <string.h>

#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(PORTABLE)
#define NEON
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

INLINE int32_t quad_bits(const void *bytes) {
  int32_t bits;
  memcpy(&bits, bytes, 4);
  return bits;
}

#if defined(__AVX512VNNI__)

#define TILE 8 /* Observations that share one pass over the weights. */
#define PAIR 2 /* Blocks of outputs that share one pass over these observations. */
#define SUMS 4 /* Sums of each output where there is one observation. */

typedef __m512 vfloat;
typedef __m512i vint;

INLINE vfloat vf_set1(float x) { return _mm512_set1_ps(x); }
INLINE vfloat vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE vfloat vf_load_half(const uint16_t *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vfloat vf_load_bfloat(const uint16_t *p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
INLINE void vf_store(float *p, vfloat x) { _mm512_storeu_ps(p, x); }
INLINE vfloat vf_add(vfloat a, vfloat b) { return _mm512_add_ps(a, b); }
INLINE vfloat vf_mul(vfloat a, vfloat b) { return _mm512_mul_ps(a, b); }
INLINE vfloat vf_fma(vfloat a, vfloat b, vfloat c) { return _mm512_fmadd_ps(a, b, c); }

typedef __m512i vdot; /* Partial sums of products. */

INLINE vdot vd_zero(void) { return _mm512_setzero_si512(); }
/* Adds inputs (unsigned bytes) times weights (signed bytes). */
INLINE vdot vd_u8s8(vdot sum, const uint8_t *x, const int8_t *w) {
  return _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(quad_bits(x)), _mm512_loadu_si512(w));
}
/* Adds weights (nibbles) times inputs (signed bytes) for two quads: low nibbles, then high. */
INLINE vdot vd_s8u4(vdot sum, const int8_t *low, const int8_t *high, const uint8_t *w) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i both = _mm512_loadu_si512(w);
  sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(both, mask), _mm512_set1_epi32(quad_bits(low)));
  return _mm512_dpbusd_epi32(sum, _mm512_and_si512(_mm512_srli_epi16(both, 4), mask),
                             _mm512_set1_epi32(quad_bits(high)));
}
INLINE vint vd_lanes(vdot sum) { return sum; }
INLINE vdot vd_add(vdot a, vdot b) { return _mm512_add_epi32(a, b); }
INLINE vint vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vint vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
INLINE vint vi_sub(vint a, vint b) { return _mm512_sub_epi32(a, b); }
INLINE vfloat vi_to_float(vint x) { return _mm512_cvtepi32_ps(x); }

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#define TILE 4
#define PAIR 1
#define SUMS 4

typedef struct { __m256 a, b; } vfloat;
typedef struct { __m256i a, b; } vint;

INLINE vfloat vf_set1(float x) { return (vfloat){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE vfloat vf_load(const float *p) {
  return (vfloat){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
INLINE vfloat vf_load_half(const uint16_t *p) {
  return (vfloat){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
INLINE __m256 bfloat8(const uint16_t *p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE vfloat vf_load_bfloat(const uint16_t *p) { return (vfloat){bfloat8(p), bfloat8(p + 8)}; }
INLINE void vf_store(float *p, vfloat x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
INLINE vfloat vf_add(vfloat x, vfloat y) {
  return (vfloat){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
INLINE vfloat vf_mul(vfloat x, vfloat y) {
  return (vfloat){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
INLINE vfloat vf_fma(vfloat x, vfloat y, vfloat z) {
  return (vfloat){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

#if defined(__AVXVNNI__)

typedef vint vdot;

INLINE vdot vd_zero(void) { return (vdot){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE vdot vd_u8s8(vdot sum, const uint8_t *x, const int8_t *w) {
  __m256i quad = _mm256_set1_epi32(quad_bits(x));
  const __m256i *weights = (const __m256i *)w;
  return (vdot){_mm256_dpbusd_avx_epi32(sum.a, quad, _mm256_loadu_si256(weights)),
                _mm256_dpbusd_avx_epi32(sum.b, quad, _mm256_loadu_si256(weights + 1))};
}
INLINE __m256i s8u4(__m256i sum, int32_t low, int32_t high, const uint8_t *w) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i both = _mm256_loadu_si256((const __m256i *)w);
  sum = _mm256_dpbusd_avx_epi32(sum, _mm256_and_si256(both, mask), _mm256_set1_epi32(low));
  return _mm256_dpbusd_avx_epi32(sum, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask),
                                 _mm256_set1_epi32(high));
}
INLINE vint vd_lanes(vdot sum) { return sum; }
INLINE vdot vd_add(vdot x, vdot y) {
  return (vdot){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}

#else /* AVX2 alone widens bytes to 16 bits, since vpmaddubsw would saturate. */

/* Four vectors hold partial sums, two for each output channel. */
typedef struct { __m256i p[4]; } vdot;

INLINE vdot vd_zero(void) {
  __m256i zero = _mm256_setzero_si256();
  return (vdot){{zero, zero, zero, zero}};
}
INLINE vdot vd_u8s8(vdot sum, const uint8_t *x, const int8_t *w) {
  __m256i quad = _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(quad_bits(x))));
  for (int i = 0; i < 4; i++) {
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w + i));
    sum.p[i] = _mm256_add_epi32(sum.p[i], _mm256_madd_epi16(wide, quad));
  }
  return sum;
}
INLINE vint vd_lanes(vdot sum) {
  /* hadd leaves 64-bit parts in the order 0, 2, 1, 3. */
  __m256i a = _mm256_hadd_epi32(sum.p[0], sum.p[1]);
  __m256i b = _mm256_hadd_epi32(sum.p[2], sum.p[3]);
  return (vint){_mm256_permute4x64_epi64(a, 0xd8), _mm256_permute4x64_epi64(b, 0xd8)};
}
INLINE vdot vd_add(vdot x, vdot y) {
  for (int i = 0; i < 4; i++) x.p[i] = _mm256_add_epi32(x.p[i], y.p[i]);
  return x;
}
#endif

INLINE vint vi_set1(int32_t x) { return (vint){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE vint vi_load(const int32_t *p) {
  const __m256i *vectors = (const __m256i *)p;
  return (vint){_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)};
}
INLINE vint vi_sub(vint x, vint y) {
  return (vint){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
INLINE vfloat vi_to_float(vint x) {
  return (vfloat){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

#elif defined(NEON)

#if defined(__ARM_FEATURE_DOTPROD)
#define TILE 4
#define SUMS 4
#else /* A partial sum takes twice the registers. */
#define TILE 2
#define SUMS 2
#endif
#define PAIR 1

typedef struct { float32x4_t v[4]; } vfloat;
typedef struct { int32x4_t v[4]; } vint;

#define EACH for (int i = 0; i < 4; i++)

INLINE vfloat vf_set1(float x) { vfloat r; EACH r.v[i] = vdupq_n_f32(x); return r; }
INLINE vfloat vf_load(const float *p) { vfloat r; EACH r.v[i] = vld1q_f32(p + 4 * i); return r; }
INLINE vfloat vf_load_half(const uint16_t *p) {
  vfloat r;
  EACH r.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
  return r;
}
INLINE vfloat vf_load_bfloat(const uint16_t *p) {
  vfloat r;
  EACH r.v[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16));
  return r;
}
INLINE void vf_store(float *p, vfloat x) { EACH vst1q_f32(p + 4 * i, x.v[i]); }
INLINE vfloat vf_add(vfloat x, vfloat y) { EACH x.v[i] = vaddq_f32(x.v[i], y.v[i]); return x; }
INLINE vfloat vf_mul(vfloat x, vfloat y) { EACH x.v[i] = vmulq_f32(x.v[i], y.v[i]); return x; }
INLINE vfloat vf_fma(vfloat x, vfloat y, vfloat z) {
  EACH z.v[i] = vfmaq_f32(z.v[i], x.v[i], y.v[i]);
  return z;
}

INLINE vint vi_set1(int32_t x) { vint r; EACH r.v[i] = vdupq_n_s32(x); return r; }
INLINE vint vi_load(const int32_t *p) { vint r; EACH r.v[i] = vld1q_s32(p + 4 * i); return r; }
INLINE vint vi_sub(vint x, vint y) { EACH x.v[i] = vsubq_s32(x.v[i], y.v[i]); return x; }
INLINE vfloat vi_to_float(vint x) {
  vfloat r;
  EACH r.v[i] = vcvtq_f32_s32(x.v[i]);
  return r;
}

/* Returns a quad four times. */
INLINE int8x16_t quads(const void *bytes) {
  return vreinterpretq_s8_s32(vdupq_n_s32(quad_bits(bytes)));
}
#if !defined(__ARM_FEATURE_MATMUL_INT8)
/* Products of ARM's older processors have two signed factors, so that inputs are x - 128. */
#define INPUT_OFFSET 128
INLINE int8x16_t offset_quads(const uint8_t *x) {
  return vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_s8(quads(x)), vdupq_n_u8(0x80)));
}
#endif

#if defined(__ARM_FEATURE_DOTPROD)

typedef vint vdot;

INLINE vdot vd_zero(void) { return vi_set1(0); }
INLINE vdot vd_u8s8(vdot sum, const uint8_t *x, const int8_t *w) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  uint8x16_t quad = vreinterpretq_u8_s8(quads(x));
  EACH sum.v[i] = vusdotq_s32(sum.v[i], quad, vld1q_s8(w + 16 * i));
#else
  int8x16_t quad = offset_quads(x);
  EACH sum.v[i] = vdotq_s32(sum.v[i], quad, vld1q_s8(w + 16 * i));
#endif
  return sum;
}
INLINE vint vd_lanes(vdot sum) { return sum; }
INLINE vdot vd_add(vdot x, vdot y) { EACH x.v[i] = vaddq_s32(x.v[i], y.v[i]); return x; }

/* Adds weights (nibbles) times inputs (signed bytes) for two quads: low nibbles, then high. */
INLINE vdot vd_s8u4(vdot sum, const int8_t *low, const int8_t *high, const uint8_t *w) {
  int8x16_t l = quads(low), h = quads(high);
  EACH {
    uint8x16_t both = vld1q_u8(w + 16 * i);
    int8x16_t wl = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    int8x16_t wh = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
    sum.v[i] = vdotq_s32(vdotq_s32(sum.v[i], wl, l), wh, h);
  }
  return sum;
}

#else /* Products of 16 bits are exact, and pairs of them are added up in 32. */

/* Eight vectors hold partial sums, two for each output channel. */
typedef struct { int32x4_t p[8]; } vdot;

INLINE vdot vd_zero(void) {
  vdot r;
  for (int i = 0; i < 8; i++) r.p[i] = vdupq_n_s32(0);
  return r;
}
INLINE vdot vd_u8s8(vdot sum, const uint8_t *x, const int8_t *w) {
  int8x16_t quad = offset_quads(x);
  EACH {
    int8x16_t weights = vld1q_s8(w + 16 * i);
    sum.p[2 * i] = vpadalq_s16(sum.p[2 * i], vmull_s8(vget_low_s8(weights), vget_low_s8(quad)));
    sum.p[2 * i + 1] = vpadalq_s16(sum.p[2 * i + 1], vmull_high_s8(weights, quad));
  }
  return sum;
}
INLINE vint vd_lanes(vdot sum) {
  vint r;
  EACH r.v[i] = vpaddq_s32(sum.p[2 * i], sum.p[2 * i + 1]);
  return r;
}
INLINE vdot vd_add(vdot x, vdot y) {
  for (int i = 0; i < 8; i++) x.p[i] = vaddq_s32(x.p[i], y.p[i]);
  return x;
}
INLINE vdot vd_s8u4(vdot sum, const int8_t *low, const int8_t *high, const uint8_t *w) {
  int8x16_t l = quads(low), h = quads(high);
  EACH { /* 2 * 15 * 128 fits into 16 bits. */
    uint8x16_t both = vld1q_u8(w + 16 * i);
    int8x16_t wl = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    int8x16_t wh = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
    int16x8_t first = vmull_s8(vget_low_s8(wl), vget_low_s8(l));
    int16x8_t second = vmull_high_s8(wl, l);
    first = vmlal_s8(first, vget_low_s8(wh), vget_low_s8(h));
    second = vmlal_high_s8(second, wh, h);
    sum.p[2 * i] = vpadalq_s16(sum.p[2 * i], first);
    sum.p[2 * i + 1] = vpadalq_s16(sum.p[2 * i + 1], second);
  }
  return sum;
}
#endif

#else /* Any processor: plain loops, which compilers turn into the vectors that they know. */

#define TILE 2
#define PAIR 1
#define SUMS 4

typedef struct { float v[LANES]; } vfloat;
typedef struct { int32_t v[LANES]; } vint;
typedef vint vdot;

#define EACH for (int i = 0; i < LANES; i++)

INLINE vfloat vf_set1(float x) { vfloat r; EACH r.v[i] = x; return r; }
INLINE vfloat vf_load(const float *p) { vfloat r; memcpy(&r, p, sizeof r); return r; }
INLINE float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
  float value;
  uint32_t bits;
  if (exponent == 0) { /* Zero and subnormals are multiples of 2^-24. */
    value = (float)mantissa * 5.9604644775390625e-8f;
    memcpy(&bits, &value, 4);
  } else { /* Infinity and NaN were refused before. */
    bits = (exponent + 112) << 23 | mantissa << 13;
  }
  bits |= sign;
  memcpy(&value, &bits, 4);
  return value;
}
INLINE vfloat vf_load_half(const uint16_t *p) {
  vfloat r;
  EACH r.v[i] = half_to_float(p[i]);
  return r;
}
INLINE vfloat vf_load_bfloat(const uint16_t *p) {
  vfloat r;
  EACH { uint32_t bits = (uint32_t)p[i] << 16; memcpy(&r.v[i], &bits, 4); }
  return r;
}
INLINE void vf_store(float *p, vfloat x) { memcpy(p, &x, sizeof x); }
INLINE vfloat vf_add(vfloat a, vfloat b) { EACH a.v[i] += b.v[i]; return a; }
INLINE vfloat vf_mul(vfloat a, vfloat b) { EACH a.v[i] *= b.v[i]; return a; }
INLINE vfloat vf_fma(vfloat a, vfloat b, vfloat c) { EACH c.v[i] += a.v[i] * b.v[i]; return c; }

INLINE vdot vd_zero(void) { vdot r; EACH r.v[i] = 0; return r; }
INLINE vdot vd_u8s8(vdot sum, const uint8_t *x, const int8_t *w) {
  EACH for (int j = 0; j < 4; j++) sum.v[i] += (int32_t)x[j] * w[4 * i + j];
  return sum;
}
INLINE vint vd_lanes(vdot sum) { return sum; }
INLINE vdot vd_add(vdot a, vdot b) { EACH a.v[i] += b.v[i]; return a; }
INLINE vint vi_set1(int32_t x) { vint r; EACH r.v[i] = x; return r; }
INLINE vint vi_load(const int32_t *p) { vint r; memcpy(&r, p, sizeof r); return r; }
INLINE vint vi_sub(vint a, vint b) { EACH a.v[i] -= b.v[i]; return a; }
INLINE vfloat vi_to_float(vint x) { vfloat r; EACH r.v[i] = (float)x.v[i]; return r; }

#endif

#if !defined(INPUT_OFFSET)
#define INPUT_OFFSET 0 /* vd_u8s8 takes an input as x - INPUT_OFFSET. */
#endif

/* The operation on nibbles. Its sums differ from those of vd_u8s8 in some sets. */
#if defined(__AVX512VNNI__) || defined(NEON)
typedef vdot vnib;
INLINE vnib vn_zero(void) { return vd_zero(); }
#define vn_s8u4 vd_s8u4
INLINE vint vn_lanes(vnib sum) { return vd_lanes(sum); }
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
typedef vint vnib;
INLINE vnib vn_zero(void) { return (vnib){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE vint vn_lanes(vnib sum) { return sum; }
#if !defined(__AVXVNNI__)
INLINE __m256i s8u4(__m256i sum, int32_t low, int32_t high, const uint8_t *w) {
  /* vpmaddubsw is exact here: 2 * 15 * 128 fits into 16 bits. */
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i both = _mm256_loadu_si256((const __m256i *)w);
  __m256i pairs = _mm256_add_epi16(
      _mm256_maddubs_epi16(_mm256_and_si256(both, mask), _mm256_set1_epi32(low)),
      _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(both, 4), mask),
                           _mm256_set1_epi32(high)));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
}
#endif
INLINE vnib vn_s8u4(vnib sum, const int8_t *low, const int8_t *high, const uint8_t *w) {
  int32_t l = quad_bits(low), h = quad_bits(high);
  return (vnib){s8u4(sum.a, l, h, w), s8u4(sum.b, l, h, w + 32)};
}
#else
typedef vdot vnib;
INLINE vnib vn_zero(void) { return vd_zero(); }
INLINE vnib vn_s8u4(vnib sum, const int8_t *low, const int8_t *high, const uint8_t *w) {
  EACH for (int j = 0; j < 4; j++) {
    uint8_t both = w[4 * i + j];
    sum.v[i] += (int32_t)(both & 15) * low[j] + (int32_t)(both >> 4) * high[j];
  }
  return sum;
}
INLINE vint vn_lanes(vnib sum) { return sum; }
#endif

#endif
