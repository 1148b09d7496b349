"""Predicts the rates of a training from short runs in which nobody waits for anybody.

In such a run, with one actor, the learner takes as many batches as it can. A real run differs in
the number of actors, and in its limit of samples per insert. All times are CPU seconds, which are
what processes share. Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from actorQ.benchmarks import short_runs

_ROUNDS = 50  # Rounds until rates that depend on each other have settled.
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
    """Tells what work costs, in CPU seconds.

    Attributes:
      learner_step_s: Of a learner step.
      insert_s: Of a transition, in the learner's process, which holds the server.
      actor_step_s: Of an environment step, by precision and environments of an actor.
      actor_rate: Environment steps/s of one actor with a core of its own, likewise.
    """

    learner_step_s: float
    insert_s: float
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

    The learner's process spends its time on steps and on inserts. Runs at several precisions have
    different numbers of both, so that least squares tell the two costs apart.

    Args:
      measured: Rates of runs without a limit of samples; at least two precisions.
    """
    steps = [rates.learner_steps_per_s for rates in measured.values()]
    inserts = [rates.actor_steps_per_s for rates in measured.values()]
    spent = [
        1e-3 * rates.learner_cpu_ms * rates.learner_steps_per_s for rates in measured.values()
    ]
    step_s, insert_s = _least_squares(steps, inserts, spent)
    return Costs(
        step_s, insert_s,
        {(crew.bits, crew.environments): 1e-6 * rates.actor_cpu_us
         for crew, rates in measured.items()},
        {(crew.bits, crew.environments): rates.actor_steps_per_s / crew.actors
         for crew, rates in measured.items()},
    )


def _least_squares(
    first: Sequence[float], second: Sequence[float], results: Sequence[float]
) -> tuple[float, float]:
    """Returns a and b, neither negative, so that a * first + b * second is nearest to results."""

    def dot(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    determinant = dot(first, first) * dot(second, second) - dot(first, second) ** 2
    if determinant > 0:
        a = dot(first, results) * dot(second, second) - dot(second, results) * dot(first, second)
        b = dot(second, results) * dot(first, first) - dot(first, results) * dot(first, second)
        if a > 0 and b > 0:
            return a / determinant, b / determinant
    return dot(first, results) / dot(first, first), 0.0


def predict(
    found: Costs, crew: Crew, cores: int, threads: int, samples_per_insert: float, batch_size: int
) -> Prediction:
    """Returns the rates of a training.

    Args:
      found: What work costs.
      crew: The actors; their precision and environments have been measured.
      cores: Cores of the machine.
      threads: Cores that the learner may take.
      samples_per_insert: Limit of samples for each transition; 0 for none.
      batch_size: Transitions in a learner step.
    """
    side = crew.bits, crew.environments
    step_s, most = found.actor_step_s[side], crew.actors * found.actor_rate[side]
    # The system shares cores fairly among processes that all have work to do.
    learner_share = min(float(threads), cores / (crew.actors + 1))
    acting = min(most, (cores - learner_share) / step_s)
    learning = 0.0
    for _ in range(_ROUNDS):
        able = max(0.0, learner_share - acting * found.insert_s) / found.learner_step_s
        allowed = samples_per_insert * acting / batch_size if samples_per_insert else able
        learning = min(able, allowed)
        # Actors take the time of a learner that waits for data.
        taken = learning * found.learner_step_s + acting * found.insert_s
        acting = (acting + min(most, (cores - taken) / step_s)) / 2
    return Prediction(acting, learning, learning / allowed if allowed else 1.0)


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
