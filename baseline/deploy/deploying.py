"""Exports an agent, checks its file, and finds what acts more like it: what `deploy` does."""

from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import pathlib
import re
import shlex
import statistics
from typing import NamedTuple

from absl import logging
import numpy as np

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import timing
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.deploy import c_files
from baseline.deploy import c_player
from baseline.deploy import export_flags
from baseline.deploy import exporting
from baseline.deploy import players
from baseline.formats import names
from baseline.quantization import names as quantization_names

DEFAULT_OUT = "logs/deploy"
LOW_SHARE = 0.95  # A file that acts less often as its agent does gets a warning.
_FLOATS = 16  # Width of the smallest file that computes with floats.
_SLOWER = 1.05  # Latencies that differ by less are alike.
_ROUNDS = 5  # Rounds of latencies.
# The file is checked from other starts than those that chose its scheme.
_CHECKED, _CHOSEN = 1, 2


class Tried(NamedTuple):
    """A file that was made and played.

    Attributes:
      settings: Settings with which it was made.
      num_bytes: Its size.
      found: How far it acts as its agent does.
    """

    settings: exporting.Settings
    num_bytes: int
    found: agreement.Agreement


def deploy(
    agent: agent_lib.Agent, named: str, settings: exporting.Settings, folder: str | None,
    checks: bool,
) -> None:
    """Exports an agent, writes its file and the file's player, and says so.

    Args:
      agent: The agent.
      named: The agent as the user named it, with its flags, quoted for a shell.
      settings: How to export it.
      folder: Folder for the files; None: DEFAULT_OUT/ALGO_ENV.
      checks: Whether to play the file, and to print how far it acts as the agent does.

    Raises:
      errors.UserError: There is no such file, or it cannot be written.
    """
    content = exporting.export(agent, settings)
    # ActorQ's tasks have a comma, and those of one's own a colon.
    stem = re.sub(r"[^\w.-]", "-", f"{agent.algo}_{agent.env_id}")
    written = exporting.write(content, settings.format, folder or f"{DEFAULT_OUT}/{stem}")
    size = f"{settings.bits} bits, {_num_bytes(content, settings)} bytes"
    print(f"{written}: {agent.algo} {agent.env_id}, {size}")
    if agent.network.fields:
        print(f"Its observation is one vector of floats: {exporting.layout(agent.network.fields)}.")
    if checks and settings.format == "c" and not c_player.can_compile():
        print("The file was not checked, since there is no C compiler: install gcc, or set CC.")
        checks = False
    if checks:
        states = exporting.visited(agent, settings.seed + _CHECKED)
        found = exporting.compare(agent, content, settings.format, states)
        print(f"Acts as {agent.path} in {found.states} visited states: {found}")
        if settings.bits < 32 and found.alike < LOW_SHARE:
            _warn(agent, named, settings, found, states, folder)
        if settings.bits < 32 and agent.quantization is None:
            _say_if_slower(agent, content, settings, states[0])
    if settings.format == "c":
        parent = shlex.quote(str(written.parent))
        print(f"To try it: make -C {parent} && {parent}/example < OBSERVATIONS.txt")
        return
    player = pathlib.Path(str(players.of_format(settings.format).__file__)).name
    command = f"{output.python()} {shlex.quote(str(written.parent / player))}"
    print(f"To play it: {command} {shlex.quote(str(written))} [OBSERVATIONS.npy]")


def _num_bytes(content: bytes, settings: exporting.Settings) -> int:
    """Returns the size of a file; of a source in C, that of its arrays."""
    return c_files.flash_bytes(content) if settings.format == "c" else len(content)


def kernels_for(agent: agent_lib.Agent, settings: exporting.Settings, asked: str) -> str:
    """Returns the kernels that a TFLite file is for, and says why, where it is not for Micro.

    Args:
      agent: The agent.
      settings: Format and width.
      asked: One of `names.KERNELS`, or `export_flags.AUTO`.
    """
    if settings.format != "tflite":
        return names.EXACT
    if asked != export_flags.AUTO:
        return asked
    why = exporting.why_not_micro(agent, settings.bits)
    if why and settings.bits == names.MICRO_BITS:
        print(f"The file is for TFLite, and not for TensorFlow Lite Micro. {why}")
    return names.EXACT if why else names.MICRO


