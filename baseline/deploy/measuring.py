"""Measures what `deploy_benchmark` shows: an agent's fp32 and integer files, side by side."""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import math
import pathlib
import statistics
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
from baseline.deploy import resident_memory
from baseline.deploy import run_policy
from baseline.formats import names as deploy_formats
from baseline.quantization import acting_path
from baseline.quantization import schemes
from baseline.study import intervals

FP32, QUANTIZED = "fp32", "quantized"
_ARM_STATES = 200  # At most.
_TINIEST = float(np.finfo(np.float32).tiny)
PAPER_BITS = 8
TINY = 8  # Inputs, units and outputs of what plays next to nothing.


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
      formats: of `deploy_formats.FORMATS`.
      bits: of the quantized files.
      scheme: of these; None: as suits the format.
      granularity: of these, "paper" or "channel".
      calibration_episodes: that find the ranges of activations.
      episodes: of the agent and of every quantized file.
      seed: of the starts.
      states: at most so many are compared.
      repeats: rounds of latencies.
      memory_turns: processes of each file whose memory is measured; 0: none.
      arm: a Python for ARM that plays the files, too; None: none does.
    """

    formats: tuple[str, ...] = ("onnx",)
    bits: int = 8
    scheme: str | None = None
    granularity: str = schemes.PAPER
    calibration_episodes: int = calibration.EPISODES
    episodes: int = 1000
    seed: int = 0
    states: int = 2000
    repeats: int = 7
    memory_turns: int = 3
    arm: aarch64.Python | None = None

    def of_file(self, file_format: str, name: str) -> exporting.Settings:
        """Returns how a file is exported.

        Args:
          file_format: one of `formats`.
          name: FP32 or QUANTIZED.

        Raises:
          errors.UserError: there is no such file.
        """
        bits, scheme = (32, None) if name == FP32 else (self.bits, self.scheme)
        return exporting.Settings(
            file_format, bits, deploy_formats.scheme(file_format, bits, scheme), self.granularity,
            self.calibration_episodes, self.seed,
        )


class OnArm(NamedTuple):
    """How far a file computes on ARM what it computes here.

    Attributes:
      alike: agreement of the actions.
      largest_output: largest deviation of one of the last layer's outputs, as a share of their
        range over all states.
    """

    alike: agreement.Agreement
    largest_output: float


@dataclasses.dataclass
class File:
    """One file's figures.

    Attributes:
      file_bytes: its size.
      alike: agreement with the agent in the states that it visits.
      seconds: for one observation, a figure for every round.
      resident_bytes: beyond those of the runtime; None: not measured.
      arm: what the runtime's build for ARM makes of it; None: not checked, or it cannot play it.
      arm_failure: why it cannot; empty: it can, or was not asked.
    """

    file_bytes: int
    alike: agreement.Agreement
    seconds: list[float] = dataclasses.field(default_factory=list)
    resident_bytes: int | None = None
    arm: OnArm | None = None
    arm_failure: str = ""

    @property
    def median_s(self) -> float:
        """Returns the median of the rounds."""
        return statistics.median(self.seconds)


@dataclasses.dataclass
class Measured:
    """What an agent comes to.

    Attributes:
      layers: units of the hidden layers.
      files: format and FP32 or QUANTIZED to figures.
      episodes: FP32 (the agent itself) and formats (their quantized file) to episodes, in pairs.
    """

    layers: tuple[int, ...]
    files: dict[tuple[str, str], File]
    episodes: dict[str, list[evaluation.Episode]]

    def success(self, side: str) -> float | None:
        """Returns a side's share of successful episodes; None where there is no success."""
        successes = [episode.success for episode in self.episodes[side]]
        return None if None in successes else float(np.mean(successes))

    def change(self, file_format: str) -> intervals.Interval:
        """Returns by how much a quantized file changes what episodes come to, and its interval.

        That is the success rate, or the mean return where there is no success.

        Args:
          file_format: of the file.
        """
        figure = "episode_return" if self.success(FP32) is None else "success"
        before, after = (
            np.array([getattr(episode, figure) for episode in self.episodes[side]], np.float64)
            for side in (FP32, file_format)
        )
        return intervals.mean(after - before)


def check(agent: agent_lib.Agent) -> None:
    """Checks that an agent has an fp32 form for devices, with which others are compared.

    Raises:
      errors.UserError: it is quantized, or there is no such form.
    """
    actorq.native_network(agent)
    if agent.quantization is not None:
        raise errors.UserError(
            f"{agent.path} is quantized already: name the agent that it was made from."
        )


