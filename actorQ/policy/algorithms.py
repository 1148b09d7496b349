"""Maps an algorithm's name to its modules. No other module knows both algorithms."""

import importlib
from types import ModuleType

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.environments import base
from actorQ.policy import architecture


def resolve(config: config_lib.RunConfig, spec: base.EnvironmentSpec) -> str:
    """Returns "d4pg" or "dqn": `--algorithm`, or the one that fits the action space.

    Raises:
      errors.UserError: The algorithm cannot act in this environment.
    """
    natural = "dqn" if spec.discrete else "d4pg"
    if config.algorithm not in ("auto", natural):
        actions = "discrete" if spec.discrete else "continuous"
        raise errors.UserError(
            f"--algorithm={config.algorithm} cannot learn {config.taskstr}, whose actions are "
            f"{actions}: use {natural} (or leave the flag out)."
        )
    if natural == "d4pg" and len(spec.observation_shape) > 1:
        raise errors.UserError(
            f"{config.taskstr} has images and continuous actions. D4PG takes vectors here; "
            "images need discrete actions (DQN)."
        )
    smallest = architecture.smallest_image()
    if natural == "dqn" and len(spec.observation_shape) == 3:
        height, width, _ = spec.observation_shape
        if min(height, width) < smallest:
            raise errors.UserError(
                f"{config.taskstr} has images of shape {spec.observation_shape}: DQN takes "
                f"[height, width, channels] of at least {smallest} pixels each way."
            )
    return natural


def policy_module(algorithm: str) -> ModuleType:
    """Returns the actor's side: `make_exploration`, `greedy`, `reward_limit`."""
    return importlib.import_module(f"actorQ.{algorithm}.exploration")


def learner_module(algorithm: str) -> ModuleType:
    """Returns the learner's side: `make_networks`, `make_learner`, `make_range`, and so on."""
    return importlib.import_module(f"actorQ.{algorithm}.learner")
