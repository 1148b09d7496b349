"""The parts that `scaling` runs in processes of their own: writers, a dataset, actors that start.

`remote.Remote` calls these functions. Modules that bring frameworks in are imported late, since
pinning comes first.
"""

import subprocess
import sys
import time
from typing import Any
from typing import NamedTuple

from actorQ.core import config as config_lib

_OBSERVATION, _ACTION = 24, 6  # Sizes of walker_stand's vectors.
_ACTOR_MODULE = "actorQ.benchmarks.actor_start"  # A program, which no module imports.

_state: dict[str, Any] = {}


def layout() -> Any:
    """Returns the layout of the transitions."""
    from actorQ.wire import replay

    return replay.Layout((_OBSERVATION,), False, _ACTION, False)


# --- In a writer's process ---


def open_writer(config: config_lib.RunConfig) -> None:
    """Connects the product's writer to the server at the address of `config`."""
    from actorQ.core import lean_imports

    lean_imports.import_reverb_client()
    import numpy as np

    from actorQ.actor import transition_writer
    from actorQ.wire import connection
    from actorQ.wire import replay

    rng = np.random.default_rng(0)
    observations = rng.standard_normal((1001, _OBSERVATION), np.float32)
    action = rng.standard_normal(_ACTION, np.float32)
    _state["transitions"] = [
        replay.Transition(
            observations[i], action, np.float32(i), np.float32(1), observations[i + 1]
        )
        for i in range(1000)
    ]
    _state["writer"] = transition_writer.TransitionWriter(
        connection.Connection(config).client, config.replay_table_name, layout()
    )


class Written(NamedTuple):
    """Transitions that a writer wrote, seconds, and CPU seconds of its process."""

    transitions: int
    wall_s: float
    cpu_s: float


def write(seconds: float, most: int = sys.maxsize) -> Written:
    """Writes transitions as fast as it goes.

    Args:
      seconds: Time after which it stops.
      most: Number of transitions after which it stops.
    """
    writer, transitions = _state["writer"], _state["transitions"]
    started, cpu = time.perf_counter(), time.process_time()
    written = 0
    while written < most and time.perf_counter() - started < seconds:
        for transition in transitions[: most - written]:
            writer.write(transition)
        written = min(most, written + len(transitions))
    writer.flush()
    return Written(written, time.perf_counter() - started, time.process_time() - cpu)


# --- In the server's process ---


def batches_per_second(config: config_lib.RunConfig, port: int, seconds: float) -> float:
    """Returns the batches that the learner's own dataset gives in a second."""
    from actorQ.learner import dataset

    batches = iter(dataset.make_dataset(config, f"localhost:{port}", layout()))
    for _ in range(20):
        next(batches)
    started, taken = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        taken += 1
    return taken / (time.perf_counter() - started)


# --- Actors that start ---


class Start(NamedTuple):
    """Seconds and CPU seconds of an actor's start, and its resident megabytes when it acts."""

    wall_s: float
    cpu_s: float
    megabytes: float


def start_actor(mode: str, bits: int, model: str, folder: str) -> Start:
    """Starts an actor in a new process and waits until it has acted a little.

    Args:
      mode: Inference mode, or "original" for the stand-in.
      bits: Precision of its policy.
      model: Sizes of the hidden layers.
      folder: Folder for its logs.
    """
    started = time.time()
    done = subprocess.run(
        [sys.executable, "-m", _ACTOR_MODULE, mode, str(bits), model, folder],
        capture_output=True, text=True, check=False, timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    ready, cpu_s, resident = map(float, done.stdout.splitlines()[-1].split())
    return Start(ready - started, cpu_s, resident / 1e6)
