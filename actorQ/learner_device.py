"""What the learner computes on. Learner's process only; imports TensorFlow, no torch."""

from absl import logging
import tensorflow as tf

from actorQ import config as config_lib
from actorQ import provenance
from actorQ import seeding


def set_up_tensorflow(config: config_lib.RunConfig) -> None:
    """Chooses device, threads and seed; before any tensor exists."""
    gpus = tf.config.list_physical_devices("GPU")
    if config.learner_device_placement == "GPU" and gpus:
        for gpu in gpus:
            # Leave memory to others, actors on the GPU among them.
            tf.config.experimental.set_memory_growth(gpu, True)
    else:
        if config.learner_device_placement == "GPU":
            logging.warning("TensorFlow sees no GPU: the learner goes on with the CPU.")
        tf.config.set_visible_devices([], "GPU")
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
