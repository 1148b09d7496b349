"""Learners side by side in the processes of the learner benchmarks, and the time of their steps.

`remote.Remote` calls these functions. The module imports no framework at the top, so that `set_up`
comes before a framework's threads.
"""

from collections.abc import Callable
import dataclasses
import os
import time
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.actor import transition_writer
from actorQ.benchmarks import remote
from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import timing
from actorQ.policy import architecture as architecture_lib
from actorQ.wire import replay

OBSERVATION_SIZE, ACTIONS = 17, 6  # cheetah_run has these.
LAYOUT = replay.Layout((OBSERVATION_SIZE,), False, ACTIONS, False)

MEMORY, REVERB, PUBLISHING = "memory", "Reverb", "Reverb, publishing"
SONNET, FUSED = "Sonnet", "fused"

TRANSITIONS = 5_000
_WARM_UP_STEPS = 4
_WARM_UP_PUSHES = 3  # Slow pushes on cold caches would space out the measured ones.

_state: dict[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Side:
    """A learner to measure: D4PG with three hidden layers in the policy, critic by default.

    Attributes:
      width: Units of the policy's hidden layers.
      batch: Transitions in one learner step.
      precision: Precision of the products, float32 or bfloat16.
      optimizer: FUSED (the product's) or SONNET (Acme's learner as it comes).
      source: MEMORY (one batch again and again), REVERB, or PUBLISHING (REVERB, and weights are
        pushed).
      compiled: Whether XLA compiles the step into one program.
      steps_per_call: Learner steps in one call.
      device: CPU or GPU.
      readers: Threads that form batches; None: as many as a learner's on that device.
    """

    width: int
    batch: int
    precision: str = "float32"
    optimizer: str = FUSED
    source: str = MEMORY
    compiled: bool = False
    steps_per_call: int = 1
    device: str = "CPU"
    readers: int | None = None

    @property
    def config(self) -> config_lib.RunConfig:
        """The configuration of such a run."""
        return config_lib.RunConfig(
            model_str=",".join([str(self.width)] * 3), batch_size=self.batch, port=0,
            replay_table_max_times_sampled=0, learner_device_placement=self.device,
        )

    @property
    def products_flop(self) -> float:
        """Floating-point operations of one step's matrix products, multiplications and sums."""
        config = self.config
        policy = _layer_flop(
            (OBSERVATION_SIZE, *config.model_sizes, ACTIONS), self.batch
        )
        critic = _layer_flop(
            (OBSERVATION_SIZE + ACTIONS, *config.critic_sizes, config.num_atoms), self.batch
        )
        # Policy: forward twice (online and target), gradients of the weights, and gradients of the
        # inputs of all layers but the first. Critic: forward three times, the same gradients, and
        # dQ/da through all layers.
        return 4 * sum(policy) - policy[0] + 6 * sum(critic) - critic[0]


def _layer_flop(sizes: tuple[int, ...], batch: int) -> list[float]:
    return [2.0 * batch * a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True)]


def set_up(cores: list[int], threads: int, device: str = "CPU") -> None:
    """Places this process and its TensorFlow; it must be called first.

    Raises:
      errors.UserError: A GPU is asked for, and TensorFlow can use none.
    """
    os.sched_setaffinity(0, cores)
    cli.use_onednn()  # As in a run, unless the environment variable is set.
    import tensorflow as tf

    from actorQ.policy import tensorflow_device

    tensorflow_device.choose(device == "GPU", "the benchmark")
    timing.require_device(device, "GPU" if tf.config.get_visible_devices("GPU") else "CPU")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))


def serve() -> int:
    """Starts a server with random transitions in replay; returns its port."""
    from actorQ.wire import connection as wire

    config = Side(8, 8).config
    port = remote.start_server(config, LAYOUT)
    connection = wire.Connection(config, f"localhost:{port}")
    _state["connection"] = connection
    writer = transition_writer.TransitionWriter(connection.client, config.replay_table_name, LAYOUT)
    for row in _random_transitions(TRANSITIONS):
        writer.write(LAYOUT.unpack(row[None]))
    writer.close()
    return port


def _random_transitions(count: int) -> np.ndarray:
    """Returns packed transitions, float32 [count, vector_size], all numbers in [-1, 1]."""
    rng = np.random.default_rng(0)
    return rng.uniform(-1.0, 1.0, (count, LAYOUT.vector_size)).astype(np.float32)


def drain(port: int) -> None:
    """Takes pushed weights on a thread, as the broadcaster does, until the process ends."""
    import threading

    from actorQ.wire import connection as wire

    config = Side(8, 8).config
    connection = wire.Connection(config, f"localhost:{port}")

    def take() -> None:
        while True:
            connection.take(config.broadcaster_table_name)

    threading.Thread(target=take, daemon=True).start()


def build(sides: list[Side]) -> None:
    """Makes learners in place of earlier ones, and compiles their steps."""
    _state["learners"] = {}  # The earlier ones go before the new ones come.
    _state["learners"] = {side: _Learner(side) for side in sides}


class Lap(NamedTuple):
    """Seconds of a step, and CPU seconds that the whole process spent on it."""

    seconds: float
    cpu_seconds: float


