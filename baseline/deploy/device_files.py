"""Measures an agent's fp32 and integer files side by side: what `deploy_benchmark` shows."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.core import timing
from baseline.agents import actorq
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.deploy import aarch64
from baseline.deploy import exporting
from baseline.deploy import measuring
from baseline.deploy import memory
from baseline.deploy import players
from baseline.formats import names
from baseline.quantization import acting_path
from baseline.study import intervals

FP32, QUANTIZED = "fp32", "quantized"
ALIKE = "alike"  # The comparison with the agent; this name is a key of the JSON file.
TINY = 8  # Inputs, units and outputs of the policy that takes next to no memory.
_MOST_ARM_STATES = 200
_TINIEST = float(np.finfo(np.float32).tiny)

Key = tuple[str, str]  # A format, and FP32 or QUANTIZED.
Compare = Callable[[np.ndarray, np.ndarray], agreement.Agreement]


@dataclasses.dataclass(frozen=True)
class Settings(measuring.Settings):
    """Says how much is measured, and of which files.

    Attributes:
      formats: Formats of `names.FORMATS`.
      bits: Bits of the quantized files.
      scheme: Tensors that they quantize; None: the format's own choice.
      memory_turns: Processes of each file whose memory is measured; 0: none.
      arm: A Python for ARM that plays the files as well, or None.
      kernels: Kernels that TFLite files are for, one of `names.KERNELS`.
    """

    episodes: int = 1000
    states: int = 2000
    formats: tuple[str, ...] = ("onnx",)
    bits: int = 8
    scheme: str | None = None
    memory_turns: int = 3
    arm: aarch64.Python | None = None
    kernels: str = names.EXACT

    def of_file(self, file_format: str, name: str) -> exporting.Settings:
        """Returns how a file is exported.

        Args:
          file_format: One of `formats`.
          name: FP32 or QUANTIZED.

        Raises:
          errors.UserError: There is no such file.
        """
        bits, scheme = (32, None) if name == FP32 else (self.bits, self.scheme)
        return exporting.Settings(
            file_format, bits, names.scheme(file_format, bits, scheme),
            names.granularity(file_format, self.granularity), self.calibration_episodes, self.seed,
            names.EXACT if name == FP32 else self.kernels,
        )


class OnArm(NamedTuple):
    """Tells how far a file computes on ARM what it computes here.

    Attributes:
      alike: Agreement of the actions.
      largest_output: Largest deviation of one of the last layer's outputs, as a share of their
        range over all states.
    """

    alike: agreement.Agreement
    largest_output: float


@dataclasses.dataclass
class File(measuring.Form):
    """A file, and its figures on a device.

    Attributes:
      resident_bytes: Memory beyond that of the runtime; None: not measured.
      all_pages_bytes: The same with pages of programs and libraries; None: not measured.
      call_s: Median latency of a policy of TINY units in the same runtime, which is the cost of a
        call; None: not measured.
      arm: The comparison with the runtime's build for ARM; None: not checked, or it failed.
      arm_failure: Why that build cannot play the file; empty: it can, or was not asked.
    """

    resident_bytes: int | None = None
    all_pages_bytes: int | None = None
    call_s: float | None = None
    arm: OnArm | None = None
    arm_failure: str = ""


@dataclasses.dataclass
class Measured:
    """An agent's figures.

    Attributes:
      layers: Units of the hidden layers.
      files: Its files by format and FP32 or QUANTIZED.
      episodes: Paired episodes of FP32, the agent itself, and of each format's quantized file.
    """

    layers: tuple[int, ...]
    files: dict[Key, File]
    episodes: dict[str, list[evaluation.Episode]]

    def success(self, side: str) -> float | None:
        """Returns a side's share of successful episodes; None where there is no success."""
        successes = [episode.success for episode in self.episodes[side]]
        known = [success for success in successes if success is not None]
        return float(np.mean(known)) if len(known) == len(successes) else None

    def change(self, file_format: str) -> intervals.Interval:
        """Returns by how much a quantized file changes the episodes' figure, and its interval.

        The figure is the success rate, or the mean return where there is no success.

        Args:
          file_format: The file's format.
        """
        figure = "episode_return" if self.success(FP32) is None else "success"
        before, after = (
            np.array([getattr(episode, figure) for episode in self.episodes[side]], np.float64)
            for side in (FP32, file_format)
        )
        return intervals.mean((after - before).tolist())


def check(agent: agent_lib.Agent) -> None:
    """Checks that an agent has an fp32 form for devices, with which others are compared.

    Raises:
      errors.UserError: It is quantized, or there is no such form.
    """
    actorq.native_network(agent)
    measuring.check_unquantized(agent)


