"""Builds a Stable-Baselines3 model anew from a zip's plain entries, and fills in its tensors.

SB3's own loader restores the model from the zip's pickles instead; see `zoo_files`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import inspect
import math
import pathlib
import re
import sys
import types
from typing import Any
import warnings

import gymnasium as gym
import stable_baselines3 as sb3
from stable_baselines3.common import base_class
from stable_baselines3.common import vec_env
import torch
from torch import overrides

from actorQ.core import errors
from baseline.agents import zoo_files
from baseline.quantization import fake_quantizers
from baseline.quantization import names

# The paper's four, which `baseline.train` trains, and more that the zoo has.
_OF_SB3 = {
    "a2c": sb3.A2C, "ppo": sb3.PPO, "dqn": sb3.DQN, "ddpg": sb3.DDPG, "td3": sb3.TD3,
    "sac": sb3.SAC,
}
# Names of classes in sb3_contrib, which is imported for an agent that needs it.
_OF_CONTRIB = {
    "qrdqn": "QRDQN", "tqc": "TQC", "trpo": "TRPO", names.MASKABLE: "MaskablePPO",
}
ALGORITHMS = (*_OF_SB3, *_OF_CONTRIB)
_ACTOR_CRITIC = ("a2c", "ppo", "trpo")
# Families of algorithms by the module of the policy's class.
_FAMILIES = {
    "stable_baselines3.common.policies": _ACTOR_CRITIC,
    "stable_baselines3.a2c.policies": _ACTOR_CRITIC,
    "stable_baselines3.ppo.policies": _ACTOR_CRITIC,
    "stable_baselines3.dqn.policies": ("dqn",),
    "stable_baselines3.td3.policies": ("ddpg", "td3"),
    "stable_baselines3.sac.policies": ("sac",),
    "sb3_contrib.tqc.policies": ("tqc",),
    "sb3_contrib.qrdqn.policies": ("qrdqn",),
    "sb3_contrib.common.maskable.policies": (names.MASKABLE,),
    "sb3_contrib.common.recurrent.policies": ("ppo_lstm",),
    "sb3_contrib.crossq.policies": ("crossq",),
    "sb3_contrib.ars.policies": ("ars",),
}
_COMPILER = "torch._dynamo"
_KIND = re.compile(r"(\w+)'>$")  # The class in the text of a space's type.
_SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict")
# Arguments of algorithms that are not taken from a file.
_OURS = ("buffer_size", "learning_rate", "optimize_memory_usage", "seed", "verbose")
# A policy may have twice the numbers and tensors of its file, and these on top. One that differs a
# little is built, so that a message can tell the difference.
_SPARE_NUMBERS = 1 << 22
_SPARE_TENSORS = 100


def build(
    algo: str,
    saved: zoo_files.ZipContents,
    make_env: Callable[[], gym.Env],
    path: pathlib.Path,
) -> base_class.BaseAlgorithm:
    """Makes the model of an agent, ready to predict.

    Args:
      algo: One of ALGORITHMS.
      saved: The contents of the zip.
      make_env: Makes the agent's environment.
      path: The zip's path, for messages.

    Raises:
      errors.UserError: The file is of another algorithm, or does not fit its environment.
    """
    _check_family(algo, saved, path)
    environment = vec_env.DummyVecEnv([make_env])
    try:
        _check_spaces(saved, environment, path)
        policy = "CnnPolicy" if any(".cnn." in name for name in saved.state_dict) else "MlpPolicy"
        if isinstance(environment.observation_space, gym.spaces.Dict):
            policy = "MultiInputPolicy"
        made_by = _algorithm(algo)
        limit = _AsLargeAs(saved.state_dict, path)
        with warnings.catch_warnings(), no_compiler(), limit:
            warnings.simplefilter("ignore")  # They are about rollout sizes of a training.
            model = made_by(
                policy, environment, device="cpu",
                policy_kwargs=dict(saved.policy_kwargs), **_arguments(made_by, saved),
            )
        _load_tensors(model, saved, path)
    except errors.UserError:
        raise
    except Exception as error:  # SB3 may raise anything for a stranger's arguments.
        raise errors.UserError(
            f"Cannot build the policy of {path} on {environment.observation_space}: "
            f"{errors.summary(error)}"
        ) from None
    finally:
        environment.close()
    steps = saved.data.get("num_timesteps")
    model.num_timesteps = steps if isinstance(steps, int) else 0
    model.policy.set_training_mode(False)
    return model


def _algorithm(algo: str) -> Callable[..., base_class.BaseAlgorithm]:
    """Returns the class of an algorithm."""
    if algo in _OF_SB3:
        return _OF_SB3[algo]
    try:
        import sb3_contrib
    except ImportError as error:
        raise errors.UserError(
            f"{algo} is an algorithm of sb3-contrib, which is not installed: "
            f"pip install -r requirements.txt -c constraints.txt ({errors.summary(error)})"
        ) from None
    return getattr(sb3_contrib, _OF_CONTRIB[algo])


@contextlib.contextmanager
def no_compiler() -> Iterator[None]:
    """Keeps torch from importing its compiler when an optimizer is made or saved.

    Torch imports it only to mark functions that are not to be compiled, which takes 1.2 s and 70 MB
    (torch 2.13). A stand-in returns such functions as they are.
    """
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = types.ModuleType(_COMPILER)
    vars(stand_in)["disable"] = lambda function, *args, **kwargs: function
    sys.modules[_COMPILER] = stand_in
    try:
        yield
    finally:
        del sys.modules[_COMPILER]


class _AsLargeAs(overrides.TorchFunctionMode):
    """Lets no policy be made that is far larger than its file.

    A few bytes may ask for layers of any width and number, by `net_arch`, `n_critics` or
    `features_extractor_kwargs`. All modules make their parameters by `torch.empty`.
    """

    def __init__(self, state_dict: Mapping[str, torch.Tensor], path: pathlib.Path) -> None:
        super().__init__()
        self._path = path
        # Storages are counted, not shapes: strides of zero make any shape from nothing.
        storages = [tensor.untyped_storage() for tensor in state_dict.values() if tensor.is_cpu]
        held = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()) // 4
        self._numbers = 2 * held + _SPARE_NUMBERS
        self._tensors = 2 * len(state_dict) + _SPARE_TENSORS

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.empty and args:
            shape = args[0] if isinstance(args[0], tuple | list) else args
            self._numbers -= math.prod(shape)
            self._tensors -= 1
            if self._numbers < 0 or self._tensors < 0:
                raise errors.UserError(
                    f"{self._path} asks for a far larger policy than it holds: not built."
                )
        return func(*args, **(kwargs or {}))


def _arguments(
    algorithm: Callable[..., base_class.BaseAlgorithm], saved: zoo_files.ZipContents
) -> dict[str, Any]:
    """Returns the algorithm's plain arguments from the file, for those who train on."""
    known = inspect.signature(algorithm).parameters
    arguments = {
        name: saved.data[name]
        for name in known
        if isinstance(saved.data.get(name), bool | int | float)
        and name not in _OURS
        and not name.startswith("_")
    }
    arguments["learning_rate"] = 0.0
    if "buffer_size" in known:
        arguments["buffer_size"] = 1
    if arguments.get("n_steps") == 1 and "normalize_advantage" in known:
        # The agent was trained in several environments. In one, a single step has no deviation.
        arguments["normalize_advantage"] = False
    return arguments


