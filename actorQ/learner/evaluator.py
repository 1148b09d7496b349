"""The learner's evaluation episodes, and its policy on disk.

Learner's process only; imports no torch.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import math
import os
import time
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.environments import base
from actorQ.environments import evaluation
from actorQ.learner import evaluator_process
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import saved
from actorQ.policy import sonnet_policy


class Played(NamedTuple):
    """An evaluation episode.

    Attributes:
      episode: Its result.
      learner_steps: Learner steps of the policy that was played.
      actor_steps: Environment steps of all actors when the episode began.
    """

    episode: evaluation.Episode
    learner_steps: int
    actor_steps: int


class _Begun(NamedTuple):
    """An episode under way, with the weights of its policy."""

    learner_steps: int
    actor_steps: int
    weights: Mapping[str, np.ndarray]


class Evaluator:
    """Plays the learner's policy, here or in a process of its own, and saves its float32 weights.

    Attributes:
      returns: Returns of all evaluation episodes of the run, in their order.
      stop_rule_from: Index of the first return that counts for the stop rule.
      best_return: The highest return; minus infinity before the first.
      seconds: Cumulative seconds for which evaluation has kept the learner from learning.
    """

    def __init__(
        self,
        config: config_lib.RunConfig,
        environment: base.Environment,
        architecture: architecture_lib.PolicyArchitecture,
        policy: sonnet_policy.Policy,
        greedy: Callable[[np.ndarray], Any],
        run_id: int,
        beside: evaluator_process.EvaluatorProcess | None = None,
    ):
        """Takes the parts.

        Args:
          config: The run's configuration.
          environment: The environment to play in.
          architecture: Shapes of the policy.
          policy: The learner's own policy, which goes on learning.
          greedy: Turns the policy's output into an action without exploration.
          run_id: Random number of the run, which stays when the run is resumed.
          beside: Process that plays the episodes; None: this one does.
        """
        self._config = config
        self._environment = environment
        self._architecture = architecture
        self._policy = policy
        self._run_id = run_id
        self._beside = beside
        self._act_tensor = policy.compile_for(1)
        self._player = evaluation.GreedyPlayer(environment, self._compute, greedy)
        # If the actors use the native kernels, evaluation uses them too, mostly in fp32. At 3x2048
        # an episode then costs the learner about half as much as with TensorFlow.
        self._kernels: inference.InferenceBackend | None = None
        if config.inference_mode == "native":
            self._kernels = inference.make_backend(
                architecture, config.learner_fake_quantize, "native"
            )
        self._begun: _Begun | None = None
        self._played: evaluation.Episode | None = None  # This process has played it.
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

    def begin(self, learner_steps: int, actor_steps: int, stop: Callable[[], bool]) -> None:
        """Begins an episode of the policy as it is now; without a process, plays it.

        Args:
          learner_steps: Learner steps of the policy.
          actor_steps: Environment steps of all actors so far.
          stop: Ends the episode early.
        """
        if stop():  # An answer under way belongs to the weights before.
            return
        started = time.perf_counter()
        self._begun = _Begun(learner_steps, actor_steps, self._weights())
        if self._beside is not None:
            self._beside.begin(self._begun.weights)
        else:
            if self._kernels is not None:
                inference.load_weights(
                    self._kernels, self._begun.weights, self._config.learner_fake_quantize
                )
            self._played = self._player.play(stop)
        self.seconds += time.perf_counter() - started

    @property
    def under_way(self) -> bool:
        """Says whether an episode was begun that has not been finished."""
        return self._begun is not None

    def take(self, stop: Callable[[], bool], wait: bool) -> Played | None:
        """Returns the episode that was begun, once it is over.

        Args:
          stop: Ends a wait.
          wait: Whether to wait for its end.

        Returns:
          The episode; None if there is none, or `stop` has ended it.
        """
        if self._begun is None:
            return None
        started = time.perf_counter()
        episode = self._played if self._beside is None else self._beside.take(stop, wait)
        self.seconds += time.perf_counter() - started
        if episode is None:
            return None
        self.returns.append(episode.episode_return)
        return Played(episode, self._begun.learner_steps, self._begun.actor_steps)

    def _compute(self, observations: np.ndarray) -> np.ndarray:
        """Returns the policy's output for observations [1, ...]."""
        if self._kernels is not None:
            return self._kernels(observations)
        return np.asarray(self._act_tensor(observations))

    def reached_stop_return(self) -> bool:
        """Returns whether the returns since `stop_rule_from` meet the stop rule."""
        return evaluation.reached_stop_return(self._config, self.returns[self.stop_rule_from :])

    def finish(self) -> None:
        """Saves the policy that was played under `best` if its return is the highest."""
        begun, self._begun, self._played = self._begun, None, None
        if begun is not None and self.returns[-1] > self.best_return:
            self._save(
                begun.weights, begun.learner_steps, telemetry.BEST_FOLDER, run_id=self._run_id,
                episode_return=self.returns[-1],
            )
            self.best_return = self.returns[-1]

    def save_policy(self, learner_steps: int) -> None:
        """Writes the present policy's weights.

        Args:
          learner_steps: Learner steps done.

        Raises:
          errors.UserError: The weights hold NaN or infinity.
          errors.WriteError: The weights cannot be written.
        """
        self._save(self._weights(), learner_steps)

    def _save(
        self, weights: Mapping[str, np.ndarray], learner_steps: int, subfolder: str = "",
        **facts: float,
    ) -> None:
        """Writes weights to a subfolder of the checkpoints' folder, with the facts about them."""
        if not all(np.all(np.isfinite(array)) for array in weights.values()):
            raise errors.UserError(
                f"The policy holds NaN or infinity after {learner_steps} learner steps: "
                f"{errors.DIVERGED} and ends; the checkpoint before stays."
            )
        spec = self._environment.spec
        all_facts = {
            "taskstr": self._config.taskstr,
            "max_episode_steps": self._environment.step_limit,
            "action_limit": self._config.action_limit,
            "env_kwargs": self._config.env_kwargs,
            "learner_steps": learner_steps,
            "learner_fake_quantize": self._config.learner_fake_quantize,
            "observation_scale": None if spec.observation_scale is None else [
                array.tolist() for array in spec.observation_scale
            ],
            "action_low": None if spec.action_low is None else spec.action_low.tolist(),
            "action_high": None if spec.action_high is None else spec.action_high.tolist(),
            "action_start": spec.action_start,
            "action_combinations": spec.action_combinations,
            **facts,
        }
        folder = os.path.join(self._config.logpath, telemetry.CHECKPOINT_FOLDER, subfolder)
        saved.save_policy(
            folder, saved.PolicyCheckpoint(self._architecture, weights, all_facts)
        )

    def close(self) -> None:
        """Closes the environment, and ends the process; no episode may follow."""
        if self._beside is not None:
            self._beside.close()
        base.close_all([self._environment])

    def _weights(self) -> dict[str, np.ndarray]:
        return forms.from_sonnet(
            {k: v.numpy() for k, v in self._policy.named_variables().items()}
        )
