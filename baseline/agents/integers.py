"""The integers of a quantized agent, made from the ranges of weights that it notes.

Agents of quantization-aware training note these ranges, and so do those of a post-training method.
"""

import numpy as np

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import agent as agent_lib
from baseline.quantization import packed_policy
from baseline.quantization import schemes


def weights(agent: agent_lib.Agent) -> dict[str, quantization.QuantizedTensor]:
    """Returns the integers of an agent's weights by layer.

    Raises:
      errors.UserError: The agent does not tell them, rounds down, or its files do not fit.
    """
    if agent.quantization is None or agent.weight_ranges is None:
        raise errors.UserError(
            f"{agent.path} does not tell its integers: agents of baseline.qat and of "
            "baseline.ptq --method do."
        )
    scheme, _ = agent.quantization
    if scheme.rounding != "nearest":
        raise errors.UserError(f"{agent.path} rounds down, which its integer forms do not.")
    tensors = {}
    for name, module in agent.network.with_weights():
        reals = module.weight.detach().numpy()
        try:
            *ends, own = (*agent.weight_ranges[name], scheme.bits)[:3]
            bits = int(own)
            low, high = (np.asarray(end, np.float64) for end in ends)
            affine = quantization.affine_map(low, high, bits)
            if affine.delta.shape not in ((), reals.shape[:1]):
                raise ValueError(f"ranges of another shape for {name}")
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise errors.UserError(
                f"The facts about the quantization of {agent.path} are damaged: {error}."
            ) from None
        tensor = quantization.QuantizedTensor(
            quantization.affine_values(reals, affine, bits),
            np.atleast_1d(affine.delta),
            affine.zero_point if affine.zero_point.ndim else int(affine.zero_point),
            bits,
        )
        if not np.array_equal(quantization.dequantize(tensor), reals):
            raise errors.UserError(
                f"The weights of {agent.path} do not fit {schemes.FILENAME} beside it."
            )
        tensors[name] = tensor
    return tensors


def ranges_with_bits(agent: agent_lib.Agent) -> schemes.Ranges:
    """Returns the ranges of activations, each with its bits.

    Raises:
      errors.UserError: The agent's activations are not quantized.
    """
    scheme, ranges = with_activations(agent)
    bits = int(scheme.bits)
    return {name: (low, high, *(own or (bits,))) for name, (low, high, *own) in ranges.items()}


def with_activations(agent: agent_lib.Agent) -> tuple[schemes.Scheme, schemes.Ranges]:
    """Returns the scheme of an agent whose activations are quantized, and their ranges.

    Raises:
      errors.UserError: They are not quantized.
    """
    if agent.quantization is None or agent.quantization[1] is None:
        raise errors.UserError(f"{agent.path} was not quantized with its activations.")
    return agent.quantization[0], agent.quantization[1]


def packed(agent: agent_lib.Agent) -> packed_policy.Policy:
    """Returns an agent's integers, biases and ranges.

    Raises:
      errors.UserError: See `weights` and `ranges_with_bits`.
    """
    biases = {
        name: module.bias.detach().numpy()
        for name, module in agent.network.with_weights()
        if module.bias is not None
    }
    return packed_policy.Policy(weights(agent), biases, with_activations(agent)[1])


def num_bytes(agent: agent_lib.Agent) -> int:
    """Returns the size of the acting path's parameters: packed, where they are integers."""
    if agent.quantization is not None:
        return packed_policy.num_bytes(packed(agent))
    return sum(
        4 * parameter.numel()
        for _, module in agent.network.with_weights()
        for parameter in module.parameters()
    )
