"""A trained policy ready to act, and the episodes that it plays in its task.

Imports no framework until a policy is loaded.
"""

import contextlib
from typing import Any

import numpy as np

from actorQ.core import errors
from actorQ.core import precisions
from actorQ.core import seeding
from actorQ.environments import base
from actorQ.environments import evaluation
from actorQ.environments import suites
from actorQ.environments import video
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import inference
from actorQ.policy import saved


class LoadedPolicy:
    """A trained policy, without exploration, at some precision.

    Attributes:
      checkpoint: The file's content: architecture, fp32 weights and facts about the training.
    """

    def __init__(
        self, checkpoint: saved.PolicyCheckpoint, quantize: int, inference_mode: str
    ):
        self.checkpoint = checkpoint
        self._backend = inference.make_backend(checkpoint.architecture, quantize, inference_mode)
        inference.load_weights(self._backend, checkpoint.weights, quantize)
        self._greedy = algorithms.policy_module(checkpoint.algorithm).greedy
        self._observation_scale = checkpoint.observation_scale
        self._to_native = checkpoint.action_map

    def scaled(self, observation: np.ndarray) -> Any:
        """Returns the action as our environments take it: in [-1, 1], or an integer.

        Args:
          observation: The task's own: float32 [D], or uint8 [H, W, C] for pixels.
        """
        if self._observation_scale is not None:
            observation = self._observation_scale(observation)
        return self._greedy(self._backend(observation[None])[0])

    def __call__(self, observation: np.ndarray) -> Any:
        """Returns the action in the task's own units: float32 [A], an integer, or several.

        Args:
          observation: The task's own: [D] numbers, or uint8 [H, W, C] for pixels.

        Raises:
          ValueError: The observation has another shape than the policy was trained on.
        """
        shape = self.checkpoint.architecture.observation_shape
        pixels = self.checkpoint.architecture.pixels
        observation = np.ascontiguousarray(observation, np.uint8 if pixels else np.float32)
        if observation.shape != shape:
            raise ValueError(f"The policy takes observations {shape}, got {observation.shape}.")
        return self._to_native(self.scaled(observation))


def load_policy(
    path: str, quantize: int = 32, best: bool = False, inference_mode: str = "pytorch"
) -> LoadedPolicy:
    """Loads a policy from a run folder or a policy file.

    Args:
      path: A run folder, or a `policy.safetensors`.
      quantize: Bits of inference: 32, 16, 8, 4 or 3 (4 and 3 do not work with pytorch).
      best: Takes the weights that had the best evaluation instead of the last ones.
      inference_mode: "pytorch", "native" or "tensorflow".

    Raises:
      errors.UserError: There is no usable policy, or the precision is not possible.
    """
    precisions.check(quantize, inference_mode)
    return LoadedPolicy(saved.load_policy(path, best), quantize, inference_mode)


def play_episodes(
    policy: LoadedPolicy, episodes: int, seed: int = 0, video_path: str = ""
) -> list[evaluation.Episode]:
    """Plays episodes of the task that the policy was trained on.

    Args:
      policy: A policy from `load_policy`.
      episodes: Number of episodes, >= 1.
      seed: Decides how episodes start, in the same way at every precision. Each episode has an
        environment of its own, since some environments draw random numbers in their steps as well.
      video_path: File for a film of all episodes (.mp4 or .gif), or "" for none.

    Raises:
      errors.UserError: The policy does not fit the task (any more).
    """
    facts = policy.checkpoint.facts
    played = []
    with contextlib.ExitStack() as film:
        on_frame = None
        for number in range(episodes):
            environment = suites.make_from(facts, seeding.derive(seed, "evaluate", number))
            with contextlib.closing(environment):
                if number == 0:
                    _require_fit(policy.checkpoint.architecture, environment, facts["taskstr"])
                    on_frame = film.enter_context(video.film(video_path, environment.render_fps))
                episode = evaluation.play(environment, policy.scaled, on_frame)
                assert episode is not None  # Nothing asks the episode to stop.
                played.append(episode)
    return played


def _require_fit(
    trained: architecture_lib.PolicyArchitecture, environment: base.Environment, task: str
) -> None:
    """Checks that observations and actions are those that the policy was trained on."""
    now = architecture_lib.make(environment.spec, trained.hidden_sizes)
    if now != trained:
        raise errors.UserError(
            f"{task} has {_ends(now)}, the policy was trained with {_ends(trained)}: has the task, "
            "or its package's version, changed since?"
        )


def _ends(architecture: architecture_lib.PolicyArchitecture) -> str:
    """Returns 'observations of 4 and 2 actions to choose from'."""
    shape = "x".join(str(size) for size in architecture.observation_shape)
    discrete = architecture.head == architecture_lib.Q_VALUES_HEAD
    kind = "actions to choose from" if discrete else "numbers in an action"
    return f"observations of {shape} and {architecture.num_outputs} {kind}"
