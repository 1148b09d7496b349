"""Measures the forms of one agent side by side: what `integer_benchmark` shows."""

from collections.abc import Callable
from collections.abc import Mapping
import copy
import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np
import torch

from actorQ.core import errors
from actorQ.core import timing
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.deploy import exporting
from baseline.formats import onnx_graph
from baseline.formats import onnx_kernels
from baseline.formats import onnx_policy
from baseline.quantization import acting_path
from baseline.quantization import schemes

TORCH = "torch fp32"
_SCHEME_NAMES = {32: schemes.FP32, 16: "fp16", 8: "8", 4: "4"}

# Normalized observations [B, ...] to actions [B, ...].
Policy = Callable[[np.ndarray], np.ndarray]


class Form(NamedTuple):
    """A way to export a policy.

    Attributes:
      bits: of the weights.
      calibrated: whether activations have ranges that were found beforehand.
    """

    bits: int
    calibrated: bool = False


FORMS: Mapping[str, Form] = {
    "ORT fp32": Form(32),
    "ORT fp16 weights": Form(16),
    "ORT int8": Form(8, calibrated=True),
    "ORT int8 dynamic": Form(8),
    "ORT int4": Form(4),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
      granularity: of linear layers' weights, as in `quantize.Scheme`.
      calibration_episodes: that find the ranges of activations.
      episodes: for the states, and for the return of every form.
      seed: of the environments.
      states: at most so many are compared.
      repeats: rounds of latencies.
    """

    granularity: str = schemes.PAPER
    calibration_episodes: int = calibration.EPISODES
    episodes: int = 10
    seed: int = 0
    states: int = 5000
    repeats: int = 7


@dataclasses.dataclass
class Measured:
    """One form's figures.

    Attributes:
      weight_bytes: of weights, biases, scales and zero points.
      content: the file; None for torch.
      metadata: what the file says of itself.
      kernels: operators that ran for one observation, and how often.
      simulated: agreement with the simulated form of the same bits.
      full_precision: agreement with torch's fp32.
      seconds: for one observation, a figure for every round.
      returns: of the episodes.
    """

    weight_bytes: int
    content: bytes | None = None
    metadata: Mapping[str, Any] | None = None
    kernels: Mapping[str, int] | None = None
    simulated: agreement.Agreement | None = None
    full_precision: agreement.Agreement | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)
    returns: list[float] = dataclasses.field(default_factory=list)


def measure(agent: agent_lib.Agent, settings: Settings) -> dict[str, Measured]:
    """Measures torch's fp32 and every form of FORMS, in the states that the agent visits.

    Raises:
      errors.UserError: the agent is quantized already, or a layer has no integer form.
    """
    if agent.quantization is not None:
        raise errors.UserError(
            f"{agent.path} is quantized already: name the agent that it was made from."
        )
    network = agent.network
    timing.progress(f"{agent.algo} {agent.env_id}: calibrates and collects states")
    ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    states = agent.normalize(
        agreement.visited_states(
            agent.make_env, agent.act, settings.episodes, settings.seed, settings.states
        )
    )
    policies: dict[str, Policy] = {TORCH: simulate(network)}
    num_bytes = sum(
        4 * parameter.numel()
        for _, module in network.layers
        for parameter in module.parameters()
    )
    measured = {TORCH: Measured(num_bytes)}
    full = policies[TORCH](states)
    for name, form in FORMS.items():
        form_ranges = ranges if form.calibrated else None
        model = onnx_policy.export(network, form.bits, form_ranges, settings.granularity)
        content = model.SerializeToString()
        metadata = onnx_graph.metadata(model)
        with exporting.playing(content, "onnx") as player:
            policies[name] = exporting.one_by_one(player)
        simulated = simulate(network, metadata["layer_bits"], form_ranges, settings)
        actions = policies[name](states)

        def compared(reference: np.ndarray, actions=actions) -> agreement.Agreement:
            return agreement.compare(reference, actions, network.low, network.high)

        measured[name] = Measured(
            metadata["weight_bytes"], content, metadata,
            onnx_kernels.kernels(content, states[:1]),
            compared(simulated(states)), compared(full),
        )
    observation = states[:1]
    calls = {name: lambda policy=policy: policy(observation) for name, policy in policies.items()}
    for name, seconds in timing.latencies(calls, settings.repeats).items():
        measured[name].seconds = seconds
    for name, policy in policies.items():
        timing.progress(f"{agent.algo} {agent.env_id}: {name} plays {settings.episodes} episodes")

        def act(observations: np.ndarray, policy=policy) -> np.ndarray:
            return policy(agent.normalize(observations))

        episodes = evaluation.evaluate(agent.make_env, act, settings.episodes, settings.seed)
        measured[name].returns = [episode.episode_return for episode in episodes]
    return measured


def simulate(
    network: acting_path.PolicyNetwork,
    layer_bits: Mapping[str, int] | None = None,
    ranges: schemes.Ranges | None = None,
    settings: Settings | None = None,
) -> Policy:
    """Returns the simulated form of a policy: quantized numbers, computed with in fp32.

    Args:
      network: in full precision; stays as it is.
      layer_bits: bits of every layer's weights; None: fp32.
      ranges: of activations, which are quantized to 8 bits; None: they are not.
      settings: for the granularity.
    """
    network = network._replace(layers=copy.deepcopy(network.layers))
    granularity = schemes.PAPER if settings is None else settings.granularity
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

    def policy(observations: np.ndarray) -> np.ndarray:
        outputs = acting_path.forward(network, observations, tap).numpy()
        return acting_path.to_actions(network, outputs)

    return policy
