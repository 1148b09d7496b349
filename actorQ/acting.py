"""The actor: acts with quantized weights, writes transitions, pulls newer weights.

Actor's process only. TensorFlow is in the process (Reverb loads it) but not on the actor's step,
unless `--inference_mode tensorflow` asks for it.
"""

import threading
import time

from absl import logging
import numpy as np

from actorQ import algorithms
from actorQ import architecture as architecture_lib
from actorQ import cli
from actorQ import config as config_lib
from actorQ import energy
from actorQ import environments
from actorQ import errors
from actorQ import inference
from actorQ import replay
from actorQ import seeding
from actorQ import telemetry
from actorQ import weights
from actorQ import wire

_HEALTH_PERIOD_S = 2.0  # Longest time without asking the server, however long the period.
_FIRST_WEIGHTS_POLL_S = 0.05


class ActorProcess:
    """Everything that lives in an actor's process."""

    def __init__(self, config: config_lib.RunConfig):
        """Builds environment, policy and client; nothing is sent yet.

        Raises:
          errors.UserError: the task, or the log folder, cannot be used.
        """
        self._config = config
        actor_id = config.actor_id
        self._name = telemetry.actor_name(actor_id)
        self._logger = telemetry.RunLogger(config.logpath, self._name, config.run_start_time)
        self._environment = environments.make(
            config.taskstr,
            self._seed("environment"),
            config.max_episode_steps,
        )
        spec = self._environment.spec
        algorithm = algorithms.resolve(config, spec)
        policy_module = algorithms.policy_module(algorithm)
        self._explore = policy_module.make_exploration(
            config,
            actor_id,
            np.random.default_rng(self._seed("exploration")),
        )
        self._reward_limit = policy_module.reward_limit(config)
        architecture = architecture_lib.make(spec, config.model_sizes)
        self._infer = inference.make_backend(
            architecture, config.quantize, config.inference_mode, config.actor_device_placement
        )
        self._timings = telemetry.Timings()
        self._connection = wire.Connection(config)
        self._weights = weights.WeightClient(
            self._connection, config, architecture, self._infer, self._timings
        )
        self._layout = replay.Layout.of(spec)
        self._accumulator = replay.NStepAccumulator(config.n_step, config.discount)
        self._stop = threading.Event()
        self._announced_end = False
        self._steps = 0
        logging.info(
            "%s on %s: %s at %d bits, exploration %.3g",
            self._name, config.taskstr, config.inference_mode, config.quantize,
            self._explore.scale,
        )
        logging.info(
            "Layers compute in: %s",
            ", ".join(f"{name} {kind}" for name, kind in self._infer.types.items()),
        )

    def _seed(self, purpose: str) -> int:
        """Returns this actor's seed; after a restart another one, so that no data repeats."""
        config = self._config
        role = f"actor {purpose}" + (f" restart {config.restarts}" if config.restarts else "")
        return seeding.derive(config.seed, role, config.actor_id)

    def run(self) -> int:
        """Acts until the end of the run is announced; returns the exit code.

        Raises:
          errors.UserError: there is no learner, it went away, or its weights do not fit.
        """
        cli.on_stop_signals(self._stop.set)
        wire.require_port(self._config)
        if not self._connection.wait_until_up(self._stop) or not self._first_weights():
            return self._end()
        # Kept until the process ends: its destructor would wait for a server that is gone.
        self._writer = writer = replay.TransitionWriter(
            self._connection.client, self._config.replay_table_name, self._layout
        )
        with energy.track(bool(self._config.track_energy), self._logger.folder):
            try:
                self._act(writer)
            except errors.UserError:
                raise
            except Exception as error:
                # Reverb's writers fail with various types when the server goes away.
                self._connection.status()
                raise RuntimeError(f"Acting failed: {error}") from error
        return self._end()

    def _first_weights(self) -> bool:
        """Waits for the first model; returns False if the run ended before there was one."""
        deadline = time.monotonic() + self._config.connect_timeout
        while not self._stop.is_set():
            self._announced_end = self._weights.update()
            if self._announced_end:
                return False
            if self._weights.version >= 0:
                return True
            if time.monotonic() > deadline:
                raise errors.LearnerGoneError(
                    f"The learner at {self._connection.address} answers, but no weights came "
                    f"within {self._config.connect_timeout:g} s: is parameter_broadcaster running?"
                )
            time.sleep(_FIRST_WEIGHTS_POLL_S)
        return False

    def _act(self, writer: replay.TransitionWriter) -> None:
        config, timings, reward_limit = self._config, self._timings, self._reward_limit
        clock = time.perf_counter
        episodes = 0
        next_look = clock() + _HEALTH_PERIOD_S
        next_log = clock() + config.log_period_s
        while True:
            started = clock()
            timestep = self._environment.reset()
            timings.add("environment_s", clock() - started)
            observation = timestep.observation
            self._accumulator.first(observation)
            episode_return, length = 0.0, 0
            while not timestep.last():
                now = clock()
                if self._steps % config.actor_update_period == 0:
                    self._announced_end = self._weights.update()
                    now = clock()
                    next_look = now + _HEALTH_PERIOD_S
                elif now > next_look:
                    # The period may be long: see whether the learner lives, but pull nothing.
                    self._announced_end = self._connection.status().shutdown
                    next_look = now + _HEALTH_PERIOD_S
                if now > next_log:
                    self._log_phases()
                    next_log = now + config.log_period_s
                if self._announced_end or self._stop.is_set():
                    return
                now = clock()
                action = self._explore(self._infer(observation[None])[0])
                inferred = clock()
                timestep = self._environment.step(action)
                stepped = clock()
                observation = timestep.observation
                reward = max(-reward_limit, min(reward_limit, timestep.reward))
                for transition in self._accumulator.step(
                    action, reward, timestep.discount, observation, timestep.last()
                ):
                    writer.write(transition)
                inserted = clock()
                timings.add("inference_s", inferred - now)
                timings.add("environment_s", stepped - inferred)
                timings.add("insert_s", inserted - stepped)
                episode_return += timestep.reward
                length += 1
                self._steps += 1
            episodes += 1
            self._logger.write(
                telemetry.EPISODES_CSV,
                self._steps,
                actor_steps=self._steps,
                episodes=episodes,
                episode_return=episode_return,
                episode_length=length,
                model_version=self._weights.version,
                staleness_steps=self._weights.staleness,
            )

    def _log_phases(self) -> None:
        self._logger.write(
            telemetry.PHASES_CSV,
            self._steps,
            actor_steps=self._steps,
            pulls=self._weights.pulls,
            model_version=self._weights.version,
            staleness_steps=self._weights.mean_staleness(),
            **self._timings.as_row(),
        )

    def _end(self) -> int:
        if self._steps:
            self._log_phases()
        self._logger.close()
        if not self._announced_end:
            return cli.EXIT_INTERRUPTED
        self._connection.acknowledge_shutdown()
        logging.info("The learner announced the end of the run after %d steps.", self._steps)
        return 0
