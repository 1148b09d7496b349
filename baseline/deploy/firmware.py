"""Builds the C files of a policy for a Cortex-M, and plays them in qemu.

qemu counts instructions, not cycles: a load that waits for flash counts as much as an addition.
Imports no framework.
"""

from collections.abc import Sequence
import pathlib
import shutil
import struct
import subprocess
import tempfile
from typing import NamedTuple

import numpy as np

from actorQ.core import errors

COMPILER, SIZE, EMULATOR = "arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"
PACKAGES = "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"  # Debian's names.
OPTIMIZATION = "-O2"
_SOURCES = pathlib.Path(__file__).parent / "cortex_m"
_RESULT = struct.Struct("<IIQ")  # Of result_t in measure.c.
_LONGEST_STRETCH = 500_000_000  # Instructions; the timer wraps after 671 million.
_LIMIT_S = 1800.0
_MEMORY = 4 << 20  # Bytes of flash, and of RAM, as memory.ld has them.
_PROGRAM, _STACK = 16 << 10, 80 << 10  # Bytes that the rest of the program takes of each.


class Core(NamedTuple):
    """A processor, and the board on which qemu emulates it.

    Attributes:
      name: The compiler's name of the processor.
      fpu: Its floating point unit, as the compiler names it.
      board: qemu's machine.
    """

    name: str
    fpu: str
    board: str

    @property
    def flags(self) -> list[str]:
        """The compiler's flags for it."""
        return [f"-mcpu={self.name}", "-mthumb", "-mfloat-abi=hard", f"-mfpu={self.fpu}"]


CORES = {
    core.name: core for core in (
        Core("cortex-m4", "fpv4-sp-d16", "mps2-an386"), Core("cortex-m7", "fpv5-d16", "mps2-an500"),
    )
}


class Size(NamedTuple):
    """The memory of a policy, without a program around it.

    Attributes:
      flash: Bytes of code, constants and initial values.
      ram: Bytes of static variables; the stack is not among them.
    """

    flash: int
    ram: int


class Played(NamedTuple):
    """Tells what the emulated processor did.

    Attributes:
      actions: Actions [N, A] in the C type of the policy.
      instructions: Instructions that an action takes on average.
      stack: Bytes of stack that it takes.
    """

    actions: np.ndarray
    instructions: float
    stack: int


def fits(found: Size) -> bool:
    """Returns whether a policy fits into the memory of qemu's boards, beside what plays it."""
    return found.flash < _MEMORY - _PROGRAM and found.ram < _MEMORY - _STACK


def missing() -> list[str]:
    """Returns the tools that are not installed."""
    return [name for name in (COMPILER, SIZE, EMULATOR) if shutil.which(name) is None]


def check() -> None:
    """Checks that the tools are installed.

    Raises:
      errors.UserError: One is missing.
    """
    if missing():
        raise errors.UserError(
            f"{' and '.join(missing())} cannot be found: apt-get install {PACKAGES}"
        )


def size(folder: pathlib.Path, core: Core) -> Size:
    """Returns the memory of a policy.

    Args:
      folder: Folder with policy.c and policy.h.
      core: The processor.

    Raises:
      errors.UserError: It cannot be compiled.
    """
    with tempfile.TemporaryDirectory() as name:
        target = pathlib.Path(name, "policy.o")
        _compile(core, folder, ["-c", str(folder / "policy.c"), "-o", str(target)])
        # Its second line holds the bytes of text, data and bss.
        text, data, bss = map(int, _run([SIZE, str(target)]).splitlines()[1].split()[:3])
    return Size(text + data, data + bss)


def play(
    folder: pathlib.Path,
    core: Core,
    states: np.ndarray,
    action: np.dtype,
    num_actions: int,
    expected_instructions: int,
    others: Sequence[str] = (),
) -> Played:
    """Plays a policy in qemu.

    Args:
      folder: Folder with policy.c and policy.h.
      core: The processor.
      states: Observations [N, ...] in the C type of the policy.
      action: C type of an action.
      num_actions: Numbers of an action.
      expected_instructions: An upper estimate of an action's instructions.
      others: Further sources, and folders of headers as the compiler's flags.

    Raises:
      errors.UserError: It does not fit into the board's memory, or it fails.
    """
    at_once = max(1, min(64, len(states), _LONGEST_STRETCH // expected_instructions))
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        build(folder, core, work / "firmware.elf", [f"-DSTATES_AT_ONCE={at_once}", *others])
        np.ascontiguousarray(states).tofile(work / "states.bin")
        _run(
            [
                EMULATOR, "-M", core.board, "-display", "none", "-monitor", "none", "-serial",
                "none", "-semihosting-config", "enable=on,target=native", "-icount", "shift=0",
                "-kernel", "firmware.elf",
            ],
            work,
        )
        count, stack, instructions = _RESULT.unpack((work / "result.bin").read_bytes())
        if count != len(states):
            raise errors.UserError(f"{EMULATOR} played {count} of {len(states)} states.")
        actions = np.fromfile(work / "actions.bin", action).reshape(count, num_actions)
    return Played(actions, instructions / count, stack)


def build(
    folder: pathlib.Path, core: Core, target: pathlib.Path, flags: Sequence[str]
) -> None:
    """Builds the program that plays a policy and counts.

    Args:
      folder: Folder with policy.c and policy.h.
      core: The processor.
      target: The program's file.
      flags: Further flags and sources for the compiler.

    Raises:
      errors.UserError: It cannot be built, or it does not fit into the board's memory.
    """
    sources = [folder / "policy.c", _SOURCES / "startup.c", _SOURCES / "measure.c"]
    _compile(
        core, folder,
        [
            *flags, *map(str, sources), "-o", str(target), "-nostartfiles", "--specs=nosys.specs",
            "-Wl,--gc-sections", f"-T{_SOURCES / 'memory.ld'}",
        ],
    )


def _compile(core: Core, folder: pathlib.Path, rest: Sequence[str]) -> None:
    """Calls the compiler with the flags of all builds."""
    flags = ["-std=c99", OPTIMIZATION, "-ffunction-sections", "-fdata-sections"]
    _run([COMPILER, *core.flags, *flags, f"-I{folder}", *rest])


def _run(command: Sequence[str], folder: pathlib.Path | None = None) -> str:
    """Returns what a command prints."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise errors.UserError(f"{command[0]} took more than {_LIMIT_S:.0f} s.") from None
    if done.returncode:
        marks = ("overflow", "undefined", "error")
        lines = done.stderr.splitlines()
        said = [line for mark in marks for line in lines if mark in line]
        raise errors.UserError(
            f"{command[0]} failed: {(said or done.stderr.splitlines() or ['no message'])[0]}"
        )
    return done.stdout
