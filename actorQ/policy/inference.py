"""Inference backends of the actor: they compute actions for a few observations at a time.

All backends have the same methods, and `make_backend` chooses one by `--inference_mode`. The
framework of a backend is imported only when it is chosen. `reference` defines the results at each
precision.
"""

from collections.abc import Mapping
import os
from typing import Any
from typing import Protocol

from absl import logging
import numpy as np

from actorQ.core import precisions
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import model_update


class InferenceBackend(Protocol):
    """Computes the policy for an actor (or for evaluation)."""

    @property
    def types(self) -> Mapping[str, str]:
        """The type in which each layer computes, first to last: "int8", "float32", ..."""

    def prepare(self, tensors: Mapping[str, model_update.Tensor]) -> Any:
        """Turns expanded tensors (`forms.expand`) into the argument of `load` ("deserialize").

        It may run in another thread than the other methods.
        """

    def load(self, prepared: Any) -> None:
        """Puts new weights into the policy ("load_state_dict")."""

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Computes the policy's output.

        Args:
          observations: float32 [B, D], or pixels uint8 [B, H, W, C]. B is the batch that the
            backend was made for.

        Returns:
          float32 [B, num_outputs].
        """


def use_one_thread(inference_mode: str) -> None:
    """Makes the framework of a backend compute with one thread in this whole process.

    Programs call this at their start, before anything imports TensorFlow: in a run, the other
    cores belong to the learner and to other actors. The native kernels have one thread anyway.

    Args:
      inference_mode: One of `config.INFERENCE_MODES`.
    """
    if inference_mode == "pytorch":
        import torch

        torch.set_num_threads(1)
    elif inference_mode == "tensorflow":
        for pool in ("INTRA", "INTER"):
            os.environ.setdefault(f"TF_NUM_{pool}OP_THREADS", "1")


class TorchInference:
    """torch at 32, 16 or 8 bits, on a CPU or a GPU."""

    def __init__(
        self, architecture: architecture_lib.PolicyArchitecture, quantize: int, device: str = "CPU"
    ):
        """Builds the policy.

        Args:
          architecture: Layers of the policy.
          quantize: 32, 16 or 8.
          device: CPU, or GPU for 32 and 16. Where torch cannot use a GPU, it logs that and uses
            the CPU.
        """
        import torch

        from actorQ.policy import torch_device
        from actorQ.policy import torch_policy

        self._torch = torch
        self._device = torch_device.choose("inference") if device == "GPU" else "cpu"
        self._policy = torch_policy.make_policy(architecture, quantize, self._device)
        # `prepare` fills a second policy in the background: packing int8 weights takes torch as
        # long as several steps.
        self._spare = torch_policy.make_policy(architecture, quantize, self._device)
        self.types = torch_policy.executed_types(self._policy)
        self._template = torch_policy.StateDictTemplate(self._policy)
        pixels_or_cpu = architecture.pixels or self._device == "cpu"
        self._input_dtype = None if pixels_or_cpu else self._policy.compute_dtype

    def prepare(self, tensors: Mapping[str, model_update.Tensor]) -> Any:
        """Loads every key of the state_dict into the spare policy, which computes nothing.

        The result can be used until `prepare` is called again.
        """
        self._spare.load_state_dict(self._template.fill(tensors))
        return self._spare

    def load(self, prepared: Any) -> None:
        """Swaps the prepared policy in."""
        if prepared is self._spare:
            self._policy, self._spare = self._spare, self._policy

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Computes the policy's output; see `InferenceBackend`."""
        with self._torch.inference_mode():
            batch = self._torch.from_numpy(observations)
            if self._device == "cpu":
                return self._policy(batch).numpy()
            batch = batch.to(self._device, self._input_dtype)
            return self._policy(batch).float().cpu().numpy()


class NativeInference:
    """Our kernels in C, at 32, 16, 8, 4 or 3 bits, with one thread; see `actorQ.policy.native`."""

    def __init__(
        self, architecture: architecture_lib.PolicyArchitecture, quantize: int, batch: int = 1
    ):
        """Lays out the network.

        Raises:
          errors.UserError: The kernels were not built.
        """
        from actorQ.policy.native import library

        self._network = library.Network(architecture, precisions.SCHEMES[quantize], batch)
        self._weights: Any = None
        self.types = self._network.types
        logging.info("Native kernels for %s.", self._network.isa)

    def prepare(self, tensors: Mapping[str, model_update.Tensor]) -> Any:
        """Packs the weights."""
        return self._network.pack(tensors)

    def load(self, prepared: Any) -> None:
        """Replaces the old weights by the packed ones."""
        self._weights = prepared

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Computes the policy's output; see `InferenceBackend`."""
        return self._network(self._weights, observations)


class TensorFlowInference:
    """The reference path: the learner's own Sonnet policy in fp32, with dequantized weights."""

    def __init__(
        self,
        architecture: architecture_lib.PolicyArchitecture,
        batch: int = 1,
        device: str = "CPU",
    ):
        """Builds the policy and compiles it for `batch` observations, on CPU or GPU."""
        from actorQ.policy import sonnet_policy
        from actorQ.policy import tensorflow_device

        tensorflow_device.choose(device == "GPU", "inference")
        self._policy = sonnet_policy.Policy(architecture)
        self._call = self._policy.compile_for(batch)
        self.types = dict.fromkeys(architecture.layer_names, "float32")

    def prepare(self, tensors: Mapping[str, model_update.Tensor]) -> dict[str, np.ndarray]:
        """Returns the weights in fp32."""
        return {name: model_update.to_float32(tensor) for name, tensor in tensors.items()}

    def load(self, prepared: dict[str, np.ndarray]) -> None:
        """Assigns the weights."""
        self._policy.assign(prepared)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Computes the policy's output; see `InferenceBackend`."""
        return self._call(observations).numpy()


def make_backend(
    architecture: architecture_lib.PolicyArchitecture,
    quantize: int,
    inference_mode: str = "pytorch",
    device: str = "CPU",
    batch: int = 1,
) -> InferenceBackend:
    """Builds the backend that the flags ask for.

    Args:
      architecture: Layers of the policy.
      quantize: 32, 16, 8, 4 or 3 (4 and 3 do not work with pytorch).
      inference_mode: One of `config.INFERENCE_MODES`.
      device: CPU, or GPU for pytorch at 32 and 16 bits and for tensorflow.
      batch: Observations in one call.
    """
    if inference_mode == "tensorflow":
        return TensorFlowInference(architecture, batch, device)
    if inference_mode == "native":
        return NativeInference(architecture, quantize, batch)
    return TorchInference(architecture, quantize, device)


def load_weights(
    backend: InferenceBackend, weights: Mapping[str, np.ndarray], quantize: int
) -> None:
    """Loads fp32 weights with torch's names into a backend at `quantize` bits, as an actor does."""
    update = forms.to_actor_form(weights, 0, quantize)
    backend.load(backend.prepare(forms.expand(update)))
