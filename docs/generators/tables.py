"""Markdown tables, and the committed results that they are made of."""

from collections.abc import Iterable
from collections.abc import Sequence
import csv
import json
import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTORQ_RESULTS = ROOT / "actorQ" / "results"
BASELINE_RESULTS = ROOT / "baseline" / "results"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Returns a Markdown table.

    Args:
        head: Names of the columns.
        rows: Cells of each row, as many as there are columns.
        text_columns: Number of columns, from the left, that hold text. Numbers of the others
            stand at the right.
    """
    marks = ["---" if i < text_columns else "---:" for i in range(len(head))]
    lines = [head, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def csv_rows(path: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file, by the names of its columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_json(path: pathlib.Path) -> Any:
    """Returns what a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def number(value: float, digits: int = 0) -> str:
    """Returns a number with commas between thousands, for example 1,628.6."""
    return f"{value:,.{digits}f}"
