"""Inference backends of the actor: from a model message to actions, one observation at a time.

Each backend has the same three methods; `make_backend` chooses by `--inference_mode`. The
framework of a backend is imported only when it is chosen.
"""

from collections.abc import Mapping
from typing import Any
from typing import Protocol

from absl import logging
import numpy as np

from actorQ import architecture as architecture_lib
from actorQ import conversion
from actorQ import messages


class InferenceBackend(Protocol):
    """Computes the policy for an actor (or for evaluation)."""

    def prepare(self, tensors: Mapping[str, messages.Tensor]) -> Any:
        """Turns expanded tensors (`conversion.expand`) into what `load` takes ("deserialize")."""

    def load(self, prepared: Any) -> None:
        """Puts new weights into the policy ("load_state_dict")."""

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns the policy's output, float32 [num_outputs], for one observation."""


class TorchInference:
    """torch at 32, 16 or 8 bits, with one thread."""

    def __init__(
        self, architecture: architecture_lib.PolicyArchitecture, quantize: int, device: str = "CPU"
    ):
        """Builds the policy.

        Args:
          architecture: its layers.
          quantize: 32, 16 or 8.
          device: CPU, or GPU for 32 and 16 (says so and uses the CPU where torch sees none).
        """
        import torch

        from actorQ import policies

        self._torch = torch
        torch.set_num_threads(1)
        self._device = "cpu"
        if device == "GPU":
            if torch.cuda.is_available():
                self._device = "cuda"
            else:
                logging.warning("torch sees no GPU: inference goes on with the CPU.")
        self._policy = policies.make_policy(architecture, quantize, self._device)
        self._template = policies.StateDictTemplate(self._policy)
        pixels_or_cpu = architecture.pixels or self._device == "cpu"
        self._input_dtype = None if pixels_or_cpu else self._policy.compute_dtype

    def prepare(self, tensors: Mapping[str, messages.Tensor]) -> dict[str, Any]:
        """Returns the state_dict."""
        return self._template.fill(tensors)

    def load(self, prepared: dict[str, Any]) -> None:
        """Loads the state_dict, every key of it."""
        self._policy.load_state_dict(prepared)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """See the protocol."""
        with self._torch.inference_mode():
            batch = self._torch.from_numpy(observation).unsqueeze(0)
            if self._device == "cpu":
                return self._policy(batch)[0].numpy()
            batch = batch.to(self._device, self._input_dtype)
            return self._policy(batch)[0].float().cpu().numpy()


class TensorFlowInference:
    """The reference path: the learner's own Sonnet policy, weights dequantized, fp32 arithmetic."""

    def __init__(self, architecture: architecture_lib.PolicyArchitecture):
        """Builds the policy and compiles it for one observation."""
        import tensorflow as tf

        from actorQ import networks

        for gpu in tf.config.get_visible_devices("GPU"):
            # The learner may need the same GPU.
            tf.config.experimental.set_memory_growth(gpu, True)
        self._policy = networks.Policy(architecture)
        self._call = self._policy.compile_for_one()

    def prepare(self, tensors: Mapping[str, messages.Tensor]) -> dict[str, np.ndarray]:
        """Returns the weights in fp32."""
        return {name: messages.to_float32(tensor) for name, tensor in tensors.items()}

    def load(self, prepared: dict[str, np.ndarray]) -> None:
        """Assigns the weights."""
        self._policy.assign(prepared)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """See the protocol."""
        return self._call(observation[None])[0].numpy()


def make_backend(
    architecture: architecture_lib.PolicyArchitecture,
    quantize: int,
    inference_mode: str = "pytorch",
    device: str = "CPU",
) -> InferenceBackend:
    """Builds the backend that the flags ask for."""
    if inference_mode == "tensorflow":
        return TensorFlowInference(architecture)
    return TorchInference(architecture, quantize, device)


def load_weights(
    backend: InferenceBackend, weights: Mapping[str, np.ndarray], quantize: int
) -> None:
    """Puts fp32 weights (torch names) into a backend at `quantize` bits, as a message would."""
    update = conversion.to_actor_form(weights, 0, quantize)
    backend.load(backend.prepare(conversion.expand(update)))
