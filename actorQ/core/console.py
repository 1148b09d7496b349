"""Starts programs of this project: as installed commands, and with the right modules.

`pyproject.toml` makes the commands, such as `quarl-train`: each does as `python -m MODULE` does.
"""

from collections.abc import Sequence
import importlib.machinery
import os
import runpy
import sys

from actorQ.core import errors

# Modules are named, not imported: core imports nothing else of ours.
PROGRAMS = {
    "quarl-train": "actorQ.launcher",
    "quarl-evaluate": "actorQ.evaluate",
    "quarl-experiment": "actorQ.experiments.run",
    "quarl-ptq": "baseline.ptq",
    "quarl-qat": "baseline.qat",
    "quarl-deploy": "baseline.deploy",
}

# Packages that programs import, and their names in a package index.
_PACKAGES = {
    name: name.replace("_", "-") for name in (
        "codecarbon", "dm_control", "dm_env", "flatbuffers", "gymnasium", "huggingface_hub",
        "imageio", "jinja2", "matplotlib", "mujoco", "numpy", "onnx", "onnxruntime", "pandas",
        "psutil", "pydantic", "ray", "rl_zoo3", "safetensors", "sb3_contrib", "scipy",
        "stable_baselines3", "tensorboard", "tensorflow", "torch", "torchao", "tqdm", "trfl",
    )
} | {
    "PIL": "pillow", "absl": "absl-py", "acme": "dm-acme", "ale_py": "ale-py",
    "reverb": "dm-reverb", "sonnet": "dm-sonnet", "tree": "dm-tree", "yaml": "PyYAML",
}


def main() -> None:
    """Runs the program that belongs to the command's name."""
    _refuse_hiding_files()
    runpy.run_module(
        PROGRAMS[os.path.basename(sys.argv[0])], run_name="__main__", alter_sys=True
    )


def check_program() -> None:
    """Ends a program that would import a file of others, such as a `numpy.py`, for a package.

    Does nothing where somebody imports this project into a program of his own.
    """
    # Python names a program so while it looks for it (`python -m`).
    if sys.argv[:1] == ["-m"]:
        _refuse_hiding_files()


def _refuse_hiding_files() -> None:
    library = os.path.dirname(os.__file__)
    count = sys.path.index(library) if library in sys.path else 0
    problem = find_hiding_file(sys.path[:count], sys.path[count:])
    if problem:
        errors.report("actorQ", problem)
        raise SystemExit(1)


def find_hiding_file(first: Sequence[str], later: Sequence[str]) -> str:
    """Returns a sentence on a file that hides a module, with the remedy; "" if there is none.

    A package of the same version may come first.

    Args:
      first: Folders that Python searches before its own library: the current one, PYTHONPATH.
      later: Python's own library, and the folders behind it.
    """
    search = importlib.machinery.PathFinder.find_spec
    for folder in filter(os.path.isdir, (entry or "." for entry in first)):
        for name in (*_PACKAGES, *sorted(sys.stdlib_module_names)):
            # A folder without an __init__.py has no origin, and hides nothing.
            if name in sys.modules or not (theirs := search(name, [folder])) or not theirs.origin:
                continue
            ours = search(name, later)
            if ours and ours.origin != theirs.origin and not _same_version(name, folder, later):
                given = map(os.path.abspath, os.environ.get("PYTHONPATH", "").split(os.pathsep))
                leave = f"take {folder} out of PYTHONPATH" if folder in given else (
                    "start in another folder"
                )
                return (
                    f"{theirs.origin} hides {ours.origin}, which programs need: rename it, or "
                    f"{leave}."
                )
    return ""


def _same_version(name: str, folder: str, later: Sequence[str]) -> bool:
    if name not in _PACKAGES:
        return False
    from importlib import metadata  # Its import takes longer than the search.

    theirs, ours = (
        [found.version for found in metadata.distributions(name=_PACKAGES[name], path=list(path))]
        for path in ([folder], later)
    )
    return bool(theirs) and theirs[:1] == ours[:1]
