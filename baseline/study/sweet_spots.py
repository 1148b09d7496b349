"""Draws and tabulates the sweet spots of post-training quantization; see `collate` for the command.

The sweet spot is the narrowest width that is not shown to lose more than 2 % of fp32's reward: at
this width and at all wider ones, the 95 % interval of E reaches down to 2 %.
"""

from collections.abc import Sequence

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from baseline.quantization import names
from baseline.study import intervals
from baseline.study import rows as rows_lib
from baseline.study import sweep_plots
from baseline.study import sweeps as sweeps_lib
from baseline.study.rows import Row

COLOURS = {
    names.WEIGHTS: plotting.WINE, names.WEIGHTS_AND_ACTIVATIONS: plotting.OLIVE,
}
LABELS = {names.WEIGHTS: "weights", names.WEIGHTS_AND_ACTIVATIONS: "weights and activations"}
_SWEET_SPOT = (
    "the fewest bits not shown to cost more than "
    f"{100 * sweeps_lib.TOLERATED_LOSS:g} % of the reward"
)
_WORDS = sweep_plots.Words(note=f"sweet spot: {_SWEET_SPOT}")


def make_panel(sweep: sweeps_lib.Sweep, title: str) -> sweep_plots.Panel:
    """Returns the plot of a sweep, which has at least one quantized row."""
    series = []
    for scheme, rows in sweep.quantized.items():
        best, fewest = sweeps_lib.best_width(rows), sweeps_lib.fewest_bits(rows)
        series.append(
            sweep_plots.Series(
                LABELS[scheme],
                COLOURS[scheme],
                [_point(row) for row in rows.values()],
                best.bits if best else None,
                fewest.bits if fewest else None,
            )
        )
    return sweep_plots.Panel(
        sweep.algo, sweep.env, sweep.shown_env, title, _point(sweep.fp32), series
    )


def describe(sweep: sweeps_lib.Sweep, **quantizer: str) -> str:
    """Returns 'ppo CartPole-v1, N episodes (seeds 0, 2, 4), channel granularity'."""
    seeds = sweep.fp32.seeds.split(",")
    noun = "seeds" if len(seeds) > 1 else "seed"
    return (
        f"{sweep.algo} {sweep.shown_env}, {sweep.fp32.episodes} episodes "
        f"({noun} {', '.join(seeds)}){rows_lib.in_words(**quantizer)}"
    )


def text_table(sweep: sweeps_lib.Sweep, title: str) -> str:
    """Returns the numbers of a sweep as Markdown, with the sweet spots below."""
    cells = [_cells("fp32", sweep.fp32)]
    notes = []
    for scheme, rows in sweep.quantized.items():
        cells += [_cells(LABELS[scheme], row) for row in rows.values()]
        best, fewest = sweeps_lib.best_width(rows), sweeps_lib.fewest_bits(rows)
        if best is None:
            continue
        spot = (
            f"{fewest.bits} bits, E {fewest.interval.text()}"
            if fewest
            else "none (the widest already loses more, or has no interval of E)"
        )
        notes.append(
            f"{LABELS[scheme]}: best mean at {best.bits} bits ({best.mean:.6g}); sweet spot, "
            f"{_SWEET_SPOT}: {spot}."
        )
    header = ["Scheme", "Bits", "Mean", "Std", "E", "95 % interval", "Bytes"]
    return f"{title}\n\n{output.markdown_table(header, cells)}\n" + "\n".join(notes) + "\n"


