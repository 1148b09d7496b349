"""Plays a policy that `python -m baseline.deploy --format native` wrote: numpy and a C compiler do.

    python run_native.py policy.native [observations.npy]
    action = run_native.Policy("policy.native")(observation)  # A number, int64 [K], or float32 [A].

The first start compiles policy_native.c beside the file for this very processor; CC names another
compiler than cc. Observations are float32 [D] or uint8 [C, H, W]; in a file [N, ...].
"""

import argparse
import ctypes
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time

import numpy as np

SOURCE = "policy_native.c"
# Compilers must not fuse float operations: integers of activations would round differently.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-Wno-psabi")


def build(source: pathlib.Path) -> pathlib.Path:
    """Returns the library of a source for this processor; compiles it where it is missing."""
    machine, processor = platform.machine(), pathlib.Path("/proc/cpuinfo")
    told = processor.read_text() if processor.exists() else ""
    features = re.findall(r"(?m)^(?:flags|Features)\s*:.*$", told)[:1]
    key = hashlib.sha256(source.read_bytes() + repr((machine, features)).encode()).hexdigest()
    library = source.with_name(f"{source.stem}-{machine}-{key[:12]}.so")
    own = ["-march=native", "-mprefer-vector-width=512"] if "86" in machine else ["-mcpu=native"]
    for flags in (own, []):  # A compiler for another machine does not know this processor.
        if library.exists():
            return library
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        if not shutil.which(compiler[0]):
            raise RuntimeError(f"there is no C compiler {compiler[0]}: install gcc, or set CC")
        draft = f"{library}.{os.getpid()}"
        done = subprocess.run(
            [*compiler, *FLAGS, *flags, str(source), "-lm", "-o", draft], capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            os.replace(draft, library)  # In one step, so that no process loads half a library.
    if not library.exists():
        raise RuntimeError(f"{compiler[0]} fails: {' '.join(done.stderr.split())[-200:]}")
    return library


class Policy:
    """A policy, ready to act; `shape` and `dtype` are those of an observation."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        """Loads a file; compiles its player where that is missing."""
        path = pathlib.Path(path)
        content = self._content = np.memmap(path, np.uint8, "r")
        if bytes(content[:8]) != b"QUARLNP1" or (
            hashlib.sha256(content[40:].data).digest() != bytes(content[8:40])
        ):
            raise ValueError("the file is damaged, or baseline.deploy did not write it")
        end = 44 + int.from_bytes(bytes(content[40:44]), "little")
        facts, start = json.loads(bytes(content[44:end])), -(-end // 64) * 64
        self.shape, self.dtype = facts["shape"], getattr(np, facts["dtype"])
        # The buffers are fixed, so that a call passes one prepared pointer.
        self._observation = np.zeros(self.shape, self.dtype)
        self._output = np.zeros(facts["outputs"], np.float32)
        self._action = np.zeros(facts["actions"][0], facts["actions"][1])
        self._one, self._whole = facts["head"] == "argmax", facts["dtype"] == "uint8"
        self._size = tuple(self.shape)
        library = ctypes.CDLL(str(build(path.resolve().with_name(SOURCE))))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.policy_open.restype = pointer
        library.policy_open.argtypes = [pointer, size, pointer, pointer, pointer]
        opened = library.policy_open(
            content.ctypes.data + start, len(content) - start, self._observation.ctypes.data,
            self._output.ctypes.data, self._action.ctypes.data,
        )
        if not opened:
            raise ValueError("the file does not fit policy_native.c, or there is no memory")
        self._act, self._pointer = library.policy_act, pointer(opened)
        self._act.restype = None

    def __call__(self, observation: np.ndarray, name: str = "action") -> np.ndarray:
        """Returns the action for one observation, or the "output" that it follows from, [A]."""
        given = np.asarray(observation)
        if self._whole and given.dtype != np.uint8:
            raise TypeError("images are uint8")
        if given.shape != self._size:
            if len(self._size) > 1:
                raise ValueError(f"an observation has dimensions {self._size}, not {given.shape}")
            given = given.reshape(self._size)
        self._observation[...] = given
        self._act(self._pointer)
        if name == "output":
            return self._output.copy()
        return self._action[0] if self._one else self._action.copy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("policy", help="policy.native")
    parser.add_argument("observations", nargs="?", help=".npy, [N, ...]; else zeros")
    parser.add_argument("--print", default="action", choices=("action", "output"))
    args = parser.parse_args()
    try:
        policy, seconds = Policy(args.policy), []
        given = np.load(args.observations) if args.observations else [policy._observation]
        for observation in given:
            seconds.append(-time.perf_counter())
            found = policy(observation, args.print)
            seconds[-1] += time.perf_counter()
            print(np.array2string(np.asarray(found), separator=" ", max_line_width=10**6))
        print(f"median of a call: {1e6 * np.median(seconds):.1f} us", file=sys.stderr)
    except Exception as error:  # A file that is no policy, or no array; a compiler that fails.
        sys.exit(f"run_native: error: {' '.join(f'{type(error).__name__}: {error}'.split())}")
