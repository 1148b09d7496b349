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
from baseline.qat import settings as qat_settings
from baseline.quantization import acting_path
from baseline.quantization import fake_layers
from baseline.quantization import fake_quantizers
from baseline.quantization import learned_steps
from baseline.quantization import names
from baseline.quantization import schemes
from baseline.study import qat_rows

QatSettings = qat_settings.QatSettings
RANGES = FROZEN, MOVING = qat_settings.RANGES
LSQ = qat_settings.LSQ
_TARGETS = {"q_net": "q_net_target", "actor": "actor_target"}
FakeQuantLayer = fake_layers.FakeQuantLinear | fake_layers.FakeQuantConv2d


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
        self._optimizer: torch.optim.Optimizer | None = None  # It learns steps.
        moving = settings.ranges == MOVING
        facts = {
            "bits": settings.bits, "input_bits": settings.observation_bits, "moving": moving,
            "output": settings.output, "delay": -1,
        }
        for name, value in facts.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.int64, device=device))
        for name in qat_settings.LATER:
            if name in settings.noted:
                code = _encoded(name, getattr(settings, name))
                self.register_buffer(name, torch.tensor(code, dtype=torch.float64, device=device))

    @property
    def started(self) -> bool:
        """Says whether numbers are quantized now."""
        return any(quantizer.started for quantizer in self._activations)

    @property
    def seen_anything(self) -> bool:
        """Says whether numbers have gone through the acting path."""
        return any(quantizer.seen for quantizer in self._activations)

    @property
    def learns(self) -> bool:
        """Says whether steps are learned."""
        return self.settings.estimator == LSQ and not self.settings.control

    def new_activations(
        self, name: str, bits: int, given: tuple[float, float] | None = None
    ) -> fake_quantizers.FakeQuantizer:
        """Returns a quantizer that starts with the others.

        Args:
          name: name for messages.
          bits: its width.
          given: its range, which is then neither watched nor learned.
        """
        device, percentile = self.bits.device, self.settings.percentile
        quantizer: fake_quantizers.FakeQuantizer
        if self.learns and given is None:
            quantizer = learned_steps.LearnedFakeQuantizer(name, bits, device, percentile)
        else:
            quantizer = fake_quantizers.FakeQuantizer(
                name, bits, self.settings.ranges == MOVING, device,
                percentile if given is None and not self.settings.control else None,
            )
        if given is not None:
            quantizer.set_range(*given)
        self._activations.append(quantizer)
        return quantizer

    def new_weights(
        self, name: str, layer: nn.Linear | nn.Conv2d, bits: int
    ) -> fake_quantizers.WeightFakeQuantizer:
        """Returns a quantizer of a layer's weights that starts with the others."""
        by_channel = schemes.quantizes_by_channel(layer, self.settings.scheme)
        rows = layer.weight.shape[0] if by_channel else None
        axes, device = layer.weight.ndim - 1, self.bits.device
        percentile = None if self.settings.control else self.settings.percentile
        quantizer: fake_quantizers.WeightFakeQuantizer
        if self.learns:
            quantizer = learned_steps.LearnedWeightFakeQuantizer(
                name, bits, rows, axes, device, percentile
            )
        else:
            quantizer = fake_quantizers.WeightFakeQuantizer(
                name, bits, self.settings.ranges == MOVING, rows, axes, device, percentile
            )
        self._weights.append((quantizer, layer.weight))
        return quantizer

    def join(self, optimizer: torch.optim.Optimizer) -> None:
        """Lets the optimizer of the acting path learn the steps, without decay of weights."""
        steps = [
            quantizer.learned
            for quantizer in (*self._activations, *(quantizer for quantizer, _ in self._weights))
            if isinstance(quantizer, learned_steps.LEARNED)
        ]
        group: dict[str, Any] = {"params": steps}
        if "weight_decay" in optimizer.defaults:
            group["weight_decay"] = 0.0
        optimizer.add_param_group(group)
        self._optimizer = optimizer

    def leave(self) -> None:
        """Takes the steps out of the optimizer, whose state SB3's own loader then takes."""
        if self._optimizer is not None:
            for step in self._optimizer.param_groups.pop()["params"]:
                self._optimizer.state.pop(step, None)
            self._optimizer = None

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
            of_weights.start_from(weights)
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
        keys = {
            name: f"{prefix}{name}" for name, _ in self.named_buffers()
            if name not in qat_settings.LATER
        }
        if not all(key in state_dict for key in keys.values()):
            raise errors.UserError("it was trained without fake quantization")
        saved = {name: int(state_dict[key]) for name, key in keys.items()}
        _compare("-q", self.settings.bits, saved["bits"])
        if self.settings.control:  # The other settings do not concern it.
            super()._load_from_state_dict(state_dict, prefix, *args)
            return
        _compare("--input_bits", self.settings.observation_bits, saved["input_bits"])
        _compare("--ranges", self.settings.ranges, RANGES[saved["moving"]])
        _compare("--quantize_output", self.settings.output, bool(saved["output"]))
        for name, default in qat_settings.LATER.items():
            key = f"{prefix}{name}"
            was = _decoded(name, float(state_dict[key])) if key in state_dict else default
            _compare(f"--{name}", getattr(self.settings, name), was)
        if self.settings.delay is not None:
            _compare("--quant-delay", self.settings.delay, saved["delay"])
        elif saved["delay"] >= 0:
            self.set_delay(saved["delay"])
        super()._load_from_state_dict(state_dict, prefix, *args)


