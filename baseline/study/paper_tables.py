"""Lays out the paper's tables of post-training quantization for our agents, beside its own."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from actorQ.core import output
from baseline.study import intervals
from baseline.study import paper
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from baseline.study.rows import Row

COMPARED = ("fp16", "8")  # The precisions of the paper's tables.
# Agents with fewer episodes are marked.
ENOUGH_EPISODES = 100
_ORDER = ("a2c", "dqn", "ppo", "ddpg")  # The paper's order; others follow.
_NONE = "-"


def markdown(
    sweeps: Sequence[sweeps_lib.Sweep], scheme: str, widths: bool = True, **quantizer: str
) -> str:
    """Returns the tables of every algorithm, and those of all widths if wanted.

    `quantizer` has the `granularity` and `rounding` of the rows, where they are not the default.
    """
    parts = []
    rows = scheme + rows_lib.in_words(**quantizer)
    for algo, members in by_algorithm(sweeps).items():
        parts.append(f"## {algo.upper()}: fp32, fp16 and int8 ({rows})\n")
        parts.append(_paper_table(algo, members, scheme))
        if widths:
            parts.append(f"### {algo.upper()}: every width ({rows})\n")
            parts.append(_width_table(members, scheme))
    parts.append(
        "E = (fp32 - q) / |fp32| of the mean returns, above zero is a loss; in brackets its paired "
        "bootstrap 95 % interval over episodes. Paper: arXiv:1910.01055, as printed; its agents "
        "are others than these.\n"
    )
    return "\n".join(parts)


def by_algorithm(sweeps: Sequence[sweeps_lib.Sweep]) -> dict[str, list[sweeps_lib.Sweep]]:
    """Returns the sweeps by algorithm, in the paper's order."""
    found = {sweep.algo for sweep in sweeps}
    order = [algo for algo in _ORDER if algo in found] + sorted(found - set(_ORDER))
    return {algo: [sweep for sweep in sweeps if sweep.algo == algo] for algo in order}


def csv_rows(sweeps: Sequence[sweeps_lib.Sweep], scheme: str) -> list[dict[str, Any]]:
    """Returns the first tables as rows of one form; errors in percent, as the paper prints them.

    A row of `env` "mean" follows each algorithm's agents.
    """
    rows: list[dict[str, Any]] = []
    for algo, members in by_algorithm(sweeps).items():
        for sweep in members:
            measured = sweep.quantized.get(scheme, {})
            row: dict[str, Any] = {
                "algo": algo, "env": sweep.shown_env, "scheme": scheme,
                "agents": 1, "episodes": sweep.fp32.episodes, "fp32": sweep.fp32.mean,
            }
            for bits in COMPARED:
                found = measured.get(bits)
                row |= _csv_columns(
                    bits, found.mean if found else "", found.interval if found else None
                )
            rows.append(row | _csv_paper(paper.rewards(algo, sweep.env)))
        means = {bits: sweeps_lib.mean_error(members, scheme, bits) for bits in COMPARED}
        row = {
            "algo": algo, "env": "mean", "scheme": scheme,
            "agents": max(mean.agents for mean in means.values()), "episodes": "", "fp32": "",
        }
        for bits, mean in means.items():
            row |= _csv_columns(bits, "", mean.fixed)
        rows.append(row | _csv_paper(paper.MEANS.get(algo)))
    return rows


def _paper_table(algo: str, sweeps: Sequence[sweeps_lib.Sweep], scheme: str) -> str:
    published = {row.env: row for row in paper.REWARDS.get(algo, ())}
    header = ["Environment", "fp32", "fp16", "E_fp16", "int8", "E_int8"]
    if published:
        header += [f"paper: {name}" for name in header[1:]]
    notes: list[str] = []
    cells = []
    for sweep in sweeps:
        measured = sweep.quantized.get(scheme, {})
        line = [sweep.shown_env + _marks(sweep, measured, notes), reward(sweep.fp32.mean)]
        for bits in COMPARED:
            row = measured.get(bits)
            line += [reward(row.mean), row.interval.text()] if row else [_NONE, _NONE]
        theirs = paper.rewards(algo, sweep.env)
        if theirs:
            published.pop(theirs.env, None)  # Two names of one game may be there.
        cells.append(line + _paper_cells(theirs, bool(paper.REWARDS.get(algo))))
    for theirs in published.values():
        cells.append([theirs.env, *[_NONE] * 5, *_paper_cells(theirs, True)])
    means = {bits: sweeps_lib.mean_error(sweeps, scheme, bits) for bits in COMPARED}
    line = ["Mean", ""]
    for mean in means.values():
        line += ["", mean.fixed.text() if mean.fixed else _NONE]
    their_mean = paper.MEANS.get(algo)
    if their_mean:
        line += ["", "", f"{their_mean.error_fp16:.2f} %", "", f"{their_mean.error_int8:.2f} %"]
    cells.append(line)
    lines = [f"- {text}" for text in _mean_lines(means, their_mean)]
    lines += [f"- [{number}] {note}" for number, note in enumerate(notes, 1)]
    return f"{output.markdown_table(header, cells)}\n" + "\n".join(lines) + "\n"


