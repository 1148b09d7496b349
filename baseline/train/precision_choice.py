"""Chooses the precision of a training: half where it was measured to be faster, else fp32.

Half precision pays where matrix products are large and the processor multiplies in it (AVX512-BF16,
AMX, a GPU). On small networks the conversions cost more than that saves. The model itself is
measured before it trains, which leaves it unchanged.
"""

import contextlib
import copy
import statistics
import time
from typing import NamedTuple

from gymnasium import spaces
import numpy as np
from stable_baselines3 import dqn
from stable_baselines3.common import base_class
from stable_baselines3.common import on_policy_algorithm
import torch

from baseline.quantization import names as precision_lib
from baseline.train import half_precision

# Least speed-up of forward and backward: less is noise, or is lost in the rest of a training.
LEAST_SPEEDUP = 1.05
_ROUNDS = 5
_LONGEST_S = 15.0


class Choice(NamedTuple):
    """A precision, and the reason for it as a clause that people read."""

    precision: str
    reason: str


def choose(model: base_class.BaseAlgorithm) -> Choice:
    """Returns the precision in which a model trains fastest.

    Args:
      model: Model in fp32, set up to train.
    """
    half = half_precision.half_of(model.device)
    if half == precision_lib.FP16 and not isinstance(model, dqn.DQN):
        half = None
    if half is None:
        return Choice(precision_lib.FP32, "the device does not compute in half precision")
    if not half_precision.networks(model):
        return Choice(precision_lib.FP32, "neither dqn nor a policy that looks at images")
    speedup = measure(model, half)
    return Choice(
        half if speedup >= LEAST_SPEEDUP else precision_lib.FP32,
        f"forward and backward in {half} are {speedup:.2f} times as fast as in fp32, measured",
    )


def resolve(model: base_class.BaseAlgorithm, precision: str) -> Choice:
    """Returns the precision that a user's choice means for a model.

    Args:
      model: Model in fp32, set up to train.
      precision: One of `precision_lib.CHOICES`.

    Raises:
      errors.UserError: The device does not take the precision.
    """
    if precision == precision_lib.AUTO:
        return choose(model)
    half_precision.check(precision, model.device)
    return Choice(precision, "as asked for")


def measure(model: base_class.BaseAlgorithm, half: str) -> float:
    """Returns how many times as fast as fp32 a model's networks compute in `half`.

    Args:
      model: Model in fp32.
      half: bf16 or fp16.
    """
    observations = _observations(model)
    training = model.policy.training
    model.policy.set_training_mode(True)
    seconds: dict[str, list[float]] = {precision_lib.FP32: [], half: []}
    started = time.perf_counter()
    try:
        for turn in range(_ROUNDS + 1):
            for precision, found in seconds.items():
                with contextlib.ExitStack() as stack:
                    stack.callback(half_precision.apply(model, precision))
                    found.append(_seconds(model, observations))
            if turn >= 1 and time.perf_counter() - started > _LONGEST_S:
                break
    finally:
        model.policy.set_training_mode(training)
        model.policy.zero_grad(set_to_none=True)
    return statistics.median(
        full / short
        for full, short in zip(seconds[precision_lib.FP32][1:], seconds[half][1:], strict=True)
    )


def _seconds(model: base_class.BaseAlgorithm, observations: torch.Tensor) -> float:
    """Returns the seconds of the forward and backward pass of a gradient step."""
    chosen = half_precision.networks(model)
    wait_for(model.device)
    started = time.perf_counter()
    if isinstance(model, dqn.DQN):
        with torch.no_grad():
            chosen[1](observations)
        chosen[0](observations).sum().backward()
    else:
        chosen[0](observations.float()).sum().backward()
    wait_for(model.device)
    return time.perf_counter() - started


def wait_for(device: torch.device) -> None:
    """Waits until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _observations(model: base_class.BaseAlgorithm) -> torch.Tensor:
    """Returns a random batch of the size that a model trains on."""
    size = getattr(model, "batch_size", None)
    if isinstance(model, on_policy_algorithm.OnPolicyAlgorithm):  # A2C has no batch size.
        size = size or model.n_steps * model.n_envs
    assert size is not None
    space = copy.deepcopy(model.observation_space)  # The training keeps its random numbers.
    space.seed(0)
    if isinstance(space, spaces.Box) and space.dtype == np.float32:
        batch = np.random.default_rng(0).standard_normal((size, *space.shape), np.float32)
    else:
        batch = np.stack([space.sample() for _ in range(size)])
    observations, _ = model.policy.obs_to_tensor(batch)
    assert isinstance(observations, torch.Tensor)  # `environments` refuses dictionaries.
    return observations
