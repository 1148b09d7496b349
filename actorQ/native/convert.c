/* The broadcaster's conversion: the learner's weights [inputs, outputs] to the actors' layout
   [outputs, inputs], as they are or as int8 with one scale for each output.

   Memory is the limit: the source is read in tiles of whole cache lines, so that neither side of
   the transposition walks memory in steps of a power of two (which is what makes numpy slow). The
   loops are plain C that every compiler vectorizes; results are bit for bit those of
   actorQ/quantization.py. Sources are float32, or bfloat16 (the upper halves of float32). */

#include <stdint.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

enum { INPUT_BLOCK = 64, OUTPUT_BLOCK = 64, STRIP = 2048 };

static const int32_t MAGNITUDE = 0x7fffffff;
static const int32_t INFINITE = 0x7f800000;
static const float TINY = 1.17549435e-38f;
/* Adding 1.5 * 2^23 rounds a small float to the nearest integer, half to even, and leaves that
   integer in its lowest bits. */
static const float ROUNDER = 12582912.0f;

static int smaller(int a, int b) { return a < b ? a : b; }

/* Returns `count` numbers from the place `at` as float32; `buffer` is for widened bfloat16. */
static inline const float *row_at(const void *source, size_t at, int count, int bfloat16,
                                  float *buffer) {
    if (!bfloat16) return (const float *)source + at;
    const uint16_t *upper = (const uint16_t *)source + at;
    for (int k = 0; k < count; k++) {
        const uint32_t bits = (uint32_t)upper[k] << 16;
        memcpy(buffer + k, &bits, sizeof bits);
    }
    return buffer;
}

/* destination[o * inputs + i] = source[i * outputs + o]. */
PUBLIC void actorq_transpose(const void *source, int32_t bfloat16, int32_t inputs,
                             int32_t outputs, float *destination) {
    float tile[OUTPUT_BLOCK][INPUT_BLOCK];
    for (int o0 = 0; o0 < outputs; o0 += OUTPUT_BLOCK) {
        const int width = smaller(OUTPUT_BLOCK, outputs - o0);
        for (int i0 = 0; i0 < inputs; i0 += INPUT_BLOCK) {
            const int height = smaller(INPUT_BLOCK, inputs - i0);
            for (int i = 0; i < height; i++) {
                float buffer[OUTPUT_BLOCK];
                const float *row = row_at(source, (size_t)(i0 + i) * outputs + o0, width, bfloat16,
                                          buffer);
                for (int o = 0; o < width; o++) tile[o][i] = row[o];
            }
            for (int o = 0; o < width; o++) {
                memcpy(destination + (size_t)(o0 + o) * inputs + i0, tile[o],
                       height * sizeof(float));
            }
        }
    }
}

/* Symmetric int8 with one scale for each output; a channel of zeros has scale 1.
   Returns 0, or 1 when the weights hold NaN or infinity (nothing is promised then). */
PUBLIC int32_t actorq_int8_channels(const void *source, int32_t bfloat16, int32_t inputs,
                                    int32_t outputs, int8_t *values, float *scales) {
    for (int o0 = 0; o0 < outputs; o0 += STRIP) {
        const int width = smaller(STRIP, outputs - o0);
        /* Bits of floats without their sign order as the floats do, NaN above infinity. */
        int32_t largest[STRIP] = {0};
        for (int i = 0; i < inputs; i++) {
            float buffer[STRIP];
            const float *row = row_at(source, (size_t)i * outputs + o0, width, bfloat16,
                                      buffer);
            for (int o = 0; o < width; o++) {
                int32_t bits;
                memcpy(&bits, row + o, sizeof bits);
                bits &= MAGNITUDE;
                largest[o] = bits > largest[o] ? bits : largest[o];
            }
        }
        for (int o = 0; o < width; o++) {
            if (largest[o] >= INFINITE) return 1;
            float scale;
            memcpy(&scale, largest + o, sizeof scale);
            scale /= 127.0f;
            scales[o0 + o] = scale < TINY ? 1.0f : scale;
        }
    }
    uint8_t tile[OUTPUT_BLOCK][INPUT_BLOCK];
    for (int o0 = 0; o0 < outputs; o0 += OUTPUT_BLOCK) {
        const int width = smaller(OUTPUT_BLOCK, outputs - o0);
        for (int i0 = 0; i0 < inputs; i0 += INPUT_BLOCK) {
            const int height = smaller(INPUT_BLOCK, inputs - i0);
            for (int i = 0; i < height; i++) {
                float buffer[OUTPUT_BLOCK];
                const float *row = row_at(source, (size_t)(i0 + i) * outputs + o0, width, bfloat16,
                                          buffer);
                uint8_t bytes[OUTPUT_BLOCK];
                for (int o = 0; o < width; o++) {
                    const float rounded = row[o] / scales[o0 + o] + ROUNDER;
                    uint32_t bits;
                    memcpy(&bits, &rounded, sizeof bits);
                    bytes[o] = (uint8_t)bits;
                }
                for (int o = 0; o < width; o++) tile[o][i] = bytes[o];
            }
            for (int o = 0; o < width; o++) {
                memcpy(values + (size_t)(o0 + o) * inputs + i0, tile[o], height);
            }
        }
    }
    return 0;
}
