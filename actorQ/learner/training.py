"""The learning thread: learner steps, evaluations, pushes of weights and checkpoints.

Learner's process only; imports no torch.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import threading
import time
from typing import Any
from typing import Protocol

from absl import logging

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import snapshots
from actorQ.environments import evaluation
from actorQ.learner import checkpoints as checkpoints_lib
from actorQ.learner import evaluator as evaluator_lib
from actorQ.learner import policy_average
from actorQ.learner import progress as progress_lib
from actorQ.learner import publisher as publisher_lib
from actorQ.wire import connection as connection_lib


class Learner(Protocol):
    """The part of Acme's learners that is used here."""

    def step(self) -> Any:
        """Makes --learner_steps_per_call steps, each with a new batch; may wait for data."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The objects that both threads of the learner's process work with.

    Attributes:
      learner: The algorithm's learner; the learning thread alone calls it.
      read_losses: Returns the newest losses by their names in the log; none before the first step.
      publisher: Pushes weights to the broadcaster.
      evaluator: Plays and saves the policy.
      checkpoints: Takes snapshots of the run.
      logger: Writes the learner's logs.
      connection: Connection to the run's server.
      average: Average of the policy, if that is what acts.
    """

    learner: Learner
    read_losses: Callable[[], dict[str, float]]
    publisher: publisher_lib.VariablePublisher
    evaluator: evaluator_lib.Evaluator
    checkpoints: checkpoints_lib.Checkpoints
    logger: run_logger.RunLogger
    connection: connection_lib.Connection
    average: policy_average.PolicyAverage | None = None


