"""Policies with random weights, and backends that compute them, for every benchmark.

No framework is imported before the first backend is made, so that a process can be pinned first.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from actorQ.policy import architecture as architecture_lib

if TYPE_CHECKING:
    from actorQ.policy import inference

TORCH, NATIVE = "pytorch", "native"
OBSERVATION_SIZE, _ACTIONS = 67, 21  # humanoid_walk has these.
_ATARI_ACTIONS = 18


def modes(native: bool) -> dict[str, tuple[int, ...]]:
    """Returns the inference modes, and the bits that each can compute at.

    3 bits are left out, as the kernels compute them as 4.

    Args:
      native: Whether the native kernels were built.
    """
    return {TORCH: (32, 16, 8)} | ({NATIVE: (32, 16, 8, 4)} if native else {})


def architectures(widths: Sequence[int]) -> dict[str, architecture_lib.PolicyArchitecture]:
    """Returns the policies by name: three hidden layers of each width, and Atari's network."""
    policies = {
        f"3x{width}": architecture_lib.PolicyArchitecture(
            (OBSERVATION_SIZE,), (width,) * 3, _ACTIONS, architecture_lib.TANH_HEAD
        )
        for width in widths
    }
    policies["Atari"] = architecture_lib.PolicyArchitecture(
        (84, 84, 4), (512,), _ATARI_ACTIONS, architecture_lib.Q_VALUES_HEAD
    )
    return policies


def random_weights(
    architecture: architecture_lib.PolicyArchitecture, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Returns weights of about unit gain, float32, under torch's names."""
    return {
        name: rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        for name, shape in architecture.parameter_shapes.items()
    }


def make(
    architecture: architecture_lib.PolicyArchitecture,
    bits: int,
    mode: str,
    weights: Mapping[str, np.ndarray],
) -> "inference.InferenceBackend":
    """Returns a backend that has loaded weights, in a process that computes on one thread.

    Args:
      architecture: Layers of the policy.
      bits: Precision that it computes at.
      mode: Inference mode.
      weights: float32, under torch's names.
    """
    from actorQ.policy import inference

    inference.use_one_thread(mode)
    backend = inference.make_backend(architecture, bits, mode)
    inference.load_weights(backend, weights, bits)
    return backend
