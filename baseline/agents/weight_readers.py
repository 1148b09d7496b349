"""Reads the tensors in one file of each kind that `weight_files` knows; runs nothing in them.

Every reader takes a path and returns names and float arrays, or raises a one-line
`errors.UserError`. TensorFlow and torch are imported when a file needs them.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
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

from actorQ.core import cli
from actorQ.core import errors
from actorQ.policy import architecture
from actorQ.policy import quantization
from baseline.agents import optional_tensorflow
from baseline.agents import safe_pickle
from baseline.agents import unpacking
from baseline.quantization import packed_policy

MAX_NUMBERS = 1 << 28  # Limit for one model: 1 GiB of float32.
_LEAST = 256  # A tensor counts as at least so many numbers: its name and header take room, too.
SAVED_MODEL_PB = "saved_model.pb"
VARIABLES = os.path.join("variables", "variables")
POLICY_PTH = "policy.pth"
INDEX = ".index"

Tensors = dict[str, np.ndarray]


def read_zip(path: pathlib.Path) -> tuple[str, Tensors]:
    """Reads a zip of stable-baselines 3 or 2, or of torch.save; returns its kind and tensors."""
    with _one_line_errors(path), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if POLICY_PTH in names:
            content = unpacking.member(archive, POLICY_PTH, 4 * MAX_NUMBERS, path)
            return "Stable-Baselines3 agent", _torch_tensors(path, io.BytesIO(content))
        if "parameters" in names and "parameter_list" in names:
            content = unpacking.member(archive, "parameters", 4 * MAX_NUMBERS, path)
            return "stable-baselines 2 agent", _npz_tensors(path, io.BytesIO(content))
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        return "torch state_dict", read_torch(path)
    raise errors.UserError(
        f"{path} is a zip, but of no agent: it holds neither {POLICY_PTH} (Stable-Baselines3) nor "
        "the members that torch.save writes."
    )


def read_torch(path: pathlib.Path) -> Tensors:
    """Reads a file of torch.save: a state_dict, or dictionaries and lists with tensors."""
    with _one_line_errors(path), open(path, "rb") as file:
        return _torch_tensors(path, file)


def read_safetensors(path: pathlib.Path) -> tuple[str, Tensors]:
    """Reads safetensors; returns the file's kind and tensors."""
    import safetensors

    with _one_line_errors(path), safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    if {"bits", "shapes", "ranges"} <= set(metadata):
        packed = packed_policy.read(path)
        weights = {f"{k}.weight": quantization.dequantize(t) for k, t in packed.weights.items()}
        return "packed policy", weights | {f"{k}.bias": b for k, b in packed.biases.items()}
    if not {"architecture", "facts"} <= set(metadata):
        return "safetensors file", _from_torch(path, tensors.items())
    # The file has its names in alphabetical order.
    ordered = sorted(tensors, key=lambda name: name.startswith(architecture.HEAD + "."))
    return "ActorQ policy", _from_torch(path, ((name, tensors[name]) for name in ordered))


def read_checkpoint(prefix: pathlib.Path) -> Tensors:
    """Reads a TensorFlow checkpoint.

    Args:
      prefix: Path without ".index" and ".data-..."; a SavedModel's variables have one, too.
    """
    cli.quiet_tensorflow()
    with optional_tensorflow.needed_for("TensorFlow's checkpoints"):
        import tensorflow as tf

    if not prefix.with_name(prefix.name + INDEX).is_file():
        raise errors.UserError(f"The checkpoint {prefix} has no file {prefix.name}{INDEX}.")
    if not list(prefix.parent.glob(glob.escape(prefix.name) + ".data-*")):
        raise errors.UserError(
            f"The checkpoint {prefix} has no file {prefix.name}.data-00000-of-00001: it holds the "
            "numbers, copy it too."
        )
    tensors = {}
    room = _Room(prefix)
    with _one_line_errors(prefix):
        reader = tf.train.load_checkpoint(str(prefix))
        kinds = reader.get_variable_to_dtype_map()
        for name, shape in sorted(reader.get_variable_to_shape_map().items()):
            if kinds[name].is_floating:
                room.take(name, shape)
                tensors[name] = np.asarray(reader.get_tensor(name), np.float32)
    return tensors


def read_saved_model(folder: pathlib.Path) -> Tensors:
    """Reads a SavedModel's variables, or its constants if it has none. Runs no function."""
    if (folder / (VARIABLES + INDEX)).is_file():
        return read_checkpoint(folder / VARIABLES)
    return read_graph(folder / SAVED_MODEL_PB)


def read_graph(path: pathlib.Path) -> Tensors:
    """Reads the constants of a frozen GraphDef, or of a SavedModel's graph."""
    cli.quiet_tensorflow()
    with optional_tensorflow.needed_for("TensorFlow's graphs"):
        import tensorflow as tf
        from tensorflow.core.protobuf import saved_model_pb2

    tensors = {}
    room = _Room(path)
    with _one_line_errors(path):
        content = path.read_bytes()
        if path.name == SAVED_MODEL_PB:
            saved = saved_model_pb2.SavedModel.FromString(content)
            graphs = [meta.graph_def for meta in saved.meta_graphs]
        else:
            graphs = [tf.compat.v1.GraphDef.FromString(content)]
        for graph in graphs:
            nodes = list(graph.node)
            for function in graph.library.function:
                nodes += function.node_def
            for node in nodes:
                constant = node.attr["value"].tensor
                if node.op == "Const" and tf.dtypes.as_dtype(constant.dtype).is_floating:
                    shape = [axis.size for axis in constant.tensor_shape.dim]
                    room.take(node.name, shape)
                    tensors[node.name] = np.asarray(tf.make_ndarray(constant), np.float32)
    return tensors


