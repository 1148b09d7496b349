"""Tables of post-training methods: the mean loss of reward by algorithm, method and width."""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

from actorQ.core import output
from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import intervals
from baseline.study import method_rows
from baseline.study import paper
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib

# Largest mean E that a width may cost, in percent; at 8 bits, the paper's own figure.
LIMITS = {"4": 5.0, "3": 15.0}
ALGORITHMS = ("a2c", "ppo", "dqn", "ddpg")


class Cell(NamedTuple):
    """The mean of E over the agents of an algorithm.

    Attributes:
      mean: The mean with its interval over episodes.
      agents: Number of agents in it.
    """

    mean: intervals.Interval
    agents: int


class Table(NamedTuple):
    """All that was measured of one algorithm at one granularity.

    Attributes:
      algo: The algorithm.
      granularity: "paper" or "channel".
      cells: Means by method and width; a method's name has its group size, if any.
      agents: Number of agents that have any row.
    """

    algo: str
    granularity: str
    cells: dict[tuple[str, str], Cell]
    agents: int

    @property
    def methods(self) -> list[str]:
        """The methods in the order of `recipes.METHODS`, those of several last, `auto` behind."""
        found = dict.fromkeys(method for method, _ in self.cells)

        def order(method: str) -> tuple[bool, int, list[int]]:
            if method == recipes.AUTO:
                return True, 99, []
            parts = method.partition(" ")[0].split(",")
            return False, len(parts), [recipes.METHODS.index(part) for part in parts]

        return sorted(found, key=order)

    @property
    def widths(self) -> list[str]:
        """The widths, the widest first."""
        return sorted({bits for _, bits in self.cells}, key=rows_lib.width_order)


def tables(
    rows: Sequence[rows_lib.Row], of_methods: Sequence[method_rows.MethodRow]
) -> list[Table]:
    """Returns a table for each algorithm and granularity of which there are rows.

    `auto` has the row of the candidate with the best agreement, so that it is not measured twice.

    Args:
      rows: Rows of full precision and of minmax.
      of_methods: Rows of the other methods, of the same starts.
    """
    found = []
    # The evaluation with the most episodes counts where an agent has several.
    whole = sorted(rows, key=lambda row: row.episodes)
    full = {(row.algo, row.env): row for row in whole if row.bits == names.FP32}
    algorithms = sorted(
        {algo for algo, _ in full},
        key=lambda algo: (algo not in ALGORITHMS, [*ALGORITHMS, algo].index(algo), algo),
    )
    for granularity in names.GRANULARITIES:
        for algo in algorithms:
            by_cell: dict[tuple[str, str], list[rows_lib.Row]] = {}
            for row in [*rows, *of_methods, *_auto(of_methods)]:
                if (row.algo, row.granularity) == (algo, granularity) and row.bits != names.FP32:
                    if row.scheme == names.WEIGHTS and _comparable(row, full):
                        by_cell.setdefault((_name(row), row.bits), []).append(row)
            cells = {}
            for key, members in by_cell.items():
                cell = _mean(members, full)
                if cell is not None:
                    cells[key] = cell
            if cells:
                agents = len({env for one, env in full if one == algo})
                found.append(Table(algo, granularity, cells, agents))
    return found


def _comparable(row: rows_lib.Row, full: dict[tuple[str, str], rows_lib.Row]) -> bool:
    reference = full.get((row.algo, row.env))
    return reference is not None and (row.seeds, row.episodes) == (
        reference.seeds, reference.episodes
    )


def _name(row: rows_lib.Row) -> str:
    if not isinstance(row, method_rows.MethodRow):
        return recipes.MINMAX
    return f"{row.method} (groups of {row.group_size})" if row.group_size else row.method


def _auto(rows: Sequence[method_rows.MethodRow]) -> list[method_rows.MethodRow]:
    """Returns the rows that `auto` would have, where all candidates were measured."""
    groups: dict[rows_lib.Key, dict[str, method_rows.MethodRow]] = {}
    for row in rows:
        if not row.group_size and row.method in recipes.CANDIDATES:
            groups.setdefault(row.evaluation, {})[row.method] = row
    made = []
    for members in groups.values():
        if set(members) == set(recipes.CANDIDATES):
            chosen = max((members[method] for method in recipes.CANDIDATES), key=_closeness)
            made.append(
                dataclasses.replace(chosen, method=recipes.AUTO, chosen=chosen.method)
            )
    return made


