"""Presets: named settings that a run takes where its flags say nothing.

A preset is an entry of presets.yaml. Precedence, strongest first:
1. flags,
2. the task's own entry,
3. the entry of its suite ("atari,*"),
4. the fallback,
5. the defaults of `config.RunConfig`.

--preset=auto takes all of them. --preset=NAME takes another task's entry in the place of 2 and 3.
--preset=fallback leaves out 2 and 3. --preset=paper takes the place of 2 to 4. --preset=none leaves
them out: published experiments name their settings on top of the defaults, which therefore do not
change.

Imports no framework.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import os
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import settings
from actorQ.core import yaml_files

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "presets.yaml")
AUTO, FALLBACK, PAPER, NONE = "auto", "fallback", "paper", "none"
_TASKS = "tasks"
_FLAGS = "command line"


def names() -> list[str]:
    """Returns the legal values of --preset."""
    return [AUTO, FALLBACK, PAPER, NONE, *_read()[_TASKS]]


def resolve(preset: str, taskstr: str) -> dict[str, Any]:
    """Returns the settings of a preset for a task, by name; the rest keeps its defaults.

    Raises:
      errors.UserError: There is no such preset.
    """
    return {name: value for _, layer in _layers(preset, taskstr) for name, value in layer.items()}


def defaults() -> dict[str, Any]:
    """Returns every setting of a run without flags, of a task without an entry of its own."""
    fallback = {**_read()[FALLBACK], "preset": AUTO}
    return {**dataclasses.asdict(config_lib.RunConfig()), **fallback}


def origins(config: config_lib.RunConfig) -> dict[str, list[str]]:
    """Returns the names of all settings that do not have their defaults, by where they come from.

    The keys are names of presets and "command line". A flag that says the same as a preset counts
    to the preset. Settings that every launcher sets are left out.
    """
    launched = config_lib.names_of(settings.Kind.LAUNCHED)
    expected = {**dataclasses.asdict(config_lib.RunConfig()), "preset": AUTO}
    sources: dict[str, str] = {}
    for source, layer in _layers(config.preset, config.taskstr):
        expected |= layer
        sources |= dict.fromkeys(layer, source)
    found: dict[str, list[str]] = {}
    for name, value in dataclasses.asdict(config).items():
        if value != expected[name]:
            sources[name] = _FLAGS
        if name in sources and name not in launched:
            found.setdefault(sources[name], []).append(name)
    return found


def describe(config: config_lib.RunConfig) -> str:
    """Returns the end of a sentence that says where a run's settings come from."""
    found = origins(config)
    tuned = [name for name in found if name not in (FALLBACK, PAPER, _FLAGS)]
    if tuned:
        text = f"tuned for {' and '.join(reversed(tuned))}"
    elif config.preset == PAPER:
        text = "the paper's"
    elif config.preset == NONE:
        text = "the defaults of the code"
    else:
        text = "the fallback for tasks without tuned ones"
    flags = [f"--{name}" for name in found.get(_FLAGS, []) if name not in ("preset", "taskstr")]
    return f"{text}, with {', '.join(flags)} as given" if flags else text


def _layers(preset: str, taskstr: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields a preset's layers with their names, the weakest first.

    Raises:
      errors.UserError: There is no such preset.
    """
    content = _read()
    tasks = content[_TASKS]
    if preset not in names():
        raise errors.UserError(
            f"--preset={preset} is not possible: choose one of {', '.join(names())}."
        )
    if preset == PAPER:
        yield PAPER, content[PAPER]
    elif preset != NONE:
        yield FALLBACK, content[FALLBACK]
        suite, comma, task = taskstr.partition(",")
        full = f"{suite.strip()},{task.strip()}" if comma else f"gym,{taskstr.strip()}"
        chosen = {AUTO: [f"{full.partition(',')[0]},*", full], FALLBACK: []}.get(preset, [preset])
        yield from ((name, tasks[name]) for name in chosen if name in tasks)


@functools.cache
def _read() -> dict[str, Any]:
    content: dict[str, Any] = yaml_files.read(PATH)
    return content
