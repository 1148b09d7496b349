"""What `scaling` runs in processes of their own: writers, a replay table, an actor that starts.

Called through `remote.Remote`, hence late imports of what brings frameworks in.
"""

import subprocess
import sys
import time
from typing import Any
from typing import NamedTuple

from actorQ.core import config as config_lib

# walker_stand's: 24 numbers observed, 6 acted.
_OBSERVATION, _ACTION = 24, 6

_state: dict[str, Any] = {}


def resident_bytes() -> int:
    """Returns the memory that the process has resident."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmRSS"))


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


def write(seconds: float, most: int = sys.maxsize) -> tuple[int, float, float]:
    """Writes transitions as fast as it goes.

    Args:
      seconds: for so long.
      most: transitions, at most.

    Returns:
      Transitions, seconds, and CPU seconds of the process.
    """
    writer, transitions = _state["writer"], _state["transitions"]
    started, cpu = time.perf_counter(), time.process_time()
    written = 0
    while written < most and time.perf_counter() - started < seconds:
        for transition in transitions[: most - written]:
            writer.write(transition)
        written = min(most, written + len(transitions))
    writer.flush()
    return written, time.perf_counter() - started, time.process_time() - cpu


# --- In the server's process ---


def batches_per_second(config: config_lib.RunConfig, port: int, seconds: float) -> float:
    """Returns how many batches the learner's own dataset gives in a second."""
    from actorQ.learner import dataset

    batches = iter(dataset.make_dataset(config, f"localhost:{port}", layout()))
    for _ in range(20):
        next(batches)
    started, taken = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        taken += 1
    return taken / (time.perf_counter() - started)


# --- An actor that starts ---

# What `actor_main` does until it asks for weights.
_ACTOR = """
import os, sys, time
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
from actorQ.core import lean_imports
if sys.argv[2] != "tensorflow":
    lean_imports.import_reverb_client()
import numpy as np
from actorQ.actor import process as acting
from actorQ.policy import architecture
from actorQ.core import config
from actorQ.policy import forms as conversion
from actorQ.policy import inference
from actorQ.benchmarks import inference as inference_benchmark
from actorQ.benchmarks import scaling_sides
settings = config.RunConfig(
    taskstr="dm_control,walker_stand", model_str=sys.argv[1], inference_mode=sys.argv[2],
    quantize=int(sys.argv[3]), port=1, logpath=sys.argv[4],
)
inference.use_one_thread(settings.inference_mode)
actor = acting.ActorProcess(settings)
ready, cpu = time.time(), time.process_time()
spec = actor.loop.lanes[0].environment.spec
policy = architecture.make(spec, settings.model_sizes)
weights = inference_benchmark.random_weights(policy, np.random.default_rng(0))
update = conversion.to_actor_form(weights, 0, settings.quantize)
del weights
actor._infer.load(actor._infer.prepare(conversion.expand(update)))
del update
for _ in range(200):
    actor.loop.turn(lambda transition: None)
print(ready, cpu, scaling_sides.resident_bytes())
"""

# The same for the stand-in of the original.
_ORIGINAL = """
import os, sys, time
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
from actorQ.core import config
from actorQ.benchmarks.original import loop as original_loop
from actorQ.benchmarks import scaling_sides
port = original_loop.start_server("dm_control,walker_stand")
settings = config.RunConfig(
    taskstr="dm_control,walker_stand", model_str=sys.argv[1], quantize=int(sys.argv[3]),
    port=port, logpath=sys.argv[4],
)
actor = original_loop.OriginalActor(settings, pulls=False)
ready, cpu = time.time(), time.process_time()
actor.act(1.0)
print(ready, cpu, scaling_sides.resident_bytes(), flush=True)
os._exit(0)
"""


class Start(NamedTuple):
    """What an actor's start took: seconds, CPU seconds, and megabytes resident when it acts."""

    wall_s: float
    cpu_s: float
    megabytes: float


def start_actor(mode: str, bits: int, model: str, folder: str) -> Start:
    """Starts an actor in a new process and waits until it has acted a little.

    Args:
      mode: inference mode, or "original" for the stand-in.
      bits: of its policy.
      model: layer sizes.
      folder: for its logs.
    """
    code = _ORIGINAL if mode == "original" else _ACTOR
    started = time.time()
    done = subprocess.run(
        [sys.executable, "-c", code, model, mode, str(bits), folder],
        capture_output=True, text=True, check=False, timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    ready, cpu_s, resident = map(float, done.stdout.splitlines()[-1].split())
    return Start(ready - started, cpu_s, resident / 1e6)
