/* Computes policies with every instruction set of this processor: run_cases CASES RESULTS.
 *
 * CASES: cases one after another, each as test_arm.py writes it. RESULTS: for each set and case, the
 * set's number (int32), then the outputs (float32). It takes files, so that an emulator can run it
 * without a Python for the emulated processor. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define NUM_ISAS 7

int32_t actorq_isa_usable(int32_t isa);
void *actorq_network_new(const void *layers, int32_t num_layers, int32_t pixels, int32_t max_batch,
                         int32_t isa);
void *actorq_weights_new(const void *network);
void actorq_weights_set(const void *network, void *weights, int32_t layer, const void *values,
                        const void *scales, const float *bias);
void actorq_run(void *network, const void *weights, const void *observations, int32_t batch,
                float *outputs);
void actorq_network_free(void *network);
void actorq_weights_free(void *weights);

/* Reads a number of bytes, then the bytes. */
static void *piece(FILE *file) {
  int32_t bytes;
  if (fread(&bytes, 4, 1, file) != 1) return NULL;
  void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (fread(memory, 1, bytes, file) != (size_t)bytes) exit(3);
  return memory;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  FILE *results = fopen(argv[2], "wb");
  for (int32_t isa = 0; isa < NUM_ISAS; isa++) {
    if (!actorq_isa_usable(isa)) continue;
    FILE *cases = fopen(argv[1], "rb");
    int32_t *facts; /* Number of layers, whether pixels, observations, outputs of one. */
    while ((facts = piece(cases))) {
      void *layers = piece(cases);
      void *network = actorq_network_new(layers, facts[0], facts[1], facts[2], isa);
      void *weights = actorq_weights_new(network);
      for (int32_t i = 0; i < facts[0]; i++) {
        void *values = piece(cases), *scales = piece(cases), *bias = piece(cases);
        actorq_weights_set(network, weights, i, values, scales, bias);
        free(values);
        free(scales);
        free(bias);
      }
      void *observations = piece(cases);
      float *outputs = malloc(4 * facts[2] * facts[3]);
      actorq_run(network, weights, observations, facts[2], outputs);
      fwrite(&isa, 4, 1, results);
      fwrite(outputs, 4, facts[2] * facts[3], results);
      actorq_network_free(network);
      actorq_weights_free(weights);
      free(layers);
      free(observations);
      free(outputs);
      free(facts);
    }
    fclose(cases);
  }
  return fclose(results);
}
