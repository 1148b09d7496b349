"""What quantization-aware training leaves: a plain agent, its integers, and an integer model.

The agent's zip has the weights as its integers stand for them, in plain layers: SB3's own loader
takes it. `quantization.json` beside it (as post-training quantization writes it, with the ranges
of the weights as well) lets `agents.load` quantize activations as in training. `packed.npz` has
the integers, packed to their width.
"""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np
import onnx

from actorQ import errors
from actorQ import packing
from actorQ import quantization
from baseline import agents
from baseline import agreement
from baseline import integer
from baseline import integer_runner
from baseline import networks
from baseline import qat_model
from baseline import quantize

PACKED_FILENAME = "packed.npz"
INTEGER_BITS = 8  # Of the engine's integers; narrower ones have no engine that computes with them.


def write(converted: qat_model.Converted, path: pathlib.Path) -> None:
    """Writes what belongs beside an agent's zip; nothing for one that is not quantized.

    Args:
      converted: of the model that was saved.
      path: of the zip, in the zoo's layout.

    Raises:
      errors.UserError: a file cannot be written.
    """
    if not converted.quantized:
        return
    settings = converted.settings
    facts = {
        **quantize.to_json(settings.scheme, converted.ranges),
        "training": {"quant_delay": settings.delay, "ranges": settings.ranges},
        "weight_ranges": {
            name: [end.tolist() for end in ends] for name, ends in converted.weight_ranges.items()
        },
    }
    target = _beside(path) / quantize.FILENAME
    try:
        target.with_suffix(".tmp").write_text(json.dumps(facts, indent=1))
        os.replace(target.with_suffix(".tmp"), target)
    except OSError as error:
        raise errors.UserError(f"Cannot write {target}: {error.strerror}.") from None


def integer_weights(agent: agents.Agent) -> dict[str, quantization.QuantizedTensor]:
    """Returns the integers of an agent's weights by layer, with the maps of its training.

    Raises:
      errors.UserError: the agent was not trained with quantization, or its files do not fit.
    """
    facts = _facts(agent)
    bits = int(facts["bits"])
    tensors = {}
    for name, module in agent.network.with_weights():
        try:
            low, high = (np.asarray(end, np.float32) for end in facts["weight_ranges"][name])
            affine = quantization.affine_map(low, high, bits)
        except (KeyError, TypeError, ValueError) as error:
            raise errors.UserError(
                f"What {agent.path} says of its quantization is damaged: {error}."
            ) from None
        reals = module.weight.detach().numpy()
        tensor = quantization.QuantizedTensor(
            quantization.affine_values(reals, affine, bits),
            np.atleast_1d(affine.delta),
            affine.zero_point if affine.zero_point.ndim else int(affine.zero_point),
            bits,
        )
        if not np.array_equal(quantization.dequantize(tensor), reals):
            raise errors.UserError(
                f"The weights of {agent.path} are not those that {quantize.FILENAME} "
                "beside it is about."
            )
        tensors[name] = tensor
    return tensors


class Size(NamedTuple):
    """Bytes of an agent's acting path.

    Attributes:
      packed: weights packed to their width, a float32 scale and a zero point for each map, biases
        in fp32.
      full: all of them in fp32.
    """

    packed: int
    full: int


