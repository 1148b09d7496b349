"""Blocks of results/deployment.md: policies as small files, on one thread and on ARM."""

from collections.abc import Callable
import functools
from typing import NamedTuple

from baseline.formats import names as formats
from baseline.study import intervals
from baseline.study import paper
from docs.generators import prose
from docs.generators import tables

_CALLS = {  # Columns of newer files, and their heads.
    "fp32_p99_us": "fp32 p99, µs", "int_p99_us": "int8 p99, µs", "int_call_us": "call, µs",
}
_CSV = tables.BASELINE_RESULTS / "deployment" / "deployment.csv"
# Our own aims for the largest policy's files of these runtimes.
AIM_SPEEDUP = 3.0
AIM_RATIO = 3.8
_LARGEST = "4096-512-1024"
_AIMED = formats.RUNTIMES["onnx"], formats.RUNTIMES["native"]


class Row(NamedTuple):
    """One policy with one runtime; int8 against fp32 of the same runtime.

    Attributes:
      layers: units of the hidden layers, "64-64-64".
      runtime: name of the runtime.
      fp32_us: microseconds of an observation in fp32.
      int8_us: microseconds of an observation in int8.
      speedup: fp32_us / int8_us.
      fp32_success: share of successful episodes.
      int8_success: the same in int8.
      change: int8_success - fp32_success.
      low: lower end of the change's 95 % interval.
      high: upper end of the interval.
      file_ratio: fp32's file size over int8's.
      memory_ratio: fp32's memory over int8's; None where it is noise.
      paper_speedup: the paper's speed-up on a Raspberry Pi 3b.
      paper_fp32_success: the paper's share of successful episodes.
      paper_int8_success: the same in int8.
      columns: all columns of the file.
    """

    layers: str
    runtime: str
    fp32_us: float
    int8_us: float
    speedup: float
    fp32_success: float
    int8_success: float
    change: float
    low: float
    high: float
    file_ratio: float
    memory_ratio: float | None
    paper_speedup: float
    paper_fp32_success: float
    paper_int8_success: float
    columns: dict[str, str]


@functools.cache
def rows() -> tuple[Row, ...]:
    """Returns all rows: three policies, each with several runtimes."""
    return tuple(
        Row(
            layers=row["layers"],
            runtime=formats.RUNTIMES[row["format"]],
            fp32_us=float(row["fp32_us"]),
            int8_us=float(row["int_us"]),
            speedup=float(row["speedup"]),
            fp32_success=float(row["fp32_success"]),
            int8_success=float(row["int_success"]),
            change=float(row["success_change"]),
            low=float(row["success_change_low"]),
            high=float(row["success_change_high"]),
            file_ratio=float(row["file_ratio"]),
            memory_ratio=float(row["memory_ratio"]) if row["memory_ratio"] else None,
            paper_speedup=float(row["paper_speedup"]),
            paper_fp32_success=float(row["paper_fp32_success"]),
            paper_int8_success=float(row["paper_int8_success"]),
            columns=row,
        )
        for row in tables.csv_rows(_CSV)
    )


def of_runtime(runtime: str = "ONNX Runtime") -> list[Row]:
    """Returns the rows of a runtime, the smallest policy first."""
    return [row for row in rows() if row.runtime == runtime]


@prose.wrapped
def answer() -> str:
    """Returns the answer of the page."""
    found = of_runtime()
    gains = [f"{row.speedup:.2f}" for row in found]
    theirs = [f"{row.paper_speedup:g}" for row in found]
    low, high = (100 * bound(row.int8_success for row in found) for bound in (min, max))
    lost = [-100 * row.change for row in found]
    text = (
        f"**Answer.** On one EPYC thread ONNX Runtime plays int8 {_and(gains)} times as fast as "
        f"fp32. The paper gains {_and(theirs)}. In int8 the policies succeed in "
        f"{low:.1f} to {high:.1f} % of episodes, at most {max(0.0, *lost):.1f} points less than in "
        "fp32."
    )
    own = of_runtime(formats.RUNTIMES["native"])
    if own:  # Results from before the native files lack them.
        text += (
            f" Our native kernels take {_and([f'{row.int8_us:.1f}' for row in own])} µs in int8. "
            f"ONNX Runtime takes {_and([f'{row.fp32_us:.1f}' for row in found])} µs in fp32."
        )
    return text


