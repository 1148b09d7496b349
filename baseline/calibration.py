"""Finds the ranges of a policy's activations by letting it play a few episodes."""

import numpy as np
import torch

from actorQ import seeding
from baseline import agents
from baseline import evaluation
from baseline import networks

EPISODES = 5


def ranges(
    agent: agents.Agent, episodes: int = EPISODES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Returns the smallest and the largest input of every layer with weights, and of the output.

    Args:
      agent: plays in full precision.
      episodes: to play, >= 1; other starts than those of any evaluation.
      seed: of the starts.
    """
    seen: dict[str, tuple[float, float]] = {}

    def watch(name: str, x: torch.Tensor) -> torch.Tensor:
        low, high = (float(end) for end in torch.aminmax(x))
        before = seen.get(name, (np.inf, -np.inf))
        seen[name] = (min(before[0], low), max(before[1], high))
        return x

    def act(observations: np.ndarray) -> np.ndarray:
        outputs = networks.forward(agent.network, agent.normalize(observations), watch)
        return networks.to_actions(agent.network, outputs.numpy())

    evaluation.evaluate(agent.make_env, act, episodes, seeding.derive(seed, "calibration"))
    return seen
