"""The devices that TensorFlow computes on. Imports TensorFlow, no torch."""

import importlib.util
import os

from absl import logging
import tensorflow as tf

# From the first compute capability on, TensorFlow 2.15 has kernels only as PTX, which the driver
# compiles (tensorflow#62320). From the second on, that fails at the first operation (#101746).
_PTX, _TOO_NEW = (9, 0), (10, 0)


def choose(gpu: bool, what: str) -> None:
    """Lets TensorFlow see the GPUs that it is to use, if any.

    This works before the first tensor only: later, TensorFlow keeps the devices that it has.

    Args:
      gpu: Whether a GPU is asked for. Where no GPU can be used, a warning says so.
      what: Name, for the log, of the part that goes on with the CPU then.
    """
    gpus = _usable_gpus(what) if gpu else []
    if gpus:
        _show_xla_the_toolkit()
    try:
        tf.config.set_visible_devices(gpus, "GPU")
        for one in gpus:
            # Leave memory to others: learner and actors may have the same GPU.
            tf.config.experimental.set_memory_growth(one, True)
    except RuntimeError:
        logging.warning("TensorFlow has begun to compute: %s keeps its present devices.", what)


def _show_xla_the_toolkit() -> None:
    """Tells XLA where pip put ptxas and libdevice, without which it compiles nothing for a GPU.

    TensorFlow looks into /usr/local, and not always into site-packages (tensorflow#56927).
    """
    option, given = "--xla_gpu_cuda_data_dir", os.environ.get("XLA_FLAGS", "")
    try:
        found = importlib.util.find_spec("nvidia.cuda_nvcc")
    except ModuleNotFoundError:  # There is no package nvidia at all.
        return
    if option in given or found is None or not found.submodule_search_locations:
        return
    folder = next(iter(found.submodule_search_locations))
    os.environ["XLA_FLAGS"] = f"{given} {option}={folder}".strip()


def _usable_gpus(what: str) -> list:
    """Returns the GPUs that TensorFlow can compute on, and logs why others are left out."""
    capabilities = {
        gpu: tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in tf.config.list_physical_devices("GPU")
    }
    if not capabilities:
        logging.warning("TensorFlow sees no GPU: %s goes on with the CPU.", what)
    usable = [gpu for gpu, capability in capabilities.items() if capability < _TOO_NEW]
    for capability in sorted(set(capabilities.values())):
        if capability >= _TOO_NEW:
            logging.warning(
                "TensorFlow 2.15 has no kernels for a GPU of compute capability %d.%d: %s goes on "
                "with %s.", *capability, what, "another" if usable else "the CPU",
            )
        elif capability >= _PTX:
            logging.info(
                "TensorFlow 2.15 has no kernels for a GPU of compute capability %d.%d: its first "
                "start there compiles them, which takes minutes.", *capability,
            )
    return usable