def summary_table(sweeps: Sequence[sweeps_lib.Sweep]) -> str:
    """Returns the sweet spots of many sweeps as Markdown, a line for each scheme."""
    cells = []
    for sweep in sweeps:
        for scheme, rows in sweep.quantized.items():
            best, fewest = sweeps_lib.best_width(rows), sweeps_lib.fewest_bits(rows)
            cells.append(
                [
                    f"{sweep.algo} {sweep.shown_env}",
                    LABELS[scheme],
                    f"{sweep.fp32.mean:.6g}",
                    f"{best.mean:.6g} at {best.bits}" if best else output.NOT_AVAILABLE,
                    fewest.bits if fewest else "none",
                    fewest.interval.text() if fewest else "",
                ]
            )
    header = ["Agent", "Quantized", "fp32", "Best", "Sweet spot, bits", "E there [95 % interval]"]
    return f"{output.markdown_table(header, cells)}\nSweet spot: {_SWEET_SPOT}.\n"


def collate(
    rows: Sequence[Row],
    pair: tuple[str, str] | None,
    folder: str,
    granularity: str = "paper",
    rounding: str = "nearest",
) -> tuple[str, list[str]]:
    """Draws a pair's sweep, or all and a grid for each algorithm.

    Returns:
      The numbers as text, and the paths of the figures.

    Raises:
      errors.UserError: there is nothing to draw for a pair.
    """
    quantizer = {"granularity": granularity, "rounding": rounding}
    every = sweeps_lib.sweeps(rows, **quantizer)
    drawable = [sweep for sweep in every if sweep.quantized]
    if pair is None and not drawable:
        raise errors.UserError(
            f"There is no row of fp32 with rows of {granularity} granularity and {rounding} "
            f"rounding to it: baseline/benchmark.sh ALGO ENV{rows_lib.as_flags(**quantizer)} "
            "measures a sweep."
        )
    chosen = sweeps_lib.of_pair(drawable, pair)
    if pair is not None and not chosen:
        raise errors.UserError(_nothing(rows, pair, drawable, granularity, rounding))
    titles = [describe(sweep, **quantizer) for sweep in chosen]
    panels = list(map(make_panel, chosen, titles))
    marks = tuple(rows_lib.not_default(**quantizer).values())
    if pair is not None:
        text = "\n".join(map(text_table, chosen, titles))
        return text, sweep_plots.draw(folder, panels, _WORDS, None, marks)
    grids = f"reward against bits after training{rows_lib.in_words(**quantizer)}"
    return summary_table(chosen), sweep_plots.draw(folder, panels, _WORDS, grids, marks)


def _point(row: Row) -> sweep_plots.Point:
    interval = intervals.mean(row.returns)
    seeds = tuple(float(part.mean()) for part in row.seed_returns if part.size)
    return sweep_plots.Point(row.bits, row.mean, interval.low, interval.high, seeds)


def _cells(scheme: str, row: Row) -> list[str]:
    error = interval = ""
    if row.bits != names.FP32:
        error, _, interval = row.interval.text().partition(" [")
    return [
        scheme, row.bits, f"{row.mean:.6g}", f"{row.std:.4g}", error,
        f"[{interval}" if interval else "", str(row.bytes),
    ]


def _nothing(
    rows: Sequence[Row],
    pair: tuple[str, str],
    there: Sequence[sweeps_lib.Sweep],
    granularity: str,
    rounding: str,
) -> str:
    """Returns why there is nothing to draw for a pair, and the command that helps."""
    algo, env = pair
    measured = {row.bits for row in rows_lib.find(rows, algo=algo, env=env)}
    if measured:
        if names.FP32 not in measured:
            what = "no fp32 row"
        elif measured == {names.FP32}:
            what = "only fp32"
        else:
            what = (
                f"no row of {granularity} granularity and {rounding} rounding with fp32's seeds "
                "and episodes"
            )
        reason = f"For {algo} {env} there is {what}"
    else:
        others = ", ".join(sweep.env for sweep in there if sweep.algo == algo) or "nothing"
        reason = f"Nothing is measured of {algo} {env} (for {algo} there is: {others})"
    asked = rows_lib.as_flags(granularity=granularity, rounding=rounding)
    return f"{reason}: baseline/benchmark.sh {algo} {env}{asked} measures the sweep."
