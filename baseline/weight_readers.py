"""Reads the tensors in one file of each kind that `weight_files` knows; runs nothing in them.

Every reader takes a path and returns names and float arrays, or raises `errors.UserError` with one
line. TensorFlow and torch are imported when a file needs them.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import glob
import io
import math
import os
import pathlib
import re
from typing import Any
from typing import BinaryIO
import warnings
import zipfile

import numpy as np

from actorQ import architecture
from actorQ import cli
from actorQ import errors
from baseline import safe_pickle

MAX_NUMBERS = 1 << 28  # In one model: 1 GiB of float32.
SAVED_MODEL_PB = "saved_model.pb"
VARIABLES = os.path.join("variables", "variables")
POLICY_PTH = "policy.pth"
INDEX = ".index"

Tensors = dict[str, np.ndarray]


def read_zip(path: pathlib.Path) -> tuple[str, Tensors]:
    """Reads a zip of stable-baselines 3 or 2, or of torch.save; returns what it is, and tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if POLICY_PTH in names:
                content = _member(path, archive, POLICY_PTH)
                return "Stable-Baselines3 agent", _torch_tensors(path, io.BytesIO(content))
            if "parameters" in names and "parameter_list" in names:
                content = _member(path, archive, "parameters")
                return "stable-baselines 2 agent", _npz_tensors(content)
    except errors.UserError:
        raise
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # zipfile, zlib and numpy each have their own.
        raise _damaged(path, error) from None
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        return "torch state_dict", read_torch(path)
    raise errors.UserError(
        f"{path} is a zip, but of no agent: it holds neither {POLICY_PTH} (Stable-Baselines3) nor "
        "what torch.save writes."
    )


def read_torch(path: pathlib.Path) -> Tensors:
    """Reads what torch.save wrote: a state_dict, or dictionaries and lists with tensors."""
    try:
        with open(path, "rb") as file:
            return _torch_tensors(path, file)
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None


def read_safetensors(path: pathlib.Path) -> tuple[str, Tensors]:
    """Reads safetensors; returns what it is, and tensors."""
    import safetensors

    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:
        raise _damaged(path, error) from None
    if not {"architecture", "facts"} <= set(metadata):
        return "safetensors file", _from_torch(path, tensors)
    # The file has its names in alphabetical order.
    ordered = sorted(tensors, key=lambda name: name.startswith(architecture.HEAD + "."))
    return "ActorQ policy", _from_torch(path, {name: tensors[name] for name in ordered})


def read_checkpoint(prefix: pathlib.Path) -> Tensors:
    """Reads a TensorFlow checkpoint.

    Args:
      prefix: path without ".index" and ".data-...", also of a SavedModel's variables.
    """
    cli.quiet_tensorflow()
    import tensorflow as tf

    if not prefix.with_name(prefix.name + INDEX).is_file():
        raise errors.UserError(f"The checkpoint {prefix} has no file {prefix.name}{INDEX}.")
    if not list(prefix.parent.glob(glob.escape(prefix.name) + ".data-*")):
        raise errors.UserError(
            f"The checkpoint {prefix} has no file {prefix.name}.data-00000-of-00001: its numbers "
            "are there, copy it too."
        )
    tensors = {}
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        kinds = reader.get_variable_to_dtype_map()
        for name, shape in sorted(reader.get_variable_to_shape_map().items()):
            if kinds[name].is_floating:
                _check_size(prefix, name, shape, tensors)
                tensors[name] = np.asarray(reader.get_tensor(name), np.float32)
    except errors.UserError:
        raise
    except Exception as error:  # TensorFlow's errors have many types.
        raise _damaged(prefix, error) from None
    return tensors


def read_saved_model(folder: pathlib.Path) -> Tensors:
    """Reads a SavedModel's variables; of one that has none, its constants. Runs no function."""
    if (folder / (VARIABLES + INDEX)).is_file():
        return read_checkpoint(folder / VARIABLES)
    return read_graph(folder / SAVED_MODEL_PB)


def read_graph(path: pathlib.Path) -> Tensors:
    """Reads the constants of a frozen GraphDef, or of a SavedModel's graph."""
    cli.quiet_tensorflow()
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        content = path.read_bytes()
        if path.name == SAVED_MODEL_PB:
            saved = saved_model_pb2.SavedModel.FromString(content)
            graphs = [meta.graph_def for meta in saved.meta_graphs]
        else:
            graphs = [tf.compat.v1.GraphDef.FromString(content)]
        tensors = {}
        for graph in graphs:
            nodes = list(graph.node)
            for function in graph.library.function:
                nodes += function.node_def
            for node in nodes:
                constant = node.attr["value"].tensor
                if node.op == "Const" and tf.dtypes.as_dtype(constant.dtype).is_floating:
                    shape = [axis.size for axis in constant.tensor_shape.dim]
                    _check_size(path, node.name, shape, tensors)
                    tensors[node.name] = np.asarray(tf.make_ndarray(constant), np.float32)
    except errors.UserError:
        raise
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # protobuf's and TensorFlow's errors have many types.
        raise _damaged(path, error) from None
    return tensors


