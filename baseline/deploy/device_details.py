"""Makes the tables of `deploy_benchmark` beside its main one: calls and all pages, and ARM."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from actorQ.core import output
from baseline.deploy import device_files
from baseline.formats import names

Row = Mapping[str, Any]
_CALLS_HEADER = (
    "policy", "runtime", "fp32 us", "fp32 p99 us", "fp32 call us", "int us", "int p99 us",
    "int call us", "fp32 all pages KB", "int all pages KB", "smaller",
)
_ARM_HEADER = (
    "policy", "runtime", "fp32: same action", "largest difference", "int: same action",
    "largest difference",
)


def calls_table(rows: Sequence[Row]) -> list[str]:
    """Returns the 99th percentiles, the cost of a call, and the memory of all resident pages."""
    cells = [
        [
            figures["layers"], names.RUNTIMES[figures["format"]],
            *(
                _shown(figures[f"{side}{name}_us"], "{:.1f}")
                for side in ("fp32", "int") for name in ("", "_p99", "_call")
            ),
            *(
                _shown(figures[f"{side}_all_pages_bytes"], "{:.0f}", 1e3)
                for side in ("fp32", "int")
            ),
            _shown(figures["all_pages_ratio"], "{:.2f}x"),
        ]
        for figures in rows
    ]
    return [
        "p99: 99th percentile of single calls, over all rounds. call: the median of a policy of "
        f"{device_files.TINY} units, which is the cost of the call from Python\n",
        output.markdown_table(_CALLS_HEADER, cells),
    ]


def _shown(number: float | None, form: str, divisor: float = 1.0) -> str:
    return "" if number is None else form.format(number / divisor)


def percent(share: float | None) -> str:
    """Returns a share for people; nothing where there is none."""
    return "" if share is None else f"{100 * share:.1f} %"


def _arm_cells(figures: Row, side: str) -> list[str]:
    if figures[f"{side}_arm_alike"] is None:
        return ["FAILS: " + figures[f"{side}_arm_failure"].replace("|", "/"), ""]
    return [
        f"{percent(figures[f'{side}_arm_alike'])} of {figures[f'{side}_arm_states']}",
        f"{100 * figures[f'{side}_arm_largest_output']:.4f} %",
    ]


def arm_table(rows: Sequence[Row]) -> list[str]:
    """Returns how far the files compute on ARM what they compute here."""
    cells = [
        [
            figures["layers"], names.RUNTIMES[figures["format"]],
            *_arm_cells(figures, "fp32"), *_arm_cells(figures, "int"),
        ]
        for figures in rows
    ]
    return [
        "The same files under the runtimes' builds for 64-bit ARM: states with the same action as "
        "here, and the largest difference of an output, as a share of the outputs' range\n",
        output.markdown_table(_ARM_HEADER, cells),
    ]