def choose(
    agent: agent_lib.Agent, settings: exporting.Settings, granularities: Sequence[str],
    kernels: Sequence[str] = names.KERNELS,
) -> exporting.Settings:
    """Returns the settings of equal format and width whose file acts most like the agent.

    The first of equals counts, which has the format's own scheme and one scale a layer.

    Args:
      agent: The agent.
      settings: Format and width, and how activations' ranges are found.
      granularities: The granularities to choose from.
      kernels: The kernels of TFLite files to choose from.

    Raises:
      errors.UserError: The agent is quantized already, or has no such file.
    """
    if agent.quantization is not None:
        raise errors.UserError(
            f"{agent.path} is quantized already, with ranges of its own: leave --scheme out."
        )
    if settings.bits >= _FLOATS:  # Floats have no scales.
        return settings
    states = exporting.visited(agent, settings.seed + _CHOSEN)
    tried = try_all(agent, _of_width(settings, settings.bits, granularities, kernels), states)
    if not tried:
        exporting.export(agent, settings)  # It tells why there is no such file.
    best = max(tried, key=lambda one: (one.found.alike, -(one.found.mean or 0.0)))
    _print(tried)
    print(f"Chosen: {_flags(best.settings)}")
    return best.settings


def try_all(
    agent: agent_lib.Agent, candidates: Iterable[exporting.Settings], states: np.ndarray
) -> list[Tried]:
    """Makes and plays files; those that an agent cannot have are left out.

    Args:
      agent: An agent in full precision.
      candidates: Settings of the files.
      states: Raw observations [N, ...] in which they act.
    """
    ranges, tried = None, []
    for settings in candidates:
        if settings.calibrates and ranges is None:
            ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
        with contextlib.suppress(errors.UserError):
            content = exporting.export(agent, settings, ranges if settings.calibrates else None)
            found = exporting.compare(agent, content, settings.format, states)
            tried.append(Tried(settings, _num_bytes(content, settings), found))
    return tried


def alternatives(settings: exporting.Settings) -> list[exporting.Settings]:
    """Returns what might act more like the agent: other schemes, then more bits.

    Args:
      settings: Settings of a file of less than 32 bits.
    """
    widths = sorted({settings.bits, 8}) if settings.bits < _FLOATS else []
    found = [
        one for bits in widths if bits >= settings.bits
        for one in _of_width(settings, bits, quantization_names.GRANULARITIES)
    ]
    able = settings.format if _FLOATS in names.WIDTHS[settings.format] else names.FORMATS[0]
    wide = dataclasses.replace(settings, format=able, c=c_files.Options())
    if settings.bits < _FLOATS:
        found += _of_width(wide, _FLOATS, (settings.granularity,))
    return [one for one in dict.fromkeys(found) if one != settings]


def _of_width(
    settings: exporting.Settings, bits: int, granularities: Sequence[str],
    kernels: Sequence[str] = names.KERNELS,
) -> list[exporting.Settings]:
    """Returns settings of every kind that files of a width can have, the given kernels first."""
    if settings.format != "tflite" or bits != names.MICRO_BITS:
        kernels = (names.EXACT,)
    found = [
        dataclasses.replace(
            settings, bits=bits, scheme=scheme, granularity=granularity, kernels=each
        )
        for each in sorted(kernels, key=lambda each: each != settings.kernels)
        for scheme in names.schemes(settings.format, bits)
        for granularity in dict.fromkeys(
            names.granularity(settings.format, asked) for asked in granularities
        )
    ]
    return list(dict.fromkeys(found))  # Micro has one granularity.


