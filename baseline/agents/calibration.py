"""Finds the ranges of a policy's activations by letting it play a few episodes."""

import numpy as np
import torch

from actorQ.core import seeding
from baseline.agents import agent as agent_lib
from baseline.agents import evaluation
from baseline.quantization import acting_path

EPISODES = 5


def ranges(
    agent: agent_lib.Agent,
    episodes: int = EPISODES,
    seed: int = 0,
    input_bits: int | None = None,
    output: bool = False,
) -> dict[str, tuple[float, ...]]:
    """Returns the smallest and the largest input of every layer with weights.

    The last layer's output is not among them unless asked for: nothing computes with it, and
    Q-values of several actions often differ by less than a step (with 8 bits there, CartPole's DQN
    fell from 408 to 20). Pixels get the range whose 8-bit levels are just the pixels.

    Args:
      agent: plays in full precision.
      episodes: to play, >= 1; other starts than those of any evaluation.
      seed: of the starts.
      input_bits: of the first layer's input, kept behind its range; None: as many as the others.
      output: whether the last layer's output gets a range, too.
    """
    seen: dict[str, tuple[float, float]] = {}

    def watch(name: str, x: torch.Tensor) -> torch.Tensor:
        if name == acting_path.OUTPUT and not output:
            return x
        low, high = (float(end) for end in torch.aminmax(x))
        before = seen.get(name, (np.inf, -np.inf))
        # Unlike Python's, these pass NaN on: quantizing by such a range is refused.
        seen[name] = (float(np.minimum(before[0], low)), float(np.maximum(before[1], high)))
        return x

    def act(observations: np.ndarray) -> np.ndarray:
        outputs = acting_path.forward(agent.network, agent.normalize(observations), watch)
        return acting_path.to_actions(agent.network, outputs.numpy())

    evaluation.evaluate(agent.make_env, act, episodes, seeding.derive(seed, "calibration"))
    first = agent.network.with_weights()[0][0]
    if agent.network.image:
        seen[first] = acting_path.PIXEL_RANGE
    return seen if input_bits is None else {**seen, first: (*seen[first], input_bits)}