def read_pickle(path: pathlib.Path) -> tuple[Tensors, str]:
    """Reads an old agent of stable-baselines 2; returns its arrays and a note.

    Raises:
      errors.UserError: there are no arrays but such that only its code could make.
    """
    contents = safe_pickle.read(path)
    parts = contents.value
    # stable-baselines 2: (settings, parameters), the latter a dictionary or a list.
    if isinstance(parts, list | tuple) and len(parts) == 2 and isinstance(parts[1], list | dict):
        parts = parts[1]
    tensors = {
        name: np.asarray(array, np.float32)
        for name, array in _nested(parts, np.ndarray)
        if array.dtype.kind == "f"
    }
    called = safe_pickle.listed(contents.calls)
    if not tensors:
        reason = f": loading it would call {called}, which is not done" if called else ""
        raise errors.UserError(f"{path} holds no arrays of weights outside of objects{reason}.")
    return tensors, f"Not called, though the file asks for it: {called}." if called else ""


def _nested(value: Any, wanted: type) -> Iterator[tuple[str, Any]]:
    """Yields what is of a type in dictionaries, lists and tuples, named by the way to it."""
    todo = [("", value)]
    seen = set()
    while todo:
        name, part = todo.pop()
        if isinstance(part, wanted):
            yield name, part
        elif isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))  # Parts may be shared, and lists may hold themselves.
            keyed = part.items() if isinstance(part, dict) else enumerate(part)
            inner = [(f"{name}/{key!s:.100}".lstrip("/")[-1000:], item) for key, item in keyed]
            todo.extend(reversed(inner))


def _torch_tensors(path: pathlib.Path, file: BinaryIO) -> Tensors:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # On formats that torch will give up one day.
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except MemoryError:
        raise errors.UserError(f"{path} asks for more memory than there is.") from None
    except Exception as error:  # torch, pickle and zipfile each have their own.
        forbidden = re.search(r"[Uu]nsupported (?:global: )?GLOBAL (\S+)", str(error))
        if forbidden:
            raise errors.UserError(
                f"{path} holds Python objects ({forbidden.group(1)[:80]}), which could run code "
                "when loaded: save model.state_dict() instead."
            ) from None
        raise _damaged(path, error) from None
    return _from_torch(path, dict(_nested(loaded, torch.Tensor)))


def _from_torch(path: pathlib.Path, tensors: Mapping[str, Any]) -> Tensors:
    """Returns the floats (and dequantized integers) as float32 arrays."""
    import torch

    arrays: Tensors = {}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise errors.UserError(f"{path} holds a tensor of a form not read here: {name}.")
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        if not tensor.is_floating_point():
            continue
        # Strides of zero let a few bytes claim any shape.
        _check_size(path, name, tensor.shape, arrays)
        arrays[name] = tensor.detach().float().contiguous().numpy()
    return arrays


def _npz_tensors(content: bytes) -> Tensors:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return {
        name: np.asarray(array, np.float32)
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }


def _member(path: pathlib.Path, archive: zipfile.ZipFile, name: str) -> bytes:
    size = archive.getinfo(name).file_size
    if size > 4 * MAX_NUMBERS:
        raise errors.UserError(f"{path} claims {size:,} bytes for {name}: not read.")
    return archive.read(name)


def _check_size(path: pathlib.Path, name: str, shape: Sequence[int], tensors: Tensors) -> None:
    """Raises UserError if a tensor, whose shape may be a lie, would take too much memory."""
    numbers = sum(array.size for array in tensors.values()) + math.prod(shape)
    if any(axis < 0 for axis in shape) or numbers > MAX_NUMBERS:
        claim = " x ".join(str(axis) for axis in shape)
        raise errors.UserError(
            f"{path} claims the shape {claim} for {name}, which makes it larger than the "
            f"{MAX_NUMBERS:,} numbers that are read of a model."
        )


def _damaged(path: pathlib.Path, error: Exception) -> errors.UserError:
    # torch's own reason stands amid advice to load the file unsafely.
    reason = str(error).partition("WeightsUnpickler error:")[2].strip().split("\n")[0]
    return errors.UserError(
        f"{path} is damaged, or not what its name says ({type(error).__name__}: "
        f"{(reason or errors.summary(error))[:160]}): copy or download it again."
    )