def _check_family(algo: str, saved: zoo_files.ZipContents, path: pathlib.Path) -> None:
    policy_class = saved.data.get("policy_class")
    module = policy_class.get("__module__") if isinstance(policy_class, Mapping) else None
    family = _FAMILIES.get(str(module))
    # A2C, PPO and TRPO share their policies; other entries of the file tell them apart.
    if family == _ACTOR_CRITIC:
        family = ("ppo",) if "n_epochs" in saved.data else ("a2c",)
        family = ("trpo",) if "cg_max_steps" in saved.data else family
    elif family == ("ddpg", "td3"):  # SB3's DDPG is TD3 without noise on the target's actions.
        family = ("ddpg",) if saved.data.get("target_noise_clip") == 0.0 else ("td3",)
    for name in family or ():
        if name in names.REFUSED_ALGOS:
            raise errors.UserError(f"{path}: {names.REFUSED_ALGOS[name]}")
    if family is not None and algo not in family:
        raise errors.UserError(
            f"{path} is an agent of {' or '.join(family)}, not of {algo}: name the right algorithm."
        )


def _check_spaces(
    saved: zoo_files.ZipContents, environment: vec_env.VecEnv, path: pathlib.Path
) -> None:
    for name in ("observation_space", "action_space"):
        facts, space = saved.data.get(name), getattr(environment, name)
        if not isinstance(facts, Mapping):
            continue
        kind = _KIND.search(str(facts.get(":type:")))
        if kind is not None and kind[1] in _SPACES and kind[1] != type(space).__name__:
            raise errors.UserError(
                f"{path} does not fit the environment: its {name} is a {kind[1]} space, the "
                f"environment's a {type(space).__name__} space."
            )
        if isinstance(space, gym.spaces.Dict):  # Its entries show in the policy's tensors.
            continue
        shape = facts.get("_shape", facts.get("shape"))
        here = list(space.shape)
        # Images may be stored with the channels first or last.
        if shape is not None and sorted(shape) != sorted(here):
            raise errors.UserError(
                f"{path} does not fit the environment: its {name} has shape {tuple(shape)}, the "
                f"environment's {tuple(here)}."
            )
        values = "actions" if name == "action_space" else "observations"
        n = facts.get("n")
        if n is not None and hasattr(space, "n") and str(n) != str(space.n):
            raise errors.UserError(
                f"{path} does not fit the environment: it knows {n} {values}, the environment has "
                f"{space.n}."
            )
        sizes = facts.get("nvec")
        if sizes is not None and isinstance(space, gym.spaces.MultiDiscrete):
            if re.findall(r"\d+", str(sizes)) != [str(size) for size in space.nvec.ravel()]:
                raise errors.UserError(
                    f"{path} does not fit the environment: it knows {sizes} {values}, the "
                    f"environment has {space.nvec}."
                )


def _load_tensors(
    model: base_class.BaseAlgorithm, saved: zoo_files.ZipContents, path: pathlib.Path
) -> None:
    tensors = dict(saved.state_dict)
    if any(name.startswith(f"{fake_quantizers.NAME}.") for name in tensors):
        raise errors.UserError(
            f"{path} belongs to a training with quantization that has not come to its end "
            "(.venv/bin/python -m baseline.qat --resume goes on), or is its best_model.zip."
        )
    expected = model.policy.state_dict()
    # Since SB3 1.8 a shared features extractor is listed three times.
    for name in expected:
        old = re.sub(r"^(pi|vf)_features_extractor\.", "features_extractor.", name)
        if name not in tensors and old in tensors:
            tensors[name] = tensors[old]
    different = [
        f"{name} {tuple(tensors[name].shape) if name in tensors else 'missing'} for "
        f"{tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name not in tensors or tensors[name].shape != tensor.shape
    ]
    different += [f"{name} is not expected" for name in tensors if name not in expected]
    if different:
        raise errors.UserError(
            f"The tensors of {path} do not fit its policy and environment: "
            f"{'; '.join(different[:3])}{' ...' if len(different) > 3 else ''}."
        )
    model.policy.load_state_dict(tensors)
