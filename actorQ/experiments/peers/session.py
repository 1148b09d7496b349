"""A training of another project's agent with clock, evaluation, end and logs as in ours.

The agent reports its environment steps and its gradient steps to a `Session`. That does around them
what our learner's process does: an evaluation episode without exploration every so many gradient
steps, the stop rule, the time limit, rows of the logs, and the end if numbers are not finite. It
works on the agent's one thread and makes no checkpoints. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
import time
from typing import Any

from absl import flags
from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import provenance
from actorQ.core import run_logger
from actorQ.core import seeding
from actorQ.core import telemetry
from actorQ.core import tracking
from actorQ.environments import evaluation
from actorQ.environments import suites
from actorQ.experiments import kinds


class Finished(Exception):
    """Training is over; raised through the agent's own loop, which must let it pass."""


@dataclasses.dataclass(frozen=True)
class Agent:
    """An agent that is ready to be trained."""

    name: str  # For people.
    algorithm: str
    device: str
    # Acts, learns and reports to the session, until that raises `Finished`.
    train: Callable[[], object]
    act: Callable[[np.ndarray], Any]  # Observation to action, without exploration.
    is_finite: Callable[[], bool]  # Whether all weights are finite.
    replay_capacity: int  # Transitions that its replay holds.


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> config_lib.RunConfig:
    """Returns the configuration of a peer's process: it starts now, in 32 bits.

    Args:
      flag_values: The flags.

    Raises:
      errors.UserError: A value is not legal, or not possible here.
    """
    config = config_flags.from_flags(flag_values)
    if flag_values["quantize"].present and config.quantize != kinds.PRECISION:
        raise errors.UserError(
            f"--quantize={config.quantize} is not possible: agents for comparison compute in "
            f"{kinds.PRECISION} bits only."
        )
    if config.resume:
        raise errors.UserError(
            "--resume is not possible: agents for comparison make no checkpoints to go on from."
        )
    return dataclasses.replace(
        config, quantize=kinds.PRECISION, run_start_time=config.run_start_time or time.time()
    )


def threads(config: config_lib.RunConfig) -> int:
    """Returns how many threads an agent gets: all cores, or --learner_threads."""
    return config.learner_threads or provenance.usable_cores()


