"""Progress and curves of a training run."""

import time

from absl import logging
import numpy as np
from stable_baselines3.common import callbacks
from stable_baselines3.common import logger
from torch.utils import tensorboard


class ProgressLines(callbacks.BaseCallback):
    """Logs a line now and then: steps, rate, mean score of the last episodes, time left."""

    def __init__(self, total_steps: int, period_s: float):
        super().__init__()
        self._total_steps = total_steps
        self._period_s = period_s
        self._last_s = 0.0
        self._last_steps = 0

    def _on_training_start(self) -> None:
        self._last_s = time.perf_counter()
        self._last_steps = self.num_timesteps

    def _on_step(self) -> bool:
        now_s = time.perf_counter()
        if now_s - self._last_s < self._period_s:
            return True
        rate = (self.num_timesteps - self._last_steps) / (now_s - self._last_s)
        self._last_s, self._last_steps = now_s, self.num_timesteps
        scores = [info["r"] for info in self.model.ep_info_buffer or ()]
        logging.info(
            "%d of %d steps (%.1f %%), %.0f steps/s, mean score %s of the last %d episodes, "
            "%.0f min left",
            self.num_timesteps,
            self._total_steps,
            100 * self.num_timesteps / self._total_steps,
            rate,
            f"{np.mean(scores):.2f}" if scores else "unknown",
            len(scores),
            (self._total_steps - self.num_timesteps) / rate / 60,
        )
        return True


def tensorboard_logger(folder: str, steps_done: int) -> logger.Logger:
    """Returns SB3's logger that writes curves for TensorBoard.

    Args:
      folder: Folder of the run's curves.
      steps_done: Environment steps that the run starts from. Later entries of an interrupted run
        are superseded.
    """
    output = logger.TensorBoardOutputFormat(folder)
    if steps_done:
        output.writer.close()
        output.writer = tensorboard.SummaryWriter(folder, purge_step=steps_done + 1)
    return logger.Logger(folder, [output])
