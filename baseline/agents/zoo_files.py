"""Reads the files of an rl-baselines3-zoo agent without running anything that is in them.

An agent is `FOLDER/ALGO/ENV_<n>/ENV.zip`. Beside it lie `ENV/config.yml` (the wrappers of its
environment) and, if observations were normalized, `ENV/vecnormalize.pkl`. Stable-Baselines3's own
loader unpickles parts of all three, which runs whatever code a stranger put there. Here, only plain
entries of the zip's JSON are used. Torch's weights-only loader reads tensors, the safe loader YAML,
and `safe_pickle` the normalization.
"""

from collections.abc import Mapping
import contextlib
import importlib
import io
import json
import os
import pathlib
import pickle
import re
import sys
from typing import Any
from typing import NamedTuple
import warnings
import zipfile

import numpy as np
import torch
from torch import nn
import yaml

from actorQ.core import errors
from baseline.agents import safe_pickle
from baseline.agents import unpacking
from baseline.tasks import environments

MAX_BYTES = 1 << 30  # Limit for policy.pth, unpacked.
# Limit for the JSON, which becomes up to 20 times as large in memory. The zoo's files have 30 kB;
# images of many environments, which SB3 keeps in it, take some megabytes.
MAX_DATA_BYTES = 1 << 24
MAX_VERSION_BYTES = 1 << 10
MAX_ENTRIES = 100_000  # Limit for a YAML file; each reference counts its target again.
NORMALIZATION = "vecnormalize.pkl"
HUB_NORMALIZATION = "vec_normalize.pkl"  # Its name on the hub.
SETTINGS_FILENAMES = ("config.yml", "args.yml", "env_kwargs.yml")
YAML_TUPLE = "tag:yaml.org,2002:python/tuple"
SERIALIZED = ":serialized:"
_TYPE = ":type:"
# Entries of a policy's arguments that are none; old releases of SB3 saved `device`.
_NO_ARGUMENT = (SERIALIZED, _TYPE, "device")
_VERSION = "_stable_baselines3_version"
_CLASS = re.compile(r"^<class '([\w.<>]+)'>$")
_TRUSTED_CLASSES = (
    "torch.nn.modules.activation.",
    "torch.nn.modules.normalization.",
    "torch.optim.",
    "stable_baselines3.common.sb2_compat.rmsprop_tf_like.",
    "stable_baselines3.common.torch_layers.",
)
_SCRIPT = "__main__"
_BUILDING_BLOCKS = (nn.Module, torch.optim.Optimizer)


class ZipContents(NamedTuple):
    """The contents of an SB3 zip without its pickles.

    Attributes:
      data: The JSON's entries; those that are not plain have only their readable parts.
      policy_kwargs: Arguments of the policy, classes resolved.
      state_dict: The policy's tensors.
      version: Version of the SB3 that wrote the zip.
    """

    data: Mapping[str, Any]
    policy_kwargs: Mapping[str, Any]
    state_dict: Mapping[str, torch.Tensor]
    version: str


