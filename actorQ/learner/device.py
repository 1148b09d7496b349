"""Chooses the learner's device and threads, and its way to multiply matrices.

Learner's process only; imports TensorFlow, no torch.
"""

from collections.abc import Callable
import time

from absl import logging
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.core import provenance
from actorQ.core import seeding
from actorQ.learner import evaluator_process
from actorQ.policy import sonnet_layers
from actorQ.policy import tensorflow_device

_WORTH_IT = 0.9  # Padding is used if products then take at most this share of the time.
_ROUNDS = 5  # Timed products of each kind: some 0.3 s on one core with 2,048 units.


def set_up_tensorflow(config: config_lib.RunConfig) -> None:
    """Sets device, threads and seed; must be called before any tensor exists."""
    tensorflow_device.choose(config.learner_device_placement == "GPU", "the learner")
    cores = provenance.usable_cores()
    others = 0 if config.actors_yield else config.n_actors
    others += int(evaluator_process.wanted(config))
    threads = config.learner_threads or max(1, cores - others)
    logging.info(
        "Learner: %d threads on %d cores%s", threads, cores,
        "" if config.learner_threads or threads == cores else (
            f" ({cores - threads} left to others on this machine; see --learner_threads)"
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

    The product of a batch and the widest layers is timed.

    - float32: weights are padded if that is faster, as it is on processors with AVX2 alone
      (`policy.sonnet_layers`).
    - bfloat16: is used as asked, but a line is logged if float32 is no slower. An AMD Zen 4 and an
      Intel Xeon both have AVX512-BF16. Its products take half as long as float32's on the former,
      and nearly twice as long on the latter, where AMX would be the fast way.

    Returns:
      The precision for `sonnet_layers.linear`.
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


def compiles(config: config_lib.RunConfig) -> bool:
    """Returns whether XLA compiles the learner's step, by --learner_compile and the device.

    With `auto` it does on a GPU. On one core of a Zen 4 XLA's clusters made steps 8 to 35 % slower.
    """
    if config.learner_compile == "auto":
        return name() == "GPU"
    return config.learner_compile == "on"


def _time_ratio(batch_size: int, width: int, precision: str) -> float:
    """Returns a product's shortest time over plain float32's."""
    products = {
        kind: _product(batch_size, width, kind) for kind in (sonnet_layers.FLOAT32, precision)
    }
    times: dict[str, list[float]] = {kind: [] for kind in products}
    for kind in [*products] * (1 + _ROUNDS):  # The kinds alternate: a busy moment hits both.
        start = time.perf_counter()
        products[kind]()[0, 0].numpy()  # Reading a number waits until a GPU has finished.
        times[kind].append(time.perf_counter() - start)
    # The first product of each kind makes kernels and memory ready, and does not count.
    return min(times[precision][1:]) / min(times[sonnet_layers.FLOAT32][1:])


def _product(batch_size: int, width: int, precision: str) -> Callable[[], tf.Tensor]:
    """Returns a function that multiplies [batch_size, width] by [width, width]."""
    dtype = tf.bfloat16 if precision == sonnet_layers.BFLOAT16 else tf.float32
    padded = precision == sonnet_layers.FLOAT32_PADDED
    multiply = sonnet_layers.padded_product if padded else tf.matmul
    operands = tf.ones((batch_size, width), dtype), tf.ones((width, width), dtype)
    return lambda: multiply(*operands)
