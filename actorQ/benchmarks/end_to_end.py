r"""Benchmark 5: whole runs, learner, broadcaster and actors together on two cores or more.

    python -m actorQ.benchmarks.end_to_end --out DIR
    python -m actorQ.benchmarks.end_to_end --cores 16 --device GPU --envs_per_actor 1 2 4 8 \
        --pin_cpus off on --out DIR

Every run is `./run_multiprocess.sh` itself, with a folder of its own and a free port. It gets some
seconds after the learner's begin, so that caches and queues fill. The steps of a stretch are then
counted from the run's logs, and the run is interrupted. Nothing is learned in so short a time.
"""

from collections.abc import Sequence
import dataclasses
import functools
import statistics
from typing import Any

from actorQ.benchmarks import short_runs
from actorQ.core import config as config_lib
from actorQ.core import precisions
from actorQ.core import timing

_NAME = "end_to_end"
_BITS = precisions.NAMES
_OFF, _ON = "off", "on"


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of one run."""

    actors: int
    bits: int
    model: str
    task: str
    inference_mode: str
    samples_per_insert: int
    batch_size: int
    environments: int
    device: str = "CPU"
    pinned: str = _OFF

    def flags(self, folder: str) -> list[str]:
        """Returns the launcher's flags."""
        return [
            f"--taskstr={self.task}",
            f"--model_str={self.model}", f"--n_actors={self.actors}", f"--quantize={self.bits}",
            f"--inference_mode={self.inference_mode}", f"--envs_per_actor={self.environments}",
            f"--replay_table_max_times_sampled={self.samples_per_insert}",
            f"--batch_size={self.batch_size}", f"--learner_device_placement={self.device}",
            f"--pin_cpus={int(self.pinned == _ON)}",
            *short_runs.run_flags(folder),
        ]


def main(argv: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=1)
    parser.add_argument(
        "--task", default="dm_control,cartpole_balance", metavar="TASK",
        help="Task as SUITE,TASK (default: %(default)s).",
    )
    parser.add_argument(
        "--model", default="1024,1024,1024", metavar="SIZES",
        help="Hidden layer sizes of the policy, units (default: %(default)s).",
    )
    parser.add_argument(
        "--batch_size", type=timing.positive, default=256, metavar="B",
        help="Transitions in one learner step (default: %(default)s).",
    )
    parser.add_argument(
        "--samples_per_insert", type=timing.positive, default=2, metavar="K",
        help="A transition is sampled so often (default: %(default)s, so that the learner needs "
        "many transitions).",
    )
    parser.add_argument(
        "--inference_mode", choices=config_lib.INFERENCE_MODES, default="native",
        help="Inference mode of the actors (default: %(default)s).",
    )
    parser.add_argument(
        "--actors", type=timing.positive, nargs="+", default=[1, 2, 4], metavar="N",
        help="Numbers of actors to measure runs with (default: 1 2 4).",
    )
    parser.add_argument(
        "--bits", type=int, choices=sorted(_BITS), nargs="+", default=[32, 8],
        help="Precisions of the actors, bits (default: 32 8).",
    )
    parser.add_argument(
        "--envs_per_actor", type=timing.positive, nargs="+", default=[1], metavar="N",
        help="Numbers of environments of one actor process (default: 1).",
    )
    parser.add_argument(
        "--cores", type=timing.positive, default=2, metavar="N",
        help="Cores for all processes together (default: %(default)s).",
    )
    parser.add_argument(
        "--pin_cpus", choices=(_OFF, _ON), nargs="+", default=[_OFF],
        help="Whether each actor is kept to a core of its own (default: off).",
    )
    timing.add_device(parser)
    parser.add_argument(
        "--seconds", type=timing.positive, default=15, help="Length of the measured stretch."
    )
    parser.add_argument(
        "--quick", action="store_true", help="Measure runs with one actor for 5 s each."
    )
    arguments = timing.parse(parser, argv, actors=[1], seconds=5)
    timing.pin(arguments.cores)
    runs = [
        Run(actors, bits, arguments.model, arguments.task, arguments.inference_mode,
            arguments.samples_per_insert, arguments.batch_size, environments, arguments.device,
            pinned)
        for actors in arguments.actors for environments in arguments.envs_per_actor
        for pinned in arguments.pin_cpus for bits in arguments.bits
    ]

    def rates_of(run: Run) -> short_runs.Rates:
        timing.progress(
            f"end_to_end: {run.actors} actors of {run.environments}, pinned {run.pinned}, "
            f"{_BITS[run.bits]}"
        )
        rates = short_runs.measure(run, arguments.seconds)
        timing.require_device(run.device, rates.learner_device)
        return rates

    found = timing.interleave(
        {run: functools.partial(rates_of, run) for run in runs}, arguments.repeats
    )
    _report(found, arguments)


def _report(found: dict[Run, list[short_runs.Rates]], arguments: Any) -> None:
    def median(run: Run, name: str) -> float:
        return statistics.median(getattr(rate, name) for rate in found[run])

    rows = []
    for run, measured in found.items():
        wide = dataclasses.replace(run, bits=32)
        ratios = [
            f"{median(run, name) / median(wide, name):.2f}" if wide in found else ""
            for name in ("actor_steps_per_s", "learner_steps_per_s")
        ]
        phases = [
            statistics.median(rate.phases_us[phase] for rate in measured)
            for phase in ("environment_s", "inference_s", "insert_s")
        ]
        rows.append([
            str(run.actors), str(run.environments), run.pinned, _BITS[run.bits],
            f"{median(run, 'actor_steps_per_s'):.0f}", ratios[0],
            f"{median(run, 'learner_steps_per_s'):.2f}", ratios[1],
            f"{median(run, 'actor_cpu_us'):.0f}", f"{median(run, 'learner_cpu_ms'):.1f}",
            *(f"{us:.0f}" for us in phases),
        ])
    timing.report(
        _NAME,
        f"{arguments.task}, policy {arguments.model}, batch {arguments.batch_size}, "
        f"{arguments.samples_per_insert} samples per insert, {arguments.inference_mode} inference, "
        f"learner on a {arguments.device}; all processes on {arguments.cores} cores",
        ("actors", "environments of each", "pinned", "precision", "actor steps/s", "x fp32",
         "learner steps/s", "x fp32", "actor CPU us/step", "learner CPU ms/step",
         "environment us", "inference us", "insert us"),
        rows,
        {"runs": [
            {**dataclasses.asdict(run), "rates": [dataclasses.asdict(rate) for rate in measured]}
            for run, measured in found.items()
        ]},
        arguments.out,
        notes=(
            "Figures are of the steady part of short runs, from their logs. CPU of actors counts "
            "all threads of their processes. The learner's process holds the Reverb server too.",
            "With few samples per insert the learner may wait for the actors, and its steps follow "
            "theirs.",
        ),
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
