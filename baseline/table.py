"""Prints the paper's tables of post-training quantization for our agents, beside its own.

    python -m baseline.table [--results quantized/ptq.csv] [--algo a2c,ppo] [--out FILE.md|FILE.csv]

E = (fp32 - q) / |fp32| with its paired bootstrap 95 % interval. The mean of E is over the agents
that have an interval, with a verdict on whether it reaches the paper's. A second table has all
widths.
"""

import os
import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from baseline.quantization import names
from baseline.study import measuring_flags
from baseline.study import paper_tables
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib


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
    sweeps = [
        sweep
        for sweep in sweeps_lib.sweeps(
            rows_lib.read_files(values.results, rows_lib.Row), [values.scheme], values.granularity,
            values.rounding, wanted=paper_tables.COMPARED,
        )
        if sweep.quantized
    ]
    algos = [names.canonical_algo(name) for name in values.algo]
    there = list(paper_tables.by_algorithm(sweeps))
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
    text = paper_tables.markdown(sweeps, values.scheme, values.widths, **quantizer)
    # The file comes first, so that it is written even if nobody reads the output to its end.
    if values.out:
        output.make_folder(os.path.dirname(values.out) or ".")
    if values.out.endswith(".md"):
        output.write_text(values.out, text)
    elif values.out:
        output.write_csv(values.out, paper_tables.csv_rows(sweeps, values.scheme))
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="table")
