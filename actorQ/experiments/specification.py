"""Experiments, and the runs that each of them consists of. `loading` reads them from files.

Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import re
from typing import Any

from actorQ.core import errors
from actorQ.core import precisions as precisions_lib
from actorQ.core import presets
from actorQ.experiments import kinds

PRESET = "preset"  # Setting that names other ones.


@dataclasses.dataclass(frozen=True)
class Layer:
    """Settings of all tasks, and further ones of some."""

    settings: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Any]]

    def of(self, task: str) -> dict[str, Any]:
        """Returns the settings of a task."""
        return {**self.settings, **self.tasks.get(task, {})}


@dataclasses.dataclass(frozen=True)
class Profile:
    """A kind of machine."""

    name: str
    about: str  # Purpose, and the reasons of its settings.
    layer: Layer
    gpu_optional: bool = False  # Whether it suits machines without a GPU, too.


@dataclasses.dataclass(frozen=True)
class Common:
    """Profiles, presets and settings that experiments share."""

    layer: Layer
    profiles: Mapping[str, Profile]
    presets: Mapping[str, Mapping[str, Any]]  # Settings, by name.

    def profile(self, name: str) -> Profile:
        """Returns a profile.

        Raises:
          errors.UserError: There is none of this name.
        """
        if name not in self.profiles:
            raise errors.UserError(
                f"--profile={name} is not possible: choose one of {', '.join(self.profiles)}."
            )
        return self.profiles[name]


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another project's agent, on some of an experiment's tasks."""

    kind: str
    tasks: Sequence[str]
    settings: Mapping[str, Any]  # In addition to those of the experiment's own runs.
    seeds: Sequence[int] = ()  # Seeds of its runs; empty: those of the experiment.


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment as its file describes it."""

    name: str
    title: str
    kind: str
    report: str
    precisions: Sequence[int]
    seeds: Sequence[int]
    layer: Layer  # Its `tasks` are those of the experiment.
    vary: tuple[str, Sequence[Any]] | None  # The setting that varies, and its values.
    profiles: Mapping[str, Layer]
    peers: Sequence[Peer] = ()
    # Values of the varied setting by profile, for profiles with values of their own.
    values: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the file's order."""
        return list(self.layer.tasks)

    @property
    def preset(self) -> str:
        """The preset whose settings stand in the place of common ones, or ""."""
        return str(self.layer.settings.get(PRESET, ""))


@dataclasses.dataclass(frozen=True)
class Run:
    """Complete description of one run: equal descriptions are the same run."""

    name: str  # Name of its folder; unique in the experiment.
    kind: str
    task: str
    precision: int  # Bits.
    seed: int
    varied: Any  # Value of the varied setting, or None if the experiment varies nothing.
    settings: Mapping[str, Any]  # All settings, by name.

    def differences(self, settings: Mapping[str, Any]) -> list[str]:
        """Returns 'name old -> new' for each setting in which this run differs from another.

        A setting that did not exist when the other run was made counts with its default.

        Args:
          settings: Settings of the other run, complete when it was made.
        """
        defaults = kinds.get(self.kind).defaults()
        return [
            f"{name} {settings.get(name, defaults.get(name))} -> {value}"
            for name, value in self.settings.items()
            if settings.get(name, defaults.get(name)) != value
        ]


