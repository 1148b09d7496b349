"""Exports an agent to one self-contained file for a device.

The file takes raw observations, since its agent's normalization is in it, and gives the task's
actions. A player, copied beside it, needs numpy and the runtime alone. The integers and ranges are
those that `minmax` finds here, or those that a quantized agent tells.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import pathlib
import tempfile
from typing import Any

import numpy as np

from actorQ.core import errors
from actorQ.core import files
from baseline.agents import actorq
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.agents import integers
from baseline.agents import zoo_files
from baseline.deploy import c_files
from baseline.deploy import c_player
from baseline.deploy import players
from baseline.formats import integer_form
from baseline.formats import names
from baseline.formats import native_policy
from baseline.formats import onnx_policy
from baseline.formats import quantized_agents
from baseline.formats import tflite_micro
from baseline.formats import tflite_policy
from baseline.formats import torchscript
from baseline.quantization import acting_path
from baseline.quantization import recipes
from baseline.quantization import schemes
from baseline.quantization import tracing

FILE_STEM = "policy"
_CHECKED_STATES, _CHECKED_EPISODES = 500, 10
# These settings are for agents that are not quantized yet.
OF_FULL_PRECISION = ("scheme", "granularity", "calibration_episodes")
_DEPLOYABLE = "bias-correction,action"  # The best of auto's that needs no other basis.


@dataclasses.dataclass(frozen=True)
class Settings:
    """Says how a policy is exported.

    Attributes:
      format: One of `names.FORMATS`.
      bits: Bits of the weights.
      scheme: "weights" or "weights+activations", as `names.scheme` gives it.
      granularity: Granularity of linear layers' weights: "paper" or "channel".
      calibration_episodes: Episodes that find the ranges of activations.
      seed: Seed of their starts.
      kernels: Kernels that a TFLite file is for, one of `names.KERNELS`.
      c: How files in C are written.
    """

    format: str = "onnx"
    bits: int = 8
    scheme: str = schemes.WEIGHTS_AND_ACTIVATIONS
    granularity: str = schemes.PAPER
    calibration_episodes: int = calibration.EPISODES
    seed: int = 0
    kernels: str = names.EXACT
    c: c_files.Options = c_files.Options()

    def __post_init__(self) -> None:
        if self.micro:  # The specification of its files asks for a scale for each output.
            object.__setattr__(self, "granularity", schemes.CHANNEL)

    @property
    def calibrates(self) -> bool:
        """Says whether the file needs ranges of activations."""
        integers = self.scheme == schemes.WEIGHTS_AND_ACTIVATIONS
        return integers and self.bits <= onnx_policy.INPUT_BITS

    @property
    def micro(self) -> bool:
        """Says whether the file is for TensorFlow Lite Micro."""
        return (self.format, self.bits, self.kernels) == ("tflite", names.MICRO_BITS, names.MICRO)


def export(
    agent: agent_lib.Agent, settings: Settings, ranges: schemes.Ranges | None = None
) -> bytes:
    """Returns the file.

    Args:
      agent: An agent in full precision, or one that tells its integers (`integers`).
      settings: How to export it.
      ranges: Ranges of activations; None: they are found where they are needed.

    Raises:
      errors.UserError: The agent has no such form.
    """
    if agent.quantization is not None:
        return _quantized(agent, settings)
    network = actorq.native_network(agent)
    if settings.calibrates and ranges is None:
        ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    if settings.micro:
        ranges = _with_output(agent, settings, ranges)
    return export_network(
        network, settings, ranges if settings.calibrates else None, agent.normalization,
        agent.image_size(), f"{agent.algo} for {agent.env_id}",
    )


def export_network(
    network: acting_path.PolicyNetwork,
    settings: Settings,
    ranges: schemes.Ranges | None,
    normalization: zoo_files.Normalization | None = None,
    image_size: tuple[int, int] | None = None,
    named: str = "A policy",
) -> bytes:
    """Returns the file of an acting path in full precision.

    Args:
      network: The acting path.
      settings: How to export it.
      ranges: Ranges of activations; None: they stay floats, or get ranges from every call. Files
        for TensorFlow Lite Micro have some of the output, see `tflite_micro.export`.
      normalization: How observations are normalized, or None.
      image_size: Height and width of images; None where there are none.
      named: Its agent, for people.

    Raises:
      errors.UserError: There is no such form.
    """
    if settings.format == "c":
        form = integer_form.make(
            network, settings.bits, ranges, settings.granularity, normalization,
            image_size=image_size,
        )
        return c_files.export(form, settings.c, _c_facts(named, network, settings))
    if settings.format == "onnx":
        return onnx_policy.export(
            network, settings.bits, ranges, settings.granularity, normalization=normalization,
            image_size=image_size,
        ).SerializeToString()
    if settings.format == "torchscript":
        return torchscript.export(
            network, settings.bits, settings.granularity, normalization=normalization,
            image_size=image_size,
        )
    if settings.micro:
        return tflite_micro.export(
            network, ranges or {}, normalization=normalization, image_size=image_size
        )
    if settings.format == "native":
        return native_policy.export(network, settings.bits, normalization, image_size)
    weights = {}
    if ranges is not None:
        scheme = schemes.Scheme(str(settings.bits), granularity=settings.granularity)
        weights = {
            name: schemes.integers(name, module, scheme, settings.bits)
            for name, module in network.with_weights()
        }
    return tflite_policy.export(
        network, ranges, weights, normalization=normalization, image_size=image_size
    )


def _c_facts(
    named: str, network: acting_path.PolicyNetwork, settings: Settings
) -> list[str]:
    """Returns what a file in C says of itself."""
    sizes = [str(len(module.weight)) for _, module in network.with_weights()]
    integers = settings.bits < 16
    facts = [
        f"{named}, written by baseline.deploy.",
        f"{settings.bits} bits, layers of {', '.join(sizes)} outputs"
        + (f", {settings.scheme}, granularity {settings.granularity}." if integers else "."),
    ]
    if network.fields:
        facts.append(f"An observation is one vector: {layout(network.fields)}.")
    return facts


def why_not_micro(agent: agent_lib.Agent, bits: int) -> str:
    """Returns why TensorFlow Lite Micro is not the one that `deploy` chooses; empty: it is.

    Args:
      agent: The agent.
      bits: Bits of the weights.
    """
    if bits != names.MICRO_BITS:
        return f"Its integers have {names.MICRO_BITS} bits, and the file {bits}."
    if agent.quantization is not None:
        return (
            "The file keeps the agent's integers: --tflite_kernels=micro rounds some of them again."
        )
    try:
        tflite_micro.check(actorq.native_network(agent))
    except errors.UserError as error:
        return str(error)
    return ""


def _with_output(
    agent: agent_lib.Agent, settings: Settings, ranges: schemes.Ranges | None
) -> schemes.Ranges:
    """Returns ranges of activations with that of the outputs that a micro file resolves."""
    assert ranges is not None  # Files for TensorFlow Lite Micro have activations of integers.
    network = actorq.native_network(agent)
    tflite_micro.check(network)
    made = tflite_micro.prepared(network)
    if made.head == "scale":  # The bounds of actions are the range.
        return ranges
    found = calibration.ranges(
        dataclasses.replace(agent, network=made), settings.calibration_episodes, settings.seed,
        output=True,
    )
    return {**ranges, acting_path.OUTPUT: found[acting_path.OUTPUT]}


def _quantized(agent: agent_lib.Agent, settings: Settings) -> bytes:
    """Returns the file of an agent that is quantized already, with its own integers."""
    assert agent.quantization is not None
    scheme, ranges = agent.quantization
    if agent.weight_ranges is None:
        raise errors.UserError(f"{agent.path} {_why_no_integers(scheme)}")
    if settings.format in ("torchscript", "native"):
        raise errors.UserError(
            f"{agent.path} is quantized with ranges of its own, which a file of the format "
            f"{settings.format} has no place for: --format=onnx, --format=tflite or --format=c."
        )
    width = scheme.width
    if width is not None and width != settings.bits:
        able = [f"--format=onnx --bits={width}"] * (width == quantized_agents.INTEGER_BITS)
        able += [f"--format=tflite --bits={width}"] * (width <= quantized_agents.TFLITE_BITS)
        able += [f"--format=c --bits={width}"] * (width <= integer_form.INPUT_BITS)
        raise errors.UserError(
            f"{agent.path} has {width} bits: "
            + (f"{' or '.join(able)}." if able else "deploy has no file of so wide integers.")
        )
    ours = Settings(settings.format, kernels=settings.kernels)
    fixed = [
        name for name in OF_FULL_PRECISION if ranges is not None or name != "calibration_episodes"
    ]
    other = [name for name in fixed if getattr(settings, name) != getattr(ours, name)]
    if other and settings.bits <= onnx_policy.INPUT_BITS:  # Wider files quantize weights alone.
        raise errors.UserError(
            f"{agent.path} is quantized already, with ranges of its own: leave "
            f"{' and '.join(f'--{name}' for name in other)} out."
        )
    if ranges is None:  # Its weights are integers, and a device computes with integers of both.
        found = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
        ranges = {
            name: (low, high, integer_form.INPUT_BITS) for name, (low, high, *_) in found.items()
        }
    native = dataclasses.replace(
        agent, network=actorq.native_network(agent), quantization=(scheme, ranges)
    )
    if settings.micro:
        return quantized_agents.tflite_micro_file(native, _with_output(agent, settings, ranges))
    if settings.format == "tflite":
        return quantized_agents.tflite_file(native, normalizes=True)
    if settings.format == "c":
        form = integer_form.make(
            native.network, settings.bits, integers.ranges_with_bits(native),
            normalization=agent.normalization, weights=integers.weights(native),
            image_size=agent.image_size(),
        )
        facts = _c_facts(f"{agent.algo} for {agent.env_id}", native.network, settings)
        return c_files.export(form, settings.c, facts)
    return quantized_agents.onnx_file(native, normalizes=True).SerializeToString()


def _why_no_integers(scheme: schemes.Scheme) -> str:
    """Returns why an agent's file cannot have its integers, and what to do, after its name."""
    if not scheme.calibrates or scheme.width is None:
        return (
            "was quantized after training: name the agent that it was made from, which deploy "
            "quantizes itself."
        )
    if scheme.group_size:
        return (
            f"has a scale for every {scheme.group_size} inputs, and no file has such: quantize it "
            "with --group_size=0."
        )
    if recipes.recipe(scheme.method).transform is not None and not scheme.activations:
        return (
            f"was quantized by {scheme.method}: its inputs change their basis, which no file does. "
            f"Quantize it by another --method, such as {_DEPLOYABLE}."
        )
    return "was quantized by an earlier version, which did not note integers: quantize it again."


