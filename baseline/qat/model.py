"""Makes an SB3 model train with fake quantization, and turns it back into a plain one.

The acting path is fake-quantized, as by `schemes`: the weights and inputs of its layers, and if
asked for its output. In A2C and PPO that includes a shared features extractor. In DQN, DDPG and TD3
it includes the target of the acting network, which has the same ranges. In SAC it is the mean's
path. Critics, value heads, biases and the noise of exploration stay in fp32.
"""

from collections.abc import Collection
from collections.abc import Iterator
import dataclasses
from typing import Any

from stable_baselines3.common import base_class
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import acting_path
from baseline.quantization import fake_layers
from baseline.quantization import fake_quantizers
from baseline.quantization import schemes
from baseline.study import qat_rows

RANGES = FROZEN, MOVING = qat_rows.RANGES
_TARGETS = {"q_net": "q_net_target", "actor": "actor_target"}
FakeQuantLayer = fake_layers.FakeQuantLinear | fake_layers.FakeQuantConv2d


@dataclasses.dataclass(frozen=True)
class QatSettings:
    """Says how a training quantizes.

    Attributes:
      bits: 2 to 16; 32 is the control, which watches ranges and never quantizes.
      delay: environment steps before quantization starts; None: half of the training.
      ranges: "frozen" once quantization starts, as in the paper; or "moving": ranges of activations
        go on widening, and ranges of weights are the current weights' own.
      output: whether the policy's output (logits, Q-values or actions) is quantized, too. By
        default it is not, as in post-training quantization: see `calibration.ranges`.
      input_bits: bits of the observations; None: 8, or `bits` where that is more. At 2 or 3 bits,
        one scale for all numbers of an observation would lose the small ones.
    """

    bits: int
    delay: int | None = None
    ranges: str = FROZEN
    output: bool = False
    input_bits: int | None = None

    def __post_init__(self) -> None:
        """Raises errors.UserError for settings that make no sense."""
        fake_quantizers.check_bits(self.bits)
        widths = range(quantization.MIN_BITS, fake_quantizers.MAX_BITS + 1)
        if not self.control and self.observation_bits not in widths:
            raise errors.UserError(
                f"Observations of quantized agents have {widths[0]} to {widths[-1]} bits, not "
                f"{self.input_bits}."
            )
        if self.ranges not in RANGES:
            raise errors.UserError(f"The ranges are {' or '.join(RANGES)}, not {self.ranges!r}.")
        if self.delay is not None and self.delay < 0:
            raise errors.UserError(f"The delay must be at least 0 steps, not {self.delay}.")
        if self.delay == 0 and self.ranges == FROZEN and not self.control:
            raise errors.UserError(
                "Without a delay no range is seen before it is frozen: give --quant-delay=1 or "
                "more, or --ranges=moving."
            )

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
    def columns(self) -> dict[str, Any]:
        """The columns of a row of `qat_rows.TrainedRow` about the quantization, but its delay."""
        if self.control:
            return {"ranges": "", "input_bits": None, "output_bits": None}
        return {
            "ranges": self.ranges, "input_bits": self.observation_bits,
            "output_bits": self.bits if self.output else None,
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

    @property
    def scheme(self) -> schemes.Scheme:
        """The same settings in the form of post-training quantization."""
        if self.control:
            return schemes.Scheme(schemes.FP32)
        return schemes.Scheme(str(self.bits), schemes.WEIGHTS_AND_ACTIVATIONS)


class FakeQuantization(nn.Module):
    """A model's fake quantization as a whole. It is in the policy, so that checkpoints have it.

    Attributes:
      settings: how to quantize; the callback that counts the steps fills in the delay.
      bits: buffer, the settings' bits.
      delay: buffer, steps before quantization; -1: not known yet.
    """

    bits: torch.Tensor
    delay: torch.Tensor

    def __init__(self, settings: QatSettings, device: Any):
        """Takes the settings."""
        super().__init__()
        self.settings = settings
        # The layers, which may share quantizers, register them.
        self._activations: list[fake_quantizers.FakeQuantizer] = []
        self._weights: list[tuple[fake_quantizers.WeightFakeQuantizer, torch.Tensor]] = []
        moving = settings.ranges == MOVING
        facts = {
            "bits": settings.bits, "input_bits": settings.observation_bits, "moving": moving,
            "output": settings.output, "delay": -1,
        }
        for name, value in facts.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.int64, device=device))

    @property
    def started(self) -> bool:
        """Says whether numbers are quantized now."""
        return any(quantizer.started for quantizer in self._activations)

    @property
    def seen_anything(self) -> bool:
        """Says whether numbers have gone through the acting path."""
        return any(quantizer.seen for quantizer in self._activations)

    def new_activations(self, name: str, bits: int) -> fake_quantizers.FakeQuantizer:
        """Returns a quantizer that starts with the others."""
        quantizer = fake_quantizers.FakeQuantizer(
            name, bits, self.settings.ranges == MOVING, self.bits.device
        )
        self._activations.append(quantizer)
        return quantizer

    def new_weights(
        self, name: str, layer: nn.Linear | nn.Conv2d
    ) -> fake_quantizers.WeightFakeQuantizer:
        """Returns a quantizer of a layer's weights that starts with the others."""
        by_channel = schemes.quantizes_by_channel(layer, self.settings.scheme)
        quantizer = fake_quantizers.WeightFakeQuantizer(
            name, self.settings.bits, self.settings.ranges == MOVING,
            layer.weight.shape[0] if by_channel else None, layer.weight.ndim - 1,
            self.bits.device,
        )
        self._weights.append((quantizer, layer.weight))
        return quantizer

    def set_delay(self, delay: int) -> None:
        """Fills in the delay, for checkpoints."""
        self.settings = dataclasses.replace(self.settings, delay=delay)
        self.delay.fill_(delay)

    def start(self) -> None:
        """Starts to quantize, with the ranges seen.

        Raises:
          errors.UserError: a range holds NaN or infinity.
        """
        for of_weights, weights in self._weights:
            of_weights.watch(weights)  # The last update has not been seen yet.
            of_weights.start()
        for of_activations in self._activations:
            of_activations.start()

    def never_moved(self) -> list[str]:
        """Returns the names of tensors in which nothing but zero was seen."""
        quantizers: list[fake_quantizers.FakeQuantizer | fake_quantizers.WeightFakeQuantizer]
        quantizers = [*self._activations, *(quantizer for quantizer, _ in self._weights)]
        return [
            quantizer.name for quantizer in quantizers
            if not (torch.any(quantizer.low) or torch.any(quantizer.high))
        ]

    def _load_from_state_dict(
        self, state_dict: dict[str, torch.Tensor], prefix: str, *args: Any
    ) -> None:
        """Refuses a checkpoint of other settings, and takes a delay that is not set from it."""
        names = {name: f"{prefix}{name}" for name, _ in self.named_buffers()}
        if not all(key in state_dict for key in names.values()):
            raise errors.UserError("it was trained without fake quantization")
        saved = {name: int(state_dict[key]) for name, key in names.items()}
        _compare("-q", self.settings.bits, saved["bits"])
        if self.settings.control:  # The other settings do not concern it.
            super()._load_from_state_dict(state_dict, prefix, *args)
            return
        _compare("--input_bits", self.settings.observation_bits, saved["input_bits"])
        _compare("--ranges", self.settings.ranges, RANGES[saved["moving"]])
        _compare("--quantize_output", self.settings.output, bool(saved["output"]))
        if self.settings.delay is not None:
            _compare("--quant-delay", self.settings.delay, saved["delay"])
        elif saved["delay"] >= 0:
            self.set_delay(saved["delay"])
        super()._load_from_state_dict(state_dict, prefix, *args)


