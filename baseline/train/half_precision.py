"""Mixed precision for models of Stable-Baselines3: half the bits where the time goes.

Networks compute forward and backward under torch's autocast; weights, losses, gradients and the
optimizer stay in fp32. So a saved agent is what it would be without. One mechanism serves all
algorithms: the `forward` of a network is replaced, nothing of the algorithm's.

- dqn: the Q-network in gradient steps, and the target network. It acts in fp32: with one
  observation at a time, rounding the weights takes longer than it saves.
- a2c, ppo, ddpg: the convolutional extractors (SB3's NatureCNN, with the dense layer at its end)
  of policies that look at images, acting included, since these learn from what they did.
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
    """Returns whether a device has instructions for a precision; else it is emulated, slowly."""
    if precision == precision_lib.FP32:
        return True
    if device.type == "cuda":
        return precision == precision_lib.FP16 or torch.cuda.is_bf16_supported(
            including_emulation=False
        )
    name = f"_is_mkldnn_{precision}_supported"  # oneDNN's own answer: AVX512 or AMX.
    supported = getattr(torch.ops.mkldnn, name, None)
    return torch.backends.mkldnn.is_available() and supported is not None and supported()


def half_of(device: torch.device) -> str | None:
    """Returns the half precision that a device computes in, bf16 before fp16, or None."""
    halves = (precision_lib.BF16, precision_lib.FP16)
    return next((half for half in halves if computes(half, device)), None)


def check(precision: str, device: torch.device) -> None:
    """Checks that a device can be asked for a precision.

    Raises:
      errors.UserError: it cannot.
    """
    if precision == precision_lib.FP16 and not computes(precision, device):
        raise errors.UserError(
            "--precision fp16 is for GPUs, and processors with AVX512-FP16, which this one has "
            "not: --precision bf16."
        )
    if not computes(precision, device):
        logging.warning(
            "This device has no instructions for %s: it will be slower than fp32.", precision
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
      model: not in half precision yet.
      precision: one of `precision_lib.NAMES`.

    Returns:
      What takes it back.

    Raises:
      errors.UserError: the model is not one for that precision.
    """
    if precision == precision_lib.FP32:
        return lambda: None
    chosen = networks(model)
    is_dqn = isinstance(model, dqn.DQN)
    if not chosen:
        raise errors.UserError(
            f"--precision {precision} is for dqn, and for policies that look at images: leave it "
            "out."
        )
    scale: LossScale | None = None
    if precision == precision_lib.FP16:
        if not is_dqn:
            raise errors.UserError(
                "--precision fp16 needs losses to be scaled, which is for dqn alone: bf16."
            )
        scale = LossScale(model.policy.optimizer)
    for network in chosen:
        acts = is_dqn and network is model.q_net
        network.forward = functools.partial(
            _forward, network, type(network).forward, _DTYPES[precision], acts, scale
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
    """Computes a network's output in half precision, float32 again at its end.

    Args:
      network: itself.
      forward: of its class.
      dtype: to compute in.
      acts: whether it computes in fp32 while it acts, out of training mode.
      scale: of its gradients; None: as they are.
      observations: its input.
    """
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

    What the GradScaler asks of a training loop happens in hooks, so that the loop is SB3's own:
    gradients are multiplied where they enter the network, and divided where they reach the
    weights, before they are clipped. A step with gradients that overflowed changes nothing but the
    scale.

    Attributes:
      value: gradients are multiplied by it.
      skipped: steps that changed nothing.
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
        # A sum of absolute values is finite if all are: one pass, no copy.
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
