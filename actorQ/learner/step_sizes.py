"""Lets step sizes fall in the course of training. Imports no framework."""

from collections.abc import Callable
from typing import Any

_LEAST_SHARE = 0.01


def share(updates: Any, decay_steps: int, largest: Callable[[float, Any], Any] = max) -> Any:
    """Returns the factor for an optimizer's first step size.

    Args:
      updates: Updates that the optimizer has made so far; a number, or a tensor of float32.
      decay_steps: Updates over which the share falls linearly from 1 to a hundredth, where it
        stays; 0: it stays at 1.
      largest: Returns the larger of two values, or of two tensors where `updates` is one.
    """
    if not decay_steps:
        return 1.0
    return largest(_LEAST_SHARE, 1.0 - updates / decay_steps)
