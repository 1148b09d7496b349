"""Writes the tables of flags in the pages, which a test holds against the code.

    python -m docs.flag_tables

A table stands below a line `<!-- flags: NAME -->`; the names are those of `TABLES`.
"""

from collections.abc import Callable
import dataclasses
import pathlib
import re

from absl import flags

from actorQ import launch_ray
from actorQ.core import config as config_lib
from actorQ.experiments import command_line as experiments
from actorQ.experiments.cluster import command_line as cluster
from baseline import collate
from baseline import deploy_benchmark
from baseline import enjoy
from baseline import findings
from baseline import integer_benchmark
from baseline import learning_curve
from baseline import qat_integer
from baseline import qat_speed
from baseline import qat_sweep
from baseline import sweep
from baseline import table
from baseline import visualize
from baseline.deploy import __main__ as deploy
from baseline.mixed_precision import __main__ as mixed_precision
from baseline.qat import training
from baseline.report import __main__ as report
from baseline.study import measuring_flags
from baseline.train import settings

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("README.md", "baseline/README.md")
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
# These tools take all flags of another.
INHERITS = {
    "sweep": "ptq", "qat": "train", "qat_sweep": "qat", "deploy_benchmark": "deploy",
}


def run_rows() -> list[str]:
    """Returns a row for every setting of a run."""
    lines = []
    for field in dataclasses.fields(config_lib.RunConfig):
        default = {None: "none", "": "empty"}.get(field.default, f"`{field.default}`")
        lines.append(f"| `--{field.name}` | {default} | {field.metadata['help']} |")
    return lines


def rows_of(define: Callable[[flags.FlagValues], None]) -> list[str]:
    """Returns a row for every flag that a program of `actorQ` defines besides."""
    own = flags.FlagValues()
    define(own)
    lines = []
    for name in own:
        default = own[name].default
        default = ",".join(default) if isinstance(default, list) else default
        text = "empty" if default == "" else f"`{default}`".replace("False", "off")
        lines.append(f"| `--{name}` | {text} | {own[name].help} |")
    return lines


def baseline_rows() -> list[str]:
    """Returns a row for every flag of every tool of `baseline`, without what it takes over."""
    lines: list[str] = []
    shown: dict[str, set[str]] = {}
    for tool, define in TOOLS.items():
        rows = _rows_of_tool(tool, define)
        shown[tool] = {_without_tool(row) for row in rows}
        inherited = shown.get(INHERITS.get(tool, ""), set())
        lines += [row for row in rows if _without_tool(row) not in inherited]
    return lines


def _without_tool(row: str) -> str:
    return row.split("|", 2)[2]


def _rows_of_tool(tool: str, define: Callable[[], None]) -> list[str]:
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


_HEAD = "| Flag | Default | Meaning |\n| --- | --- | --- |\n"
_TOOL_HEAD = "| Tool | Flag | Default | Meaning |\n| --- | --- | --- | --- |\n"
TABLES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "run": (_HEAD, run_rows),
    "ray": (_HEAD, lambda: rows_of(launch_ray.define_flags)),
    "experiments": (_HEAD, lambda: rows_of(experiments.define_flags)),
    "cluster": (_HEAD, lambda: rows_of(cluster.define_flags)),
    "baseline": (_TOOL_HEAD, baseline_rows),
}
_PLACE = re.compile(r"<!-- flags: (\w+) -->\n\n(?:\|.*\n)*")


def filled(page: str) -> str:
    """Returns the text of a page with its tables made anew."""

    def place(match: re.Match[str]) -> str:
        head, rows = TABLES[match[1]]
        return f"<!-- flags: {match[1]} -->\n\n{head}" + "".join(f"{row}\n" for row in rows())

    return _PLACE.sub(place, page)


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
