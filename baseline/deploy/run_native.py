"""Plays a policy that `python -m baseline.deploy --format native` wrote: numpy and a C compiler do.

    python run_native.py policy.native [observations.npy]
    action = run_native.Policy("policy.native")(observation)  # A number, int64 [K], or float32 [A].

Observations are float32 [D] or uint8 [C, H, W]; in a file [N, ...]. The first start compiles.
"""

import argparse
import ctypes
import hashlib
import json
import pathlib
import platform
import subprocess
import sys
import time

import numpy as np


def build(folder: pathlib.Path) -> str:
    """Returns the library for this very processor; compiles it where it is missing."""
    command = ["sh", str(folder / "build_native.sh"), platform.machine()]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split())[-200:])
    return done.stdout.strip()


class Policy:
    """A policy, ready to act; `shape` and `dtype` are those of an observation."""

    def __init__(self, path: "str | pathlib.Path") -> None:
        """Loads a file; compiles its player where that is missing."""
        content = self._content = np.memmap(path, np.uint8, "r")
        if b"QUARLNP1" + hashlib.sha256(content[40:].data).digest() != bytes(content[:40]):
            raise ValueError("the file is damaged, or baseline.deploy did not write it")
        end = 44 + int.from_bytes(bytes(content[40:44]), "little")
        facts, start = json.loads(bytes(content[44:end])), -(-end // 64) * 64
        self.shape, self.dtype = tuple(facts["shape"]), np.dtype(facts["dtype"]).type
        # The buffers are fixed, so that a call passes one prepared pointer.
        self._input = np.zeros(self.shape, self.dtype)
        self._output, self._action = np.zeros(facts["outputs"], "f4"), np.zeros(*facts["actions"])
        self._one, self._image = facts["head"] == "argmax", len(self.shape) > 1
        pointer, size = ctypes.c_void_p, ctypes.c_size_t(len(content) - start)
        library = ctypes.CDLL(build(pathlib.Path(path).resolve().parent))
        library.policy_open.restype, self._act = pointer, library.policy_act
        buffers = content[start:], self._input, self._output, self._action
        given, *others = (pointer(buffer.ctypes.data) for buffer in buffers)
        self._pointer = pointer(library.policy_open(given, size, *others))
        if not self._pointer:
            raise ValueError("the file does not fit policy_native.c, or there is no memory")

    def __call__(self, observation: np.ndarray, name: str = "action") -> np.ndarray:
        """Returns the action for one observation, or the "output" that it follows from, [A]."""
        given = np.asarray(observation)
        if self._image and (given.shape, given.dtype.type) != (self.shape, np.uint8):
            raise TypeError(f"images are uint8 {self.shape}, not {given.dtype} {given.shape}")
        self._input[...] = given if given.shape == self.shape else given.reshape(self.shape)
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
        for observation in np.load(args.observations) if args.observations else [policy._input]:
            seconds.append(-time.perf_counter())
            found = policy(observation, args.print)
            seconds[-1] += time.perf_counter()
            print(np.array2string(np.asarray(found), separator=" ", max_line_width=10**6))
        print(f"median of a call: {1e6 * np.median(seconds):.1f} us", file=sys.stderr)
    except Exception as error:  # A file that is no policy, or no array; a compiler that fails.
        sys.exit(f"run_native: error: {' '.join(f'{type(error).__name__}: {error}'.split())}")