def _compare(flag: str, asked: Any, saved: Any) -> None:
    if asked != saved:
        raise errors.UserError(
            f"the run was started with {flag} {saved}, not {asked}: go on with that, or leave "
            "--resume out to start another run"
        )


def prepare(model: base_class.BaseAlgorithm, settings: QatSettings) -> FakeQuantization:
    """Replaces the layers of the acting path, and of its target, by fake-quantized ones.

    The parameters stay the same objects, so that optimizers and their state stay valid.

    Returns:
      The fake quantization, which only watches ranges until it is started.

    Raises:
      errors.UserError: a layer of the acting path has no quantized form.
    """
    policy = model.policy
    network = acting_path.policy_network(model)
    whole = FakeQuantization(settings, model.device)
    paths = {path for path, _ in policy.named_modules()}
    last = network.layers[-1][0] if settings.output else None
    if last not in (None, *paths):
        raise errors.UserError(
            "The output of policies that squash their actions outside of their layers "
            "(squash_output) cannot be quantized: leave --quantize_output out."
        )
    for name, module in network.layers:
        output = whole.new_activations("the output", settings.bits) if name == last else None
        if isinstance(module, nn.Linear | nn.Conv2d):
            is_first = name == network.with_weights()[0][0]
            of_input = whole.new_activations(
                f"the input of {name}", settings.observation_bits if is_first else settings.bits
            )
            if network.image and is_first:
                of_input.set_range(*acting_path.PIXEL_RANGE)
            of_weights = whole.new_weights(f"the weights of {name}", module)
            for path in _places(paths, name):
                _put(policy, path, _fake_layer(
                    policy.get_submodule(path), of_input, of_weights, output, cached=path == name
                ))
        elif output is not None:
            if not isinstance(module, nn.Tanh):
                raise errors.UserError(
                    f"The policy ends with a {type(module).__name__}: a layer with weights or a "
                    "tanh is expected."
                )
            for path in _places(paths, name):
                _put(policy, path, fake_layers.FakeQuantTanh(output))
    policy.add_module(fake_quantizers.NAME, whole)
    for module in policy.modules():  # Actors and critics have an optimizer each.
        optimizer = getattr(module, "optimizer", None)
        if optimizer is not None and optimizer.defaults.get("fused"):
            fake_layers.note_steps(optimizer)
    return whole