def size(agent: agents.Agent) -> Size:
    """Returns how large an agent is; one without integers is as large as in fp32."""
    full = packed = 0
    integers = {} if agent.quantization is None else integer_weights(agent)
    for name, module in agent.network.with_weights():
        bias = 0 if module.bias is None else 4 * module.bias.numel()
        full += 4 * module.weight.numel() + bias
        packed += bias
        if name not in integers:
            packed += 4 * module.weight.numel()
            continue
        tensor = integers[name]
        packed += packing.packed_bytes(tensor.values.size, tensor.bits)
        packed += tensor.scale.size * (4 + -(-tensor.bits // 8))
    return Size(packed, full)


def write_packed(agent: agents.Agent) -> pathlib.Path:
    """Writes the integers beside an agent, packed; returns the file.

    Arrays: for each layer NAME.weight (uint8, see `actorQ.packing`), NAME.shape, NAME.scale,
    NAME.zero_point, NAME.bias; for activations RANGES of the names in `names`; and `bits`.

    Raises:
      errors.UserError: see `integer_weights`; or the file cannot be written.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in integer_weights(agent).items():
        layer = dict(agent.network.with_weights())[name]
        arrays[f"{name}.weight"] = packing.pack(tensor.values.ravel(), tensor.bits)
        arrays[f"{name}.shape"] = np.array(tensor.values.shape, np.uint32)
        arrays[f"{name}.scale"] = tensor.scale
        arrays[f"{name}.zero_point"] = np.atleast_1d(tensor.zero_point).astype(np.uint32)
        if layer.bias is not None:
            arrays[f"{name}.bias"] = layer.bias.detach().numpy()
    scheme, ranges = agent.quantization
    path = _beside(agent.path) / PACKED_FILENAME
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "wb") as file:
            np.savez(
                file, **arrays, bits=np.uint8(scheme.width), names=np.array(list(ranges)),
                ranges=np.array(list(ranges.values()), np.float32),
            )
        os.replace(temporary, path)
    except OSError as error:
        raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from None
    return path


def read_packed(path: str | os.PathLike[str]) -> dict[str, quantization.QuantizedTensor]:
    """Returns the weights that `write_packed` wrote, by layer.

    Raises:
      errors.UserError: the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            bits = int(file["bits"])
            names = [key.removesuffix(".weight") for key in file if key.endswith(".weight")]
            return {name: _unpacked(file, name, bits) for name in names}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise errors.UserError(f"Cannot read {path}: {errors.summary(error)}") from None


def export(agent: agents.Agent, normalizes: bool = False) -> onnx.ModelProto:
    """Returns an 8-bit agent as a model that computes with its integers and ranges.

    Args:
      agent: trained with 8 bits.
      normalizes: whether the model normalizes observations itself.

    Raises:
      errors.UserError: the agent has another width, or was not trained with quantization.
    """
    weights = integer_weights(agent)
    scheme, ranges = agent.quantization
    if scheme.width != INTEGER_BITS:
        raise errors.UserError(
            f"{agent.path} has {scheme.bits} bits, but engines compute with {INTEGER_BITS}: "
            f"{PACKED_FILENAME} beside it has its integers, packed."
        )
    return integer.export(
        agent.network, INTEGER_BITS, ranges, scheme.granularity, scheme.rounding,
        normalization=agent.normalization if normalizes else None, weights=weights,
    )


def compare(
    agent: agents.Agent, episodes: int = 5, seed: int = 0, states: int = 5000
) -> agreement.Agreement:
    """Returns how far the integer model acts as the fake-quantized agent does.

    Args:
      agent: trained with 8 bits.
      episodes: that the agent plays, to visit states.
      seed: of the starts.
      states: at most so many are compared.

    Raises:
      errors.UserError: see `export`.
    """
    runner = integer_runner.Runner(export(agent).SerializeToString())
    visited = agreement.visited_states(agent.make_env, agent.act, episodes, seed, states)
    return agreement.compare(
        networks.to_actions(
            agent.network,
            networks.forward(agent.network, agent.normalize(visited), agent.tap).numpy(),
        ),
        runner(agent.normalize(visited)),
        agent.network.low,
        agent.network.high,
    )


def _beside(path: pathlib.Path) -> pathlib.Path:
    return path.parent / path.stem


def _facts(agent: agents.Agent) -> Mapping[str, Any]:
    path = _beside(agent.path) / quantize.FILENAME
    try:
        facts = json.loads(path.read_text())
        if "weight_ranges" in facts:
            return facts
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise errors.UserError(f"Cannot read {path}: {errors.summary(error)}") from None
    raise errors.UserError(f"{agent.path} was not trained with quantization: see baseline.qat.")


def _unpacked(
    file: Mapping[str, np.ndarray], name: str, bits: int
) -> quantization.QuantizedTensor:
    shape = tuple(int(side) for side in file[f"{name}.shape"])
    values = packing.unpack(file[f"{name}.weight"], bits, int(np.prod(shape))).reshape(shape)
    zero_point = file[f"{name}.zero_point"].astype(np.int64)
    if not np.all(zero_point < 2**bits):
        raise ValueError(f"{name}.zero_point is out of range.")
    return quantization.QuantizedTensor(
        values, file[f"{name}.scale"], int(zero_point[0]) if zero_point.size == 1 else zero_point,
        bits,
    )
