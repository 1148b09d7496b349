"""Unpacks what strangers have zipped: a megabyte may claim, or become, any size.

Imports no framework.
"""

from collections.abc import Sequence
import os
from typing import BinaryIO
import zipfile

from actorQ.core import errors

MAX_MEMBERS = 100_000  # Of a zip in a zip. Each becomes an object of ten times its entry's size.
_BEGINNING = b"PK"  # What numpy and torch take for a zip.
_ENTRY = b"PK\x01\x02"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # The others unpack without any bound.


def member(
    archive: zipfile.ZipFile, name: str, max_bytes: int, path: str | os.PathLike[str]
) -> bytes:
    """Returns the content of one member of a zip.

    Args:
      archive: the zip.
      name: of the member.
      max_bytes: that it may have.
      path: of the zip, for messages.

    Raises:
      errors.UserError: it has more.
      KeyError: there is no such member.
    """
    info = archive.getinfo(name)
    _check([info], name, max_bytes, path)
    with archive.open(info) as file:
        return file.read(info.file_size)  # Asked for no size, it may unpack far more than that.


def check_nested(
    file: BinaryIO, name: str, max_bytes: int, path: str | os.PathLike[str]
) -> None:
    """Checks how much a file unpacks to, if it is a zip itself.

    Args:
      file: at its beginning, and left there.
      name: of what it is, for messages.
      max_bytes: that its members may have in all.
      path: of the file it comes from, for messages.

    Raises:
      errors.UserError: they have more.
      zipfile.BadZipFile: it is a damaged zip.
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
