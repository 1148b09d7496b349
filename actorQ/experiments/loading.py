"""Reads experiments from YAML, and checks that each of their runs is possible.

An experiment is a file NAME.yaml, in the folder `definitions` or anywhere. It is not a Python
module: it can be checked before anything of it is used, and a user changes it without reading code.
Settings have the names of the training flags: there is one vocabulary, and one set of legal values.

    extends: time_to_reward            # May be left out, see below.
    title: Time to reward              # For tables and figures.
    kind: training                     # Kind of the runs, see `kinds`; training if left out.
    report: time_to_reward             # Report on the results, see `reports`.
    precisions: [32, 16, 8, 4]         # Bits.
    seeds: [0, 1, 2]
    settings: {stop_window: 3}         # Flags, for all tasks.
    tasks:                             # Flags, for one.
      dm_control,cartpole_balance: {algorithm: d4pg, stop_return: 941.22}
    peers:                             # Other projects' agents beside ours, see `peers`: 32 bits.
      sb3: {}                          # For all tasks,
      acme: {tasks: [cartpole_balance], settings: {n_step: 1}}   # or some, with flags of its own.
      zoo: {seeds: [0]}                # Or with some of the seeds.
    vary: {actor_update_period: [1, 10, 100]}      # One more axis: a flag and its values.
    profiles:                          # Flags, for one profile; a preset's first.
      laptop: {preset: small, settings: {...}, tasks: {...}, vary: {...}}

`common.yaml` holds what experiments share: profiles (kinds of machine), presets of settings that
they may take, and settings of tasks.

Precedence of settings, strongest first: 1. peer, 2. experiment, 3. common.yaml. Within 2 and 3:
profile and task, profile, task, plain. An experiment's setting `preset` names tuned settings (see
`core.presets`), which then stand in the place of all of common.yaml.

An experiment may extend another one of the folder that extends none itself:
- Its `settings` win one by one over the other's.
- Its `tasks` are those that it names, each on top of the other's settings of that task.
- Any other key replaces the other's, and keys that it lacks are taken over.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import os
from typing import Annotated
from typing import Any
from typing import TypeVar

import pydantic

from actorQ.core import errors
from actorQ.core import yaml_files
from actorQ.experiments import kinds
from actorQ.experiments import specification

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "definitions")
_COMMON = "common"
_ENDING = ".yaml"
_EXTENDS = "extends"


def _described(words: str) -> pydantic.WrapValidator:
    """Makes one clear message of all that is wrong with a value that must be `words`."""

    def check(value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except pydantic.ValidationError:
            raise ValueError(f"must be {words}, not {value!r}") from None

    return pydantic.WrapValidator(check)


def _different(found: list[Any]) -> list[Any]:
    if len(set(found)) < len(found):
        raise ValueError(f"names a value twice: {found}")
    return found


def _one(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    if len(found) != 1:
        raise ValueError(f"must name one setting, not {len(found)}")
    return found


_NONE_IS_EMPTY = pydantic.BeforeValidator(lambda value: {} if value is None else value)
_SOME = pydantic.Field(min_length=1)
_DIFFERENT = pydantic.AfterValidator(_different)
_MAPPING = _described("a mapping of names to values")
_Text = Annotated[
    str, pydantic.StringConstraints(strip_whitespace=True, min_length=1), _described("a text")
]
_Texts = Annotated[list[_Text], _SOME, _described("a list of texts"), _DIFFERENT]
_Whole = Annotated[list[int], _SOME, _described("a list of whole numbers"), _DIFFERENT]
_Values = Annotated[
    list[int | float | str], _SOME, _described("a list of numbers or texts"), _DIFFERENT
]
_Settings = Annotated[dict[str, Any], _MAPPING, _NONE_IS_EMPTY]  # `kinds` checks what is in it.
_Tasks = Annotated[dict[str, _Settings], _NONE_IS_EMPTY]
_Vary = Annotated[dict[str, _Values], pydantic.AfterValidator(_one)]


class _Model(pydantic.BaseModel):
    """A mapping with known keys."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        # pydantic's own message about an unknown key does not name those that are known.
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"must be a mapping of names to values, not {value!r}")
        if problem := _unknown(value, cls.model_fields):
            raise ValueError(problem)
        return value


