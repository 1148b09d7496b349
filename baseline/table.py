"""Prints the paper's tables of post-training quantization for what was measured, beside its own.

    python -m baseline.table [--results quantized/ptq.csv] [--algo a2c,ppo] [--out FILE.md|FILE.csv]

E = (fp32 - q) / |fp32| with its paired bootstrap 95 % interval; the mean of E over the agents with
an interval of its own, and whether that reaches the paper's figure. A second table has all widths.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import os
import sys
from typing import Any

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from baseline.quantization import names
from baseline.study import intervals
from baseline.study import mean_errors
from baseline.study import measuring_flags
from baseline.study import paper
from baseline.study import rows as rows_lib
from baseline.study import selection
from baseline.study.rows import Row

COMPARED = ("fp16", "8")  # The precisions of the paper's tables.
# Rows of fewer episodes are marked.
ENOUGH_EPISODES = 100
_ORDER = ("a2c", "dqn", "ppo", "ddpg")  # As in the paper; others follow.
_NONE = "-"


def markdown(
    sweeps: Sequence[selection.Sweep], scheme: str, widths: bool = True, **quantizer: str
) -> str:
    """Returns the tables of every algorithm.

    Args:
      sweeps: as `selection.sweeps` gives them.
      scheme: whose rows are shown.
      widths: whether to add the tables of all widths.
      **quantizer: `granularity` and `rounding` of the rows; left out: the default.
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


def by_algorithm(sweeps: Sequence[selection.Sweep]) -> dict[str, list[selection.Sweep]]:
    """Returns the sweeps by algorithm, in the paper's order."""
    found = {sweep.algo for sweep in sweeps}
    order = [algo for algo in _ORDER if algo in found] + sorted(found - set(_ORDER))
    return {algo: [sweep for sweep in sweeps if sweep.algo == algo] for algo in order}


def csv_rows(sweeps: Sequence[selection.Sweep], scheme: str) -> list[dict[str, Any]]:
    """Returns the first tables as rows of one form; errors in percent, as the paper prints them.

    A row of `env` "mean" follows each algorithm's agents.
    """
    rows = []
    for algo, members in by_algorithm(sweeps).items():
        for sweep in members:
            measured = sweep.quantized.get(scheme, {})
            row = {
                "algo": algo, "env": sweep.shown_env, "scheme": scheme,
                "agents": 1, "episodes": sweep.fp32.episodes, "fp32": sweep.fp32.mean,
            }
            for bits in COMPARED:
                found = measured.get(bits)
                row |= _csv_columns(
                    bits, found.mean if found else "", found.interval if found else None
                )
            rows.append(row | _csv_paper(paper.result(algo, sweep.env)))
        means = {bits: mean_errors.mean_error(members, scheme, bits) for bits in COMPARED}
        row = {
            "algo": algo, "env": "mean", "scheme": scheme,
            "agents": max(mean.agents for mean in means.values()), "episodes": "", "fp32": "",
        }
        for bits, mean in means.items():
            row |= _csv_columns(bits, "", mean.fixed)
        rows.append(row | _csv_paper(paper.MEANS.get(algo)))
    return rows


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define_rows()
    flags.DEFINE_list("algo", [], "Algorithms to show, comma separated; none: all.")
    flags.DEFINE_boolean("widths", True, "Add a table of all widths for each algorithm.")
    flags.DEFINE_string("out", "", "File to write as well: .md (this text) or .csv; empty: none.")


