"""Benchmark 4: the learner's step, by precision and optimizer, fed by Reverb, and publishing.

    python -m actorQ.benchmarks.learner --out DIR
    python -m actorQ.benchmarks.learner --device GPU --out DIR
    python -m actorQ.benchmarks.learner --quick

D4PG runs with cheetah_run's shapes, three hidden layers in the policy and the default critic. Every
number of threads has processes of its own. All sides of a row run in turn, and a ratio is the
median of the rounds' ratios. On a GPU the benchmark takes all cores, and compares programs alone.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import statistics
from typing import Any
from typing import NamedTuple

from actorQ.benchmarks import learner_sides
from actorQ.benchmarks import remote
from actorQ.benchmarks.learner_sides import Side
from actorQ.core import provenance
from actorQ.core import timing

_NAME = "learner"
_CORES = 2
_PEAK_SIZE = 2048
_READERS = (1, 2, 3)  # Threads that form batches.
_FLOAT32, _BFLOAT16 = "float32", "bfloat16"


class Placement(NamedTuple):
    """Cores of a learner's process, and threads of its TensorFlow."""

    cores: int
    threads: int

    @property
    def name(self) -> str:
        """The placement's name in the tables."""
        return f"{self.cores} / {self.threads}"


ONE_CORE = Placement(1, 1)
ONE_THREAD = Placement(2, 1)  # The default of a learner beside one actor on two cores.
ALL_THREADS = Placement(2, 2)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The rows to measure, and the length of a measurement.

    Attributes:
      shapes: Width and batch of the rows.
      placements: Placements in the order of the rows.
      window_s: Seconds of one measurement.
      push_window_s: Seconds of one beside publishing, where pushes may come every two seconds.
      steps_per_call: Learner steps in a call of the sides that make several.
      device: CPU or GPU. On a GPU the programs are the only rows.
    """

    shapes: Sequence[tuple[int, int]] = ((2048, 256), (2048, 64), (256, 256), (256, 64))
    placements: Sequence[Placement] = (ONE_CORE, ONE_THREAD, ALL_THREADS)
    window_s: float = 0.8
    push_window_s: float = 15.0
    steps_per_call: int = 8
    device: str = "CPU"

    def sides(self, placement: Placement, width: int, batch: int) -> list[Side]:
        """Returns the sides of a row."""
        plain = Side(width, batch)
        sides = [plain]
        if placement != ONE_THREAD:
            sides += [
                dataclasses.replace(plain, precision=precision, optimizer=optimizer)
                for precision, optimizer in (
                    (_FLOAT32, learner_sides.SONNET), (_BFLOAT16, learner_sides.SONNET),
                    (_BFLOAT16, learner_sides.FUSED),
                )
            ]
        if placement != ONE_CORE:
            sides.append(dataclasses.replace(plain, source=learner_sides.REVERB))
        return sides

    def programs(self, width: int, batch: int, source: str) -> list[Side]:
        """Returns a step as before, as one program, and several steps a call of both kinds."""
        plain = Side(width, batch, source=source, device=self.device)
        one_program = dataclasses.replace(plain, compiled=True)
        return [
            plain, one_program,
            *(
                dataclasses.replace(side, steps_per_call=self.steps_per_call)
                for side in (plain, one_program)
            ),
        ]

    @property
    def publishing(self) -> list[list[Side]]:
        """Pairs of sides without and with publishing, for the largest batch of every width."""
        pairs = []
        for width in dict.fromkeys(width for width, _ in self.shapes):
            batch = max(batch for w, batch in self.shapes if w == width)
            pairs.append([
                Side(width, batch, source=source)
                for source in (learner_sides.REVERB, learner_sides.PUBLISHING)
            ])
        return pairs


QUICK = Plan(((256, 64),), (ALL_THREADS,), 0.2, 0.6)


class Figures:
    """Seconds and CPU seconds per step of every side, in the order of the rounds."""

    def __init__(self, process: remote.Remote, sides: list[Side], repeats: int, window_s: float):
        """Builds the sides in `process` and measures them in turn."""
        process.call(learner_sides.build, sides)
        self._laps: dict[Side, list[learner_sides.Lap]] = timing.interleave(
            {
                side: functools.partial(process.call, learner_sides.measure, side, window_s)
                for side in sides
            },
            repeats,
        )

    def seconds(self, side: Side) -> float:
        """Returns the median seconds of a step."""
        return statistics.median(lap.seconds for lap in self._laps[side])

    def cpu(self, side: Side) -> float:
        """Returns the median CPU seconds of a step."""
        return statistics.median(lap.cpu_seconds for lap in self._laps[side])

    def speedup(self, side: Side, reference: Side) -> float:
        """Returns how many steps `side` makes for one of `reference`."""
        return statistics.median(
            b.seconds / a.seconds
            for a, b in zip(self._laps[side], self._laps[reference], strict=True)
        )

    def record(self) -> list[dict[str, Any]]:
        """Returns everything as plain data."""
        return [
            {
                **dataclasses.asdict(side),
                "seconds": [lap.seconds for lap in laps],
                "cpu_seconds": [lap.cpu_seconds for lap in laps],
            }
            for side, laps in self._laps.items()
        ]


def variant_cells(
    side: Side, figures: Figures, peaks: Mapping[str, float]
) -> list[str]:
    """Returns a row of the table of precisions and optimizers, without its heading cells.

    Args:
      side: The float32, fused side.
      figures: Figures of its row.
      peaks: FLOP/s of large matrix products, by precision.
    """
    reference = dataclasses.replace(side, optimizer=learner_sides.SONNET)
    halves = dataclasses.replace(reference, precision=_BFLOAT16)
    both = dataclasses.replace(side, precision=_BFLOAT16)
    cells = [f"{1 / figures.seconds(s):.1f}" for s in (reference, side, halves, both)]
    cells += [f"{figures.speedup(s, reference):.2f}" for s in (side, halves, both)]
    cells.append(f"{figures.speedup(both, side):.2f}")
    for variant in (side, both):
        rate = side.products_flop / figures.seconds(variant)
        cells.append(f"{rate / 1e9:.0f} ({rate / peaks[variant.precision]:.0%})")
    return cells


def fed_cells(side: Side, figures: Figures) -> list[str]:
    """Returns a row of the table of sources, without its heading cells."""
    fed = dataclasses.replace(side, source=learner_sides.REVERB)
    return [
        *(f"{1 / figures.seconds(s):.1f}" for s in (side, fed)),
        f"{figures.speedup(fed, side):.3f}",
        *(f"{1e3 * figures.cpu(s):.2f}" for s in (side, fed)),
    ]


def program_cells(sides: Sequence[Side], figures: Figures) -> list[str]:
    """Returns a row of the table of programs, without its heading cells."""
    return [
        *(f"{1 / figures.seconds(side):.1f}" for side in sides),
        *(f"{figures.speedup(side, sides[0]):.2f}" for side in sides[1:]),
    ]


class Bench:
    """Runs a plan.

    Attributes:
      variants: Rows of the table of precisions and optimizers.
      fed: Rows of the table of sources.
      programs: Rows of the table of programs.
      delivered: Rows of the table of batches without a step.
      publishing: Rows of the table of publishing.
      record: Raw figures.
    """

    def __init__(self, plan: Plan, repeats: int, cores: Sequence[int]):
        """Measures everything.

        Args:
          plan: Rows to measure.
          repeats: Number of rounds.
          cores: Cores that the benchmark may use, at least two.
        """
        self._plan = plan
        self._repeats = repeats
        self.variants: list[list[str]] = []
        self.fed: list[list[str]] = []
        self.programs: list[list[str]] = []
        self.delivered: list[list[str]] = []
        self.publishing: list[list[str]] = []
        self.record: dict[str, Any] = {}
        for placement in plan.placements:
            chosen = list(cores[-placement.cores:])
            on_gpu = plan.device == "GPU"
            with remote.remotes([chosen[-1]] * 2, gpu=on_gpu) as (process, other):
                process.call(learner_sides.set_up, chosen, placement.threads, plan.device)
                port = process.call(learner_sides.serve)
                self._deliver(process, placement)
                if placement != ONE_CORE:
                    self._programs(process, placement)
                if on_gpu:
                    continue
                self._rows(process, placement)
                if placement == ALL_THREADS:
                    other.call(learner_sides.set_up, chosen, 1)
                    other.call(learner_sides.drain, port)
                    self._publish(process)

    def _rows(self, process: remote.Remote, placement: Placement) -> None:
        peaks = {
            precision: process.call(
                learner_sides.products_per_s, precision, _PEAK_SIZE, self._plan.window_s
            )
            for precision in (_FLOAT32, _BFLOAT16)
        }
        of_placement: dict[str, Any] = {"peak_flop_per_s": peaks}
        self.record[placement.name] = of_placement
        for width, batch in self._plan.shapes:
            timing.progress(f"learner: cores / threads {placement.name}, 3x{width}, batch {batch}")
            sides = self._plan.sides(placement, width, batch)
            figures = Figures(process, sides, self._repeats, self._plan.window_s)
            of_placement[f"3x{width}, {batch}"] = figures.record()
            head = [placement.name, f"3x{width}", str(batch)]
            if placement != ONE_THREAD:
                self.variants.append(head + variant_cells(sides[0], figures, peaks))
            if placement != ONE_CORE:
                self.fed.append(head + fed_cells(sides[0], figures))

    def _programs(self, process: remote.Remote, placement: Placement) -> None:
        of_programs = self.record.setdefault("programs", {}).setdefault(placement.name, {})
        for width, batch in self._plan.shapes:
            for source in (learner_sides.MEMORY, learner_sides.REVERB):
                timing.progress(
                    f"learner: programs, cores / threads {placement.name}, 3x{width}, batch "
                    f"{batch}, {source}"
                )
                sides = self._plan.programs(width, batch, source)
                figures = Figures(process, sides, self._repeats, self._plan.window_s)
                of_programs[f"3x{width}, {batch}, {source}"] = figures.record()
                self.programs.append([
                    placement.name, f"3x{width}", str(batch), source,
                    *program_cells(sides, figures),
                ])

    def _deliver(self, process: remote.Remote, placement: Placement) -> None:
        of_delivery = self.record.setdefault("delivered", {}).setdefault(placement.name, {})
        width = self._plan.shapes[0][0]  # No policy is made.
        for batch in dict.fromkeys(batch for _, batch in self._plan.shapes):
            timing.progress(f"learner: batches alone, cores / threads {placement.name}, {batch}")
            plain = Side(width, batch, source=learner_sides.REVERB)
            sides = [
                dataclasses.replace(plain, device=device, readers=readers)
                for device in dict.fromkeys(("CPU", self._plan.device)) for readers in _READERS
            ]
            laps: dict[Side, list[learner_sides.Lap]] = {side: [] for side in sides}
            for side in sides * self._repeats:
                laps[side].append(process.call(learner_sides.deliver, side, self._plan.window_s))
            for side in sides:
                of_delivery[f"{batch}, {side.device}, {side.readers}"] = [
                    lap._asdict() for lap in laps[side]
                ]
                seconds, cpu_seconds = map(statistics.median, zip(*laps[side], strict=True))
                self.delivered.append([
                    placement.name, str(batch), side.device, str(side.readers),
                    f"{1 / seconds:.0f}", f"{1e3 * cpu_seconds:.2f}",
                    f"{1e6 * cpu_seconds / batch:.1f}",
                ])

    def _publish(self, process: remote.Remote) -> None:
        of_publishing = self.record.setdefault("publishing", {})
        for pair in self._plan.publishing:
            without, with_it = pair
            timing.progress(f"learner: publishing, 3x{without.width}, batch {without.batch}")
            figures = Figures(process, pair, self._repeats, self._plan.push_window_s)
            pushes = process.call(learner_sides.pushes, with_it)
            measured_s = self._repeats * self._plan.push_window_s
            of_publishing[f"3x{without.width}"] = {"sides": figures.record(), "pushes": pushes}
            self.publishing.append([
                f"3x{without.width}", str(without.batch),
                *(f"{1 / figures.seconds(side):.1f}" for side in pair),
                f"{1 - figures.speedup(with_it, without):.1%}",
                *(f"{1e3 * figures.cpu(side):.2f}" for side in pair),
                f"{pushes / measured_s:.2f}",
            ])


def main(arguments: Sequence[str]) -> None:
    """Measures the learner's step and prints the tables."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=5)
    parser.add_argument(
        "--quick", action="store_true", help="Measure one small network for a short time."
    )
    timing.add_device(parser)
    options = timing.parse(parser, arguments, repeats=2)
    plan = QUICK if options.quick else Plan()
    cores = timing.pin(_CORES if options.device == "CPU" else provenance.usable_cores())
    if options.device == "GPU":
        everything = Placement(len(cores), len(cores))
        plan = dataclasses.replace(plan, placements=(everything,), device=options.device)
    bench = Bench(plan, options.repeats, cores)
    head = ["cores / threads", "policy", "batch"]
    programs = (
        f"Steps per second by program, {options.device}",
        [*head, "source", "as before", "one program", f"{plan.steps_per_call} steps a call",
         f"one program, {plan.steps_per_call} steps a call", "one program / as before",
         f"{plan.steps_per_call} steps a call / as before", "both / as before"],
        bench.programs,
    )
    delivered = (
        "Batches per second that replay delivers, without a learner",
        ["cores / threads", "batch", "memory of", "readers", "batches/s", "CPU ms a batch",
         "CPU us a transition"],
        bench.delivered,
    )
    if options.device == "GPU":
        title, columns, rows = programs
        timing.report(
            _NAME, title, columns, rows, {"repeats": options.repeats, **bench.record}, options.out,
            more=[delivered],
        )
        return
    variants = ["fp32 Sonnet", "fp32 fused", "bf16 Sonnet", "bf16 fused"]
    peaks = "; ".join(
        f"{name}: " + ", ".join(
            f"{precision} {rate / 1e9:.0f}" for precision, rate in of["peak_flop_per_s"].items()
        )
        for name, of in bench.record.items() if "peak_flop_per_s" in of
    )
    timing.report(
        _NAME,
        "Steps per second by precision of the products and optimizer, from memory",
        [*head, *variants, *(f"{name} / fp32 Sonnet" for name in variants[1:]),
         "bf16 fused / fp32 fused",
         "fp32 fused: GFLOP/s (of peak)", "bf16 fused: GFLOP/s (of peak)"],
        bench.variants,
        {"repeats": options.repeats, **bench.record},
        options.out,
        notes=[
            f"peak: [{_PEAK_SIZE}, {_PEAK_SIZE}] x [{_PEAK_SIZE}, {_PEAK_SIZE}] in TensorFlow on "
            f"the same cores / threads, GFLOP/s: {peaks}",
            "GFLOP/s of a step counts its matrix products only, and divides by the whole step",
            "threads: threads of one operation; TensorFlow works on two operations at a time in "
            "any case, so that one thread on two cores keeps both busy",
            "Sonnet: Acme's learner as it comes (tf.clip_by_global_norm, snt.optimizers.Adam)",
            "from memory: one batch again and again; Reverb: a server in the same process, "
            f"{learner_sides.TRANSITIONS} random transitions, no writers",
            "readers: threads that form batches",
            "CPU: CPU time of the learner's process, server and data threads included",
            "publishing: float32, at the default period, taken by a process on the same cores",
        ],
        more=[
            programs,
            delivered,
            (
                "Steps per second from memory and from Reverb (fp32 fused)",
                [*head, "memory", "Reverb", "Reverb / memory", "CPU ms a step, memory",
                 "CPU ms a step, Reverb"],
                bench.fed,
            ),
            (
                "Steps per second without and with publishing (fp32 fused, from Reverb, cores / "
                f"threads {ALL_THREADS.name})",
                ["policy", "batch", "without", "with", "lost", "CPU ms a step, without",
                 "CPU ms a step, with", "pushes a second"],
                bench.publishing,
            ),
        ],
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
