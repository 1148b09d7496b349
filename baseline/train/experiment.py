"""The zoo's way of setting up a training run, made quiet and resumable.

`Experiment` is rl_zoo3's ExperimentManager, which reads the tuned hyper-parameters and makes
environments and model from them. Some of its methods are replaced.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import copy
import functools
import glob
import io
import os
import pathlib
import re
from typing import Any
import warnings
import zipfile

from absl import logging
import numpy as np
from rl_zoo3 import callbacks as zoo_callbacks
from rl_zoo3 import exp_manager
from stable_baselines3.common import callbacks as sb3_callbacks
from stable_baselines3.common import preprocessing
from stable_baselines3.common import vec_env
import yaml

from actorQ.core import errors
from actorQ.core import files
from baseline.tasks import wrappers
from baseline.train import noted_ends

# Folder of our own environments' tuned hyper-parameters, in the zoo's form: ALGO.yml.
HYPERPARAMS = pathlib.Path(__file__).parents[1] / "hyperparams"


class Experiment(exp_manager.ExperimentManager):
    """One run in one folder: OUT/ALGO/ENV_<n>, with the zoo's files in it.

    Attributes:
      save_path: Folder of the run.
      n_timesteps: Environment steps in all, once the experiment is set up.
      made_folder: Whether this run made `save_path`.
    """

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
          algo: One of `names.ALGOS`.
          env_id: Registered environment.
          folder: Folder of all agents.
          run_folder: Folder of a run to go on with, or None for a new one.
          steps: Environment steps in all; 0: as many as the tuned hyper-parameters say.
          seed: Seed of everything random.
          hyperparams: Values that replace tuned ones.
          arguments: Content of args.yml.
          eval_freq: Steps between evaluations; 0: none.
          device: Device of the networks.

        Raises:
          errors.UserError: There are no tuned hyper-parameters, and none are given.
        """
        super().__init__(
            argparse.Namespace(**arguments),
            algo,
            env_id,
            folder,
            n_timesteps=steps,
            eval_freq=eval_freq,
            seed=seed,
            device=device,
            verbose=0,
        )
        own = HYPERPARAMS / f"{algo}.yml"
        if own.exists() and env_id in yaml.safe_load(own.read_text()):
            self.config = str(own)
        self.custom_hyperparams = {**self._tuned_for_sibling(hyperparams, steps), **hyperparams}
        self._resumes = run_folder is not None
        self.made_folder = False
        if run_folder is not None:
            self._use_folder(run_folder)

    def setup_experiment(self) -> Any:
        """Makes model and environments, and leaves out the zoo's own output."""
        if self._resumes:  # A killed process may have left half a row, which a new row would join.
            for path in glob.glob(os.path.join(glob.escape(self.save_path), "*monitor.csv")):
                files.drop_half_row(path)
        with quiet():
            return super().setup_experiment()

    def read_hyperparameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads the tuned hyper-parameters, and refuses wrappers that the tools do not know."""
        hyperparams, saved = super().read_hyperparameters()
        if hyperparams.get("vec_env_wrapper"):
            raise errors.UserError(
                "vec_env_wrapper is not possible here, since the tools would not know the agent's "
                "observations: use env_wrapper."
            )
        wrappers.load(hyperparams.get("env_wrapper"))
        # SB3 and rl_zoo3 write into dictionaries in the values (A2C's optimizer, for example). The
        # agent's folder later notes `saved`, which shares them.
        return copy.deepcopy(hyperparams), saved

    def create_log_folder(self) -> None:
        """Makes the run's folder, with the next number if another run took this one meanwhile."""
        base, _, number = self.save_path.rpartition("_")
        while not self._resumes:
            try:
                os.makedirs(self.save_path)
                self.made_folder = True
                break
            except FileExistsError:
                number = str(int(number) + 1)
                self._use_folder(f"{base}_{number}")
        os.makedirs(self.params_path, exist_ok=True)

    def create_envs(
        self, n_envs: int, eval_env: bool = False, no_log: bool = False
    ) -> vec_env.VecEnv:
        """Makes the zoo's environments, whose scores miss no end of an episode."""
        # A resumed run adds to its file of scores.
        self.monitor_kwargs = {**self.monitor_kwargs, "override_existing": not self._resumes}
        wrap = self.env_wrapper
        if wrap is not None or eval_env:
            self.env_wrapper = lambda env: noted_ends.NotedEnds(
                env if wrap is None else wrap(env), must_end=eval_env
            )
        try:
            return super().create_envs(n_envs, eval_env, no_log)
        finally:
            self.env_wrapper = wrap

    def _maybe_normalize(self, env: vec_env.VecEnv, eval_env: bool) -> vec_env.VecEnv:
        """Normalizes as the zoo does, but never unpickles an ENV/vecnormalize.pkl that lies here.

        The zoo takes such a file for that of an agent to train further. It may be anybody's.
        """
        if not self.normalize:
            return env
        images = preprocessing.is_image_space(env.observation_space)
        if self.normalize_kwargs.get("norm_obs", True) and (self.frame_stack or images):
            raise errors.UserError(
                "normalize is for vectors that are not stacked (no frame_stack, no images), since "
                "the tools would not know the agent's observations otherwise. normalize:"
                "\"dict(norm_obs=False)\" normalizes rewards alone."
            )
        for_evaluation = {"norm_reward": False, "training": False} if eval_env else {}
        return vec_env.VecNormalize(env, **{**self.normalize_kwargs, **for_evaluation})

    def create_callbacks(self) -> None:
        """Makes the evaluations, which go on from those of the interrupted run."""
        self.eval_env_kwargs = self.env_kwargs  # The hyper-parameters may have set them.
        super().create_callbacks()
        for callback in self.callbacks:
            if isinstance(callback, sb3_callbacks.EvalCallback):
                callback.verbose = 0
                callback.callback = sb3_callbacks.ConvertCallback(
                    functools.partial(_note_evaluation, callback)
                )
                callback.callback.parent = callback
                # Statistics go beside best_model.zip. The zoo would write over
                # ENV/vecnormalize.pkl, which must be as old as the last checkpoint for a run to go
                # on from that.
                on_new_best = callback.callback_on_new_best
                assert isinstance(on_new_best, zoo_callbacks.SaveVecNormalizeCallback)
                on_new_best.save_path = self.save_path
                if self._resumes:
                    restore_evaluations(callback)

    def _save_config(self, saved_hyperparams: dict[str, Any]) -> None:
        if not self._resumes:
            self.args.n_timesteps = self.n_timesteps
            super()._save_config(saved_hyperparams)

    def _use_folder(self, run_folder: str) -> None:
        self.save_path = run_folder
        self.params_path = os.path.join(run_folder, str(self.env_name))

    def _tuned_for_sibling(self, hyperparams: Mapping[str, Any], steps: int) -> dict[str, Any]:
        """Returns the values tuned for another version of an environment that has none.

        rl_zoo3's defaults for unknown environments, a million steps among them, are not tuned.
        """
        with open(self.config, encoding="utf-8") as file:
            tuned = yaml.safe_load(file)
        env_id = str(self.env_name)
        if env_id in tuned or (self._is_atari and "atari" in tuned):
            return {}
        base = re.sub(r"-v\d+$", "", env_id)
        siblings = [name for name in tuned if re.sub(r"-v\d+$", "", name) == base]
        if siblings:
            logging.info("The hyper-parameters are those tuned for %s.", siblings[-1])
            return tuned[siblings[-1]]
        if hyperparams and (steps or "n_timesteps" in hyperparams):
            return {}
        known = [name for name in tuned if name not in ("default", "atari")]
        raise errors.UserError(
            f"rl_zoo3 has no tuned hyper-parameters for {self.algo} on {env_id} (it has some for "
            f"{', '.join(known)}): give some with --hyperparams, the "
            "steps among them, for example n_timesteps:100000 learning_rate:0.0003."
        )


