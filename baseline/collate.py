"""Draws the sweet-spot plots of post-training quantization: reward against bits.

    python -m baseline.collate ALGO ENV [--results quantized/ptq.csv] [--out FOLDER]
    python -m baseline.collate --all [--results ...]     every pair, and a grid for each algorithm
    python -m baseline.collate --qat ...                 quantization-aware training, against PTQ

Writes PNGs and prints the numbers; `sweet_spots` and `qat_collate` do the work.
"""

from collections.abc import Sequence
import os
import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from baseline.quantization import names
from baseline.study import measuring_flags
from baseline.study import qat_collate
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.study import sweep_plots
from baseline.study import sweet_spots

QAT_RESULTS = os.path.join(qat_rows.DEFAULT_FOLDER, qat_rows.CSV_NAME)


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define_rows(scheme=False)
    flags.FLAGS["results"].help = (
        f"CSV files with the rows, comma separated (with --qat: {QAT_RESULTS})."
    )
    flags.DEFINE_string(
        "out", "",
        "Folder for the figures, and --qat's tables; empty: plots/ beside the first file, the "
        "tables beside the file.",
    )
    flags.DEFINE_boolean("all", False, "Draw every pair found, and a grid for each algorithm.")
    flags.DEFINE_boolean(
        "qat", False,
        "Draw quantization-aware training against PTQ, and write table.md and table.csv.",
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
    beside = os.path.dirname(paths[0])
    folder = values.out or os.path.join(beside, sweep_plots.FOLDER)
    quantizer = {"granularity": values.granularity, "rounding": values.rounding}
    if values.qat:
        unknown = rows_lib.as_flags(**quantizer)
        if unknown:
            raise errors.UserError(
                f"--qat draws the granularities that the rows have: leave out{unknown}."
            )
        _refuse(
            paths, rows_lib.Row,
            "rows as baseline.ptq writes them, without their training: leave out --qat, or name a "
            f"file with rows of trainings ({qat_rows.TrainedRow.MAKER})",
        )
        trained = rows_lib.read_files(paths, qat_rows.TrainedRow)
        text, drawn = qat_collate.collate(trained, pair, folder, values.out or beside)
    else:
        _refuse(paths, qat_rows.TrainedRow, "rows of trainings: give --qat to draw them")
        rows = rows_lib.read_files(paths, rows_lib.Row)
        text, drawn = sweet_spots.collate(rows, pair, folder, **quantizer)
    sys.stdout.write("\n".join((text, *drawn, "")))
    return 0


def _refuse(paths: Sequence[str], kind: type[rows_lib.Row], what: str) -> None:
    for path in paths:
        if rows_lib.has_columns(path, kind):
            raise errors.UserError(f"{path} has {what}.")


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="collate")
