"""Measures this machine for a minute and a half, and says which precision and actors to take.

    python -m actorQ.advise --taskstr=dm_control,cheetah_run --model_str=2048,2048,2048

It takes the flags of a training. Short runs of that training, in which the learner never waits for
data, show what a learner step, an insert and an environment step cost. From these follow the rates
of other numbers of actors, and of the training's own samples per insert. Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import sys

from absl import flags

from actorQ.benchmarks import prediction
from actorQ.benchmarks import short_runs
from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import precisions
from actorQ.core import provenance

_SECONDS = 6.0  # Length of the measured stretch of each run.
_MANY = 4  # Environments of an actor that has several.
_ALL_USED = 0.95  # A learner that takes less of its actors' data is the slow part.
_FIRST_TRANSITIONS = 2000  # Transitions with which learning begins in the short runs.


@dataclasses.dataclass(frozen=True)
class Unlimited:
    """A training in which the learner never waits for data."""

    config: config_lib.RunConfig
    crew: prediction.Crew

    def flags(self, folder: str) -> list[str]:
        """Returns the launcher's flags."""
        config = dataclasses.replace(
            self.config, n_actors=self.crew.actors, quantize=self.crew.bits,
            envs_per_actor=self.crew.environments, samples_per_insert=0.0,
            replay_table_max_times_sampled=0, min_replay_size=_FIRST_TRANSITIONS,
        )
        return [*config_flags.to_flags(config), *short_runs.run_flags(folder)]


def measure(config: config_lib.RunConfig) -> dict[prediction.Crew, short_runs.Rates]:
    """Returns the rates of short runs with one actor each, by precision and environments.

    Raises:
      errors.UserError: A run failed.
    """
    crews = [prediction.Crew(1, bits) for bits in _bits(config)]
    crews.append(prediction.Crew(1, 8, _MANY))
    found = {}
    for crew in crews:
        print(f"Measuring {_name(crew)} ...", file=sys.stderr, flush=True)
        found[crew] = short_runs.measure(Unlimited(config, crew), _SECONDS)
    return found


def predict(
    config: config_lib.RunConfig, found: prediction.Costs, crews: Sequence[prediction.Crew]
) -> dict[prediction.Crew, prediction.Prediction]:
    """Returns the rates of a training with each of the crews on this machine."""
    cores = provenance.usable_cores()
    return {
        crew: prediction.predict(
            found, crew, cores, config.learner_threads or max(1, cores - crew.actors),
            config.most_samples_per_insert, config.batch_size,
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
    sides = [(bits, 1) for bits in _bits(config)] + [(8, _MANY)]
    return [prediction.Crew(number, *side) for number in numbers for side in sides]


def table(predictions: Mapping[prediction.Crew, prediction.Prediction]) -> str:
    """Returns the predictions as a Markdown table."""
    rows = []
    for crew, found in predictions.items():
        wide = predictions[prediction.Crew(crew.actors, 32)]
        rows.append([
            f"{crew.actors} x {_name(crew)}", f"{found.actor_steps_per_s:,.0f}",
            f"{found.learner_steps_per_s:.2f}",
            f"{found.learner_steps_per_s / wide.learner_steps_per_s:.2f}",
            f"{found.data_used:.0%}",
        ])
    head = ["Actors", "environment steps/s", "learner steps/s", "x fp32", "data used"]
    return output.markdown_table(head, rows)


def _bits(config: config_lib.RunConfig) -> tuple[int, ...]:
    return (32, 8) if config.inference_mode == "pytorch" else (32, 8, 4)


def _name(crew: prediction.Crew) -> str:
    many = f", {crew.environments} environments" if crew.environments > 1 else ""
    return f"{precisions.NAMES[crew.bits]}{many}"


def main(argv: list[str]) -> int:
    """Measures and advises; see `cli.run` for errors."""
    del argv
    config = config_flags.from_flags()
    cores = provenance.usable_cores()
    if cores < 2:
        raise errors.UserError("A training wants two cores or more: one is usable here.")
    found = prediction.costs(measure(config))
    predictions = predict(config, found, crews_for(config, cores))
    print(
        f"{config.taskstr}, policy {config.model_str}, batch {config.batch_size}, "
        f"{config.most_samples_per_insert:g} samples per insert at most, {cores} cores:\n"
    )
    print(table(predictions))
    print(
        f"A learner step takes {1e3 * found.learner_step_s:.1f} ms, and a transition "
        f"{1e6 * found.insert_s:.0f} us of the learner's core."
    )
    choice = prediction.best(predictions)
    print(
        f"Best: --n_actors={choice.actors} --quantize={choice.bits} "
        f"--envs_per_actor={choice.environments}"
    )
    used = predictions[choice].data_used
    if used < _ALL_USED:
        print(
            "There the learner is the slow part: faster actors bring more data, but no more "
            "learner steps. They would count from "
            f"--samples_per_insert={used * config.most_samples_per_insert:.2g} downwards."
        )
    return 0


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main, name="advise")