class Session:
    """One training.

    Attributes:
      environment: Environment in which the agent trains; the agent steps it.
      actor_steps: Environment steps reported.
      learner_steps: Gradient steps reported.
    """

    def __init__(self, config: config_lib.RunConfig):
        """Makes environments and log folder.

        Raises:
          errors.UserError: Task or log folder cannot be used.
        """
        self._config = config
        if os.path.exists(os.path.join(config.logpath, telemetry.LEARNER, telemetry.TRAIN_CSV)):
            raise errors.UserError(
                f"There is a run in {config.logpath}: choose another --logpath."
            )
        self._logger = run_logger.RunLogger(
            config.logpath, telemetry.LEARNER, config.run_start_time
        )
        self._logger.tracker = tracking.start(config, self._logger.folder)
        self.environment, self._evaluation_environment = (
            suites.make_for(config, seeding.derive(config.seed, role))
            for role in ("actor environment", "evaluation environment")
        )
        if len(self.environment.spec.observation_shape) != 1:
            raise errors.UserError(
                f"{config.taskstr} has images; the agents for comparison take vectors here."
            )
        self.actor_steps = 0
        self.learner_steps = 0
        self._agent: Agent | None = None
        self._interrupted = False
        self._losses: Mapping[str, float] = {}
        self._returns: list[float] = []
        self._evaluation_s = 0.0
        self._next_evaluation = 0.0
        self._rows = run_logger.TrainRows(self._logger)

    def run(self, agent: Agent) -> int:
        """Trains an agent to the end; returns the process's exit code.

        Raises:
          errors.UserError: Training has diverged.
        """
        config = self._config
        self._agent = agent
        config.save(
            config.logpath,
            algorithm=agent.algorithm,
            agent=agent.name,
            machine=provenance.machine(),
            git_commit=provenance.git_commit(),
            learner_device=agent.device,
        )
        logging.info(
            "%s on %s, learning on %s, logs in %s",
            agent.name, config.taskstr, agent.device, config.logpath,
        )
        undo = cli.on_stop_signals(self._interrupt)
        try:
            with energy.track(bool(config.track_energy), self._logger.folder):
                self._log()
                self._next_evaluation = time.monotonic() + config.eval_period_s
                self._train(agent)
                self._log()
                self._evaluate_last(agent)
                self._log()
        finally:
            self._logger.close()
            undo()
        if self._interrupted:
            logging.info("Interrupted after %d learner steps.", self.learner_steps)
            return cli.interrupted_code()
        logging.info("Done: %d learner steps; results in %s", self.learner_steps, config.logpath)
        return 0

    def acted(self) -> None:
        """Takes note of an environment step.

        Raises:
          Finished: Training is over.
        """
        self.actor_steps += 1
        if self._rows.age_s >= self._config.log_period_s:
            self._log()
        self._check_end()

    def learned(self, losses: Mapping[str, float]) -> None:
        """Takes note of a gradient step; evaluates if that is due.

        Args:
          losses: `loss`, and `policy_loss` if there is one.

        Raises:
          Finished: Training is over.
          errors.UserError: Training has diverged.
        """
        config = self._config
        self.learner_steps += 1
        self._losses = losses
        run_logger.check_losses(losses, self.learner_steps)
        if evaluation.due(config, self.learner_steps, time.monotonic() >= self._next_evaluation):
            self._evaluate()
            self._next_evaluation = time.monotonic() + config.eval_period_s
            if evaluation.reached_stop_return(config, self._returns):
                logging.info("Held the return %g: training ends.", config.stop_return)
                raise Finished
        if self.learner_steps >= config.num_episodes:
            raise Finished
        self._check_end()

    def _check_end(self) -> None:
        limit_s = self._config.max_seconds
        if self._interrupted:
            raise Finished
        if limit_s and self._logger.seconds() > limit_s:
            logging.info("%g s have passed: training ends.", limit_s)
            raise Finished

    def _train(self, agent: Agent) -> None:
        try:
            agent.train()
        except Finished:
            return
        except errors.UserError:
            raise
        except Exception as error:
            if agent.is_finite():
                raise
            # A simulation that gets NaN as an action fails in ways of its own.
            raise self._diverged() from error

    def _evaluate_last(self, agent: Agent) -> None:
        if not agent.is_finite():
            raise self._diverged()
        before = len(self._returns)
        for _ in range(self._config.final_eval_episodes):
            self._evaluate()
        evaluation.report_final(self._returns[before:])

    def _diverged(self) -> errors.UserError:
        return errors.UserError(
            f"The policy holds NaN or infinity after {self.learner_steps} learner steps: "
            f"{errors.DIVERGED} and ends."
        )

    def _evaluate(self) -> None:
        assert self._agent is not None, "Agents report while `run` is under way."
        episode = evaluation.play(
            self._evaluation_environment, self._agent.act, stop=lambda: self._interrupted
        )
        if episode is None:
            return
        self._evaluation_s += episode.seconds
        self._returns.append(episode.episode_return)
        evaluation.write_row(
            self._logger, self.learner_steps, self.actor_steps, episode, self._evaluation_s
        )

    def _log(self) -> None:
        assert self._agent is not None, "Agents report while `run` is under way."
        self._rows.write(
            self.learner_steps,
            self.actor_steps,
            replay_size=min(self.actor_steps, self._agent.replay_capacity),
            model_version=self.learner_steps,  # It acts with the newest weights.
            evaluation_s=self._evaluation_s,
            **self._losses,
        )

    def _interrupt(self) -> None:
        self._interrupted = True
