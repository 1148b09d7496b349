"""Reproduces the paper's finding plots: do wider weight distributions lose more reward?

    python -m baseline.findings --results quantized/ptq.csv --out quantized/findings

Draws the width of the fp32 weights against E over environments (for each algorithm) and over
algorithms (for each environment), prints rank correlations and whether the paper's relation holds
in these rows; with --folder also the weights' distributions side by side.
"""

from collections.abc import Sequence
import os
import re
import sys
from typing import Any

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from actorQ.core import output
from actorQ.core import provenance
from baseline.agents import weight_files
from baseline.quantization import weight_statistics
from baseline.study import finding_plots
from baseline.study import intervals
from baseline.study import measuring_flags
from baseline.study import rows as rows_lib
from baseline.study import selection
from baseline.study import weight_plots
from baseline.study import width_relation

STEM = "findings"
# Relative difference of widths up to which an agent is taken for the one of the rows.
_SAME_WIDTH = 1e-3


def points(
    sweeps: Sequence[selection.Sweep], scheme: str, bits: str
) -> tuple[list[width_relation.Point], list[str]]:
    """Returns an agent's width and error for each sweep, and who is left out and why.

    Of agents of one algorithm in environments that are the same today, the last counts.

    Args:
      sweeps: the agents.
      scheme: of the quantized rows.
      bits: their precision.
    """
    found, left_out = {}, []
    for sweep in sweeps:
        row = sweep.quantized.get(scheme, {}).get(bits)
        name = f"{sweep.algo} {sweep.shown_env}"
        if row is None:
            left_out.append(f"{name} (no row of {bits} bits)")
        elif None in (row.error, row.error_low, row.error_high):
            left_out.append(f"{name} (E has no interval: {row.note or 'fp32 mean of zero'})")
        else:
            replaced = found.pop((sweep.algo, sweep.shown_env), None)
            if replaced is not None:
                left_out.append(f"{sweep.algo} {replaced[0]} ({sweep.env} is the same today)")
            found[sweep.algo, sweep.shown_env] = sweep.env, width_relation.Point(
                sweep.algo, sweep.shown_env, sweep.fp32.weight_width,
                row.error, row.error_low, row.error_high,
            )  # fmt: skip
    return [point for _, point in found.values()], left_out


def markdown(
    agents: Sequence[width_relation.Point],
    relations: Sequence[width_relation.Relation],
    left_out: Sequence[str],
    described: str,
) -> str:
    """Returns the report."""
    certain = sum(point.certain for point in agents)
    parts = [
        f"## Width of the weights against E ({described})\n",
        "Paper (arXiv:1910.01055, sec. 5, of three agents each): the wider the distribution, the "
        "larger the error. Width: of the central 99 % of the fp32 weights of the acting network. "
        f"{len(agents)} agents; the 95 % interval of E leaves zero out for {certain} of them, the "
        "order of the others is luck.\n",
    ]
    for relation in relations:
        fixed = "algorithm" if relation.over == width_relation.ENVIRONMENTS else "environment"
        parts.append(f"### Over {relation.over}, {fixed} fixed\n")
        parts.append(f"{relation.verdict()}\n")
        if relation.groups:
            rows = [
                (group.name, str(len(group.points)), group.described())
                for group in relation.groups
            ]
            parts.append(output.markdown_table((fixed, "n", "Spearman"), rows))
    rows = [
        (f"{point.algo} {point.env}", f"{point.width:.3g}", point.interval.text())
        for point in sorted(agents, key=lambda point: point.width)
    ]
    parts.append("### Agents, narrowest first\n")
    parts.append(output.markdown_table(("agent", "width", "E [95 %]"), rows))
    if left_out:
        parts.append(f"Left out: {'; '.join(left_out)}.\n")
    return "\n".join(parts)


def csv_rows(agents: Sequence[width_relation.Point]) -> list[dict[str, Any]]:
    """Returns the agents as rows; errors as fractions."""
    return [point._asdict() for point in agents]


def draw_weights(
    agents: Sequence[width_relation.Point],
    relations: Sequence[width_relation.Relation],
    sweeps: Sequence[selection.Sweep],
    folder: str,
    out: str,
) -> list[str]:
    """Draws the weights of each group's agents side by side; returns the paths.

    Args:
      agents: all of them.
      relations: whose groups to draw.
      sweeps: that the agents come from, for their names in the folder.
      folder: FOLDER/ALGO/ENV_1/ENV.zip.
      out: folder of the figures.

    Raises:
      errors.UserError: none of the agents is there, or one is damaged.
    """
    # Of several names of one environment, that of the agent whose width it is.
    old_names = {
        (sweep.algo, sweep.shown_env, sweep.fp32.weight_width): sweep.env for sweep in sweeps
    }
    models = {}
    for point in agents:
        weights = _weights(point, old_names[point[:3]], folder)
        if weights is not None:
            models[point] = weights
    if not models:
        raise errors.UserError(f"{folder} has none of the agents (FOLDER/ALGO/ENV_1/ENV.zip).")
    paths = []
    for relation in relations:
        for group in relation.groups:
            over_environments = relation.over == width_relation.ENVIRONMENTS
            shown = [
                weight_plots.Model(
                    point.env if over_environments else point.algo.upper(),
                    f"width {point.width:.3g}, E {intervals.fixed(100 * point.error, 2)} %",
                    models[point],
                )
                for point in group.points
                if point in models
            ]
            if len(shown) < 2:
                continue
            name = group.name.upper() if over_environments else group.name
            paths.append(
                weight_plots.draw_models(
                    os.path.join(out, f"weights-{_file_name(group.name)}.png"),
                    f"{name}: weights over {relation.over}, narrowest to widest",
                    shown,
                )
            )
    return paths


def _weights(point: width_relation.Point, env: str, folder: str) -> Any:
    """Returns an agent's weights [N], or None with a warning if it is not there."""
    with lean_imports.without("tensorboard"):  # Which Stable-Baselines3 loads TensorFlow for.
        from baseline.agents import finding as agents_lib

    if (point.algo, env) not in agents_lib.found(folder):
        logging.warning("Not drawn: %s has no agent %s %s.", folder, point.algo, env)
        return None
    path = agents_lib.find(point.algo, env, folder)
    numbers = weight_statistics.flatten(weight_files.read(path).weights())
    width = weight_statistics.statistics(numbers).width
    if abs(width - point.width) > _SAME_WIDTH * abs(point.width):
        logging.warning(
            "Not drawn: %s is not the agent of the rows (width %.4g there, %.4g here).",
            path, point.width, width,
        )  # fmt: skip
        return None
    return numbers


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name).strip("_")


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
    sweeps = selection.sweeps(
        rows_lib.read_files(values.results), [values.scheme], values.granularity, values.rounding,
        wanted=(values.bits,),
    )  # fmt: skip
    agents, left_out = points(sweeps, values.scheme, values.bits)
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
    text = markdown(agents, relations, left_out, described)
    output.make_folder(values.out)
    paths = [os.path.join(values.out, f"{STEM}.{ending}") for ending in ("md", "csv")]
    output.write_text(paths[0], f"{text}\nCommit {provenance.git_commit()}.\n")
    output.write_csv(paths[1], csv_rows(agents))
    for relation in relations:
        if relation.groups:
            path = os.path.join(values.out, f"width_error_{relation.over}.png")
            paths.append(finding_plots.draw(path, relation, described))
    if values.folder:
        paths += draw_weights(agents, relations, sweeps, values.folder, values.out)
    sys.stdout.write(text + "\n" + "\n".join(paths) + "\n")


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="findings")
