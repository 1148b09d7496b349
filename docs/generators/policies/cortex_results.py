"""Blocks of results/microcontrollers.md: policies in C on emulated Cortex-M processors."""

from collections.abc import Callable
import functools

from baseline.formats import names
from docs.generators import prose
from docs.generators import tables

_CSV = tables.BASELINE_RESULTS / "cortex_m" / "cortex_m.csv"
Row = dict[str, str]


@functools.cache
def rows() -> tuple[Row, ...]:
    """Returns all rows: agents, widths and processors."""
    return tuple(tables.csv_rows(_CSV))


def _of(row: Row, core: str, bits: str, floats: str = names.HARD) -> Row | None:
    """Returns the row of the same agent on a processor with a width."""
    return next(
        (
            other for other in rows()
            if (other["agent"], other["layers"]) == (row["agent"], row["layers"])
            and (other["core"], other["bits"], other["floats"]) == (core, bits, floats)
        ),
        None,
    )


def shares(bits: str, column: str = "instructions", core: str = "cortex-m4") -> list[float]:
    """Returns a column's shares of its value with 32 bits, the smallest first."""
    found = []
    for row in rows():
        if (row["core"], row["bits"], row["floats"]) != (core, bits, names.HARD):
            continue
        wide = _of(row, core, "32")
        if wide is not None and row[column] and wide[column]:
            found.append(float(row[column]) / float(wide[column]))
    return sorted(found)


@prose.wrapped
def answer() -> str:
    """Returns the answer of the page."""
    flash, instructions = shares("8", "flash_bytes"), shares("8")
    exact = min(float(row["exact"]) for row in rows() if row["exact"])
    equal = min(float(row["core_equal"]) for row in rows() if row["core_equal"])
    times = sorted(float(row["micro_s"]) / float(row["c_s"]) for row in _interpreted())
    return (
        f"**Answer.** With 8 bits a policy takes {_span(flash)} % of the flash that it takes with "
        f"32 bits. On a Cortex-M4 an action takes {_span(instructions)} % of the instructions. "
        f"At least {100 * exact:.2f} % of the actions have the bits of the reference's. The "
        f"emulated processors gave at least {100 * equal:.2f} % of this machine's actions. "
        f"TensorFlow Lite Micro's interpreter takes {times[0]:.1f} to {times[-1]:.1f} times as "
        "long as C on this machine."
    )


def _span(found: list[float]) -> str:
    return f"{100 * found[0]:.0f} to {100 * found[-1]:.0f}"


def main_table() -> str:
    """Returns memory and instructions of every file."""
    lines = []
    before = ""
    for row in rows():
        if row["core"] != "cortex-m4":
            continue
        seven = _of(row, "cortex-m7", row["bits"], row["floats"])
        name = f"{row['agent']}, {row['layers']}"
        width = row["bits"] + (", no floats" if row["floats"] == names.NONE else "")
        lines.append([
            name if name != before else "", width,
            *(f"{int(row[column]) / 1000:.1f}" for column in ("flash_bytes", "ram_bytes")),
            row["stack_bytes"], _count(row), "" if seven is None else _count(seven),
            tables.number(float(row["cmsis_instructions"])) if row["cmsis_instructions"] else "",
            f"{100 * float(row['alike']):.1f} %",
        ])
        before = name
    head = ["Policy", "Bits", "Flash, kB", "RAM, kB", "Stack, bytes", "Cortex-M4, instructions",
            "Cortex-M7", "CMSIS-NN on the M4", "as the agent"]
    return tables.table(head, lines, text_columns=2)


def _count(row: Row) -> str:
    return tables.number(float(row["instructions"])) if row["instructions"] else "too large"


def equality() -> str:
    """Returns in how many states files were compared, and how far they agree."""
    lines = [
        [
            row["agent"], row["layers"],
            row["bits"] + (", no floats" if row["floats"] == names.NONE else ""), row["core"],
            tables.number(float(row["states"])),
            f"{100 * float(row['exact']):.2f} %" if row["exact"] else "",
            tables.number(float(row["core_states"])) if row["core_equal"] else "",
            f"{100 * float(row['core_equal']):.2f} %" if row["core_equal"] else "",
        ]
        for row in rows()
    ]
    head = ["Agent", "Hidden layers", "Bits", "Processor", "States here", "bits of the reference",
            "States there", "actions as here"]
    return tables.table(head, lines, text_columns=4)


def interpreter() -> str:
    """Returns the table beside TensorFlow Lite Micro's interpreter."""
    lines = [
        [
            row["agent"], row["layers"],
            *(f"{1e6 * float(row[column]):.1f}" for column in ("c_s", "micro_s")),
            f"{float(row['micro_s']) / float(row['c_s']):.1f}",
            *(f"{int(row[column]) / 1000:.1f}" for column in ("flash_bytes", "micro_bytes")),
            *(f"{100 * float(row[column]):.1f} %" for column in ("alike", "micro_alike")),
        ]
        for row in _interpreted()
    ]
    head = ["Agent", "Hidden layers", "C, µs", "TFLM, µs", "TFLM to C, times", "C, kB of flash",
            ".tflite, kB", "C as the agent", "TFLM as the agent"]
    return tables.table(head, lines, text_columns=2)


def _interpreted() -> list[Row]:
    return [row for row in rows() if row.get("c_s") and row["core"] == "cortex-m4"]


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "main": main_table, "equality": equality,
    "interpreter": interpreter,
}
