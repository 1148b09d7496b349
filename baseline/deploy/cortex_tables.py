"""Writes the tables and files of `cortex_benchmark`."""

from collections.abc import Sequence
import dataclasses
import os
from typing import Any

from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import provenance
from baseline.deploy import cortex_files
from baseline.formats import names

STEM = "cortex_m"  # The files are cortex_m.md, .json, .csv and .png.
_PROGRAM = "baseline.cortex_benchmark"
_HEADER = (
    "agent", "hidden layers", "weights", "processor", "flash KB", "RAM KB", "stack B",
    "instructions", "of 32 bits", "CMSIS-NN", "as agent", "as form", "as here",
)
_MICRO_HEADER = (
    "agent", "hidden layers", "C us", "TFLM us", "ratio", "C flash KB", ".tflite KB",
    "C as agent", "TFLM as agent",
)


def report(
    rows: Sequence[cortex_files.Row], settings: cortex_files.Settings, out: str | None
) -> None:
    """Prints the table; with `out` writes it (.md), all figures (.json, .csv) and a plot (.png).

    Args:
      rows: The figures.
      settings: How they were measured.
      out: Folder, made if missing, or None.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    text = "\n".join([
        "Policies in C on emulated Cortex-M processors; instructions are those of one action\n",
        output.markdown_table(_HEADER, [_cells(row, rows) for row in rows]),
        *_beside_micro(rows),
        *(f"- {note}" for note in _NOTES),
        "",
    ])
    plain = dataclasses.asdict(settings)
    output.write_measured(_PROGRAM, STEM, text, {"settings": plain, "rows": _plain(rows)}, out)
    if out:
        commit = provenance.git_commit()
        output.write_csv(
            os.path.join(out, f"{STEM}.csv"), [{**row, "commit": commit} for row in _plain(rows)]
        )
        draw(rows, os.path.join(out, f"{STEM}.png"))


_NOTES = (
    "flash: code, weights and tables of the policy; RAM: its static buffers.",
    "of 32 bits: instructions as a share of those of the same agent with 32 bits.",
    "CMSIS-NN: instructions of its int8 kernel for layers of these sizes, with clamps for tanh.",
    "as agent: visited states with the agent's action (continuous: within 2 % of the range). as "
    "form: those with the bits of the numpy form. as here: those that the emulated processor and "
    "this machine give the same bits for.",
    "An instruction is no cycle: loads, and divisions above all, may take several.",
)


def _plain(rows: Sequence[cortex_files.Row]) -> list[dict[str, Any]]:
    """Returns the rows for JSON and CSV, without nested parts."""
    found = []
    for row in rows:
        flat = dataclasses.asdict(row)
        beside: cortex_files.Interpreted | None = flat.pop("interpreted")
        empty = dict.fromkeys(cortex_files.Interpreted._fields)
        found.append(flat | (empty if beside is None else beside._asdict()))
    return found


def _beside_micro(rows: Sequence[cortex_files.Row]) -> list[str]:
    """Returns the table beside TFLite Micro's interpreter; nothing where it was not measured."""
    lines = [
        [
            row.agent, row.layers, f"{1e6 * row.interpreted.c_s:.2f}",
            f"{1e6 * row.interpreted.micro_s:.2f}",
            f"{row.interpreted.micro_s / row.interpreted.c_s:.2f}x",
            f"{row.flash_bytes / 1e3:.1f}", f"{row.interpreted.micro_bytes / 1e3:.1f}",
            f"{100 * row.alike:.2f} %", f"{100 * row.interpreted.micro_alike:.2f} %",
        ]
        for row in rows if row.interpreted is not None and row.core == rows[0].core
    ]
    if not lines:
        return []
    title = (
        f"{cortex_files.MICRO}'s interpreter on this machine, at 8 bits, in turns with the file "
        "in C\n"
    )
    return [title, output.markdown_table(_MICRO_HEADER, lines)]


def of_32_bits(
    row: cortex_files.Row, rows: Sequence[cortex_files.Row]
) -> float | None:
    """Returns a row's instructions as a share of those with 32 bits; None where one is missing."""
    for other in rows:
        if (other.agent, other.layers, other.core, other.bits) == (
            row.agent, row.layers, row.core, 32
        ):
            if row.instructions is not None and other.instructions is not None:
                return row.instructions / other.instructions
    return None


def _cells(row: cortex_files.Row, rows: Sequence[cortex_files.Row]) -> list[str]:
    share = of_32_bits(row, rows)
    return [
        row.agent, row.layers, str(cortex_files.Width(row.bits, row.floats)), row.core,
        f"{row.flash_bytes / 1e3:.1f}", f"{row.ram_bytes / 1e3:.1f}",
        "" if row.stack_bytes is None else str(row.stack_bytes),
        "too large" if row.instructions is None else f"{row.instructions:,.0f}",
        "" if share is None else f"{share:.2f}",
        "" if row.cmsis_instructions is None else f"{row.cmsis_instructions:,.0f}",
        f"{100 * row.alike:.2f} % of {row.states}",
        "" if row.exact is None else f"{100 * row.exact:.2f} %",
        "" if row.core_equal is None else f"{100 * row.core_equal:.2f} % of {row.core_states}",
    ]


def draw(rows: Sequence[cortex_files.Row], path: str) -> str:
    """Draws the instructions of each agent's files on the first processor; returns `path`."""
    shown = [
        row for row in rows
        if row.core == rows[0].core and row.instructions is not None and row.floats == names.HARD
    ]
    agents = list(dict.fromkeys((row.agent, row.layers) for row in shown))
    widths = list(dict.fromkeys(row.bits for row in shown))
    figure, (axis,) = plotting.new_figure(1, 1.5 + 0.5 * len(agents))
    high = 0.8 / len(widths)
    for place, bits in enumerate(widths):
        mine = [row for row in shown if row.bits == bits]
        name = f"int{bits}" if bits <= 8 else f"fp{bits}"
        axis.barh(
            [agents.index((row.agent, row.layers)) + place * high for row in mine],
            [row.instructions for row in mine], high, color=plotting.PRECISION_COLOURS[name],
            label=name,
        )
    axis.set_yticks(
        [index + high * (len(widths) - 1) / 2 for index in range(len(agents))],
        [f"{agent}\n{layers}" for agent, layers in agents],
    )
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel(f"Instructions of an action, {rows[0].core}")
    axis.legend()
    plotting.save_figure(figure, path)
    return path
