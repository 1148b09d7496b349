"""Measures an agent's C files on Cortex-M processors: what `cortex_benchmark` shows."""

from collections.abc import Iterator
import dataclasses
import pathlib
import statistics
import tempfile
from typing import NamedTuple

import numpy as np

from actorQ.core import errors
from actorQ.core import timing
from baseline.agents import actorq
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.deploy import c_files
from baseline.deploy import c_player
from baseline.deploy import cmsis_nn
from baseline.deploy import device_files
from baseline.deploy import exporting
from baseline.deploy import firmware
from baseline.deploy import micro_player
from baseline.formats import c_header
from baseline.formats import integer_form
from baseline.formats import names
from baseline.quantization import schemes

_BATCH = 500  # States that the numpy form computes at once.
_EPISODES = 100  # Episodes of a series; more series follow until there are enough states.
_ROUNDS = 7  # In which this machine's times are measured.
_INTERPRETED_STATES = 20_000  # Large policies take milliseconds in the interpreter.
_TRIAL_STATES = 2
_TRIAL_INSTRUCTIONS = 200_000_000  # No policy that fits into the boards' memory takes more.
CMSIS = "CMSIS-NN"
MICRO = "TFLite Micro"


class Width(NamedTuple):
    """Bits of the weights, and whether the file has floats: one of `names.FLOATS`."""

    bits: int
    floats: str = names.HARD

    def __str__(self) -> str:
        return f"{self.bits} bits" + (", no floats" if self.floats == names.NONE else "")


_COMMON = Width(8)  # Others' kernels have this width.


class Interpreted(NamedTuple):
    """Compares TensorFlow Lite Micro's interpreter with the file in C, on this machine.

    Attributes:
      c_s: Seconds of an action of the C file, the median of the rounds.
      micro_s: The same of the interpreter, in turns with the C file.
      micro_bytes: Size of the interpreter's file.
      micro_alike: Share of evenly chosen states, at most 20,000, with the agent's action.
    """

    c_s: float
    micro_s: float
    micro_bytes: int
    micro_alike: float


@dataclasses.dataclass(frozen=True)
class Settings:
    """Says how much is measured.

    Attributes:
      widths: Widths of the files.
      cores: Processors.
      states: Visited states in which actions are compared.
      episodes: Episodes that give these states, at most. Fewer states are compared after these.
      instructions: Instructions that are emulated of each file on each processor, about.
      granularity: Granularity of linear layers' weights.
      calibration_episodes: Episodes that find the ranges of activations.
      seed: Seed of the starts.
      cmsis_nn: Folder of CMSIS-NN's sources, or None.
    """

    widths: tuple[Width, ...]
    cores: tuple[firmware.Core, ...]
    states: int = 100_000
    episodes: int = 10_000
    instructions: int = 2_000_000_000
    granularity: str = schemes.PAPER
    calibration_episodes: int = calibration.EPISODES
    seed: int = 0
    cmsis_nn: str | None = None

    def of_file(self, width: Width) -> exporting.Settings:
        """Returns how a file is exported."""
        return exporting.Settings(
            "c", width.bits, names.scheme("c", width.bits, None), self.granularity,
            self.calibration_episodes, self.seed, c=c_files.Options(width.floats),
        )


@dataclasses.dataclass(frozen=True)
class Row:
    """The figures of one file on one processor.

    Attributes:
      agent: Algorithm and task.
      layers: Units of the hidden layers, "64-64-64".
      bits: Bits of the weights.
      floats: One of `names.FLOATS`.
      core: Name of the processor.
      flash_bytes: Code and constants of the policy.
      ram_bytes: Its static buffers.
      stack_bytes: Stack of an action; None: the file does not fit into the board's memory.
      instructions: Instructions of an action on average; None likewise.
      states: Number of states that the file played on this machine.
      alike: Share of these with the agent's action.
      exact: Share of these with the bits of the numpy form's action; None for weights of floats.
      core_states: Number of states that the emulated processor played.
      core_equal: Share of these with the bits of the same file's actions on this machine.
      cmsis_instructions: Instructions of CMSIS-NN's kernel for layers of the same sizes.
      interpreted: The figures beside TensorFlow Lite Micro's interpreter; None: not measured.
    """

    agent: str
    layers: str
    bits: int
    floats: str
    core: str
    flash_bytes: int
    ram_bytes: int
    stack_bytes: int | None
    instructions: float | None
    states: int
    alike: float
    exact: float | None
    core_states: int
    core_equal: float | None
    cmsis_instructions: float | None
    interpreted: Interpreted | None


def measure(agent: agent_lib.Agent, settings: Settings) -> Iterator[Row]:
    """Yields the figures of an agent's C files, of every width on every processor.

    Raises:
      errors.UserError: The agent is quantized already or has no such file, or a tool is missing.
    """
    device_files.check(agent)
    tell = f"{agent.algo} {agent.env_id}"
    timing.progress(f"{tell}: calibrates, and collects states")
    states = _visited(agent, settings)
    acted = exporting.acting_in_task(agent)(states)
    ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    compared = {
        core.name: _cmsis_instructions(agent, core, settings) for core in settings.cores
    }
    for width in settings.widths:
        timing.progress(f"{tell}: {width}, {len(states)} states")
        how = settings.of_file(width)
        content = exporting.export(agent, how, ranges)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / c_header.SOURCE).write_bytes(content)
            (folder / c_header.HEADER).write_text(c_header.header(content.decode()))
            file = _File(agent, how, ranges, folder, states, acted)
            common = width == _COMMON
            interpreted = file.interpreted() if common else None
            for core in settings.cores:
                timing.progress(f"{tell}: {width} on {core.name}")
                cmsis = compared[core.name] if common else None
                yield file.on(core, width, settings, cmsis, interpreted)


