"""Unpacks strangers' zip files within limits: a megabyte may claim, or become, any size.

Imports no framework.
"""

from collections.abc import Sequence
import os
from typing import BinaryIO
import zipfile

from actorQ.core import errors

# Limit for a zip in a zip. Each member becomes an object of ten times its entry's size.
MAX_MEMBERS = 100_000
_BEGINNING = b"PK"  # numpy and torch take files that begin so for zips.
_ENTRY = b"PK\x01\x02"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # The others unpack without any bound.


def member(
    archive: zipfile.ZipFile, name: str, max_bytes: int, path: str | os.PathLike[str]
) -> bytes:
    """Returns the content of one member of a zip.

    Args:
      archive: The zip.
      name: The member's name.
      max_bytes: Largest size of the member.
      path: The zip's path, for messages.

    Raises:
      errors.UserError: The member is larger, or packed by a method that is not read.
      KeyError: There is no such member.
    """
    info = archive.getinfo(name)
    _check([info], name, max_bytes, path)
    with archive.open(info) as file:
        return file.read(info.file_size)  # Without a size it may unpack far more.


def check_nested(
    file: BinaryIO, name: str, max_bytes: int, path: str | os.PathLike[str]
) -> None:
    """Checks how much a file unpacks to, if it is a zip itself.

    Args:
      file: The file at its beginning, where it is left.
      name: What the file is, for messages.
      max_bytes: Largest size of all its members together.
      path: Path of the outer file, for messages.

    Raises:
      errors.UserError: The members are larger, or packed by a method that is not read.
      zipfile.BadZipFile: The file is a damaged zip.
    """
    begins_as_zip = file.read(len(_BEGINNING)) == _BEGINNING
    file.seek(0)
    if not begins_as_zip:
        return
    if file.read().count(_ENTRY) > MAX_MEMBERS:
        raise errors.UserError(f"{path} claims over {MAX_MEMBERS:,} parts of {name}: not read.")
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        _check(archive.infolist(), name, max_bytes, path)
    file.seek(0)


def _check(
    members: Sequence[zipfile.ZipInfo], name: str, max_bytes: int, path: str | os.PathLike[str]
) -> None:
    claimed = sum(info.file_size for info in members)
    if claimed > max_bytes:
        raise errors.UserError(f"{path} claims {claimed:,} bytes for {name}: not read.")
    if any(info.compress_type not in _METHODS for info in members):
        raise errors.UserError(f"{path} packs {name} in a way that is not read here.")