class Normalization(NamedTuple):
    """Running statistics with which observations are normalized (SB3's VecNormalize).

    Attributes:
      mean: float64 [D], or of the observations' shape.
      variance: float64, of the same shape.
      num_observations: Observations seen.
      clip: Largest absolute value that passes, > 0; infinity: all values pass. An array [D] has
        one for each number.
      epsilon: Summand of the variance.
    """

    mean: np.ndarray
    variance: np.ndarray
    num_observations: float
    clip: float | np.ndarray
    epsilon: float

    @property
    def deviation(self) -> np.ndarray:
        """The divisor of observations less their mean."""
        return np.sqrt(self.variance + self.epsilon)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Returns float32 observations [B, D], normalized."""
        normal = (observations - self.mean) / self.deviation
        return np.clip(normal, -self.clip, self.clip).astype(np.float32)

    def flat(self) -> "Normalization":
        """Returns the same for observations that are flattened before, [B, D]."""
        return self._replace(mean=self.mean.ravel(), variance=self.variance.ravel())


def read_zip(path: pathlib.Path) -> ZipContents:
    """Reads an SB3 zip.

    Raises:
      errors.UserError: The zip is damaged, no SB3 model, or needs a class that is not trusted.
    """
    try:
        with zipfile.ZipFile(path) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Torch warns of pickles that it then refuses.
            data = json.loads(unpacking.member(archive, "data", MAX_DATA_BYTES, path))
            policy = io.BytesIO(unpacking.member(archive, "policy.pth", MAX_BYTES, path))
            unpacking.check_nested(policy, "policy.pth", MAX_BYTES, path)
            state_dict = torch.load(policy, map_location="cpu", weights_only=True)
            version = "unknown"
            if _VERSION in archive.namelist():
                content = unpacking.member(archive, _VERSION, MAX_VERSION_BYTES, path)
                version = content.decode(errors="replace")
    except errors.UserError:
        raise
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror or error}.") from None
    except KeyError as error:
        raise errors.UserError(
            f"{path} is no agent of Stable-Baselines3: {error.args[0] if error.args else error}"
        ) from None
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+) was not", str(error))
        raise errors.UserError(
            f"policy.pth in {path} holds something else than tensors"
            f"{f' ({named[1]})' if named else ', or is damaged'}: not loaded."
        ) from None
    # zipfile, zlib, json and torch each have their own; a nested JSON gives a RecursionError.
    except Exception as error:
        what = errors.summary(error).partition(". ")[0]
        raise errors.UserError(
            f"{path} is damaged ({type(error).__name__}: {what}): copy or download it again."
        ) from None
    if not isinstance(data, dict) or not isinstance(state_dict, dict):
        raise errors.UserError(f"{path} is no agent of Stable-Baselines3.")
    if not all(isinstance(tensor, torch.Tensor) for tensor in state_dict.values()):
        raise errors.UserError(f"{path} holds something else than tensors in policy.pth.")
    kwargs = data.get("policy_kwargs") or {}
    if not isinstance(kwargs, dict):
        raise errors.UserError(f"{path} has policy_kwargs that are no names with values.")
    try:
        resolved = _policy_kwargs(kwargs, path)
    except RecursionError:
        raise errors.UserError(f"{path} has policy_kwargs that are nested too deeply.") from None
    return ZipContents(data, resolved, state_dict, version.strip())


def _policy_kwargs(kwargs: Mapping[str, Any], path: pathlib.Path) -> dict[str, Any]:
    plain = {name: value for name, value in kwargs.items() if name not in _NO_ARGUMENT}
    resolved = {name: _resolve(value, path) for name, value in plain.items()}
    architecture = resolved.get("net_arch")
    # Before SB3 1.8: a list with one dictionary.
    if isinstance(architecture, list) and architecture and isinstance(architecture[0], Mapping):
        resolved["net_arch"] = dict(architecture[0])
    elif isinstance(architecture, list) and any(isinstance(e, Mapping) for e in architecture):
        raise errors.UserError(
            f"{path} has layers shared by policy and value function (SB3 before 1.8), which "
            "today's Stable-Baselines3 cannot build."
        )
    return resolved


def _resolve(value: Any, path: pathlib.Path) -> Any:
    """Turns the text of a class into the class, if policies are made with it."""
    if isinstance(value, Mapping):
        return {name: _resolve(part, path) for name, part in value.items()}
    match = _CLASS.match(value) if isinstance(value, str) else None
    if not match:
        return value
    name = match.group(1)
    module, _, attribute = name.rpartition(".")
    if not name.startswith(_TRUSTED_CLASSES):
        module = _own_module(module, attribute)
    if not module:
        raise errors.UserError(
            f"{path} builds its policy with {name}, which is not of a library that is trusted "
            f"here: not loaded. Where the code is your own, {environments.OWN_MODULES}=MODULE "
            "names the module with the class."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise errors.UserError(f"{path} builds its policy with {name}: there is none.") from None
    if not (isinstance(found, type) and issubclass(found, _BUILDING_BLOCKS)):
        raise errors.UserError(
            f"{path} builds its policy with {name}, which is no part of a policy: not loaded."
        )
    return found


def _own_module(module: str, attribute: str) -> str:
    """Returns the module of the user's own that has a class; empty: there is none.

    Classes of a program that was started as a script say that they are of `__main__`.
    """
    own = environments.own_modules()
    if module in own:
        return module
    if module == _SCRIPT:
        environments.register()  # It imports the modules, with a message where that fails.
        for name in own:
            if hasattr(sys.modules.get(name), attribute):
                return name
    return ""


class _ConfigLoader(yaml.SafeLoader):
    """The safe loader, with the two Python types that the zoo writes, as plain data."""

    def get_single_node(self) -> yaml.Node | None:
        """Returns the whole document; refuses one that references make huge."""
        whole = super().get_single_node()
        todo, count = [whole], 0
        while todo:
            node = todo.pop()
            parts = node.value if isinstance(node, yaml.CollectionNode) else []
            if isinstance(node, yaml.MappingNode):
                parts = [part for pair in parts for part in pair]
            count += len(parts)
            if count > MAX_ENTRIES:
                raise ValueError(f"it has more than {MAX_ENTRIES:,} entries")
            todo += parts
        return whole


_ConfigLoader.add_constructor(
    "tag:yaml.org,2002:python/object/apply:collections.OrderedDict",
    lambda loader, node: dict(loader.construct_sequence(node, deep=True)[0]),
)
_ConfigLoader.add_constructor(
    YAML_TUPLE, lambda loader, node: tuple(loader.construct_sequence(node, deep=True))
)


def read_yaml(path: pathlib.Path) -> dict[str, Any]:
    """Reads a `config.yml` or `args.yml`; an absent one is empty.

    Raises:
      errors.UserError: The file is damaged or asks for Python objects.
    """
    try:
        content = yaml.load(path.read_text(), Loader=_ConfigLoader)  # noqa: S506 - a safe loader.
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise errors.UserError(f"Cannot read {path}: {' '.join(str(error).split())}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise errors.UserError(f"{path} holds no settings.")
    return content


def read_normalization(path: pathlib.Path) -> Normalization | dict[str, Normalization] | None:
    """Reads `vecnormalize.pkl`; None if there is none or it leaves observations as they are.

    Observations of a Dict space have statistics for each of its keys that is normalized.

    Raises:
      errors.UserError: The file is damaged or holds something else.
    """
    if not path.exists():
        return None
    saved = safe_pickle.load(path)
    try:
        if not saved.norm_obs:
            return None
        if isinstance(saved.obs_rms, Mapping):
            return {
                str(key): _normalization(saved, statistics, path)
                for key, statistics in saved.obs_rms.items()
            }
        return _normalization(saved, saved.obs_rms, path)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise errors.UserError(
            f"{path} holds no statistics of observations (SB3's VecNormalize)."
        ) from None


def _normalization(saved: Any, statistics: Any, path: pathlib.Path) -> Normalization:
    """Returns checked statistics; strangers' values may raise anything that is no UserError."""
    found = Normalization(
        real_numbers(statistics.mean),
        real_numbers(statistics.var),
        float(statistics.count),
        float(saved.clip_obs),
        float(saved.epsilon),
    )
    numbers = np.concatenate([np.ravel(part) for part in found._replace(clip=0.0)])
    if (
        found.mean.shape != found.variance.shape
        or not np.all(np.isfinite(numbers))
        or found.variance.min(initial=0.0) < 0
        or found.epsilon < 0
        or not found.clip > 0
    ):
        raise errors.UserError(f"{path} holds statistics that make no sense.")
    return found


