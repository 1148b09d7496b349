"""Reads experiments from YAML, and checks that each of their runs is possible.

An experiment is a file NAME.yaml in this folder (or anywhere), and not a Python module: it is data,
it can be checked before anything of it is used, a user changes it without reading code, and a
result can hold a copy of what it says. Settings have the names of the training flags, so that there
is one vocabulary, one set of legal values and one place that checks them.

    extends: time_to_reward            # May be left out, see below.
    title: Time to reward              # For tables and figures.
    kind: training                     # What a run is, see `kinds`; training if left out.
    report: time_to_reward             # What is made of the results, see `reports`.
    precisions: [32, 16, 8, 4]         # Bits.
    seeds: [0, 1, 2]
    settings: {stop_window: 3}         # Flags, for all tasks.
    tasks:                             # Flags, for one.
      dm_control,cartpole_balance: {algorithm: d4pg, stop_return: 941.22}
    peers:                             # Somebody else's agents beside ours, see `peers`: 32 bits.
      sb3: {}                          # For all tasks,
      acme: {tasks: [cartpole_balance], settings: {n_step: 1}}   # or some, with flags of its own.
    vary: {actor_update_period: [1, 10, 100]}      # One more axis: a flag and its values.
    profiles:                          # Flags, for one profile; a preset's first.
      laptop: {preset: small, settings: {...}, tasks: {...}, vary: {...}}

`common.yaml` holds what experiments share: profiles (kinds of machine), presets of settings that
they may take, and settings of tasks.
Of two settings the more special one wins: those of a peer before those of an experiment, these
before the common ones, in each of the latter two those of a profile before the others, and in each
of these those of a task before the rest.

An experiment that extends another (of this folder, which extends none itself) takes over its keys.
Of both `settings`, its own win one by one; its `tasks` are those that it names, each with what the
other says of it besides; any other key that it has replaces the other's.

Imports no framework.
"""

from collections.abc import Mapping
import dataclasses
import os
from typing import Any

from actorQ.core import errors
from actorQ.experiments import kinds
from actorQ.experiments import specification
from actorQ.experiments import yaml_files
from actorQ.experiments.peers import kinds as peers_lib

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "definitions")
_COMMON = "common"
_ENDING = ".yaml"
_EXTENDS = "extends"
_KEYS = (
    "title", "kind", "report", "precisions", "seeds", "settings", "tasks", "peers", "vary",
    "profiles",
)
_REQUIRED = ("title", "report", "precisions", "seeds", "tasks")


def names() -> list[str]:
    """Returns the names of the experiments in this folder."""
    files = sorted(name for name in os.listdir(_FOLDER) if name.endswith(_ENDING))
    return [name.removesuffix(_ENDING) for name in files if name != _COMMON + _ENDING]


def load_common(path: str = os.path.join(_FOLDER, _COMMON + _ENDING)) -> specification.Common:
    """Reads what experiments share.

    Raises:
      errors.UserError: the file is not as it must be.
    """
    keys = ("tasks", "presets", "profiles")
    content = yaml_files.mapping(yaml_files.read(path), path, keys, ("profiles",))
    where = f"{path}: presets"
    presets = {
        name: yaml_files.mapping(value, f"{where}: {name}")
        for name, value in yaml_files.mapping(content.get("presets"), where).items()
    }
    profiles = {}
    for name, value in yaml_files.mapping(content["profiles"], f"{path}: profiles").items():
        where = f"{path}: profiles: {name}"
        known = ("about", "gpu_optional", "settings", "tasks")
        value = yaml_files.mapping(value, where, known, ("about",))
        about = " ".join(yaml_files.text(value["about"], f"{where}: about").split())
        optional = yaml_files.boolean(value.get("gpu_optional", False), f"{where}: gpu_optional")
        profiles[name] = specification.Profile(name, about, _layer(value, where), optional)
    return specification.Common(_layer(content, path), profiles, presets)


