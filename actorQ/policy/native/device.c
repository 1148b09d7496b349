/* A policy in one file, for a device: normalizes an observation, computes the layers, takes the
 * action. The weights stay where the file is mapped, already in the kernels' layout.
 *
 * device.py writes the file and joins this source to the kernels and to policy.c.
 * baseline/deploy/run_native.py compiles and calls it. Numbers of a file are little-endian. Its
 * arrays begin at multiples of 64 bytes, in this order:
 *
 *   header     int32 [16], see Header
 *   layers     Layer [num_layers]
 *   parts      int32 [num_parts]: outputs of each action of ARGMAXES
 *   mean, deviation, clip    float32 [num_inputs] each, where observations are normalized
 *   low, high  float32 [num_outputs] each, where actions are continuous
 *   weights    as policy.c lays them out
 */

enum { ARGMAX, ARGMAXES, POSITIVE, CLIP, SCALE };

typedef struct {
  int32_t num_layers, head;
  int32_t image;      /* Whether observations are bytes [channels][height][width]. */
  int32_t num_inputs; /* Numbers of an observation. */
  int32_t num_outputs, num_parts, normalizes;
  int32_t more[9];
} Header;

typedef struct {
  const Header *header;
  const Layer *layers;
  const int32_t *parts;
  const float *mean, *deviation, *clip, *low, *high;
  Network *network;
  Weights weights;
  void *input;             /* What the first layer takes. */
  const void *observation; /* The caller's buffers. */
  float *output;
  void *action;            /* int64 for discrete actions, otherwise float32. */
} Device;

/* Returns whether each layer takes what the one before it gives, there are kernels for all, and the
 * parts of the outputs are all of them. */
static bool fits(const Header *h, const Layer *layers, const int32_t *part_sizes) {
  const int32_t most = 1 << 24;
  size_t size = (size_t)h->num_inputs;
  for (int32_t i = 0; i < h->num_layers; i++) {
    const Layer *l = &layers[i];
    if (l->inputs < 1 || l->inputs > most || l->outputs < 1 || l->outputs > most) return false;
    if (l->type < FLOAT32 || l->type > INT4) return false;
    if (l->kernel) {
      if (l->kernel < 1 || l->stride < 1 || l->channels < 1 || l->kernel > l->height ||
          l->kernel > l->width || l->height > 4096 || l->width > 4096 || l->channels > 4096)
        return false;
      if (l->inputs != (int64_t)l->kernel * l->kernel * l->channels || l->outputs % LANES)
        return false;
      if (l->type == INT4 || (i == 0 && !h->image)) return false;
    }
    if (input_size(l) != size) return false;
    size = positions_of(l) * (size_t)l->outputs;
  }
  int64_t parts = h->head == ARGMAXES ? 0 : h->num_outputs;
  for (int32_t i = 0; i < h->num_parts; i++) parts += part_sizes[i];
  return size == (size_t)h->num_outputs && parts == h->num_outputs;
}

static const void *take(const char **at, size_t bytes) {
  const char *found = *at;
  *at += round_up(bytes, ALIGNMENT);
  return found;
}

void policy_close(Device *d) {
  if (!d) return;
  actorq_network_free(d->network);
  free(d->input);
  free(d);
}

/* Prepares a policy.
 * file: the file from its header on, which must stay; bytes: its size.
 * observation, output, action: buffers that policy_act reads and fills; they must stay, too.
 * Returns NULL where the file is damaged or memory is missing. */
Device *policy_open(const void *file, size_t bytes, const void *observation, float *output,
                    void *action) {
  const char *at = file, *end = at + bytes;
  const Header *h = file;
  if (bytes < sizeof *h || h->num_layers < 1 || h->num_layers > MAX_LAYERS) return NULL;
  if (h->num_inputs < 1 || h->num_outputs < 1 || h->num_parts < 0) return NULL;
  if (h->head < ARGMAX || h->head > SCALE) return NULL;
  const size_t inputs = h->num_inputs, outputs = h->num_outputs;
  const bool continuous = h->head >= CLIP;
  if ((inputs + outputs + h->num_parts) * 4 + h->num_layers * sizeof(Layer) > bytes) return NULL;
  Device *d = calloc(1, sizeof *d);
  if (!d) return NULL;
  d->header = take(&at, sizeof *h);
  d->layers = take(&at, h->num_layers * sizeof(Layer));
  d->parts = take(&at, h->num_parts * sizeof(int32_t));
  const float **floats[] = {&d->mean, &d->deviation, &d->clip, &d->low, &d->high};
  for (int i = 0; i < 5; i++)
    if (i < 3 ? h->normalizes : continuous)
      *floats[i] = take(&at, (i < 3 ? inputs : outputs) * sizeof(float));
  const bool convolves = d->layers[0].kernel != 0;
  d->observation = observation;
  d->output = output;
  d->action = action;
  d->input = allocate(inputs * sizeof(float));
  if (at < end && fits(h, d->layers, d->parts))
    d->network = actorq_network_new(d->layers, h->num_layers, h->image && convolves, 1, 0);
  if (!d->input || !d->network ||
      lay_out(d->network, &d->weights, at) != (size_t)(end - at)) {
    policy_close(d);
    return NULL;
  }
  return d;
}

/* Returns what the first layer takes. */
static const void *prepare(const Device *d) {
  const Header *h = d->header;
  const Layer *first = d->layers;
  if (h->image && first->kernel) { /* From planes to pixels. */
    const uint8_t *planes = d->observation;
    uint8_t *pixels = d->input;
    const size_t size = (size_t)first->height * first->width, channels = first->channels;
    for (size_t c = 0; c < channels; c++)
      for (size_t i = 0; i < size; i++) pixels[i * channels + c] = planes[c * size + i];
    return pixels;
  }
  float *x = d->input;
  if (h->image) {
    const uint8_t *bytes = d->observation;
    for (int32_t i = 0; i < h->num_inputs; i++) x[i] = (float)bytes[i] / 255.0f;
    return x;
  }
  if (!h->normalizes) return d->observation;
  const float *raw = d->observation;
  for (int32_t i = 0; i < h->num_inputs; i++) {
    const float v = (raw[i] - d->mean[i]) / d->deviation[i], most = d->clip[i];
    x[i] = v < -most ? -most : v > most ? most : v;
  }
  return x;
}

static int64_t index_of_largest(const float *x, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++)
    if (x[i] > x[best]) best = i;
  return best;
}

/* Fills the buffers of outputs and actions for the observation in its buffer. */
void policy_act(Device *d) {
  const Header *h = d->header;
  const float *x = d->output;
  int64_t *whole = d->action;
  float *real = d->action;
  actorq_run(d->network, &d->weights, prepare(d), 1, d->output);
  switch (h->head) {
    case ARGMAX: whole[0] = index_of_largest(x, h->num_outputs); break;
    case ARGMAXES:
      for (int32_t i = 0; i < h->num_parts; x += d->parts[i++])
        whole[i] = index_of_largest(x, d->parts[i]);
      break;
    case POSITIVE:
      for (int32_t i = 0; i < h->num_outputs; i++) whole[i] = x[i] > 0.0f;
      break;
    case CLIP:
      for (int32_t i = 0; i < h->num_outputs; i++)
        real[i] = x[i] < d->low[i] ? d->low[i] : x[i] > d->high[i] ? d->high[i] : x[i];
      break;
    default:
      for (int32_t i = 0; i < h->num_outputs; i++)
        real[i] = d->low[i] + 0.5f * (x[i] + 1.0f) * (d->high[i] - d->low[i]);
  }
}
