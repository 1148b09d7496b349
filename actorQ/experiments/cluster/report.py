"""The results of a cluster's simulation: table, CSV and figures. Imports matplotlib only."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments.cluster import simulation
from actorQ.experiments.reports import reporting

SATURATED = 0.95  # Part of the learner's demand at which it counts as met.
_CLOSE = 0.99  # Part of the most steps at which more actors count as useless.
_EACH_UP_TO = 8  # Every number of actors up to this one is simulated.
_GROWTH = 1.25  # Above it, each number is so many times the one before.


@dataclasses.dataclass(frozen=True)
class Plan:
    """Clusters to be simulated."""

    # Makes a cluster of precision (bits), learner speed (steps/s), bandwidth (bytes/s) and number
    # of actors.
    make: Callable[[int, float, float, int], simulation.Cluster]
    precisions: Sequence[int]  # Precisions of the actors, bits.
    learner_speeds: Sequence[float]  # Speeds of the learner, steps/s.
    bandwidths: Sequence[float]  # Bandwidths of its link, bytes/s; `math.inf` for no limit.
    max_actors: int  # Most actors that are tried.
    seconds: float  # Simulated seconds that are measured, at least.
    seed: int  # Seed of the simulations.


@dataclasses.dataclass(frozen=True)
class Answer:
    """Holds how many actors saturate a learner."""

    precision: int  # Precision of the actors, bits.
    learner_speed: float  # Speed of the learner, steps/s.
    bandwidth: float  # Bandwidth of its link, bytes/s.
    demand: float  # Environment steps/s that the learner can use.
    needed: int | None  # Least number of actors that saturates it, or None.
    shown: int  # The same; if None, the least number tried that makes about the most steps.
    outcome: simulation.Outcome  # Outcome with `shown` actors.
    reason: str  # Reason why no number saturates it, or "".


class Study:
    """Runs the simulations of a plan, each once."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.outcome = functools.cache(self._outcome)

    def _outcome(
        self, bits: int, speed: float, bandwidth: float, actors: int
    ) -> simulation.Outcome:
        """Returns the outcome of one simulation."""
        cluster = self.plan.make(bits, speed, bandwidth, actors)
        return simulation.simulate(cluster, self.plan.seconds, self.plan.seed)

    def answer(self, bits: int, speed: float, bandwidth: float) -> Answer:
        """Returns the least number of actors that saturates the learner.

        The numbers of `counts` are tried from 1 on. Between the first that saturates it and the one
        before, the least is found by bisection.
        """
        one = self.plan.make(bits, speed, bandwidth, 1)
        demand, alone = one.demand, one.own_steps_per_s

        def steps(actors: int) -> float:
            return self.outcome(bits, speed, bandwidth, actors).steps_per_s

        def enough(actors: int) -> bool:
            wanted = SATURATED * demand
            return alone * actors >= wanted and steps(actors) >= wanted

        tried = counts(self.plan.max_actors)
        first = next((index for index, actors in enumerate(tried) if enough(actors)), None)
        if first is None:
            most = max(map(steps, tried))
            best = next(actors for actors in tried if steps(actors) >= _CLOSE * most)
            linked = alone * self.plan.max_actors >= SATURATED * demand
            reason = "never: link" if linked else f"more than {self.plan.max_actors}"
            outcome = self.outcome(bits, speed, bandwidth, best)
            return Answer(bits, speed, bandwidth, demand, None, best, outcome, reason)
        low, high = (tried[first - 1] if first else 0), tried[first]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        outcome = self.outcome(bits, speed, bandwidth, high)
        return Answer(bits, speed, bandwidth, demand, high, high, outcome, "")

    def answers(self) -> list[Answer]:
        """Returns all answers: by bandwidth, then learner speed, then precision."""
        plan = self.plan
        return [
            self.answer(bits, speed, bandwidth)
            for bandwidth in plan.bandwidths
            for speed in plan.learner_speeds
            for bits in plan.precisions
        ]


def counts(most: int) -> list[int]:
    """Returns the numbers of actors that are tried, ending with `most`."""
    numbers = list(range(1, min(_EACH_UP_TO, most) + 1))
    while numbers[-1] < most:
        numbers.append(min(most, math.ceil(numbers[-1] * _GROWTH)))
    return numbers