def _paper_cells(theirs: paper.Rewards | None, shown: bool) -> list[str]:
    if theirs is None:
        return [_NONE] * 5 if shown else []
    return [
        f"{theirs.fp32:g}", f"{theirs.fp16:g}", f"{theirs.error_fp16:.2f} %",
        f"{theirs.int8:g}", f"{theirs.error_int8:.2f} %",
    ]


def _marks(sweep: sweeps_lib.Sweep, measured: Mapping[str, Row], notes: list[str]) -> str:
    """Returns ' [1] [2]', and adds the notes of these numbers to `notes`, each text once."""
    texts = []
    if sweep.fp32.episodes < ENOUGH_EPISODES:
        texts.append(f"{sweep.fp32.episodes} episodes")
    for row in (sweep.fp32, *(measured[bits] for bits in COMPARED if bits in measured)):
        if row.note:
            texts.append(row.note)
    marks = ""
    for text in dict.fromkeys(texts):
        if text not in notes:
            notes.append(text)
        marks += f" [{notes.index(text) + 1}]"
    return marks


def _mean_lines(means: Mapping[str, sweeps_lib.MeanError], theirs: paper.Mean | None) -> list[str]:
    lines = []
    for bits, mean in means.items():
        name = "int8" if bits == "8" else bits
        if mean.fixed is None or mean.drawn is None:
            lines.append(f"No mean of E_{name}: no agent has an interval of E.")
        else:
            agents = f"{mean.agents} agents" if mean.agents > 1 else "1 agent"
            drawn = mean.drawn.text().partition(" % ")[2]
            text = f"Mean E_{name} of {agents}: {mean.fixed.text()}"
            if mean.agents > 1:
                text += f" (were agents drawn as well as episodes: {drawn}; median "
                text += f"{intervals.fixed(100 * mean.median, 2)} %)"
            if theirs:
                figure = theirs.error_int8 if bits == "8" else theirs.error_fp16
                text += f"; the paper's: {figure:.2f} %"
                # At fp16 the paper's means are luck of either sign, and need no verdict.
                if bits == "8":
                    text += ", " + ": ".join(sweeps_lib.verdict(mean.fixed, figure))
            lines.append(text + ".")
        if mean.left_out:
            lines.append(f"Not in the mean of E_{name}: {', '.join(mean.left_out)}.")
    return lines


def _width_table(sweeps: Sequence[sweeps_lib.Sweep], scheme: str) -> str:
    measured = [sweep.quantized.get(scheme, {}) for sweep in sweeps]
    widths = sorted({bits for rows in measured for bits in rows}, key=rows_lib.width_order)
    cells = []
    for sweep, rows in zip(sweeps, measured, strict=True):
        rewards = [reward(rows[bits].mean) if bits in rows else _NONE for bits in widths]
        cells.append([sweep.shown_env, "reward", reward(sweep.fp32.mean), *rewards])
        shares = [rows[bits].error if bits in rows else None for bits in widths]
        lost = [_NONE if one is None else intervals.fixed(100 * one, 1) for one in shares]
        cells.append(["", "E, %", "", *lost])
    return output.markdown_table(["Environment", "", "fp32", *widths], cells)


def reward(value: float) -> str:
    """Returns a return as text: the fewer decimals, the larger it is."""
    return intervals.fixed(value, 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2)


def _csv_columns(
    bits: str, mean: float | str, interval: intervals.Interval | None
) -> dict[str, Any]:
    name = "int8" if bits == "8" else bits
    numbers = interval[:3] if interval else (None, None, None)
    percents = ["" if number is None else 100 * number for number in numbers]
    names = (f"error_{name}", f"error_{name}_low", f"error_{name}_high")
    return {name: mean, **dict(zip(names, percents, strict=True))}


def _csv_paper(theirs: paper.Rewards | paper.Mean | None) -> dict[str, Any]:
    names = ("env", "fp32", "fp16", "error_fp16", "int8", "error_int8")
    return {f"paper_{name}": getattr(theirs, name, "") for name in names}
