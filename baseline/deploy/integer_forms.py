"""Measures an agent's integer forms beside its own: `integer_benchmark` and `qat_integer`."""

from collections.abc import Mapping
import copy
import dataclasses

from absl import logging
import numpy as np
import torch

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import timing
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.agents import integers
from baseline.agents import optional_tensorflow
from baseline.deploy import exporting
from baseline.deploy import measuring
from baseline.formats import onnx_graph
from baseline.formats import onnx_kernels
from baseline.formats import onnx_policy
from baseline.formats import quantized_agents
from baseline.qat import export as qat_export
from baseline.quantization import acting_path
from baseline.quantization import schemes

TORCH = "torch fp32"
FAKE, ONNX, TFLITE = "fake-quantized, torch", "integers, ONNX Runtime", "integers, TFLite"
# References that forms are compared with; these names are keys of the JSON files.
REFERENCES = SIMULATED, FULL_PRECISION = "simulated", "full_precision"
AGREEMENT = "agreement"  # The reference is the form that was trained with quantization.
_SCHEME_NAMES = {32: schemes.FP32, 16: "fp16", 8: "8", 4: "4"}


# Bits of the weights, and whether activations have ranges that were found beforehand.
EXPORTS = {
    "ORT fp32": (32, False),
    "ORT fp16 weights": (16, False),
    "ORT int8": (8, True),
    "ORT int8 dynamic": (8, False),
    "ORT int4": (4, False),
}


def measure(agent: agent_lib.Agent, settings: measuring.Settings) -> dict[str, measuring.Form]:
    """Measures torch's fp32 and every form of EXPORTS, in the states that the agent visits.

    Each is compared with SIMULATED, the simulated form of the same bits, and with FULL_PRECISION.
    Facts of a form are `weight_bytes` (of weights, biases, scales and zero points), `metadata`
    (what the file says of itself) and `kernels` (operators of one observation); None: torch.

    Raises:
      errors.UserError: The agent is quantized already, or a layer has no integer form.
    """
    measuring.check_unquantized(agent)
    network = agent.network
    timing.progress(f"{agent.algo} {agent.env_id}: calibrates and collects states")
    ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    states = _visited_states(agent, settings)
    full = simulate(network)
    num_bytes = sum(
        4 * parameter.numel() for _, module in network.layers for parameter in module.parameters()
    )
    facts = {"weight_bytes": num_bytes, "metadata": None, "kernels": None}
    forms = {TORCH: measuring.Form(lambda observation: full(observation[None])[0], facts=facts)}
    for name, (bits, calibrated) in EXPORTS.items():
        form_ranges = ranges if calibrated else None
        model = onnx_policy.export(network, bits, form_ranges, settings.granularity)
        content, metadata = model.SerializeToString(), onnx_graph.metadata(model)
        form = forms[name] = measuring.Form(exporting.load_file(content, "onnx"), content, facts={
            "weight_bytes": metadata["weight_bytes"], "metadata": metadata,
            "kernels": onnx_kernels.kernels(content, states[:1]),
        })
        actions = exporting.one_by_one(form.act)(states)
        simulated = simulate(network, metadata["layer_bits"], form_ranges, settings.granularity)
        for reference, act in ((SIMULATED, simulated), (FULL_PRECISION, full)):
            form.agreements[reference] = agreement.compare(
                act(states), actions, network.low, network.high
            )
    measuring.measure_normalized(agent, forms, states, settings)
    return forms


def simulate(
    network: acting_path.PolicyNetwork,
    layer_bits: Mapping[str, int] | None = None,
    ranges: schemes.Ranges | None = None,
    granularity: str = schemes.PAPER,
) -> evaluation.Act:
    """Returns the simulated form of a policy: quantized numbers, computed with in fp32.

    Args:
      network: The acting path in full precision; it stays as it is.
      layer_bits: Bits of every layer's weights; None: fp32.
      ranges: Ranges of activations, which are quantized to 8 bits; None: they are not.
      granularity: Granularity of linear layers' weights: "paper" or "channel".
    """
    network = network._replace(layers=copy.deepcopy(network.layers))
    for name, module in network.with_weights():
        bits = 32 if layer_bits is None else layer_bits[name]
        scheme = schemes.Scheme(_SCHEME_NAMES[bits], granularity=granularity)
        stored = schemes.quantize_array(
            module.weight.detach().numpy(), scheme, schemes.quantizes_by_channel(module, scheme)
        )
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(stored.reals))
    tap = None
    if ranges is not None:
        scheme = schemes.Scheme(str(onnx_policy.INPUT_BITS), schemes.WEIGHTS_AND_ACTIVATIONS)
        tap = schemes.ActivationQuantizer(scheme, ranges)
    return exporting.acting(network, tap)