def measure(agent: agent_lib.Agent, settings: Settings) -> Measured:
    """Measures an agent's fp32 and quantized files of every format.

    Raises:
      errors.UserError: the agent is quantized already, or has no such file.
    """
    check(agent)
    how = {
        (file_format, name): settings.of_file(file_format, name)
        for file_format in settings.formats for name in (FP32, QUANTIZED)
    }
    network = actorq.native_network(agent)
    tell = f"{agent.algo} {agent.env_id} {'-'.join(map(str, hidden_layers(network)))}"
    timing.progress(f"{tell}: calibrates, exports and collects states")
    ranges = None
    if any(each.calibrates for each in how.values()):
        ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    states = agreement.visited_states(
        agent.make_env, agent.act, 20, settings.seed, settings.states
    )
    acted = acting_path.to_actions(
        network, acting_path.forward(network, agent.normalize(states)).numpy()
    )

    def alike(expected: np.ndarray, actions: np.ndarray) -> agreement.Agreement:
        return agreement.compare(expected, actions, network.low, network.high)

    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = {key: _write(folder, key, exporting.export(agent, how[key], ranges)) for key in how}
        policies = {key: run_policy.Policy(path) for key, path in paths.items()}
        actions = {key: exporting.one_by_one(policies[key])(states) for key in how}
        files = {
            key: File(paths[key].stat().st_size, alike(acted, actions[key])) for key in how
        }
        observation = states[0]
        calls = {key: lambda policy=policy: policy(observation) for key, policy in policies.items()}
        for key, seconds in timing.latencies(calls, settings.repeats).items():
            files[key].seconds = seconds
        if settings.memory_turns:
            timing.progress(f"{tell}: memory")
            for key, path in paths.items():
                empty = _write(folder, (*key, "empty"), empty_file(how[key]))
                files[key].resident_bytes = resident_memory.of_policy(
                    path, empty, settings.memory_turns
                )
        if settings.arm:
            for key, path in paths.items():
                timing.progress(f"{tell}: {' '.join(key)} under {settings.arm.command[0]}")
                try:
                    files[key].arm = _on_arm(settings.arm, path, policies[key], states, alike)
                except errors.UserError as error:  # The other figures are worth having.
                    files[key].arm_failure = str(error)
                    timing.progress(f"{tell}: {error}")
        episodes = {FP32: _play(agent, agent.act, settings, f"{tell}: fp32")}
        for file_format in settings.formats:
            act = actorq.act_in_task(
                agent, exporting.one_by_one(policies[file_format, QUANTIZED])
            )
            episodes[file_format] = _play(agent, act, settings, f"{tell}: {file_format}")
    return Measured(hidden_layers(network), files, episodes)


def _on_arm(
    arm: aarch64.Python,
    path: pathlib.Path,
    policy: run_policy.Policy,
    states: np.ndarray,
    alike: Callable[[np.ndarray, np.ndarray], agreement.Agreement],
) -> OnArm:
    """Compares a file's actions and outputs there with those here.

    Raises:
      errors.UserError: it cannot be played there.
    """
    states = states[:: math.ceil(len(states) / _ARM_STATES)]  # An emulator is slow.
    here, there = {}, {}
    for name in ("action", "output"):
        here[name] = exporting.one_by_one(policy, name)(states)
        there[name] = aarch64.play(arm.command, path, states, name).astype(here[name].dtype)
    deviation = np.abs(here["output"] - there["output"]).max()
    return OnArm(
        alike(here["action"], there["action"]),
        float(deviation / max(np.ptp(here["output"]), _TINIEST)),
    )


def hidden_layers(network: acting_path.PolicyNetwork) -> tuple[int, ...]:
    """Returns the units (of convolutions: the filters) of all layers but the last."""
    return tuple(module.weight.shape[0] for _, module in network.with_weights()[:-1])


def empty_file(settings: exporting.Settings) -> bytes:
    """Returns a file of the same kind whose policy is next to nothing.

    What it takes of the memory is the runtime's: code, the kernels that are in use, an
    interpreter.
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
    return exporting.export_network(network, settings, ranges)


def _write(folder: pathlib.Path, key: Sequence[str], content: bytes) -> pathlib.Path:
    path = folder / f"{'_'.join(key)}{deploy_formats.ENDINGS[key[0]]}"
    path.write_bytes(content)
    return path


def _play(
    agent: agent_lib.Agent, act: evaluation.Act, settings: Settings, tell: str
) -> list[evaluation.Episode]:
    timing.progress(f"{tell} plays {settings.episodes} episodes")
    return evaluation.evaluate(agent.make_env, act, settings.episodes, settings.seed)
