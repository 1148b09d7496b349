"""Benchmark 1: the policy for one observation on one thread, every backend and precision.

    python -m actorQ.benchmarks.inference --out DIR

Our backends are measured beside torch eager fp32, torch's quantize_dynamic, ONNX Runtime and a
floor. The floor is the time that reading the packed weights takes, in the same rounds.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics
from typing import Any

import numpy as np

from actorQ.benchmarks import backends
from actorQ.core import precisions
from actorQ.core import timing
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms

_NAME = "inference"
_REFERENCE = "torch fp32"
_PEERS = ("torch int8", "ORT int8", "ORT int4")
_BITS = {bits: precisions.NAMES[bits] for bits in backends.modes(native=True)[backends.NATIVE]}


def make_sides(
    architecture: architecture_lib.PolicyArchitecture,
    weights: Mapping[str, np.ndarray],
    observation: np.ndarray,
) -> tuple[dict[str, Callable[[], Any]], dict[str, dict[str, str]], dict[str, int]]:
    """Builds every backend with the same weights.

    Args:
      architecture: Layers of the policy.
      weights: float32, under torch's names.
      observation: [1, ...].

    Returns:
      Three dictionaries by the name of a side: a function of one pass, the type of every layer,
      and the bytes of the weights.
    """
    # These imports are late, since pinning comes before the frameworks' threads.
    from actorQ.benchmarks import peers
    from actorQ.policy.native import library

    sides: dict[str, Callable[[], Any]] = {}
    types, sizes = {}, {}

    def add(name: str, mode: str, bits: int) -> None:
        backend = backends.make(architecture, bits, mode, weights)
        sides[name] = functools.partial(backend, observation)
        types[name] = dict(backend.types)

    for bits in (32, 16, 8):
        add(f"torch {_BITS[bits]}", backends.TORCH, bits)
    add("TF fp32", "tensorflow", 32)
    model = peers.onnx_policy(architecture, weights)
    sides["ORT fp32"] = peers.onnx_call(model, observation)
    sides["ORT int8"] = peers.onnx_call(peers.to_int8(model), observation)
    sides["ORT int4"] = peers.onnx_call(peers.to_int4(model), observation)
    for bits in _BITS:
        add(f"native {_BITS[bits]}", backends.NATIVE, bits)
        network = library.Network(architecture, precisions.SCHEMES[bits])
        packed = network.pack(forms.expand(forms.to_actor_form(weights, 0, bits)))
        sides[f"floor {_BITS[bits]}"] = functools.partial(network.read, packed)
        sizes[f"floor {_BITS[bits]}"] = packed.nbytes
    return sides, types, sizes


def main(arguments: Sequence[str]) -> None:
    """Measures all backends and prints the tables."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=7)
    parser.add_argument(
        "--widths", type=timing.positive, nargs="+", metavar="UNITS",
        default=[64, 256, 512, 1024, 2048, 4096], help="Widths of the three hidden layers.",
    )
    options = parser.parse_args(arguments)
    core = timing.pin(1)
    from actorQ.core import cli
    from actorQ.policy.native import library

    cli.quiet_tensorflow()
    rng = np.random.default_rng(0)
    record: dict[str, Any] = {"core": core, "instructions": library.usable_isas()[-1]}
    times: dict[str, dict[str, float]] = {}
    types = {}
    for name, architecture in backends.architectures(options.widths).items():
        timing.progress(f"inference: {name}")
        shape = (1, *architecture.observation_shape)
        observation = rng.standard_normal(shape, np.float32)
        if architecture.pixels:
            observation = rng.integers(0, 256, shape).astype(np.uint8)
        sides, types[name], sizes = make_sides(
            architecture, backends.random_weights(architecture, rng), observation
        )
        figures = timing.latencies(sides, options.repeats)
        times[name] = {side: statistics.median(seconds) for side, seconds in figures.items()}
        record[name] = {"seconds": figures, "weight_bytes": sizes, "types": types[name]}
    _report(times, types, record, options.out)


def _report(
    times: Mapping[str, Mapping[str, float]],
    types: Mapping[str, Mapping[str, Mapping[str, str]]],
    record: Mapping[str, Any],
    out: str | None,
) -> None:
    columns = [side for side in next(iter(times.values())) if not side.startswith("floor")]
    rows = [
        [name, *(f"{1e6 * of[side]:.1f}" for side in columns)] for name, of in times.items()
    ]
    native = [f"native {bits}" for bits in _BITS.values()]
    ratios = [
        [
            name,
            *(f"{of[_REFERENCE] / of[side]:.2f}" for side in (*_PEERS, *native)),
            *(f"{1e6 * of[f'floor {bits}']:.1f}" for bits in _BITS.values()),
            *(f"{of[f'native {bits}'] / of[f'floor {bits}']:.2f}" for bits in _BITS.values()),
        ]
        for name, of in times.items()
    ]
    header = [
        "policy", *_PEERS, *native,
        *(f"floor {bits} (us)" for bits in _BITS.values()),
        *(f"{bits} / floor" for bits in _BITS.values()),
    ]
    notes = [
        f"native kernels for {record['instructions']}; one thread on one core; observation "
        f"[1, {backends.OBSERVATION_SIZE}] (Atari: [1, 84, 84, 4]); repeated passes keep the "
        "weights warm",
        "floor: reading the packed weights once, from memory that was written before",
        "types of Atari's layers: " + "; ".join(
            f"{side}: {', '.join(kinds.values())}"
            for side, kinds in types["Atari"].items() if side in ("torch int8", *native)
        ),
    ]
    timing.report(
        _NAME, "Microseconds for one observation (median of medians)", ["policy", *columns], rows,
        record, out, notes,
        more=[("Speed against torch eager fp32, and against the floor", header, ratios)],
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
