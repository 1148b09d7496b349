"""The learner's life on the main thread: set up, resume, supervise, announce the end.

A second thread learns (`training`): a learner step may wait inside TensorFlow for as long as no
actor sends data, and Python handles signals on the main thread only. Meanwhile the main thread
watches over it (`supervision`). Both share one small state (`progress`). Learner's process only;
imports no torch.

With --resume a run goes on from its newest snapshot (`core.snapshots`):

- Networks, targets, optimizers, counters, evaluation history and all tables are restored.
- Rows that were logged after the snapshot are cut off.
- Versions of weights continue above the highest that ever left the learner: version = learner
  steps + versions lost to crashes.
- The clock of the logs counts the time in which the run ran, lost steps included, but not the time
  between two launches.
"""

import contextlib
import math
import os
import secrets
import threading
import time
from typing import Any

from absl import logging

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import ports
from actorQ.core import presets
from actorQ.core import provenance
from actorQ.core import resuming
from actorQ.core import run_logger
from actorQ.core import seeding
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.core import tracking
from actorQ.environments import base
from actorQ.environments import suites
from actorQ.learner import checkpoints
from actorQ.learner import compiled_step
from actorQ.learner import dataset
from actorQ.learner import device
from actorQ.learner import evaluator as evaluator_lib
from actorQ.learner import evaluator_process
from actorQ.learner import policy_average
from actorQ.learner import progress
from actorQ.learner import publisher
from actorQ.learner import range_finder
from actorQ.learner import return_ranges
from actorQ.learner import supervision
from actorQ.learner import training
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.wire import connection
from actorQ.wire import loopback
from actorQ.wire import replay
from actorQ.wire import server

_SHUTDOWN_GRACE_S = 5.0  # Longest wait for actors and broadcaster to see the announced end.


