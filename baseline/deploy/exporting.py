"""Loads an agent, and exports it to one self-contained file for a device.

The file takes raw observations, since its agent's normalization is in it, and gives the task's
actions. A player, copied beside it, needs numpy and the runtime alone. The integers
and ranges are those of post-training quantization, or of quantization-aware training.
"""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import re
import tempfile
from typing import Any

import numpy as np

from actorQ.core import errors
from actorQ.core import files
from actorQ.policy import saved
from baseline.agents import actorq
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.deploy import c_files
from baseline.deploy import c_player
from baseline.deploy import players
from baseline.formats import integer_form
from baseline.formats import names
from baseline.formats import native_policy
from baseline.formats import onnx_policy
from baseline.formats import tflite_micro
from baseline.formats import tflite_policy
from baseline.formats import torchscript
from baseline.qat import export as qat_export
from baseline.quantization import acting_path
from baseline.quantization import schemes
from baseline.quantization import tracing
from baseline.tasks import environments

FILE_STEM = "policy"
_CHECKED_STATES, _CHECKED_EPISODES = 500, 10
# These settings are for agents that are not quantized yet.
OF_FULL_PRECISION = ("scheme", "granularity", "calibration_episodes")


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


def load(path: str, algo: str | None = None, env_id: str | None = None) -> agent_lib.Agent:
    """Loads an agent by its path.

    Args:
      path: Stable-Baselines3's zip in the zoo's layout (FOLDER/ALGO/ENV_<n>/ENV.zip, or
        best_model.zip there) or its folder, another zip of it, or an ActorQ run or its checkpoint.
      algo: The zip's algorithm; None: its args.yml or its place tells.
      env_id: The zip's environment; None: its args.yml or its name tells.

    Raises:
      errors.UserError: There is none, or it cannot be loaded.
    """
    found = pathlib.Path(path).absolute()
    if not found.exists():
        raise errors.UserError(f"There is no agent at {path}: there is no such file or folder.")
    if found.is_dir():
        name = re.sub(r"_\d+$", "", found.name)
        zips = [found / f"{stem}.zip" for stem in (found.name, name)]
        found = next((candidate for candidate in zips if candidate.is_file()), found)
    if found.suffix == ".zip":
        return _load_zip(found, algo, env_id)
    if algo is not None or env_id is not None:
        raise errors.UserError(
            f"--algo and --env are for zips of Stable-Baselines3, and {path} is none."
        )
    try:
        checkpoint = saved.load_policy(str(found))
    except errors.UserError as error:
        raise errors.UserError(
            f"{path} is neither an agent's zip (ALGO/ENV_<n>/ENV.zip) or its folder, nor an "
            f"ActorQ run: {error}"
        ) from None
    return actorq.load(checkpoint.algorithm, str(checkpoint.facts["taskstr"]), found)


def _load_zip(path: pathlib.Path, algo: str | None, env_id: str | None) -> agent_lib.Agent:
    if finding.stopped_early(path):
        finding.warn_of_stopped(path)
    if env_id is None:
        env_id = _environment(path)
    noted = zoo_files.read_yaml(finding.settings_folder(env_id, path) / "args.yml").get("algo")
    if algo is not None or noted is not None:  # `check_algo` has a message for other algorithms.
        return finding.load_file(finding.check_algo(str(algo or noted)), env_id, path)
    for folder in (path.parent.parent.name, path.parent.name):
        finding.check_refused(folder)
        with contextlib.suppress(errors.UserError):
            algo = finding.check_algo(str(folder))
            break
    else:
        raise errors.UserError(
            f"Which algorithm is {path} of? Say it: --algo={finding.ALGORITHMS[0]}, for example."
        )
    return finding.load_file(algo, env_id, path)


def _environment(path: pathlib.Path) -> str:
    """Returns the environment of a zip by the files beside it, or by its name.

    Raises:
      errors.UserError: None of them tells it.
    """
    noted = zoo_files.read_yaml(path.parent / "args.yml").get("env")  # As on the zoo's hub.
    if isinstance(noted, str):
        return noted
    settings = [found.parent.name for found in path.parent.glob("*/args.yml")]
    only = settings if len(settings) == 1 else []
    for name in (path.stem, *only, re.sub(r"_\d+$", "", path.parent.name)):
        env_id = zoo_files.environment_name(path.parent / name)
        if environments.may_exist(env_id):
            return env_id
    raise errors.UserError(
        f"Which environment is {path} of? Say it: --env=CartPole-v1, for example."
    )


def export(
    agent: agent_lib.Agent, settings: Settings, ranges: schemes.Ranges | None = None
) -> bytes:
    """Returns the file.

    Args:
      agent: An agent in full precision, or from quantization-aware training.
      settings: How to export it.
      ranges: Ranges of activations; None: they are found where they are needed.

    Raises:
      errors.UserError: The agent has no such form.
    """
    if agent.quantization is not None:
        return _trained(agent, settings)
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
            "The file keeps the integers of the training: --tflite_kernels=micro rounds some of "
            "them again."
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


def _trained(agent: agent_lib.Agent, settings: Settings) -> bytes:
    """Returns the file of an agent whose integers and ranges are those of its training."""
    if agent.quantization is None or not qat_export.is_trained(agent.path):
        raise errors.UserError(
            f"{agent.path} was quantized after training: name the agent that it was made from, "
            "which deploy quantizes itself."
        )
    width = agent.quantization[0].width
    if settings.format == "torchscript":
        raise errors.UserError(
            f"{agent.path} is quantized with ranges of its own, which a file of the format "
            f"{settings.format} has no place for: --format=onnx or --format=tflite."
        )
    if width is not None and width != settings.bits:
        able = [f"--format=onnx --bits={width}"] * (width == qat_export.INTEGER_BITS)
        able += [f"--format=tflite --bits={width}"] * (width <= qat_export.TFLITE_BITS)
        able += [f"--format=c --bits={width}"] * (width <= integer_form.INPUT_BITS)
        raise errors.UserError(
            f"{agent.path} was trained with {width} bits: "
            + (
                f"{' or '.join(able)}." if able else
                f"deploy has no file of so wide integers; {qat_export.PACKED_FILENAME} beside it "
                "has them."
            )
        )
    ours = Settings(settings.format, kernels=settings.kernels)
    other = [name for name in OF_FULL_PRECISION if getattr(settings, name) != getattr(ours, name)]
    if other and settings.bits <= onnx_policy.INPUT_BITS:  # Wider files quantize weights alone.
        raise errors.UserError(
            f"{agent.path} is quantized already, with ranges of its own: leave "
            f"{' and '.join(f'--{name}' for name in other)} out."
        )
    if settings.micro:
        ranges = _with_output(agent, settings, agent.quantization[1])
        return qat_export.export_tflite_micro(agent, ranges)
    if settings.format == "tflite":
        return qat_export.export_tflite(agent, normalizes=True)
    if settings.format == "c":
        form = integer_form.make(
            agent.network, settings.bits, qat_export.ranges_with_bits(agent),
            normalization=agent.normalization, weights=qat_export.integer_weights(agent),
            image_size=agent.image_size(),
        )
        facts = _c_facts(f"{agent.algo} for {agent.env_id}", agent.network, settings)
        return c_files.export(form, settings.c, facts)
    return qat_export.export(agent, normalizes=True).SerializeToString()


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
