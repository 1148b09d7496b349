"""Reads files of results. Every reader raises one line that names the file if it is damaged."""

from collections.abc import Mapping
import csv
import glob
import json
import os
from typing import Any

from actorQ.core import errors


def read(path: str) -> bytes:
    """Returns a file's content.

    Raises:
      errors.UserError: The file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None


def read_text(path: str) -> str:
    """Returns a text file's content.

    Raises:
      errors.UserError: The file cannot be read, or is no UTF-8.
    """
    try:
        return read(path).decode("utf-8")
    except UnicodeDecodeError:
        raise errors.UserError(f"{path} is damaged: it is no text. Make it again.") from None


def read_json(path: str) -> Any:
    """Returns the content of a JSON file.

    Raises:
      errors.UserError: The file cannot be read, or is damaged.
    """
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise errors.UserError(f"{path} is damaged: {error}. Make it again.") from None


def read_csv(path: str) -> list[dict[str, str]]:
    """Returns the rows of a CSV file; [] if there is no such file.

    Raises:
      errors.UserError: The file cannot be read, or is damaged.
    """
    if not os.path.exists(path):
        return []
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    except csv.Error as error:
        raise errors.UserError(f"{path} is damaged: {error}. Make it again.") from None
    if any(None in row or None in row.values() for row in rows):
        raise errors.UserError(
            f"{path} is damaged: a row has not as many cells as there are columns. Make it again."
        )
    return rows


def number(row: Mapping[str, str], name: str, path: str) -> float:
    """Returns a number of a CSV row.

    Args:
      row: A row of the file.
      name: The column's name.
      path: The file's path, for the message.

    Raises:
      errors.UserError: The row has no number there.
    """
    try:
        return float(row[name])
    except (KeyError, ValueError):
        raise errors.UserError(
            f"{path} is damaged: {name} has to be a number, not {row.get(name)!r}. Make it again."
        ) from None


def files(folder: str, *endings: str) -> list[str]:
    """Returns a folder's files in the order of their names; [] if there is no such folder.

    Args:
      folder: The folder to look in.
      *endings: Endings of the wanted files, such as 'md' and 'png'.
    """
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "*")))
    return [path for path in found if path.endswith(tuple(f".{ending}" for ending in endings))]


def folders(folder: str) -> list[str]:
    """Returns the folders in a folder, sorted; [] if there is no such folder."""
    found = glob.glob(os.path.join(glob.escape(folder), "*", ""))
    return [path.rstrip(os.sep) for path in sorted(found)]


def titled(path: str) -> str:
    """Returns a file's name, without its ending, as words."""
    words = os.path.splitext(os.path.basename(path))[0].replace("_", " ")
    return words[:1].upper() + words[1:]
