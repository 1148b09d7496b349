"""The parts that the product's path of weights shares with the original's stand-in.

`parameter_path` sends weights down both: `parameter_sides` and `original.parameters` have the same
functions. One process has the same part of every side, and only one side works at a time.
"""

import dataclasses
import os
import time
from typing import Any
from typing import Protocol

import numpy as np

from actorQ.core import allocator
from actorQ.core import config as config_lib
from actorQ.core import precisions
from actorQ.policy import architecture as architecture_lib

PRODUCT, ORIGINAL = "ActorQ here", "original (stand-in)"
OBSERVATION_SIZE, _ACTIONS = 17, 6  # cheetah_run has these.
_UPDATE_PERIOD = 30  # Steps between two looks, the default of --actor_update_period.
_STEPS_BEHIND = 40  # Steps after the first action on new weights.
_DEADLINE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Side:
    """One way from the learner's weights to the actor's.

    Attributes:
      kind: PRODUCT or ORIGINAL.
      quantize: Bits of the actor's arithmetic.
      communication: Bits on the wire, as --quantize_communication.
      push_precision: Precision of the message from learner to broadcaster.
      inference_mode: Inference mode of the actor.
    """

    kind: str
    quantize: int
    communication: int = 32
    push_precision: str = "float32"
    inference_mode: str = "pytorch"

    @property
    def name(self) -> str:
        """The side's name in the table."""
        bits = precisions.NAMES[self.quantize]
        if self.kind == ORIGINAL:
            return f"{bits}, {self.kind}"
        parts = [bits, self.inference_mode]
        if self.communication < 32:
            parts.append(f"{self.communication} bits on the wire")
        if self.push_precision != "float32":
            parts.append(f"{self.push_precision} push")
        return ", ".join(parts)

    def config(self, folder: str, width: int) -> config_lib.RunConfig:
        """Returns the run's configuration, without the server's address."""
        return config_lib.RunConfig(
            quantize=self.quantize, quantize_communication=self.communication,
            push_precision=self.push_precision, inference_mode=self.inference_mode,
            model_str=",".join(3 * [str(width)]), push_period_s=0.0, port=0,
            logpath=os.path.join(folder, self.name.replace(" ", "_").replace(",", "")),
        )


def architecture_of(config: config_lib.RunConfig) -> architecture_lib.PolicyArchitecture:
    """Returns the layers of the policy whose weights travel."""
    return architecture_lib.PolicyArchitecture(
        (OBSERVATION_SIZE,), config.model_sizes, _ACTIONS, architecture_lib.TANH_HEAD
    )


def keep_large_blocks() -> bool:
    """Sets up a process of the product before any framework, as the product's programs do."""
    return allocator.keep_large_blocks()


def pin(core: int) -> None:
    """Moves this process, with all threads that it has by now, to another core."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


# --- The learner's process, which holds the server too ---

_policies: dict[int, Any] = {}


def learner_policy(config: config_lib.RunConfig) -> Any:
    """Returns the one Sonnet policy of this process and width."""
    from actorQ.policy import sonnet_policy

    width = config.model_sizes[0]
    if width not in _policies:
        _policies[width] = sonnet_policy.Policy(architecture_of(config))
    return _policies[width]


# --- The actor's process ---


class Actor(Protocol):
    """The end of a path: a policy that steps, without an environment."""

    @property
    def version(self) -> int:
        """Version of the weights in use."""

    def first_weights(self) -> None:
        """Waits for weights."""

    def infer(self, observation: np.ndarray) -> np.ndarray:
        """Returns the policy's output."""

    def between_steps(self, look: bool) -> None:
        """Does what this actor does between two steps.

        Args:
          look: Whether it is time to look for newer weights.
        """

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of pulling, deserializing and loading so far."""


_actors: dict[str, Actor] = {}


def keep_actor(config: config_lib.RunConfig, actor: Actor) -> None:
    """Waits for an actor's first weights, and keeps it for `act_until`."""
    actor.first_weights()
    _actors[config.logpath] = actor


def act_until(config: config_lib.RunConfig, version: int) -> dict[str, Any]:
    """Steps until weights of `version` are in use, and some steps further.

    Returns:
      A dictionary with these entries. Times are those of time.monotonic.
        first_action: Time of the first action on these weights.
        looks: Number of looks for newer weights.
        steps: Start and seconds of every step, with the work between it and the step before.
        phases: Seconds of each phase.

    Raises:
      RuntimeError: The weights do not come.
    """
    actor, clock = _actors[config.logpath], time.monotonic
    observation = np.random.default_rng(0).normal(size=(1, OBSERVATION_SIZE)).astype(np.float32)
    before = actor.seconds()
    steps: list[tuple[float, float]] = []
    first, left = None, _STEPS_BEHIND
    started = now = clock()
    while left:
        actor.between_steps(look=len(steps) % _UPDATE_PERIOD == 0)
        actor.infer(observation)
        past, now = now, clock()
        steps.append((past, now - past))
        if first is None and actor.version >= version:
            first = now
        if first is not None:
            left -= 1
        elif now - started > _DEADLINE_S:
            raise RuntimeError(f"{config.logpath}: no weights came within {_DEADLINE_S:g} s.")
    after = actor.seconds()
    return {
        "first_action": first,
        "looks": -(-len(steps) // _UPDATE_PERIOD),
        "steps": steps,
        "phases": {name: after[name] - before[name] for name in after},
    }
