"""The actor's life: set up, wait for the learner, act, survive its loss, end.

The parts have modules of their own: steps in the environments (`environment_loop`), writes of
transitions (`transition_writer`) and pulls of weights (`weight_client`). Actor's process only;
imports no TensorFlow and loads none, unless `--inference_mode tensorflow` asks for it.

When the learner goes away, the actor drops the episodes under way and everything else that belonged
to the lost server. It waits for a learner at the same address. Then it acts with the weights that
it has until there are newer ones. The transitions sent before stay in replay, as all are whole.
"""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import math
import os
import threading
import time
from typing import TypeVar

from absl import logging
import numpy as np

from actorQ.actor import environment_loop
from actorQ.actor import n_step_returns
from actorQ.actor import transition_writer
from actorQ.actor import weight_client
from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import run_logger
from actorQ.core import seeding
from actorQ.core import settings
from actorQ.core import telemetry
from actorQ.core import tracking
from actorQ.environments import base
from actorQ.environments import suites
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import inference
from actorQ.wire import card as card_lib
from actorQ.wire import connection
from actorQ.wire import replay

_HEALTH_PERIOD_S = 2.0  # Longest time without a question to the server.
_POLL_S = 0.05  # Time between two looks for the first weights, or for the learner's card.
_LAST_FLUSH_S = 2.0  # Longest wait for the last transitions to arrive.
_NOT_READY = "was not ready within {:.0f} s."

T = TypeVar("T")


