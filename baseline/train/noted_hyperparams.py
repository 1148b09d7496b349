"""Checks the hyper-parameters in a run's folder before rl_zoo3 takes them for Python.

rl_zoo3 evaluates some of them, and imports the modules that others name, so that their author can
run code. A user's own command line may do so; a folder that came from elsewhere may not.
"""

import ast
from collections.abc import Iterator
from collections.abc import Mapping
import reprlib
from typing import Any

from actorQ.core import errors
from baseline.tasks import wrappers

_EVALUATED = (
    "policy_kwargs", "replay_buffer_class", "replay_buffer_kwargs", "normalize", "monitor_kwargs"
)
_IMPORTED = ("policy", "vec_env_wrapper", "callback")  # Names with dots are imported.
_HARMLESS = (
    ast.Expression, ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.keyword,
    ast.Load,
)
_NAMES = ("RMSpropTFLike", "HerReplayBuffer")  # Names of SB3 that rl_zoo3 knows.


def check(hyperparams: Any, path: str) -> None:
    """Checks that hyper-parameters of a file run no code.

    Args:
      hyperparams: Hyper-parameters as the file has them; our own files map names to values.
      path: Path of the run or file, for the message.

    Raises:
      errors.UserError: They are no mapping, one of them could run code, or a wrapper is unknown.
    """
    if not isinstance(hyperparams, Mapping):
        raise errors.UserError(
            f"{path} notes hyperparams {reprlib.repr(hyperparams):.200}, which do not map names to "
            "values."
        )
    for name, value in hyperparams.items():
        objection = _objection(name, value)
        if objection:
            raise errors.UserError(f"{path} notes {name}: {objection}")


def _objection(name: str, value: Any) -> str:
    """Returns a sentence on why a value of a file is refused, or "" if it is taken."""
    if name == "env_wrapper":
        try:
            wrappers.load(value)
        except errors.UserError as error:
            return str(error)
    plain = True
    if name in _EVALUATED:
        plain = not isinstance(value, str) or _is_plain(value)
    elif name in _IMPORTED:
        plain = not any("." in text for text in _names(value))
    if plain:
        return ""
    return (
        f"{reprlib.repr(value):.200} is more than plain values, so it is not evaluated. If it is "
        "your own, repeat --hyperparams as they were."
    )


def _names(value: Any) -> Iterator[str]:
    """Yields all texts, which may name modules to import, also from lists and keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for entry in value:
            yield from _names(entry)


def _is_plain(text: str) -> bool:
    """Returns whether a Python expression holds only values, `dict(...)` and torch's classes."""
    try:
        todo: list[ast.AST] = [ast.parse(text.strip(), mode="eval")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id == "dict"):
                return False
            todo += [*node.args, *node.keywords]
        elif isinstance(node, ast.Name):
            if node.id not in _NAMES:
                return False
        elif isinstance(node, ast.Attribute):
            # dict(activation_fn=nn.ReLU) is an example.
            of_torch = isinstance(node.value, ast.Name) and node.value.id == "nn"
            if not (of_torch and node.attr[0].isupper()):
                return False
        elif isinstance(node, _HARMLESS):
            todo += ast.iter_child_nodes(node)
        else:
            return False
    return True
