"""Exports an agent to one self-contained file for a device: what `deploy` does.

The file takes raw observations (its agent's normalization is in it) and gives the task's actions;
`run_policy.py`, copied beside it, plays it with numpy and the runtime alone. The integers are those
of post-training quantization (`quantize`), or of quantization-aware training (`qat_export`), with
the ranges of either; the exporters are `integer` (ONNX), `tflite_model` and `torchscript_model`.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import pathlib
import re
import shutil
import tempfile

import numpy as np

from actorQ.core import errors
from actorQ.core import files
from actorQ.policy import saved
from baseline.agents import actorq
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.deploy import run_policy
from baseline.formats import names as formats
from baseline.formats import onnx_policy
from baseline.formats import tflite_policy
from baseline.formats import torchscript
from baseline.qat import export as qat_export
from baseline.quantization import acting_path
from baseline.quantization import schemes

RUNNER = "run_policy.py"
FILE_STEM = "policy"
BEST_MODEL = "best_model"  # What --eval_freq calls the best agent.
_CHECKED_STATES, _CHECKED_EPISODES = 500, 10
# Settings for agents that are not quantized yet.
_OF_FULL_PRECISION = ("scheme", "granularity", "calibration_episodes")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to export.

    Attributes:
      format: one of `deploy_formats.FORMATS`.
      bits: of the weights.
      scheme: "weights" or "weights+activations", as `deploy_formats.scheme` gives it.
      granularity: of linear layers' weights, "paper" or "channel".
      calibration_episodes: that find the ranges of activations.
      seed: of their starts.
    """

    format: str = "onnx"
    bits: int = 8
    scheme: str = schemes.WEIGHTS_AND_ACTIVATIONS
    granularity: str = schemes.PAPER
    calibration_episodes: int = calibration.EPISODES
    seed: int = 0

    @property
    def calibrates(self) -> bool:
        """Whether there are ranges to be found."""
        integers = self.scheme == schemes.WEIGHTS_AND_ACTIVATIONS
        return integers and self.bits <= onnx_policy.INPUT_BITS


def load(path: str) -> agent_lib.Agent:
    """Loads an agent by its path.

    Args:
      path: of Stable-Baselines3's zip in the zoo's layout (FOLDER/ALGO/ENV_<n>/ENV.zip, or
        best_model.zip there) or its folder, or of an ActorQ run or its checkpoint.

    Raises:
      errors.UserError: there is none, or it cannot be loaded.
    """
    found = pathlib.Path(path).absolute()
    if not found.exists():
        raise errors.UserError(f"There is no agent at {path}: there is no such file or folder.")
    if found.is_dir():
        name = re.sub(r"_\d+$", "", found.name)
        zips = [found / f"{stem}.zip" for stem in (found.name, name)]
        found = next((candidate for candidate in zips if candidate.is_file()), found)
    if found.suffix == ".zip":
        return _load_zip(found)
    try:
        checkpoint = saved.load_policy(str(found))
    except errors.UserError as error:
        raise errors.UserError(
            f"{path} is neither an agent's zip (ALGO/ENV_<n>/ENV.zip) or its folder, nor an "
            f"ActorQ run: {error}"
        ) from None
    return actorq.load(checkpoint.algorithm, str(checkpoint.facts["taskstr"]), found)


def _load_zip(path: pathlib.Path) -> agent_lib.Agent:
    if finding.stopped_early(path):
        finding.warn_of_stopped(path)
    name = _environment_file_name(path)
    env_id = zoo_files.environment_name(path.parent / name)
    noted = zoo_files.read_yaml(path.parent / name / "args.yml").get("algo")
    if noted is not None:  # Another algorithm than these has a message of its own.
        return finding.load_file(finding.check_algo(str(noted)), env_id, path)
    for folder in (path.parent.parent.name, path.parent.name):
        with contextlib.suppress(errors.UserError):
            algo = finding.check_algo(str(folder))
            break
    else:
        raise errors.UserError(
            f"Which algorithm is {path} of? The zoo's layout says: ALGO/{name}_1/{path.name}."
        )
    return finding.load_file(algo, env_id, path)


def _environment_file_name(path: pathlib.Path) -> str:
    """Returns what the files of an agent's environment are called; best_model.zip does not say."""
    if path.stem != BEST_MODEL:
        return path.stem
    settings = [found.parent.name for found in path.parent.glob("*/args.yml")]
    return settings[0] if len(settings) == 1 else re.sub(r"_\d+$", "", path.parent.name)


