"""Tests whether policies with wider weight distributions lose more reward when quantized.

The paper claims it by eye, for three environments (DQN) and for three algorithms (Breakout):
arXiv:1910.01055, sec. 5. Here each group of agents that share an algorithm (or an environment) has
a rank correlation, and a permutation test covers all groups. Imports no framework.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from actorQ.core import output
from baseline.study import intervals
from baseline.study import sweeps as sweeps_lib

PERMUTATIONS = 20_000
SIGNIFICANCE = 0.05
ENVIRONMENTS = "environments"
ALGORITHMS = "algorithms"
_FEWEST = {ENVIRONMENTS: 3, ALGORITHMS: 2}  # Fewest agents of a group.


class Point(NamedTuple):
    """One agent.

    Attributes:
      algo: its algorithm.
      env: its environment, as played.
      width: width of its fp32 weights (see `weight_statistics`).
      error: E, as a fraction.
      low: lower end of E's 95 % interval.
      high: upper end of the interval.
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
        """Says whether the interval of E leaves zero out."""
        return self.low > 0 or self.high < 0


class Group(NamedTuple):
    """Agents that differ in one thing.

    Attributes:
      name: the algorithm or the environment that they share.
      points: the agents.
      correlation: Spearman's correlation of width and error; None for fewer than 3 agents, or where
        all agents have the same width or the same error.
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
    """Tells how width and error go together in all groups of one kind.

    Attributes:
      over: the things that differ within a group, ENVIRONMENTS or ALGORITHMS.
      groups: the groups, each of at least 3 environments or 2 algorithms.
      agreeing: number of pairs within groups in which the wider agent has the larger error.
      opposing: number of pairs in which the wider agent has the smaller error.
      p_wider: share of permutations within the groups whose statistic is at least as high as the
        measured one; small if wider means larger error.
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
        """The number of agents in the groups."""
        return sum(len(group.points) for group in self.groups)

    def verdict(self) -> str:
        """Returns whether the paper's relation holds, in a sentence."""
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


def points(
    sweeps: Sequence[sweeps_lib.Sweep], scheme: str, bits: str
) -> tuple[list[Point], list[str]]:
    """Returns an agent's width and error for each sweep, and the agents left out, with reasons.

    The last agent counts among those of one algorithm whose environments are the same today.
    """
    found: dict[tuple[str, str], tuple[str, Point]] = {}
    left_out = []
    for sweep in sweeps:
        row = sweep.quantized.get(scheme, {}).get(bits)
        name = f"{sweep.algo} {sweep.shown_env}"
        if row is None:
            left_out.append(f"{name} (no row of {bits} bits)")
        elif row.error is None or row.error_low is None or row.error_high is None:
            left_out.append(f"{name} (E has no interval: {row.note or 'fp32 mean of zero'})")
        else:
            replaced = found.pop((sweep.algo, sweep.shown_env), None)
            if replaced is not None:
                left_out.append(f"{sweep.algo} {replaced[0]} ({sweep.env} is the same today)")
            found[sweep.algo, sweep.shown_env] = sweep.env, Point(
                sweep.algo, sweep.shown_env, sweep.fp32.weight_width,
                row.error, row.error_low, row.error_high,
            )
    return [point for _, point in found.values()], left_out


def relation(points: Sequence[Point], over: str, seed: int = 0) -> Relation:
    """Tests the relation over environments (algorithms fixed) or the other way round.

    The statistic is the centred sum over groups of rank(width) * rank(error); errors are permuted
    within groups. Agents without another one to compare with are left out.
    """
    fixed = [point.algo if over == ENVIRONMENTS else point.env for point in points]
    groups = []
    for name in sorted(set(fixed)):
        members = tuple(p for p, own in zip(points, fixed, strict=True) if own == name)
        if len(members) >= _FEWEST[over]:
            members = tuple(sorted(members, key=lambda point: (point.width, point.env)))
            groups.append(Group(name, members, spearman(*_columns(members))))

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
    all_signs = np.concatenate(signs) if signs else np.zeros(0)
    rounding = 1e-9
    return Relation(
        over,
        tuple(groups),
        int((all_signs > 0).sum()),
        int((all_signs < 0).sum()),
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


def markdown(
    agents: Sequence[Point],
    relations: Sequence[Relation],
    left_out: Sequence[str],
    described: str,
) -> str:
    """Returns the report; `left_out` has names with reasons, `described` the quantization."""
    certain = sum(point.certain for point in agents)
    parts = [
        f"## Width of the weights against E ({described})\n",
        "Paper (arXiv:1910.01055, sec. 5, three agents each): the wider the distribution, the "
        "larger the error. Width: the range of the central 99 % of the acting network's fp32 "
        f"weights. {len(agents)} agents; the 95 % interval of E leaves zero out for {certain} of "
        "them, and the order of the others is luck.\n",
    ]
    for relation in relations:
        fixed = "algorithm" if relation.over == ENVIRONMENTS else "environment"
        parts.append(f"### Over {relation.over}, {fixed} fixed\n")
        parts.append(f"{relation.verdict()}\n")
        if relation.groups:
            rows = [
                (group.name, str(len(group.points)), group.described())
                for group in relation.groups
            ]
            parts.append(output.markdown_table((fixed, "n", "Spearman"), rows))
    rows = [
        (f"{point.algo} {point.env}", f"{point.width:.3g}", point.interval.text())
        for point in sorted(agents, key=lambda point: point.width)
    ]
    parts.append("### Agents, narrowest first\n")
    parts.append(output.markdown_table(("agent", "width", "E [95 %]"), rows))
    if left_out:
        parts.append(f"Left out: {'; '.join(left_out)}.\n")
    return "\n".join(parts)
