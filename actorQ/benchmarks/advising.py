"""Measures what `prediction` needs with short runs of a training, and predicts for this machine.

Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import sys

from actorQ.benchmarks import prediction
from actorQ.benchmarks import short_runs
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import output
from actorQ.core import precisions
from actorQ.core import provenance

_SECONDS = 6.0  # Length of the measured stretch of each run.
_MANY = 4  # Environments of an actor that has several.
_FIRST_TRANSITIONS = 2000  # Transitions with which learning begins in the short runs.


@dataclasses.dataclass(frozen=True)
class Unlimited:
    """A training in which the learner never waits for data."""

    config: config_lib.RunConfig
    crew: prediction.Crew

    def flags(self, folder: str) -> list[str]:
        """Returns the launcher's flags."""
        config = dataclasses.replace(
            self.config, samples_per_insert=0.0, replay_table_max_times_sampled=0,
            min_replay_size=_FIRST_TRANSITIONS,
        )
        return flags_of(config, self.crew, folder)


def flags_of(config: config_lib.RunConfig, crew: prediction.Crew, folder: str) -> list[str]:
    """Returns the launcher's flags for a training that is measured.

    Args:
      config: Configuration of the training.
      crew: Its actors.
      folder: Folder for the run's folder.
    """
    config = dataclasses.replace(
        config, n_actors=crew.actors, quantize=crew.bits, envs_per_actor=crew.environments
    )
    return [*config_flags.to_flags(config), *short_runs.run_flags(folder)]


def measure(
    config: config_lib.RunConfig, seconds: float = _SECONDS
) -> dict[prediction.Crew, short_runs.Rates]:
    """Returns the rates of short runs with one actor each, by precision and environments.

    Args:
      config: Configuration of the training.
      seconds: Length of each measured stretch.

    Raises:
      errors.UserError: A run failed.
    """
    crews = [prediction.Crew(1, bits) for bits in bits_of(config)]
    crews.append(prediction.Crew(1, 8, _MANY))
    found = {}
    for crew in crews:
        print(f"Measuring {name_of(crew)} ...", file=sys.stderr, flush=True)
        found[crew] = short_runs.measure(Unlimited(config, crew), seconds)
    return found


def predict(
    config: config_lib.RunConfig, found: prediction.Costs, crews: Sequence[prediction.Crew]
) -> dict[prediction.Crew, prediction.Prediction]:
    """Returns the rates of a training with each of the crews on this machine."""
    cores = provenance.usable_cores()
    return {
        crew: prediction.predict(
            found, crew, cores, config.most_samples_per_insert, config.batch_size
        )
        for crew in crews
    }


def crews_for(
    config: config_lib.RunConfig, cores: int
) -> list[prediction.Crew]:
    """Returns crews of 1, 2, 4 and more actors, up to one for each core and at least two."""
    numbers = [1, 2]
    while numbers[-1] * 2 < cores:
        numbers.append(numbers[-1] * 2)
    if cores - 1 > numbers[-1]:
        numbers.append(cores - 1)
    sides = [(bits, 1) for bits in bits_of(config)] + [(8, _MANY)]
    return [prediction.Crew(number, *side) for number in numbers for side in sides]


def table(predictions: Mapping[prediction.Crew, prediction.Prediction]) -> str:
    """Returns the predictions as a Markdown table."""
    rows = []
    for crew, found in predictions.items():
        wide = predictions[prediction.Crew(crew.actors, 32)]
        rows.append([
            f"{crew.actors} x {name_of(crew)}", f"{found.actor_steps_per_s:,.0f}",
            f"{found.learner_steps_per_s:.2f}",
            f"{found.learner_steps_per_s / wide.learner_steps_per_s:.2f}",
            f"{found.data_used:.0%}",
        ])
    head = ["Actors", "environment steps/s", "learner steps/s", "x fp32", "data used"]
    return output.markdown_table(head, rows)


def bits_of(config: config_lib.RunConfig) -> tuple[int, ...]:
    """Returns the precisions to measure."""
    return (32, 8) if config.inference_mode == "pytorch" else (32, 8, 4)


def name_of(crew: prediction.Crew) -> str:
    """Returns the crew's precision, and environments where an actor has several."""
    many = f", {crew.environments} environments" if crew.environments > 1 else ""
    return f"{precisions.NAMES[crew.bits]}{many}"
