"""Reproduces the paper's finding plots: do wider weight distributions lose more reward?

    python -m baseline.findings --results quantized/ptq.csv --out quantized/findings

Draws the width of the fp32 weights against E over environments (for each algorithm) and over
algorithms (for each environment). Prints rank correlations, and whether the paper's relation holds
in these rows. With --folder it draws the weights' distributions side by side as well.
"""

import os
import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import provenance
from baseline.study import finding_plots
from baseline.study import measuring_flags
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from baseline.study import width_relation

STEM = "findings"


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define_rows()
    flags.DEFINE_string("out", "quantized/findings", "Folder for the figures and the report.")
    flags.DEFINE_string(
        "folder", "", "Folder of the agents, to draw their weights; empty: not drawn."
    )
    flags.DEFINE_string("bits", "8", "Precision whose E is compared: 2 to 32, fp16 or bf16.")


def main(argv: list[str]) -> None:
    """Draws, and prints the report and the paths."""
    del argv
    values = flags.FLAGS
    try:
        rows_lib.width_order(values.bits)
    except ValueError as error:
        raise errors.UserError(f"{error}.") from None
    sweeps = sweeps_lib.sweeps(
        rows_lib.read_files(values.results, rows_lib.Row), [values.scheme], values.granularity,
        values.rounding, wanted=(values.bits,),
    )
    agents, left_out = width_relation.points(sweeps, values.scheme, values.bits)
    if not agents:
        asked = rows_lib.as_flags(
            scheme=values.scheme, granularity=values.granularity, rounding=values.rounding
        )
        raise errors.UserError(
            f"{', '.join(values.results)} has no agent with rows of fp32 and of {values.bits} bits "
            f"(scheme {values.scheme}, granularity {values.granularity}, rounding "
            f"{values.rounding}): baseline/benchmark.sh ALGO ENV{asked} measures them."
        )
    relations = [
        width_relation.relation(agents, over)
        for over in (width_relation.ENVIRONMENTS, width_relation.ALGORITHMS)
    ]
    described = f"{values.bits} bits, {values.scheme}, {values.granularity}, {values.rounding}"
    text = width_relation.markdown(agents, relations, left_out, described)
    output.make_folder(values.out)
    paths = [os.path.join(values.out, f"{STEM}.{ending}") for ending in ("md", "csv")]
    output.write_text(paths[0], f"{text}\nCommit {provenance.git_commit()}.\n")
    output.write_csv(paths[1], [point._asdict() for point in agents])
    for relation in relations:
        if relation.groups:
            path = os.path.join(values.out, f"width_error_{relation.over}.png")
            paths.append(finding_plots.draw_relation(path, relation, described))
    if values.folder:
        paths += finding_plots.draw_weights(
            agents, relations, sweeps, values.folder, values.out
        )
    sys.stdout.write(text + "\n" + "\n".join(paths) + "\n")


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="findings")
