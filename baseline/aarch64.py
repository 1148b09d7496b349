"""Whether files for a small device also play on its processor, a 64-bit ARM one.

Imports no framework.
"""

from collections.abc import Sequence
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

import numpy as np

from actorQ import errors
from baseline import run_policy

_EMULATORS = ("qemu-aarch64-static", "qemu-aarch64")
_BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
_LIMIT_S = 600.0


def situation() -> str:
    """Returns, in a sentence, whether this machine can play ARM builds."""
    if platform.machine() in ("aarch64", "arm64"):
        return "aarch64: this machine is one; all figures are its own."
    found = [name for name in _EMULATORS if shutil.which(name)]
    if found or _BINFMT.exists():
        return (
            f"aarch64: this machine can emulate it ({', '.join(found) or _BINFMT}): "
            "--aarch64_python=COMMAND plays the files there, too."
        )
    return (
        f"aarch64: not checked. This machine ({platform.machine()}) cannot emulate it: there is "
        f"no {' and no '.join(_EMULATORS)}, and no binfmt entry. The files hold no machine code; "
        "run_policy.py plays them where the runtime is."
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
