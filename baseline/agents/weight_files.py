"""Finds the weights of a model in a file or folder, whatever library wrote it.

`visualize` and `findings` use it. It reads zips of Stable-Baselines3 and 2, state_dicts of torch,
safetensors (ActorQ's policies), checkpoints and SavedModels of TensorFlow (ActorQ's learner),
frozen graphs, pickles of stable-baselines 2, and folders with any of them. Nothing in these files
is run.
"""

from collections.abc import Mapping
import os
import pathlib
import re
from typing import NamedTuple

import numpy as np

from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.policy import saved
from baseline.agents import weight_readers

POLICY = "policy"
ALL = "all"
PARTS = (POLICY, ALL)

# Axis of a kernel's output channels.
TORCH_AXIS = 0
TENSORFLOW_AXIS = -1

LISTED = 4  # Largest number of names in a message.
_ENDINGS = (".safetensors", ".pth", ".pt", ".pb", ".pkl")
_NOT_AGENTS = ("vecnormalize.pkl", weight_readers.SAVED_MODEL_PB)

_TF_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# Counters, and the numbers that optimizers keep for each weight.
_TRAINING = re.compile(
    r"(^|[/._])(optimizer|optim|OPTIMIZER_SLOT|exp_avg|exp_avg_sq|square_avg|Adam|Adam_\d+"
    r"|RMSProp|RMSProp_\d+|Momentum|beta[12]_power|num_steps|save_counter|global_step"
    r"|running_mean|running_var)([/._]|$)"
)
# Networks that take no part in acting (critics, targets, the spread of exploration), by their names
# in Stable-Baselines 3 and 2 and in ActorQ's learner.
_NOT_ACTING = re.compile(
    r"(^|[/._])target([/._]|$)|(^|[/.])([^/.]*_target|critics?|value_net|vf_features_extractor"
    r"|vf|vf_fc\d+|value_fn|qf\d*|log_?std)([/.]|$)|(^|/)target_[^/]*/|^model/q/"
)
# Stable-Baselines3 lists a features extractor thrice if policy and value function share it.
_SHARED, _SHARED_AGAIN = "features_extractor.", "pi_features_extractor."


class WeightFile(NamedTuple):
    """The weights of a model.

    Attributes:
      model: Path that stands for the model: the folder of an agent or run, or the file.
      path: The file that was read, or the prefix of a checkpoint.
      kind: The kind of the file, for people.
      tensors: float32 arrays of one axis or more by name, in the file's order.
      channel_axis: Axis of the output channels: 0 (torch) or -1 (TensorFlow).
      notes: Remarks for readers of the results, such as other models in the same place.
    """

    model: str
    path: str
    kind: str
    tensors: Mapping[str, np.ndarray]
    channel_axis: int
    notes: tuple[str, ...]

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the kernels."""
        return {name: array for name, array in self.tensors.items() if not is_bias(name, array)}

    def biases(self) -> dict[str, np.ndarray]:
        """Returns the biases and other tensors with one number for each channel."""
        return {name: array for name, array in self.tensors.items() if is_bias(name, array)}


def is_bias(name: str, array: np.ndarray) -> bool:
    """Returns whether a tensor is a bias: by its shape, or by its name where it was reshaped."""
    return array.ndim < 2 or re.split(r"[/.]", name)[-1] in ("b", "bias", "biases")


def read(path: str | os.PathLike, part: str = POLICY) -> WeightFile:
    """Reads the weights at a path.

    Args:
      path: A file of any known kind, the prefix of a checkpoint, or a folder. In a folder the first
        of these is read: ActorQ's policy, an agent's zip, a SavedModel, the newest checkpoint,
        other files by kind.
      part: "policy" leaves out tensors whose names show that they take no part in acting (critics,
        target networks, the spread of exploration); "all" keeps them. Optimizers' state and
        counters are always left out.

    Raises:
      errors.UserError: There is nothing to read, or it is damaged, or of an unknown kind.
    """
    model, found, notes = _locate(pathlib.Path(path))
    kind, tensors, axis, more = _read_file(found)
    tensors = {name.removesuffix(_TF_SUFFIX).removesuffix(":0"): a for name, a in tensors.items()}
    kept = {
        name: array
        for name, array in tensors.items()
        if array.ndim and array.size and not _TRAINING.search(name)
    }
    if part == POLICY:
        acting = {name: array for name, array in kept.items() if _acts(name, kept)}
        if acting and len(acting) < len(kept):
            more += (f"{len(kept) - len(acting)} tensors that take no part in acting left out.",)
        kept = acting or kept
    if not kept:
        raise errors.UserError(f"{found} ({kind}) holds no weights.")
    return WeightFile(str(model), str(found), kind, kept, axis, (*notes, *more))


def _acts(name: str, tensors: Mapping[str, np.ndarray]) -> bool:
    if name.startswith(_SHARED_AGAIN):
        return _SHARED + name.removeprefix(_SHARED_AGAIN) not in tensors
    return not _NOT_ACTING.search(name)


def _read_file(path: pathlib.Path) -> tuple[str, dict[str, np.ndarray], int, tuple[str, ...]]:
    """Returns a file's kind, its tensors, the axis of output channels, and notes."""
    if path.is_dir():
        tensors = weight_readers.read_saved_model(path)
        return "TensorFlow SavedModel", tensors, TENSORFLOW_AXIS, ()
    if not path.is_file():
        tensors = weight_readers.read_checkpoint(path)
        return "TensorFlow checkpoint", tensors, TENSORFLOW_AXIS, ()
    ending = path.suffix.lower()
    if _begins_with(path, b"PK"):
        kind, tensors = weight_readers.read_zip(path)
        axis = TENSORFLOW_AXIS if "baselines 2" in kind else TORCH_AXIS
        return kind, tensors, axis, ()
    if ending == ".safetensors":
        kind, tensors = weight_readers.read_safetensors(path)
        return kind, tensors, TORCH_AXIS, ()
    if ending in (".pth", ".pt"):
        return "torch state_dict", weight_readers.read_torch(path), TORCH_AXIS, ()
    if ending == ".pb":
        return "TensorFlow graph", weight_readers.read_graph(path), TENSORFLOW_AXIS, ()
    if ending == ".pkl":
        tensors, note = weight_readers.read_pickle(path)
        return "stable-baselines 2 agent (pickle)", tensors, TENSORFLOW_AXIS, (note,) * bool(note)
    if ending == ".zip":
        raise errors.UserError(f"{path} is no zip, or a damaged one: copy or download it again.")
    raise errors.UserError(
        f"{path} is of no kind that is read here: .zip, .pth, .pt, .safetensors, .pb, .pkl, or a "
        "TensorFlow checkpoint or SavedModel."
    )