def _warn(
    agent: agent_lib.Agent, named: str, settings: exporting.Settings,
    found: agreement.Agreement, states: np.ndarray, folder: str | None,
) -> None:
    """Warns of a file that acts otherwise than its agent, and says what helps after trying it."""
    logging.warning(
        "The file acts otherwise than its agent in %.1f %% of the states: it may earn less.",
        100 * (1 - found.alike),
    )
    if agent.quantization is not None:  # Its integers and ranges are its own.
        return
    if settings.format != "c":  # Its action is the same, but the benchmark times no such files.
        print(f"To measure its return: {measurement(named, settings)}")
    tried = try_all(agent, alternatives(settings), states)
    _print(tried)
    enough = [one for one in tried if one.found.alike >= LOW_SHARE]
    if enough:
        best = min(enough, key=lambda one: one.num_bytes)
        out = f" --out {shlex.quote(folder)}" if folder else ""
        command = f"{output.python()} -m baseline.deploy {named}{out} {_flags(best.settings)}"
        print(f"The smallest with at least {100 * LOW_SHARE:g} %: {command}")
    else:
        print(
            f"Nothing that was tried acts as the agent in {100 * LOW_SHARE:g} %. A file of --bits "
            "32 does, and baseline.qat trains agents for few bits."
        )


def measurement(named: str, settings: exporting.Settings) -> str:
    """Returns the command that measures the return of a file.

    Args:
      named: The agent as the user named it, with its flags, quoted for a shell.
      settings: Settings with which the file was made, of less than 32 bits.
    """
    ours = exporting.Settings()
    flags = [f"--formats {settings.format}", f"--bits {settings.bits}"] + [
        f"--{name} {getattr(settings, name)}" for name in exporting.OF_FULL_PRECISION
        if getattr(settings, name) != getattr(ours, name)
        and not (name == "granularity" and len(names.granularities(settings.format)) == 1)
    ]
    if settings.micro:
        flags.append(f"--tflite_kernels {settings.kernels}")
    return " ".join([f"{output.python()} -m baseline.deploy_benchmark", named, *flags])


def _flags(settings: exporting.Settings) -> str:
    """Returns the flags of `deploy` that make a file."""
    ours = exporting.Settings()
    flags = [f"--format {settings.format}", f"--bits {settings.bits}"]
    if settings.bits < _FLOATS and len(names.schemes(settings.format, settings.bits)) > 1:
        flags.append(f"--scheme {settings.scheme}")
    if settings.format == "tflite" and settings.bits == names.MICRO_BITS:
        flags.append(f"--tflite_kernels {settings.kernels}")
    if settings.bits < _FLOATS and len(names.granularities(settings.format)) > 1:
        flags.append(f"--granularity {settings.granularity}")
    if settings.c.floats != ours.c.floats:
        flags.append(f"--float {settings.c.floats}")
    for name in ("calibration_episodes", "seed"):
        if getattr(settings, name) != getattr(ours, name):
            flags.append(f"--{name} {getattr(settings, name)}")
    return " ".join(flags)


def _print(tried: Sequence[Tried]) -> None:
    if tried:
        print(f"Tried in {tried[0].found.states} visited states:")
    for one in tried:
        print(f"  {_flags(one.settings)}: {one.found}, {one.num_bytes} bytes")


def _say_if_slower(
    agent: agent_lib.Agent, content: bytes, settings: exporting.Settings, observation: np.ndarray
) -> None:
    """Says so where a file takes longer for an action than that of 32 bits on this machine."""
    full = dataclasses.replace(
        settings, bits=32, scheme=names.scheme(settings.format, 32, None), c=c_files.Options()
    )
    try:
        other = exporting.load_file(exporting.export(agent, full), settings.format)
    except errors.UserError:  # TFLite has no convolutions in fp32 here.
        return
    own = exporting.load_file(content, settings.format)
    calls = {
        "own": functools.partial(own, observation), "full": functools.partial(other, observation)
    }
    seconds = timing.latencies(calls, _ROUNDS)
    ours, theirs = (1e6 * statistics.median(seconds[name]) for name in ("own", "full"))
    if ours > _SLOWER * theirs:
        print(
            f"An action takes {ours:.1f} µs on this machine, and {theirs:.1f} µs with --bits 32: "
            f"this network is too small to be faster with {settings.bits} bits."
        )