class _Layered(_Model):
    """Settings of all tasks, and of some."""

    settings: _Settings = {}
    tasks: _Tasks = {}

    def layer(self) -> specification.Layer:
        """Returns them as a layer."""
        return specification.Layer(self.settings, self.tasks)


class _ProfileFile(_Layered):
    """A kind of machine in common.yaml."""

    about: _Text
    gpu_optional: Annotated[bool, _described("true or false")] = False


class _CommonFile(_Model):
    """The file common.yaml."""

    tasks: _Tasks = {}
    presets: _Tasks = {}
    profiles: dict[str, _ProfileFile]


class _PeerPart(_Model):
    """A peer in an experiment's file."""

    tasks: _Texts | None = None
    seeds: _Whole | None = None
    settings: _Settings = {}


class _ProfilePart(_Layered):
    """A profile in an experiment's file."""

    preset: _Text | None = None
    vary: _Vary | None = None


class _ExperimentFile(_Model):
    """An experiment's file."""

    title: _Text
    kind: _Text = kinds.TRAINING
    report: _Text
    precisions: _Whole
    seeds: _Whole
    settings: _Settings = {}
    tasks: _Tasks
    peers: dict[str, _PeerPart] = {}
    vary: _Vary | None = None
    profiles: dict[str, _ProfilePart] = {}


def names() -> list[str]:
    """Returns the names of the experiments that come with this code."""
    files = sorted(name for name in os.listdir(_FOLDER) if name.endswith(_ENDING))
    return [name.removesuffix(_ENDING) for name in files if name != _COMMON + _ENDING]


def load_common(path: str = os.path.join(_FOLDER, _COMMON + _ENDING)) -> specification.Common:
    """Reads what experiments share.

    Raises:
      errors.UserError: The file is not as it must be.
    """
    content = _checked(_CommonFile, yaml_files.read(path), path)
    profiles = {
        name: specification.Profile(
            name, " ".join(profile.about.split()), profile.layer(), profile.gpu_optional
        )
        for name, profile in content.profiles.items()
    }
    return specification.Common(
        specification.Layer({}, content.tasks), profiles, content.presets
    )


def load(name: str, common: specification.Common) -> specification.Experiment:
    """Reads an experiment.

    Args:
      name: Name of a file in `definitions` without its ending, or a path that ends in .yaml.
      common: What experiments share.

    Raises:
      errors.UserError: There is no such file, or it is not as it must be.
    """
    path = _path(name)
    content = _content(path)
    layer = specification.Layer(content.settings, content.tasks)
    if not layer.tasks:
        raise errors.UserError(f"{path}: tasks names none.")
    shorts = [specification.short_task(task) for task in layer.tasks]
    if len(set(shorts)) < len(shorts):
        raise errors.UserError(f"{path}: two tasks have the same name without their suites.")
    specification.check_precisions(content.precisions, f"{path}: precisions")
    if problem := _unknown(content.profiles, common.profiles):
        raise errors.UserError(f"{path}: profiles {problem}.")
    profiles, own_values = {}, {}
    for profile, part in content.profiles.items():
        where = f"{path}: profiles: {profile}"
        preset = _preset(part.preset, where, common)
        profiles[profile] = specification.Layer({**preset, **part.settings}, part.tasks)
        for task in part.tasks:
            if task not in layer.tasks:
                raise errors.UserError(f"{where}: the experiment has no task {task!r}.")
        for setting, values in (part.vary or {}).items():
            if setting not in (content.vary or {}):
                varied = ", ".join(content.vary or {}) or "nothing"
                raise errors.UserError(
                    f"{where}: vary: the experiment varies {varied}. A profile can have other "
                    f"values of that, but not vary {setting}."
                )
            own_values[profile] = values
    experiment = specification.Experiment(
        os.path.basename(path).removesuffix(_ENDING),
        content.title,
        content.kind,
        content.report,
        content.precisions,
        content.seeds,
        layer,
        next(iter(content.vary.items())) if content.vary else None,
        profiles,
        _peers(content, path),
        own_values,
    )
    for profile in common.profiles:  # Each of them must be possible on every kind of machine.
        try:
            specification.expand(experiment, common, profile)
        except errors.UserError as error:
            raise errors.UserError(f"{path}, profile {profile}: {error}") from None
    return experiment


