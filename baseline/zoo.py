"""The zoo's way of setting up a training run, made quiet, resumable and quick on Atari.

`Experiment` is rl_zoo3's ExperimentManager, which reads the tuned hyper-parameters and makes
environments and model from them, with what we need otherwise put in its place.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import io
import os
from typing import Any
import warnings

from absl import logging
from rl_zoo3 import exp_manager
from stable_baselines3.common import base_class
from stable_baselines3.common import torch_layers
from stable_baselines3.common import vec_env
import torch

from baseline import atari

ATARI_WRAPPER = "stable_baselines3.common.atari_wrappers.AtariWrapper"


class Experiment(exp_manager.ExperimentManager):
    """One run in one folder: OUT/ALGO/ENV_<n>, with the zoo's files in it."""

    def __init__(
        self,
        algo: str,
        env_id: str,
        folder: str,
        run_folder: str | None,
        steps: int,
        seed: int,
        hyperparams: Mapping[str, Any],
        arguments: Mapping[str, Any],
        eval_freq: int,
        device: str,
    ):
        """Takes the settings of a run; `setup_experiment` then makes the model.

        Args:
          algo: "a2c", "ppo", "dqn" or "ddpg".
          env_id: a registered environment.
          folder: of all agents.
          run_folder: of a run to go on with, or None for a new one.
          steps: to train in all; 0 means as many as the tuned hyper-parameters say.
          seed: of everything random.
          hyperparams: values that replace tuned ones.
          arguments: what is noted in args.yml.
          eval_freq: steps between evaluations; 0 means none.
          device: for the networks.
        """
        super().__init__(
            argparse.Namespace(**arguments),
            algo,
            env_id,
            folder,
            n_timesteps=steps,
            eval_freq=eval_freq,
            hyperparams=dict(hyperparams),
            seed=seed,
            device=device,
            verbose=0,
        )
        if run_folder is not None:
            self.save_path = run_folder
            self.params_path = os.path.join(run_folder, str(self.env_name))
        self.fast_atari = False

    def setup_experiment(self) -> Any:
        """Makes model and environments; what the zoo prints about it is left out."""
        with quiet():
            return super().setup_experiment()

    def read_hyperparameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads the tuned hyper-parameters, and sees whether our Atari environment will do."""
        hyperparams, saved = super().read_hyperparameters()
        wrappers = hyperparams.get("env_wrapper")
        self.fast_atari = (
            wrappers in (ATARI_WRAPPER, [ATARI_WRAPPER])
            and hyperparams.get("frame_stack") is not None
            and not hyperparams.get("normalize")
            and not hyperparams.get("env_kwargs")
            and atari.supported(self.env_name.gym_id)
        )
        return hyperparams, saved

    def create_envs(
        self, n_envs: int, eval_env: bool = False, no_log: bool = False
    ) -> vec_env.VecEnv:
        """Makes the environments: ours for Atari, else the zoo's."""
        # A resumed run adds to its file of scores.
        self.monitor_kwargs = {**self.monitor_kwargs, "override_existing": False}
        if not self.fast_atari:
            return super().create_envs(n_envs, eval_env, no_log)
        return atari.AtariVecEnv(
            self.env_name.gym_id,
            n_envs,
            self.seed,
            frame_stack=self.frame_stack,
            monitor_file=None if eval_env or no_log else os.path.join(self.save_path, "0"),
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what libraries print, and their warnings about what is so on purpose, to debug logs."""
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        yield
    for line in said.getvalue().splitlines():
        logging.debug("%s", line)


def use_bfloat16(model: base_class.BaseAlgorithm) -> None:
    """Computes the features of images in bfloat16; weights, heads and losses stay float32.

    On a processor with AVX512-BF16 or AMX, training is about twice as fast.
    """
    for module in model.policy.modules():
        if isinstance(module, torch_layers.NatureCNN):
            module.forward = functools.partial(_bfloat16_forward, module.forward)


def _bfloat16_forward(
    forward: Callable[[torch.Tensor], torch.Tensor], observations: torch.Tensor
) -> torch.Tensor:
    with torch.autocast(observations.device.type, torch.bfloat16):
        return forward(observations).float()