class ActorProcess:
    """Everything that lives in an actor's process.

    Attributes:
      loop: The environments, and the number of steps done in them.
      infer: The backend that computes the policy.
      timings: Seconds of each phase so far.
    """

    def __init__(self, config: config_lib.RunConfig):
        """Builds environments, policy and client; nothing is sent yet.

        Raises:
          errors.UserError: The task or the log folder cannot be used.
        """
        self._config = config
        self._name = telemetry.actor_name(config.actor_id)
        self._logger = run_logger.RunLogger(
            config.logpath, self._name,
            telemetry.start_time(config.logpath, config.run_start_time, config.resume),
            again=bool(config.restarts),
        )
        self._logger.tracker = tracking.start(config, self._logger.folder)
        made: list[base.Environment] = []
        with base.closed_on_failure(made):
            for lane in range(config.envs_per_actor):
                made.append(suites.make_for(config, self._seed("environment", lane)))
            self._build(made)

    def _build(self, made: Sequence[base.Environment]) -> None:
        """Builds everything around the environments."""
        config, lanes, spec = self._config, range(len(made)), made[0].spec
        policy_module = algorithms.policy_module(algorithms.resolve(config, spec))
        explorations = [
            policy_module.make_exploration(
                config, config.actor_id, np.random.default_rng(self._seed("exploration", lane))
            )
            for lane in lanes
        ]
        architecture = architecture_lib.make(spec, config.model_sizes)
        self.infer = inference.make_backend(
            architecture, config.quantize, config.inference_mode, config.actor_device_placement,
            len(lanes),
        )
        self.timings = telemetry.no_seconds()
        self._connection = connection.Connection(config)
        again = config.resume or config.restarts
        self._weights = weight_client.WeightClient(
            self._connection, config, architecture, self.infer, self.timings,
            # A resumed learner shows the old weights of its checkpoint until it pushes.
            telemetry.last_version(self._logger.folder) if again else 0,
        )
        self.loop = environment_loop.EnvironmentLoop(
            made,
            explorations,
            self.infer,
            [n_step_returns.NStepAccumulator(config.n_step, config.discount) for _ in lanes],
            self.timings,
            policy_module.reward_limit(config),
        )
        self._writer: transition_writer.TransitionWriter | None = None
        self._losses = card_lib.Losses()
        self._layout = replay.Layout.of(spec)
        self._stop = threading.Event()
        self._announced_end = False
        self._look_at_steps = 0
        self._logged_episodes = 0
        if again:
            self._restore_counters()
        logging.info(
            "%s on %s: %s at %d bits, %d environment%s, exploration %.3g",
            self._name, config.taskstr, config.inference_mode, config.quantize, len(lanes),
            "s" if len(lanes) > 1 else "", explorations[0].scale,
        )
        logging.info(
            "Layers compute in: %s",
            ", ".join(f"{name} {kind}" for name, kind in self.infer.types.items()),
        )

    def _restore_counters(self) -> None:
        """Sets all counters to their last values in the logs."""
        phases, episodes = self._last_rows()
        self.loop.steps = int(max(row.get("actor_steps", 0) for row in (phases, episodes)))
        self._logged_episodes = int(episodes.get("episodes", 0))
        self._weights.pulls = int(phases.get("pulls", 0))
        self._weights.refused = int(phases.get("refused", 0))
        for phase in telemetry.TIMED:
            self.timings[phase] += phases.get(phase, 0.0)

    def _last_rows(self) -> list[dict[str, float]]:
        return [
            telemetry.last_row(os.path.join(self._logger.folder, name))
            for name in (telemetry.PHASES_CSV, telemetry.EPISODES_CSV)
        ]

    def _seed(self, purpose: str, lane: int) -> int:
        """Returns a seed of this actor. A restart gets another seed, so that no data repeats."""
        config = self._config
        role = f"actor {purpose}"
        if config.restarts:
            role += f" restart {config.restarts}"
        elif config.resume:  # The actor was started by hand: the launcher counts restarts.
            role += f" after {self._last_rows()[0].get('actor_steps', 0):.0f}"
        if lane:
            role += f" lane {lane}"
        return seeding.derive(config.seed, role, config.actor_id)

    def run(self) -> int:
        """Acts until the end of the run is announced; returns the exit code.

        Raises:
          errors.UserError: There is no learner, or it went away, or its weights do not fit, or
            another actor has the same id and logs.
        """
        cli.on_stop_signals(self.stop)
        folder, actor_id = self._logger.folder, self._config.actor_id
        taken = f"Another actor has --actor_id={actor_id} in {folder}: give this one another."
        try:
            connection.require_port(self._config)
            # Two actors of one id would write the same experience into replay, and the same logs.
            with files.locked(folder, taken), contextlib.closing(self._logger):
                with energy.track(bool(self._config.track_energy), folder):
                    while not self._connect_and_act():
                        pass
                return self._end()
        finally:
            self.loop.close()

    def _connect_and_act(self) -> bool:
        """Acts until the end of the run, or until the learner is lost.

        Returns:
          Whether the run has ended; False if the learner was lost.

        Raises:
          errors.UserError: There is no learner, or its weights do not fit.
        """
        try:
            if self.connect():
                self.act()
            return True
        except Exception as error:
            self._disconnect(self._why_lost(error))
            return False

    def _why_lost(self, error: Exception) -> errors.LearnerGoneError:
        """Returns the failure as a loss of the learner, or raises it if it is none.

        Raises:
          errors.UserError: The user has to mend something.
          RuntimeError: The learner is there, and acting failed.
        """
        lost: errors.UserError
        if isinstance(error, errors.UserError):
            if error.__cause__ is not None:  # The task's own code may have failed by a NaN.
                self.loop.require_finite()
            lost = error
        else:
            # Reverb's writers fail with various types when the server goes away.
            try:
                self._connection.status()
            except errors.LearnerGoneError as gone:
                lost = gone
            else:
                # Replay checks for NaN later. Torch's int8 products may fail first.
                self.loop.require_finite()
                raise RuntimeError(f"Acting failed: {error}") from error
        if not isinstance(lost, errors.LearnerGoneError) or isinstance(lost, errors.NoLearnerError):
            raise lost
        if not self._stop.is_set():
            self._losses.note(lost)
        return lost

    def _disconnect(self, reason: errors.LearnerGoneError) -> None:
        """Gives up the connection, and the episodes whose transitions it carried."""
        if not self._stop.is_set():  # After `stop`, it is this actor that leaves.
            logging.warning(
                "%s The episode under way is dropped; waiting up to %g s for the learner.",
                reason, self._config.connect_timeout,
            )
        self.loop.drop_episodes()
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        self._connection = connection.Connection(self._config)

    def stop(self) -> None:
        """Makes `connect` and `act` return soon; is called from another thread."""
        self._stop.set()

    def connect(self) -> bool:
        """Waits for the server and, if the actor has none yet, for weights.

        Returns:
          Whether the actor can act; False if the run ended, or `stop` was called, before.

        Raises:
          errors.UserError: Server or weights do not come in time, or the learner is another run's.
        """
        if not self._connection.wait_until_up(self._stop):
            return False
        self._weights.use(self._connection, self._stop.is_set)
        if self._weights.version < 0 and not self._first_weights():
            return False
        card = self._read_card()
        if card is None:
            return False
        self._weights.version_offset = card.version_offset
        # Reverb first asks for the table's signature, and waits for it without a limit.
        self._writer = self._connection.bounded(self._open_writer)
        return True

    def _open_writer(self) -> transition_writer.TransitionWriter:
        return transition_writer.TransitionWriter(
            self._connection.client,
            self._config.replay_table_name,
            self._layout,
            timeout_s=self._config.transfer_timeout,
            check=self._check_server,
            thinned_table=settings.OBSERVATION_TABLE if self._config.meter_period_s else "",
        )

    def _check_server(self) -> None:
        """Raises LearnerGoneError if the server does not answer, or if the actor has to stop."""
        if self._stop.is_set():
            raise errors.LearnerGoneError("The learner was slow to confirm transitions.")
        self._connection.status()

    def _read_card(self) -> card_lib.Card | None:
        """Waits for the learner's card; returns None if the actor was stopped before."""

        def look() -> card_lib.Card | None:
            card = self._losses.card(self._connection)
            # A learner shows its card before it sends weights. But the weights may be those of a
            # learner that is gone, and this one may be another run's that has just started.
            return card if card.starts or not (card.run_id or self._config.launch_id) else None

        return self._look_until(look, _NOT_READY)

    def _first_weights(self) -> bool:
        """Waits for the first model; returns False if the run ended before there was one."""

        def look() -> bool | None:
            self._announced_end = self._weights.update()
            return True if self._announced_end or self._weights.version >= 0 else None

        found = self._look_until(
            look, "no weights came within {:.0f} s: is parameter_broadcaster running?"
        )
        return bool(found) and not self._announced_end

    def _look_until(self, look: Callable[[], T | None], problem: str) -> T | None:
        """Calls `look` until it finds something; returns None if the actor was stopped before.

        A learner that has pushed no weights yet may be compiling kernels for its GPU, which takes
        minutes: it gets `data_timeout` for that. Its card is no sign that it is ready. A resumed
        learner shows the card first, so that actors that have weights can act.

        Args:
          look: Returns None while there is nothing.
          problem: Says what did not come, with a place for the seconds.

        Raises:
          errors.NoLearnerError: There is nothing within `connect_timeout` after the learner was
            ready, or after the call if it was ready before.
        """
        began = ready_since = time.monotonic()
        while not self._stop.is_set():
            found = look()
            if found is not None:
                return found
            status, now = self._connection.status(), time.monotonic()
            ready = status.pushes > 0 or status.models_published > 0
            if not ready and now - began < self._config.data_timeout:
                ready_since = now
            if now - ready_since > self._config.connect_timeout:
                said = (problem if ready else _NOT_READY).format(now - began)
                raise errors.NoLearnerError(
                    f"The learner at {self._connection.address} answers, but {said}"
                )
            time.sleep(_POLL_S)
        return None

    def act(self, seconds: float = math.inf) -> None:
        """Acts, after `connect`, until the end of the run is announced or `stop` is called.

        Args:
          seconds: Longest time; the next call continues from there.
        """
        if self._writer is None:
            raise RuntimeError("There is no connection: call `connect` first.")
        config, loop, weights_client = self._config, self.loop, self._weights
        clock, write, period = time.perf_counter, self._writer.write, config.actor_update_period
        next_health = clock() + _HEALTH_PERIOD_S
        next_log = clock() + config.log_period_s
        until = clock() + seconds
        while True:
            if loop.steps >= self._look_at_steps:
                weights_client.ask()
                self._look_at_steps = loop.steps - loop.steps % period + period
            if weights_client.ready:
                self._announced_end = weights_client.collect()
                next_health = clock() + _HEALTH_PERIOD_S
            now = clock()
            if now > next_health:
                # The update period may be long: the actor asks whether the learner lives.
                self._announced_end = self._connection.status().shutdown
                next_health = now + _HEALTH_PERIOD_S
            if now > next_log:
                self._log_phases()
                next_log = now + config.log_period_s
            if self._announced_end or self._stop.is_set() or now > until:
                return
            for episode in loop.turn(write):
                self._log_episode(episode)

    def _log_episode(self, episode: environment_loop.Episode) -> None:
        self._logged_episodes += 1
        self._logger.write(
            telemetry.EPISODES_CSV,
            self.loop.steps,
            actor_steps=self.loop.steps,
            episodes=self._logged_episodes,
            episode_return=episode.episode_return,
            episode_length=episode.length,
            model_version=self._weights.version,
            staleness_steps=self._weights.staleness,
        )

    def _log_phases(self) -> None:
        self._losses.clear()
        self._logger.write(
            telemetry.PHASES_CSV,
            self.loop.steps,
            actor_steps=self.loop.steps,
            pulls=self._weights.pulls,
            refused=self._weights.refused,
            model_version=self._weights.version,
            staleness_steps=self._weights.mean_staleness(),
            **self.timings,
        )

    def _end(self) -> int:
        if self.loop.steps and self._weights.version >= 0:
            self._log_phases()
            try:
                if self._writer is not None:
                    self._writer.flush(_LAST_FLUSH_S)
            except Exception as error:  # The server may have ended first: there is no more to do.
                logging.info("The last transitions were not sent: %s", errors.summary(error))
        self._logger.close()
        if not self._announced_end:
            return cli.interrupted_code()
        self._connection.acknowledge_shutdown()
        logging.info("The learner announced the end of the run after %d steps.", self.loop.steps)
        return 0