def _closeness(row: method_rows.MethodRow) -> float:
    """Returns what `post_training.best` compares."""
    return row.agreement if row.deviation is None else -row.deviation


def _mean(
    members: Sequence[rows_lib.Row], full: dict[tuple[str, str], rows_lib.Row]
) -> Cell | None:
    """Returns the mean over the agents that have an interval of E; None: none has one."""
    pairs = [(full[row.algo, row.env].returns, row.returns) for row in members]
    able = [pair for pair in pairs if not intervals.paired(*pair).reason]
    return Cell(intervals.mean_over_agents(able), len(able)) if able else None


def of_all_agents(table: Table, bits: str) -> dict[str, Cell]:
    """Returns the means at a width by method, without methods that some agents lack.

    Means over different agents cannot be compared.
    """
    there = {method: cell for (method, width), cell in table.cells.items() if width == bits}
    most = max((cell.agents for cell in there.values()), default=0)
    return {
        method: cell for method, cell in there.items()
        if cell.agents == most and cell.mean.error is not None
    }


def best(table: Table, bits: str) -> tuple[str, Cell] | None:
    """Returns the method with the least mean E at a width, of all agents; None: there is none."""
    able = of_all_agents(table, bits)
    if not able:
        return None
    method = min(able, key=lambda name: able[name].mean.error or 0.0)
    return method, able[method]


def markdown(found: Sequence[Table]) -> str:
    """Returns the tables, and whether the limits hold, as Markdown."""
    parts = ["# Post-training methods: mean loss of reward\n"]
    for table in found:
        parts.append(f"## {table.algo.upper()}, granularity {table.granularity}\n")
        parts.append(_markdown_table(table))
    parts.append("## Limits\n")
    parts.append("\n".join(f"- {line}" for line in verdicts(found)) + "\n")
    parts.append(
        "E = (fp32 - q) / |fp32| of the mean returns in percent, the mean over agents, with the "
        "paired bootstrap 95 % interval over episodes. auto is the candidate whose actions agree "
        "most in states held out of the calibration.\n"
    )
    return "\n".join(parts)


def _markdown_table(table: Table) -> str:
    lines = []
    for method in table.methods:
        line = [method]
        for bits in table.widths:
            cell = table.cells.get((method, bits))
            if cell is None:
                line.append("-")
                continue
            plural = "s" if cell.agents > 1 else ""
            few = f" ({cell.agents} agent{plural})" if cell.agents < table.agents else ""
            line.append(cell.mean.text() + few)
        lines.append(line)
    header = ["Method", *(f"{bits} bits" for bits in table.widths)]
    return output.markdown_table(header, lines)


class Limit(NamedTuple):
    """The largest mean E that a width may cost an algorithm, beside the best method's.

    Attributes:
      table: The algorithm and the granularity.
      bits: The width.
      limit: Percent.
      method: The method with the least mean E.
      cell: Its mean.
      verdict: Whether the limit holds, as `sweeps.verdict` says it.
      reason: Why.
    """

    table: Table
    bits: str
    limit: float
    method: str
    cell: Cell
    verdict: str
    reason: str


def limits(table: Table) -> list[Limit]:
    """Returns the limits of a table's widths; the paper's own figure is that of 8 bits."""
    of_width = dict(LIMITS)
    if table.algo in paper.MEANS and table.granularity == names.PAPER:
        of_width["8"] = paper.MEANS[table.algo].error_int8
    made = []
    for bits in table.widths:
        best_one = best(table, bits) if bits in of_width else None
        if best_one is not None:
            said = sweeps_lib.verdict(best_one[1].mean, of_width[bits])
            made.append(Limit(table, bits, of_width[bits], *best_one, *said))
    return made


def verdicts(found: Sequence[Table]) -> list[str]:
    """Returns a sentence for each algorithm, granularity and width that has a limit."""
    return [
        f"{one.table.algo.upper()}, {one.table.granularity}, {one.bits} bits: the limit is "
        f"{one.limit:g} %. The best method, {one.method}, has {one.cell.mean.text()}. Verdict: "
        f"{one.verdict}, because {one.reason}."
        for table in found for one in limits(table)
    ]
