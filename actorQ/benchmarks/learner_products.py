"""Benchmark: ways to multiply in the learner's step, on one core.

    python -m actorQ.benchmarks.learner_products --out DIR
    python -m actorQ.benchmarks.learner_products --quick

There are three ways:

- TensorFlow's own kernels, its default on processors without AVX-512 and VNNI.
- oneDNN's kernels, which our learner asks for (`cli.use_onednn`).
- oneDNN's kernels on padded weights, which our learner takes where they are faster
  (`learner.device.choose_products`).

TensorFlow chooses its kernels when it is imported, so each kind has a process, on the same core.
The sides of a row run in turn. D4PG runs with cheetah_run's shapes, as in `benchmarks.learner`.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os
import statistics
from typing import NamedTuple

from actorQ.benchmarks import learner_sides
from actorQ.benchmarks import remote
from actorQ.core import cli
from actorQ.core import timing

_NAME = "learner_products"
_WINDOW_S = 0.8
_SHAPES = ((2048, 256), (2048, 64), (1024, 256), (512, 256), (256, 256), (256, 64))
_QUICK_SHAPES = ((1024, 8),)


class Way(NamedTuple):
    """One way to multiply.

    Attributes:
      name: Name in the table.
      onednn: Whether TensorFlow takes oneDNN's kernels.
      padded: Whether weights are padded.
    """

    name: str
    onednn: bool
    padded: bool

    def side(self, width: int, batch: int) -> learner_sides.Side:
        """Returns the learner to measure."""
        return learner_sides.Side(width, batch, padded=self.padded)


OWN = Way("TensorFlow's kernels", onednn=False, padded=False)
ONEDNN = Way("oneDNN", onednn=True, padded=False)
PADDED = Way("oneDNN, padded", onednn=True, padded=True)
WAYS = (OWN, ONEDNN, PADDED)


def prepare(onednn: bool, core: int) -> None:
    """Chooses kernels and sets up TensorFlow, in a process that has not imported it yet."""
    os.environ[cli.ONEDNN_VARIABLE] = str(int(onednn))
    learner_sides.set_up([core], 1)


def measure(
    processes: Mapping[Way, remote.Remote], width: int, batch: int, repeats: int
) -> dict[str, list[float]]:
    """Returns the seconds of a step in every round, by a way's name."""
    sides = {way: way.side(width, batch) for way in WAYS}
    for process in set(processes.values()):
        process.call(
            learner_sides.build, [sides[way] for way in WAYS if processes[way] is process]
        )

    def seconds_of(way: Way) -> float:
        return processes[way].call(learner_sides.measure, sides[way], _WINDOW_S).seconds

    return timing.interleave(
        {way.name: functools.partial(seconds_of, way) for way in WAYS}, repeats
    )


def row(width: int, batch: int, seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """Returns a row of the table.

    Args:
      width: Units of the policy's hidden layers.
      batch: Transitions in one learner step.
      seconds: Seconds of a step in every round, by a way's name.
    """
    own = seconds[OWN.name]
    ratios = [
        statistics.median(a / b for a, b in zip(own, seconds[way.name], strict=True))
        for way in WAYS[1:]
    ]
    return [
        f"3x{width}", str(batch),
        *(f"{1e3 * statistics.median(seconds[way.name]):.1f}" for way in WAYS),
        *(f"{ratio:.2f}" for ratio in ratios),
    ]


def main(arguments: Sequence[str]) -> None:
    """Measures all ways and prints the table."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=5)
    parser.add_argument(
        "--quick", action="store_true", help="Measure one shape for a short time."
    )
    options = timing.parse(parser, arguments, repeats=2)
    (core,) = timing.pin(1)
    rows, record = [], {}
    with remote.remotes([core, core]) as (without, with_it):
        without.call(prepare, False, core)
        with_it.call(prepare, True, core)
        processes = {way: with_it if way.onednn else without for way in WAYS}
        for width, batch in _QUICK_SHAPES if options.quick else _SHAPES:
            timing.progress(f"{_NAME}: 3x{width}, batch {batch}")
            seconds = measure(processes, width, batch, options.repeats)
            record[f"3x{width}, {batch}"] = seconds
            rows.append(row(width, batch, seconds))
    timing.report(
        _NAME,
        "Milliseconds of a learner's step on one core, by its matrix products",
        ["policy", "batch", *(way.name for way in WAYS),
         *(f"{way.name}: times as fast" for way in WAYS[1:])],
        rows,
        {"repeats": options.repeats, "seconds": record},
        options.out,
        notes=[
            "TensorFlow's kernels: its default on a processor without AVX-512",
            "padded: our learner pads by itself where that is faster on the widest layer; only "
            "layers with rows of a multiple of 1024 floats are padded (the critic's have 512)",
            "one batch from memory, again and again; the whole step, optimizer included",
        ],
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
