"""Inference backends of the actor: from a model message to actions, a few observations at a time.

Each backend has the same methods; `make_backend` chooses by `--inference_mode`. The framework of a
backend is imported only when it is chosen. What each precision computes is defined by `reference`.
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

    # The type in which each layer computes, first to last, for the log: "int8", "float32", ...
    types: Mapping[str, str]

    def prepare(self, tensors: Mapping[str, model_update.Tensor]) -> Any:
        """Turns expanded tensors (`conversion.expand`) into what `load` takes ("deserialize").

        May run in another thread than the other methods.
        """

    def load(self, prepared: Any) -> None:
        """Puts new weights into the policy ("load_state_dict")."""

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Computes the policy's output.

        Args:
          observations: float32 [B, D], or pixels uint8 [B, H, W, C], with the B that the backend
            was made for.

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
          architecture: its layers.
          quantize: 32, 16 or 8.
          device: CPU, or GPU for 32 and 16 (says so and uses the CPU where torch cannot).
        """
        import torch

        from actorQ.policy import torch_device
        from actorQ.policy import torch_policy

        self._torch = torch
        self._device = torch_device.choose("inference") if device == "GPU" else "cpu"
        self._policy = torch_policy.make_policy(architecture, quantize, self._device)
        # `prepare` fills the one that does not compute, since packing int8 weights takes torch as
        # long as several steps.
        self._spare = torch_policy.make_policy(architecture, quantize, self._device)
        self.types = torch_policy.executed_types(self._policy)
        self._template = torch_policy.StateDictTemplate(self._policy)
        pixels_or_cpu = architecture.pixels or self._device == "cpu"
        self._input_dtype = None if pixels_or_cpu else self._policy.compute_dtype

    def prepare(self, tensors: Mapping[str, model_update.Tensor]) -> Any:
        """Loads the state_dict, every key of it, into a policy that computes nothing meanwhile.

        What it returns is good until `prepare` is called again.
        """
        self._spare.load_state_dict(self._template.fill(tensors))
        return self._spare

    def load(self, prepared: Any) -> None:
        """Computes with the prepared policy from now on."""
        if prepared is self._spare:
            self._policy, self._spare = self._spare, self._policy

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """See the protocol."""
        with self._torch.inference_mode():
            batch = self._torch.from_numpy(observations)
            if self._device == "cpu":
                return self._policy(batch).numpy()
            batch = batch.to(self._device, self._input_dtype)
            return self._policy(batch).float().cpu().numpy()


class NativeInference:
    """Our kernels in C, at 32, 16, 8 or 4 bits, with one thread; see `actorQ.policy.native`."""

    def __init__(
        self, architecture: architecture_lib.PolicyArchitecture, quantize: int, batch: int = 1
    ):
        """Lays out the network.

        Raises:
          errors.UserError: the kernels were not built.
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
        """Takes the packed weights instead of the old ones."""
        self._weights = prepared

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """See the protocol."""
        return self._network(self._weights, observations)


class TensorFlowInference:
    """The reference path: the learner's own Sonnet policy, weights dequantized, fp32 arithmetic."""

    def __init__(
        self,
        architecture: architecture_lib.PolicyArchitecture,
        batch: int = 1,
        device: str = "CPU",
    ):
        """Builds the policy and compiles it for so many observations, on CPU or GPU."""
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
        """See the protocol."""
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
      architecture: layers of the policy.
      quantize: 32, 16, 8 or 4 (4: not with pytorch).
      inference_mode: one of `config.INFERENCE_MODES`.
      device: CPU, or GPU for pytorch at 32 and 16, and for tensorflow.
      batch: observations of one call.
    """
    if inference_mode == "tensorflow":
        return TensorFlowInference(architecture, batch, device)
    if inference_mode == "native":
        return NativeInference(architecture, quantize, batch)
    return TorchInference(architecture, quantize, device)


def load_weights(
    backend: InferenceBackend, weights: Mapping[str, np.ndarray], quantize: int
) -> None:
    """Puts fp32 weights (torch names) into a backend at `quantize` bits, as a message would."""
    update = forms.to_actor_form(weights, 0, quantize)
    backend.load(backend.prepare(forms.expand(update)))
