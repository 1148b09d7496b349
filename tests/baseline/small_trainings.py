"""Trainings of a few seconds, and readers of their files."""

import json
import zipfile

from stable_baselines3.common import callbacks
import torch

from baseline.train import training

CARTPOLE = "CartPole-v1"
# 4 environments x 16 steps make a rollout of 64.
SMALL_PPO = {"n_envs": 4, "n_steps": 16, "batch_size": 64, "n_epochs": 1}


class Recorder(callbacks.BaseCallback):
    """Notes the values of SB3's schedules at every step."""

    def __init__(self):
        super().__init__()
        self.steps, self.progress, self.learning_rates, self.exploration = [], [], [], []

    def _on_rollout_start(self):
        self.progress.append((self.num_timesteps, self.model._current_progress_remaining))

    def _on_step(self):
        self.steps.append(self.num_timesteps)
        self.learning_rates.append(self.model.policy.optimizer.param_groups[0]["lr"])
        self.exploration.append(getattr(self.model, "exploration_rate", None))
        return True


def stop_after(calls):
    left = iter(range(calls))
    return lambda: next(left, None) is None


def settings(tmp_path, **changes):
    values = {
        "algo": "ppo", "env": CARTPOLE, "steps": 640, "folder": str(tmp_path), "device": "cpu",
        "hyperparams": SMALL_PPO, "progress": False, **changes,
    }
    return training.TrainSettings(**values)


def readable(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("data"))


def parameters(path):
    with zipfile.ZipFile(path) as archive, archive.open("policy.pth") as file:
        return torch.load(file, weights_only=True)
