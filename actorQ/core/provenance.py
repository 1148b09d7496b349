"""Tells which machine and which commit made a result. Imports no framework."""

from collections.abc import Iterator
import contextlib
import glob
import math
import os
import pathlib
import platform
import subprocess
import time
from typing import Any

ROOT = str(pathlib.Path(os.path.abspath(__file__)).parents[2])  # The repository's folder.
DATE_FORMAT = "%Y-%m-%d %H:%M:%S %z"
CGROUPS = "/sys/fs/cgroup"
OWN_CGROUPS = "/proc/self/cgroup"
CPU_FACTS = "/proc/cpuinfo"
GPU_FACTS = "/proc/driver/nvidia/gpus/*/information"


def machine() -> dict[str, Any]:
    """Returns host, processor, cores (in all, and for this process), GPUs and Python version."""
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "gpus": len(glob.glob("/dev/nvidia[0-9]*")),  # A framework may be unable to use them.
        "gpu_models": _gpu_models(),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


def facts(command: str) -> dict[str, Any]:
    """Returns the heading of every file of measured figures: command, date, machine, commit.

    Args:
      command: Command that measures them again.
    """
    return {
        "command": command,
        "date": time.strftime(DATE_FORMAT),
        "machine": machine(),
        "git_commit": git_commit(),
    }


def machine_cores() -> int:
    """Returns how many cores the machine has; a container's quota counts, rounded up."""
    cores = os.cpu_count() or 1
    return min(cores, _quota_cores() or cores)


def usable_cores() -> int:
    """Returns how many of the `machine_cores` this process may use."""
    cores = machine_cores()
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    return cores


def has_core_beside(n_actors: int) -> bool:
    """Returns whether a core is left beside the learner's and those of the actors."""
    return usable_cores() >= n_actors + 2


def _quota_cores() -> int:
    """Returns how many cores' time Linux's control groups let this process take; 0: no limit."""
    limits = []
    version_1 = "cpu.cfs_quota_us", "cpu.cfs_period_us"
    for controller, names in (("", ("cpu.max",)), ("cpu", version_1)):
        for folder in _control_groups(controller):
            # No limit may be set ("max" or -1), or there may be no such group.
            with contextlib.suppress(OSError, ValueError):
                quota, period = " ".join((folder / name).read_text() for name in names).split()
                if int(quota) > 0 and int(period) > 0:
                    limits.append(math.ceil(int(quota) / int(period)))
    return min(limits, default=0)


def _control_groups(controller: str) -> Iterator[pathlib.Path]:
    """Yields the folders of a process's control groups, the innermost first; each one limits it.

    Args:
      controller: Name of the controller in version 1 of control groups; empty: version 2.
    """
    root = pathlib.Path(CGROUPS, controller)
    with contextlib.suppress(OSError, ValueError):
        for line in pathlib.Path(OWN_CGROUPS).read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                group = root / path.lstrip("/")  # A container may not see this folder.
                yield from (one for one in (group, *group.parents) if root in one.parents)
    yield root


def memory_bytes() -> int:
    """Returns the memory that this process may use: the machine's, or less by a quota."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _control_groups(""):
        with contextlib.suppress(OSError, ValueError):  # There is no quota, or it is "max".
            memory = min(memory, int((folder / "memory.max").read_text()))
    return memory


def git_commit() -> str:
    """Returns the commit of this code, with "+changes" if files differ from it, or "unknown"."""
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True,
            timeout=10,
        ).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def short(commit: str) -> str:
    """Returns a commit for tables: its first 12 digits, and "+changes" where files differed."""
    name, plus, changes = commit.partition("+")
    return name[:12] + plus + changes


def _processor() -> str:
    """Returns the processor's name; where that has no number, also the family and model."""
    facts: dict[str, str] = {}
    try:
        with open(CPU_FACTS, encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                facts.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    name = facts.get("model name") or platform.processor() or "unknown"
    numbered = any(digit.isdigit() for digit in name.partition("@")[0])  # GHz follow the @.
    if numbered or "cpu family" not in facts:
        return name
    return f"{name} (family {facts['cpu family']}, model {facts.get('model')})"


def _gpu_models() -> str:
    """Returns the names of NVIDIA's GPUs; "" where there are none or the driver names none."""
    names = []
    for path in sorted(glob.glob(GPU_FACTS)):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            names += [
                line.partition(":")[2].strip() for line in file if line.startswith("Model:")
            ]
    return " + ".join(dict.fromkeys(names))
