"""Reads YAML strictly: no key twice, 1e-5 is a number, one clear line for what is wrong.

Imports no framework.
"""

from collections.abc import Iterable
import re
from typing import Any

import yaml

from actorQ.core import errors


class _Loader(yaml.SafeLoader):
    """YAML without its traps."""

    def get_single_node(self) -> yaml.Node | None:
        """Composes the document; PyYAML alone would silently keep the last of two equal keys."""
        node = super().get_single_node()
        _check_keys(node, set())
        return node


# YAML 1.1 reads 1e-5 as a text, unlike everyone else.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _check_keys(node: yaml.Node | None, seen: set[int]) -> None:
    """Checks each mapping of a document, before merges (<<) fill them up."""
    if node is None or id(node) in seen:  # An alias leads to a node a second time.
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item, seen)
    if isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            problem = ""
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key must be a text or a number"
            elif key.value in keys:
                problem = f"the key {key.value!r} is there twice"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add(key.value)
            _check_keys(value, seen)


def read(path: str) -> Any:
    """Returns what a YAML file says.

    Raises:
      errors.UserError: it cannot be read, or is not YAML.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.load(file, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise errors.UserError(f"{path} is not a text file.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise errors.UserError(f"{path}{line}: {error.problem}.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: as a date, 2024-02-30.
        raise errors.UserError(f"{path}: {errors.summary(error)}.") from None


def mapping(
    value: Any, where: str, allowed: Iterable[str] = (), required: Iterable[str] = ()
) -> dict[str, Any]:
    """Checks that a value is a mapping with the right keys; None is an empty one.

    Args:
      value: as read.
      where: what messages call it.
      allowed: keys that may be there; empty: any text.
      required: keys that must be there.

    Raises:
      errors.UserError: it is something else, or a key is missing or unknown.
    """
    value = {} if value is None else value
    if not isinstance(value, dict):
        raise errors.UserError(f"{where} must be a mapping of names to values, not {value!r}.")
    allowed, required = list(allowed), list(required)
    for key in value:
        if not isinstance(key, str) or (allowed and key not in allowed):
            known = f": choose from {', '.join(allowed)}" if allowed else ""
            raise errors.UserError(f"{where} has an unknown key {key!r}{known}.")
    missing = [key for key in required if key not in value]
    if missing:
        raise errors.UserError(f"{where} lacks {', '.join(missing)}.")
    return value


def text(value: Any, where: str) -> str:
    """Checks that a value is a text with something in it.

    Raises:
      errors.UserError: it is not.
    """
    if not isinstance(value, str) or not value.strip():
        raise errors.UserError(f"{where} must be a text, not {value!r}.")
    return value.strip()


def boolean(value: Any, where: str) -> bool:
    """Checks that a value is true or false.

    Raises:
      errors.UserError: it is not.
    """
    if not isinstance(value, bool):
        raise errors.UserError(f"{where} must be true or false, not {value!r}.")
    return value


def values(value: Any, where: str, kind: type | tuple[type, ...] = int) -> list[Any]:
    """Checks that a value is a list, not empty, of different values of a type.

    Raises:
      errors.UserError: it is not.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    name = " or ".join({int: "whole numbers", float: "numbers", str: "texts"}[k] for k in kinds)
    good = isinstance(value, list) and value and all(type(item) in kinds for item in value)
    if not good:
        raise errors.UserError(f"{where} must be a list of {name}, not {value!r}.")
    if len(set(value)) < len(value):
        raise errors.UserError(f"{where} names a value twice: {value}.")
    return value
