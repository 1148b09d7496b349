"""What `parameter_path` runs in its processes: the product's learner, broadcaster and actor ends.

Called through `remote.Remote`, hence late imports of what brings frameworks in. One process has
the same part of every side; only one side is at work at a time.
"""

import dataclasses
import os
import threading
import time
from typing import Any

from actorQ.core import allocator
from actorQ.core import config as config_lib
from actorQ.core import precisions
from actorQ.core import provenance
from actorQ.policy import architecture as architecture_lib

PRODUCT, ORIGINAL = "ActorQ here", "original (stand-in)"
UPDATE_PERIOD = 30  # Steps between two looks, the default of --actor_update_period.
_STEPS_BEHIND = 40  # Steps after the first action on new weights.
_DEADLINE_S = 60.0
_WARM_UP_PUSHES = 3  # Dear ones on cold caches would space those that are measured.
_BATCH = 256  # Of the busy learner.


@dataclasses.dataclass(frozen=True)
class Side:
    """One way from the learner's weights to the actor's.

    Attributes:
      kind: PRODUCT or ORIGINAL.
      quantize: bits of the actor's arithmetic.
      communication: as --quantize_communication.
      push_precision: of the first hop.
      inference_mode: of the actor.
    """

    kind: str
    quantize: int
    communication: int = 32
    push_precision: str = "float32"
    inference_mode: str = "pytorch"

    @property
    def name(self) -> str:
        """Names the side in the table."""
        bits = precisions.NAMES[self.quantize]
        if self.kind == ORIGINAL:
            return f"{bits}, {self.kind}"
        parts = [bits, self.inference_mode]
        if self.communication < 32:
            parts.append(f"{self.communication} bits on the wire")
        if self.push_precision != "float32":
            parts.append(f"{self.push_precision} push")
        return ", ".join(parts)

    def config(self, folder: str, width: int) -> config_lib.RunConfig:
        """Returns the run's configuration, without the server's address."""
        return config_lib.RunConfig(
            quantize=self.quantize, quantize_communication=self.communication,
            push_precision=self.push_precision, inference_mode=self.inference_mode,
            model_str=",".join(3 * [str(width)]), push_period_s=0.0, port=0,
            logpath=os.path.join(folder, self.name.replace(" ", "_").replace(",", "")),
        )


def architecture_of(config: config_lib.RunConfig) -> architecture_lib.PolicyArchitecture:
    """Returns the policy's layers: 17 inputs, 6 outputs."""
    return architecture_lib.PolicyArchitecture(
        (17,), config.model_sizes, 6, architecture_lib.TANH_HEAD
    )


def keep_large_blocks() -> bool:
    """Sets up a process of the product, before any framework, as its mains do."""
    return allocator.keep_large_blocks()


def pin(core: int) -> None:
    """Moves this process, all threads that there are, to another core."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def cpu_seconds() -> float:
    """Returns the CPU seconds of the process so far, all threads."""
    return time.process_time()


# --- The learner's process (also the server's) ---

_policies: dict[int, Any] = {}
_publishers: dict[str, Any] = {}
_steps: dict[int, Any] = {}


def learner_policy(config: config_lib.RunConfig) -> Any:
    """Returns the one Sonnet policy of this process and width."""
    from actorQ.policy import sonnet_policy

    width = config.model_sizes[0]
    if width not in _policies:
        _policies[width] = sonnet_policy.Policy(architecture_of(config))
    return _policies[width]


def make_learner(config: config_lib.RunConfig) -> None:
    """Makes the publisher of a side."""
    from actorQ.learner import publisher as publishing
    from actorQ.wire import connection

    _publishers[config.logpath] = publishing.VariablePublisher(
        learner_policy(config).named_variables(), connection.Connection(config),
        config.broadcaster_table_name, config.push_period_s, config.push_precision,
        config.push_share,
    )


def push(config: config_lib.RunConfig, version: int) -> dict[str, float]:
    """Pushes weights once; returns when it began (time.monotonic) and seconds of its stages."""
    publisher = _publishers[config.logpath]
    before = (publisher.snapshot_s, publisher.encode_s, publisher.insert_s)
    started = time.monotonic()
    publisher.publish(version, wait=True)
    snapshot, encode, insert = (
        after - past for after, past in zip(
            (publisher.snapshot_s, publisher.encode_s, publisher.insert_s), before, strict=True
        )
    )
    return {
        "started": started, "push_end": time.monotonic(), "snapshot_s": snapshot,
        "push_encode_s": encode, "push_insert_s": insert - encode,
    }


def make_busy_learner(config: config_lib.RunConfig) -> None:
    """Compiles a step that works like a learner's on the policy, with its optimizer."""
    import sonnet as snt
    import tensorflow as tf

    policy = learner_policy(config)
    optimizer = snt.optimizers.Adam(1e-6)
    observations = tf.random.normal((_BATCH, 17))

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
    """Learns for so long; returns steps per second, and pushes made.

    Args:
      config: of the side.
      seconds: how long.
      period_s: as --push_period_s; None: no pushes.
    """
    from actorQ.learner import publisher as publishing
    from actorQ.wire import connection

    step, publisher = _steps[config.model_sizes[0]], None
    if period_s is not None:
        key = f"{config.logpath} every {period_s}"
        if key not in _publishers:
            _publishers[key] = publishing.VariablePublisher(
                learner_policy(config).named_variables(), connection.Connection(config),
                config.broadcaster_table_name, period_s, config.push_precision,
                # Of the machine, of which this process has some cores only.
                config.push_share * provenance.machine_cores() / provenance.usable_cores(),
            )
            for version in range(_WARM_UP_PUSHES):
                _publishers[key].publish(version, wait=True)
        publisher = _publishers[key]
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
        raise RuntimeError(f"No push fell into {seconds:g} s.")
    return rate, publisher.pushes - pushes


