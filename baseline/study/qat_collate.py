"""Draws and tabulates quantization-aware training against PTQ; see `collate` for the command.

The figures are the paper's for every pair of algorithm and environment: reward at fp32, 8*, then 8
to 2 bits. 8* is the fp32 agent quantized to int8 after training. Beyond the paper, the same agents
are quantized after training to every width. table.md and table.csv always have all pairs.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from baseline.quantization import names
from baseline.study import qat_comparison
from baseline.study import qat_rows
from baseline.study import qat_tables
from baseline.study import rows as rows_lib
from baseline.study import sweep_plots
from baseline.study import sweeps
from baseline.study.qat_rows import TrainedRow

TABLE = "table"  # The files are table.md and table.csv.
_INT8_NOTE = "8*: the fp32 agents quantized to int8 after training"
_COLOURS = {
    qat_rows.FROZEN: plotting.WINE, qat_rows.MOVING: plotting.INDIGO,
    qat_rows.LEARNED: plotting.ORANGE,
}
# For kinds that have the ranges of another one.
_MORE_COLOURS = (plotting.INDIGO, "0.6", plotting.SAND, "0.3")


def collate(
    rows: Sequence[TrainedRow],
    pair: tuple[str, str] | None,
    folder: str,
    table_folder: str,
) -> tuple[str, list[str]]:
    """Draws a pair's study, or all and a grid for each algorithm; writes the tables of all.

    Returns:
      The numbers of the drawn pairs as text, and the paths of all files.

    Raises:
      errors.UserError: there is nothing to compare for a pair, or a file cannot be written.
    """
    every = qat_comparison.studies(rows)
    chosen = sweeps.of_pair(every, pair)
    there = {(study.algo, study.env) for study in every}
    lacking = sorted({(row.algo, row.env) for row in rows} - there)
    if not chosen:
        reasons = [_reason(rows, one) for one in ([pair] if pair else lacking)]
        raise errors.UserError(
            " ".join(reasons) or f"There are no rows: {qat_rows.TrainedRow.MAKER}."
        )
    found = qat_tables.compared(every)
    shown = [one for one in found if one.study in chosen]
    without = "".join(f"- {_reason(rows, one)}\n" for one in lacking)
    base = os.path.join(table_folder, TABLE)
    output.make_folder(table_folder or ".")
    output.write_text(f"{base}.md", qat_tables.markdown(found) + without)
    output.write_csv(f"{base}.csv", qat_tables.csv_rows(found))
    grids = "reward against bits of quantization-aware training" if pair is None else None
    paths = sweep_plots.draw(folder, make_panels(chosen), words(chosen), grids)
    text = qat_tables.markdown(shown) + (without if pair is None else "")
    return text, [*paths, f"{base}.md", f"{base}.csv"]


def words(studies: Sequence[qat_comparison.Study]) -> sweep_plots.Words:
    """Returns the legend's texts for plots of these studies."""
    with_int8 = any(study.ptq and "8" in study.ptq.rows for study in studies)
    return sweep_plots.Words(
        "lowest to highest training seed", "each training seed", _INT8_NOTE if with_int8 else ""
    )


def make_panels(studies: Sequence[qat_comparison.Study]) -> list[sweep_plots.Panel]:
    """Returns a plot of each study; the same curve has one name in all of them."""
    colours = _kind_colours(sweep.kind for study in studies for sweep in study.qat)
    return [_make_panel(study, colours) for study in studies]


def _kind_colours(kinds: Iterable[qat_comparison.Kind]) -> dict[str, str]:
    """Returns a colour for each kind's name: that of its ranges, or a free one if that is taken."""
    colours: dict[str, str] = {}
    for name, ranges in sorted({(kind.name, kind.ranges) for kind in kinds}):
        own = _COLOURS[ranges.partition("-")[0]]
        free = [one for one in (own, *_MORE_COLOURS) if one not in colours.values()]
        colours[name] = free[0] if free else own
    return colours


def _make_panel(study: qat_comparison.Study, colours: Mapping[str, str]) -> sweep_plots.Panel:
    """Lays out fp32, QAT as the strong and PTQ as the light line, over training seeds.

    Args:
      study: what to lay out.
      colours: a colour for each kind of all figures.
    """
    series = []
    for sweep in study.qat:
        name = sweep.kind.name
        label = f"QAT, {name}" if len(colours) > 1 else "QAT"
        series.append(sweep_plots.Series(label, colours[name], _points(sweep)))
    if study.ptq is not None:
        points = _points(study.ptq)
        int8 = [point._replace(bits=sweep_plots.INT8) for point in points if point.bits == "8"]
        series.append(
            sweep_plots.Series(
                "PTQ of the fp32 agents", plotting.OLIVE, [*int8, *points], light=True
            )
        )
    fp32 = _point(names.FP32, study.control)
    return sweep_plots.Panel(
        study.algo, study.env, study.shown_env, _title(study), fp32, series, fp32_place=True
    )


def _title(study: qat_comparison.Study) -> str:
    trainings, episodes = len(study.train_seeds), study.any_control.episodes
    sweeps = [*study.qat, *([study.ptq] if study.ptq else [])]
    counts = [len(rows) for sweep in sweeps for rows in sweep.rows.values()]
    up_to = "up to " if min(len(study.control), *counts) < trainings else ""
    return (
        f"{study.algo} {study.shown_env}, {up_to}{trainings} training seed{'s' * (trainings > 1)}, "
        f"{episodes} episode{'s' * (episodes > 1)} each"
    )


def _points(sweep: qat_comparison.TrainedSweep) -> list[sweep_plots.Point]:
    return [_point(bits, rows) for bits, rows in sweep.rows.items()]


def _point(bits: str, rows: Mapping[int, TrainedRow]) -> sweep_plots.Point:
    """Returns a point whose band reaches from the lowest to the highest training."""
    found = qat_comparison.cell(rows)
    several = len(found.seeds) > 1
    return sweep_plots.Point(
        bits,
        found.mean,
        min(found.seed_means) if several else None,
        max(found.seed_means) if several else None,
        found.seed_means,
    )


def _reason(rows: Sequence[TrainedRow], pair: tuple[str, str]) -> str:
    """Returns why there is no study of a pair, and the command that helps."""
    algo, env = pair
    methods = {
        row.method
        for row in rows_lib.find(rows, algo=algo)
        if env in (row.env, sweeps.shown_env(row.env))
    }
    if not methods:
        others = ", ".join(sorted({row.env for row in rows_lib.find(rows, algo=algo)}))
        reason = (
            f"Nothing is measured of {algo} {env} (for {algo} there is: {others or 'nothing'})"
        )
    elif qat_rows.QAT not in methods:
        reason = f"For {algo} {env} there is no row of QAT"
    elif qat_rows.CONTROL not in methods:
        reason = (
            f"For {algo} {env} there is no control (the same training without quantization), so "
            "that nothing can be compared"
        )
    else:
        reason = (
            f"For {algo} {env} no control has as many steps and the same evaluation as a row of "
            "QAT of this granularity and rounding"
        )
    return f"{reason}: baseline/qat_benchmark.sh {algo} {env} makes the missing rows."