class Training:
    """Trains until a stop rule holds, then evaluates and saves the last policy.

    `run` is the learning thread. Three methods may be called by the main thread: `wind_up` after
    it has overtaken a step, `save` when a step does not end, and `save_no_more`.
    """

    def __init__(
        self,
        config: config_lib.RunConfig,
        run_id: int,
        parts: Parts,
        progress: progress_lib.Progress,
        publish_card: Callable[[], None] | None,
    ):
        """Takes the parts; nothing is done yet.

        Args:
          config: The run's configuration.
          run_id: Random number of the run, stored in its snapshots.
          parts: The objects to work with.
          progress: State shared with the main thread.
          publish_card: Shows a new run's learner to clients; None for a run that is resumed.
        """
        self._config = config
        self._run_id = run_id
        self._parts = parts
        self._progress = progress
        self._publish_card = publish_card
        self._saving = threading.Lock()
        self._saves_over = False

    def run(self) -> None:
        """Trains to the end; a failure is left in the shared state for the main thread."""
        try:
            self._learn()
        except BaseException as error:
            self._progress.failure = error
        self._progress.ready.set()
        self._progress.finished.set()

    def _learn(self) -> None:
        config, parts, progress = self._config, self._parts, self._progress
        if self._publish_card is not None:
            # The checkpoint comes first: a run that others can see can always be resumed.
            with self._saving:
                parts.checkpoints.save(self.state, wait=True)
            self._publish_card()
        parts.publisher.publish(progress.version, wait=True)
        progress.ready.set()
        next_evaluation = time.monotonic() + config.eval_period_s
        next_checkpoint = time.monotonic() + config.checkpoint_period_s
        while progress.steps < config.num_episodes and not progress.stop.is_set():
            progress.begin_step()
            parts.learner.step()
            if not progress.end_step(config.learner_steps_per_call):
                return
            if parts.average is not None:
                parts.average.after_steps(progress.steps, config.learner_steps_per_call)
            parts.publisher.publish(progress.version)
            now = time.monotonic()
            save = now >= next_checkpoint and not parts.checkpoints.writing
            # A snapshot holds no episode under way, so that it waits for it.
            held = self._held(wait=save)
            if not held and self._is_due(now >= next_evaluation):
                held = self._held(wait=True)  # That of the steps before, if it is under way.
                if not held:
                    self._begin_evaluation()
                    next_evaluation = time.monotonic() + config.eval_period_s
                    held = self._held(wait=save)
            if held:
                logging.info("Held the return %g: training ends.", config.stop_return)
                break
            if self._time_is_over():
                logging.info("%g s have passed: training ends.", config.max_seconds)
                break
            if save:
                self.check_losses()
                self.save()
                next_checkpoint = time.monotonic() + config.checkpoint_period_s
        self.wind_up()

    def wind_up(self) -> None:
        """Evaluates and saves the last policy.

        Raises:
          errors.UserError: A loss is NaN or infinite, or a file cannot be written.
        """
        self.check_losses()
        try:
            self._evaluate_finally()
        finally:  # The evaluation comes first: a run that is resumed later keeps it.
            self.save(last=True)

    def _evaluate_finally(self) -> None:
        self._note_evaluation(wait=True)
        if self._progress.stop.is_set():
            return
        evaluations = [self.evaluate() for _ in range(self._config.final_eval_episodes)]
        returns = [value for value in evaluations if value is not None]
        evaluation.report_final(returns)
        # These returns are of one policy. A resumed run trains until it holds the return again.
        self._parts.evaluator.stop_rule_from = len(self._parts.evaluator.returns)

    def evaluate(self) -> float | None:
        """Plays and logs an episode; saves the policy if it is the best.

        Returns:
          The episode's return; None if training had to stop during the episode.
        """
        self._begin_evaluation()
        return self._parts.evaluator.returns[-1] if self._note_evaluation(wait=True) else None

    def _is_due(self, time_is_up: bool) -> bool:
        """Returns whether an evaluation is due.

        By time, none is due while another is under way. By steps, each one is played.
        """
        by_steps = bool(self._config.eval_period_steps)
        if not by_steps and self._parts.evaluator.under_way:
            return False
        return evaluation.due(self._config, self._progress.steps, time_is_up)

    def _held(self, wait: bool) -> bool:
        """Logs the episode that was begun, if it is over; returns whether training may stop."""
        return self._note_evaluation(wait) and self._parts.evaluator.reached_stop_return()

    def _time_is_over(self) -> bool:
        limit = self._config.max_seconds
        return bool(limit) and self._parts.logger.seconds() > limit

    def _begin_evaluation(self) -> None:
        self._parts.evaluator.begin(
            self._progress.steps, self._parts.connection.status().transitions_inserted,
            self._progress.stop.is_set,
        )

    def _note_evaluation(self, wait: bool) -> bool:
        """Logs the episode that was begun, if it is over; returns whether it was."""
        evaluator = self._parts.evaluator
        played = evaluator.take(self._progress.stop.is_set, wait)
        if played is None:
            return False
        evaluation.write_row(
            self._parts.logger, played.learner_steps, played.actor_steps, played.episode,
            evaluator.seconds,
        )
        with surviving_write_errors():
            evaluator.finish()
        return True

    def check_losses(self) -> dict[str, float]:
        """Returns the newest losses.

        Raises:
          errors.UserError: A loss is NaN or infinite.
        """
        losses = self._parts.read_losses()
        run_logger.check_losses(
            losses, self._progress.steps, "Lower the learning rate, or check --vmin and --vmax."
        )
        return losses

    def save(self, last: bool = False) -> None:
        """Saves the policy and a snapshot of the run, unless the last one is already saved.

        Args:
          last: Whether the run ends: wait for the snapshot, and save no other one afterwards.

        Raises:
          errors.UserError: The policy holds NaN or infinity.
          errors.WriteError: The last policy cannot be written.
        """
        started = time.perf_counter()
        with self._saving:
            if self._saves_over:
                return
            with contextlib.nullcontext() if last else surviving_write_errors():
                self._parts.evaluator.save_policy(self._progress.steps)
            self._parts.checkpoints.seconds += time.perf_counter() - started
            self._parts.checkpoints.save(self.state, wait=last)
            self._saves_over = last

    def save_no_more(self) -> None:
        """Waits for a save under way, and makes later ones do nothing.

        A snapshot made after the announced end would hold the announcement: a resumed run would
        begin with its end.
        """
        with self._saving:
            self._saves_over = True

    def state(self) -> snapshots.State:
        """Returns the state that a resumed run starts from."""
        evaluator, publisher = self._parts.evaluator, self._parts.publisher
        return snapshots.State(
            # Lengths are taken first: no row in the logs is newer than the rest of the state.
            log_bytes=self._parts.logger.lengths(),
            run_id=self._run_id,
            settings=dataclasses.asdict(self._config),
            learner_steps=self._progress.steps,
            versions_skipped=self._progress.versions_skipped,
            returns=list(evaluator.returns),
            best_return=evaluator.best_return if evaluator.returns else None,
            evaluation_s=evaluator.seconds,
            checkpoint_s=self._parts.checkpoints.seconds,
            pushes=publisher.pushes,
            stop_rule_from=evaluator.stop_rule_from,
            push_snapshot_s=publisher.snapshot_s,
            push_insert_s=publisher.insert_s,
        )


@contextlib.contextmanager
def surviving_write_errors() -> Iterator[None]:
    """Logs that a file cannot be written, and goes on: there may be room for the next one."""
    try:
        yield
    except errors.WriteError as error:
        logging.warning("%s Training goes on.", error)