# --- The broadcaster's process ---


def make_broadcaster(config: config_lib.RunConfig) -> None:
    """Starts the product's broadcaster of a side, on a thread."""
    from actorQ.wire import broadcaster as broadcaster_lib

    broadcaster = broadcaster_lib.Broadcaster(config)
    threading.Thread(
        target=broadcaster.serve, args=(broadcaster.connection,), daemon=True
    ).start()


# --- The actor's process ---

_actors: dict[str, Any] = {}


class ProductActor:
    """Policy and weights of the product's actor, without an environment."""

    def __init__(self, config: config_lib.RunConfig):
        from actorQ.actor import weight_client
        from actorQ.core import telemetry
        from actorQ.policy import inference
        from actorQ.wire import connection

        architecture = architecture_of(config)
        inference.use_one_thread(config.inference_mode)
        self.infer = inference.make_backend(architecture, config.quantize, config.inference_mode)
        self._timings = telemetry.Timings()
        self._client = weight_client.WeightClient(
            connection.Connection(config), config, architecture, self.infer, self._timings
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

    def between_steps(self, look: bool) -> None:
        """What the product's actor does between two steps."""
        if look:
            self._client.ask()
        if self._client.ready:
            self._client.collect()

    def seconds(self) -> dict[str, float]:
        """Returns the seconds in each phase so far."""
        phases = self._timings.seconds
        return {name: phases[name] for name in ("pull_s", "deserialize_s", "load_state_dict_s")}


def make_actor(config: config_lib.RunConfig, kind: str) -> None:
    """Makes the actor of a side and waits for its first weights."""
    if kind == PRODUCT:
        actor: Any = ProductActor(config)
    else:
        from actorQ.benchmarks.original import parameters

        actor = parameters.OriginalActor(config)
    actor.first_weights()
    _actors[config.logpath] = actor


def act_until(config: config_lib.RunConfig, version: int) -> dict[str, Any]:
    """Steps until weights of `version` are in use, and some steps further.

    Returns:
      When the first action on them was there (time.monotonic), every step's start and seconds
      (what lies between two steps counts for the later one), and seconds of the phases.

    Raises:
      RuntimeError: they do not come.
    """
    import numpy as np

    actor, clock = _actors[config.logpath], time.monotonic
    observation = np.random.default_rng(0).normal(size=(1, 17)).astype(np.float32)
    before = actor.seconds()
    steps: list[tuple[float, float]] = []
    first, left = None, _STEPS_BEHIND
    started = now = clock()
    while left:
        actor.between_steps(look=len(steps) % UPDATE_PERIOD == 0)
        actor.infer(observation)
        past, now = now, clock()
        steps.append((past, now - past))
        if first is None and actor.version >= version:
            first = now
        if first is not None:
            left -= 1
        elif now - started > _DEADLINE_S:
            raise RuntimeError(f"{config.logpath}: no weights within {_DEADLINE_S:g} s.")
    after = actor.seconds()
    return {
        "first_action": first,
        "looks": -(-len(steps) // UPDATE_PERIOD),
        "steps": steps,
        "phases": {name: after[name] - before[name] for name in after},
    }
