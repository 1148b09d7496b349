"""Draws and tabulates quantization-aware training against PTQ; see `collate` for the command.

Writes the paper's figure of reward against bits for every pair of algorithm and environment, and
table.md and table.csv with QAT, PTQ and fp32, of all pairs whatever pair is drawn.
"""

from collections.abc import Sequence
import os

from actorQ.core import errors
from actorQ.core import output
from baseline.study import qat_plot
from baseline.study import qat_rows
from baseline.study import qat_study
from baseline.study import qat_table
from baseline.study import rows as rows_lib
from baseline.study import selection
from baseline.study import sweep_files
from baseline.study.qat_rows import TrainedRow

TABLE = "table"  # With .md and .csv.
_MAKER = "baseline/qat_benchmark.sh ALGO ENV makes them"


def read(paths: Sequence[str]) -> list[TrainedRow]:
    """Returns the rows of the files.

    Raises:
      errors.UserError: as `rows.read_files`, or a file has rows of another kind.
    """
    for path in paths:
        if rows_lib.has_columns(path, rows_lib.Row):
            raise errors.UserError(
                f"{path} has rows as baseline.ptq writes them, without their training: leave out "
                f"--qat, or name a file with rows of trainings ({_MAKER})."
            )
    return rows_lib.read_files(paths, TrainedRow, _MAKER)


def collate(
    rows: Sequence[TrainedRow],
    pair: tuple[str, str] | None,
    folder: str,
    table_folder: str,
) -> tuple[str, list[str]]:
    """Draws one study, or all and a grid for each algorithm; writes the tables of all.

    Args:
      rows: of the results file.
      pair: algorithm and environment; None: all that are there.
      folder: for the PNGs, made if missing.
      table_folder: for the tables, made if missing.

    Returns:
      The numbers of what is drawn as text, and the paths of all files.

    Raises:
      errors.UserError: there is nothing to compare for a pair, or a file cannot be written.
    """
    every = qat_study.studies(rows)
    chosen = every
    if pair is not None:
        chosen = [
            study
            for study in every
            if study.algo == pair[0] and pair[1] in (study.env, study.shown_env)
        ]
    if not chosen:
        raise errors.UserError(_nothing(rows, pair))
    found = qat_table.compared(every)
    shown = [one for one in found if one.study in chosen]
    without = _without_study(rows, every)
    base = os.path.join(table_folder, TABLE)
    output.make_folder(table_folder or ".")
    output.write_text(f"{base}.md", qat_table.markdown(found) + without)
    output.write_csv(f"{base}.csv", qat_table.csv_rows(found))
    sheets = [
        sweep_files.Sheet(study.algo, study.env, study.shown_env, panel)
        for study, panel in zip(chosen, qat_plot.make_panels(chosen), strict=True)
    ]
    grids = "reward against bits of quantization-aware training" if pair is None else None
    paths = sweep_files.draw(folder, sheets, qat_plot.words(chosen), grids)
    text = qat_table.markdown(shown) + (without if pair is None else "")
    return text, [*paths, f"{base}.md", f"{base}.csv"]


def _without_study(rows: Sequence[TrainedRow], studies: Sequence[qat_study.Study]) -> str:
    """Returns a line for each pair that cannot be compared."""
    there = {(study.algo, study.env) for study in studies}
    pairs = sorted({(row.algo, row.env) for row in rows} - there)
    return "".join(f"- {_reason(rows, pair)}\n" for pair in pairs)


def _nothing(rows: Sequence[TrainedRow], pair: tuple[str, str] | None) -> str:
    if pair is not None:
        return _reason(rows, pair)
    reasons = [_reason(rows, pair) for pair in sorted({(row.algo, row.env) for row in rows})]
    return " ".join(reasons) or "There are no rows: baseline/qat_benchmark.sh ALGO ENV makes them."


def _reason(rows: Sequence[TrainedRow], pair: tuple[str, str]) -> str:
    """Returns why there is no study of a pair, and the command that helps."""
    algo, env = pair
    methods = {
        row.method
        for row in rows_lib.find(rows, algo=algo)
        if env in (row.env, selection.shown_env(row.env))
    }
    if not methods:
        names = ", ".join(sorted({row.env for row in rows_lib.find(rows, algo=algo)}))
        reason = f"Nothing is measured of {algo} {env} (of {algo} there is: {names or 'nothing'})"
    elif qat_rows.QAT not in methods:
        reason = f"Of {algo} {env} there is no row of QAT"
    elif qat_rows.CONTROL not in methods:
        reason = (
            f"Of {algo} {env} there is no control (the same training without quantization), so "
            "that nothing can be compared"
        )
    else:
        reason = (
            f"Of {algo} {env} there is no control of as many steps and the same evaluation as a "
            "row of QAT of this granularity and rounding"
        )
    return f"{reason}: baseline/qat_benchmark.sh {algo} {env} makes what is lacking."
