"""Benchmark of the broadcaster's meter: CPU time for a version's weights, and for its policies.

    python -m actorQ.benchmarks.meter --out DIR

The meter runs here without its limit, on one core. The server with the observations is a process of
its own. The share of time is that with the default periods of pushes and of comparisons; the limit
of 0.5 % makes comparisons of large policies rarer.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
import statistics
import time
from typing import Any

import numpy as np

from actorQ.benchmarks import backends
from actorQ.benchmarks import remote
from actorQ.core import config as config_lib
from actorQ.core import settings
from actorQ.core import timing
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.wire import replay

_NAME = "meter"
_BITS = (8, 4, 3)
_TRANSITIONS = 256


def measure(
    architecture: architecture_lib.PolicyArchitecture, port: int, bits: int, repeats: int
) -> dict[str, list[float]]:
    """Returns CPU seconds of each version: of converting, of its weights and of its policies.

    Args:
      architecture: Layers of the policy.
      port: Port of a server with observations.
      bits: Precision of the actors.
      repeats: Number of versions.
    """
    from actorQ.wire import connection as connection_lib
    from actorQ.wire import messages
    from actorQ.wire import meter as meter_lib

    config = config_lib.RunConfig(port=port, quantize=bits, inference_mode="native")
    config = dataclasses.replace(config, meter_period_s=1e-9)
    connection = connection_lib.Connection(config)
    meter = meter_lib.Meter(config, share=math.inf)
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {"convert": [], "weights": [], "policies": []}

    def timed(part: str, call: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = call()
        found[part].append(time.process_time() - began)
        return result

    for version in range(repeats + 1):
        weights = backends.random_weights(architecture, rng)
        variables = {}
        for name, array in weights.items():
            axes = (2, 3, 1, 0) if array.ndim == 4 else range(array.ndim)[::-1]
            layer, _, kind = name.rpartition(".")
            variables[f"{layer}/{kind[0]}"] = np.ascontiguousarray(array.transpose(axes))
        update = model_update.ModelUpdate(version, forms.LEARNER_SCHEME, variables)
        converted = timed("convert", functools.partial(forms.for_actors, update, bits))
        timed("convert", functools.partial(messages.encode, converted))
        timed("weights", functools.partial(meter.weigh, update, converted))
        timed("policies", functools.partial(meter.compare, connection, update, converted))
    # The first version fills caches, and has no version before.
    converting = [sum(found["convert"][2 * i : 2 * i + 2]) for i in range(1, repeats + 1)]
    rest = {part: found[part][1:] for part in ("weights", "policies")}
    return {"convert": converting, **rest}


def fill_server(architecture: architecture_lib.PolicyArchitecture) -> int:
    """Starts a server in this process, with random observations; returns its port."""
    import reverb

    discrete = architecture.head == architecture_lib.Q_VALUES_HEAD
    action_size = 1 if discrete else architecture.num_outputs
    layout = replay.Layout(
        architecture.observation_shape, architecture.pixels, action_size, discrete
    )
    port = remote.start_server(config_lib.RunConfig(port=0), layout)
    rng = np.random.default_rng(0)
    writer = reverb.Client(f"localhost:{port}").trajectory_writer(num_keep_alive_refs=1)
    for _ in range(_TRANSITIONS):
        vector = rng.standard_normal(layout.vector_size, np.float32)
        if architecture.pixels:
            writer.append((rng.integers(0, 256, layout.frames_shape).astype(np.uint8), vector))
            item = tuple(column[-1] for column in writer.history)
        else:
            writer.append(vector)
            item = writer.history[-1]
        writer.create_item(settings.OBSERVATION_TABLE, priority=1.0, trajectory=item)
    writer.flush()
    return port


def main(arguments: Sequence[str]) -> None:
    """Measures the policies in turn and prints a table."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=20)
    parser.add_argument(
        "--widths", type=timing.positive, nargs="+", metavar="UNITS", default=[256, 2048],
        help="Widths of the three hidden layers.",
    )
    options = parser.parse_args(arguments)
    (core,) = timing.pin(1)
    from actorQ.wire import meter as meter_lib

    defaults = config_lib.RunConfig()
    record: dict[str, Any] = {}
    rows = []
    for name, architecture in backends.architectures(options.widths).items():
        for bits in _BITS:
            timing.progress(f"meter: {name}, {bits} bits")
            with remote.remotes([core]) as (server,):
                port = server.call(fill_server, architecture)
                figures = measure(architecture, port, bits, options.repeats)
            record[f"{name} {bits}"] = figures
            seconds = {part: statistics.median(values) for part, values in figures.items()}
            period_s = max(defaults.meter_period_s, seconds["policies"] / meter_lib.SHARE)
            share = seconds["weights"] / defaults.push_period_s + seconds["policies"] / period_s
            cells = [f"{1e3 * seconds[part]:.2f}" for part in ("convert", "weights", "policies")]
            rows.append([name, str(bits), *cells, f"{period_s:.1f}", f"{100 * share:.2f}"])
    timing.report(
        _NAME, "CPU milliseconds (median)",
        [
            "policy", "bits", "convert and encode", "weights", "policies", "policies every (s)",
            "share of time (%)",
        ],
        rows, record, options.out,
        [f"share of time: weights every {defaults.push_period_s:g} s, policies as often as told"],
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