def main(argv: list[str]) -> int:
    """Prints the tables; see `cli.run` for errors."""
    del argv
    values = flags.FLAGS
    if values.out and not values.out.endswith((".md", ".csv")):
        raise errors.UserError(f"--out={values.out} ends neither in .md nor in .csv.")
    rows = rows_lib.read_files(values.results)
    sweeps = [
        sweep
        for sweep in selection.sweeps(
            rows, [values.scheme], values.granularity, values.rounding, wanted=COMPARED
        )
        if sweep.quantized
    ]
    algos = [names.canonical_algo(name) for name in values.algo]
    there = list(by_algorithm(sweeps))
    lacking = [algo for algo in algos if algo not in there]
    quantizer = {"granularity": values.granularity, "rounding": values.rounding}
    if lacking or not sweeps:
        asked = rows_lib.as_flags(scheme=values.scheme, **quantizer)
        raise errors.UserError(
            f"{', '.join(values.results)} has no rows of "
            f"{' and '.join(lacking) or 'any algorithm'} with scheme {values.scheme}, granularity "
            f"{values.granularity} and rounding {values.rounding} (algorithms that it has: "
            f"{', '.join(there) or 'none'}): "
            f"baseline/benchmark.sh ALGO ENV{asked} measures them."
        )
    sweeps = [sweep for sweep in sweeps if not algos or sweep.algo in algos]
    text = markdown(sweeps, values.scheme, values.widths, **quantizer)
    if values.out:  # First, so that a closed pipe behind us costs no file.
        output.make_folder(os.path.dirname(values.out) or ".")
    if values.out.endswith(".md"):
        output.write_text(values.out, text)
    elif values.out:
        output.write_csv(values.out, csv_rows(sweeps, values.scheme))
    sys.stdout.write(text)
    return 0


def _paper_table(algo: str, sweeps: Sequence[selection.Sweep], scheme: str) -> str:
    published = {result.env: result for result in paper.RESULTS.get(algo, ())}
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
        theirs = paper.result(algo, sweep.env)
        if theirs:
            published.pop(theirs.env, None)  # Two names of one game may be there.
        cells.append(line + _paper_cells(theirs, bool(paper.RESULTS.get(algo))))
    for theirs in published.values():
        cells.append([theirs.env, *[_NONE] * 5, *_paper_cells(theirs, True)])
    means = {bits: mean_errors.mean_error(sweeps, scheme, bits) for bits in COMPARED}
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


def _paper_cells(result: paper.Result | None, shown: bool) -> list[str]:
    if result is None:
        return [_NONE] * 5 if shown else []
    return [
        f"{result.fp32:g}", f"{result.fp16:g}", f"{result.error_fp16:.2f} %",
        f"{result.int8:g}", f"{result.error_int8:.2f} %",
    ]


def _marks(sweep: selection.Sweep, measured: Mapping[str, Row], notes: list[str]) -> str:
    """Returns ' [1] [2]' and adds what these stand for to `notes`, each text once."""
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


def _mean_lines(means: Mapping[str, mean_errors.MeanError], theirs: paper.Mean | None) -> list[str]:
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
                # At fp16 the paper's means are luck of either sign: nothing to be reached.
                if bits == "8":
                    text += f", {mean_errors.verdict(mean.fixed, figure)}"
            lines.append(text + ".")
        if mean.left_out:
            lines.append(f"Not in the mean of E_{name}: {', '.join(mean.left_out)}.")
    return lines


def _width_table(sweeps: Sequence[selection.Sweep], scheme: str) -> str:
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
    """Returns a return with as many digits as say something."""
    return intervals.fixed(value, 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2)


def _csv_columns(
    bits: str, mean: float | str, interval: intervals.Interval | None
) -> dict[str, Any]:
    name = "int8" if bits == "8" else bits
    numbers = interval[:3] if interval else (None, None, None)
    percents = ["" if number is None else 100 * number for number in numbers]
    names = (f"error_{name}", f"error_{name}_low", f"error_{name}_high")
    return {name: mean, **dict(zip(names, percents, strict=True))}


def _csv_paper(theirs: paper.Result | paper.Mean | None) -> dict[str, Any]:
    names = ("env", "fp32", "fp16", "error_fp16", "int8", "error_int8")
    return {f"paper_{name}": getattr(theirs, name, "") for name in names}


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="table")
