"""What the learner computes on. Learner's process only; imports TensorFlow, no torch."""

from absl import logging
import tensorflow as tf

from actorQ import config as config_lib
from actorQ import provenance
from actorQ import seeding

# Compute capabilities from which on TensorFlow 2.15 has no kernels but in PTX, which the driver
# compiles (tensorflow#62320), and from which on that fails at the first operation (#101746).
_PTX, _TOO_NEW = (9, 0), (10, 0)


def set_up_tensorflow(config: config_lib.RunConfig) -> None:
    """Chooses device, threads and seed; before any tensor exists."""
    gpus = _usable_gpus() if config.learner_device_placement == "GPU" else []
    for gpu in gpus:
        # Leave memory to others, actors on the GPU among them.
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.set_visible_devices(gpus, "GPU")
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


def _usable_gpus() -> list:
    """Returns the GPUs that TensorFlow can compute on; says what is to be said of others."""
    capabilities = {
        gpu: tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in tf.config.list_physical_devices("GPU")
    }
    if not capabilities:
        logging.warning("TensorFlow sees no GPU: the learner goes on with the CPU.")
    usable = [gpu for gpu, capability in capabilities.items() if capability < _TOO_NEW]
    for capability in sorted(set(capabilities.values())):
        if capability >= _TOO_NEW:
            logging.warning(
                "TensorFlow 2.15 has no kernels for a GPU of compute capability %d.%d: the learner "
                "goes on with %s.", *capability, "another" if usable else "the CPU",
            )
        elif capability >= _PTX:
            logging.info(
                "TensorFlow 2.15 has no kernels for a GPU of compute capability %d.%d: at its "
                "first start there they are compiled, which takes minutes.", *capability,
            )
    return usable


def name() -> str:
    """Returns "GPU" or "CPU"."""
    return "GPU" if tf.config.get_visible_devices("GPU") else "CPU"
