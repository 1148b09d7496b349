"""Agents of Stable-Baselines3 that report their steps to a session. Imports no TensorFlow."""

from typing import Any

import numpy as np
from stable_baselines3.common import callbacks
from stable_baselines3.common import off_policy_algorithm
import torch

from actorQ.core import config as config_lib
from actorQ.dqn import exploration as dqn_policy
from actorQ.experiments.peers import session as peer_session
from actorQ.policy import torch_device

_FOREVER = 2**62  # The session ends training after fewer environment steps and episodes.


class EnvironmentSteps(callbacks.BaseCallback):
    """Reports every environment step to the session, and every episode's end to exploration."""

    def __init__(
        self, session: peer_session.Session, explore: dqn_policy.EpsilonGreedy | None = None
    ):
        super().__init__()
        self._session = session
        self._explore = explore

    def _on_step(self) -> bool:
        self._session.acted()
        if self._explore is not None and self.locals["dones"][0]:
            self._explore.begin()
        return True


class Reporting(off_policy_algorithm.OffPolicyAlgorithm):
    """Reports every gradient step of an agent of SB3; to be mixed in before its class."""

    session: peer_session.Session  # Session to report to.
    loss_names: dict[str, str]  # SB3's names of losses by the log's names.

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Makes the gradient steps that are due, one by one."""
        for _ in range(gradient_steps):
            super().train(1, batch_size)
            newest = self.logger.name_to_value
            self.session.learned({
                name: float(newest[theirs])
                for name, theirs in self.loss_names.items()
                if theirs in newest
            })


def device(config: config_lib.RunConfig) -> str:
    """Returns torch's name of the device that a run's agent learns on."""
    wants_gpu = config.learner_device_placement == "GPU"
    return torch_device.choose("SB3's agent") if wants_gpu else "cpu"


def run(
    session: peer_session.Session,
    model: Reporting,
    name: str,
    algorithm: str,
    explore: dqn_policy.EpsilonGreedy | None = None,
) -> int:
    """Trains an agent to the end; returns the process's exit code.

    Args:
      session: Session to train in.
      model: The agent, which reports to the session.
      name: Name of the agent for people.
      algorithm: Name of its algorithm for records.
      explore: Exploration that must know where episodes end, or None.

    Raises:
      errors.UserError: Training has diverged.
    """

    def act(observation: np.ndarray) -> Any:
        return model.predict(observation, deterministic=True)[0]

    return session.run(
        peer_session.Agent(
            name,
            algorithm,
            "CPU" if model.device.type == "cpu" else "GPU",
            train=lambda: model.learn(
                _FOREVER, EnvironmentSteps(session, explore), log_interval=_FOREVER
            ),
            act=act,
            is_finite=lambda: all(
                bool(torch.isfinite(parameter).all()) for parameter in model.policy.parameters()
            ),
            replay_capacity=model.buffer_size,
        )
    )