def read_pickle(path: pathlib.Path) -> tuple[Tensors, str]:
    """Reads an old agent of stable-baselines 2; returns its arrays and a note.

    Raises:
      errors.UserError: The file holds no arrays, or only its own code could make them.
    """
    contents = safe_pickle.read(path)
    parts = contents.value
    # stable-baselines 2: (settings, parameters), the latter a dictionary or a list.
    if isinstance(parts, list | tuple) and len(parts) == 2 and isinstance(parts[1], list | dict):
        parts = parts[1]
    tensors = _floats(path, _nested(parts, np.ndarray))
    called = safe_pickle.listed(contents.calls)
    if not tensors:
        reason = f": loading it would call {called}, which is not done" if called else ""
        raise errors.UserError(f"{path} holds no arrays of weights outside of objects{reason}.")
    return tensors, f"Not called, though the file asks for it: {called}." if called else ""


def _nested(value: Any, wanted: type) -> Iterator[tuple[str, Any]]:
    """Yields the values of a type in dictionaries, lists and tuples, named by the way to them.

    A shared value comes under each of its names: any of them may tell its part.
    """
    todo = [iter([("", value)])]
    seen = set()
    while todo:
        found = next(todo[-1], None)
        if found is None:
            todo.pop()
            continue
        name, part = found
        if isinstance(part, wanted):
            yield name, part
        elif isinstance(part, dict | list | tuple) and id(part) not in seen:
            seen.add(id(part))  # Parts may be shared, and lists may hold themselves.
            todo.append(_parts(name, part))


def _parts(name: str, container: dict | list | tuple) -> Iterator[tuple[str, Any]]:
    # Names are made one by one: millions of names for values of other types take gigabytes.
    for key, item in container.items() if isinstance(container, dict) else enumerate(container):
        yield f"{name}/{key!s:.100}".lstrip("/")[-1000:], item


def _torch_tensors(path: pathlib.Path, file: BinaryIO) -> Tensors:
    import torch

    try:
        unpacking.check_nested(file, "its tensors", 4 * MAX_NUMBERS, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Torch warns of formats that it will give up one day.
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except errors.UserError:
        raise
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
    return _from_torch(path, _nested(loaded, torch.Tensor))


def _from_torch(path: pathlib.Path, tensors: Iterable[tuple[str, Any]]) -> Tensors:
    """Returns the floats (and dequantized integers) as float32 arrays."""
    import torch

    arrays: Tensors = {}
    room = _Room(path)
    for name, tensor in tensors:
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise errors.UserError(f"{path} holds a tensor of a form not read here: {name}.")
        if not (tensor.is_floating_point() or tensor.is_quantized):
            continue
        # Strides of zero let a few bytes claim any shape.
        room.take(name, tensor.shape)
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        arrays[name] = tensor.detach().float().contiguous().numpy()
    return arrays


def _npz_tensors(path: pathlib.Path, file: BinaryIO) -> Tensors:
    unpacking.check_nested(file, "parameters", 4 * MAX_NUMBERS, path)
    with np.load(file, allow_pickle=False) as arrays:
        return _floats(path, ((name, arrays[name]) for name in arrays.files))


def _floats(path: pathlib.Path, arrays: Iterable[tuple[str, np.ndarray]]) -> Tensors:
    """Returns the arrays of floats as float32."""
    tensors: Tensors = {}
    room = _Room(path)
    for name, array in arrays:
        if array.dtype.kind == "f":
            room.take(name, array.shape)
            tensors[name] = np.asarray(array, np.float32)
    return tensors


class _Room:
    """The count of numbers that may still be read from a model; claimed shapes may be false."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._left = MAX_NUMBERS

    def take(self, name: str, shape: Sequence[int]) -> None:
        """Takes room for a tensor.

        Raises:
          errors.UserError: The tensors so far would take too much memory.
        """
        self._left -= max(math.prod(shape), _LEAST)
        if any(axis < 0 for axis in shape) or self._left < 0:
            claim = " x ".join(str(axis) for axis in shape)
            raise errors.UserError(
                f"{self._path} claims the shape {claim} for {name}, which makes it larger than "
                f"the {MAX_NUMBERS:,} numbers that are read from a model."
            )


@contextlib.contextmanager
def _one_line_errors(path: pathlib.Path) -> Iterator[None]:
    """Turns the many errors of the libraries that read files into one line for the user."""
    try:
        yield
    except errors.UserError:
        raise
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # zipfile, zlib, numpy, protobuf and TensorFlow have their own.
        raise _damaged(path, error) from None


def _damaged(path: pathlib.Path, error: Exception) -> errors.UserError:
    # torch's own reason stands amid advice to load the file unsafely.
    reason = str(error).partition("WeightsUnpickler error:")[2].strip().split("\n")[0]
    return errors.UserError(
        f"{path} is damaged, or not what its name says ({type(error).__name__}: "
        f"{(reason or errors.summary(error))[:160]}): copy or download it again."
    )
