"""Distillation: quantized weights learn the actions of full precision in the states they meet.

Rusu et al., Policy Distillation (arXiv:1511.06295): a student learns what a teacher does in visited
states. Here the student is the policy itself with quantized weights. They learn with their biases
and with the steps of their levels (LSQ, see `learned_steps`); no reward enters their loss:

    continuous:  mean square of the change of the action, in units of its range
    discrete:    KL(softmax(q / t), softmax(q' / t)), with q and q' the outputs of teacher and
                 student, and t the median lead of the teacher's best output; the paper has a
                 constant t

A student makes mistakes, which bring it to states that its teacher never meets. So it plays after
each round, and these states join the others, with the teacher's actions (Ross et al., DAgger,
arXiv:1011.0686). Rounds end once the student's episodes return as much as full precision's, from
the same starts. Otherwise the round that returned most is kept, as DAgger keeps its best policy.
"""

from collections.abc import Callable
import copy
import functools
from typing import NamedTuple

from absl import logging
import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import learned_steps
from baseline.quantization.methods import grids
from baseline.quantization.methods import layers as layers_lib
from baseline.quantization.methods import steps as steps_lib

ROUNDS = 10  # There are no more rounds than these.
STEPS = 2000  # Each round has so many updates.
_BATCH, _IMAGES = 256, 32  # An update sees so many states, or images.
# Adam's rate for weights and biases is a share of the distance between levels. It falls to 0 in
# each round, as a cosine. Ten times as much ended in policies whose actions no longer change.
_RATE = 0.02
_RATE_OF_STEPS = 0.01  # This one is for the logarithms of these distances.


class Played(NamedTuple):
    """Some episodes of the student.

    Attributes:
      states: Normalized observations that it met, [N, ...].
      mean_return: Mean return of the episodes.
    """

    states: np.ndarray
    mean_return: float


Play = Callable[[], Played]  # It plays the network as it is now, always from the same starts.


class _Kept(NamedTuple):
    """A layer of the student, as it was after a round."""

    ends: layers_lib.Ends
    weight: np.ndarray
    bias: torch.Tensor | None


def choose(steps: steps_lib.Steps, play: Play) -> None:
    """Quantizes all layers of a network.

    Args:
      steps: The network; its biases change, too.
      play: Plays it.
    """
    wanted = play().mean_return
    student = _Student(steps)
    states, aims = [], []
    new, most, best = steps.states, -np.inf, student.layers()
    for number in range(1, ROUNDS + 1):
        states.append(torch.as_tensor(new))
        aims.append(acting_path.forward(steps.full, new).clone())
        student.learn(torch.cat(states), torch.cat(aims))
        now = student.layers()
        _write(steps, now)
        new, mean_return = play()
        logging.info(
            "Round %d of at most %d: the student returns %.6g, full precision %.6g.",
            number, ROUNDS, mean_return, wanted,
        )
        if mean_return > most:
            most, best = mean_return, now
        if mean_return >= wanted:
            break
    _write(steps, best)


def _write(steps: steps_lib.Steps, found: list[_Kept]) -> None:
    for layer, kept in zip(steps.made, found, strict=True):
        layer.ends = kept.ends
        layer.grid = grids.make(layer.layout, *kept.ends, steps.bits, steps.nearest)
        layer.write(layer.grid.values(kept.weight))
        if kept.bias is not None and layer.module.bias is not None:
            with torch.no_grad():
                layer.module.bias.copy_(kept.bias)


class _Weights(nn.Module):
    """Makes a layer's weights of latent ones: quantized, and back in the layer's own basis.

    Attributes:
      latent: Weights that learn, float32 [rows, columns]; in the basis that is quantized.
      quantizer: Quantizes them.
    """

    def __init__(self, layer: layers_lib.Layer, bits: int):
        super().__init__()
        self._layer = layer
        layout = layer.layout
        self.quantizer = learned_steps.LearnedWeightFakeQuantizer(
            layer.name, bits, layout.num_units if layout.by_row else None, axes=1
        )
        self.latent = nn.Parameter(torch.from_numpy(layer.weight.copy()))
        self.quantizer.start_from(self._units(self.latent))

    def forward(self, original: torch.Tensor) -> torch.Tensor:
        """Returns weights in the layer's shape, in place of its original ones."""
        layout, basis = self._layer.layout, self._layer.basis
        matrix = self.quantizer.quantize(self._units(self.latent))
        matrix = matrix.reshape(layout.rows, -1)[:, : layout.columns]
        if basis.scales is not None:
            matrix = matrix / torch.from_numpy(basis.scales)
        if basis.rotation is not None:
            matrix = matrix @ torch.from_numpy(basis.rotation).T
        return matrix.reshape(original.shape)

    def ends(self) -> layers_lib.Ends:
        """Returns the ranges of all units."""
        low, high = self.quantizer.ends(self.quantizer.low)  # Learned steps alone decide.
        return low.reshape(-1).numpy(), high.reshape(-1).numpy()

    def step(self) -> float:
        """Returns the mean over units of the step between levels."""
        return float(self.quantizer.learned.detach().exp().mean())

    def _units(self, matrix: torch.Tensor) -> torch.Tensor:
        layout = self._layer.layout
        if not layout.by_row:
            return matrix.reshape(1, -1)
        size = layout.group_size or layout.columns
        return functional.pad(matrix, (0, -layout.columns % size)).reshape(-1, size)


