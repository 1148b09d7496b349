"""What the learner computes on. Learner's process only; imports TensorFlow, no torch."""

from collections.abc import Callable
import time

from absl import logging
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.core import provenance
from actorQ.core import seeding
from actorQ.policy import sonnet_layers
from actorQ.policy import tensorflow_device

_WORTH_IT = 0.9  # A way to multiply is taken if it takes this share of the time at most.
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


def choose_products(config: config_lib.RunConfig) -> str:
    """Chooses how the learner multiplies, by --learner_precision and by measuring.

    Measured is the product of a batch and the widest layers. Padding helps processors with AVX2
    alone (`layers`). bfloat16 does as asked, but logs a line if float32 is no slower: an AMD Zen 4
    and an Intel Xeon both have AVX512-BF16, with which products take half as long on the one as in
    float32, and nearly twice as long on the other, where AMX would be the fast way.

    Returns:
      The precision for `layers.linear`.
    """
    width = max(config.model_sizes + config.critic_sizes)
    if config.learner_precision == sonnet_layers.FLOAT32:
        if name() == "GPU" or not sonnet_layers.aligned(width):
            return sonnet_layers.FLOAT32
        ratio = _time_ratio(config.batch_size, width, sonnet_layers.FLOAT32_PADDED)
        padded = ratio < _WORTH_IT
        logging.info(
            "The learner's products take %.2f times as long with padded weights: they are %s.",
            ratio, "padded" if padded else "not padded",
        )
        return sonnet_layers.FLOAT32_PADDED if padded else sonnet_layers.FLOAT32
    ratio = _time_ratio(config.batch_size, width, config.learner_precision)
    if ratio >= 1:
        logging.warning(
            "--learner_precision=%s: its matrix products take %.1f times as long here as with "
            "float32, the default.", config.learner_precision, ratio,
        )
    return config.learner_precision


def _time_ratio(batch_size: int, width: int, precision: str) -> float:
    """Returns how long a product takes, plain float32's being 1; shortest of some rounds."""
    products = {
        kind: _product(batch_size, width, kind) for kind in (sonnet_layers.FLOAT32, precision)
    }
    times: dict[str, list[float]] = {kind: [] for kind in products}
    for kind in [*products] * (1 + _ROUNDS):  # In turn, so that a busy moment hits both.
        start = time.perf_counter()
        products[kind]()[0, 0].numpy()  # A GPU computes on until it is asked.
        times[kind].append(time.perf_counter() - start)
    # The first of each makes kernels and memory ready.
    return min(times[precision][1:]) / min(times[sonnet_layers.FLOAT32][1:])


def _product(batch_size: int, width: int, precision: str) -> Callable[[], tf.Tensor]:
    """Returns what multiplies [batch_size, width] by [width, width]."""
    dtype = tf.bfloat16 if precision == sonnet_layers.BFLOAT16 else tf.float32
    padded = precision == sonnet_layers.FLOAT32_PADDED
    multiply = sonnet_layers.padded_product if padded else tf.matmul
    operands = tf.ones((batch_size, width), dtype), tf.ones((width, width), dtype)
    return lambda: multiply(*operands)
