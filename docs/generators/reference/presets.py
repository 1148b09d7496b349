"""Tables of the settings that runs take without flags, from presets.yaml."""

from collections.abc import Callable
import dataclasses
from typing import Any

from actorQ.core import config
from actorQ.core import presets
from docs.generators import tables


def named() -> str:
    """Returns a table of the presets for all tasks, beside each other."""
    plain = dataclasses.asdict(config.RunConfig())
    sides = [presets.resolve(name, "") for name in (presets.FALLBACK, presets.PAPER)]
    columns = [{**plain, **side} for side in sides] + [plain]
    rows = [
        (f"`--{name}`", *(_value(column[name]) for column in columns))
        for name in plain
        if any(name in side for side in sides)
    ]
    return tables.table(("Flag", "fallback", "paper", "none"), rows)


def tasks() -> str:
    """Returns a table of the tasks with settings of their own."""
    fallback = presets.resolve(presets.FALLBACK, "")
    rows = []
    for name in presets.names():
        if "," in name:
            entry = presets.resolve(name, "")
            flags = [
                f"`--{setting}={_value(value)}`"
                for setting, value in entry.items()
                if value != fallback.get(setting)
            ]
            rows.append((f"`{name}`", ", ".join(flags)))
    return tables.table(("Task", "Flags that differ from the fallback's"), rows, 2)


def _value(value: Any) -> str:
    return str(value)


BLOCKS: dict[str, Callable[[], str]] = {"named": named, "tasks": tasks}