def _note_evaluation(evaluations: sb3_callbacks.EvalCallback, *_: Any) -> bool:
    """Logs a line after an evaluation."""
    logging.info(
        "Evaluation at %d steps: mean score %.2f (best so far %.2f).",
        evaluations.num_timesteps, evaluations.last_mean_reward, evaluations.best_mean_reward,
    )
    return True


def restore_evaluations(callback: sb3_callbacks.EvalCallback) -> None:
    """Reads the scores of the run's earlier evaluations, so that the best agent stays the best.

    A damaged file does not stop a run: it may have been killed while it wrote the file.
    """
    from baseline.agents import zoo_files

    path = f"{callback.log_path}.npz"
    if not os.path.exists(path):
        return
    try:
        with np.load(path, allow_pickle=False) as file:
            steps, results, lengths = (
                file[name].tolist() for name in ("timesteps", "results", "ep_lengths")
            )
            # Not every task tells of success.
            successes = file["successes"].tolist() if "successes" in file else []
        means = np.mean(results, axis=1)
        best = float(means.max())
        if not len(steps) == len(results) == len(lengths):
            raise ValueError("rows of different numbers")
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {errors.summary(error)}.") from None
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
        logging.warning(
            "%s is damaged: earlier evaluations are forgotten, and a worse agent may replace "
            "best_model.zip.", path,
        )
        return
    callback.evaluations_timesteps = steps
    callback.evaluations_results = results
    callback.evaluations_length = lengths
    callback.evaluations_successes = successes
    # The agent is written after the scores, so that a full disk may leave scores without it.
    assert callback.best_model_save_path is not None  # The zoo always sets it.
    path = os.path.join(callback.best_model_save_path, "best_model.zip")
    try:
        of_steps = zoo_files.read_zip(pathlib.Path(path)).data.get("num_timesteps")
    except errors.UserError:
        of_steps = None
    there = max(
        (mean for mean, number in zip(means.tolist(), steps, strict=True) if number == of_steps),
        default=-np.inf,
    )
    callback.best_mean_reward = there
    if np.isneginf(there):
        logging.warning(
            "%s is missing, damaged or of an unknown evaluation: the agent of the next evaluation "
            "replaces it.", path,
        )
    elif there < best:
        logging.warning(
            "%s is not the agent of the best evaluation (%.2f): any agent that scores above %.2f "
            "replaces it.", path, best, there,
        )


def tuned_steps(algo: str, env_id: str, hyperparams: Mapping[str, Any]) -> int:
    """Returns the number of environment steps in an environment's hyper-parameters.

    Args:
      algo: One of `names.ALGOS`.
      env_id: Registered environment.
      hyperparams: Values that replace tuned ones.

    Raises:
      errors.UserError: There are no tuned hyper-parameters, and none with the steps are given.
    """
    experiment = Experiment(algo, env_id, "", None, 0, 0, hyperparams, {}, 0, "cpu")
    with quiet():
        values, _ = experiment.read_hyperparameters()
    return int(values["n_timesteps"])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Sends the output of libraries to debug logs, and drops their warnings."""
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        yield
    for line in said.getvalue().splitlines():
        logging.debug("%s", line)