def _visited(agent: agent_lib.Agent, settings: Settings) -> np.ndarray:
    """Returns the first states [N, ...] that an agent visits."""
    found: list[np.ndarray] = []
    count = played = 0
    while count < settings.states and played < settings.episodes:
        episodes = min(_EPISODES, settings.episodes - played)
        seed = settings.seed + len(found)
        more = agreement.visited_states(
            agent.make_env, agent.act, episodes, seed, settings.states
        )
        found.append(more[: settings.states - count])
        count, played = count + len(found[-1]), played + episodes
    return np.concatenate(found)


class _File:
    """An agent's file, and what it did on this machine."""

    def __init__(
        self, agent: agent_lib.Agent, how: exporting.Settings, ranges: schemes.Ranges,
        folder: pathlib.Path, states: np.ndarray, acted: np.ndarray,
    ):
        self._agent = agent
        self._how = how
        self._folder = folder
        self._states = states
        self._acted = acted
        self._ranges = ranges
        network = actorq.native_network(agent)
        self._player = c_player.Policy(folder / c_header.SOURCE)
        actions, raw = [], []
        for state in states:
            actions.append(self._player(state))
            raw.append(self._player.action.copy())
        self._raw = np.stack(raw)
        found = np.stack(actions)
        self._alike = agreement.compare(acted, found, network.low, network.high).alike
        self._exact = None
        if how.bits <= integer_form.INPUT_BITS and how.c.floats == names.HARD:
            form = integer_form.make(
                network, how.bits, ranges if how.calibrates else None, how.granularity,
                agent.normalization, image_size=agent.image_size(),
            )
            expected = np.concatenate([
                integer_form.actions(
                    form, integer_form.outputs(form, states[start : start + _BATCH])
                )
                for start in range(0, len(states), _BATCH)
            ])
            equal = (expected == found).reshape(len(states), -1)
            self._exact = float(equal.all(axis=1).mean())

    def interpreted(self) -> Interpreted | None:
        """Returns the figures beside TensorFlow Lite Micro's interpreter; None: there are none."""
        tell = f"{self._agent.algo} {self._agent.env_id}: {MICRO}"
        if not micro_player.is_installed():
            timing.progress(f"{tell}: is not installed, so that it is not compared")
            return None
        timing.progress(tell)
        how = dataclasses.replace(
            self._how, format="tflite", kernels=names.MICRO,
            scheme=names.scheme("tflite", self._how.bits, None),
        )
        try:
            content = exporting.export(self._agent, how, self._ranges)
        except errors.UserError as error:
            timing.progress(f"{tell}: {error}")
            return None
        policy = micro_player.Policy(content)
        network = actorq.native_network(self._agent)
        some = slice(None, None, -(-len(self._states) // _INTERPRETED_STATES))
        found = exporting.one_by_one(policy)(self._states[some])
        alike = agreement.compare(self._acted[some], found, network.low, network.high).alike
        self._player(self._states[some][-1])  # Both repeat the last state.
        times = timing.latencies({"c": self._player.run, "micro": policy.run}, _ROUNDS)
        c_s, micro_s = (statistics.median(times[name]) for name in ("c", "micro"))
        return Interpreted(c_s, micro_s, len(content), alike)

    def on(
        self, core: firmware.Core, width: Width, settings: Settings, cmsis: float | None,
        interpreted: Interpreted | None,
    ) -> Row:
        """Returns the figures on a processor."""
        size = firmware.size(self._folder, core)
        stack = instructions = equal = None
        played = 0
        if firmware.fits(size):
            dtype, num_actions = self._raw.dtype, self._raw.shape[1]

            def play(count: int, expected: int) -> firmware.Played:
                states = self._player.encode(self._states[:count].reshape(count, -1))
                return firmware.play(self._folder, core, states, dtype, num_actions, expected)

            trial = play(min(_TRIAL_STATES, len(self._states)), _TRIAL_INSTRUCTIONS)
            most = max(2, int(settings.instructions / trial.instructions))
            played = min(len(self._states), most)
            done = play(played, 2 * int(trial.instructions) + 1)
            stack, instructions = done.stack, done.instructions
            equal = float((done.actions == self._raw[:played]).all(axis=1).mean())
        return Row(
            f"{self._agent.algo} {self._agent.env_id}",
            "-".join(map(str, device_files.hidden_layers(actorq.native_network(self._agent)))),
            width.bits, width.floats, core.name, size.flash, size.ram, stack, instructions,
            len(self._states), self._alike, self._exact, played, equal, cmsis, interpreted,
        )


def _cmsis_instructions(
    agent: agent_lib.Agent, core: firmware.Core, settings: Settings
) -> float | None:
    """Returns the instructions of CMSIS-NN's kernel for an agent's layers; None: not asked for."""
    layers = [module for _, module in actorq.native_network(agent).with_weights()]
    sizes = [layers[0].weight.shape[1], *(len(module.weight) for module in layers)]
    if settings.cmsis_nn is None or any(module.weight.ndim != 2 for module in layers):
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cmsis_nn.write(sizes, folder)
        others = cmsis_nn.sources(settings.cmsis_nn)
        states = np.zeros((_TRIAL_STATES, sizes[0]), np.int8)
        try:
            return firmware.play(
                folder, core, states, np.dtype(np.int8), sizes[-1], _TRIAL_INSTRUCTIONS, others
            ).instructions
        except errors.UserError as error:
            timing.progress(f"{CMSIS} on {core.name}: {error}")
            return None
