"""Loads ActorQ's policies (D4PG and DQN, from a learner's checkpoint) as agents for PTQ.

python -m baseline.ptq d4pg dm_control,cartpole_balance 8 --folder logs/RUN
"""

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.environments import base
from actorQ.environments import suites
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import saved
from baseline.agents import agent as agent_lib
from baseline.agents import evaluation
from baseline.agents import saving
from baseline.agents import zoo_files
from baseline.quantization import acting_path
from baseline.quantization import schemes


@dataclasses.dataclass(kw_only=True)
class ActorQAgent(agent_lib.Agent):
    """One of ActorQ's policies, whose actions are ActorQ's own: in [-1, 1], or counted from 0.

    Attributes:
      checkpoint: The checkpoint that the policy was loaded from.
    """

    checkpoint: saved.PolicyCheckpoint

    def save(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes ALGO/TASK, which ActorQ's own tools read too; returns the policy's file.

        Raises:
          errors.UserError: The folder cannot be written.
        """
        architecture = self.checkpoint.architecture
        weights = {}
        for name, module in self.network.with_weights():
            assert module.bias is not None  # ActorQ's layers have biases.
            weight = module.weight.detach().numpy()
            if name == _after_flatten(architecture):
                weight = _reordered(weight, architecture, to_channels_first=False)
            weights[f"{name}.weight"] = weight
            weights[f"{name}.bias"] = module.bias.detach().numpy()
        target = _agent_folder(folder, self.algo, self.env_id)
        with saving.whole_folder(target) as draft:
            saved.save_policy(str(draft), self.checkpoint._replace(weights=weights))
            self.write_quantization(draft / schemes.FILENAME)
        return target / saved.POLICY_FILENAME


def find(algo: str, env_id: str, folder: str | pathlib.Path) -> pathlib.Path:
    """Returns the file of a policy.

    Args:
      algo: d4pg or dqn.
      env_id: The task, such as "dm_control,cheetah_run".
      folder: A run folder, or a folder of quantized agents (FOLDER/ALGO/TASK).

    Raises:
      errors.UserError: There is no policy.
    """
    saved_there = _agent_folder(folder, algo, env_id)
    path = saved_there if saved_there.is_dir() else pathlib.Path(folder)
    if not path.exists():
        raise errors.UserError(f"There is no folder {path}: --folder names an ActorQ run.")
    return pathlib.Path(saved.find_policy(str(path)))


def load(algo: str, env_id: str, folder: str | pathlib.Path) -> agent_lib.Agent:
    """Loads a policy as an agent.

    Args:
      algo: d4pg or dqn.
      env_id: The task, which must be the policy's own.
      folder: See `find`.

    Raises:
      errors.UserError: There is no policy, or it is of another algorithm or task.
    """
    path = find(algo, env_id, folder)
    checkpoint = saved.load_policy(str(path))
    if algo != checkpoint.algorithm:
        raise errors.UserError(f"{path} holds a policy of {checkpoint.algorithm}, not of {algo}.")
    task = str(checkpoint.facts["taskstr"])
    if suites.parse_taskstr(task) != suites.parse_taskstr(env_id):
        raise errors.UserError(f"{path} holds a policy for {task}, not for {env_id}.")

    def make_env(render_mode: str | None = None) -> gym.Env:
        if render_mode == "human":
            raise errors.UserError(
                "ActorQ's tasks have no window: --video=FILE.mp4 films, --no-render plays."
            )
        return TaskEnv(checkpoint.facts)

    network = _network(checkpoint)
    agent = ActorQAgent(
        algo, env_id, path, network, make_env, _normalization(checkpoint), checkpoint=checkpoint
    )
    agent.check_weights()
    agent.restore_quantization(path.parent / schemes.FILENAME)
    return agent


def native_network(agent: agent_lib.Agent) -> acting_path.PolicyNetwork:
    """Returns an agent's acting path with actions in the units of its task, for a device.

    Stable-Baselines3's agents act in these units anyway.

    Raises:
      errors.UserError: The head of the network has no such form.
    """
    if not isinstance(agent, ActorQAgent):
        return agent.network
    network, start = agent.network, agent.checkpoint.action_start
    if network.head == "argmax":
        if start:
            raise errors.UserError(
                f"{agent.path}: the actions of {agent.env_id} begin at {start}, and those of a "
                "file at 0: wrap the task so that its actions begin at 0, and train on that."
            )
        return network
    to_native = agent.checkpoint.action_map
    assert to_native is not None and network.low is not None  # Continuous actions have both.
    shape = network.low.shape
    low, middle, high = (to_native(np.full(shape, end, np.float32)) for end in (-1, 0, 1))
    if np.any(np.abs(low + high - 2 * middle) > 1e-3 * (high - low)):
        raise errors.UserError(
            f"{agent.path}: an action of {agent.env_id} has a bound on one side only, at which "
            "ActorQ clips and a file cannot: wrap the task to have two, and train on that."
        )
    return network._replace(low=low, high=high)


def act_in_task(agent: agent_lib.Agent, act: evaluation.Act) -> evaluation.Act:
    """Returns an acting function for the agent's own environments: ActorQ's are `TaskEnv`s.

    Args:
      agent: The agent.
      act: Takes raw observations; returns actions as `native_network` does.
    """
    network = native_network(agent)
    if network is agent.network or network.low is None or network.high is None:
        return act
    low, width = network.low, np.maximum(network.high - network.low, np.finfo(np.float32).tiny)
    return lambda observations: 2 * (act(observations) - low) / width - 1


def _normalization(
    checkpoint: saved.PolicyCheckpoint,
) -> zoo_files.Normalization | None:
    """Returns `--scale_observations` as a normalization that clips nothing."""
    scale = checkpoint.observation_scale
    if scale is None:
        return None
    factors, summands = (array.astype(np.float64) for array in scale)
    return zoo_files.Normalization(
        mean=-summands / factors, variance=factors**-2, num_observations=0.0,
        clip=float(np.finfo(np.float32).max), epsilon=0.0,
    )


class TaskEnv(gym.Env):
    """An ActorQ task behind Gymnasium's interface, which notes returns as SB3's monitor does.

    Observations are float32 [D], or uint8 [C, H, W] for pixels. Actions are ActorQ's: float32 [A]
    in [-1, 1], or an integer from 0 on. `native_network` acts in the task's own units.
    """

    def __init__(self, facts: Mapping[str, Any]):
        """Takes the facts of a policy's file; the environment is made at the first reset."""
        self._facts = facts
        self._environment: base.Environment | None = None
        self._rewards: list[float] = []
        # The spec tells how long an episode may be.
        self.spec = gym.envs.registration.EnvSpec(
            "ActorQ-v0", max_episode_steps=facts["max_episode_steps"]
        )
        self.render_mode = "rgb_array"

    @property
    def render_fps(self) -> float:
        """Pictures per second at the task's true speed."""
        return self._running().render_fps

    def reset(
        self, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; a seed makes the environment anew."""
        del options
        if seed is not None or self._environment is None:
            self.close()
            self._environment = suites.make_from(self._facts, seed or 0)
        self._rewards = []
        return _channels_first(self._environment.reset().observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step; at an episode's end the info tells its return and length."""
        timestep = self._running().step(action)
        self._rewards.append(timestep.reward)
        info = {}
        if timestep.last():
            info["episode"] = {"r": sum(self._rewards), "l": len(self._rewards)}
        terminated = timestep.last() and timestep.discount == 0
        observation = _channels_first(timestep.observation)
        return observation, timestep.reward, terminated, timestep.last() and not terminated, info

    def render(self) -> np.ndarray:
        """Returns a picture, uint8 [H, W, 3]."""
        return self._running().render()

    def close(self) -> None:
        """Frees the environment."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None

    def _running(self) -> base.Environment:
        assert self._environment is not None, "An episode begins with reset."
        return self._environment


def _agent_folder(folder: str | pathlib.Path, algo: str, env_id: str) -> pathlib.Path:
    """Returns a quantized agent's folder, which is inside of `folder` whatever the task's name."""
    suite, task = suites.parse_taskstr(env_id)
    return pathlib.Path(folder, algo, f"{suite},{zoo_files.file_name(task)}")


def _channels_first(observation: np.ndarray) -> np.ndarray:
    return observation.transpose(2, 0, 1) if observation.ndim == 3 else observation


def _network(checkpoint: saved.PolicyCheckpoint) -> acting_path.PolicyNetwork:
    architecture = checkpoint.architecture
    layers: list[tuple[str, nn.Module]] = []
    for name, inputs, filters, kernel, stride in architecture.convolutions:
        layers += [
            (name, nn.Conv2d(inputs, filters, kernel, stride)), (f"{name}.relu", nn.ReLU())
        ]
    layers.append(("flatten", nn.Flatten()))
    for name, inputs, outputs in architecture.linears:
        layers += [(name, nn.Linear(inputs, outputs)), (f"{name}.tanh", nn.Tanh())]
    if architecture.head == architecture_lib.Q_VALUES_HEAD:
        layers.pop()
    for name, module in layers:
        if isinstance(module, acting_path.WITH_WEIGHTS):
            weight = checkpoint.weights[f"{name}.weight"]
            if name == _after_flatten(architecture):
                weight = _reordered(weight, architecture, to_channels_first=True)
            with torch.no_grad():
                module.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
                assert module.bias is not None  # ActorQ's layers have biases.
                module.bias.copy_(torch.from_numpy(checkpoint.weights[f"{name}.bias"].copy()))
    if architecture.head == architecture_lib.Q_VALUES_HEAD:
        return acting_path.PolicyNetwork(tuple(layers), "argmax", image=architecture.pixels)
    bound = np.ones(architecture.num_outputs, np.float32)
    return acting_path.PolicyNetwork(tuple(layers), "scale", -bound, bound, architecture.pixels)


def _after_flatten(architecture: architecture_lib.PolicyArchitecture) -> str | None:
    """Returns the linear layer whose inputs are a flattened image, if there is one."""
    return architecture.linears[0][0] if architecture.pixels else None


def _reordered(
    weight: np.ndarray, architecture: architecture_lib.PolicyArchitecture, to_channels_first: bool
) -> np.ndarray:
    """Reorders inputs that ActorQ flattens as H, W, C and torch as C, H, W, or back."""
    height, width, _ = architecture.observation_shape
    for _, _, channels, kernel, stride in architecture.convolutions:  # noqa: B007
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
    rows = len(weight)
    if to_channels_first:
        image = weight.reshape(rows, height, width, channels).transpose(0, 3, 1, 2)
    else:
        image = weight.reshape(rows, channels, height, width).transpose(0, 2, 3, 1)
    return image.reshape(rows, -1)

