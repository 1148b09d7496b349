"""Mixed precision for models of Stable-Baselines3: half the bits where the time goes.

Networks compute forward and backward under torch's autocast. Weights, losses, gradients and the
optimizer stay in fp32, so that a saved agent is like any other. One mechanism serves all
algorithms: it replaces the `forward` of a network, and nothing of the algorithm. It applies to

- dqn: the Q-network in gradient steps, and the target network. The agent acts in fp32: with one
  observation at a time, rounding the weights takes longer than it saves.
- the others: the convolutional extractors (SB3's NatureCNN, with the dense layer at its end) of
  policies that look at images. They act in half precision, too, since they learn from their own
  actions.
"""

from collections.abc import Callable
import functools
from typing import Any

from absl import logging
from stable_baselines3 import dqn
from stable_baselines3.common import base_class
from stable_baselines3.common import torch_layers
import torch

from actorQ.core import errors
from baseline.quantization import names as precision_lib

_DTYPES = {precision_lib.BF16: torch.bfloat16, precision_lib.FP16: torch.float16}


def computes(precision: str, device: torch.device) -> bool:
    """Returns whether a device has instructions for a precision; it emulates others, slowly."""
    if precision == precision_lib.FP32:
        return True
    if device.type == "cuda":
        return precision == precision_lib.FP16 or torch.cuda.is_bf16_supported(
            including_emulation=False
        )
    name = f"_is_mkldnn_{precision}_supported"  # oneDNN answers yes for AVX512 or AMX.
    supported = getattr(torch.ops.mkldnn, name, None)
    return torch.backends.mkldnn.is_available() and supported is not None and supported()


def half_of(device: torch.device) -> str | None:
    """Returns the half precision that a device computes in, bf16 before fp16, or None."""
    halves = (precision_lib.BF16, precision_lib.FP16)
    return next((half for half in halves if computes(half, device)), None)


def check(precision: str, device: torch.device) -> None:
    """Checks that a device takes a precision, and warns if the device emulates it.

    Raises:
      errors.UserError: The device would emulate fp16.
    """
    if precision == precision_lib.FP16 and not computes(precision, device):
        raise errors.UserError(
            "--precision fp16 is for GPUs and for processors with AVX512-FP16, which this one "
            "lacks: choose --precision bf16."
        )
    if not computes(precision, device):
        logging.warning(
            "This device has no instructions for %s, which will be slower than fp32.", precision
        )


def networks(model: base_class.BaseAlgorithm) -> list[torch.nn.Module]:
    """Returns the networks of a model that may compute in half precision."""
    if isinstance(model, dqn.DQN):
        return [model.q_net, model.q_net_target]
    return [
        module for module in model.policy.modules() if isinstance(module, torch_layers.NatureCNN)
    ]


def apply(model: base_class.BaseAlgorithm, precision: str) -> Callable[[], None]:
    """Lets a model train in a precision from now on; see the module.

    Args:
      model: Model that is not in half precision yet.
      precision: One of `precision_lib.NAMES`.

    Returns:
      A function that undoes it.

    Raises:
      errors.UserError: The model cannot train in that precision.
    """
    if precision == precision_lib.FP32:
        return lambda: None
    chosen = networks(model)
    if not chosen:
        raise errors.UserError(
            f"--precision {precision} is for dqn, and for policies that look at images: leave it "
            "out."
        )
    acting = model.q_net if isinstance(model, dqn.DQN) else None
    scale: LossScale | None = None
    if precision == precision_lib.FP16:
        if acting is None:
            raise errors.UserError(
                "--precision fp16 needs scaled losses, which only dqn has: choose bf16."
            )
        scale = LossScale(model.policy.optimizer)
    for network in chosen:
        network.forward = functools.partial(
            _forward, network, type(network).forward, _DTYPES[precision], network is acting, scale
        )

    def undo() -> None:
        for network in chosen:
            network.__dict__.pop("forward", None)
        if scale is not None:
            scale.remove()

    return undo


def _forward(
    network: torch.nn.Module,
    forward: Callable[..., torch.Tensor],
    dtype: torch.dtype,
    acts: bool,
    scale: "LossScale | None",
    observations: torch.Tensor,
) -> torch.Tensor:
    """Computes in half precision, and returns float32; a network that `acts` does so in fp32."""
    if acts and not network.training:
        return forward(network, observations)
    with torch.autocast(observations.device.type, dtype):
        output = forward(network, observations)
    output = output.float()
    if scale is not None and output.requires_grad:
        output.register_hook(scale.scaled)
    return output


class LossScale:
    """Keeps fp16's gradients from vanishing, by the rules of torch's GradScaler.

    GradScaler wants calls in the training loop. Here hooks make them, so that the loop stays SB3's
    own: gradients are multiplied where they enter the network, and divided where they reach the
    weights, before they are clipped. A step whose gradients overflowed changes only the scale.

    Attributes:
      value: Factor of the gradients.
      skipped: Steps that changed only the scale.
    """

    INITIAL = 2.0**16
    GROWTH, BACKOFF = 2.0, 0.5
    GROWTH_INTERVAL = 2000  # Steps without overflow.

    def __init__(self, optimizer: torch.optim.Optimizer):
        """Hooks into the weights of an optimizer, and into its steps."""
        self.value = self.INITIAL
        self.skipped = 0
        self._good_steps = 0
        parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._handles = [weight.register_hook(self._unscaled) for weight in parameters]
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))

    def scaled(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns a gradient on its way into the network."""
        return gradient * self.value

    def remove(self) -> None:
        """Takes the hooks out."""
        for handle in self._handles:
            handle.remove()

    def _unscaled(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / self.value

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        weights = [
            weight for group in optimizer.param_groups for weight in group["params"]
            if weight.grad is not None
        ]
        # A sum of absolute values is finite if all values are. It takes one pass and no copy.
        sums = [torch.linalg.vector_norm(weight.grad, 1) for weight in weights]
        if not sums or bool(torch.isfinite(torch.stack(sums)).all()):
            self._good_steps += 1
            if self._good_steps >= self.GROWTH_INTERVAL:
                self.value *= self.GROWTH
                self._good_steps = 0
            return
        for weight in weights:  # The optimizer leaves weights without gradients alone.
            weight.grad = None
        self.value *= self.BACKOFF
        self.skipped += 1
        self._good_steps = 0
