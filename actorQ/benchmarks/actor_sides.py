"""The actors that `actor_loop` measures, each in a process of its own.

`remote.Remote` calls these functions. Modules that bring frameworks in are imported late, since
pinning comes first.
"""

import gc
import time
from typing import Any
from typing import NamedTuple

from actorQ.core import config as config_lib

PRODUCT = "product"
# The product pulls on a thread of its own, beside the steps. The original pulls within a step.
_BACKGROUND = {PRODUCT: ("pull_s", "deserialize_s")}


class Measurement(NamedTuple):
    """Figures of one stretch of acting.

    Attributes:
      steps: Environment steps.
      wall_s: Seconds.
      cpu_s: CPU seconds of the whole process.
      phases: Seconds of the acting thread, by phase.
    """

    steps: int
    wall_s: float
    cpu_s: float
    phases: dict[str, float]


_actors: dict[str, Any] = {}


def layout_of(taskstr: str) -> Any:
    """Returns the `replay.Layout` of a task's transitions."""
    from actorQ.environments import suites
    from actorQ.wire import replay

    environment = suites.make(taskstr, 0)
    layout = replay.Layout.of(environment.spec)
    environment.close()
    return layout


def build(name: str, config: config_lib.RunConfig, kind: str = PRODUCT) -> None:
    """Makes an actor with random weights, which `measure` then runs.

    Args:
      name: Key for `measure` and `drop`.
      config: Configuration with the server's address.
      kind: PRODUCT, or "original" or "original with pulls" for the stand-in.
    """
    if kind == PRODUCT:
        actor = _product(config)
    else:
        from actorQ.benchmarks.original import loop

        actor = loop.OriginalActor(config, pulls=kind.endswith("with pulls"))
    _actors[name] = (actor, _BACKGROUND.get(kind, ()))


def measure(name: str, seconds: float) -> Measurement:
    """Lets an actor act for `seconds` and returns the figures."""
    actor, background = _actors[name]
    steps, phases = actor.loop.steps, dict(actor.timings)
    started, cpu = time.perf_counter(), time.process_time()
    actor.act(seconds)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return Measurement(
        actor.loop.steps - steps,
        wall_s,
        cpu_s,
        {
            phase: total - phases[phase]
            for phase, total in actor.timings.items()
            if phase not in background
        },
    )


def drop(name: str) -> None:
    """Forgets an actor, while its server still runs."""
    del _actors[name]
    gc.collect()


def _product(config: config_lib.RunConfig) -> Any:
    import numpy as np

    from actorQ.actor import process as acting
    from actorQ.benchmarks import backends
    from actorQ.environments import suites
    from actorQ.policy import architecture as architecture_lib
    from actorQ.policy import forms
    from actorQ.policy import inference
    from actorQ.wire import connection
    from actorQ.wire import messages

    environment = suites.make(config.taskstr, 0)
    architecture = architecture_lib.make(environment.spec, config.model_sizes)
    environment.close()
    weights = backends.random_weights(architecture, np.random.default_rng(0))
    update = forms.to_actor_form(weights, 0, config.quantize)
    connection.Connection(config).publish(config.model_table_name, messages.encode(update))
    inference.use_one_thread(config.inference_mode)
    actor = acting.ActorProcess(config)
    actor.connect()
    return actor
