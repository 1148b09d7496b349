"""Stable-Baselines3's SAC and DQN with the zoo's tuned settings as peers of our training.

A user of Stable-Baselines3 begins with these settings. Continuous actions get SAC throughout: no
agent is chosen task by task. `zoo_settings` says which entry of the zoo a task takes. Flags say
only task, seed, end, evaluation, threads and device. Rewards are not clipped.

The zoo trains for a number of environment steps, over which exploration and some step sizes fall.
Here they fall over as many, and training goes on with their last values until the session ends it.

torch computes with --learner_threads threads (0: one for each core), in acting and learning.
Imports no TensorFlow.
"""

import math

from stable_baselines3 import DQN
from stable_baselines3 import SAC
from stable_baselines3.common import utils
import torch

from actorQ.core import config as config_lib
from actorQ.core import seeding
from actorQ.experiments.peers import gymnasium_task
from actorQ.experiments.peers import sb3_reporting
from actorQ.experiments.peers import session as peer_session
from actorQ.experiments.peers import zoo_settings


class _Tuned(sb3_reporting.Reporting):
    """Computes schedules against the zoo's number of steps, however long training goes on."""

    schedule_steps: int

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        del total_timesteps
        self._current_progress_remaining = max(0.0, 1.0 - num_timesteps / self.schedule_steps)


class TunedSAC(_Tuned, SAC):
    """SAC."""

    loss_names = {"loss": "train/critic_loss", "policy_loss": "train/actor_loss"}


class TunedDQN(_Tuned, DQN):
    """DQN."""

    loss_names = {"loss": "train/loss"}


def train(config: config_lib.RunConfig) -> int:
    """Trains an agent to the end; returns the process's exit code.

    Raises:
      errors.UserError: The task cannot be used, or training has diverged.
    """
    torch.set_num_threads(peer_session.threads(config))
    session = peer_session.Session(config)
    task = gymnasium_task.GymnasiumTask(session.environment, math.inf)
    algorithm = "dqn" if task.is_discrete else "sac"
    tuned = zoo_settings.read(algorithm, config.taskstr)
    model = make_model(config, task, session, tuned, sb3_reporting.device(config))
    name = f"SB3 {algorithm.upper()}, the zoo's settings for {tuned.entry}"
    return sb3_reporting.run(session, model, name, algorithm)


def make_model(
    config: config_lib.RunConfig,
    task: gymnasium_task.GymnasiumTask,
    session: peer_session.Session,
    tuned: zoo_settings.Tuned,
    device: str,
) -> TunedDQN | TunedSAC:
    """Builds SB3's agent for a task from the zoo's settings."""
    kind = TunedDQN if task.is_discrete else TunedSAC
    settings = dict(tuned.settings)
    if tuned.falling_step_size is not None:
        settings["learning_rate"] = utils.LinearSchedule(tuned.falling_step_size, 0.0, 1.0)
    model: TunedDQN | TunedSAC = kind(
        env=task, seed=seeding.derive(config.seed, "learner"), device=device, **settings
    )
    model.schedule_steps = tuned.steps
    model.session = session
    return model
