"""Counts steps, starts quantization at the right one, and draws its curves."""

from typing import Any

from absl import logging
from stable_baselines3.common import callbacks
import torch

from actorQ.core import errors
from baseline.qat import model as qat_model

CURVE_POINTS = 200  # Points of a curve over a training.
MIN_CURVE_STEPS = 1000  # Steps between two points: each costs as much as some ten steps.


class FakeQuantizationSchedule(callbacks.BaseCallback):
    """Starts a prepared model's quantization, and turns the model into a plain one at the end.

    Quantization starts as soon as the environments have made the delay's steps, even in the middle
    of a rollout: the quantized policy chooses the next action.

    Each layer has curves `quantization/...`:

    - `low`, `high`: the input's range.
    - `weight_low`, `weight_high`: the weights' range.
    - `weight_error`, once quantization has started: the root mean square of the change by
      quantization, as a share of the weights' own.

    Attributes:
      converted: the facts that `qat_model.convert` gave; None before the training's end.
    """

    def __init__(self) -> None:
        """Takes nothing: the prepared model knows its settings."""
        super().__init__()
        self.converted: dict[str, Any] | None = None
        self._whole: qat_model.FakeQuantization  # Set when the training starts.
        self._total = 0
        self._next_start: int | None = None
        self._next_curve = 0

    def _on_training_start(self) -> None:
        self._whole = qat_model.find(self.model)
        self._total = self.model._total_timesteps
        settings = self._whole.settings
        self._next_start = None
        if settings.control:
            return
        delay = settings.delay_of(self._total)
        self._whole.set_delay(delay)
        if self._whole.started:
            return
        # A resumed run may have ranges already, and SB3's random steps may have been put off.
        random_steps = getattr(self.model, "learning_starts", 0)
        unseen = settings.ranges == qat_model.FROZEN and not self._whole.seen_anything
        if unseen and delay <= random_steps:
            raise errors.UserError(
                f"With --quant-delay={delay} no range is seen before it is frozen, since the first "
                f"{random_steps} steps are random: give more{settings.or_moving}."
            )
        self._next_start = delay
        self._start_if_due()

    def _on_step(self) -> bool:
        self._start_if_due()
        if self.num_timesteps >= self._next_curve:
            self._next_curve = self.num_timesteps + max(
                self._total // CURVE_POINTS, MIN_CURVE_STEPS
            )
            self._draw()
        return True

    def _on_training_end(self) -> None:
        if self.num_timesteps >= self._total:
            self._draw()
            self.logger.dump(self.num_timesteps)
            self.converted = qat_model.convert(self.model)

    def _start_if_due(self) -> None:
        if self._next_start is None or self.num_timesteps < self._next_start:
            return
        self._next_start = None
        self._next_curve = self.num_timesteps
        settings = self._whole.settings
        if settings.ranges == qat_model.FROZEN and not self._whole.seen_anything:
            raise errors.UserError(
                f"The policy has not acted in {self.num_timesteps} steps, so that its activations "
                f"have no ranges: give a longer --quant-delay{settings.or_moving}."
            )
        self._whole.start()
        logging.info(
            "Quantizes to %s bits%s from step %d on (%s ranges).",
            settings.scheme.bits, f" ({settings.widths})" if settings.widths else "",
            self.num_timesteps, settings.ranges_text,
        )
        unmoved = self._whole.never_moved() if settings.ranges == qat_model.FROZEN else []
        if unmoved:
            logging.warning(
                "Only zeros were seen in %s: the step of such a range is 1, so that its numbers "
                "become whole ones.", ", ".join(unmoved),
            )

    def _draw(self) -> None:
        for name, (low, high, *_) in qat_model.ranges(self.model).items():
            self.logger.record(f"quantization/{name}/low", low)
            self.logger.record(f"quantization/{name}/high", high)
        for name, layer in qat_model.layers(self.model):
            with torch.no_grad():
                weights = layer.weight.detach()
                lowest, highest = layer.weight_quantizer.ends(weights)
                self.logger.record(f"quantization/{name}/weight_low", float(lowest.min()))
                self.logger.record(f"quantization/{name}/weight_high", float(highest.max()))
                if not layer.weight_quantizer.started:
                    continue
                lost = layer.weight_quantizer.quantize(weights) - weights
                size = float(weights.norm())
                self.logger.record(
                    f"quantization/{name}/weight_error", float(lost.norm()) / size if size else 0.0
                )
