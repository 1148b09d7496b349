"""Post-training quantization in its simulated form: quantize, dequantize, compute in fp32.

Weights of the acting path are quantized as in the paper (arXiv:1910.01055, sec. 3). Biases stay in
fp32, as in the original code. Activations may be quantized too, with ranges from `calibration`.
The formulas are those of `actorQ.policy.quantization`.
"""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import acting_path
from baseline.quantization import names
from baseline.quantization import recipes

FP32 = names.FP32
HALF_TYPES = names.HALVES
SCHEMES = WEIGHTS, WEIGHTS_AND_ACTIVATIONS = names.SCHEMES
PAPER, CHANNEL = names.GRANULARITIES

FILENAME = "quantization.json"  # Beside a quantized agent.

# Smallest and largest number of each layer, then the bits if they differ from the scheme's.
Ranges = Mapping[str, tuple[float, ...]]
# People write "8", and also "int8", "8bit", "8 bits" and "8-bit".
_WIDTH = re.compile(
    rf"(?P<type>{'|'.join((FP32, *HALF_TYPES))})|(?:int)?(?P<bits>\d{{1,4}})(?:[ -]?bits?)?"
)


def parse_bits(text: str) -> str:
    """Returns the canonical name of a width: "fp32", "fp16", "bf16", or "2" to "32".

    Raises:
      errors.UserError: There is no such width.
    """
    match = _WIDTH.fullmatch(text.strip().lower())
    if match and match["type"]:
        return match["type"]
    if match and quantization.MIN_BITS <= int(match["bits"]) <= quantization.MAX_BITS:
        return str(int(match["bits"]))
    raise errors.UserError(
        f"Cannot quantize to {text!r} bits: possible are {quantization.MIN_BITS} to "
        f"{quantization.MAX_BITS}, fp16 and bf16."
    )


@dataclasses.dataclass(frozen=True)
class Scheme:
    """Says how a policy is quantized.

    Attributes:
      bits: "fp32", "fp16", "bf16", or "2" to "32".
      scheme: "weights" (the paper's) or "weights+activations".
      granularity: "paper" (one scale for a linear layer's weights, one for each output channel of
        a convolution) or "channel" (one for each output of both).
      rounding: "nearest", or "floor" as the paper prints.
      method: How weights are quantized, a name of `recipes.parse`; "minmax" is the paper's.
      group_size: Inputs of an output that share a scale; 0: all of them.
    """

    bits: str
    scheme: str = WEIGHTS
    granularity: str = PAPER
    rounding: quantization.Rounding = "nearest"
    method: str = recipes.MINMAX
    group_size: int = 0

    @property
    def activations(self) -> bool:
        """Says whether activations are quantized too."""
        return self.scheme == WEIGHTS_AND_ACTIVATIONS

    @property
    def calibrates(self) -> bool:
        """Says whether `methods.pipeline` quantizes the weights, with calibration states."""
        return self.method != recipes.MINMAX or self.group_size > 0

    @property
    def width(self) -> int | None:
        """Bits of the integers, or None where the numbers stay floats."""
        return int(self.bits) if self.bits.isdecimal() else None


class StoredWeights(NamedTuple):
    """A quantized tensor.

    Attributes:
      reals: float32 numbers for which the integers (or halves) stand.
      num_bytes: Bytes of the packed integers with their scales (float32) and zero points.
    """

    reals: np.ndarray
    num_bytes: int