def _and(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def speed() -> str:
    """Returns times and speed-ups beside the paper's."""
    lines = []
    more = _has("int_p99_us")
    for row in rows():
        first = row.runtime == rows()[0].runtime
        gain = f"{row.speedup:.2f}"
        if row.layers == _LARGEST and row.runtime in _AIMED:
            gain += f" (aim {AIM_SPEEDUP:g}: **{_verdict(row.speedup, AIM_SPEEDUP)}**)"
        lines.append([
            row.layers if first else "", row.runtime, f"{row.fp32_us:.1f}", f"{row.int8_us:.1f}",
            gain, f"{row.paper_speedup:g}" if first else "",
            *(_microseconds(row, name) for name in _CALLS if more),
        ])
    head = ["Policy", "Runtime", "fp32, µs", "int8, µs", "speed-up", "the paper's speed-up"]
    return tables.table(head + list(_CALLS.values()) * more, lines, text_columns=2)


def _has(column: str) -> bool:
    """Returns whether the file has a column: results from before it are shown without."""
    return column in rows()[0].columns


def _microseconds(row: Row, name: str) -> str:
    number = row.columns[name]
    return f"{float(number):.1f}" if number else ""


def _verdict(value: float, aim: float) -> str:
    return "reached" if value >= aim else "missed"


def success() -> str:
    """Returns the share of successful episodes beside the paper's."""
    lines = []
    for row in rows():
        first = row.runtime == rows()[0].runtime
        change, low, high = (
            intervals.fixed(100 * end, 1) for end in (row.change, row.low, row.high)
        )
        lines.append([
            row.layers if first else "", row.runtime,
            f"{100 * row.fp32_success:.1f} %", f"{100 * row.int8_success:.1f} %",
            f"{change} [{low}, {high}]",
            f"{100 * row.paper_fp32_success:.0f} %" if first else "",
            f"{100 * row.paper_int8_success:.0f} %" if first else "",
        ])
    head = ["Policy", "Runtime", "success in fp32", "in int8", "change, points [95 %]",
            "paper: fp32", "paper: int8"]
    return tables.table(head, lines, text_columns=2)


def size() -> str:
    """Returns sizes of files and of memory."""
    lines = []
    for row in rows():
        first = row.runtime == rows()[0].runtime
        files = [int(row.columns[f"{side}_file_bytes"]) / 1000 for side in ("fp32", "int")]
        memory = ["noise", "", ""]
        if row.memory_ratio is not None:
            memory = [
                tables.number(int(row.columns[f"{side}_memory_bytes"]) / 1000)
                for side in ("fp32", "int")
            ] + [f"{row.memory_ratio:.2f}"]
        ratio = f"{row.file_ratio:.2f}"
        if row.layers == _LARGEST and row.runtime in _AIMED:
            ratio += f" (aim {AIM_RATIO:g}: **{_verdict(row.file_ratio, AIM_RATIO)}**)"
            memory[2] += f" (aim {AIM_RATIO:g}: {_of_all_pages(row)})"
        lines.append([
            row.layers if first else "", row.runtime,
            *(tables.number(size, 1) for size in files), ratio, *memory,
        ])
    head = ["Policy", "Runtime", "fp32 file, kB", "int8 file, kB", "smaller, times",
            "fp32 memory, kB", "int8 memory, kB", "less, times"]
    return tables.table(head, lines, text_columns=2)


def _of_all_pages(row: Row) -> str:
    """Returns whether the aim for memory is reached by all pages, those of libraries included."""
    ratio = row.columns.get("all_pages_ratio")
    if not ratio:  # An earlier run measured it, which the page tells.
        return "**missed** by all pages, see below"
    return f"**{_verdict(float(ratio), AIM_RATIO)}** by all pages, {float(ratio):.2f}"


def arm() -> str:
    """Returns how far the files act alike under the runtimes' builds for ARM."""
    lines = []
    for row in rows():
        if not row.columns["int_arm_states"]:
            continue  # It was not played there.
        cells = []
        for side in ("fp32", "int"):
            cells += [
                f"{100 * float(row.columns[f'{side}_arm_alike']):.1f} %",
                f"{100 * float(row.columns[f'{side}_arm_largest_output']):.3f} %",
            ]
        lines.append([
            row.layers if row.runtime == rows()[0].runtime else "", row.runtime,
            row.columns["int_arm_states"], *cells,
        ])
    head = ["Policy", "Runtime", "states", "fp32: same action", "largest difference of an output",
            "int8: same action", "largest difference of an output"]
    return tables.table(head, lines, text_columns=2)


def published() -> str:
    """Returns the paper's own times."""
    lines = [
        [theirs.name, "-".join(map(str, theirs.layers)), f"{theirs.fp32_ms:g}",
         f"{theirs.int8_ms:g}", f"{theirs.speedup:g}"]
        for theirs in paper.DEPLOYMENT
    ]
    return tables.table(["The paper's policy", "layers", "fp32, ms", "int8, ms", "speed-up"],
                        lines, text_columns=2)


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "speed": speed, "success": success, "size": size, "arm": arm,
    "published": published,
}