def short_task(task: str) -> str:
    """Returns a task without its suite, as a part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", task.partition(",")[2] or task).strip("-")


def find_task(name: str, tasks: Sequence[str], where: str) -> str:
    """Returns the task that a name stands for.

    Args:
      name: Name with or without its suite.
      tasks: Tasks to choose from, with their suites.
      where: Start of an error's message.

    Raises:
      errors.UserError: The name stands for none of them.
    """
    for task in tasks:
        without_suite = task.partition(",")[2]
        if name in (task, without_suite, short_task(task)):
            return task
    raise errors.UserError(
        f"{where} has no task {name!r}: choose from "
        f"{', '.join(short_task(task) for task in tasks)}."
    )


def check_precisions(precisions: Sequence[int], where: str) -> None:
    """Checks widths of weights.

    Args:
      precisions: Widths, bits.
      where: Start of an error's message.

    Raises:
      errors.UserError: A width is not possible.
    """
    for bits in precisions:
        if bits not in precisions_lib.LEGAL:
            legal = ", ".join(str(known) for known in precisions_lib.LEGAL)
            raise errors.UserError(f"{where}: {bits} is not possible: choose from {legal} bits.")


def expand(
    experiment: Experiment,
    common: Common,
    profile: str,
    seeds: Sequence[int] = (),
    tasks: Sequence[str] = (),
    precisions: Sequence[int] | None = (),
    smoke: bool = False,
    peers: Sequence[str] | None = (),
) -> list[Run]:
    """Returns the runs in the order in which they are made.

    One seed follows the other. Within a seed, the precisions and peers of a task follow one
    another, so that other work of the machine hits them alike. Each seed begins with another one.

    Args:
      experiment: Experiment to expand.
      common: Profiles, presets and settings that experiments share.
      profile: Name of the kind of machine.
      seeds: Seeds to run, also others than the experiment's; empty: those of the experiment.
      tasks: Tasks to run, with or without suite; empty: all.
      precisions: Precisions to run, bits, also others than the experiment's; empty: all; None:
        no runs but those of peers.
      smoke: Whether to make only short runs of the first seed, to see that everything starts.
      peers: Peers to run; empty: all; None: no peers.

    Raises:
      errors.UserError: A setting, task, precision or peer is not possible, or no run is left.
    """
    common.profile(profile)  # It must be there, also where a preset takes its place.
    chosen = [
        find_task(name, experiment.tasks, experiment.name) for name in dict.fromkeys(tasks)
    ] or experiment.tasks
    widths = [] if precisions is None else list(experiment.precisions)
    if precisions:
        widths = list(dict.fromkeys(precisions))
        check_precisions(widths, "--precisions")
    beside = _find_peers(experiment, peers)
    seeds = list(dict.fromkeys(seeds)) or list(experiment.seeds)
    setting, values = experiment.vary or ("", [None])
    values = experiment.values.get(profile, values)
    runs = []
    for turn, seed in enumerate(seeds[:1] if smoke else seeds):
        for task in chosen:
            merged = _settings(experiment, common, profile, task)
            sides: list[tuple[str, int, Mapping[str, Any]]] = [
                (experiment.kind, bits, {}) for bits in widths
            ]
            sides += [
                (peer.kind, kinds.PRECISION, peer.settings)
                for peer in beside
                if task in peer.tasks and (not peer.seeds or seed in peer.seeds)
            ]
            first = turn % len(sides) if sides else 0
            for value in values:
                for kind, bits, own in sides[first:] + sides[:first]:
                    given = {**merged, **own}
                    if setting:
                        given[setting] = value
                    settings = kinds.get(kind).settle(given, task, bits, seed, smoke)
                    side = kind if kind in kinds.PEERS else precisions_lib.NAMES[bits]
                    parts = [short_task(task), side]
                    parts += [f"{setting}{value}"] if setting else []
                    name = "-".join([*parts, f"s{seed}"])
                    runs.append(Run(name, kind, task, bits, seed, value, settings))
    if not runs:
        raise errors.UserError(
            f"No run of {experiment.name} is left: choose precisions, peers or seeds of peers."
        )
    return runs


def _settings(
    experiment: Experiment, common: Common, profile: str, task: str
) -> dict[str, Any]:
    """Returns the settings of a task: the experiment's on top of common ones, or of a preset."""
    own = experiment.layer.of(task)
    if profile in experiment.profiles:
        own |= experiment.profiles[profile].of(task)
    if preset := own.get(PRESET):
        return {**presets.resolve(preset, task), **own}
    return {**common.layer.of(task), **common.profile(profile).layer.of(task), **own}


def _find_peers(experiment: Experiment, chosen: Sequence[str] | None) -> list[Peer]:
    known = {peer.kind: peer for peer in experiment.peers}
    if chosen is None:
        return []
    for name in chosen:
        if name not in known:
            raise errors.UserError(
                f"{experiment.name} has no peer {name!r}: it has {', '.join(known) or 'none'}."
            )
    return [known[name] for name in dict.fromkeys(chosen)] or list(known.values())
