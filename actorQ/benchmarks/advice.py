"""Benchmark 6: the rates that `actorQ.advise` predicts, beside those of real runs.

    python -m actorQ.benchmarks.advice --out DIR

Each pair of task and model is measured as `advise` measures it. Then trainings with the pair's own
samples per insert run for some seconds, in fp32 and int8, with one actor and with two.
"""

from collections.abc import Sequence
import dataclasses
import statistics
from typing import Any

from actorQ.benchmarks import advising
from actorQ.benchmarks import prediction
from actorQ.benchmarks import short_runs
from actorQ.core import config as config_lib
from actorQ.core import presets
from actorQ.core import timing

_NAME = "advice"
# Before it learns, a run gathers transitions, and then takes samples of these faster than new ones
# allow. After this time that has mostly ended.
_SETTLE_S = 12.0
_CREWS = (
    prediction.Crew(1, 32), prediction.Crew(1, 8), prediction.Crew(2, 32), prediction.Crew(2, 8),
)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A task and a model, with the samples per insert and the batch of their trainings."""

    task: str
    model: str
    samples_per_insert: float
    batch_size: int = 128

    @property
    def config(self) -> config_lib.RunConfig:
        """The configuration of the trainings, with the fallback's other settings."""
        settings = presets.resolve(presets.FALLBACK, self.task) | {
            "preset": presets.FALLBACK, "taskstr": self.task, "model_str": self.model,
            "samples_per_insert": self.samples_per_insert, "batch_size": self.batch_size,
            "learner_device_placement": "CPU",
        }
        return config_lib.RunConfig(**settings)


_WIDE = "2048,2048,2048"
PAIRS = (
    Pair("dm_control,cheetah_run", _WIDE, 0.25),
    Pair("dm_control,walker_stand", _WIDE, 0.45, 64),
    Pair("gym,Acrobot-v1", _WIDE, 0.3, 256),
    Pair("dm_control,finger_spin", "1024,1024,1024", 0.5),
    Pair("dm_control,humanoid_walk", "512,512,512", 2.0),
    Pair("dm_control,cartpole_balance", "256,256,256", 32.0),
    Pair("mujoco,Hopper-v5", "256,256", 4.0),
    Pair("gym,LunarLander-v3", "256,256", 32.0),
    Pair("gym,CartPole-v1", "256,256", 2.0),
    Pair("gym,Pendulum-v1", "64,64", 1.0),
)
_QUICK_PAIRS = (Pair("gym,Pendulum-v1", "16,16", 1.0),)


@dataclasses.dataclass(frozen=True)
class Limited:
    """A training with the pair's own samples per insert."""

    config: config_lib.RunConfig
    crew: prediction.Crew

    def flags(self, folder: str) -> list[str]:
        """Returns the launcher's flags."""
        return advising.flags_of(self.config, self.crew, folder)


@dataclasses.dataclass(frozen=True)
class Row:
    """Learner steps/s of a crew, predicted and measured."""

    pair: Pair
    crew: prediction.Crew
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Size of the error, as a share of what was measured."""
        return abs(self.predicted / self.measured - 1)


def compare(
    pair: Pair, crews: Sequence[prediction.Crew], seconds: float
) -> tuple[list[Row], dict[prediction.Crew, short_runs.Rates]]:
    """Returns predicted and measured rates of a pair, and those that the prediction is made of.

    Args:
      pair: Task and model.
      crews: The actors of the trainings.
      seconds: Length of each measured stretch.
    """
    config = pair.config
    measured = advising.measure(config, seconds)
    predictions = advising.predict(config, prediction.costs(measured), crews)
    rows = []
    for crew in crews:
        rates = short_runs.measure(Limited(config, crew), seconds, _SETTLE_S)
        predicted = predictions[crew].learner_steps_per_s
        rows.append(Row(pair, crew, predicted, rates.learner_steps_per_s))
        timing.progress(
            f"{_NAME}: {pair.task}, {crew.actors} actors, {crew.bits} bits: {predicted:.2f} "
            f"predicted, {rates.learner_steps_per_s:.2f} measured"
        )
    return rows, measured


def main(argv: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=None)
    parser.add_argument(
        "--seconds", type=timing.positive, default=6, metavar="S",
        help="Length of each measured stretch, seconds (default: %(default)s).",
    )
    parser.add_argument(
        "--quick", action="store_true", help="Measure one small pair with one actor for 2 s each."
    )
    arguments = timing.parse(parser, argv, seconds=2)
    cores = timing.pin(2)
    pairs, crews = (_QUICK_PAIRS, _CREWS[:2]) if arguments.quick else (PAIRS, _CREWS)
    rows: list[Row] = []
    records = []
    for pair in pairs:
        found, measured = compare(pair, crews, arguments.seconds)
        rows += found
        records.append({
            "pair": dataclasses.asdict(pair),
            "runs": [
                {"crew": dataclasses.asdict(crew), **dataclasses.asdict(rates)}
                for crew, rates in measured.items()
            ],
        })
    _report(rows, records, arguments, cores)


def _report(
    rows: Sequence[Row], records: Sequence[Any], arguments: Any, cores: list[int]
) -> None:
    cells = []
    for row in rows:
        wide = dataclasses.replace(row.crew, bits=32)
        base = next(other for other in rows if (other.pair, other.crew) == (row.pair, wide))
        cells.append([
            row.pair.task, row.pair.model, f"{row.pair.samples_per_insert:g}",
            str(row.pair.batch_size), str(row.crew.actors), str(row.crew.bits),
            f"{row.predicted:.2f}", f"{row.measured:.2f}", f"{row.error:.0%}",
            f"{row.predicted / base.predicted:.2f}", f"{row.measured / base.measured:.2f}",
        ])
    timing.report(
        _NAME,
        f"learner steps/s, predicted and measured; all processes on {len(cores)} cores",
        ("task", "model", "samples per insert", "batch", "actors", "bits", "predicted", "measured",
         "error", "speed-up predicted", "measured"),
        cells,
        {"rows": [
            {**dataclasses.asdict(row), "error": row.error} for row in rows
        ], "short_runs": records},
        arguments.out,
        notes=(
            f"The mean error is {statistics.mean(row.error for row in rows):.1%}.",
            "Predictions come from short runs in which the learner never waits for data.",
        ),
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