def _compare(flag: str, asked: Any, saved: Any) -> None:
    if asked != saved:
        was = f"without {flag}" if saved is None else f"with {flag} {saved}"
        now = "without it" if asked is None else f"with {asked}" if saved is None else asked
        raise errors.UserError(
            f"the run was started {was}, not {now}: go on with that, or leave --resume out to "
            "start another run"
        )


_NAMED: dict[str, tuple[str, ...]] = {
    "estimator": qat_rows.ESTIMATORS, "granularity": names.GRANULARITIES,
}


def _encoded(name: str, value: Any) -> float:
    """Returns the number that stands for a setting in a checkpoint."""
    return float(_NAMED[name].index(value) if name in _NAMED else value)


def _decoded(name: str, number: float) -> Any:
    if name in _NAMED:
        return _NAMED[name][int(number)]
    return number if name == "percentile" else int(number)


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
    weighted = [name for name, _ in network.with_weights()]
    for name, module in network.layers:
        output = None
        if name == last:
            output = whole.new_activations("the output", settings.hidden_bits)
        if isinstance(module, nn.Linear | nn.Conv2d):
            is_first = name == weighted[0]
            bits, input_bits = settings.layer_bits(is_first, name == weighted[-1])
            of_input = whole.new_activations(
                f"the input of {name}", input_bits,
                acting_path.PIXEL_RANGE if network.image and is_first else None,
            )
            of_weights = whole.new_weights(f"the weights of {name}", module, bits)
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
    weights = network.with_weights()[0][1].weight
    for module in policy.modules():  # Actors and critics have an optimizer each.
        optimizer = getattr(module, "optimizer", None)
        if optimizer is None:
            continue
        if whole.learns and _optimizes(optimizer, weights):
            whole.join(optimizer)
        if optimizer.defaults.get("fused"):
            fake_layers.note_steps(optimizer)
    return whole


def _optimizes(optimizer: torch.optim.Optimizer, weights: torch.Tensor) -> bool:
    return any(weights is one for group in optimizer.param_groups for one in group["params"])


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

    A range has its bits behind its ends where these are others than the scheme's.
    """
    found: dict[str, tuple[float, ...]] = {}
    settings = find(model).settings
    bits = settings.bits if settings.control else int(settings.scheme.bits)
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
      by layer, smallest and largest, are numbers or have one for each row. Bits stand behind them
      where these are others than the scheme's. It is empty for a model that is not quantized, such
      as a control.
    """
    whole = find(model)
    settings = whole.settings
    facts: dict[str, Any] = {}
    if whole.started:
        facts = {
            **schemes.to_json(settings.scheme, ranges(model)),
            "training": {"quant_delay": settings.delay, "ranges": settings.ranges_text},
            "weight_ranges": {
                name: [
                    *(end.tolist() for end in layer.weight_quantizer.ends(layer.weight)),
                    *_own_bits(layer.weight_quantizer, settings.scheme.bits),
                ]
                for name, layer in layers(model)
            },
        }
        if settings.widths:
            facts["training"]["widths"] = settings.widths
    policy = model.policy
    for path, module in list(policy.named_modules()):
        if isinstance(module, FakeQuantLayer):
            with torch.no_grad():
                module.weight.copy_(module.weight_quantizer.quantize(module.weight))
            _put(policy, path, module.plain())
        elif isinstance(module, fake_layers.FakeQuantTanh):
            _put(policy, path, nn.Tanh())
    whole.leave()
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
    return (*quantizer.ends(), *_own_bits(quantizer, bits))


def _own_bits(quantizer: fake_quantizers.Quantizer, bits: int | str) -> list[int]:
    return [] if quantizer.bits == int(bits) else [quantizer.bits]


def _places(paths: Collection[str], name: str) -> list[str]:
    """Returns the paths of a layer: its own, and its target's where there is one."""
    head, _, rest = name.partition(".")
    target = f"{_TARGETS.get(head, '')}.{rest}"
    return [name, target] if target in paths else [name]


def _put(policy: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, leaf = path.rpartition(".")
    setattr(policy.get_submodule(parent), leaf, module)
