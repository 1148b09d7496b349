"""Draws the sweet-spot plots of post-training quantization: reward against bits.

    python -m baseline.collate ALGO ENV [--results quantized/ptq.csv] [--out FOLDER]
    python -m baseline.collate --all [--results ...]     every pair, and a grid for each algorithm

Writes PNGs and prints the numbers. The sweet spot is the narrowest width at which, as at all wider
ones, the 95 % interval of E (the share of fp32's reward that is lost) reaches down to 2 %: no loss
beyond that is shown.
"""

from collections.abc import Sequence
import os
import re
import sys

from absl import flags

from actorQ import cli
from actorQ import errors
from actorQ.scripts import curves
from baseline import intervals
from baseline import measuring_flags
from baseline import results
from baseline import selection
from baseline import sweep_plot
from baseline.results import Row

PLOTS_FOLDER = "plots"
# Told apart by the colour-blind, too (Okabe and Ito's palette).
COLOURS = {"weights": "#0072B2", "weights+activations": "#D55E00"}
LABELS = {"weights": "weights", "weights+activations": "weights and activations"}
_SWEET_SPOT = (
    "the fewest bits not shown to cost more than "
    f"{100 * selection.TOLERATED_LOSS:g} % of the reward"
)
_NOTE = f"sweet spot: {_SWEET_SPOT}"


def make_panel(sweep: selection.Sweep, title: str) -> sweep_plot.Panel:
    """Returns what a plot of a sweep shows.

    Args:
      sweep: with at least one quantized row.
      title: of the panel.
    """
    series = []
    for scheme, rows in sweep.quantized.items():
        best, fewest = selection.best_width(rows), selection.fewest_bits(rows)
        series.append(
            sweep_plot.Series(
                LABELS[scheme],
                COLOURS[scheme],
                [_point(row) for row in rows.values()],
                best.bits if best else None,
                fewest.bits if fewest else None,
            )
        )
    return sweep_plot.Panel(title, _point(sweep.fp32), series)


def describe(sweep: selection.Sweep) -> str:
    """Returns 'N episodes (seeds 0, 2, 4)'."""
    seeds = sweep.fp32.seeds.split(",")
    noun = "seeds" if len(seeds) > 1 else "seed"
    return f"{sweep.fp32.episodes} episodes ({noun} {', '.join(seeds)})"


def text_table(sweep: selection.Sweep) -> str:
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
    title = f"{sweep.algo} {sweep.shown_env}, {describe(sweep)}"
    return f"{title}\n\n{curves.markdown_table(header, cells)}\n" + "\n".join(notes) + "\n"


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
                    f"{best.mean:.6g} at {best.bits}" if best else curves.NOT_AVAILABLE,
                    fewest.bits if fewest else "none",
                    fewest.interval.text() if fewest else "",
                ]
            )
    header = ["Agent", "Quantized", "fp32", "Best", "Sweet spot, bits", "E there [95 % interval]"]
    return f"{curves.markdown_table(header, cells)}\nSweet spot: {_SWEET_SPOT}.\n"


def plot_name(algo: str, env: str) -> str:
    """Returns the file name of a pair's plot; names such as ALE/Pong-v5 lose their slash."""
    return f"{algo}_{re.sub(r'[/,]', '_', env)}.png"


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
    every = selection.sweeps(rows, granularity=granularity, rounding=rounding)
    drawable = [sweep for sweep in every if sweep.quantized]
    if pair is None and not drawable:
        raise errors.UserError(
            f"There is no row of fp32 with rows of {granularity} granularity and {rounding} "
            "rounding to it: baseline/benchmark.sh ALGO ENV measures a sweep."
        )
    chosen = drawable
    if pair is not None:
        chosen = [
            sweep
            for sweep in drawable
            if sweep.algo == pair[0] and pair[1] in (sweep.env, sweep.shown_env)
        ]
        if not chosen:
            raise errors.UserError(_nothing(rows, pair, drawable))
    curves.make_folder(folder)
    paths: list[str] = []
    panels: dict[str, list[sweep_plot.Panel]] = {}
    for sweep in chosen:
        panel = make_panel(sweep, f"{sweep.algo} {sweep.shown_env}, {describe(sweep)}")
        panels.setdefault(sweep.algo, []).append(panel._replace(title=sweep.shown_env))
        path = os.path.join(folder, plot_name(sweep.algo, sweep.env))
        paths.append(sweep_plot.draw(path, panel, _NOTE))
    if pair is not None:
        return "\n".join(text_table(sweep) for sweep in chosen), paths
    for algo, members in panels.items():
        path = os.path.join(folder, f"overview_{algo}.png")
        title = f"{algo}: reward against bits after training"
        paths.append(sweep_plot.draw_grid(path, title, members, _NOTE))
    return summary_table(chosen), paths


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define_rows(scheme=False)
    flags.DEFINE_string("out", "", "Folder for the figures; empty: plots/ beside the (first) file.")
    flags.DEFINE_boolean("all", False, "Draw every pair found, and a grid for each algorithm.")


def main(argv: list[str]) -> int:
    """Draws one pair, or all; see `cli.run` for errors."""
    values = flags.FLAGS
    if len(argv) != (1 if values.all else 3):
        raise errors.UserError(
            "takes an algorithm and an environment, e.g. ppo CartPole-v1; or --all and neither."
        )
    pair = None if values.all else (results.canonical_algo(argv[1]), argv[2])
    rows = results.read_files(values.results)
    folder = values.out or os.path.join(os.path.dirname(values.results[0]), PLOTS_FOLDER)
    text, paths = collate(rows, pair, folder, values.granularity, values.rounding)
    sys.stdout.write(text + "\n")
    for path in paths:
        sys.stdout.write(path + "\n")
    return 0


def _point(row: Row) -> sweep_plot.Point:
    interval = intervals.mean(row.returns)
    seeds = tuple(float(part.mean()) for part in row.seed_returns if part.size)
    return sweep_plot.Point(row.bits, row.mean, interval.low, interval.high, seeds)


def _cells(scheme: str, row: Row) -> list[str]:
    error = interval = ""
    if row.bits != results.FP32:
        error, _, interval = row.interval.text().partition(" [")
    return [
        scheme, row.bits, f"{row.mean:.6g}", f"{row.std:.4g}", error,
        f"[{interval}" if interval else "", str(row.bytes),
    ]


def _nothing(
    rows: Sequence[Row], pair: tuple[str, str], there: Sequence[selection.Sweep]
) -> str:
    algo, env = pair
    measured = results.find(rows, algo=algo, env=env)
    if measured:
        what = "only fp32" if {row.bits for row in measured} == {results.FP32} else "no fp32 row"
        reason = f"Of {algo} {env} there is {what} for rows of this kind"
    else:
        names = ", ".join(sweep.env for sweep in there if sweep.algo == algo) or "nothing"
        reason = f"Nothing is measured of {algo} {env} (of {algo} there is: {names})"
    return f"{reason}: baseline/benchmark.sh {algo} {env} measures the sweep."


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="collate")