def measure(agent: agent_lib.Agent, settings: Settings) -> Measured:
    """Measures an agent's fp32 and quantized files of every format.

    Raises:
      errors.UserError: The agent is quantized already, or has no such file.
    """
    check(agent)
    how = {
        (file_format, name): settings.of_file(file_format, name)
        for file_format in settings.formats for name in (FP32, QUANTIZED)
    }
    network = actorq.native_network(agent)
    layers = hidden_layers(network)
    tell = f"{agent.algo} {agent.env_id} {'-'.join(map(str, layers))}"
    timing.progress(f"{tell}: calibrates, exports and collects states")
    ranges = None
    if any(each.calibrates for each in how.values()):
        ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    states = agreement.visited_states(agent.make_env, agent.act, 20, settings.seed, settings.states)
    acted = exporting.acting_in_task(agent)(states)

    def compare(expected: np.ndarray, actions: np.ndarray) -> agreement.Agreement:
        return agreement.compare(expected, actions, network.low, network.high)

    files = {}
    for key, each in how.items():
        content = exporting.export(agent, each, ranges)
        file = files[key] = File(exporting.load_file(content, each.format), content)
        file.agreements[ALIKE] = compare(acted, exporting.one_by_one(file.act)(states))
    empties = {key: empty_file(each) for key, each in how.items()}
    _measure_latencies(files, empties, states[0], settings.repeats)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for key, file in files.items():
            path = _write(folder, key, file.content)
            if settings.memory_turns:
                timing.progress(f"{tell}: memory of {' '.join(key)}")
                empty = _write(folder, (*key, "empty"), empties[key])
                file.resident_bytes, file.all_pages_bytes = memory.of_policy(
                    path, empty, settings.memory_turns
                )
            if settings.arm is not None:
                timing.progress(f"{tell}: {' '.join(key)} under {settings.arm.command[0]}")
                try:
                    file.arm = _on_arm(settings.arm, path, file, states, compare)
                except errors.UserError as error:  # The other figures are worth having.
                    file.arm_failure = str(error)
                    timing.progress(f"{tell}: {error}")
    acts: dict[str, evaluation.Act] = {FP32: agent.act}
    for file_format in settings.formats:
        act = exporting.one_by_one(files[file_format, QUANTIZED].act)
        acts[file_format] = actorq.act_in_task(agent, act)
    return Measured(layers, files, dict(measuring.play(agent, acts, settings)))


def _measure_latencies(
    files: Mapping[Key, File], empties: Mapping[Key, bytes], observation: np.ndarray, repeats: int
) -> None:
    """Measures the latency of files, and in turn with them the cost of a call of their runtimes."""
    forms: dict[tuple[str, ...], measuring.Form] = {}
    observations: dict[tuple[str, ...], np.ndarray] = {}
    for key, file in files.items():
        call = (*key, "call")
        forms[key], observations[key] = file, observation
        forms[call] = measuring.Form(exporting.load_file(empties[key], key[0]))
        observations[call] = np.zeros(TINY, np.float32)
    measuring.measure_latencies(forms, observations, repeats)
    for key, file in files.items():
        file.call_s = forms[(*key, "call")].median_s


def _on_arm(
    arm: aarch64.Python,
    path: pathlib.Path,
    file: File,
    states: np.ndarray,
    compare: Compare,
) -> OnArm:
    """Compares a file's actions and outputs there with those here."""
    states = states[:: math.ceil(len(states) / _MOST_ARM_STATES)]  # An emulator is slow.
    here, there = {}, {}
    for name in (names.ACTION, names.OUTPUT):
        here[name] = exporting.one_by_one(file.act, name)(states)
        there[name] = aarch64.play(arm.command, path, states, name).astype(here[name].dtype)
    outputs = here[names.OUTPUT]
    deviation = np.abs(outputs - there[names.OUTPUT]).max()
    return OnArm(
        compare(here[names.ACTION], there[names.ACTION]),
        float(deviation / max(np.ptp(outputs), _TINIEST)),
    )


def hidden_layers(network: acting_path.PolicyNetwork) -> tuple[int, ...]:
    """Returns the units (of convolutions: the filters) of all layers but the last."""
    return tuple(len(module.weight) for _, module in network.with_weights()[:-1])


def empty_file(settings: exporting.Settings) -> bytes:
    """Returns a file of the same kind whose policy is next to nothing.

    The memory that it takes is the runtime's: code, the kernels that are in use, an interpreter.
    """
    generator = torch.Generator().manual_seed(0)
    layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
    for index in range(2):
        linear = nn.Linear(TINY, TINY)
        with torch.no_grad():
            linear.weight.copy_(torch.randn(TINY, TINY, generator=generator))
        layers += [(f"layer_{index}", linear), (f"tanh_{index}", nn.Tanh())]
    network = acting_path.PolicyNetwork(tuple(layers[:-1]), "argmax")
    ranges = None
    if settings.calibrates:
        ranges = {name: (-1.0, 1.0) for name, _ in network.with_weights()}
    if settings.micro:
        ranges = {**(ranges or {}), acting_path.OUTPUT: (-1.0, 1.0)}
    return exporting.export_network(network, settings, ranges)


def _write(folder: pathlib.Path, key: Sequence[str], content: bytes) -> pathlib.Path:
    path = folder / f"{'_'.join(key)}{names.ENDINGS[key[0]]}"
    path.write_bytes(content)
    players.place(key[0], folder)  # A player may have to be compiled there.
    return path
