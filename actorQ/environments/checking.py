"""Plays a task at random, and finds what a user should know before training on it.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import time
from typing import Any

import numpy as np

from actorQ.environments import base
from actorQ.environments import task_errors

_LARGE = 100.0  # Observations beyond it saturate tanh units.
_UNEQUAL = 20.0  # Ratio of sizes from which the smaller numbers get few of int8's levels.
_SLOW = 1000.0  # Steps/s below which actors wait for the task, not for the policy.


@dataclasses.dataclass(frozen=True)
class Findings:
    """Holds what random play shows.

    Attributes:
      spec: Shapes and bounds as networks see them.
      limit: Agent steps per episode.
      notes: Sentences on what was made of the task.
      rewards: [steps] float64.
      returns: Return of each episode that ended.
      lengths: Steps of each episode that ended.
      sizes: [D] largest size of each number of an observation; empty for images.
      bounded: [D] bool, whether the task bounds the number; empty for images.
      steps_per_s: Environment steps a second on one core, resets included.
      differs_at: First step at which the same seed and actions gave something else; None: nowhere.
      complaints: What the suite's own check says, one sentence each.
    """

    spec: base.EnvironmentSpec
    limit: base.StepLimit
    notes: list[str]
    rewards: np.ndarray
    returns: list[float]
    lengths: list[int]
    sizes: np.ndarray
    bounded: np.ndarray
    steps_per_s: float
    differs_at: int | None
    complaints: list[str]


def check(make: Callable[[], base.Environment], steps: int, seed: int) -> Findings:
    """Plays two environments of one seed with the same random actions.

    Args:
      make: Builds the environment, with the same seed every time.
      steps: Agent steps, >= 1.
      seed: Seed of the actions.

    Raises:
      TaskError: The task cannot be built, or fails.
    """
    with contextlib.closing(make()) as environment:
        started = time.perf_counter()
        played = list(_play(environment, steps, seed))
        seconds = time.perf_counter() - started
        bounded = _bounded(environment)
        with contextlib.closing(make()) as twin:
            differs_at = _first_difference(played, _play(twin, steps, seed))
        episodes = _episodes(played)
        return Findings(
            environment.spec, environment.limit, environment.notes,
            np.array([step.reward for step in played if step.reward is not None]),
            [sum(rewards) for rewards in episodes], [len(rewards) for rewards in episodes],
            np.max([np.abs(step.observation) for step in played], axis=0)
            if bounded.size else bounded,
            bounded, steps / seconds, differs_at, environment.complaints(),
        )


def advice(found: Findings, cores: int) -> tuple[list[str], list[str]]:
    """Returns sentences of advice, and the flags that follow from them.

    Args:
      found: What random play has shown.
      cores: Cores that a run may use.
    """
    sentences: list[str] = []
    flags: list[str] = []

    def advise(sentence: str, *more: str) -> None:
        sentences.append(sentence)
        flags.extend(more)

    if found.differs_at is not None:
        advise(
            f"The same seed gave something else at step {found.differs_at}, so no run can be "
            "repeated: draw random numbers from self.np_random only."
        )
    if np.ptp(found.rewards) == 0:
        lasting = ("--epsilon_zeta=2", "--epsilon_max=0.3") if found.spec.discrete else (
            "--sigma=1.0",
        )
        advise(
            f"Random play met only rewards of {found.rewards[0]:g}: let exploration last or grow.",
            *lasting,
        )
    sizes = found.sizes[found.sizes > 0]
    if sizes.size and (sizes.max() > _LARGE or sizes.max() / sizes.min() > _UNEQUAL):
        text = f"Observations have sizes from {sizes.min():.2g} to {sizes.max():.2g}"
        largest = found.bounded[np.argmax(found.sizes)]
        if (found.bounded | (found.sizes <= 1)).all() or (largest and sizes.max() > _LARGE):
            advise(f"{text}: scale them by the task's bounds.", "--scale_observations=1")
        elif sizes.max() > _LARGE:
            advise(f"{text}, beyond the task's bounds: scale them in a wrapper.")
    if found.steps_per_s < _SLOW and cores > 2:
        advise(
            f"The task makes {found.steps_per_s:.0f} steps/s: take an actor for each core but the "
            "learner's.", f"--n_actors={cores - 1}",
        )
    return sentences, flags


def _play(environment: base.Environment, steps: int, seed: int) -> Iterator[Any]:
    """Yields a time step for each reset, and `steps` others, with random actions."""
    rng, spec = np.random.default_rng(seed), environment.spec
    timestep = environment.reset()
    yield timestep
    for _ in range(steps):
        if timestep.last():
            timestep = environment.reset()
            yield timestep
        action = (
            int(rng.integers(spec.num_actions)) if spec.num_actions is not None
            else rng.uniform(-1, 1, spec.action_size).astype(np.float32)
        )
        timestep = environment.step(action)
        yield timestep


def _first_difference(played: list[Any], again: Iterator[Any]) -> int | None:
    """Returns the number of the first time step in which two plays differ; None: none does."""
    for number, (one, other) in enumerate(zip(played, again, strict=False)):
        same = one.reward == other.reward and one.step_type == other.step_type
        if not same or not np.array_equal(one.observation, other.observation):
            return number
    return None


def _episodes(played: list[Any]) -> list[list[float]]:
    """Returns the rewards of every episode that ended."""
    found: list[list[float]] = [[]]
    for step in played:
        if step.reward is not None:
            found[-1].append(step.reward)
        if step.last():
            found.append([])
    return found[:-1]


def _bounded(environment: base.Environment) -> np.ndarray:
    """Returns which numbers of a vector `--scale_observations` would scale; empty for images."""
    shape = environment.spec.observation_shape
    if len(shape) != 1:
        return np.zeros(0, bool)
    try:
        environment.scale_observations()
    except task_errors.TaskError:
        return np.zeros(shape, bool)
    scale = environment.spec.observation_scale
    assert scale is not None  # `scale_observations` would have raised.
    return scale.scale != 1


def describe(found: Findings) -> Mapping[str, str]:
    """Returns what there is to say of a task, by headings."""
    spec, limit = found.spec, found.limit
    shape = " x ".join(map(str, spec.observation_shape))
    kind = "image of bytes" if len(spec.observation_shape) == 3 else (
        "number" if shape == "1" else "numbers"
    )
    own = "no limit of its own" if limit.own == np.inf else f"its own limit: {limit.own:,.0f}"
    actions = (
        f"{spec.num_actions} to choose from: DQN" if spec.discrete
        else f"{spec.action_size} number{'s' * (spec.action_size != 1)} between bounds: D4PG"
    )
    rewards = f"{found.rewards.min():g} to {found.rewards.max():g} a step"
    if found.returns:
        rewards += (
            f"; {len(found.returns)} episodes of {min(found.lengths):,} to "
            f"{max(found.lengths):,} steps returned {min(found.returns):g} to "
            f"{max(found.returns):g}"
        )
    return {
        "Observations": f"{shape} {kind}",
        "Actions": actions,
        "Episodes": f"at most {limit.steps:,} steps ({own})",
        "Random play": rewards,
        "Same seed": (
            "the same play" if found.differs_at is None
            else f"another play from step {found.differs_at} on"
        ),
        "Speed": f"{found.steps_per_s:,.0f} steps/s on one core",
    }