class _Student:
    """A copy of a network whose quantized weights learn."""

    def __init__(self, steps: steps_lib.Steps):
        """Starts from the weights in full precision."""
        self._network = steps.full._replace(layers=copy.deepcopy(steps.full.layers))
        self._tap = None if steps.tap is None else _with_gradients(steps.tap)
        self._generator = torch.Generator().manual_seed(0)
        modules = dict(self._network.with_weights())
        self._layers = []
        for layer in steps.made:
            module, weights = modules[layer.name], _Weights(layer, steps.bits)
            parametrize.register_parametrization(module, "weight", weights)
            self._layers.append((module, weights))

    def learn(self, states: torch.Tensor, aims: torch.Tensor) -> None:
        """Learns for one round.

        Args:
          states: Normalized observations [N, ...].
          aims: Outputs of full precision there, float32 [N, A].
        """
        groups = []
        for module, weights in self._layers:
            own = [weights.latent, *([] if module.bias is None else [module.bias])]
            groups.append({"params": own, "lr": _RATE * weights.step()})
            groups.append({"params": [weights.quantizer.learned], "lr": _RATE_OF_STEPS})
        optimizer = torch.optim.Adam(groups)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        loss = _loss(self._network, aims)
        size = _IMAGES if self._network.image else _BATCH
        for _ in range(STEPS):
            batch = torch.randint(len(states), (size,), generator=self._generator)
            optimizer.zero_grad()
            found = acting_path.outputs(self._network, states[batch], self._tap)
            loss(found, aims[batch]).backward()
            optimizer.step()
            schedule.step()

    def layers(self) -> list[_Kept]:
        """Returns a copy of what was learned."""
        return [
            _Kept(
                weights.ends(),
                weights.latent.detach().numpy().copy(),
                None if module.bias is None else module.bias.detach().clone(),
            )
            for module, weights in self._layers
        ]


def _with_gradients(tap: acting_path.Tap) -> acting_path.Tap:
    return lambda name, x: _straight_through(x, tap(name, x.detach()))


def _straight_through(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Returns `values`, whose gradients pass to `x` unchanged."""
    return x + (values - x).detach()


def _loss(
    network: acting_path.PolicyNetwork, aims: torch.Tensor
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns the loss of outputs, given those of full precision, both float32 [B, A].

    Args:
      network: The acting path.
      aims: All outputs of full precision, float32 [N, A], of which temperatures are made.
    """
    if network.low is None or network.high is None:
        split = functools.partial(acting_path.choices, network)
        temperatures = [_temperature(part) for part in split(aims)]
        return lambda found, aim: torch.stack([
            functional.kl_div(
                (now / t).log_softmax(1), (wanted / t).softmax(1), reduction="batchmean"
            )
            for now, wanted, t in zip(split(found), split(aim), temperatures, strict=True)
        ]).sum()
    if network.head == "scale":
        return lambda found, aim: (0.5 * (found - aim)).square().mean()
    low, high = torch.from_numpy(network.low), torch.from_numpy(network.high)
    width = torch.where((high - low).isfinite() & (high > low), high - low, 1.0)
    # Outputs beyond the limits still learn, if full precision's action is another.
    return lambda found, aim: (
        (_straight_through(found, found.clamp(low, high)) - aim.clamp(low, high)) / width
    ).square().mean()


def _temperature(outputs: torch.Tensor) -> float:
    """Returns the median lead of the best output, 1 where there is none."""
    first, second = outputs.topk(2, dim=1).values.unbind(1)
    lead = first - second
    lead = lead[(lead > 0) & (lead < acting_layers.FAR)]
    return float(lead.median()) if len(lead) else 1.0
