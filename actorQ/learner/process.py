"""The learner's life: set up, learn, evaluate, publish, log, checkpoint, announce the end.

The main thread supervises (signals, logs, the server). A second thread learns, since a learner
step may wait inside TensorFlow for data for as long as no actor sends any, and Python handles
signals on the main thread only. Learner's process only; imports no torch.

With --resume a run goes on from its newest snapshot (`snapshots`): networks, targets, optimizers,
counters, evaluation history and all tables are what they were, and what was logged of later steps
is cut off. Versions of weights go on above the highest that ever left the learner: they are the
learner steps plus the versions that were lost to crashes. The clock of the logs counts the time in
which the run ran, also that whose steps were lost, but not the time between two launches.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import math
import os
import secrets
import threading
import time
from typing import Any

from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import ports
from actorQ.core import provenance
from actorQ.core import resuming
from actorQ.core import run_logger
from actorQ.core import seeding
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.environments import base
from actorQ.environments import evaluation
from actorQ.environments import suites
from actorQ.learner import checkpoints
from actorQ.learner import dataset
from actorQ.learner import device
from actorQ.learner import evaluation as learner_evaluation
from actorQ.learner import publisher
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.wire import connection
from actorQ.wire import replay
from actorQ.wire import server

_FIRST_PUSH_AGAIN_S = 5.0  # While nobody acts, the first weights are pushed again so often.
_LAST_STEP_S = 5.0  # How long the step under way gets to end after Ctrl-C.
_LOOK_S = 1.0  # How often, at least, the main thread looks whether training has to end.
_LATE_STEP_S = 30.0  # How long it gets once --max_seconds are over.
_SHUTDOWN_GRACE_S = 5.0  # How long actors and broadcaster get to see the announced end.


class LearnerProcess:
    """Everything that lives in the learner's process."""

    def __init__(self, config: config_lib.RunConfig):
        """Builds environment, networks, server and learner.

        Raises:
          errors.UserError: task, algorithm, port or log folder cannot be used.
        """
        self._config = config
        self._store = snapshots.Store(config.logpath)
        self._resumed = self._store.newest() if config.resume else None
        self._open_logs()
        # A resumed learner's evaluations begin with other starts than those that were seen.
        steps = 0 if self._resumed is None else self._resumed.state.learner_steps
        environment = suites.make_for(
            config, seeding.derive(config.seed, "evaluation environment", steps)
        )
        with base.closed_on_failure([environment]):
            self._build(environment)

    def _build(self, environment: base.Environment) -> None:
        """Builds everything around the environment of evaluations."""
        config = self._config
        algorithm = algorithms.resolve(config, environment.spec)
        self._algorithm = algorithms.learner_module(algorithm)
        architecture = architecture_lib.make(environment.spec, config.model_sizes)
        device.set_up_tensorflow(config)
        self._store.prepare(fresh=self._resumed is None)
        self._take_up_counts()
        self._save_config(algorithm)

        layout = replay.Layout.of(environment.spec)
        address = self._start_server(layout)
        logging.info(
            "%s on %s: server at port %d, learner on %s, logs in %s",
            algorithm, config.taskstr, self._server.port, device.name(), config.logpath,
        )

        networks = self._algorithm.make_networks(
            config, architecture, device.choose_products(config)
        )
        self._evaluator = learner_evaluation.Evaluator(
            config, environment, architecture, networks.policy,
            algorithms.policy_module(algorithm).greedy, self._run_id,
        )
        self._make_learner(networks, address, layout)
        if self._resumed is not None:
            self._restore()
        self._prepare_threads()

    def _open_logs(self) -> None:
        """Makes the logger, of a folder that is new or this run's.

        Raises:
          errors.UserError: it has another run, or cannot be written.
        """
        config, resumed = self._config, self._resumed
        if resumed is None and not resuming.recorded(config):
            self._require_new_folder()
        start_time = telemetry.start_time(config.logpath, config.run_start_time, config.resume)
        if resumed is not None:
            resuming.check(config, resumed.state.settings)
        self._logger = run_logger.RunLogger(
            config.logpath, telemetry.LEARNER, start_time,
            None if resumed is None else resumed.state.learner_steps + 1,
            again=bool(config.restarts),
        )

    def _take_up_counts(self) -> None:
        """Sets steps, versions and pushes to what they were, or to none."""
        self._version_record = self._store.version_record()
        self._version_record.note_start()
        self._run_id = secrets.randbits(62)
        self._steps = 0
        self._versions_skipped = 0
        self._pushes_before = 0
        if self._resumed is not None:
            state = self._resumed.state
            self._run_id, self._steps = state.run_id, state.learner_steps
            self._pushes_before = state.pushes
            # The first version is one that nobody has seen. The record may have lost some in a
            # crash of the machine which others' logs kept: those would wait for newer ones.
            seen = max(self._version_record.highest, telemetry.newest_version(self._config.logpath))
            self._versions_skipped = max(state.versions_skipped, seen + 1 - state.learner_steps)

    def _save_config(self, algorithm: str) -> None:
        # One that is started again by the same launcher may find a full disk.
        with _survived() if resuming.recorded(self._config) else contextlib.nullcontext():
            resuming.save_config(
                self._config,
                None if self._resumed is None else self._steps,
                algorithm=algorithm,
                machine=provenance.machine(),
                git_commit=provenance.git_commit(),
                learner_device=device.name(),
            )

    def _start_server(self, layout: replay.Layout) -> str:
        """Starts the server of all tables; returns its address, which is also written."""
        config = self._config
        self._port_claim = ports.claim(config.port) if config.port else None
        tables = server.make_tables(config, layout, self._algorithm.PRIORITIZED)
        self._server = server.start_server(
            config, tables, checkpoints.checkpointer(self._store, self._resumed)
        )
        address = f"localhost:{self._server.port}"
        self._connection = connection.Connection(config, address)
        if self._resumed is not None:
            # No end that was announced before is one of this life, and weights of the checkpoint
            # are older than what others may have seen.
            for name in (
                config.shutdown_table_name, config.broadcaster_table_name, config.model_table_name
            ):
                self._connection.client.reset(name)
            self._publish_card()
        files.write_if_new(os.path.join(config.logpath, telemetry.ADDRESS_FILENAME), address)
        return address

    def _make_learner(self, networks: Any, address: str, layout: replay.Layout) -> None:
        """Makes the algorithm's learner, and what takes its weights and its state away."""
        config = self._config
        self._monitors = dataset.Monitors()
        self._fetches = dataset.LastFetches()
        self._learner = self._algorithm.make_learner(
            networks,
            config,
            dataset.make_dataset(config, address, layout),
            self._connection.client,
            self._fetches,
            self._monitors,
        )
        self._publisher = publisher.VariablePublisher(
            networks.policy.named_variables(),
            self._connection,
            config.broadcaster_table_name,
            config.push_period_s,
            config.push_precision,
            config.push_share,
            self._version_record.note,
        )
        self._checkpoints = checkpoints.Checkpoints(
            self._store,
            self._connection.client,
            self._algorithm.checkpointed(self._learner, networks),
        )

    def _restore(self) -> None:
        """Takes over what the resumed run had come to."""
        state = self._resumed.state
        self._checkpoints.restore(self._resumed)
        self._evaluator.restore(state)
        self._publisher.snapshot_s = state.push_snapshot_s
        self._publisher.insert_s = state.push_insert_s
        snapshots.cut_logs(self._logger.folder, state)
        self._logger.lengths()  # Noted for when their folder is away.
        logging.info("Resumed after %d learner steps.", self._steps)

    def _prepare_threads(self) -> None:
        """Sets what main thread and learning thread tell each other."""
        self._stop = threading.Event()
        self._interrupted = False
        self._pushed = threading.Event()  # The first weights, and a checkpoint; or all is over.
        self._finished = threading.Event()
        self._step_lock = threading.Lock()  # For the two below.
        self._step_started: float | None = None  # Of the step under way, time.monotonic's clock.
        self._overtaken = False  # The main thread ends training during a step.
        self._failure: BaseException | None = None
        self._starved = False  # Then what has been learned is sound, and kept.
        self._saving = threading.Lock()
        self._announced = self._saved_last = False
        self._inserted_before = self._connection.status().transitions_inserted
        self._last_change = (time.monotonic(), self._steps, self._inserted_before)
        self._last_row = self._last_change

    def _publish_card(self) -> None:
        sampled = self._connection.status().transitions_sampled // self._config.batch_size
        self._connection.publish_card(
            self._run_id, self._version_record.starts, self._version() - sampled
        )

    def _version(self) -> int:
        return self._steps + self._versions_skipped

    def _require_new_folder(self) -> None:
        """Refuses a folder with a run, whose checkpoint would be deleted, and whose logs go on."""
        folder = self._config.logpath
        trained = os.path.exists(os.path.join(folder, telemetry.LEARNER, telemetry.TRAIN_CSV))
        if trained or self._store.exists():
            raise errors.UserError(
                f"There is a run in {folder}: add --resume to go on with it, or choose another "
                "--logpath."
            )

    def run(self) -> int:
        """Trains to the end; returns the process's exit code."""
        cli.on_stop_signals(self._interrupt)
        threading.Thread(target=self._learn_guarded, daemon=True, name="learning").start()
        self._pushed.wait()  # Before data can come there is nothing that starting this delays.
        with energy.track(bool(self._config.track_energy), self._logger.folder):
            try:
                self._supervise()
            except Exception as error:  # A full disk, say: the end must still be announced.
                self._failure = self._failure or error
                self._stop.set()
        return self._end()

    def _interrupt(self) -> None:  # On a thread of its own.
        self._interrupted = True
        self._stop.set()

    def _supervise(self) -> None:
        next_log = time.monotonic() + self._config.log_period_s
        while not self._finished.wait(max(0.0, min(_LOOK_S, next_log - time.monotonic()))):
            if self._stop.is_set():
                # A step may be waiting for data that no actor sends any more.
                lasting = self._failure is None or self._starved
                if not self._finished.wait(_LAST_STEP_S) and lasting:
                    self._save(last=True)
                return
            status = self._connection.status()
            self._watch_data(time.monotonic(), status)
            if time.monotonic() >= next_log:
                self._log(status)
                next_log = time.monotonic() + self._config.log_period_s
            if self._overtake():
                logging.info(
                    "%g s have passed, and a learner step does not end (does it wait for data?): "
                    "training ends.", self._config.max_seconds,
                )
                self._wind_up()
                return
        self._log(self._connection.status())

    def _overtake(self) -> bool:
        """Ends learning if its time is over and the step under way does not come to its end."""
        limit = self._config.max_seconds
        if not limit or self._stop.is_set():
            return False
        late = self._logger.seconds() > limit + _LATE_STEP_S
        with self._step_lock:
            started = self._step_started
            stuck = started is not None and time.monotonic() - started > _LATE_STEP_S
            self._overtaken = late and stuck
            return self._overtaken

    # --- On the learning thread (`_wind_up` on the main one, if a step never comes back) ---

    def _learn_guarded(self) -> None:
        try:
            self._learn()
        except BaseException as error:  # Reported by the main thread.
            self._failure = error
        self._pushed.set()
        self._finished.set()

    def _learn(self) -> None:
        config = self._config
        if self._resumed is None:
            # First of all: whatever others see of a run can be gone on with.
            with self._saving:
                self._checkpoints.save(self._state, wait=True)
            self._publish_card()
        self._publisher.publish(self._version(), wait=True)
        self._pushed.set()
        next_evaluation = time.monotonic() + config.eval_period_s
        next_checkpoint = time.monotonic() + config.checkpoint_period_s
        while self._steps < config.num_episodes and not self._stop.is_set():
            self._step_started = time.monotonic()
            self._learner.step()
            with self._step_lock:
                self._step_started = None
                if self._overtaken:
                    return
            self._steps += 1
            self._publisher.publish(self._version())
            now = time.monotonic()
            if evaluation.due(config, self._steps, now >= next_evaluation):
                self._evaluate()
                if self._evaluator.reached_stop_return():
                    logging.info("Held the return %g: training ends.", config.stop_return)
                    break
                next_evaluation = time.monotonic() + config.eval_period_s
            if config.max_seconds and self._logger.seconds() > config.max_seconds:
                logging.info("%g s have passed: training ends.", config.max_seconds)
                break
            if now >= next_checkpoint and not self._checkpoints.writing:
                self._check_numbers()
                self._save()
                next_checkpoint = time.monotonic() + config.checkpoint_period_s
        self._wind_up()

    def _wind_up(self) -> None:
        """Evaluates and saves the last policy."""
        self._check_numbers()
        try:
            self._evaluate_finally()
        finally:  # After it: a run that goes on later keeps the evaluation.
            self._save(last=True)

    def _evaluate_finally(self) -> None:
        if self._stop.is_set():
            return
        final = [self._evaluate() for _ in range(self._config.final_eval_episodes)]
        final = [value for value in final if value is not None]
        if final:
            logging.info(
                "Final return of the full-precision policy: %.1f +- %.1f over %d episodes.",
                np.mean(final), np.std(final), len(final),
            )
        # A run that goes on later does so until it holds the return again: these are of one policy.
        self._evaluator.stop_rule_from = len(self._evaluator.returns)

    def _evaluate(self) -> float | None:
        evaluator = self._evaluator
        episode = evaluator.play(stop=self._stop.is_set)
        if episode is None:
            return None
        self._logger.write(
            telemetry.EVALUATION_CSV,
            self._steps,
            learner_steps=self._steps,
            actor_steps=self._connection.status().transitions_inserted,
            episode_return=episode.episode_return,
            episode_length=episode.length,
            episode_s=episode.seconds,
            evaluation_s=evaluator.seconds,
        )
        with _survived():
            evaluator.save_if_best(self._steps)
        return episode.episode_return

    def _save(self, last: bool = False) -> None:
        started = time.perf_counter()
        with self._saving:
            # A resumed run would begin with its end; and one last checkpoint is enough.
            if self._announced or self._saved_last:
                return
            with contextlib.nullcontext() if last else _survived():
                self._evaluator.save_policy(self._steps)
            self._checkpoints.seconds += time.perf_counter() - started
            self._checkpoints.save(self._state, wait=last)
            self._saved_last = last

    def _state(self) -> snapshots.State:
        evaluator = self._evaluator
        return snapshots.State(
            log_bytes=self._logger.lengths(),  # First: no row in them says more than what follows.
            run_id=self._run_id,
            settings=dataclasses.asdict(self._config),
            learner_steps=self._steps,
            versions_skipped=self._versions_skipped,
            returns=list(evaluator.returns),
            best_return=evaluator.best_return if evaluator.returns else None,
            evaluation_s=evaluator.seconds,
            checkpoint_s=self._checkpoints.seconds,
            pushes=self._pushes_before + self._publisher.pushes,
            stop_rule_from=evaluator.stop_rule_from,
            push_snapshot_s=self._publisher.snapshot_s,
            push_insert_s=self._publisher.insert_s,
        )

    # --- On the main thread (`_check_numbers` on both) ---

    def _read_losses(self) -> dict[str, float]:
        fetches = self._fetches.read()
        if not fetches:
            return {}
        return {**self._algorithm.losses(fetches), **self._monitors.read()}

    def _check_numbers(self) -> dict[str, float]:
        """Returns the newest losses.

        Raises:
          errors.UserError: one of them is NaN or infinite.
        """
        values = self._read_losses()
        for name, value in values.items():
            if not math.isfinite(value):
                raise errors.UserError(
                    f"{name} is {value} after {self._steps} learner steps: {errors.DIVERGED} and "
                    "ends. Lower the learning rate, or check --vmin and --vmax."
                )
        return values

    def _log(self, status: connection.ServerStatus) -> None:
        try:
            values = self._check_numbers()
        except errors.UserError as error:
            self._failure = error
            self._stop.set()
            return
        now = time.monotonic()
        then, steps_then, inserted_then = self._last_row
        self._last_row = (now, self._steps, status.transitions_inserted)
        seconds = max(now - then, 1e-9)
        self._logger.write(
            telemetry.TRAIN_CSV,
            self._steps,
            learner_steps=self._steps,
            learner_steps_per_s=(self._steps - steps_then) / seconds,
            actor_steps=status.transitions_inserted,
            actor_steps_per_s=(status.transitions_inserted - inserted_then) / seconds,
            replay_size=status.replay_size,
            model_version=self._publisher.version,
            pushes=self._pushes_before + self._publisher.pushes,
            push_snapshot_s=self._publisher.snapshot_s,
            push_insert_s=self._publisher.insert_s,
            evaluation_s=self._evaluator.seconds,
            checkpoint_s=self._checkpoints.seconds,
            **values,
        )

    def _watch_data(self, now: float, status: connection.ServerStatus) -> None:
        """Pushes the first weights again while nobody acts, and gives up when no data comes."""
        _, steps, inserted = self._last_change
        if (steps, inserted) != (self._steps, status.transitions_inserted):
            self._last_change = (now, self._steps, status.transitions_inserted)
        # Only a step waits for data: evaluations and the last save may take longer than it may.
        started = None if self._finished.is_set() else self._step_started
        if started is not None and (
            now - max(self._last_change[0], started) > self._config.data_timeout
        ):
            self._starved = True
            self._failure = errors.UserError(
                f"No transition came for {self._config.data_timeout:g} s and learning waits for "
                "data: are actors running? (See --data_timeout.)"
            )
            self._stop.set()
        waited = now - self._publisher.last_push > _FIRST_PUSH_AGAIN_S
        nobody_acts = status.transitions_inserted == self._inserted_before
        # A learner that goes on from a checkpoint may learn before anybody acts, and pushes then.
        idle = now - self._last_change[0] > _FIRST_PUSH_AGAIN_S
        if waited and idle and nobody_acts and not status.pushes_waiting:
            # A broadcaster may have died with the newest weights, which nothing would follow:
            # the learner makes no step more before there are actors with weights.
            self._publisher.publish(self._version())

    def _end(self) -> int:
        failed = self._failure is not None
        self._announce(failed)
        self._logger.close()
        if not self._checkpoints.writing:  # Its call would be waited for.
            self._server.stop()
        if self._finished.is_set() or self._overtaken:  # Else an evaluation may be under way.
            self._evaluator.close()
        if failed:
            if isinstance(self._failure, errors.UserError):
                raise self._failure
            raise RuntimeError(
                f"Learning failed: {errors.summary(self._failure)}"
            ) from self._failure
        if self._interrupted:
            logging.info("Interrupted after %d learner steps.", self._steps)
            return cli.EXIT_INTERRUPTED
        logging.info("Done: %d learner steps; results in %s", self._steps, self._config.logpath)
        return 0

    def _announce(self, failed: bool) -> None:
        """Announces the end and waits until all have seen it, or a grace period is over."""
        with self._saving:
            self._announced = True
        state = connection.COMPLETED
        if failed or self._interrupted:
            state = connection.FAILED if failed else connection.INTERRUPTED
        try:
            self._connection.announce_shutdown(state)
            deadline = time.monotonic() + _SHUTDOWN_GRACE_S
            while time.monotonic() < deadline:
                # Actors and broadcaster.
                if self._connection.status().shutdown_seen > self._config.n_actors:
                    break
                time.sleep(0.05)
        except errors.LearnerGoneError as error:
            logging.warning("The end could not be announced: %s", error)


@contextlib.contextmanager
def _survived() -> Iterator[None]:
    """Goes on when a file cannot be written: there may be room for the next one."""
    try:
        yield
    except errors.WriteError as error:
        logging.warning("%s Training goes on.", error)
