"""Our own method: ranges and roundings for the least change of the action in visited states.

All other methods keep weights, or outputs of single layers, close to full precision. But a policy
is as good if it acts as well. So each layer tries several ranges, rounded to the nearest integer
and by GPTQ, and keeps the one with which the whole policy's actions change least:

    continuous:  d = mean square of the change of the action, in units of its range
    discrete:    d = share of the states with another action, plus the mean of (q_b - q_a) / s, with
                 q the outputs in full precision, b the action in full precision, a the action now,
                 and s the size of the differences of outputs

The second term of a discrete action is the loss that full precision predicts for the other action.
The mean square change of the differences, in units of s, decides between equal candidates. It
counts a tenth. While a layer is chosen, those behind it are quantized by `mse` and GPTQ, so that
they take up what they can of its error.
"""

import numpy as np
import torch

from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import recipes
from baseline.quantization.methods import layers as layers_lib
from baseline.quantization.methods import steps as steps_lib

FACTORS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3)  # Of the extremes; 1 is tried as well.
_STATES, _IMAGES = 2048, 256  # States in which actions are compared, evenly thinned.
_OF_OUTPUTS = 0.1  # Weight of changed outputs beside changed actions.


class Change:
    """Measures how far outputs change the action, beside full precision's."""

    def __init__(self, network: acting_path.PolicyNetwork, wanted: np.ndarray):
        """Takes the acting path's head, and its outputs in full precision, float32 [N, A]."""
        self._network = network
        self._wanted = wanted

    def __call__(self, found: np.ndarray) -> float:
        """Returns d for other outputs in the same states, float32 [N, A]; 0: no change."""
        network, wanted = self._network, self._wanted
        if network.low is None or network.high is None:
            both = (
                acting_path.choices(network, torch.from_numpy(one)) for one in (wanted, found)
            )
            return sum(
                _order_changed(aim.numpy(), now.numpy()) for aim, now in zip(*both, strict=True)
            )
        actions = acting_path.to_actions(network, found) - acting_path.to_actions(network, wanted)
        width = network.high - network.low
        width = np.where(np.isfinite(width) & (width > 0), width, 1.0)
        return float(np.square(actions / width, dtype=np.float64).mean())


def choose(steps: steps_lib.Steps) -> None:
    """Quantizes all layers of a network.

    Raises:
      errors.UserError: A layer has no bias to correct.
    """
    few = _thinned(steps.states, _IMAGES if steps.network.image else _STATES)
    change = Change(steps.network, acting_path.forward(steps.full, few).numpy())
    usual = [steps.ends(layer, recipes.MSE) for layer in steps.made]
    for number, layer in enumerate(steps.made):
        least = np.inf
        best: tuple[layers_lib.Ends, str | None] = usual[number], recipes.GPTQ
        for ends in _candidates(steps, layer, usual[number]):
            for rounding in (recipes.GPTQ, None):
                steps.quantize(layer, ends, rounding)
                for later, its_ends in zip(
                    steps.made[number + 1 :], usual[number + 1 :], strict=True
                ):
                    steps.quantize(later, its_ends, recipes.GPTQ)
                found = change(steps.outputs(few))
                if found < least:
                    least, best = found, (ends, rounding)
        steps.quantize(layer, *best)


def _candidates(
    steps: steps_lib.Steps, layer: layers_lib.Layer, usual: layers_lib.Ends
) -> list[layers_lib.Ends]:
    low, high = steps.ends(layer, recipes.MINMAX)
    return [usual, (low, high), *((factor * low, factor * high) for factor in FACTORS)]


def _thinned(states: np.ndarray, limit: int) -> np.ndarray:
    return states[:: -(-len(states) // limit)]


def _order_changed(wanted: np.ndarray, found: np.ndarray) -> float:
    """Returns d of one discrete action, whose outputs are [N, A]."""
    best = wanted.argmax(axis=1)[:, None]
    now = found.argmax(axis=1)[:, None]
    far = acting_layers.FAR
    lead, new_lead = (
        np.clip(np.asarray(one, np.float64) - np.take_along_axis(one, best, axis=1), -far, far)
        for one in (wanted, found)
    )
    real = np.abs(lead) < far
    size = np.sqrt(np.square(lead[real]).mean())
    if size == 0:
        size = 1.0
    lost = -np.take_along_axis(lead, now, axis=1).mean() / size
    moved = np.square((new_lead - lead)[real] / size).mean()
    return float((now != best).mean() + lost + _OF_OUTPUTS * moved)