def load(name: str, common: specification.Common) -> specification.Experiment:
    """Reads an experiment.

    Args:
      name: of a file in this folder, without ending, or a path that ends in .yaml.
      common: for the names of profiles.

    Raises:
      errors.UserError: there is no such file, or it is not as it must be.
    """
    path = _path(name)
    content = _content(path)
    kind = yaml_files.text(content.get("kind", kinds.TRAINING), f"{path}: kind")
    layer = _layer(content, path)
    if not layer.tasks:
        raise errors.UserError(f"{path}: tasks names none.")
    shorts = [specification.short_task(task) for task in layer.tasks]
    if len(set(shorts)) < len(shorts):
        raise errors.UserError(f"{path}: two tasks have the same name without their suites.")
    vary = _vary(content.get("vary"), path)
    profiles, own_values = {}, {}
    where = f"{path}: profiles"
    allowed = list(common.profiles)
    for profile, value in yaml_files.mapping(content.get("profiles"), where, allowed).items():
        inner = f"{where}: {profile}"
        value = yaml_files.mapping(value, inner, ("preset", "settings", "tasks", "vary"))
        own = _layer(value, inner)
        settings = {**_preset(value, inner, common), **own.settings}
        profiles[profile] = dataclasses.replace(own, settings=settings)
        if varied := _vary(value.get("vary"), inner):
            if vary is None or varied[0] != vary[0]:
                raise errors.UserError(
                    f"{inner}: vary: a profile can have other values of what the experiment "
                    f"varies ({vary[0] if vary else 'nothing'}), not vary {varied[0]}."
                )
            own_values[profile] = varied[1]
        for task in profiles[profile].tasks:
            if task not in layer.tasks:
                raise errors.UserError(f"{inner}: the experiment has no task {task!r}.")
    experiment = specification.Experiment(
        os.path.basename(path).removesuffix(_ENDING),
        yaml_files.text(content["title"], f"{path}: title"),
        kind,
        yaml_files.text(content["report"], f"{path}: report"),
        _precisions(content["precisions"], f"{path}: precisions"),
        yaml_files.values(content["seeds"], f"{path}: seeds"),
        layer,
        vary,
        profiles,
        _peers(content, layer, path),
        own_values,
    )
    for profile in common.profiles:  # Every value of it is possible, on every kind of machine.
        try:
            specification.expand(experiment, common, profile)
        except errors.UserError as error:
            raise errors.UserError(f"{path}, profile {profile}: {error}") from None
    return experiment


def _path(name: str) -> str:
    path = name if name.endswith(_ENDING) else os.path.join(_FOLDER, name + _ENDING)
    if not os.path.isfile(path) or name == _COMMON:
        raise errors.UserError(
            f"There is no experiment {name!r}: choose one of {', '.join(names())}, or give a path "
            f"that ends in {_ENDING}."
        )
    return path


def _content(path: str) -> dict[str, Any]:
    """What an experiment's file says, with what it takes over from the one that it extends."""
    content = yaml_files.mapping(yaml_files.read(path), path, (_EXTENDS, *_KEYS))
    if _EXTENDS in content:
        where = f"{path}: {_EXTENDS}"
        name = yaml_files.text(content.pop(_EXTENDS), where)
        if name not in names():
            raise errors.UserError(f"{where}: {name!r} is not one of {', '.join(names())}.")
        source = _path(name)
        other = yaml_files.mapping(yaml_files.read(source), source, _KEYS)
        below, own = _layer(other, source), _layer(content, path)
        tasks = {task: {**below.tasks.get(task, {}), **value} for task, value in own.tasks.items()}
        content = {
            **other,
            **content,
            "settings": {**below.settings, **own.settings},
            "tasks": tasks or below.tasks,
        }
    return yaml_files.mapping(content, path, _KEYS, _REQUIRED)


def _preset(
    content: Mapping[str, Any], where: str, common: specification.Common
) -> Mapping[str, Any]:
    if "preset" not in content:
        return {}
    name = yaml_files.text(content["preset"], f"{where}: preset")
    if name not in common.presets:
        raise errors.UserError(
            f"{where}: there is no preset {name!r}: choose one of "
            f"{', '.join(common.presets) or 'none'}."
        )
    return common.presets[name]


def _layer(content: Mapping[str, Any], where: str) -> specification.Layer:
    tasks = yaml_files.mapping(content.get("tasks"), f"{where}: tasks")
    return specification.Layer(
        yaml_files.mapping(content.get("settings"), f"{where}: settings"),
        {
            task: yaml_files.mapping(value, f"{where}: tasks: {task}")
            for task, value in tasks.items()
        },
    )


def _precisions(value: Any, where: str) -> list[int]:
    precisions = yaml_files.values(value, where)
    specification.check_precisions(precisions, where)
    return precisions


def _vary(value: Any, path: str) -> tuple[str, list[Any]] | None:
    if value is None:
        return None
    where = f"{path}: vary"
    value = yaml_files.mapping(value, where)
    if len(value) != 1:
        raise errors.UserError(f"{where} must name one setting, not {len(value)}.")
    ((name, values),) = value.items()
    return name, yaml_files.values(values, f"{where}: {name}", (int, float, str))


def _peers(
    content: Mapping[str, Any], layer: specification.Layer, path: str
) -> list[specification.Peer]:
    where = f"{path}: peers"
    described = yaml_files.mapping(content.get("peers"), where, list(peers_lib.PEERS))
    if described and "vary" in content:
        raise errors.UserError(f"{where}: there are none where a setting varies (vary).")
    found = []
    for kind, value in described.items():
        inner = f"{where}: {kind}"
        value = yaml_files.mapping(value, inner, ("tasks", "settings"))
        tasks = list(layer.tasks)
        if "tasks" in value:
            names = yaml_files.values(value["tasks"], f"{inner}: tasks", str)
            tasks = [specification.find_task(name, tasks, inner) for name in names]
        settings = yaml_files.mapping(value.get("settings"), f"{inner}: settings")
        peers_lib.PEERS[kind].check_read(settings, f"{inner}: settings")
        found.append(specification.Peer(kind, tasks, settings))
    return found
