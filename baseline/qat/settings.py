"""How a training quantizes: estimator, widths and ranges."""

import dataclasses
from typing import Any

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import fake_quantizers
from baseline.quantization import names
from baseline.quantization import schemes
from baseline.study import qat_rows

RANGES = FROZEN, MOVING = qat_rows.RANGES
STE, LSQ = qat_rows.ESTIMATORS
_WIDTHS = range(quantization.MIN_BITS, fake_quantizers.MAX_BITS + 1)


@dataclasses.dataclass(frozen=True)
class QatSettings:
    """Says how a training quantizes.

    Attributes:
      bits: 2 to 16; 32 is the control, which watches ranges and never quantizes.
      delay: environment steps before quantization starts; None: half of the training.
      ranges: "frozen" once quantization starts, as in the paper; or "moving": ranges of activations
        go on widening, and ranges of weights are the current weights' own. LSQ learns its ranges.
      output: whether the policy's output (logits, Q-values or actions) is quantized, too. By
        default it is not, as in post-training quantization: see `calibration.ranges`.
      input_bits: bits of the observations; None: 8, or `bits` where that is more. At 2 or 3 bits,
        one scale for all numbers of an observation would lose the small ones.
      estimator: "ste", see `fake_quantizers`; or "lsq", see `learned_steps`.
      granularity: one of `names.GRANULARITIES`: which weights share a range.
      weight_bits: bits of the weights; None: `bits`.
      activation_bits: bits of the inputs of all layers but the first, and of the output; None:
        `bits`.
      first_bits: bits of the first layer's weights; None: those of all weights.
      last_bits: bits of the last layer's weights and input; None: those of the others.
      percentile: central share of the numbers, in percent, whose range is the first one; None: ste
        starts with the extremes, lsq as `learned_steps.first_step` says.
    """

    bits: int
    delay: int | None = None
    ranges: str = FROZEN
    output: bool = False
    input_bits: int | None = None
    estimator: str = STE
    granularity: str = names.PAPER
    weight_bits: int | None = None
    activation_bits: int | None = None
    first_bits: int | None = None
    last_bits: int | None = None
    percentile: float | None = None

    def __post_init__(self) -> None:
        """Raises errors.UserError for settings that make no sense."""
        fake_quantizers.check_bits(self.bits)
        if not self.control and self.observation_bits not in _WIDTHS:
            raise errors.UserError(
                f"Observations of quantized agents have {_WIDTHS[0]} to {_WIDTHS[-1]} bits, not "
                f"{self.input_bits}."
            )
        for name in ("weight_bits", "activation_bits", "first_bits", "last_bits"):
            if getattr(self, name) not in (None, *_WIDTHS):
                raise errors.UserError(
                    f"--{name} is {_WIDTHS[0]} to {_WIDTHS[-1]}, not {getattr(self, name)}."
                )
        for name, known in (
            ("ranges", RANGES), ("estimator", qat_rows.ESTIMATORS),
            ("granularity", names.GRANULARITIES),
        ):
            if getattr(self, name) not in known:
                raise errors.UserError(
                    f"The {name} must be {' or '.join(known)}, not {getattr(self, name)!r}."
                )
        if self.percentile is not None and not 50.0 < self.percentile <= 100.0:
            raise errors.UserError(
                f"--percentile is above 50, at most 100, not {self.percentile:g}."
            )
        if self.delay is not None and self.delay < 0:
            raise errors.UserError(f"The delay must be at least 0 steps, not {self.delay}.")
        if not self.control:
            self._check_ranges()

    def _check_ranges(self) -> None:
        if self.ranges == MOVING and self.estimator == LSQ:
            raise errors.UserError(
                "--estimator=lsq learns its ranges: leave --ranges=moving out."
            )
        if self.ranges == MOVING and self.percentile is not None:
            raise errors.UserError(
                "--ranges=moving takes in every number, whatever --percentile they start from: "
                "leave one of both out."
            )
        if self.delay == 0 and self.ranges == FROZEN:
            raise errors.UserError(
                "Without a delay no range is seen before it is frozen: give --quant-delay=1 or "
                f"more{self.or_moving}."
            )

    @property
    def or_moving(self) -> str:
        """The end of a message, where ranges that move would help and are possible."""
        possible = self.estimator == STE and self.percentile is None
        return ", or --ranges=moving" if possible else ""

    @property
    def control(self) -> bool:
        """Says whether nothing is quantized."""
        return self.bits == fake_quantizers.CONTROL_BITS

    @property
    def observation_bits(self) -> int:
        """Bits of the first layer's input."""
        if self.control:
            return self.bits
        return max(self.bits, qat_rows.INPUT_BITS) if self.input_bits is None else self.input_bits

    @property
    def hidden_bits(self) -> int:
        """Bits of the other layers' inputs, but for the last one's."""
        return self.activation_bits or self.bits if not self.control else self.bits

    @property
    def scheme(self) -> schemes.Scheme:
        """The same settings in the form of post-training quantization."""
        if self.control:
            return schemes.Scheme(schemes.FP32)
        return schemes.Scheme(
            str(self.weight_bits or self.bits), schemes.WEIGHTS_AND_ACTIVATIONS, self.granularity
        )

    def layer_bits(self, first: bool, last: bool) -> tuple[int, int]:
        """Returns the bits of a layer's weights and of its input, by its place."""
        if self.control:
            return self.bits, self.bits
        weights = self.weight_bits or self.bits
        inputs = self.observation_bits if first else self.hidden_bits
        if last and self.last_bits is not None:
            weights = self.last_bits
            inputs = inputs if first else self.last_bits
        if first and self.first_bits is not None:
            weights = self.first_bits
        return weights, inputs

    @property
    def widths(self) -> str:
        """Bits other than the weights', as "activations:4 first:8 last:8"; "" if there are none."""
        weights = self.weight_bits or self.bits
        found = []
        if self.hidden_bits != weights:
            found.append(f"activations:{self.hidden_bits}")
        if self.first_bits not in (None, weights):
            found.append(f"first:{self.first_bits}")
        if self.last_bits is not None and {self.last_bits} != {weights, self.hidden_bits}:
            found.append(f"last:{self.last_bits}")
        return " ".join(found)

    @property
    def ranges_text(self) -> str:
        """The ranges as rows and files tell them: "frozen", "moving" or "learned", "-99" behind."""
        start = "" if self.percentile is None else f"-{self.percentile:g}"
        return f"{qat_rows.LEARNED if self.estimator == LSQ else self.ranges}{start}"

    @property
    def noted(self) -> dict[str, Any]:
        """All settings by name, but for later ones that have their default."""
        return {
            name: value for name, value in dataclasses.asdict(self).items()
            if name not in LATER or value != LATER[name]
        }

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a row of `qat_rows.TrainedRow` about the quantization, but its delay."""
        if self.control:
            return {
                "granularity": names.PAPER, "ranges": "", "input_bits": None, "output_bits": None,
                "widths": "",
            }
        return {
            "granularity": self.granularity,
            "ranges": self.ranges_text,
            "input_bits": self.observation_bits,
            "output_bits": self.hidden_bits if self.output else None,
            "widths": self.widths,
        }

    def delay_of(self, steps: int) -> int:
        """Returns the steps before quantization, by default half of a training's steps.

        Raises:
          errors.UserError: none of the steps would be quantized.
        """
        delay = steps // 2 if self.delay is None else self.delay
        if delay >= steps and not self.control:
            raise errors.UserError(
                f"With --quant-delay={delay}, none of the {steps} steps would be quantized: "
                "give a smaller delay, or -q 32 for a run that is not quantized."
            )
        return delay


# Settings of later versions with their defaults, which leave no trace in files and checkpoints:
# runs of earlier versions go on.
_FIRST_LATER = [field.name for field in dataclasses.fields(QatSettings)].index("estimator")
LATER: dict[str, Any] = {
    field.name: field.default for field in dataclasses.fields(QatSettings)[_FIRST_LATER:]
}
