"""Blocks of results/energy: modelled energy and CO2 until the reward was held."""

from collections.abc import Iterable
from collections.abc import Sequence
import functools

from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times
from baseline.report import case_claims
from baseline.report import claims as claims_lib
from baseline.report import experiments
from docs.generators import prose
from docs.generators import tables
from docs.generators.training import reward_runs

_MAIN = "time_to_reward"
_WIDER = "wider_noise"
_SECONDS_PER_HOUR = 3600.0
# Verdicts of the report, as the pages show them.
VERDICTS = {claims_lib.MISSED: "**missed**", claims_lib.OPEN: "open"}


@functools.cache
def compared() -> tuple[experiments.Compared, ...]:
    """Returns fp32 beside int8 actors, for every task of every published experiment."""
    return tuple(experiments.compared(str(tables.ACTORQ_RESULTS)))


def with_energy() -> list[experiments.Compared]:
    """Returns the comparisons whose runs logged their energy."""
    return [row for row in compared() if row.grams is not None]


def ratio(amounts: tuple[times.Reach, times.Reach] | None) -> times.Speedup:
    """Returns fp32's amount over int8's, or a bound on that."""
    assert amounts is not None, "The runs logged their energy."
    return times.speedup_between(*amounts)


def amount(reach: times.Reach) -> str:
    """Returns three digits of Wh or g, with '>' where a seed that missed decides the median."""
    return ("" if reach.reached else "> ") + f"{reach.seconds:.3g}"


def verdict(text: str) -> str:
    """Returns a verdict of the report in the words of the pages."""
    return VERDICTS.get(text, text)


def _of(experiment: str) -> list[experiments.Compared]:
    order = list(paper.SPEEDUPS)
    found = [row for row in with_energy() if row.experiment == experiment]
    return sorted(found, key=lambda row: order.index(row.task))


@prose.wrapped
def _answer() -> str:
    low, high = _range(_of(_MAIN))
    paper_low, paper_high = case_claims.PAPER_CO2
    (wider,) = _of(_WIDER)
    return (
        "**Answer.** "
        f"On five tasks int8 actors took {low:.2f} to {high:.2f} times less modelled energy, where "
        f"the paper reports {paper_low} to {paper_high} times less CO2. "
        "With settings that every seed learns with, cartpole_balance took "
        f"{ratio(wider.watt_hours).value:.2f} times less."
    )


def _range(rows: Iterable[experiments.Compared]) -> tuple[float, float]:
    found = [ratio(row.watt_hours).value for row in rows]
    return min(found), max(found)


def _power(row: experiments.Compared) -> list[str]:
    assert row.watt_hours is not None
    return [
        f"{_SECONDS_PER_HOUR * energy.seconds / reach.seconds:.1f}"
        for energy, reach in zip(row.watt_hours, row.seconds, strict=True)
    ]


def _table() -> str:
    lines = []
    for row in [*_of(_MAIN), *_of(_WIDER)]:
        assert row.watt_hours is not None and row.grams is not None
        name = specification.short_task(row.task)
        lines.append([
            f"{name}, `--sigma 0.5`" if row.experiment == _WIDER else name, str(row.seeds),
            *(amount(reach) for reach in row.watt_hours), f"**{ratio(row.watt_hours).text()}**",
            *(amount(reach) for reach in row.grams), f"**{ratio(row.grams).text()}**",
            *_power(row),
        ])
    head = [
        "Task", "Seeds", "fp32, Wh", "int8, Wh", "times less", "fp32, g CO2", "int8, g CO2",
        "times less", "fp32, mean W", "int8, mean W",
    ]
    return tables.table(head, lines)


def _all() -> str:
    rows = with_energy()
    judged = experiments.main(rows)
    verdicts = {
        row: verdict(claim.verdict)
        for row, claim in zip(judged, case_claims.energy(judged), strict=True)
    }
    lines = []
    for row in rows:
        assert row.watt_hours is not None and row.grams is not None
        lines.append([
            f"`{row.experiment}`", specification.short_task(row.task), row.reached,
            *(amount(reach) for reach in row.watt_hours), ratio(row.watt_hours).text(),
            ratio(row.grams).text(), verdicts.get(row, ""),
        ])
    head = [
        "Experiment", "Task", "Seeds that held the reward", "fp32, Wh", "int8, Wh",
        "times less Wh", "times less CO2", "Verdict",
    ]
    return tables.table(head, lines, 3)


_SIDES: Sequence[reporting.Side] = (
    *reward_runs.PRECISIONS, reward_runs.SB3, reward_runs.ACME,
)


def _sides() -> str:
    names = sorted(
        path.parents[1].name for path in tables.ACTORQ_RESULTS.glob("*/report/time_to_reward.csv")
    )
    lines = []
    for name in names:
        for task, rows in reward_runs.rows(name).items():
            cells = [_of_side(rows.get(side)) for side in _SIDES]
            if any(cells):
                lines.append([f"`{name}`", specification.short_task(task), *cells])
    head = ["Experiment", "Task", "fp32", "fp16", "int8", "int4", "SB3", "Acme"]
    return tables.table(head, lines, 2)


def _of_side(row: reaching.Row | None) -> str:
    amounts = {} if row is None else reaching.amounts(row, "kwh_to_target")
    if not amounts:
        return ""
    return amount(reaching.median_reach(list(amounts.values())))


@prose.wrapped
def _grid() -> str:
    """Returns the CO2 of a kilowatt hour that the runs were counted with."""
    found = {
        energy.grid
        for name in dict.fromkeys(row.experiment for row in with_energy())
        for result in reward_runs.runs(name)
        if (energy := result.measured.energy) is not None and energy.kwh
    }
    # Older versions knew no other grid than the USA's, and did not name it.
    named = [grid if "(" in grid else f"{grid} (USA)" for grid in sorted(found)]
    return f"The grids of the runs here had {reward_runs.joined(named)}."


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "main": _table,
    "all": _all,
    "sides": _sides,
    "grid": _grid,
}