def bandwidth_name(bandwidth: float) -> str:
    """Returns a bandwidth in bytes/s as '10 Gbit/s' or 'no limit'."""
    if math.isinf(bandwidth):
        return "no limit"
    bits = 8 * bandwidth
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bits >= size:
            return f"{bits / size:g} {unit}bit/s"
    return f"{bits:g} bit/s"


def table(answers: Sequence[Answer]) -> str:
    """Returns Markdown: a row a bandwidth and learner speed, two columns a precision."""
    precisions = list(dict.fromkeys(answer.precision for answer in answers))
    header = ["Network", "Learner steps/s", "wants env. steps/s"]
    for bits in precisions:
        header += [f"{reporting.precision_name(bits)} actors", "age, s"]
    rows: dict[tuple[float, float], list[str]] = {}
    for answer in answers:
        row = rows.setdefault(
            (answer.bandwidth, answer.learner_speed),
            [bandwidth_name(answer.bandwidth), f"{answer.learner_speed:g}", f"{answer.demand:.0f}"],
        )
        row += [
            answer.reason if answer.needed is None else str(answer.needed),
            f"{answer.outcome.age_s:.2f}",
        ]
    return output.markdown_table(header, list(rows.values()))


def csv_rows(pulls: str, answers: Sequence[Answer]) -> list[dict[str, object]]:
    """Returns one row for each answer.

    Args:
      pulls: How actors download, for the first column.
      answers: Answers of `Study.answers`.
    """
    return [
        {
            "pulls": pulls,
            "bandwidth_bit_per_s": 8 * answer.bandwidth if np.isfinite(answer.bandwidth) else "",
            "learner_steps_per_s": answer.learner_speed,
            "demand_env_steps_per_s": answer.demand,
            "precision": reporting.precision_name(answer.precision),
            "actors_needed": "" if answer.needed is None else answer.needed,
            "why_none": answer.reason,
            "actors_shown": answer.shown,
            "env_steps_per_s": answer.outcome.steps_per_s,
            "reached_learner_steps_per_s": answer.outcome.learner_steps_per_s,
            "downloads_per_s": answer.outcome.downloads_per_s,
            "age_s": answer.outcome.age_s,
            "age_learner_steps": answer.outcome.age_s * answer.outcome.learner_steps_per_s,
        }
        for answer in answers
    ]


def draw(study: Study, title: str, path: str) -> str:
    """Draws environment steps/s against actors, a panel a bandwidth; returns `path`."""
    plan = study.plan
    columns = min(3, len(plan.bandwidths))
    rows = math.ceil(len(plan.bandwidths) / columns)
    figure, axes = plotting.new_grid(
        rows, columns, (max(5.0, 3.4 * columns), 1.2 + 3.2 * rows), sharex=True, sharey=True
    )
    speeds = sorted(plan.learner_speeds)
    tried = counts(plan.max_actors)
    for index, (ax, bandwidth) in enumerate(zip(axes, plan.bandwidths, strict=False)):
        for bits in plan.precisions:
            rates = [study.outcome(bits, speeds[-1], bandwidth, n).steps_per_s for n in tried]
            ax.plot(
                tried, rates, color=plotting.precision_colour(bits),
                label="_" if index else f"{reporting.precision_name(bits)} actors",
            )
        for speed in speeds:
            demand = plan.make(plan.precisions[0], speed, bandwidth, 1).demand
            ax.axhline(demand, color="0.45", linewidth=0.8, linestyle="--")
            if index % columns == columns - 1 or index == len(plan.bandwidths) - 1:
                ax.annotate(  # Nothing but labels is to the right of the last panel of a row.
                    f"{speed:g}/s", (1, demand), xycoords=("axes fraction", "data"),
                    xytext=(3, 0), textcoords="offset points", va="center",
                    fontsize=plotting.SMALL, color="0.35",
                )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_title(bandwidth_name(bandwidth), fontsize=plotting.TEXT)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for index, ax in enumerate(axes):
        ax.set_visible(index < len(plan.bandwidths))
        if index + columns >= len(plan.bandwidths):  # No panel is below this one.
            ax.tick_params(labelbottom=True)
            ax.set_xlabel("Actors, each on its own core", fontsize=plotting.TEXT)
    figure.supylabel("Environment steps/s, all actors", fontsize=plotting.TEXT)
    figure.suptitle(title, fontsize=plotting.TITLE)
    figure.legend(
        loc="outside lower center", ncols=len(plan.precisions), frameon=False,
        title="dashed: what a learner of so many steps/s takes", title_fontsize=plotting.TEXT,
    )
    return plotting.save_figure(figure, path)