class LearnerProcess:
    """Everything that lives in the learner's process."""

    def __init__(self, config: config_lib.RunConfig):
        """Builds environment, networks, server and learner.

        Raises:
          errors.UserError: The task, algorithm, port or log folder cannot be used.
        """
        self._config = config
        self._interrupted = False
        self._range_finder: range_finder.RangeFinder | None = None
        self._store = snapshots.Store(config.logpath)
        self._resumed = self._store.newest() if config.resume else None
        self._logger = self._open_logs()
        # A resumed learner's evaluations start from other states than those that were seen.
        steps = 0 if self._resumed is None else self._resumed.state.learner_steps
        environment = suites.make_for(
            config, seeding.derive(config.seed, "evaluation environment", steps)
        )
        with base.closed_on_failure([environment]):
            self._build(environment)

    def _build(self, environment: base.Environment) -> None:
        """Builds everything around the environment for evaluations."""
        config, resumed = self._config, self._resumed
        if resumed is None:
            suites.require_limit(config, environment)
        algorithm = algorithms.resolve(config, environment.spec)
        self._algorithm = algorithms.learner_module(algorithm)
        architecture = architecture_lib.make(environment.spec, config.model_sizes)
        device.set_up_tensorflow(config)
        self._store.prepare(fresh=resumed is None)
        self._take_up_counts()
        self._save_config(algorithm, environment)

        layout = replay.Layout.of(environment.spec)
        address = self._start_server(layout)
        logging.info(
            "%s on %s: server at port %d, learner on %s, logs in %s",
            algorithm, config.taskstr, self._server.port, device.name(), config.logpath,
        )

        networks = self._algorithm.make_networks(
            config, architecture, device.choose_products(config)
        )
        evaluator = evaluator_lib.Evaluator(
            config, environment, architecture, policy_average.acting(networks),
            algorithms.policy_module(algorithm).greedy, self._run_id,
            self._start_evaluator(),
        )
        task = return_ranges.Task(
            environment.step_limit, environment.spec.reward_bounds
        )
        self._parts = self._make_parts(networks, evaluator, address, layout, task)
        if resumed is not None:
            self._restore(resumed)
        self._training = training.Training(
            config, self._run_id, self._parts, self._progress,
            self._publish_card if resumed is None else None,
        )
        self._supervisor = supervision.Supervisor(
            config, self._parts, self._training, self._progress
        )

    def _start_evaluator(self) -> evaluator_process.EvaluatorProcess | None:
        """Starts the process that plays evaluation episodes, if there is to be one."""
        beside = evaluator_process.wanted(self._config)
        logging.info(
            "Evaluation: %s (--evaluator_process).",
            "in a process of its own" if beside else "in the learner's process",
        )
        if not beside:
            return None
        return evaluator_process.EvaluatorProcess(self._config, self._progress.steps)

    def _open_logs(self) -> run_logger.RunLogger:
        """Opens the logs of a folder that is new or this run's.

        Raises:
          errors.UserError: The folder holds another run, or cannot be written.
        """
        config, resumed = self._config, self._resumed
        if resumed is None and not resuming.recorded(config):
            self._require_new_folder()
        start_time = telemetry.start_time(config.logpath, config.run_start_time, config.resume)
        if resumed is not None:
            resuming.check_resumed(config, resumed.state.settings)
            if changes := str(resuming.changes(config, resumed.state.learner_steps)):
                logging.info("%s", changes)
        logger = run_logger.RunLogger(
            config.logpath, telemetry.LEARNER, start_time,
            None if resumed is None else resumed.state.learner_steps + 1,
            again=bool(config.restarts),
        )
        logger.tracker = tracking.start(config, logger.folder)
        return logger

    def _require_new_folder(self) -> None:
        """Refuses the folder of another run, whose checkpoint and logs would be lost."""
        folder = self._config.logpath
        trained = os.path.exists(os.path.join(folder, telemetry.LEARNER, telemetry.TRAIN_CSV))
        if trained or self._store.newest_name():
            raise errors.UserError(
                f"There is a run in {folder}: add --resume to go on with it, or choose another "
                "--logpath."
            )

    def _take_up_counts(self) -> None:
        """Sets run id, steps and versions to those of the resumed run, or of a new one."""
        self._version_record = snapshots.VersionRecord(self._store)
        self._version_record.note_start()
        if self._resumed is None:
            self._run_id = secrets.randbits(62)
            self._progress = progress.Progress()
            return
        state = self._resumed.state
        self._run_id = state.run_id
        # The first version must be new to everybody. A crash of the machine may have lost the end
        # of the record. A process whose log kept those versions would wait for newer ones.
        seen = max(self._version_record.highest, telemetry.newest_version(self._config.logpath))
        self._progress = progress.Progress(
            state.learner_steps, max(state.versions_skipped, seen + 1 - state.learner_steps)
        )

    def _save_config(self, algorithm: str, environment: base.Environment) -> None:
        # A learner that the same launcher starts again may find a full disk: it goes on.
        recorded = resuming.recorded(self._config)
        with training.surviving_write_errors() if recorded else contextlib.nullcontext():
            resuming.save_config(
                self._config,
                None if self._resumed is None else self._progress.steps,
                algorithm=algorithm,
                notes=self._notes(algorithm, environment),
                settings_from=self._settings_from(),
                machine=provenance.machine(),
                git_commit=provenance.git_commit(),
                learner_device=device.name(),
                evaluation_process=evaluator_process.wanted(self._config),
            )

    def _notes(self, algorithm: str, environment: base.Environment) -> list[str]:
        """Returns sentences for the terminal: what was made of the task, who reaches the server."""
        config = self._config
        limit = algorithms.policy_module(algorithm).reward_limit(config)
        notes = list(environment.notes)
        if math.isfinite(limit):
            notes.append(f"Each reward is clipped to +-{limit:g} (--max_abs_reward).")
        server_note = loopback.note(config.port, config.listen == "all")
        return [
            *(f"{config.taskstr}: {note}" for note in notes),
            *([server_note] if server_note else []),
        ]

    def _settings_from(self) -> dict[str, list[str]]:
        """Returns which settings came from where when the run began."""
        if self._resumed is not None:
            found = config_lib.load_record(self._config.logpath).get("settings_from")
            if found is not None:  # Older runs lack it.
                return dict(found)
        return presets.origins(self._config)

    def _start_server(self, layout: replay.Layout) -> str:
        """Starts the server of all tables, and writes its address to the run folder.

        Returns:
          The address, HOST:PORT.
        """
        config = self._config
        self._port_claim = ports.claim(config.port) if config.port else None
        tables = server.make_tables(config, layout, self._algorithm.PRIORITIZED)
        self._server = server.start_server(
            config, tables, checkpoints.checkpointer(self._store, self._resumed)
        )
        address = f"localhost:{self._server.port}"
        # The server is this process's own, so that silence means a busy server: it gives no answer
        # while it writes a checkpoint of many transitions.
        patience_s = math.ceil(config.transfer_timeout)
        self._connection = connection.Connection(config, address, patience_s)
        if self._resumed is not None:
            # An end that was announced before is not this start's. The weights of the checkpoint
            # are older than those that others may have seen.
            for name in (
                config.shutdown_table_name, config.broadcaster_table_name, config.model_table_name
            ):
                self._connection.client.reset(name)
            self._publish_card()
        files.write_if_new(os.path.join(config.logpath, telemetry.ADDRESS_FILENAME), address)
        return address

    def _publish_card(self) -> None:
        """Shows clients whose learner this is, and how versions follow from batches sampled."""
        sampled = self._connection.status().transitions_sampled // self._config.batch_size
        self._connection.publish_card(
            self._run_id, self._version_record.starts, self._progress.version - sampled
        )

    def _make_parts(
        self,
        networks: Any,
        evaluator: evaluator_lib.Evaluator,
        address: str,
        layout: replay.Layout,
        task: return_ranges.Task,
    ) -> training.Parts:
        """Makes the algorithm's learner, and the objects that publish and save its weights."""
        config, algorithm = self._config, self._algorithm
        monitors, fetches = dataset.Monitors(), dataset.LastFetches()
        batches = dataset.make_dataset(config, address, layout, f"/{device.name()}:0")
        seen = telemetry.last_row(os.path.join(self._logger.folder, telemetry.TRAIN_CSV))
        learner = algorithm.make_learner(
            networks,
            config,
            batches.watched(monitors.rewards_watcher(config.discount, seen)),
            self._connection.client,
            fetches,
            monitors,
        )

        jit_compile = device.compiles(config)
        logging.info(
            "The learner's step is %s, %d to a call.",
            "one program of XLA" if jit_compile else "TensorFlow's graph",
            config.learner_steps_per_call,
        )
        if jit_compile or config.learner_steps_per_call > 1:
            compiled_step.CompiledStep(
                learner, config.learner_steps_per_call, jit_compile,
                must_compile=config.learner_compile == "on",
            )

        found_range = algorithm.make_range(config, networks, learner, monitors)
        if found_range is not None:
            self._range_finder = range_finder.RangeFinder(
                learner, found_range, config, task, self._note_range
            )

        average = None
        if networks.average_policy is not None:
            average = policy_average.PolicyAverage(
                networks.policy, networks.average_policy, config.average_policy_steps
            )

        def read_losses() -> dict[str, float]:
            newest = fetches.read()
            return {**algorithm.losses(newest), **monitors.read()} if newest else {}

        return training.Parts(
            learner=self._range_finder or learner,
            average=average,
            read_losses=read_losses,
            publisher=publisher.VariablePublisher(
                policy_average.acting(networks).named_variables(),
                self._connection,
                config.broadcaster_table_name,
                config.push_period_s,
                config.push_precision,
                config.push_share,
                self._version_record.note,
            ),
            evaluator=evaluator,
            checkpoints=checkpoints.Checkpoints(
                self._store, self._connection.client, algorithm.checkpointed(learner, networks)
            ),
            logger=self._logger,
            connection=self._connection,
        )

    def _note_range(self, found: dict[str, float]) -> None:
        """Adds the range that the learner has found to config.json."""
        try:
            resuming.note_facts(self._config, found=found)
        except errors.UserError as error:  # A disk may be full, or away.
            logging.warning("%s Training goes on.", error)

    def _restore(self, resumed: snapshots.Snapshot) -> None:
        """Restores networks, counters and logs from the snapshot."""
        self._parts.checkpoints.restore(resumed)
        self._parts.evaluator.restore(resumed.state)
        self._parts.publisher.restore(resumed.state)
        if self._range_finder is not None:
            self._range_finder.resume()
        snapshots.cut_logs(self._logger.folder, resumed.state)
        self._logger.lengths()  # The logger remembers them, should the folder go away.
        logging.info("Resumed after %d learner steps.", self._progress.steps)

    def run(self) -> int:
        """Trains to the end; returns the process's exit code."""
        cli.on_stop_signals(self._interrupt)
        threading.Thread(target=self._training.run, daemon=True, name="learning").start()
        # No data can come before the first weights are pushed, so this wait delays nothing.
        self._progress.ready.wait()
        with energy.track(bool(self._config.track_energy), self._logger.folder):
            try:
                self._supervisor.run()
            except Exception as error:  # A disk may be full, and the end must still be announced.
                self._progress.fail(self._progress.failure or error)
        return self._end()

    def _interrupt(self) -> None:
        """Asks for the end; signals are handled on a thread of their own."""
        self._interrupted = True
        self._progress.stop.set()

    def _end(self) -> int:
        """Announces the end and closes everything; returns the exit code.

        Raises:
          errors.UserError: Training has failed, for a reason that the user can mend.
          RuntimeError: Training has failed in another way.
        """
        failure = self._progress.failure
        self._announce(failed=failure is not None)
        self._logger.close()
        if not self._parts.checkpoints.writing:  # Otherwise `stop` waits for the checkpoint.
            self._server.stop()
        if self._progress.finished.is_set() or self._progress.overtaken:
            self._parts.evaluator.close()  # Otherwise an evaluation may be under way.
        if isinstance(failure, errors.UserError):
            raise failure
        if failure is not None:
            raise RuntimeError(f"Learning failed: {errors.summary(failure)}") from failure
        if self._interrupted:
            logging.info("Interrupted after %d learner steps.", self._progress.steps)
            return cli.interrupted_code()
        logging.info(
            "Done: %d learner steps; results in %s", self._progress.steps, self._config.logpath
        )
        return 0

    def _announce(self, failed: bool) -> None:
        """Announces the end and waits until all have seen it, or a grace period is over."""
        self._training.save_no_more()
        state = connection.COMPLETED
        if failed or self._interrupted:
            state = connection.FAILED if failed else connection.INTERRUPTED
        others = self._config.n_actors + 1  # The actors and the broadcaster.
        try:
            self._connection.announce_shutdown(state)
            deadline = time.monotonic() + _SHUTDOWN_GRACE_S
            while time.monotonic() < deadline:
                if self._connection.status().shutdown_seen >= others:
                    break
                time.sleep(0.05)
        except errors.LearnerGoneError as error:
            logging.warning("The end could not be announced: %s", error)