_ModelT = TypeVar("_ModelT", bound=_Model)


def _checked(model: type[_ModelT], content: Any, path: str) -> _ModelT:
    """Returns what a file says."""
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as error:
        problems = error.errors()
        place, problem = problems[0]["loc"], problems[0]["msg"].removeprefix("Value error, ")
        if problems[0]["type"] == "missing":
            place = place[:-1]
            lacking = [str(each["loc"][-1]) for each in problems if each["type"] == "missing"
                       and each["loc"][:-1] == place]
            problem = f"lacks {', '.join(lacking)}"
        where = ": ".join([path, *map(str, place)])
        raise errors.UserError(f"{where} {problem}.") from None


def _unknown(keys: Collection[Any], known: Collection[str]) -> str:
    """Returns what is wrong with the first key that is not known, or ""."""
    wrong = [key for key in keys if key not in known]
    return f"has an unknown key {wrong[0]!r}: choose from {', '.join(known)}" if wrong else ""


def _path(name: str) -> str:
    path = name if name.endswith(_ENDING) else os.path.join(_FOLDER, name + _ENDING)
    if not os.path.isfile(path) or name == _COMMON:
        raise errors.UserError(
            f"There is no experiment {name!r}: choose one of {', '.join(names())}, or give a path "
            f"that ends in {_ENDING}."
        )
    return path


def _content(path: str) -> _ExperimentFile:
    """Returns what an experiment's file says, on top of the one that it extends."""
    content = yaml_files.read(path)
    if isinstance(content, dict) and _EXTENDS in content:
        name = content.pop(_EXTENDS)
        if name not in names():
            raise errors.UserError(
                f"{path}: {_EXTENDS}: {name!r} is not one of {', '.join(names())}."
            )
        source = _path(name)
        other = yaml_files.read(source)
        below = _checked(_ExperimentFile, other, source)
        parts = {key: content[key] for key in ("settings", "tasks") if key in content}
        own = _checked(_Layered, parts, path)
        tasks = {task: {**below.tasks.get(task, {}), **value} for task, value in own.tasks.items()}
        content = {
            **other,
            **content,
            "settings": {**below.settings, **own.settings},
            "tasks": tasks or below.tasks,
        }
    return _checked(_ExperimentFile, content, path)


def _preset(name: str | None, where: str, common: specification.Common) -> Mapping[str, Any]:
    if name is None:
        return {}
    if name not in common.presets:
        raise errors.UserError(
            f"{where}: there is no preset {name!r}: choose one of "
            f"{', '.join(common.presets) or 'none'}."
        )
    return common.presets[name]


def _peers(content: _ExperimentFile, path: str) -> list[specification.Peer]:
    where = f"{path}: peers"
    if content.peers and content.vary:
        raise errors.UserError(f"{where}: there are none where a setting varies (vary).")
    if problem := _unknown(content.peers, kinds.PEERS):
        raise errors.UserError(f"{where} {problem}.")
    found = []
    for kind, part in content.peers.items():
        inner = f"{where}: {kind}"
        tasks = list(content.tasks)
        if part.tasks is not None:
            tasks = [specification.find_task(name, tasks, inner) for name in part.tasks]
        kinds.PEERS[kind].check_read(part.settings, f"{inner}: settings")
        seeds = part.seeds or []
        if others := [seed for seed in seeds if seed not in content.seeds]:
            raise errors.UserError(f"{inner}: seeds: the experiment has no seed {others[0]}.")
        found.append(specification.Peer(kind, tasks, part.settings, seeds))
    return found
