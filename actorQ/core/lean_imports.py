"""Imports Reverb with as little of TensorFlow as a process needs. Imports no framework itself.

A server and datasets need TensorFlow. TensorFlow also imports JAX, Keras, pandas, SciPy and others
where they are installed; without them a learner starts 1 to 2 s sooner.

Broadcaster and actors are mere clients. A client needs one library of TensorFlow that Reverb's own
library is linked to, and the Python classes of some messages. That takes 64 MB and 0.4 s of CPU
time instead of 373 MB and 4.1 s (TensorFlow 2.15, reverb 0.14, a Zen 3).
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

# TensorFlow's modules that Reverb's client imports, most of them for annotations.
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

# The modules of Reverb's client that use these names when they are called.
_WITH_STAND_INS = (
    "platform.default.load_op_library", "reverb_types", "replay_sample", "structured_writer",
)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Makes packages look as if they were not installed, unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        # The import system takes None for a package that is not there.
        sys.modules[name] = None  # type: ignore[assignment]  # The stubs know modules alone.
    try:
        yield
    finally:
        # An environment of the user's may import them later.
        for name in hidden:
            del sys.modules[name]


def import_reverb() -> None:
    """Imports Reverb; call it before anything else imports Reverb or TensorFlow."""
    with without(*OPTIONAL):
        importlib.import_module("reverb")


def import_reverb_client() -> None:
    """Imports `reverb.Client`, `reverb.pybind` and `reverb.cc`, and no TensorFlow.

    Call it before anything else imports Reverb. If TensorFlow is imported already, all of Reverb
    is imported. An environment of the user's may need both later: TensorFlow can still be imported,
    and the first other name of Reverb that is asked for brings all of Reverb.
    """
    tensorflow, reverb_itself = map(importlib.util.find_spec, ("tensorflow", "reverb"))
    if (
        "tensorflow" in sys.modules or "reverb" in sys.modules
        or tensorflow is None or reverb_itself is None
    ):
        import_reverb()  # It fails where one of them is not installed.
        return
    folder = (tensorflow.submodule_search_locations or [""])[0]
    # Once it is loaded, Reverb's library finds it by its name.
    ctypes.CDLL(os.path.join(folder, "libtensorflow_framework.so.2"))
    # The package exists without the imports of its __init__.
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
    """Stands for any name of TensorFlow in annotations and `except`; it can do nothing else."""

    def __getattr__(cls, name: str) -> "_NotThere":
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        raise NotImplementedError(
            "Reverb needs TensorFlow for this, but lean_imports.import_reverb_client left it out."
        )


class _Name(Exception, metaclass=_NotThere):
    pass


@contextlib.contextmanager
def _stand_ins_for_tensorflow(folder: str) -> Iterator[None]:
    """Lets the client's modules import names and messages of TensorFlow.

    Args:
      folder: TensorFlow's folder, where modules of `tensorflow.core` are found.
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
