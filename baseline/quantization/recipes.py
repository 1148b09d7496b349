"""Names of post-training methods, and which of them go together. Imports no framework."""

import dataclasses

from actorQ.core import errors

MINMAX = "minmax"
MSE, PERCENTILE = "mse", "percentile"
SMOOTH, AWQ, HADAMARD = "smooth", "awq", "hadamard"
GPTQ, ADAROUND = "gptq", "adaround"
BIAS_CORRECTION, ACTION, DISTILL = "bias-correction", "action", "distill"
AUTO = "auto"  # Chosen by agreement, see `baseline.agents.post_training`.
RANGES = MINMAX, MSE, PERCENTILE
TRANSFORMS = SMOOTH, AWQ, HADAMARD
ROUNDINGS = GPTQ, ADAROUND
METHODS = (*RANGES, *TRANSFORMS, *ROUNDINGS, BIAS_CORRECTION, ACTION, DISTILL)
# Methods among which `auto` chooses. Of equals the first counts, so the cheaper stand first.
# `action` tries minmax itself, layer by layer.
CANDIDATES = (
    "gptq,bias-correction", "action", "bias-correction,action", "smooth,bias-correction,action",
    "hadamard,action", "hadamard,bias-correction,action",
)
MAX_BITS = 16  # Wider integers leave nothing to choose.


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Says what happens to a network, in the order of these attributes.

    Attributes:
      transform: "smooth", "awq" or "hadamard"; None: weights stay as they are.
      ranges: "minmax", "mse", "percentile", "action" or "distill".
      rounding: "gptq", "adaround", "action" or "distill"; None: to the nearest integer.
      bias_correction: Whether biases take up the mean error of a layer's output.
    """

    transform: str | None = None
    ranges: str = MINMAX
    rounding: str | None = None
    bias_correction: bool = False


def parse(text: str, flag: str = "method") -> str:
    """Returns the canonical name of a method or of several: "mse,bias-correction", or "auto".

    Raises:
      errors.UserError: A name is not known, or the methods exclude each other.
    """
    parts = [part.strip().lower() for part in text.split(",")]
    unknown = [part for part in parts if part not in (*METHODS, AUTO)]
    if unknown:
        raise errors.UserError(
            f"--{flag}={text!r} names {unknown[0]!r}: possible are {', '.join(METHODS)} (several "
            f"with commas), and {AUTO}."
        )
    if AUTO in parts and len(parts) > 1:
        raise errors.UserError(
            f"--{flag}={text!r}: {AUTO} chooses the methods itself, so that it stands alone."
        )
    if parts == [AUTO]:
        return AUTO
    for kind, members in (
        ("range of weights", (*RANGES, ACTION, DISTILL)), ("transformation", TRANSFORMS),
        ("rounding", (*ROUNDINGS, ACTION, DISTILL)), ("biases", (BIAS_CORRECTION, DISTILL)),
    ):
        found = list(dict.fromkeys(part for part in parts if part in members))
        if len(found) > 1:
            raise errors.UserError(
                f"--{flag}={text!r}: {' and '.join(found)} each choose the {kind}, so that only "
                "one of them can be named."
            )
    given = [name for name in METHODS if name in parts]
    return ",".join(name for name in given if name != MINMAX or given == [MINMAX])


def recipe(method: str) -> Recipe:
    """Returns what a canonical name stands for; `auto` stands for none."""
    parts = method.split(",")

    def one(members: tuple[str, ...]) -> str | None:
        return next((name for name in parts if name in members), None)

    return Recipe(
        one(TRANSFORMS),
        one((*RANGES, ACTION, DISTILL)) or MINMAX,
        one((*ROUNDINGS, ACTION, DISTILL)),
        BIAS_CORRECTION in parts,
    )


def check(method: str, bits: str, rounding: str, granularity: str, group_size: int) -> None:
    """Checks that a method fits the other settings of a scheme.

    Args:
      method: A canonical name.
      bits: Canonical width, such as "8" or "fp16".
      rounding: "nearest" or "floor".
      granularity: "paper" or "channel".
      group_size: Inputs of an output that share a scale; 0: all of them.

    Raises:
      errors.UserError: It does not.
    """
    if group_size and granularity != "channel":
        raise errors.UserError(
            f"--group_size={group_size} divides the scale of each output: add "
            "--granularity=channel."
        )
    if method == MINMAX and not group_size:
        return
    what = f"--method={method}" if method != MINMAX else f"--group_size={group_size}"
    if not bits.isdecimal() or int(bits) > MAX_BITS:
        raise errors.UserError(
            f"{what} is for integers of 2 to {MAX_BITS} bits, not for {bits}"
            f"{' bits' if bits.isdecimal() else ''}."
        )
    if rounding != "nearest" and (method == AUTO or recipe(method).rounding is not None):
        raise errors.UserError(f"{what} chooses the rounding itself: leave out --rounding.")