def quantize_array(weights: np.ndarray, scheme: Scheme, per_channel: bool) -> StoredWeights:
    """Quantizes and dequantizes one tensor, output channel first.

    Numbers beyond fp16's range become its largest number.

    Raises:
      errors.UserError: The tensor holds NaN or infinity.
    """
    if not np.all(np.isfinite(weights)):
        raise errors.UserError("The policy's weights hold NaN or infinity: it cannot be quantized.")
    if scheme.bits == FP32:
        return StoredWeights(weights.astype(np.float32), 4 * weights.size)
    if scheme.bits in HALF_TYPES:
        return StoredWeights(round_to_half(weights, scheme.bits), 2 * weights.size)
    width = int(scheme.bits)
    quantized = quantization.quantize_affine(weights, width, scheme.rounding, per_channel)
    per_scale = 4 + -(-width // 8)
    num_bytes = -(-width * weights.size // 8) + per_scale * quantized.scale.size
    return StoredWeights(quantization.dequantize(quantized), num_bytes)


def round_to_half(numbers: np.ndarray, half: str) -> np.ndarray:
    """Returns float32 rounded to "fp16" or "bf16"."""
    if half == "bf16":
        return quantization.from_bfloat16(quantization.to_bfloat16(numbers))
    return quantization.to_float16(numbers).astype(np.float32)


def quantizes_by_channel(module: acting_path.WithWeights, scheme: Scheme) -> bool:
    """Returns whether each output of a layer has a scale of its own."""
    return scheme.granularity == CHANNEL or isinstance(module, nn.Conv2d)


def integers(
    name: str, module: acting_path.WithWeights, scheme: Scheme, bits: int
) -> quantization.QuantizedTensor:
    """Returns the integers of a layer's weights.

    Args:
      name: Name of the layer.
      module: The layer.
      scheme: Decides which weights share a scale, and the rounding.
      bits: Width of the integers, which may differ from the scheme's for a convolution.

    Raises:
      errors.UserError: The weights hold NaN or infinity, or their range exceeds float32's.
    """
    weights = module.weight.detach().cpu().numpy()
    by_channel = quantizes_by_channel(module, scheme)
    try:
        return quantization.quantize_affine(weights, bits, scheme.rounding, by_channel)
    except ValueError as error:
        raise errors.UserError(f"Weights of {name}: {error}") from None


def quantize_weights(network: acting_path.PolicyNetwork, scheme: Scheme) -> int:
    """Replaces the weights of the acting path by their quantized values, in place.

    Returns:
      Bytes of the acting path's parameters as they would be stored: packed weights, scales, zero
      points, and biases in fp32.

    Raises:
      ValueError: The scheme's method needs calibration states.
    """
    if scheme.calibrates:
        raise ValueError(f"{scheme} needs calibration states: see methods.pipeline.")
    num_bytes = 0
    for _, module in network.layers:
        if not isinstance(module, acting_path.WITH_WEIGHTS):  # LayerNorm stays in fp32.
            num_bytes += 4 * sum(parameter.numel() for parameter in module.parameters())
            continue
        stored = quantize_array(
            module.weight.detach().numpy(), scheme, quantizes_by_channel(module, scheme)
        )
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(stored.reals))
        num_bytes += stored.num_bytes
        if module.bias is not None:
            num_bytes += 4 * module.bias.numel()
    return num_bytes


class ActivationQuantizer:
    """An `acting_path.Tap` that quantizes activations with a range, or rounds all to halves."""

    def __init__(self, scheme: Scheme, ranges: Ranges):
        """Prepares the maps.

        Args:
          scheme: A scheme with activations.
          ranges: Smallest and largest number seen, by layer (`calibration.ranges`).

        Raises:
          errors.UserError: A range holds NaN or infinity.
        """
        self._half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(scheme.bits)
        self._round = torch.floor if scheme.rounding == "floor" else torch.round
        self._maps: dict[str, tuple[torch.Tensor, int, int]] = {}
        if scheme.width is None:
            return
        # Weights are treated alike: float32 cannot tell 2^24 neighbours apart.
        self._work = torch.float32 if scheme.width <= 16 else torch.float64
        for name, (low, high, *own) in ranges.items():
            bits = int(own[0]) if own else scheme.width
            try:
                delta, zero = quantization.affine_map(low, high, bits, scheme.rounding)
            except ValueError as error:
                raise errors.UserError(f"Activations of {name}: {error}") from None
            self._maps[name] = (
                torch.tensor(float(delta), dtype=self._work),
                -int(zero),
                2**bits - 1 - int(zero),
            )

    def __call__(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Returns `x`, float32, quantized and dequantized."""
        if self._half is not None:
            largest = torch.finfo(self._half).max
            return x.clamp(-largest, largest).to(self._half).float()
        if name not in self._maps:
            return x
        delta, smallest, largest = self._maps[name]
        steps = self._round(x.to(self._work) / delta).clamp_(smallest, largest)
        return (steps * delta).float()


def to_json(scheme: Scheme, ranges: Ranges | None) -> dict[str, Any]:
    """Returns the facts with which a stored quantized agent acts again as it was measured."""
    return {
        **dataclasses.asdict(scheme),
        "ranges": None if ranges is None else {name: list(r) for name, r in ranges.items()},
    }


def from_json(facts: Mapping[str, Any]) -> tuple[Scheme, Ranges | None]:
    """Reads the facts that `to_json` wrote.

    Raises:
      errors.UserError: The facts are damaged.
    """
    try:
        # Agents of earlier versions tell no method.
        known = {"method": recipes.MINMAX, "group_size": 0, **facts}
        scheme = Scheme(**{f.name: known[f.name] for f in dataclasses.fields(Scheme)})
        ranges = facts["ranges"]
        if (
            parse_bits(scheme.bits) != scheme.bits
            or scheme.scheme not in SCHEMES
            or scheme.granularity not in names.GRANULARITIES
            or scheme.rounding not in quantization.ROUNDINGS
            or recipes.parse(scheme.method) != scheme.method
            or not isinstance(scheme.group_size, int) or scheme.group_size < 0
        ):
            raise ValueError(str(scheme))
        if scheme.activations != (ranges is not None):
            raise ValueError("ranges do not fit the scheme")
        if ranges is not None:
            ranges = {
                str(name): (float(low), float(high), *map(_width, own))
                for name, (low, high, *own) in ranges.items()
            }
    except (
        KeyError, TypeError, ValueError, OverflowError, AttributeError, errors.UserError
    ) as error:
        raise errors.UserError(
            f"What an agent says of its quantization is damaged: {error}."
        ) from None
    return scheme, ranges


def _width(bits: int) -> int:
    if not quantization.MIN_BITS <= bits <= 16:
        raise ValueError(f"{bits!r} bits")
    return int(bits)