def export(
    agent: agent_lib.Agent, settings: Settings, ranges: schemes.Ranges | None = None
) -> bytes:
    """Returns the file.

    Args:
      agent: in full precision, or from quantization-aware training.
      settings: how.
      ranges: of activations, where they are known; None: they are found where they are needed.

    Raises:
      errors.UserError: the agent has no such form.
    """
    if agent.quantization is not None:
        return _trained(agent, settings)
    network = actorq.native_network(agent)
    if settings.calibrates and ranges is None:
        ranges = calibration.ranges(agent, settings.calibration_episodes, settings.seed)
    return export_network(
        network, settings, ranges if settings.calibrates else None, agent.normalization,
        agent.image_size(),
    )


def export_network(
    network: acting_path.PolicyNetwork,
    settings: Settings,
    ranges: schemes.Ranges | None,
    normalization: zoo_files.Normalization | None = None,
    image_size: tuple[int, int] | None = None,
) -> bytes:
    """Returns the file of an acting path in full precision.

    Args:
      network: the acting path.
      settings: how.
      ranges: of activations; None where they stay floats, or get them from every call.
      normalization: of observations, or None.
      image_size: height and width of images; None where there are none.

    Raises:
      errors.UserError: there is no such form.
    """
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


def _trained(agent: agent_lib.Agent, settings: Settings) -> bytes:
    """Returns the file of an agent that has its integers and ranges from its training."""
    if not qat_export.is_trained(agent.path):
        raise errors.UserError(
            f"{agent.path} was quantized after training: name the agent that it was made from, "
            "which deploy quantizes itself."
        )
    width = agent.quantization[0].width
    if settings.format not in ("onnx", "tflite"):
        raise errors.UserError(
            f"{agent.path} is quantized with ranges of its own, which a file of the format "
            f"{settings.format} has no place for: --format=onnx or --format=tflite."
        )
    if width is not None and width != settings.bits:
        able = [f"--format=onnx --bits={width}"] * (width == qat_export.INTEGER_BITS)
        able += [f"--format=tflite --bits={width}"] * (width <= qat_export.TFLITE_BITS)
        raise errors.UserError(
            f"{agent.path} was trained with {width} bits: "
            + (
                f"{' or '.join(able)}." if able else
                f"deploy has no file of so wide integers; {qat_export.PACKED_FILENAME} beside it "
                "has them."
            )
        )
    ours = Settings()
    other = [name for name in _OF_FULL_PRECISION if getattr(settings, name) != getattr(ours, name)]
    if other and settings.bits <= onnx_policy.INPUT_BITS:  # Wider files quantize nothing else.
        raise errors.UserError(
            f"{agent.path} is quantized already, with ranges of its own: leave "
            f"{' and '.join(f'--{name}' for name in other)} out."
        )
    if settings.format == "tflite":
        return qat_export.export_tflite(agent, normalizes=True)
    return qat_export.export(agent, normalizes=True).SerializeToString()


def write(content: bytes, file_format: str, folder: str) -> pathlib.Path:
    """Writes the file and its runner; returns the file's path.

    Args:
      content: of the file.
      file_format: one of `deploy_formats.FORMATS`.
      folder: made if missing.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    target = pathlib.Path(folder)
    path = target / f"{FILE_STEM}{formats.ENDINGS[file_format]}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run_policy.__file__, target / RUNNER)
    except OSError as error:
        raise errors.UserError(f"Cannot write {folder}: {error.strerror or error}.") from None
    files.write(path, content)
    return path


@contextlib.contextmanager
def playing(content: bytes, file_format: str) -> Iterator[run_policy.Policy]:
    """Gives a file's `run_policy.Policy`, as a device would load it.

    Args:
      content: of the file.
      file_format: one of `deploy_formats.FORMATS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"{FILE_STEM}{formats.ENDINGS[file_format]}")
        path.write_bytes(content)
        yield run_policy.Policy(path)


def one_by_one(
    policy: Callable[..., np.ndarray], name: str = "action"
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns what acts on a batch as a device does: one observation after the other.

    Args:
      policy: a `run_policy.Policy`.
      name: "action", or "output" for what the action follows from.
    """
    return lambda observations: np.stack(
        [policy(observation, name) for observation in observations]
    )


def check(agent: agent_lib.Agent, content: bytes, settings: Settings) -> agreement.Agreement:
    """Plays the file in states that the agent visits; returns how far it acts as the agent does.

    Args:
      agent: that the file was made from.
      content: of the file.
      settings: with which it was made.
    """
    states = agreement.visited_states(
        agent.make_env, agent.act, _CHECKED_EPISODES, settings.seed + 1, _CHECKED_STATES
    )
    network = actorq.native_network(agent)
    outputs = acting_path.forward(network, agent.normalize(states), agent.tap).numpy()
    with playing(content, settings.format) as policy:
        acted = one_by_one(policy)(states)
    return agreement.compare(
        acting_path.to_actions(network, outputs), acted, network.low, network.high
    )