def find(model: base_class.BaseAlgorithm) -> FakeQuantization:
    """Returns the fake quantization of a prepared model."""
    return getattr(model.policy, fake_quantizers.NAME)


def layers(model: base_class.BaseAlgorithm) -> Iterator[tuple[str, FakeQuantLayer]]:
    """Yields names and fake-quantized layers of a prepared model's acting path, in order."""
    for name, layer in acting_path.policy_network(model).with_weights():
        assert isinstance(layer, FakeQuantLayer)
        yield name, layer


def ranges(model: base_class.BaseAlgorithm) -> dict[str, tuple[float, ...]]:
    """Returns the ranges of activations, as `calibration.ranges` does.

    A range has its bits behind its ends where these are others than the weights'.
    """
    found: dict[str, tuple[float, ...]] = {}
    bits = find(model).settings.bits
    for name, module in acting_path.policy_network(model).layers:
        if isinstance(module, FakeQuantLayer):
            found[name] = _range(module.input_quantizer, bits)
        if isinstance(module, FakeQuantLayer | fake_layers.FakeQuantTanh):
            if module.output_quantizer is not None:
                found[acting_path.OUTPUT] = _range(module.output_quantizer, bits)
    return found


def convert(model: base_class.BaseAlgorithm) -> dict[str, Any]:
    """Turns a prepared model back into a plain one, with the weights that it acted with.

    Where quantization has not started, weights stay as they are. Parameters stay the same objects.

    Returns:
      The content of quantization.json, of which `schemes.from_json` reads a part. Ranges of weights
      by layer, smallest and largest, are numbers or have one for each row. It is empty for a model
      that is not quantized, such as a control.
    """
    whole = find(model)
    facts: dict[str, Any] = {}
    if whole.started:
        facts = {
            **schemes.to_json(whole.settings.scheme, ranges(model)),
            "training": {"quant_delay": whole.settings.delay, "ranges": whole.settings.ranges},
            "weight_ranges": {
                name: [end.tolist() for end in layer.weight_quantizer.ends(layer.weight)]
                for name, layer in layers(model)
            },
        }
    policy = model.policy
    for path, module in list(policy.named_modules()):
        if isinstance(module, FakeQuantLayer):
            with torch.no_grad():
                module.weight.copy_(module.weight_quantizer.quantize(module.weight))
            _put(policy, path, module.plain())
        elif isinstance(module, fake_layers.FakeQuantTanh):
            _put(policy, path, nn.Tanh())
    delattr(policy, fake_quantizers.NAME)
    return facts


def _fake_layer(
    layer: nn.Module,
    of_input: fake_quantizers.FakeQuantizer,
    of_weights: fake_quantizers.WeightFakeQuantizer,
    output: fake_quantizers.FakeQuantizer | None,
    cached: bool,
) -> FakeQuantLayer:
    if isinstance(layer, nn.Linear):
        return fake_layers.FakeQuantLinear(layer, of_input, of_weights, output, cached)
    assert isinstance(layer, nn.Conv2d)
    return fake_layers.FakeQuantConv2d(layer, of_input, of_weights, output, cached)


def _range(quantizer: fake_quantizers.FakeQuantizer, bits: int) -> tuple[float, ...]:
    ends = float(quantizer.low), float(quantizer.high)
    return ends if quantizer.bits == bits else (*ends, quantizer.bits)


def _places(paths: Collection[str], name: str) -> list[str]:
    """Returns the paths of a layer: its own, and its target's where there is one."""
    head, _, rest = name.partition(".")
    target = f"{_TARGETS.get(head, '')}.{rest}"
    return [name, target] if target in paths else [name]


def _put(policy: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, leaf = path.rpartition(".")
    setattr(policy.get_submodule(parent), leaf, module)