def _locate(path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, tuple[str, ...]]:
    """Returns the model's path, the path to read, and notes on other files there."""
    if path.is_dir():
        return _locate_in(path)
    if path.name == weight_readers.SAVED_MODEL_PB:
        return path.parent, path.parent, ()
    checkpoint = re.sub(r"(\.index|\.meta|\.data-\d+-of-\d+)$", "", path.name)
    if checkpoint != path.name or path.with_name(path.name + weight_readers.INDEX).is_file():
        return path.with_name(checkpoint), path.with_name(checkpoint), ()
    if not path.exists():
        raise errors.UserError(f"There is no {path}.")
    return path, path, ()


def _locate_in(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, tuple[str, ...]]:
    try:
        candidates = _candidates(folder)
    except OSError as error:
        raise errors.UserError(f"Cannot read {folder}: {error.strerror or error}.") from None
    if not candidates:
        raise errors.UserError(
            f"{folder} holds no weights: no agent's zip, .pth, .pt, .safetensors, .pb or .pkl, no "
            "TensorFlow checkpoint or SavedModel."
        )
    others = [os.path.relpath(other, folder) for other in candidates[1:]]
    return folder, candidates[0], (f"Also there: {_listed(others)}.",) if others else ()


def _candidates(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the readable files of a folder (or run), the best first."""
    found = []
    for inner in (folder / telemetry.CHECKPOINT_FOLDER, folder):
        for best in ("", telemetry.BEST_FOLDER):
            found.append(inner / best / saved.POLICY_FILENAME)
    found = [path for path in found if path.is_file()]
    files = sorted(path for path in folder.iterdir() if path.is_file())
    agent = re.sub(r"_\d+$", "", folder.name)
    zips = [path for path in files if path.suffix == ".zip"]
    found += sorted(zips, key=lambda path: (path.stem != agent, path.stem != "best_model"))
    if (folder / weight_readers.SAVED_MODEL_PB).is_file():
        found.append(folder)
    found += _newest_checkpoint(folder)
    found += _newest_checkpoint(folder / telemetry.CHECKPOINT_FOLDER / telemetry.LEARNER)
    for ending in _ENDINGS:
        found += [
            path
            for path in files
            if path.suffix == ending and path.name not in _NOT_AGENTS and path not in found
        ]
    return found


def _newest_checkpoint(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the checkpoints' prefixes: first the one that `checkpoint` names, then the newest."""
    if not folder.is_dir():
        return []
    indices = sorted(folder.glob("*" + weight_readers.INDEX), key=lambda path: path.stat().st_mtime)
    prefixes = [path.with_name(path.name.removesuffix(weight_readers.INDEX)) for path in indices]
    state = folder / "checkpoint"
    if state.is_file():
        text = state.read_text(errors="replace")
        # Only the name counts: the path may be of another machine.
        named = re.search(r'^model_checkpoint_path: ".*?([^"/\\]+)"', text, re.MULTILINE)
        prefixes.sort(key=lambda path: named is not None and path.name == named.group(1))
    return prefixes[::-1]


def _begins_with(path: pathlib.Path, magic: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None


def _listed(names: list[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