def write(content: bytes, file_format: str, folder: str) -> pathlib.Path:
    """Writes the file and its player; returns the file's path.

    Args:
      content: The file.
      file_format: One of `names.FORMATS`.
      folder: Folder, made if missing.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    target = pathlib.Path(folder)
    path = target / f"{FILE_STEM}{names.ENDINGS[file_format]}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        if file_format == "c":
            c_files.write(content, target)
        else:
            players.place(file_format, target)
    except OSError as error:
        raise errors.UserError(f"Cannot write {folder}: {error.strerror or error}.") from None
    files.write(path, content)
    return path


def load_file(content: bytes, file_format: str) -> Any:
    """Returns a file's policy, as a device would load it.

    Args:
      content: The file.
      file_format: One of `names.FORMATS`.

    Raises:
      errors.UserError: Its player cannot be compiled.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"{FILE_STEM}{names.ENDINGS[file_format]}")
        path.write_bytes(content)
        return c_player.Policy(path) if file_format == "c" else players.load(path)


def one_by_one(act: Callable[..., np.ndarray], *name: str) -> evaluation.Act:
    """Returns a function that acts on a batch as a device does: one observation after the other.

    Args:
      act: A policy that `load_file` returns, or another function of one observation.
      *name: "output" for the numbers that a policy's action follows from.
    """
    return lambda observations: np.stack([act(each, *name) for each in observations])


