"""The product's path of weights for `parameter_path`: its learner, broadcaster and actor.

`remote.Remote` calls these functions, in processes of their own. Modules that bring frameworks in
are imported late, since pinning comes first. `original.parameters` has the same functions.
"""

import os
import threading
import time
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from actorQ.benchmarks import parameter_stages
from actorQ.core import config as config_lib
from actorQ.core import provenance
from actorQ.core import telemetry

if TYPE_CHECKING:
    from actorQ.learner import publisher as publishing

_WARM_UP_PUSHES = 3  # Slow pushes on cold caches would space out the measured ones.
_BATCH = 256  # Batch size of the busy learner.
_LAST_STAGES = ("decode_s", "convert_s", "encode_s", "insert_s")

# --- The learner's process, which holds the server too ---

_publishers: dict[tuple[str, float], "publishing.VariablePublisher"] = {}
_steps: dict[int, Any] = {}


def _publisher(
    config: config_lib.RunConfig, period_s: float, share: float
) -> "publishing.VariablePublisher":
    """Returns the publisher of a side and period, made at its first use."""
    from actorQ.learner import publisher as publishing
    from actorQ.wire import connection

    key = (config.logpath, period_s)
    if key not in _publishers:
        _publishers[key] = publishing.VariablePublisher(
            parameter_stages.learner_policy(config).named_variables(),
            connection.Connection(config), config.broadcaster_table_name, period_s,
            config.push_precision, share,
        )
    return _publishers[key]


def push(config: config_lib.RunConfig, version: int) -> dict[str, float]:
    """Pushes weights once; returns its start and end (time.monotonic) and seconds of its stages."""
    publisher = _publisher(config, config.push_period_s, config.push_share)

    def stages() -> tuple[float, float, float]:
        return publisher.snapshot_s, publisher.encode_s, publisher.insert_s

    before, started = stages(), time.monotonic()
    publisher.publish(version, wait=True)
    snapshot, encode, insert = (a - b for a, b in zip(stages(), before, strict=True))
    return {
        "started": started, "push_end": time.monotonic(), "snapshot_s": snapshot,
        "push_encode_s": encode, "push_insert_s": insert - encode,
    }


def make_busy_learner(config: config_lib.RunConfig) -> None:
    """Compiles a step that works like a learner's on the policy, with its optimizer."""
    import sonnet as snt
    import tensorflow as tf

    policy = parameter_stages.learner_policy(config)
    optimizer = snt.optimizers.Adam(1e-6)
    observations = tf.random.normal((_BATCH, parameter_stages.OBSERVATION_SIZE))

    @tf.function(autograph=False)
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(policy(observations)))
        variables = policy.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    step()
    _steps[config.model_sizes[0]] = step


def busy_steps_per_s(
    config: config_lib.RunConfig, seconds: float, period_s: float | None
) -> tuple[float, int]:
    """Learns for `seconds`; returns steps per second, and pushes made.

    Args:
      config: Configuration of the side.
      seconds: Length of the measurement.
      period_s: Period of pushes, as --push_period_s. None makes no pushes.
    """
    step, publisher, pushes = _steps[config.model_sizes[0]], None, 0
    if period_s is not None:
        # The share counts the whole machine, and this process has some of its cores only.
        share = config.push_share * provenance.machine_cores() / provenance.usable_cores()
        is_new = (config.logpath, period_s) not in _publishers
        publisher = _publisher(config, period_s, share)
        for version in range(_WARM_UP_PUSHES if is_new else 0):
            publisher.publish(version, wait=True)
        pushes = publisher.pushes
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        step()
        done += 1
        if publisher is not None:
            # Versions of the side's own pushes are far below these.
            publisher.publish(1_000_000 + time.monotonic_ns() // 1000)
    rate = done / (time.perf_counter() - started)
    if publisher is None:
        return rate, 0
    if publisher.pushes == pushes:
        raise RuntimeError(f"There was no push within {seconds:g} s.")
    return rate, publisher.pushes - pushes


# --- The broadcaster's process ---


def make_broadcaster(config: config_lib.RunConfig) -> None:
    """Starts the product's broadcaster of a side, on a thread."""
    from actorQ.wire import broadcaster as broadcaster_lib

    broadcaster = broadcaster_lib.Broadcaster(config)
    threading.Thread(
        target=broadcaster.serve, args=(broadcaster.connection,), daemon=True
    ).start()


def last_update(config: config_lib.RunConfig) -> dict[str, float]:
    """Returns the newest row of the broadcaster's log, with the time at which the model arrived."""
    folder = os.path.join(config.logpath, telemetry.BROADCASTER)
    update = telemetry.last_row(os.path.join(folder, telemetry.UPDATES_CSV))
    if update:
        # The row was written at the end of the last stage.
        monotonic_offset = time.monotonic() - time.time()
        worked = sum(update[name] for name in _LAST_STAGES)
        update["arrived"] = update["unix_time"] + monotonic_offset - worked
    return update


# --- The actor's process ---


class ProductActor:
    """Policy and weights of the product's actor, without an environment."""

    def __init__(self, config: config_lib.RunConfig):
        from actorQ.actor import weight_client
        from actorQ.policy import inference
        from actorQ.wire import connection

        architecture = parameter_stages.architecture_of(config)
        inference.use_one_thread(config.inference_mode)
        self._backend = inference.make_backend(
            architecture, config.quantize, config.inference_mode
        )
        self._timings = telemetry.no_seconds()
        self._client = weight_client.WeightClient(
            connection.Connection(config), config, architecture, self._backend, self._timings
        )

    @property
    def version(self) -> int:
        """Learner steps of the weights in use."""
        return self._client.version

    def first_weights(self) -> None:
        """Waits for weights."""
        while self.version < 0:
            self._client.update()
            time.sleep(0.01)

    def infer(self, observation: np.ndarray) -> np.ndarray:
        """Returns the policy's output."""
        return self._backend(observation)

    def between_steps(self, look: bool) -> None:
        """Does what the product's actor does between two steps."""
        if look:
            self._client.ask()
        if self._client.ready:
            self._client.collect()

    def seconds(self) -> dict[str, float]:
        """Returns the seconds in each phase so far."""
        phases = self._timings
        return {name: phases[name] for name in ("pull_s", "deserialize_s", "load_state_dict_s")}


def make_actor(config: config_lib.RunConfig) -> None:
    """Makes the actor of a side and waits for its first weights."""
    parameter_stages.keep_actor(config, ProductActor(config))