@dataclasses.dataclass
class Trained:
    """An agent that was trained with quantization, and its measured forms.

    Attributes:
      forms: Forms by name, the fake-quantized one first; none of integers over 8 bits.
      bits: Bits of the weights.
      packed_bytes: Bytes of the packed parameters.
      states: Number of states that were compared.
    """

    forms: dict[str, measuring.Form]
    bits: int
    packed_bytes: int
    states: int = 0

    @property
    def failing(self) -> list[str]:
        """Names of the forms that act otherwise than the agent too often."""
        return [
            name for name, form in self.forms.items()
            if AGREEMENT in form.agreements and not form.agreements[AGREEMENT].holds
        ]


def measure_trained(agent: agent_lib.Agent, settings: measuring.Settings) -> Trained:
    """Writes an agent's integer forms beside it, and measures all forms.

    Args:
      agent: An agent that `baseline.qat` trained; of over 8 bits, only the size is told.
      settings: How much to measure.

    Raises:
      errors.UserError: The agent has no such form, or a file cannot be written.
    """
    packed_bytes = integers.num_bytes(agent)
    bits, *others = _widths(agent)
    if max([bits, *others]) > quantized_agents.TFLITE_BITS:
        return Trained({}, bits, packed_bytes)
    own = exporting.acting(agent.network, agent.tap)
    forms = {FAKE: measuring.Form(lambda observation: own(observation[None])[0])}
    if {bits, *others} == {quantized_agents.INTEGER_BITS}:
        content = quantized_agents.onnx_file(agent).SerializeToString()
        _write(agent, qat_export.ONNX_FILENAME, content)
        forms[ONNX] = measuring.Form(exporting.load_file(content, "onnx"), content)
    try:
        content = quantized_agents.tflite_file(agent)
    except optional_tensorflow.MissingError as error:
        if ONNX not in forms:
            raise
        logging.warning("Only the ONNX file is written and measured: %s", error)
    else:
        _write(agent, qat_export.TFLITE_FILENAME, content)
        forms[TFLITE] = measuring.Form(exporting.load_file(content, "tflite"), content)
    states = _visited_states(agent, settings)
    acted = own(states)
    for form in forms.values():
        if form.content:
            form.agreements[AGREEMENT] = agreement.compare(
                acted, exporting.one_by_one(form.act)(states), agent.network.low,
                agent.network.high,
            )
    measuring.measure_normalized(agent, forms, states, settings)
    return Trained(forms, bits, packed_bytes, len(states))


def _visited_states(agent: agent_lib.Agent, settings: measuring.Settings) -> np.ndarray:
    """Returns normalized observations [N, ...] that the agent meets."""
    return agent.normalize(
        agreement.visited_states(
            agent.make_env, agent.act, settings.episodes, settings.seed, settings.states
        )
    )


def _widths(agent: agent_lib.Agent) -> list[int]:
    """Returns the bits of an agent's scheme, then all others of its weights and activations."""
    scheme, ranges = agent.quantization or (None, None)
    if scheme is None or ranges is None:
        raise errors.UserError(f"{agent.path} was not trained with quantization.")
    weights = [tensor.bits for tensor in integers.weights(agent).values()]
    own = [int(bits) for _, _, *own in ranges.values() for bits in own]
    return [int(scheme.bits), *weights, *own]


def _write(agent: agent_lib.Agent, filename: str, content: bytes) -> None:
    files.write(agent.path.parent / agent.path.stem / filename, content)