def acting(network: acting_path.PolicyNetwork, tap: acting_path.Tap | None) -> evaluation.Act:
    """Returns the acting path as a function of normalized observations [B, ...]."""
    return lambda observations: acting_path.to_actions(
        network, acting_path.forward(network, observations, tap).numpy()
    )


def acting_in_task(agent: agent_lib.Agent) -> evaluation.Act:
    """Returns raw observations [B, ...] to actions in the units of the task, as in a file."""
    act = acting(actorq.native_network(agent), agent.tap)
    return lambda observations: act(agent.normalize(observations))


def visited(agent: agent_lib.Agent, seed: int) -> np.ndarray:
    """Returns raw observations [N, ...] that an agent meets, in which its files are checked.

    Args:
      agent: The agent.
      seed: Seed of the starts.
    """
    return agreement.visited_states(
        agent.make_env, agent.act, _CHECKED_EPISODES, seed, _CHECKED_STATES
    )


def compare(
    agent: agent_lib.Agent, content: bytes, file_format: str, states: np.ndarray
) -> agreement.Agreement:
    """Plays a file in some states; returns how far it acts as its agent does.

    Args:
      agent: The agent that the file was made from.
      content: The file.
      file_format: One of `names.FORMATS`.
      states: Raw observations [N, ...].
    """
    network = actorq.native_network(agent)
    acted = one_by_one(load_file(content, file_format))(states)
    return agreement.compare(acting_in_task(agent)(states), acted, network.low, network.high)


def layout(fields: Sequence[tracing.Field]) -> str:
    """Returns the order in which the parts of an observation lie in its vector, for people."""
    parts = [
        f"{field.name} ({'x'.join(map(str, field.shape))})" if field.shape else field.name
        for field in fields
    ]
    return ", then ".join(parts)