def measure(side: Side, seconds: float) -> Lap:
    """Learns for `seconds`, and returns the mean of the steps."""
    return _state["learners"][side].measure(seconds)


def deliver(side: Side, seconds: float) -> Lap:
    """Takes batches for `seconds` and learns nothing; returns the means of a batch."""
    import tensorflow as tf

    fetch = tf.function(iter(_dataset(side)).fetch, autograph=False)
    timing.seconds_per_call(fetch, seconds / 4)  # Batches that lay ready do not count.
    return _lap(fetch, seconds)


def _lap(act: Callable[[], Any], seconds: float, steps: int = 1) -> Lap:
    """Acts for `seconds`, and returns the means of a step; each time makes so many steps."""
    cpu_before, started, made = time.process_time(), time.perf_counter(), 0
    while (now := time.perf_counter()) - started < seconds:
        act()
        made += steps
    return Lap((now - started) / made, (time.process_time() - cpu_before) / made)


def pushes(side: Side) -> int:
    """Returns how often a PUBLISHING side pushed weights while it was measured."""
    return _state["learners"][side].measured_pushes


def products_per_s(precision: str, size: int, seconds: float) -> float:
    """Returns the FLOP/s of a matrix product [size, size] x [size, size] in TensorFlow."""
    import tensorflow as tf

    matrix = tf.cast(tf.random.normal((size, size)), precision)
    multiply = tf.function(lambda a: tf.matmul(a, a), autograph=False)
    return 2.0 * size**3 / timing.seconds_per_call(lambda: multiply(matrix), seconds)


class _Learner:
    """One side's learner, ready to step.

    Attributes:
      publisher: Publisher of a PUBLISHING side, else None.
      measured_pushes: Pushes that fell into measurements.
    """

    def __init__(self, side: Side):
        from actorQ.d4pg import learner as d4pg
        from actorQ.learner import compiled_step
        from actorQ.learner import dataset as learning
        from actorQ.learner import publisher

        config = side.config
        architecture = architecture_lib.PolicyArchitecture(
            (OBSERVATION_SIZE,), config.model_sizes, ACTIONS, architecture_lib.TANH_HEAD
        )
        networks = d4pg.make_networks(config, architecture, side.precision)
        make = _sonnet_learner if side.optimizer == SONNET else d4pg.make_learner
        self._learner = make(
            networks, config, _dataset(side), None, learning.LastFetches(), learning.Monitors()
        )
        if side.compiled or side.steps_per_call > 1:
            compiled_step.CompiledStep(self._learner, side.steps_per_call, side.compiled)
        self._steps_per_call = side.steps_per_call
        self.publisher = None
        if side.source == PUBLISHING:
            self.publisher = publisher.VariablePublisher(
                networks.policy.named_variables(), _state["connection"],
                config.broadcaster_table_name, config.push_period_s, config.push_precision,
                config.push_share,
            )
        self._steps = 0
        self.measured_pushes = 0
        for _ in range(_WARM_UP_STEPS):
            self._step()
        if self.publisher is not None:
            for _ in range(_WARM_UP_PUSHES):
                self._steps += 1
                self.publisher.publish(self._steps, wait=True)

    def _step(self) -> None:
        self._learner.step()
        self._steps += self._steps_per_call
        if self.publisher is not None:
            self.publisher.publish(self._steps)

    def measure(self, seconds: float) -> Lap:
        """Learns for `seconds`, and returns the mean of the steps."""
        self._step()  # This brings the learner's weights back into caches.
        pushes_before = 0 if self.publisher is None else self.publisher.pushes
        lap = _lap(self._step, seconds, self._steps_per_call)
        if self.publisher is not None:
            self.measured_pushes += self.publisher.pushes - pushes_before
        return lap


def _dataset(side: Side) -> Any:
    import reverb
    import tensorflow as tf

    from actorQ.learner import dataset as learning

    if side.source == MEMORY:
        batch = reverb.ReplaySample((), _random_transitions(side.batch))
        packed = learning.untuned(tf.data.Dataset.from_tensors(batch).repeat())
        return learning.Batches(packed, LAYOUT)
    address = _state["connection"].address
    return learning.make_dataset(side.config, address, LAYOUT, f"/{side.device}:0", side.readers)


def _sonnet_learner(
    networks: Any, config: config_lib.RunConfig, dataset: Any, client: Any, logger: Any,
    monitors: Any,
) -> Any:
    """Returns Acme's learner with Sonnet's Adam and TensorFlow's clipping, and no monitors."""
    del client, monitors
    from acme.agents.tf.d4pg import learning as acme_learning
    import sonnet as snt

    return acme_learning.D4PGLearner(
        policy_network=networks.policy,
        critic_network=networks.critic,
        target_policy_network=networks.target_policy,
        target_critic_network=networks.target_critic,
        discount=config.discount,
        target_update_period=config.target_update_period,
        dataset_iterator=iter(dataset),
        policy_optimizer=snt.optimizers.Adam(config.policy_learning_rate),
        critic_optimizer=snt.optimizers.Adam(config.critic_learning_rate),
        logger=logger, checkpoint=False,
    )
