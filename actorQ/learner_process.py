"""The learner's life: set up, learn, evaluate, publish, log, checkpoint, announce the end.

The main thread supervises (signals, logs, the server). A second thread learns, since a learner
step may wait inside TensorFlow for data for as long as no actor sends any, and Python handles
signals on the main thread only. Learner's process only; imports no torch.
"""

import math
import os
import threading
import time
from typing import Any

from absl import logging
import numpy as np
import tensorflow as tf

from actorQ import algorithms
from actorQ import architecture as architecture_lib
from actorQ import checkpoints
from actorQ import cli
from actorQ import config as config_lib
from actorQ import conversion
from actorQ import energy
from actorQ import environments
from actorQ import errors
from actorQ import evaluation
from actorQ import inference
from actorQ import learning
from actorQ import provenance
from actorQ import publishing
from actorQ import replay
from actorQ import seeding
from actorQ import telemetry
from actorQ import wire

_FIRST_PUSH_AGAIN_S = 5.0  # While nobody acts, the first weights are pushed again so often.
_LAST_STEP_S = 5.0  # How long the step under way gets to end after Ctrl-C.
_SHUTDOWN_GRACE_S = 5.0  # How long actors and broadcaster get to see the announced end.


class LearnerProcess:
    """Everything that lives in the learner's process."""

    def __init__(self, config: config_lib.RunConfig):
        """Builds environment, networks, server and learner.

        Raises:
          errors.UserError: task, algorithm, port or log folder cannot be used.
        """
        self._config = config
        self._logger = telemetry.RunLogger(
            config.logpath, telemetry.LEARNER, config.run_start_time
        )
        self._environment = environments.make(
            config.taskstr,
            seeding.derive(config.seed, "evaluation environment"),
            config.max_episode_steps,
        )
        spec = self._environment.spec
        algorithm = algorithms.resolve(config, spec)
        self._algorithm = algorithms.learner_module(algorithm)
        self._greedy = algorithms.policy_module(algorithm).greedy
        self._architecture = architecture_lib.make(spec, config.model_sizes)
        self._spec = spec
        _set_up_tensorflow(config)
        config.save(
            config.logpath,
            algorithm=algorithm,
            machine=provenance.machine(),
            git_commit=provenance.git_commit(),
            learner_device=_device_name(),
        )

        layout = replay.Layout.of(spec)
        tables = wire.make_tables(config, layout, self._algorithm.PRIORITIZED)
        self._server = wire.start_server(config, tables)
        address = f"localhost:{self._server.port}"
        self._connection = wire.Connection(config, address)
        address_path = os.path.join(config.logpath, telemetry.ADDRESS_FILENAME)
        with open(address_path, "w", encoding="utf-8") as file:
            file.write(address)
        logging.info(
            "%s on %s: server at port %d, learner on %s, logs in %s",
            algorithm, config.taskstr, self._server.port, _device_name(), config.logpath,
        )

        self._networks = self._algorithm.make_networks(config, self._architecture)
        self._act_tensor = self._networks.policy.compile_for(1)
        # Where actors have the kernels, evaluation takes them, too, in fp32: at 3x2048 an episode
        # costs the learner a third of what TensorFlow takes for one observation at a time.
        native = config.inference_mode == "native"
        self._kernels = inference.make_backend(self._architecture, 32, "native") if native else None
        self._monitors = learning.Monitors()
        self._fetches = learning.LastFetches()
        self._learner = self._algorithm.make_learner(
            self._networks,
            config,
            learning.make_dataset(config, address, layout),
            self._connection.client,
            self._fetches,
            self._monitors,
        )
        self._publisher = publishing.VariablePublisher(
            self._networks.policy.named_variables(),
            self._connection,
            config.broadcaster_table_name,
            config.push_period_s,
            config.push_precision,
            config.push_share,
        )
        self._tf_checkpoints = tf.train.CheckpointManager(
            tf.train.Checkpoint(**self._algorithm.checkpointed(self._learner, self._networks)),
            os.path.join(config.logpath, telemetry.CHECKPOINT_FOLDER, telemetry.LEARNER),
            max_to_keep=1,
        )

        self._stop = threading.Event()
        self._interrupted = False
        self._finished = threading.Event()
        self._failure: BaseException | None = None
        self._steps = 0
        self._evaluation_s = 0.0
        self._returns: list[float] = []
        self._best_return = -math.inf
        self._checkpoint_s = 0.0
        self._saving = threading.Lock()
        self._last_change = (time.monotonic(), 0, 0)
        self._last_row = (time.monotonic(), 0, 0)

    def run(self) -> int:
        """Trains to the end; returns the process's exit code."""
        cli.on_stop_signals(self._interrupt)
        with energy.track(bool(self._config.track_energy), self._logger.folder):
            threading.Thread(target=self._learn_guarded, daemon=True, name="learning").start()
            try:
                self._supervise()
            except Exception as error:  # A full disk, say: the end must still be announced.
                self._failure = self._failure or error
                self._stop.set()
        return self._end()

    def _supervise(self) -> None:
        while not self._finished.wait(self._config.log_period_s):
            if self._stop.is_set():
                # A step may be waiting for data that no actor sends any more.
                if not self._finished.wait(_LAST_STEP_S) and self._failure is None:
                    self._save()
                return
            self._log()
        self._log()

    # --- On the learning thread ---

    def _learn_guarded(self) -> None:
        try:
            self._learn()
        except BaseException as error:  # Reported by the main thread.
            self._failure = error
        self._finished.set()

    def _learn(self) -> None:
        config = self._config
        self._publisher.publish(0, wait=True)
        next_evaluation = time.monotonic() + config.eval_period_s
        next_checkpoint = time.monotonic() + config.checkpoint_period_s
        while self._steps < config.num_episodes and not self._stop.is_set():
            self._learner.step()
            self._steps += 1
            self._publisher.publish(self._steps)
            now = time.monotonic()
            if self._evaluation_due(now >= next_evaluation):
                self._evaluate()
                if self._reached_stop_return():
                    logging.info("Held the return %g: training ends.", config.stop_return)
                    break
                next_evaluation = time.monotonic() + config.eval_period_s
            if config.max_seconds and time.time() - self._logger.start_time > config.max_seconds:
                logging.info("%g s have passed: training ends.", config.max_seconds)
                break
            if now >= next_checkpoint:
                self._check_numbers()
                self._save()
                next_checkpoint = time.monotonic() + config.checkpoint_period_s
        self._check_numbers()
        self._save()
        if not self._stop.is_set():
            final = [self._evaluate() for _ in range(config.final_eval_episodes)]
            final = [value for value in final if value is not None]
            if final:
                logging.info(
                    "Final return of the full-precision policy: %.1f +- %.1f over %d episodes.",
                    np.mean(final), np.std(final), len(final),
                )

    def _act(self, observation: np.ndarray) -> Any:
        if self._kernels is not None:
            return self._greedy(self._kernels(observation[None])[0])
        return self._greedy(self._act_tensor(observation[None])[0].numpy())

    def _evaluate(self) -> float | None:
        started = time.perf_counter()
        if self._kernels is not None:
            inference.load_weights(self._kernels, self._policy_weights(), 32)
        episode = evaluation.play(self._environment, self._act, stop=self._stop.is_set)
        if episode is None:
            return None
        self._evaluation_s += time.perf_counter() - started
        self._returns.append(episode.episode_return)
        self._logger.write(
            telemetry.EVALUATION_CSV,
            self._steps,
            learner_steps=self._steps,
            actor_steps=self._connection.status().transitions_inserted,
            episode_return=episode.episode_return,
            episode_length=episode.length,
            episode_s=episode.seconds,
            evaluation_s=self._evaluation_s,
        )
        if episode.episode_return > self._best_return:
            self._best_return = episode.episode_return
            self._save_policy(telemetry.BEST_FOLDER)
        return episode.episode_return

    def _evaluation_due(self, time_is_up: bool) -> bool:
        config = self._config
        if config.eval_period_steps:
            return self._steps % config.eval_period_steps == 0
        return bool(config.eval_period_s) and time_is_up

    def _reached_stop_return(self) -> bool:
        config = self._config
        return config.stop_return is not None and (
            evaluation.held_since(
                self._returns, config.stop_return, config.stop_window, config.stop_smoothing
            )
            is not None
        )

    def _save(self) -> None:
        started = time.perf_counter()
        with self._saving:
            self._save_policy()
            self._tf_checkpoints.save(self._steps)
        self._checkpoint_s += time.perf_counter() - started

    def _policy_weights(self) -> dict[str, np.ndarray]:
        return conversion.from_sonnet(
            {k: v.numpy() for k, v in self._networks.policy.named_variables().items()}
        )

    def _save_policy(self, subfolder: str = "") -> None:
        weights = self._policy_weights()
        if not all(np.all(np.isfinite(array)) for array in weights.values()):
            raise errors.UserError(
                f"The policy holds NaN or infinity after {self._steps} learner steps: "
                f"{errors.DIVERGED} and ends; the checkpoint before stays."
            )
        spec = self._spec
        facts = {
            "taskstr": self._config.taskstr,
            "max_episode_steps": self._config.max_episode_steps,
            "learner_steps": self._steps,
            "action_low": None if spec.discrete else spec.action_low.tolist(),
            "action_high": None if spec.discrete else spec.action_high.tolist(),
        }
        folder = os.path.join(self._config.logpath, telemetry.CHECKPOINT_FOLDER, subfolder)
        checkpoints.save_policy(
            folder, checkpoints.PolicyCheckpoint(self._architecture, weights, facts)
        )

    # --- On the main thread (`_check_numbers` on both) ---

    def _interrupt(self) -> None:
        self._interrupted = True
        self._stop.set()

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

    def _log(self) -> None:
        try:
            values = self._check_numbers()
        except errors.UserError as error:
            self._failure = error
            self._stop.set()
            return
        status = self._connection.status()
        now = time.monotonic()
        self._watch_data(now, status)
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
            pushes=self._publisher.pushes,
            push_snapshot_s=self._publisher.snapshot_s,
            push_insert_s=self._publisher.insert_s,
            evaluation_s=self._evaluation_s,
            checkpoint_s=self._checkpoint_s,
            **values,
        )

    def _watch_data(self, now: float, status: wire.ServerStatus) -> None:
        """Pushes the first weights again while nobody acts, and gives up when no data comes."""
        changed, steps, inserted = self._last_change
        if (steps, inserted) != (self._steps, status.transitions_inserted):
            self._last_change = (now, self._steps, status.transitions_inserted)
        elif now - changed > self._config.data_timeout and not self._finished.is_set():
            self._failure = errors.UserError(
                f"No transition came for {self._config.data_timeout:g} s and learning waits for "
                "data: are actors running? (See --data_timeout.)"
            )
            self._stop.set()
        waited = now - self._publisher.last_push > _FIRST_PUSH_AGAIN_S
        if waited and not status.transitions_inserted and not status.pushes_waiting:
            # A broadcaster may have died with the first weights, which nothing would follow:
            # the learner makes no step before there are actors with weights.
            self._publisher.publish(self._steps)

    def _end(self) -> int:
        failed = self._failure is not None
        self._announce(failed)
        self._logger.close()
        self._server.stop()
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
        state = wire.COMPLETED
        if failed or self._interrupted:
            state = wire.FAILED if failed else wire.INTERRUPTED
        try:
            self._connection.publish(self._config.shutdown_table_name, np.int32(state))
            deadline = time.monotonic() + _SHUTDOWN_GRACE_S
            while time.monotonic() < deadline:
                # Actors and broadcaster.
                if self._connection.status().shutdown_seen > self._config.n_actors:
                    break
                time.sleep(0.05)
        except errors.LearnerGoneError as error:
            logging.warning("The end could not be announced: %s", error)


def _set_up_tensorflow(config: config_lib.RunConfig) -> None:
    """Chooses device, threads and seed; before any tensor exists."""
    gpus = tf.config.list_physical_devices("GPU")
    if config.learner_device_placement == "GPU" and gpus:
        for gpu in gpus:
            # Leave memory to others, actors on the GPU among them.
            tf.config.experimental.set_memory_growth(gpu, True)
    else:
        if config.learner_device_placement == "GPU":
            logging.warning("TensorFlow sees no GPU: the learner goes on with the CPU.")
        tf.config.set_visible_devices([], "GPU")
    threads = config.learner_threads or max(1, provenance.usable_cores() - config.n_actors)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))
    tf.random.set_seed(seeding.derive(config.seed, "learner"))


def _device_name() -> str:
    return "GPU" if tf.config.get_visible_devices("GPU") else "CPU"
