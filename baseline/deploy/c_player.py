"""Compiles a policy in C for this machine, and plays it: what `deploy` checks such files with.

Imports no framework.
"""

import ctypes
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
from typing import Any

import numpy as np

from actorQ.core import errors

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-shared", "-fPIC")
_DTYPES = {"float": np.float32, "int": np.intc, "uint8_t": np.uint8, "int32_t": np.int32}


def can_compile() -> bool:
    """Returns whether there is a C compiler: $CC, or cc."""
    return shutil.which(_compiler()[0]) is not None


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


class Policy:
    """A policy in C, compiled and loaded.

    Attributes:
      observation: One observation in the type of the policy, [POLICY_OBSERVATION_SIZE].
      action: The last action, [POLICY_ACTION_SIZE].
      output: The last outputs, [POLICY_OUTPUT_SIZE].
    """

    def __init__(self, path: str | os.PathLike[str], flags: tuple[str, ...] = ()):
        """Compiles a file.

        Args:
          path: policy.c.
          flags: Further flags of the compiler.

        Raises:
          errors.UserError: There is no compiler, or it fails.
        """
        if not can_compile():
            raise errors.UserError(
                f"There is no C compiler {_compiler()[0]}: install gcc, or set CC."
            )
        text = pathlib.Path(path).read_text()
        sizes = {
            name.lower(): int(size)
            for name, size in re.findall(r"#define POLICY_(\w+)_SIZE (\d+)", text)
        }
        dtypes = {
            name: _DTYPES[c_type]
            for c_type, name in re.findall(r"typedef (\w+) policy_(\w+)_t;", text)
            if name in sizes
        }
        ones = {
            name.lower(): int(one)
            for name, one in re.findall(r"#define POLICY_(\w+)_ONE (\d+)", text)
        }
        # Outputs have the type of continuous actions.
        self._one = {**ones, "output": 65536 if dtypes["output"] == np.int32 else 1}
        self._single = "Head: argmax\n" in text.replace(" */", "\n")
        self.observation, self.action, self.output = (
            np.zeros(sizes[name], dtypes[name]) for name in ("observation", "action", "output")
        )
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder, "policy.so")
            done = subprocess.run(
                [*_compiler(), *FLAGS, *flags, os.fspath(path), "-o", str(library), "-lm"],
                capture_output=True, text=True, check=False,
            )
            if done.returncode:
                raise errors.UserError(
                    f"{path} cannot be compiled: {' '.join(done.stderr.split())[:300]}"
                )
            loaded = ctypes.CDLL(str(library))
        self._calls = {
            name: (function, ctypes.c_void_p(array.ctypes.data), array)
            for name, function, array in (
                ("action", loaded.policy_act, self.action),
                ("output", loaded.policy_outputs, self.output),
            )
        }
        self._given = ctypes.c_void_p(self.observation.ctypes.data)
        for function, *_ in self._calls.values():
            function.restype = None

    def run(self) -> None:
        """Computes `action` from `observation`."""
        function, to, _ = self._calls["action"]
        function(self._given, to)

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """Returns observations in the type of the policy, in their shape."""
        if self._one["observation"] > 1:
            steps = np.rint(observations.astype(np.float64) * self._one["observation"])
            observations = np.clip(steps, -(2**31), 2**31 - 1)
        return observations.astype(self.observation.dtype)

    def __call__(self, observation: np.ndarray, name: str = "action") -> Any:
        """Returns the action for one observation, or the "output" [A] that it follows from.

        An action is a number, int [K], or float32 [A], as those of `run_policy`.
        """
        function, to, array = self._calls[name]
        self.observation[...] = self.encode(np.asarray(observation).reshape(-1))
        function(self._given, to)
        if self._one[name] > 1:
            return (array / self._one[name]).astype(np.float32)
        if name == "action" and self._single:
            return np.int64(array[0])
        return array.astype(np.int64) if array.dtype == np.intc else array.copy()

