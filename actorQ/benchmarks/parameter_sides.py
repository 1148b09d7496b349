"""The product's path of weights for `parameter_path`: its learner, broadcaster and actor.

`remote.Remote` calls these functions, in processes of their own. Modules that bring frameworks in
are imported late, since pinning comes first. `original.parameters` has its own `push`,
`make_broadcaster`, `last_update` and `Actor`; it shares the other functions. One process has the
same part of every side, and only one side works at a time.
"""

from collections.abc import Callable
import dataclasses
import functools
import os
import threading
import time
from typing import Any

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import precisions
from actorQ.core import telemetry
from actorQ.policy import architecture as architecture_lib

PRODUCT, ORIGINAL = "ActorQ here", "original (stand-in)"
OBSERVATION_SIZE, _ACTIONS = 17, 6  # cheetah_run has these.
_UPDATE_PERIOD = 30  # Steps between two looks, the default of --actor_update_period.
_STEPS_BEHIND = 40  # Steps after the first action on new weights.
_DEADLINE_S = 60.0
_LAST_STAGES = ("decode_s", "convert_s", "encode_s", "insert_s")
_PULLING = ("pull_s", "deserialize_s", "load_state_dict_s")


@dataclasses.dataclass(frozen=True)
class Side:
    """One way from the learner's weights to the actor's.

    Attributes:
      kind: PRODUCT or ORIGINAL.
      quantize: Bits of the actor's arithmetic.
      communication: Bits on the wire, as --quantize_communication.
      push_precision: Precision of the message from learner to broadcaster.
      inference_mode: Inference mode of the actor.
    """

    kind: str
    quantize: int
    communication: int = 32
    push_precision: str = "float32"
    inference_mode: str = "pytorch"

    @property
    def name(self) -> str:
        """The side's name in the table."""
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


def architecture_of(sizes: tuple[int, ...]) -> architecture_lib.PolicyArchitecture:
    """Returns the layers of the policy whose weights travel."""
    return architecture_lib.PolicyArchitecture(
        (OBSERVATION_SIZE,), sizes, _ACTIONS, architecture_lib.TANH_HEAD
    )


def pin(core: int) -> None:
    """Moves this process, with all threads that it has by now, to another core."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


# --- The learner's process, which holds the server too ---


@functools.cache
def learner_policy(sizes: tuple[int, ...]) -> Any:
    """Returns the one Sonnet policy of this process that has these hidden layers."""
    from actorQ.policy import sonnet_policy

    return sonnet_policy.Policy(architecture_of(sizes))


@functools.cache
def _publisher(config: config_lib.RunConfig) -> Any:
    from actorQ.learner import publisher
    from actorQ.wire import connection

    return publisher.VariablePublisher(
        learner_policy(config.model_sizes).named_variables(), connection.Connection(config),
        config.broadcaster_table_name, config.push_period_s, config.push_precision,
        config.push_share,
    )


def push(config: config_lib.RunConfig, version: int) -> dict[str, float]:
    """Pushes weights once; returns its start and end (time.monotonic) and seconds of its stages."""
    publisher = _publisher(config)

    def stages() -> tuple[float, float, float]:
        return publisher.snapshot_s, publisher.encode_s, publisher.insert_s

    before, started = stages(), time.monotonic()
    publisher.publish(version, wait=True)
    snapshot, encode, insert = (a - b for a, b in zip(stages(), before, strict=True))
    return {
        "started": started, "push_end": time.monotonic(), "snapshot_s": snapshot,
        "push_encode_s": encode, "push_insert_s": insert - encode,
    }


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


class Actor:
    """Policy and weights of the product's actor, without an environment.

    Attributes:
      infer: Computes the policy's output.
      timings: Seconds of each phase so far.
    """

    def __init__(self, config: config_lib.RunConfig):
        from actorQ.actor import weight_client
        from actorQ.policy import inference
        from actorQ.wire import connection

        architecture = architecture_of(config.model_sizes)
        inference.use_one_thread(config.inference_mode)
        self.infer = inference.make_backend(architecture, config.quantize, config.inference_mode)
        self.timings = telemetry.no_seconds()
        self._client = weight_client.WeightClient(
            connection.Connection(config), config, architecture, self.infer, self.timings
        )

    @property
    def version(self) -> int:
        """Learner steps of the weights in use."""
        return self._client.version

    def between_steps(self, look: bool) -> None:
        """Does what the product's actor does between two steps.

        Args:
          look: Whether it is time to look for newer weights.
        """
        if look:
            self._client.ask()
        if self._client.ready:
            self._client.collect()


_actors: dict[str, Any] = {}


def make_actor(config: config_lib.RunConfig, kind: Callable[[config_lib.RunConfig], Any]) -> None:
    """Makes the actor of a side and waits for its first weights.

    Args:
      config: Configuration of the side.
      kind: `Actor` of this module or of `original.parameters`.
    """
    actor = _actors[config.logpath] = kind(config)
    while actor.version < 0:
        actor.between_steps(look=True)
        time.sleep(0.01)


def act_until(config: config_lib.RunConfig, version: int) -> dict[str, Any]:
    """Steps until weights of `version` are in use, and some steps further.

    Returns:
      A dictionary with these entries. Times are those of time.monotonic.
        first_action: Time of the first action on these weights.
        looks: Number of looks for newer weights.
        steps: Start and seconds of every step, with the work between it and the step before.
        phases: Seconds of each phase.

    Raises:
      RuntimeError: The weights do not come.
    """
    actor, clock = _actors[config.logpath], time.monotonic
    observation = np.random.default_rng(0).normal(size=(1, OBSERVATION_SIZE)).astype(np.float32)
    before = dict(actor.timings)
    steps: list[tuple[float, float]] = []
    first, left = None, _STEPS_BEHIND
    started = now = clock()
    while left:
        actor.between_steps(look=len(steps) % _UPDATE_PERIOD == 0)
        actor.infer(observation)
        past, now = now, clock()
        steps.append((past, now - past))
        if first is None and actor.version >= version:
            first = now
        if first is not None:
            left -= 1
        elif now - started > _DEADLINE_S:
            raise RuntimeError(f"{config.logpath}: no weights came within {_DEADLINE_S:g} s.")
    after = dict(actor.timings)
    return {
        "first_action": first,
        "looks": -(-len(steps) // _UPDATE_PERIOD),
        "steps": steps,
        "phases": {name: after[name] - before[name] for name in _PULLING},
    }
