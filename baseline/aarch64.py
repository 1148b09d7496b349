"""Whether files for a small device also play on its processor, a 64-bit ARM one.

Imports no framework.
"""

from collections.abc import Sequence
import os
import pathlib
import platform
import subprocess
import tempfile

import numpy as np

from actorQ import errors
from baseline import run_policy

_LIMIT_S = 600.0


def situation() -> str:
    """Returns, in a sentence, what the figures say of ARM where nothing was played there."""
    if platform.machine() in ("aarch64", "arm64"):
        return "aarch64: this machine is one; all figures are its own."
    return (
        f"aarch64: not checked, this machine is {platform.machine()}. baseline/aarch64_setup.sh "
        "makes an emulated Python for ARM, and --aarch64_python=COMMAND plays the files there, too."
    )


def actions(
    command: Sequence[str], path: str | os.PathLike[str], observations: np.ndarray
) -> np.ndarray:
    """Returns what a file's policy does under another Python, float64 [N] or [N, A].

    Args:
      command: that starts it, for example ["/opt/arm/bin/python3"]; needs numpy and the runtime.
      path: of the file.
      observations: raw ones [N, ...].

    Raises:
      errors.UserError: it fails there.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder, "observations.npy")
        np.save(inputs, observations)
        try:
            result = subprocess.run(
                [*command, os.path.abspath(run_policy.__file__), os.fspath(path), str(inputs)],
                capture_output=True, text=True, timeout=_LIMIT_S, check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise errors.UserError(f"{' '.join(command)} fails: {errors.summary(error)}") from None
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise errors.UserError(f"{' '.join(command)} cannot play {os.fspath(path)}: {reason}")
    try:
        rows = [np.array(line.strip("[] ").split(), float) for line in result.stdout.splitlines()]
        found = np.stack(rows)
    except ValueError:
        raise errors.UserError(
            f"{' '.join(command)} printed something else than actions."
        ) from None
    return found[:, 0] if found.shape[1] == 1 and "[" not in result.stdout else found
