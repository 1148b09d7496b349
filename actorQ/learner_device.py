"""What the learner computes on. Learner's process only; imports TensorFlow, no torch."""

import time

from absl import logging
import tensorflow as tf

from actorQ import config as config_lib
from actorQ import layers
from actorQ import provenance
from actorQ import seeding
from actorQ import tensorflow_device

_ROUNDS = 5  # Of matrix products that are timed: some 0.3 s on one core with 2,048 units.


def set_up_tensorflow(config: config_lib.RunConfig) -> None:
    """Chooses device, threads and seed; before any tensor exists."""
    tensorflow_device.choose(config.learner_device_placement == "GPU", "the learner")
    cores = provenance.usable_cores()
    threads = config.learner_threads or max(1, cores - config.n_actors)
    logging.info(
        "Learner: %d threads on %d cores%s", threads, cores,
        "" if config.learner_threads else (
            f" ({cores - threads} left to actors on this machine; see --learner_threads)"
        ),
    )
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))
    tf.random.set_seed(seeding.derive(config.seed, "learner"))


def name() -> str:
    """Returns "GPU" or "CPU"."""
    return "GPU" if tf.config.get_visible_devices("GPU") else "CPU"


def warn_if_slow(config: config_lib.RunConfig) -> bool:
    """Logs a line if --learner_precision is bfloat16, and float32 is no slower on this device.

    That is measured, by the product of a batch and the widest layers: an AMD Zen 4 and an Intel
    Xeon both have AVX512-BF16, with which products take half as long on the one as in float32, and
    nearly twice as long on the other, where AMX would be the fast way.

    Returns:
      Whether it was logged.
    """
    if config.learner_precision == layers.FLOAT32:
        return False
    width = max(config.model_sizes + config.critic_sizes)
    ratio = _product_time_ratio(config.batch_size, width)
    if ratio < 1:
        return False
    logging.warning(
        "--learner_precision=%s: its matrix products take %.1f times as long here as with float32, "
        "the default.", config.learner_precision, ratio,
    )
    return True


def _product_time_ratio(batch_size: int, width: int) -> float:
    """Returns how long a product takes in bfloat16, float32's being 1; shortest of some rounds."""
    times: dict[tf.DType, list[float]] = {tf.float32: [], tf.bfloat16: []}
    operands = {
        dtype: (tf.ones((batch_size, width), dtype), tf.ones((width, width), dtype))
        for dtype in times
    }
    for dtype in [*times] * (1 + _ROUNDS):  # In turn, so that a busy moment hits both.
        start = time.perf_counter()
        tf.matmul(*operands[dtype])[0, 0].numpy()  # A GPU computes on until it is asked.
        times[dtype].append(time.perf_counter() - start)
    # The first of each makes kernels and memory ready.
    return min(times[tf.bfloat16][1:]) / min(times[tf.float32][1:])
