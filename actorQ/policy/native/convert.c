/* The broadcaster's conversion of weights, from the learner's layout [inputs, outputs] to the
   actors' [outputs, inputs]. Weights stay as they are, or become int8 with one scale for each
   output, or int4 with one scale for every 64 inputs of an output.

   Memory is the limit. The source is read in tiles of whole cache lines, so that neither side of
   the transposition walks memory in steps of a power of two, which makes numpy slow. The loops are
   plain C that every compiler vectorizes. Results equal those of actorQ/policy/quantization.py bit
   for bit. Sources are float32, or bfloat16 (the upper halves of float32). */

#include <stdint.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

enum { INPUT_BLOCK = 64, OUTPUT_BLOCK = 64, STRIP = 2048 };

static const int32_t MAGNITUDE = 0x7fffffff;
static const int32_t INFINITE = 0x7f800000;
static const float TINY = 1.17549435e-38f;
/* Adding 1.5 * 2^23 rounds a small float to the nearest integer, ties to even, and leaves that
   integer in the lowest bits. */
static const float ROUNDER = 12582912.0f;

static int smaller(int a, int b) { return a < b ? a : b; }

/* Returns `count` numbers from the place `at` as float32. `buffer` is for widened bfloat16. */
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

/* Keeps the largest magnitudes. Without the sign, the bits of floats have the order of the floats,
   with NaN above infinity. */
static inline void note_largest(const float *row, int width, int32_t *largest) {
    for (int o = 0; o < width; o++) {
        int32_t bits;
        memcpy(&bits, row + o, sizeof bits);
        bits &= MAGNITUDE;
        largest[o] = bits > largest[o] ? bits : largest[o];
    }
}

/* bytes[o] = round(row[o] / scale[o]), in two's complement. */
static inline void round_row(const float *row, const float *scale, int width, uint8_t *bytes) {
    for (int o = 0; o < width; o++) {
        const float rounded = row[o] / scale[o] + ROUNDER;
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        bytes[o] = (uint8_t)bits;
    }
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

/* Quantizes to symmetric int8 with one scale for each output. A channel of zeros has scale 1.
   Returns 0, or 1 if the weights hold NaN or infinity; the results are undefined then. */
PUBLIC int32_t actorq_int8_channels(const void *source, int32_t bfloat16, int32_t inputs,
                                    int32_t outputs, int8_t *values, float *scales) {
    for (int o0 = 0; o0 < outputs; o0 += STRIP) {
        const int width = smaller(STRIP, outputs - o0);
        int32_t largest[STRIP] = {0};
        for (int i = 0; i < inputs; i++) {
            float buffer[STRIP];
            const float *row = row_at(source, (size_t)i * outputs + o0, width, bfloat16,
                                      buffer);
            note_largest(row, width, largest);
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
                round_row(row, scales + o0, width, bytes);
                for (int o = 0; o < width; o++) tile[o][i] = bytes[o];
            }
            for (int o = 0; o < width; o++) {
                memcpy(values + (size_t)(o0 + o) * inputs + i0, tile[o], height);
            }
        }
    }
    return 0;
}

/* Returns the nearest bfloat16, ties to even, as float32, and the largest instead of infinity. */
static float to_bfloat16(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    if (bits == 0x7f800000) bits = 0x7f7f0000;
    memcpy(&number, &bits, sizeof bits);
    return number;
}

/* Quantizes to symmetric int4, stored as bytes, with one bfloat16 scale for every 64 inputs of an
   output. scales: [outputs][groups]. Returns the same codes as actorq_int8_channels. */
PUBLIC int32_t actorq_int4_groups(const void *source, int32_t bfloat16, int32_t inputs,
                                  int32_t outputs, int8_t *values, float *scales) {
    const int groups = (inputs + INPUT_BLOCK - 1) / INPUT_BLOCK; /* A block is a group. */
    uint8_t tile[OUTPUT_BLOCK][INPUT_BLOCK];
    float buffers[INPUT_BLOCK][OUTPUT_BLOCK];
    const float *row[INPUT_BLOCK];
    for (int o0 = 0; o0 < outputs; o0 += OUTPUT_BLOCK) {
        const int width = smaller(OUTPUT_BLOCK, outputs - o0);
        for (int group = 0; group < groups; group++) {
            const int i0 = group * INPUT_BLOCK, height = smaller(INPUT_BLOCK, inputs - i0);
            int32_t largest[OUTPUT_BLOCK] = {0};
            float scale[OUTPUT_BLOCK];
            for (int i = 0; i < height; i++) {
                row[i] = row_at(source, (size_t)(i0 + i) * outputs + o0, width, bfloat16,
                                buffers[i]);
                note_largest(row[i], width, largest);
            }
            for (int o = 0; o < width; o++) {
                if (largest[o] >= INFINITE) return 1;
                memcpy(scale + o, largest + o, sizeof *scale);
                scale[o] = to_bfloat16(scale[o] / 7.0f);
                if (scale[o] < TINY) scale[o] = 1.0f;
                scales[(size_t)(o0 + o) * groups + group] = scale[o];
            }
            for (int i = 0; i < height; i++) {
                uint8_t bytes[OUTPUT_BLOCK];
                round_row(row[i], scale, width, bytes);
                for (int o = 0; o < width; o++) tile[o][i] = bytes[o];
            }
            for (int o = 0; o < width; o++) {
                memcpy(values + (size_t)(o0 + o) * inputs + i0, tile[o], height);
            }
        }
    }
    return 0;
}
