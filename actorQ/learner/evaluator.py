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
from actorQ.core import health
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.environments import base
from actorQ.environments import evaluation
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import saved
from actorQ.policy import sonnet_policy


class Evaluator:
    """Plays the full-precision policy, and saves it.

    Attributes:
      returns: Returns of all evaluation episodes of the run, in their order.
      stop_rule_from: Index of the first return that counts for the stop rule.
      best_return: The highest return; minus infinity before the first.
      seconds: Cumulative seconds of evaluation.
    """

    def __init__(
        self,
        config: config_lib.RunConfig,
        environment: base.Environment,
        architecture: architecture_lib.PolicyArchitecture,
        policy: sonnet_policy.Policy,
        greedy: Callable[[np.ndarray], Any],
        run_id: int,
    ):
        """Takes the parts.

        Args:
          config: The run's configuration.
          environment: The environment to play in.
          architecture: Shapes of the policy.
          policy: The learner's own policy, which goes on learning.
          greedy: Turns the policy's output into an action without exploration.
          run_id: Random number of the run, which stays when the run is resumed.
        """
        self._config = config
        self._environment = environment
        self._architecture = architecture
        self._policy = policy
        self._greedy = greedy
        self._run_id = run_id
        self._act_tensor = policy.compile_for(1)
        self._continuous = not environment.spec.discrete
        self._action_numbers = self._numbers_at_bounds = 0  # The episode's counts so far.
        # If the actors use the native kernels, evaluation uses them too, in fp32. At 3x2048 an
        # episode then costs the learner about half as much as with TensorFlow.
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
        with contextlib.suppress(errors.UserError):  # No best policy was saved, or it is damaged.
            facts = saved.load_policy(self._config.logpath, best=True).facts
            if facts.get("run_id") == self._run_id:  # This policy may be newer than the snapshot.
                self.best_return = max(self.best_return, facts["episode_return"])

    def play(self, stop: Callable[[], bool]) -> evaluation.Episode | None:
        """Plays one episode; returns None if `stop` returned true during the episode."""
        started = time.perf_counter()
        if self._kernels is not None:
            inference.load_weights(self._kernels, self._weights(), 32)
        self._action_numbers = self._numbers_at_bounds = 0
        episode = evaluation.play(self._environment, self.act, stop=stop)
        if episode is not None:
            if self._action_numbers:
                share = self._numbers_at_bounds / self._action_numbers
                episode = episode._replace(actions_at_bounds=share)
            self.seconds += time.perf_counter() - started
            self.returns.append(episode.episode_return)
        return episode

    def act(self, observation: np.ndarray) -> Any:
        """Returns the policy's action without exploration."""
        if self._kernels is not None:
            output = self._kernels(observation[None])[0]
        else:
            output = self._act_tensor(observation[None])[0].numpy()
        if self._continuous:
            self._action_numbers += output.size
            self._numbers_at_bounds += int(np.count_nonzero(np.abs(output) > health.BOUND))
        return self._greedy(output)

    def reached_stop_return(self) -> bool:
        """Returns whether the returns since `stop_rule_from` meet the stop rule."""
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
          learner_steps: Learner steps done.
          subfolder: Subfolder of the checkpoints' folder.
          **facts: Facts to be noted beside the usual ones.

        Raises:
          errors.UserError: The weights hold NaN or infinity.
          errors.WriteError: The weights cannot be written.
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
            "action_low": None if spec.action_low is None else spec.action_low.tolist(),
            "action_high": None if spec.action_high is None else spec.action_high.tolist(),
            "action_start": spec.action_start,
            **facts,
        }
        folder = os.path.join(self._config.logpath, telemetry.CHECKPOINT_FOLDER, subfolder)
        saved.save_policy(
            folder, saved.PolicyCheckpoint(self._architecture, weights, all_facts)
        )

    def close(self) -> None:
        """Closes the environment; no episode may follow."""
        base.close_all([self._environment])

    def _weights(self) -> dict[str, np.ndarray]:
        return forms.from_sonnet(
            {k: v.numpy() for k, v in self._policy.named_variables().items()}
        )
