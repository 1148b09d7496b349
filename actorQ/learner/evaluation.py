"""The learner's evaluation episodes, and its policy on disk.

Learner's process only; imports no torch.
"""

from collections.abc import Callable
import contextlib
import math
import os
import time
from typing import Any

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.environments import base
from actorQ.environments import evaluation
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import saved
from actorQ.policy import sonnet_policy as networks_lib


class Evaluator:
    """Plays the full-precision policy, and saves it.

    Attributes:
      returns: of all evaluation episodes of the run, in their order.
      best_return: the highest of them; minus infinity before the first.
      seconds: cumulative, of evaluation.
    """

    def __init__(
        self,
        config: config_lib.RunConfig,
        environment: base.Environment,
        architecture: architecture_lib.PolicyArchitecture,
        policy: networks_lib.Policy,
        greedy: Callable[[np.ndarray], Any],
        run_id: int,
    ):
        """Takes the parts.

        Args:
          config: of the run.
          environment: to play in.
          architecture: of the policy.
          policy: the learner's own.
          greedy: from the policy's output to an action.
          run_id: of the run, which it keeps when it is resumed.
        """
        self._config = config
        self._environment = environment
        self._architecture = architecture
        self._policy = policy
        self._greedy = greedy
        self._run_id = run_id
        self._act_tensor = policy.compile_for(1)
        # Where actors have the kernels, evaluation takes them, too, in fp32: at 3x2048 an episode
        # costs the learner about half of what TensorFlow takes for one observation at a time.
        native = config.inference_mode == "native"
        self._kernels = inference.make_backend(architecture, 32, "native") if native else None
        self.returns: list[float] = []
        self.stop_rule_from = 0
        self.best_return = -math.inf
        self.seconds = 0.0

    def restore(self, state: snapshots.State) -> None:
        """Takes over the history of a run that is resumed."""
        self.returns, self.seconds = list(state.returns), state.evaluation_s
        self.stop_rule_from = state.stop_rule_from
        if state.best_return is not None:
            self.best_return = state.best_return
        with contextlib.suppress(errors.UserError):  # There is none, or it is damaged.
            facts = saved.load_policy(self._config.logpath, best=True).facts
            if facts.get("run_id") == self._run_id:  # It may be newer than the snapshot.
                self.best_return = max(self.best_return, facts["episode_return"])

    def play(self, stop: Callable[[], bool]) -> evaluation.Episode | None:
        """Plays one episode; returns None if `stop` ended it."""
        started = time.perf_counter()
        if self._kernels is not None:
            inference.load_weights(self._kernels, self._weights(), 32)
        episode = evaluation.play(self._environment, self.act, stop=stop)
        if episode is not None:
            self.seconds += time.perf_counter() - started
            self.returns.append(episode.episode_return)
        return episode

    def act(self, observation: np.ndarray) -> Any:
        """Returns the policy's action without exploration."""
        if self._kernels is not None:
            return self._greedy(self._kernels(observation[None])[0])
        return self._greedy(self._act_tensor(observation[None])[0].numpy())

    def reached_stop_return(self) -> bool:
        """Returns whether the stop rule is met by what was not evaluated for an end of training."""
        return evaluation.reached_stop_return(self._config, self.returns[self.stop_rule_from :])

    def save_if_best(self, learner_steps: int) -> None:
        """Saves the policy under `best` if the newest return is the highest."""
        if self.returns[-1] > self.best_return:
            self.save_policy(
                learner_steps, telemetry.BEST_FOLDER, run_id=self._run_id,
                episode_return=self.returns[-1],
            )
            self.best_return = self.returns[-1]

    def save_policy(self, learner_steps: int, subfolder: str = "", **facts: float) -> None:
        """Writes the policy's weights.

        Args:
          learner_steps: done.
          subfolder: of the checkpoints' folder.
          **facts: to be noted beside the usual ones.

        Raises:
          errors.UserError: they hold NaN or infinity.
          errors.WriteError: they cannot be written.
        """
        weights = self._weights()
        if not all(np.all(np.isfinite(array)) for array in weights.values()):
            raise errors.UserError(
                f"The policy holds NaN or infinity after {learner_steps} learner steps: "
                f"{errors.DIVERGED} and ends; the checkpoint before stays."
            )
        spec = self._environment.spec
        all_facts = {
            "taskstr": self._config.taskstr,
            "max_episode_steps": self._config.max_episode_steps,
            "learner_steps": learner_steps,
            "observation_scale": None if spec.observation_scale is None else [
                array.tolist() for array in spec.observation_scale
            ],
            "action_low": None if spec.discrete else spec.action_low.tolist(),
            "action_high": None if spec.discrete else spec.action_high.tolist(),
            "action_start": spec.action_start,
            **facts,
        }
        folder = os.path.join(self._config.logpath, telemetry.CHECKPOINT_FOLDER, subfolder)
        saved.save_policy(
            folder, saved.PolicyCheckpoint(self._architecture, weights, all_facts)
        )

    def close(self) -> None:
        """Closes the environment, which is done with."""
        base.close_all([self._environment])

    def _weights(self) -> dict[str, np.ndarray]:
        return forms.from_sonnet(
            {k: v.numpy() for k, v in self._policy.named_variables().items()}
        )
