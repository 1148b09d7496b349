"""Measures the forms of one agent side by side: size, latency, agreement and return.

A form is a way to compute the same policy: in torch, or a file that a player plays. Two
modules compare forms with it: `device_files` for `deploy_benchmark`, and `integer_forms` for
`integer_benchmark` and `qat_integer`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import statistics
from typing import Any

import numpy as np

from actorQ.core import errors
from actorQ.core import timing
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.deploy import exporting
from baseline.quantization import schemes

_CALLS = 1000  # Calls of every round, at least: a percentile needs many.


@dataclasses.dataclass(frozen=True)
class Settings:
    """Says how much is measured.

    Attributes:
      granularity: Granularity of linear layers' weights: "paper" or "channel".
      calibration_episodes: Episodes that find the ranges of activations.
      episodes: Episodes that each form plays.
      seed: Seed of the environments.
      states: States to compare at most.
      repeats: Rounds of latencies.
    """

    granularity: str = schemes.PAPER
    calibration_episodes: int = calibration.EPISODES
    episodes: int = 10
    seed: int = 0
    states: int = 5000
    repeats: int = 7


@dataclasses.dataclass
class Form:
    """One form of a policy, and its figures.

    Attributes:
      act: One observation to its action.
      content: Its file; empty for torch.
      agreements: How far it acts as other forms do, by the name of the comparison.
      seconds: Latency of one observation, a figure for every round.
      returns: Returns of the episodes that it played.
      facts: Further figures for JSON.
      p99_s: 99th percentile of the seconds of single calls, over all rounds; None: not measured.
    """

    act: Callable[[np.ndarray], Any]
    content: bytes = b""
    agreements: dict[str, agreement.Agreement] = dataclasses.field(default_factory=dict)
    seconds: list[float] = dataclasses.field(default_factory=list)
    returns: list[float] = dataclasses.field(default_factory=list)
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    p99_s: float | None = None

    @property
    def file_bytes(self) -> int | None:
        """Size of the file; None for torch."""
        return len(self.content) or None

    @property
    def median_s(self) -> float:
        """Median latency of the rounds, in seconds."""
        return statistics.median(self.seconds)

    def figures(self) -> dict[str, Any]:
        """Returns size, latencies, agreements and further facts, for JSON."""
        compared = {name: found._asdict() for name, found in self.agreements.items()}
        return {
            "file_bytes": self.file_bytes, "seconds": self.seconds, "p99_s": self.p99_s,
            **compared, **self.facts,
        }


def check_unquantized(agent: agent_lib.Agent) -> None:
    """Checks that an agent has a form in full precision, with which others are compared.

    Raises:
      errors.UserError: The agent is quantized.
    """
    if agent.quantization is not None:
        raise errors.UserError(
            f"{agent.path} is quantized already: name the agent that it was made from."
        )


def measure_latencies(
    forms: Mapping[Any, Form], observations: Mapping[Any, np.ndarray], repeats: int
) -> None:
    """Measures the latency of all forms in turns.

    Args:
      forms: The forms by name.
      observations: One observation for each of them.
      repeats: Rounds.
    """
    sides = {
        name: functools.partial(
            timing.seconds_of_calls, functools.partial(form.act, observations[name]),
            at_least=_CALLS,
        )
        for name, form in forms.items()
    }
    for name, rounds in timing.interleave(sides, repeats).items():
        forms[name].seconds = [statistics.median(seconds) for seconds in rounds]
        forms[name].p99_s = float(np.quantile(np.concatenate(rounds), 0.99))


def play(
    agent: agent_lib.Agent, acts: Mapping[str, evaluation.Act], settings: Settings
) -> Iterator[tuple[str, list[evaluation.Episode]]]:
    """Plays the same starts with every form; yields its name and episodes.

    Args:
      agent: The agent in whose environments they play.
      acts: By name, raw observations [B, ...] to actions of these environments.
      settings: Settings with the number of episodes and their seed.
    """
    for name, act in acts.items():
        timing.progress(
            f"{agent.algo} {agent.env_id}: {name} plays {settings.episodes} episodes"
        )
        yield name, evaluation.evaluate(agent.make_env, act, settings.episodes, settings.seed)


def measure_normalized(
    agent: agent_lib.Agent, forms: Mapping[str, Form], states: np.ndarray, settings: Settings
) -> None:
    """Measures latency and returns of forms that take normalized observations.

    Args:
      agent: The agent whose forms they are.
      forms: The forms by name.
      states: Normalized observations [N, ...].
      settings: How much to measure.
    """
    measure_latencies(forms, dict.fromkeys(forms, states[0]), settings.repeats)
    acts = {}
    for name, form in forms.items():
        act = exporting.one_by_one(form.act)
        acts[name] = lambda raw, act=act: act(agent.normalize(raw))
    for name, episodes in play(agent, acts, settings):
        forms[name].returns = [episode.episode_return for episode in episodes]
