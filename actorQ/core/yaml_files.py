"""Reads YAML strictly: no key stands twice, 1e-5 is a number, an error is one clear line.

Imports no framework.
"""

import re
from typing import Any

import yaml

from actorQ.core import errors


class _Loader(yaml.SafeLoader):
    """A loader of YAML without its traps."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Composes a mapping; PyYAML alone would silently keep the last of two equal keys."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            problem = ""
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key must be a text or a number"
            elif key.value in seen:
                problem = f"the key {key.value!r} is there twice"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return node


# YAML 1.1 reads 1e-5 as a text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read(path: str) -> Any:
    """Returns what a YAML file says.

    Raises:
      errors.UserError: The file cannot be read, or is not YAML.
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
    except (yaml.YAMLError, ValueError) as error:  # 2024-02-30 is a ValueError.
        raise errors.UserError(f"{path}: {errors.summary(error)}.") from None
