"""Measures this machine for a minute and a half, and says which precision and actors to take.

    python -m actorQ.advise --taskstr=dm_control,cheetah_run --model_str=2048,2048,2048

It takes the flags of a training. Short runs of that training, in which the learner never waits for
data, show what a learner step, an insert and an environment step cost. From these follow the rates
of other numbers of actors, and of the training's own samples per insert. Imports no framework.
"""

from absl import flags

from actorQ.benchmarks import advising
from actorQ.benchmarks import prediction
from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import provenance

_ALL_USED = 0.95  # A learner that takes less of its actors' data is the slow part.


def main(argv: list[str]) -> int:
    """Measures and advises; see `cli.run` for errors."""
    del argv
    config = config_flags.from_flags()
    cores = provenance.usable_cores()
    if cores < 2:
        raise errors.UserError("A training wants two cores or more: one is usable here.")
    found = prediction.costs(advising.measure(config))
    predictions = advising.predict(config, found, advising.crews_for(config, cores))
    print(
        f"{config.taskstr}, policy {config.model_str}, batch {config.batch_size}, "
        f"{config.most_samples_per_insert:g} samples per insert at most, {cores} cores:\n"
    )
    print(advising.table(predictions))
    print(
        f"A learner step takes {1e3 * found.learner_step_s:.1f} ms of CPU, the inserts of its "
        "time included."
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
