"""Tests whether policies with wider weight distributions lose more reward when quantized.

The paper says so of three environments (DQN) and of three algorithms (Breakout), by eye
(arXiv:1910.01055, sec. 5). Here: rank correlation within each group of agents that share an
algorithm (or an environment), and a permutation test over all groups. Imports no framework.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from baseline.study import intervals

PERMUTATIONS = 20_000
SIGNIFICANCE = 0.05
ENVIRONMENTS = "environments"
ALGORITHMS = "algorithms"
_FEWEST = {ENVIRONMENTS: 3, ALGORITHMS: 2}  # Agents of a group that says anything.


class Point(NamedTuple):
    """One agent.

    Attributes:
      algo: its algorithm.
      env: its environment, as played.
      width: of its fp32 weights (see `weight_statistics`).
      error: E, a fraction.
      low: lower end of E's 95 % interval.
      high: upper end.
    """

    algo: str
    env: str
    width: float
    error: float
    low: float
    high: float

    @property
    def interval(self) -> intervals.Interval:
        """E with its interval."""
        return intervals.Interval(self.error, self.low, self.high)

    @property
    def certain(self) -> bool:
        """Whether the interval of E leaves zero out."""
        return self.low > 0 or self.high < 0


class Group(NamedTuple):
    """Agents that differ in one thing.

    Attributes:
      name: what they share: an algorithm or an environment.
      points: the agents.
      correlation: Spearman's of width and error; None for fewer than 3 agents, or where all are
        equal in one of them.
    """

    name: str
    points: tuple[Point, ...]
    correlation: float | None

    def described(self) -> str:
        """Returns the correlation for people."""
        if self.correlation is None:
            return "all equal" if len(self.points) > 2 else "-"
        return f"{self.correlation:+.2f}"


class Relation(NamedTuple):
    """How width and error go together in all groups of one kind.

    Attributes:
      over: what differs within a group, ENVIRONMENTS or ALGORITHMS.
      groups: at least 3 environments, or 2 algorithms, each.
      agreeing: pairs within groups of which the wider has the larger error.
      opposing: pairs of which the wider has the smaller error.
      p_wider: share of permutations within the groups that go together as much as what was
        measured, or more: small if wider means larger error.
      p_narrower: the same for the opposite.
    """

    over: str
    groups: tuple[Group, ...]
    agreeing: int
    opposing: int
    p_wider: float
    p_narrower: float

    @property
    def agents(self) -> int:
        """How many agents are in the groups."""
        return sum(len(group.points) for group in self.groups)

    def verdict(self) -> str:
        """Returns what may be said of the paper's relation, in a sentence or two."""
        if not self.groups:
            return f"Not tested: no agents that differ only in their {self.over}."
        pairs = self.agreeing + self.opposing
        counts = (
            f"of {pairs} pairs of agents with different errors the wider one lost more in "
            f"{self.agreeing}"
        )
        if not pairs:
            return "Not tested: no two agents of a group have different errors."
        if self.p_wider <= SIGNIFICANCE:
            return f"Holds: {counts} (p = {self.p_wider:.3f}, n = {self.agents})."
        if self.p_narrower <= SIGNIFICANCE:
            return (
                f"Does not hold, the opposite does: {counts} (p = {self.p_narrower:.3f} for the "
                f"opposite, n = {self.agents})."
            )
        return (
            f"Not confirmed: {counts}, which chance explains (p = {self.p_wider:.3f}, n = "
            f"{self.agents})."
        )


def relation(points: Sequence[Point], over: str, seed: int = 0) -> Relation:
    """Tests the relation over environments (algorithms fixed) or the other way round.

    The statistic is the sum over groups of rank(width) * rank(error), centred; errors are
    permuted within groups. Agents that have no other to be compared with are left out.

    Args:
      points: all agents.
      over: ENVIRONMENTS or ALGORITHMS.
      seed: of the permutations.
    """
    fixed = [point.algo if over == ENVIRONMENTS else point.env for point in points]
    groups = []
    for name in sorted(set(fixed)):
        members = tuple(p for p, own in zip(points, fixed, strict=True) if own == name)
        if len(members) >= _FEWEST[over]:
            members = tuple(sorted(members, key=lambda point: (point.width, point.env)))
            widths, errors_ = _columns(members)
            groups.append(Group(name, members, spearman(widths, errors_)))

    generator = np.random.default_rng(seed)
    observed = 0.0
    permuted = np.zeros(PERMUTATIONS)
    signs: list[np.ndarray] = []
    for group in groups:
        widths, losses = _columns(group.points)
        width_ranks, error_ranks = ranks(widths), ranks(losses)
        width_ranks -= width_ranks.mean()
        observed += float(width_ranks @ error_ranks)
        copies = np.tile(error_ranks, (PERMUTATIONS, 1))
        permuted += generator.permuted(copies, axis=1) @ width_ranks
        first, second = np.triu_indices(len(widths), 1)
        signs.append(np.sign((widths[first] - widths[second]) * (losses[first] - losses[second])))
    signs_ = np.concatenate(signs) if signs else np.zeros(0)
    rounding = 1e-9
    return Relation(
        over,
        tuple(groups),
        int((signs_ > 0).sum()),
        int((signs_ < 0).sum()),
        float((1 + (permuted >= observed - rounding).sum()) / (1 + PERMUTATIONS)),
        float((1 + (permuted <= observed + rounding).sum()) / (1 + PERMUTATIONS)),
    )


def spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    """Returns the rank correlation of two vectors [N]; None where one is constant, or N < 3."""
    first_ranks, second_ranks = ranks(first), ranks(second)
    if len(first) < 3 or np.ptp(first_ranks) == 0 or np.ptp(second_ranks) == 0:
        return None
    return float(np.corrcoef(first_ranks, second_ranks)[0, 1])


def ranks(numbers: np.ndarray) -> np.ndarray:
    """Returns the ranks from 1, [N]; equal numbers share their mean rank."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def _columns(points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p.width for p in points]), np.array([p.error for p in points])
