"""An actor that starts, acts a little, and prints the cost; `scaling` runs it as a process.

    python -m actorQ.benchmarks.actor_start MODE BITS MODEL FOLDER

MODE is an inference mode, or "original" for the stand-in of the original's loop. The printed line
holds three numbers: the time at which the actor was ready to ask for weights (seconds since 1970),
the CPU seconds until then, and the bytes that are resident once it acts.
"""

from collections.abc import Sequence
import dataclasses
import os
import sys
import time
from typing import NamedTuple

from actorQ.benchmarks import remote
from actorQ.core import config as config_lib

_TASK = "dm_control,walker_stand"
_STEPS = 200  # Environment steps of the product before its memory is read.
_ORIGINAL_S = 1.0  # Seconds that the stand-in acts before its memory is read.


class Ready(NamedTuple):
    """Time and CPU seconds of a process when its actor is ready to ask for weights."""

    unix_time: float
    cpu_s: float

    @classmethod
    def now(cls) -> "Ready":
        """Reads the clocks."""
        return cls(time.time(), time.process_time())


def act(config: config_lib.RunConfig) -> Ready:
    """Does what `actor_main` does until it asks for weights, then acts on random weights."""
    from actorQ.core import lean_imports

    lean_imports.import_reverb_client()
    import numpy as np

    from actorQ.actor import process
    from actorQ.benchmarks import backends
    from actorQ.policy import architecture as architecture_lib
    from actorQ.policy import forms
    from actorQ.policy import inference

    inference.use_one_thread(config.inference_mode)
    actor = process.ActorProcess(config)
    ready = Ready.now()
    architecture = architecture_lib.make(
        actor.loop.lanes[0].environment.spec, config.model_sizes
    )
    weights = backends.random_weights(architecture, np.random.default_rng(0))
    update = forms.to_actor_form(weights, 0, config.quantize)
    del weights  # An actor has never had them.
    actor.infer.load(actor.infer.prepare(forms.expand(update)))
    del update
    for _ in range(_STEPS):
        actor.loop.turn(lambda transition: None)
    return ready


def act_as_original(config: config_lib.RunConfig) -> Ready:
    """Does the same with the stand-in, which needs a server."""
    from actorQ.benchmarks.original import loop

    port = loop.start_server(config.taskstr)
    actor = loop.OriginalActor(dataclasses.replace(config, port=port), pulls=False)
    ready = Ready.now()
    actor.act(_ORIGINAL_S)
    return ready


def main(argv: Sequence[str]) -> None:
    """Runs the actor and prints its cost."""
    mode, bits, model, folder = argv
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    original = mode == "original"
    config = config_lib.RunConfig(
        taskstr=_TASK, model_str=model, quantize=int(bits), port=1, logpath=folder,
        inference_mode="pytorch" if original else mode,
    )
    ready = act_as_original(config) if original else act(config)
    print(ready.unix_time, ready.cpu_s, remote.resident_bytes(), flush=True)
    os._exit(0)  # The stand-in's server would keep the process.


if __name__ == "__main__":
    main(sys.argv[1:])
