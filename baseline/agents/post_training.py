"""Quantizes an agent by a method that calibrates, on states that the agent itself visits."""

import copy
import dataclasses
import functools
import statistics
from typing import NamedTuple
from typing import TypeVar

import numpy as np

from actorQ.core import seeding
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.quantization import acting_path
from baseline.quantization import recipes
from baseline.quantization import schemes
from baseline.quantization.methods import distill
from baseline.quantization.methods import pipeline

STATES = 4096  # Default: calibration states, at most.
EPISODES = 20  # Episodes that they come from.
PLAYED = 40  # Episodes of a student in each round of `distill`, whose mean return decides.
AgentT = TypeVar("AgentT", bound=agent_lib.Agent)


class States(NamedTuple):
    """Normalized observations that the agent meets in full precision.

    Attributes:
      calibration: States that methods calibrate with, [N, ...].
      held_out: States of other episodes, which tell how far actions agree, [M, ...].
    """

    calibration: np.ndarray
    held_out: np.ndarray


@dataclasses.dataclass(frozen=True)
class Settings:
    """Says what agents are calibrated with.

    Attributes:
      states: Calibration states, at most, evenly thinned from `EPISODES` episodes.
      range_episodes: Episodes that find the ranges of activations.
      input_bits: Bits of observations, where activations are quantized; None: the scheme's.
      output: Whether the last output is quantized with the activations.
      seed: Seed of the starts.
    """

    states: int = STATES
    range_episodes: int = calibration.EPISODES
    input_bits: int | None = None
    output: bool = False
    seed: int = 0


class Outcome(NamedTuple):
    """Says what a quantization came to.

    Attributes:
      num_bytes: Bytes of the acting path's parameters.
      method: The method, which `auto` has chosen or the scheme names.
      agreement: Actions beside full precision's in the held-out states.
      tried: What `auto` compared, by method; else empty.
    """

    num_bytes: int
    method: str
    agreement: agreement.Agreement
    tried: dict[str, agreement.Agreement]


def collect(agent: agent_lib.Agent, settings: Settings) -> States:
    """Plays an agent in full precision; no start is that of an evaluation."""
    return States(*(
        agent.normalize(
            agreement.visited_states(
                agent.make_env, agent.act, EPISODES, seeding.derive(settings.seed, stream),
                settings.states,
            )
        )
        for stream in ("calibration states", "held-out states")
    ))


def quantize(
    agent: agent_lib.Agent, scheme: schemes.Scheme, settings: Settings, states: States
) -> Outcome:
    """Quantizes an agent in place, and notes how.

    Args:
      agent: The agent, in full precision.
      scheme: A scheme that calibrates.
      settings: What it is calibrated with.
      states: What `collect` returned for this agent.

    Raises:
      errors.UserError: The method does not fit the network.
    """
    reference = _actions(agent, states.held_out)
    tried: dict[str, agreement.Agreement] = {}
    if scheme.method == recipes.AUTO:
        for method in candidates(scheme):
            copied = _copied(agent)
            _quantize(copied, dataclasses.replace(scheme, method=method), settings, states)
            tried[method] = _compared(copied, reference, states)
        scheme = dataclasses.replace(scheme, method=best(tried))
    num_bytes = _quantize(agent, scheme, settings, states)
    return Outcome(num_bytes, scheme.method, _compared(agent, reference, states), tried)


def candidates(scheme: schemes.Scheme) -> list[str]:
    """Returns the methods that `auto` compares: integers of activations need whole bases."""
    return [
        method for method in recipes.CANDIDATES
        if not scheme.activations or recipes.recipe(method).transform is None
    ]


def best(tried: dict[str, agreement.Agreement]) -> str:
    """Returns the method whose actions are closest to full precision's; of equals the first.

    Discrete actions are compared by the share of equal ones, continuous ones by their mean
    deviation: below 8 bits, few deviations are within a fixed tolerance.
    """

    def closeness(method: str) -> float:
        found = tried[method]
        return found.alike if found.mean is None else -found.mean

    return max(tried, key=closeness)


def _quantize(
    agent: agent_lib.Agent, scheme: schemes.Scheme, settings: Settings, states: States
) -> int:
    bases = pipeline.transform(agent.network, scheme, states.calibration)
    ranges, tap = None, None
    if scheme.activations:
        ranges = _ranges(agent, scheme, settings, states)
        tap = schemes.ActivationQuantizer(scheme, ranges)
    play = functools.partial(_play, dataclasses.replace(agent, tap=tap), settings)
    made = pipeline.quantize(agent.network, scheme, states.calibration, bases, tap, play)
    agent.note_quantization(scheme, ranges, made.weight_ranges)
    return made.num_bytes


def _play(agent: agent_lib.Agent, settings: Settings) -> distill.Played:
    """Plays an agent as it is now; no start is that of an evaluation or of the states above."""
    seed = seeding.derive(settings.seed, "distillation")
    states, episodes = agreement.play(agent.make_env, agent.act, PLAYED, seed, settings.states)
    return distill.Played(
        agent.normalize(states), statistics.mean(one.episode_return for one in episodes)
    )


def _ranges(
    agent: agent_lib.Agent, scheme: schemes.Scheme, settings: Settings, states: States
) -> schemes.Ranges:
    """Returns the ranges of activations: the method's, and else the extremes of whole episodes."""
    found = dict(
        calibration.ranges(
            agent, settings.range_episodes, settings.seed, settings.input_bits, settings.output
        )
    )
    if recipes.recipe(scheme.method).ranges in (recipes.MSE, recipes.PERCENTILE):
        chosen = pipeline.activation_ranges(agent.network, scheme, states.calibration)
        found |= {name: (*ends, *found[name][2:]) for name, ends in chosen.items()}
    return found


def _copied(agent: AgentT) -> AgentT:
    """Returns an agent with layers of its own."""
    layers = copy.deepcopy(agent.network.layers)
    return dataclasses.replace(agent, network=agent.network._replace(layers=layers))


def _actions(agent: agent_lib.Agent, states: np.ndarray) -> np.ndarray:
    outputs = acting_path.forward(agent.network, states, agent.tap).numpy()
    return acting_path.to_actions(agent.network, outputs)


def _compared(
    agent: agent_lib.Agent, reference: np.ndarray, states: States
) -> agreement.Agreement:
    actions = _actions(agent, states.held_out)
    return agreement.compare(reference, actions, agent.network.low, agent.network.high)
