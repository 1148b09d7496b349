"""Draws the sweet-spot plots of post-training quantization: reward against bits.

    python -m baseline.collate ALGO ENV [--results quantized/ptq.csv] [--out FOLDER]
    python -m baseline.collate --all [--results ...]     every pair, and a grid for each algorithm
    python -m baseline.collate --qat ...      of quantization-aware training, see `qat_collate`

Writes PNGs and prints the numbers. The sweet spot is the narrowest width at which, as at all wider
ones, the 95 % interval of E (the share of fp32's reward that is lost) reaches down to 2 %: no loss
beyond that is shown.
"""

from collections.abc import Sequence
import os
import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from baseline.quantization import names
from baseline.study import intervals
from baseline.study import measuring_flags
from baseline.study import qat_collate
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.study import selection
from baseline.study import sweep_files
from baseline.study import sweep_panel
from baseline.study.rows import Row

COLOURS = {"weights": sweep_panel.BLUE, "weights+activations": sweep_panel.VERMILLION}
LABELS = {"weights": "weights", "weights+activations": "weights and activations"}
_SWEET_SPOT = (
    "the fewest bits not shown to cost more than "
    f"{100 * selection.TOLERATED_LOSS:g} % of the reward"
)
_WORDS = sweep_panel.Words(note=f"sweet spot: {_SWEET_SPOT}")
QAT_RESULTS = os.path.join(qat_rows.DEFAULT_FOLDER, qat_rows.CSV_NAME)


def make_panel(sweep: selection.Sweep, title: str) -> sweep_panel.Panel:
    """Returns what a plot of a sweep shows.

    Args:
      sweep: with at least one quantized row.
      title: of the panel.
    """
    series = []
    for scheme, rows in sweep.quantized.items():
        best, fewest = selection.best_width(rows), selection.fewest_bits(rows)
        series.append(
            sweep_panel.Series(
                LABELS[scheme],
                COLOURS[scheme],
                [_point(row) for row in rows.values()],
                best.bits if best else None,
                fewest.bits if fewest else None,
            )
        )
    return sweep_panel.Panel(title, _point(sweep.fp32), series)


def describe(sweep: selection.Sweep, **quantizer: str) -> str:
    """Returns 'ppo CartPole-v1, N episodes (seeds 0, 2, 4), channel granularity'.

    Args:
      sweep: one agent's.
      **quantizer: `granularity` and `rounding` of its quantized rows.
    """
    seeds = sweep.fp32.seeds.split(",")
    noun = "seeds" if len(seeds) > 1 else "seed"
    return (
        f"{sweep.algo} {sweep.shown_env}, {sweep.fp32.episodes} episodes "
        f"({noun} {', '.join(seeds)}){rows_lib.in_words(**quantizer)}"
    )


def text_table(sweep: selection.Sweep, title: str) -> str:
    """Returns the numbers of a sweep as Markdown, with the sweet spots below."""
    cells = [_cells("fp32", sweep.fp32)]
    notes = []
    for scheme, rows in sweep.quantized.items():
        cells += [_cells(LABELS[scheme], row) for row in rows.values()]
        best, fewest = selection.best_width(rows), selection.fewest_bits(rows)
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


