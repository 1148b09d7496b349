"""Runs a program of this project under the name of an installed command, such as `quarl-train`.

`pyproject.toml` makes the commands. Each does the same as `python -m MODULE`.
"""

import os
import runpy
import sys

# Modules are named, not imported: core imports nothing else of ours.
PROGRAMS = {
    "quarl-train": "actorQ.launcher",
    "quarl-evaluate": "actorQ.evaluate",
    "quarl-experiment": "actorQ.experiments.run",
    "quarl-ptq": "baseline.ptq",
    "quarl-qat": "baseline.qat",
    "quarl-deploy": "baseline.deploy",
}


def main() -> None:
    """Runs the program that belongs to the command's name."""
    runpy.run_module(
        PROGRAMS[os.path.basename(sys.argv[0])], run_name="__main__", alter_sys=True
    )
