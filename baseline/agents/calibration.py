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

    The last layer's output has a range only if asked for. Nothing computes with it, and Q-values of
    several actions often differ by less than a step: with 8 bits there, CartPole's DQN fell from
    408 to 20. Pixels get the range whose 8-bit levels are just the pixels.

    Args:
      agent: The agent, which plays in full precision.
      episodes: Episodes to play, >= 1. Their starts differ from those of any evaluation.
      seed: Seed of the starts.
      input_bits: Bits of the first layer's input, appended to its range; None: as the others.
      output: Whether the last layer's output gets a range, too.
    """
    seen: dict[str, tuple[float, float]] = {}

    def watch(name: str, x: torch.Tensor) -> torch.Tensor:
        if name == acting_path.OUTPUT and not output:
            return x
        low, high = (float(end) for end in torch.aminmax(x))
        before = seen.get(name, (np.inf, -np.inf))
        # Unlike Python's min, numpy's passes NaN on; quantizing by such a range is refused.
        seen[name] = (float(np.minimum(before[0], low)), float(np.maximum(before[1], high)))
        return x

    def act(observations: np.ndarray) -> np.ndarray:
        outputs = acting_path.forward(agent.network, agent.normalize(observations), watch)
        return acting_path.to_actions(agent.network, outputs.numpy())

    evaluation.evaluate(agent.make_env, act, episodes, seeding.derive(seed, "calibration"))
    first = agent.network.with_weights()[0][0]
    if agent.network.image:
        seen[first] = acting_path.PIXEL_RANGE
    found: dict[str, tuple[float, ...]] = dict(seen)
    if input_bits is not None:
        found[first] = (*seen[first], input_bits)
    return found
