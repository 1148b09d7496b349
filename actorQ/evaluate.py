"""Plays a trained policy at any precision, and can film it.

    python -m actorQ.evaluate RUN --episodes 10 --quantize 8 --video out.mp4

From Python:

    from actorQ import evaluate
    policy = evaluate.load_policy("logs/my-run", quantize=8)
    action = policy(observation)  # In the environment's own units.
"""

import contextlib
import os
from typing import Any

from absl import flags
from absl import logging
import numpy as np

from actorQ import environments
from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import precisions
from actorQ.core import seeding
from actorQ.environments import evaluation
from actorQ.environments import video
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import inference
from actorQ.policy import saved


class LoadedPolicy:
    """A trained policy, without exploration, at some precision.

    Attributes:
      checkpoint: what was loaded: architecture, fp32 weights and facts about the training.
    """

    def __init__(
        self, checkpoint: saved.PolicyCheckpoint, quantize: int, inference_mode: str
    ):
        self.checkpoint = checkpoint
        self._backend = inference.make_backend(checkpoint.architecture, quantize, inference_mode)
        inference.load_weights(self._backend, checkpoint.weights, quantize)
        self._greedy = algorithms.policy_module(checkpoint.algorithm).greedy
        self._observation_scale = checkpoint.observation_scale
        self._start = checkpoint.action_start
        self._to_native = checkpoint.action_map

    def scaled(self, observation: np.ndarray) -> Any:
        """Returns the action as `actorQ.environments` takes it: in [-1, 1], or an integer.

        Args:
          observation: the task's own, float32 [D], or uint8 [H, W, C] for pixels.
        """
        if self._observation_scale is not None:
            observation = self._observation_scale(observation)
        return self._greedy(self._backend(observation[None])[0])

    def __call__(self, observation: np.ndarray) -> Any:
        """Returns the action in the environment's own units, float32 [A], or an integer.

        Args:
          observation: the task's own, [D] numbers, or uint8 [H, W, C] for pixels.

        Raises:
          ValueError: the observation has another shape than the policy was trained on.
        """
        shape = self.checkpoint.architecture.observation_shape
        pixels = self.checkpoint.architecture.pixels
        observation = np.ascontiguousarray(observation, np.uint8 if pixels else np.float32)
        if observation.shape != shape:
            raise ValueError(f"The policy takes observations {shape}, got {observation.shape}.")
        action = self.scaled(observation)
        return action + self._start if self._to_native is None else self._to_native(action)


def load_policy(
    path: str, quantize: int = 32, best: bool = False, inference_mode: str = "pytorch"
) -> LoadedPolicy:
    """Loads a policy from a run folder or a policy file.

    Args:
      path: run folder, or `policy.safetensors`.
      quantize: precision of inference, bits: 32, 16, 8 or 4 (4: not with pytorch).
      best: take the weights that had the best evaluation instead of the last ones.
      inference_mode: "pytorch", "native" or "tensorflow".

    Raises:
      errors.UserError: there is no usable policy, or the precision is not possible.
    """
    precisions.check(quantize, inference_mode)
    return LoadedPolicy(saved.load_policy(path, best), quantize, inference_mode)


def evaluate(
    policy: LoadedPolicy, episodes: int, seed: int = 0, video_path: str = ""
) -> list[evaluation.Episode]:
    """Plays episodes of the task that the policy was trained on.

    Args:
      policy: from `load_policy`.
      episodes: how many, >= 1.
      seed: of the starts, which are the same at every precision: each episode has an environment
        of its own, since some draw numbers in their steps as well.
      video_path: file for a film of all episodes (.mp4 or .gif), or "" for none.

    Raises:
      errors.UserError: the task is none that the policy fits (any more).
    """
    facts = policy.checkpoint.facts
    played = []
    with contextlib.ExitStack() as film:
        on_frame = None
        for number in range(episodes):
            environment = environments.make(
                facts["taskstr"], seeding.derive(seed, "evaluate", number),
                facts["max_episode_steps"],
            )
            with contextlib.closing(environment):
                if number == 0:
                    _require_fit(policy.checkpoint.architecture, environment, facts["taskstr"])
                    on_frame = film.enter_context(video.film(video_path, environment.render_fps))
                played.append(evaluation.play(environment, policy.scaled, on_frame))
    return played


def _require_fit(
    trained: architecture_lib.PolicyArchitecture, environment: environments.Environment, task: str
) -> None:
    """Checks that observations and actions are what the policy was trained on."""
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


def define_flags() -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_integer("episodes", 10, "Episodes to play, >= 1.", lower_bound=1)
    flags.DEFINE_integer(
        "quantize", 32,
        "Precision of inference, bits: 32, 16, 8 or 4 (4 needs --inference_mode native or "
        "tensorflow).",
    )
    flags.DEFINE_enum(
        "inference_mode", "pytorch", list(config_lib.INFERENCE_MODES), "Inference backend."
    )
    flags.DEFINE_integer("seed", 0, "Seed of the environment, >= 0.", lower_bound=0)
    flags.DEFINE_boolean("best", False, "Take the weights with the best evaluation, not the last.")
    flags.DEFINE_string("video", "", "File for a film of the episodes, .mp4 or .gif; empty: none.")


def main(argv: list[str]) -> int:
    """Evaluates one policy; see `cli.run` for errors."""
    if len(argv) != 2:
        raise errors.UserError("takes one argument: the run folder (or a policy.safetensors).")
    values = flags.FLAGS
    cli.quiet_tensorflow()
    policy = load_policy(argv[1], values.quantize, values.best, values.inference_mode)
    try:
        played = evaluate(policy, values.episodes, values.seed, values.video)
    except ValueError as error:  # From the video writer: an ending that it does not know.
        raise errors.UserError(str(error)) from None
    for number, episode in enumerate(played, 1):
        print(f"episode {number}: return {episode.episode_return:.1f}, {episode.length} steps")
    returns = [episode.episode_return for episode in played]
    print(
        f"{policy.checkpoint.facts['taskstr']} at {values.quantize} bits: return "
        f"{np.mean(returns):.1f} +- {np.std(returns):.1f} over {len(returns)} episodes"
    )
    if values.video:
        logging.info("Film: %s", os.path.abspath(values.video))
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="evaluate")