def summary_table(sweeps: Sequence[selection.Sweep]) -> str:
    """Returns the sweet spots of many sweeps as Markdown, a line for each scheme."""
    cells = []
    for sweep in sweeps:
        for scheme, rows in sweep.quantized.items():
            best, fewest = selection.best_width(rows), selection.fewest_bits(rows)
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
    """Draws one sweep, or all and a grid for each algorithm.

    Args:
      rows: of the results file.
      pair: algorithm and environment; None: all that are there.
      folder: for the PNGs, made if missing.
      granularity: of the quantized rows.
      rounding: of the quantized rows.

    Returns:
      The numbers as text, and the paths of the figures.

    Raises:
      errors.UserError: there is nothing to draw for a pair.
    """
    quantizer = {"granularity": granularity, "rounding": rounding}
    every = selection.sweeps(rows, **quantizer)
    drawable = [sweep for sweep in every if sweep.quantized]
    if pair is None and not drawable:
        raise errors.UserError(
            f"There is no row of fp32 with rows of {granularity} granularity and {rounding} "
            f"rounding to it: baseline/benchmark.sh ALGO ENV{rows_lib.as_flags(**quantizer)} "
            "measures a sweep."
        )
    chosen = drawable
    if pair is not None:
        chosen = [
            sweep
            for sweep in drawable
            if sweep.algo == pair[0] and pair[1] in (sweep.env, sweep.shown_env)
        ]
        if not chosen:
            raise errors.UserError(_nothing(rows, pair, drawable, granularity, rounding))
    titles = [describe(sweep, **quantizer) for sweep in chosen]
    sheets = [
        sweep_files.Sheet(sweep.algo, sweep.env, sweep.shown_env, make_panel(sweep, title))
        for sweep, title in zip(chosen, titles, strict=True)
    ]
    marks = tuple(rows_lib.not_default(**quantizer).values())
    if pair is not None:
        text = "\n".join(map(text_table, chosen, titles))
        return text, sweep_files.draw(folder, sheets, _WORDS, None, marks)
    grids = f"reward against bits after training{rows_lib.in_words(**quantizer)}"
    return summary_table(chosen), sweep_files.draw(folder, sheets, _WORDS, grids, marks)


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define_rows(scheme=False)
    flags.FLAGS["results"].help = (
        f"CSV file with the rows; several with commas (with --qat: {QAT_RESULTS})."
    )
    flags.DEFINE_string(
        "out", "",
        "Folder for the figures, and --qat's tables; empty: plots/ beside the (first) file, the "
        "tables beside the file.",
    )
    flags.DEFINE_boolean("all", False, "Draw every pair found, and a grid for each algorithm.")
    flags.DEFINE_boolean(
        "qat", False, "Of quantization-aware training: QAT against PTQ, and table.md, table.csv."
    )


def main(argv: list[str]) -> int:
    """Draws one pair, or all; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) != (1 if values.all else 3):
        raise errors.UserError(
            "takes an algorithm and an environment, e.g. ppo CartPole-v1; or --all and neither."
        )
    pair = None if values.all else (names.canonical_algo(argv[1]), argv[2])
    paths = values.results
    if values.qat and flags.FLAGS["results"].using_default_value:
        paths = [QAT_RESULTS]
    quantizer = {"granularity": values.granularity, "rounding": values.rounding}
    unknown = rows_lib.as_flags(**quantizer)
    if values.qat and unknown:
        raise errors.UserError(
            f"Training with quantization knows the paper's scales, rounded to nearest, only: leave "
            f"out{unknown}."
        )
    rows = qat_collate.read(paths) if values.qat else _read(paths)
    beside = os.path.dirname(paths[0])
    folder = values.out or os.path.join(beside, sweep_files.FOLDER)
    if values.qat:
        text, drawn = qat_collate.collate(rows, pair, folder, values.out or beside)
    else:
        text, drawn = collate(rows, pair, folder, **quantizer)
    sys.stdout.write("\n".join((text, *drawn, "")))
    return 0


def _read(paths: Sequence[str]) -> list[Row]:
    for path in paths:
        if rows_lib.has_columns(path, qat_rows.TrainedRow):
            raise errors.UserError(f"{path} has rows of trainings: give --qat to draw them.")
    return rows_lib.read_files(paths)


def _point(row: Row) -> sweep_panel.Point:
    interval = intervals.mean(row.returns)
    seeds = tuple(float(part.mean()) for part in row.seed_returns if part.size)
    return sweep_panel.Point(row.bits, row.mean, interval.low, interval.high, seeds)


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
    there: Sequence[selection.Sweep],
    granularity: str,
    rounding: str,
) -> str:
    algo, env = pair
    measured = {row.bits for row in rows_lib.find(rows, algo=algo, env=env)}
    if measured:
        what = (
            f"no row of {granularity} granularity and {rounding} rounding with fp32's seeds and "
            "episodes"
        )
        if names.FP32 not in measured:
            what = "no fp32 row"
        elif measured == {names.FP32}:
            what = "only fp32"
        reason = f"Of {algo} {env} there is {what}"
    else:
        others = ", ".join(sweep.env for sweep in there if sweep.algo == algo) or "nothing"
        reason = f"Nothing is measured of {algo} {env} (of {algo} there is: {others})"
    asked = rows_lib.as_flags(granularity=granularity, rounding=rounding)
    return f"{reason}: baseline/benchmark.sh {algo} {env}{asked} measures the sweep."


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="collate")