def real_numbers(value: Any) -> np.ndarray:
    """Returns a stranger's array, or number, as float64.

    Raises:
      TypeError: The value is something else, such as lists that hold each other without end.
    """
    if not isinstance(value, np.ndarray | np.number | int | float):
        raise TypeError(f"a {type(value).__name__} instead of numbers")
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{array.dtype} instead of numbers")
    return array.astype(np.float64)


def file_name(env_id: str) -> str:
    """Returns the name of an environment's files and folders in the zoo: slashes become dashes."""
    return env_id.replace("/", "-")


def agent_zip(run_folder: str | os.PathLike[str], env_id: str) -> pathlib.Path:
    """Returns the zip of the agent in a run's folder, ENV_<n>."""
    return pathlib.Path(run_folder, f"{file_name(env_id)}.zip")


def environment_name(settings: pathlib.Path) -> str:
    """Returns the environment of an agent by its folder of settings, ENV.

    A dash in the folder's name may stand for a slash. args.yml tells; without it, only ALE's names
    have a slash.
    """
    with contextlib.suppress(errors.UserError):  # Loading the agent tells of a damaged file.
        noted = read_yaml(settings / "args.yml").get("env")
        if isinstance(noted, str) and file_name(noted) == settings.name:
            return noted
    return re.sub("^ALE-", "ALE/", settings.name)
