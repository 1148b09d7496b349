"""Plays files for small devices on 64-bit ARM processors, as these devices have.

Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
import platform
import subprocess
import tempfile
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.core import errors
from baseline.deploy import players

MACHINES = ("aarch64", "arm64")
_PROBE_LIMIT_S, _LIMIT_S = 60.0, 600.0
_RUNTIMES = ("numpy", "onnxruntime", "tflite-runtime", "ai-edge-litert", "torch")
_PROBE = f"""
import importlib.metadata, json, platform
versions = {{}}
for name in {_RUNTIMES}:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps([platform.machine(), versions]))
"""


class Python(NamedTuple):
    """A Python on an ARM processor, real or emulated.

    Attributes:
      command: Command that starts it.
      versions: Versions of numpy and of the runtimes that it has.
    """

    command: tuple[str, ...]
    versions: Mapping[str, str]


def situation() -> str:
    """Returns a sentence on what the figures say of ARM, where no Python for ARM played."""
    if platform.machine() in MACHINES:
        return "aarch64: this machine is one, and all figures are its own."
    return (
        f"aarch64: not checked, this machine is {platform.machine()}. baseline/aarch64_setup.sh "
        "makes an emulated Python for ARM, and --aarch64_python=COMMAND plays the files there too."
    )


def probe(command: Sequence[str]) -> Python:
    """Returns the Python that a command starts.

    Args:
      command: A command such as ["/opt/arm/bin/python3"].

    Raises:
      errors.UserError: It cannot be started, or is no Python on an ARM processor.
    """
    printed = printed_by(
        [*command, "-c", _PROBE], "cannot be asked for its processor", _PROBE_LIMIT_S
    )
    try:
        machine, versions = json.loads(printed)
    except ValueError:
        raise errors.UserError(f"{' '.join(command)} is no Python.") from None
    if machine not in MACHINES:
        raise errors.UserError(
            f"{' '.join(command)} runs on {machine}, not on a 64-bit ARM processor: "
            "baseline/aarch64_setup.sh makes one that does, emulated."
        )
    return Python(tuple(command), versions)


def play(
    command: Sequence[str], path: str | os.PathLike[str], observations: np.ndarray, name: str
) -> np.ndarray:
    """Returns what a file's policy computes under another Python, float64.

    Args:
      command: Command that starts it; it needs numpy and the runtime.
      path: The file; beside it, the source that its player compiles.
      observations: Raw observations [N, ...].
      name: "action", for [N] or [N, A], or "output" that the action follows from, for [N, A].

    Raises:
      errors.UserError: The policy fails there.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder, "observations.npy")
        np.save(inputs, observations)
        printed = printed_by(
            [*command, str(players.of_file(path).__file__), os.fspath(path), str(inputs),
             f"--print={name}"],
            f"cannot play {os.fspath(path)}", _LIMIT_S,
        )
    try:
        rows = [np.array(line.strip("[] ").split(), float) for line in printed.splitlines()]
        found = np.stack(rows)
    except ValueError:
        raise errors.UserError(
            f"{' '.join(command)} printed something else than numbers."
        ) from None
    return found if "[" in printed else found[:, 0]


def printed_by(command: Sequence[str], failure: str, limit_s: float, **how: Any) -> str:
    """Returns what a command prints.

    Args:
      command: The command.
      failure: The words behind its name in the error's message.
      limit_s: Seconds that it may take.
      **how: Further arguments of `subprocess.run`.

    Raises:
      errors.UserError: The command fails.
    """
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False, **how
        )
    except subprocess.TimeoutExpired:
        raise errors.UserError(f"{command[0]} {failure}: over {limit_s:.0f} s") from None
    except OSError as error:
        raise errors.UserError(f"{command[0]} fails: {errors.summary(error)}") from None
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise errors.UserError(f"{command[0]} {failure}: {reason}")
    return result.stdout
