"""Policies on disk: fp32 weights as safetensors, with everything needed to act again.

The learner writes them; `loaded` and `baseline` read them. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
import errno
import json
import os
from typing import Any
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry
from actorQ.environments import scales
from actorQ.policy import architecture as architecture_lib

POLICY_FILENAME = "policy.safetensors"
REQUIRED_FACTS = ("taskstr", "max_episode_steps", "action_low", "action_high")


class PolicyCheckpoint(NamedTuple):
    """A trained policy.

    Attributes:
      architecture: Layers of the policy.
      weights: torch's names to float32 arrays.
      facts: REQUIRED_FACTS, whose bounds are None for discrete actions, and others. One of the
        others is observation_scale: factors and summands of --scale_observations, or None.
    """

    architecture: architecture_lib.PolicyArchitecture
    weights: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """The algorithm that trained it: "dqn" or "d4pg"."""
        discrete = self.architecture.head == architecture_lib.Q_VALUES_HEAD
        return "dqn" if discrete else "d4pg"

    @property
    def action_start(self) -> int:
        """The task's own first discrete action."""
        return self.facts.get("action_start", 0)

    @property
    def action_map(self) -> Callable[[Any], Any]:
        """Map from actions in [-1, 1], or from integers from 0 on, to the task's own."""
        if self.algorithm == "dqn":
            start, combinations = self.action_start, self.facts.get("action_combinations")
            if combinations is None:
                return lambda action: action + start
            return lambda action: np.array(np.unravel_index(action, combinations))
        low, high = (np.asarray(self.facts[bound]) for bound in ("action_low", "action_high"))
        return scales.continuous_action_map(low, high, low.shape, np.dtype(np.float32))

    @property
    def observation_scale(self) -> scales.ObservationScale | None:
        """Map from the task's own observations to the policy's; None for no map.

        Raises:
          TypeError, ValueError: The fact is not a scale.
        """
        arrays = self.facts.get("observation_scale")
        if arrays is None:
            return None
        scale = scales.ObservationScale(*(np.asarray(array, np.float32) for array in arrays))
        if not (np.all(np.isfinite(scale)) and np.all(scale.scale > 0)):
            raise ValueError(f"An observation_scale cannot be {arrays}.")
        return scale


def save_policy(folder: str, checkpoint: PolicyCheckpoint) -> str:
    """Writes `policy.safetensors` into `folder`, atomically; returns its path."""
    path = os.path.join(folder, POLICY_FILENAME)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.WriteError(f"Cannot write {path}: {error.strerror}.") from None
    metadata = {
        "architecture": json.dumps(checkpoint.architecture.to_json()),
        "facts": json.dumps(dict(checkpoint.facts)),
    }
    weights = {name: np.ascontiguousarray(array) for name, array in checkpoint.weights.items()}
    with files.draft(path) as unfinished:
        try:
            safetensors.numpy.save_file(weights, unfinished, metadata)
        except safetensors.SafetensorError as error:  # It wraps errors of the system.
            raise errors.WriteError(f"Cannot write {path}: {errors.summary(error)}") from None
    return path


def find_policy(path: str, best: bool = False) -> str:
    """Returns the file of a policy.

    Args:
      path: A run folder, a folder with a policy file, or the file itself.
      best: Takes the weights with the best evaluation of a run instead of the last ones.

    Raises:
      errors.UserError: There is no policy, or `best` is asked for and `path` is a file.
    """
    if best and os.path.isfile(path):
        raise errors.UserError(f"--best is for run folders, and {path} is a file: leave it out.")
    parts = [telemetry.BEST_FOLDER] if best else []
    candidates = [
        path,
        os.path.join(path, telemetry.CHECKPOINT_FOLDER, *parts, POLICY_FILENAME),
        os.path.join(path, *parts, POLICY_FILENAME),
    ]
    found = [candidate for candidate in candidates if os.path.isfile(candidate)]
    if not found:
        when = "first checkpoint after --checkpoint_period_s seconds, and one at its end"
        if best:
            when = "best policy after its first evaluation"
        raise errors.UserError(
            f"No policy at {path}: looked for {', '.join(candidates[1:])}. A run writes its {when}."
        )
    return found[0]


def load_policy(path: str, best: bool = False) -> PolicyCheckpoint:
    """Reads a policy.

    Args:
      path: A run folder, a folder with a policy file, or the file itself.
      best: Takes the weights with the best evaluation of a run instead of the last ones.

    Raises:
      errors.UserError: There is no policy, or it cannot be read or is damaged.
    """
    found = find_policy(path, best)
    if not os.access(found, os.R_OK):  # Safetensors would say that there is no file.
        raise errors.UserError(f"Cannot read {found}: {os.strerror(errno.EACCES)}.")
    try:
        with safetensors.safe_open(found, framework="numpy") as file:
            metadata = file.metadata() or {}
            architecture = architecture_lib.PolicyArchitecture.from_json(
                json.loads(metadata["architecture"])
            )
            facts = json.loads(metadata["facts"])
            for name in REQUIRED_FACTS:
                facts[name]
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            checkpoint = PolicyCheckpoint(architecture, weights, facts)
            scale = checkpoint.observation_scale
    except OSError as error:
        raise errors.UserError(f"Cannot read {found}: {error.strerror or error}.") from None
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise errors.UserError(f"The policy file {found} is damaged: {error!r}.") from None
    shapes = {name: array.shape for name, array in weights.items()}
    scale_shapes = {array.shape for array in scale or ()}
    if shapes != dict(architecture.parameter_shapes) or (
        scale_shapes - {architecture.observation_shape}
    ):
        raise errors.UserError(f"The policy file {found} does not fit its own architecture.")
    # Safetensors has no checksum, and the argmax of NaN would silently be some action.
    for name, array in weights.items():
        if not np.issubdtype(array.dtype, np.floating) or not np.isfinite(array).all():
            raise errors.UserError(
                f"The policy file {found} is damaged: {name} has NaN or infinity."
            )
    return checkpoint
