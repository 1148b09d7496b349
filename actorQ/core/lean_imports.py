"""Imports Reverb with as little of TensorFlow as a process needs. Imports no framework itself.

A server and datasets need TensorFlow, but not JAX, Keras, pandas, SciPy and others, which it
imports where they are installed: without, a learner starts 1 to 2 s sooner.

A client, which is all that broadcaster and actors are, needs nothing of it but one library that
Reverb's own is linked to, and the Python classes of some messages: 64 MB and 0.4 s of CPU time
instead of 373 MB and 4.1 s (TensorFlow 2.15, reverb 0.14, a Zen 3).
"""

from collections.abc import Iterator
import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any
from typing import NoReturn

OPTIONAL = ("jax", "keras", "pandas", "scipy", "h5py", "PIL")

# Modules that those of Reverb's client import, most of them for annotations.
_NAMED_BY_CLIENTS = (
    "tensorflow",
    "tensorflow.compat",
    "tensorflow.compat.v1",
    "tensorflow.python",
    "tensorflow.python.framework",
    "tensorflow.python.framework.tensor_shape",
    "tensorflow.python.framework.tensor_spec",
    "tensorflow.python.saved_model",
    "tensorflow.python.saved_model.nested_structure_coder",
)

# Of a client's modules those that use such names when they are called.
_WITH_STAND_INS = (
    "platform.default.load_op_library", "reverb_types", "replay_sample", "structured_writer",
)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Makes packages look as if they were not installed, but for those imported already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        # The import system takes None for a package that is not there.
        sys.modules[name] = None
    try:
        yield
    finally:
        # An environment of the user's may want them.
        for name in hidden:
            del sys.modules[name]


def import_reverb() -> None:
    """Imports Reverb; to be called before anything else imports it or TensorFlow."""
    with without(*OPTIONAL):
        importlib.import_module("reverb")


def import_reverb_client() -> None:
    """Imports `reverb.Client`, `reverb.pybind` and `reverb.cc`, and no TensorFlow.

    To be called before anything else imports Reverb. Where TensorFlow is there already, so is all
    of Reverb afterwards. An environment of the user's may want both later: TensorFlow can still be
    imported, and the first other name of Reverb that is asked for brings all of it.
    """
    tensorflow, reverb_itself = map(importlib.util.find_spec, ("tensorflow", "reverb"))
    if (
        "tensorflow" in sys.modules or "reverb" in sys.modules
        or tensorflow is None or reverb_itself is None
    ):
        import_reverb()  # Which fails where one of them is not installed.
        return
    folder = (tensorflow.submodule_search_locations or [""])[0]
    # Loaded, it is found by its name when Reverb's library asks for it.
    ctypes.CDLL(os.path.join(folder, "libtensorflow_framework.so.2"))
    # The package without what its __init__ imports.
    reverb: Any = importlib.util.module_from_spec(reverb_itself)
    sys.modules["reverb"] = reverb
    with _stand_ins_for_tensorflow(folder):
        for module in ("pybind", "cc.schema_pb2", "client"):
            importlib.import_module(f"reverb.{module}")
    reverb.Client = reverb.client.Client

    def bring_all(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        del reverb.__getattr__
        with without(*OPTIONAL):
            importlib.import_module("tensorflow")
            for module in _WITH_STAND_INS:
                importlib.reload(sys.modules[f"reverb.{module}"])
            importlib.reload(reverb)
        return getattr(reverb, name)

    reverb.__getattr__ = bring_all


class _NotThere(type):
    """Any name of TensorFlow: good for annotations and `except`, for nothing else."""

    def __getattr__(cls, name: str) -> "_NotThere":
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise NotImplementedError(
            "Reverb wants TensorFlow for this, which lean_imports.import_reverb_client left out."
        )


class _Name(Exception, metaclass=_NotThere):
    pass


@contextlib.contextmanager
def _stand_ins_for_tensorflow(folder: str) -> Iterator[None]:
    """Lets what a client is made of import names of TensorFlow, and TensorFlow's own messages.

    Args:
      folder: of TensorFlow, where modules of `tensorflow.core` are found.
    """
    for name in _NAMED_BY_CLIENTS:
        module: Any = types.ModuleType(name)
        module.__path__ = [folder] if name == "tensorflow" else []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__version__ = "(not imported)"  # Reverb names it where its library cannot be loaded.
        module.__getattr__ = lambda attribute: getattr(_Name, attribute)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]:
            del sys.modules[name]
