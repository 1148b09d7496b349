"""Says which player a file has, and gives it all that it needs: what a device gets beside the file.

Imports no framework.
"""

import functools
import os
import pathlib
import shutil
import types
from typing import Any

from actorQ.core import errors
from actorQ.core import files
from actorQ.policy.native import compiling
from actorQ.policy.native import device
from baseline.deploy import run_native
from baseline.deploy import run_policy
from baseline.formats import names

_NATIVE = "native"
_SOURCE, _SCRIPT = "policy_native.c", "build_native.sh"


def of_format(file_format: str) -> types.ModuleType:
    """Returns the player of a format's files, a module that is a program as well."""
    return run_native if file_format == _NATIVE else run_policy


def of_file(path: str | os.PathLike[str]) -> types.ModuleType:
    """Returns the player of a file, by its ending."""
    native = pathlib.Path(path).suffix == names.ENDINGS[_NATIVE]
    return of_format(_NATIVE if native else "")


def place(file_format: str, folder: pathlib.Path) -> pathlib.Path:
    """Copies the player of a format's files, and what it compiles; returns its path.

    Args:
      file_format: One of `names.FORMATS`.
      folder: A folder that exists.

    Raises:
      OSError, errors.WriteError: The folder cannot be written.
    """
    player = pathlib.Path(str(of_format(file_format).__file__))
    if file_format == _NATIVE:
        _place_source(folder)
    return pathlib.Path(shutil.copyfile(player, folder / player.name))


def load(path: str | os.PathLike[str]) -> Any:
    """Returns a file's policy, as a device would load it.

    Args:
      path: The file, in a folder that can be written where a player has to be compiled.

    Raises:
      errors.UserError: The player of native files cannot be compiled.
    """
    player = of_file(path)
    if player is run_native:
        library = _compiled()  # Once, and not again for every file.
        folder = pathlib.Path(path).resolve().parent
        _place_source(folder)
        if not (folder / library.name).exists():
            shutil.copyfile(library, folder / library.name)
    return player.Policy(path)


@functools.cache
def _compiled() -> pathlib.Path:
    """Returns the library of the native player for this machine, compiled if it is missing."""
    folder = pathlib.Path(compiling.BUILD_FOLDER)
    try:
        folder.mkdir(exist_ok=True)
        _place_source(folder)
        return pathlib.Path(run_native.build(folder))
    except (OSError, RuntimeError) as error:
        raise errors.UserError(
            f"A native file cannot be played here: {error}. The device compiles it for itself."
        ) from None


def _place_source(folder: pathlib.Path) -> None:
    """Writes what the native player compiles, and the script that does it."""
    script = pathlib.Path(__file__).with_name(_SCRIPT).read_text(encoding="utf-8")
    # Another process may compile there at this moment.
    files.write_if_new(folder / _SOURCE, device.source())
    files.write_if_new(folder / _SCRIPT, script)
