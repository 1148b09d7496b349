"""Prints the flags of every tool here for `baseline/README.md`, which a test keeps true.

python -m baseline.flags_table
"""

from collections.abc import Callable

from absl import flags

from baseline import collate
from baseline import deploy_benchmark
from baseline import enjoy
from baseline import findings
from baseline import integer_benchmark
from baseline import qat_integer
from baseline import qat_speed
from baseline import qat_sweep
from baseline import sweep
from baseline import table
from baseline import visualize
from baseline.deploy import __main__ as deploy
from baseline.mixed_precision import study as mixed_precision
from baseline.qat import training
from baseline.report import __main__ as report
from baseline.study import measuring_flags
from baseline.train import learning_curve
from baseline.train import settings

TOOLS: dict[str, Callable[[], None]] = {
    "train": settings.define_flags,
    "learning_curve": learning_curve.define_flags,
    "qat": training.define_flags,
    "qat_sweep": qat_sweep.define_flags,
    "qat_speed": qat_speed.define_flags,
    "qat_integer": qat_integer.define_flags,
    "ptq": measuring_flags.define,
    "sweep": sweep.define_flags,
    "enjoy": enjoy.define_flags,
    "collate": collate.define_flags,
    "table": table.define_flags,
    "integer_benchmark": integer_benchmark.define_flags,
    "deploy": deploy.define_flags,
    "deploy_benchmark": deploy_benchmark.define_flags,
    "mixed_precision": mixed_precision.define_flags,
    "visualize": visualize.define_flags,
    "findings": findings.define_flags,
    "report": report.define_flags,
}
# Tools that take all flags of another.
INHERITS = {
    "sweep": "ptq", "qat": "train", "qat_sweep": "qat", "deploy_benchmark": "deploy",
}


def rows() -> list[str]:
    """Returns a Markdown row for every flag of every tool, without what it takes over."""
    lines: list[str] = []
    shown: dict[str, set[str]] = {}
    for tool, define in TOOLS.items():
        rows_of_tool = _rows_of(tool, define)
        shown[tool] = {_without_tool(row) for row in rows_of_tool}
        inherited = shown.get(INHERITS.get(tool, ""), set())
        lines += [row for row in rows_of_tool if _without_tool(row) not in inherited]
    return lines


def _without_tool(row: str) -> str:
    return row.split("|", 2)[2]


def _rows_of(tool: str, define: Callable[[], None]) -> list[str]:
    before = set(flags.FLAGS)
    define()
    lines = []
    for name in sorted(set(flags.FLAGS) - before, key=str.lower):
        flag = flags.FLAGS[name]
        if flag.short_name == name:
            continue
        names = (f"`-{flag.short_name}`, " if flag.short_name else "") + f"`--{name}`"
        lines.append(f"| `{tool}` | {names} | {_default(flag)} | {_help(flag)} |")
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    return lines


def _default(flag: flags.Flag) -> str:
    default = flag.default
    if isinstance(default, list):
        default = ",".join(default) or None
    return {None: "none", "": "empty"}.get(default, f"`{default}`")


def _help(flag: flags.Flag) -> str:
    """Returns one line without the bars that would end a cell."""
    text = " ".join(flag.help.split()).partition("; repeat this option")[0]
    # absl puts an enumeration's values in front: <a|b>: text.
    values, found, rest = text.partition(">: ")
    if found and values.startswith("<"):
        text = f"{values[1:].replace('|', ', ')}. {rest}"
    return text.replace("|", "/")


def main() -> None:
    """Prints the table."""
    print("| Tool | Flag | Default | Meaning |\n| --- | --- | --- | --- |")
    print("\n".join(rows()))


if __name__ == "__main__":
    main()
