"""Programs for 64-bit ARM: Debian's cross compiler makes them, and qemu runs them."""

import shutil
import subprocess

import pytest

COMPILER, _EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
_LIBRARIES = "/usr/aarch64-linux-gnu"
LIMIT_S = 120  # Processes start slowly where the cores are busy.
NEEDED = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(_EMULATOR)),
    reason="install gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user",
)


def run(processor, *command):
    """Runs a program on an emulated processor; returns what it prints."""
    return subprocess.run(
        [_EMULATOR, "-L", _LIBRARIES, "-cpu", processor, *command], check=True,
        capture_output=True, text=True, timeout=LIMIT_S,
    ).stdout
