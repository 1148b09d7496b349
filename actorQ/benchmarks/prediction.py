"""Predicts the rates of a training from short runs in which nobody waits for anybody.

In such a run, with one actor, the learner takes as many batches as it can. A real run differs in
the number of actors, and in its limit of samples per insert. All times are CPU seconds, which are
what processes share. Imports no framework.
"""

from collections.abc import Mapping
import dataclasses
import statistics

from actorQ.benchmarks import short_runs

_ROUNDS = 50  # Rounds until rates that depend on each other have settled.
# A learner has several threads with work, and so gets more of a core than an actor does. Beside two
# actors on two cores it got 0.7 of a core (policies of 3x2048) to all of it (2x256).
_WEIGHT = 1.4
_SAME = 0.03  # Share by which learner rates must differ to count as different.


@dataclasses.dataclass(frozen=True)
class Crew:
    """Actors that act alike.

    Attributes:
      actors: Number of processes.
      bits: Precision of their policy.
      environments: Environments of each process.
    """

    actors: int
    bits: int
    environments: int = 1


@dataclasses.dataclass(frozen=True)
class Costs:
    """Tells what work costs.

    Attributes:
      learner_rate: Learner steps/s beside one actor, without waiting for data.
      learner_step_s: CPU seconds of the learner's process, which holds the server, for a step.
      actor_step_s: CPU seconds of an environment step, by precision and environments of an actor.
      actor_rate: Environment steps/s of one actor with a core of its own, likewise.
    """

    learner_rate: float
    learner_step_s: float
    actor_step_s: Mapping[tuple[int, int], float]
    actor_rate: Mapping[tuple[int, int], float]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The rates of a training.

    Attributes:
      actor_steps_per_s: Environment steps of all actors in a second.
      learner_steps_per_s: Learner steps in a second.
      data_used: Part of the allowed samples that the learner takes, at most 1.
    """

    actor_steps_per_s: float
    learner_steps_per_s: float
    data_used: float


def costs(measured: Mapping[Crew, short_runs.Rates]) -> Costs:
    """Returns what work costs in runs of one actor each.

    The learner's figures are medians over the runs. Inserts are in them, since the server's threads
    belong to the learner's process.

    Args:
      measured: Rates of runs without a limit of samples.
    """
    runs = measured.values()
    return Costs(
        statistics.median(rates.learner_steps_per_s for rates in runs),
        statistics.median(1e-3 * rates.learner_cpu_ms for rates in runs),
        {(crew.bits, crew.environments): 1e-6 * rates.actor_cpu_us
         for crew, rates in measured.items()},
        {(crew.bits, crew.environments): rates.actor_steps_per_s / crew.actors
         for crew, rates in measured.items()},
    )


def predict(
    found: Costs, crew: Crew, cores: int, samples_per_insert: float, batch_size: int
) -> Prediction:
    """Returns the rates of a training.

    Args:
      found: What work costs.
      crew: The actors; their precision and environments have been measured.
      cores: Cores of the machine.
      samples_per_insert: Limit of samples for each transition; 0 for none.
      batch_size: Transitions in a learner step.
    """
    side = crew.bits, crew.environments
    step_s, most = found.actor_step_s[side], crew.actors * found.actor_rate[side]
    # An actor takes one core at most. Where cores are short, the system shares them.
    share = max(cores - crew.actors, _WEIGHT * cores / (_WEIGHT + crew.actors))
    able = found.learner_rate * min(1.0, share / (found.learner_rate * found.learner_step_s))
    learning, acting = able, most
    for _ in range(_ROUNDS):
        allowed = samples_per_insert * acting / batch_size if samples_per_insert else able
        learning = min(able, allowed)
        # Actors take the time of a learner that waits for data.
        rest = cores - learning * found.learner_step_s
        acting = (acting + min(most, rest / step_s)) / 2
    return Prediction(acting, learning, learning / allowed)


def best(predictions: Mapping[Crew, Prediction]) -> Crew:
    """Returns the crew with the fastest learner; of equal ones the one with fewest processes."""
    top = max(found.learner_steps_per_s for found in predictions.values())
    good = [
        crew for crew, found in predictions.items()
        if found.learner_steps_per_s >= (1 - _SAME) * top
    ]
    fewest = min(crew.actors for crew in good)
    return max(
        (crew for crew in good if crew.actors == fewest),
        key=lambda crew: predictions[crew].actor_steps_per_s,
    )
