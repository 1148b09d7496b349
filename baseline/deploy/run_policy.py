"""Runs a policy that `python -m baseline.deploy` wrote: all that a device needs beside the file.

    python run_policy.py policy.onnx [observations.npy]
    action = run_policy.Policy("policy.onnx")(observation)  # A number, int64 [K], or float32 [A].

It needs numpy, and for each format one of these runtimes:

- .onnx: onnxruntime
- .tflite: ai_edge_litert, tensorflow or tflite_runtime (which lacks files for TFLite Micro)
- .pt: torch

Observations are those of the environment: float32 [D] or uint8 [C, H, W]; in a file [N, ...].
Whole numbers and dictionaries are float32 [D] too: the parts in the order that `deploy` prints.
"""

import argparse
from collections.abc import Callable
import ctypes
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import sys
import time

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")  # One thread is the fastest for a small policy.
MARK = b'{"version": "1", "kernels": "micro"'  # The metadata of files in integers begins so.


def _onnx(path: str) -> tuple:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # The arena keeps the memory that weights were read into.
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    taken = session.get_inputs()[0]
    dtype = np.uint8 if taken.type == "tensor(uint8)" else np.float32
    return taken.shape[1:], dtype, lambda x, name: session.run([name], {"observation": x})[0]


def _tflite(path: str) -> tuple:
    content = pathlib.Path(path).read_bytes()
    checksum = re.compile(rb"(?<=sha256:)[0-9a-f]{64}")
    digest = hashlib.sha256(checksum.sub(64 * b"0", content)).hexdigest().encode()
    if checksum.findall(content) != [digest]:  # TFLite would end the process at a damaged file.
        raise ValueError("the file is damaged, or baseline.deploy did not write it")
    own = (name for name in ("ai_edge_litert", "tflite_runtime") if importlib.util.find_spec(name))
    lite = importlib.import_module(f"{next(own, 'tensorflow.lite.python')}.interpreter")
    # The default delegate has products of floats, but none of these integers.
    kind = "BUILTIN_WITHOUT_DEFAULT_DELEGATES" if b"int8 by int8" in content else "AUTO"
    model = lite.Interpreter(
        path, num_threads=1, experimental_op_resolver_type=lite.OpResolverType[kind]
    )
    model.allocate_tensors()
    taken = model.get_input_details()[0]
    given = {details["name"]: details for details in model.get_output_details()}

    def call(x: np.ndarray, name: str) -> np.ndarray:
        model.set_tensor(taken["index"], x)
        model.invoke()
        return model.get_tensor(given[name]["index"])

    if taken["dtype"] != np.int8:
        return taken["shape"][1:], taken["dtype"], call
    maps = {name: details["quantization"] for name, details in given.items()}
    facts = json.JSONDecoder().raw_decode(content[content.index(MARK):].decode("latin-1"))[0]
    return in_integers(facts, taken["shape"][1:], taken["quantization"], maps, call)


def in_integers(facts: dict, shape: tuple, taken: tuple, given: dict, run: Callable) -> tuple:
    """Plays a file whose input and outputs are integers, with the numbers of its metadata."""
    step, zero = taken
    normal = facts["normalization"] or {"mean": 0.0, "deviation": 1.0, "clip": np.inf}
    mean, deviation, clip = (np.array(normal[key]) for key in ("mean", "deviation", "clip"))
    factor = 1 / (deviation * step * (255 if facts["image"] else 1))
    summand = zero - mean * factor
    lowest, highest = (np.clip(np.rint(end / step) + zero, -128, 127) for end in (-clip, clip))
    low, high = (np.array(facts[key] or 0.0, np.float32) for key in ("low", "high"))
    continuous = facts["head"] == "scale"  # The only output is -1 to 1 for the bounds of actions.

    def call(x: np.ndarray, name: str) -> np.ndarray:
        levels = np.rint(x * factor + summand)
        levels = np.minimum(np.maximum(levels, lowest), highest).astype(np.int8)
        found = run(levels, "action" if continuous else name)
        if name == "action" and not continuous:
            return found.astype(np.int64)
        step, zero = given["action" if continuous else name]
        real = (found.astype(np.float32) - zero) * np.float32(step)
        if name == "output":
            return real
        return np.minimum(np.maximum(low + (real + 1) / 2 * (high - low), low), high)

    return shape, np.uint8 if facts["image"] else np.float32, call


def _torchscript(path: str) -> tuple:
    import torch
    torch.set_num_threads(1)
    engines = torch.backends.quantized.supported_engines
    on_arm = platform.machine() in ("aarch64", "arm64") or "fbgemm" not in engines
    if on_arm and "qnnpack" in engines:  # The other engines there lack zero points, or fail.
        torch.backends.quantized.engine = "qnnpack"
    model = torch.jit.load(path).eval()
    both = torch.inference_mode()(lambda x: model(torch.from_numpy(x)))
    dtype = getattr(np, model.observation_dtype)
    return model.observation_shape, dtype, lambda x, name: both(x)[name == "action"].numpy()


class Policy:
    """A policy, ready to act; `shape` and `dtype` are those of an observation."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        """Loads a file by its ending."""
        load = {".onnx": _onnx, ".tflite": _tflite, ".pt": _torchscript}[pathlib.Path(path).suffix]
        self.shape, self.dtype, self._call = load(str(path))
        if os.name == "posix":  # The memory that loading needed goes back, where libc can do that.
            getattr(ctypes.CDLL(None), "malloc_trim", int)(0)

    def __call__(self, observation: np.ndarray, name: str = "action") -> np.ndarray:
        """Returns the action for one observation, or the "output" that it follows from, [A]."""
        if self.dtype == np.uint8 and np.asarray(observation).dtype != np.uint8:
            raise TypeError("images are uint8")
        x = np.ascontiguousarray(observation, self.dtype)
        return self._call(x.reshape(1, -1) if len(self.shape) == 1 else x[None], name)[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("policy", help=".onnx, .tflite or .pt")
    parser.add_argument("observations", nargs="?", help=".npy, [N, ...]; else zeros")
    parser.add_argument("--print", default="action", choices=("action", "output"))
    args = parser.parse_args()
    try:
        given = np.load(args.observations) if args.observations else None
    except Exception as error:  # The file is missing, or holds no array of numbers.
        why = " ".join(str(error).split())
        sys.exit(f"run_policy: error: Cannot read observations from {args.observations}: {why}")
    try:
        policy, seconds = Policy(args.policy), []
        for observation in np.zeros((1, *policy.shape), policy.dtype) if given is None else given:
            seconds.append(-time.perf_counter())
            found = policy(observation, args.print)
            seconds[-1] += time.perf_counter()
            print(np.array2string(np.asarray(found), separator=" ", max_line_width=10**6))
        print(f"median of a call: {1e6 * np.median(seconds):.1f} us", file=sys.stderr)
    except Exception as error:  # Each runtime has its own exceptions.
        why = " ".join(f"{type(error).__name__}: {error}".split())
        sys.exit(f"run_policy: error: {args.policy} (.onnx, .tflite or .pt?): {why}")
