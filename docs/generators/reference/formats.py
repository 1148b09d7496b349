"""Tables of the columns of every CSV file, for `reference/formats.md` and its second page.

Names of columns come from the code that writes a file, or from the header of a committed file. A
name without a meaning here stops `docs.generate`.
"""

import ast
from collections.abc import Callable
from collections.abc import Iterable
import csv
import pathlib

from actorQ.core import telemetry
from actorQ.experiments import results
from baseline.study import method_rows
from baseline.study import qat_comparison
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from docs.generators import tables
from docs.generators.reference import baseline_columns
from docs.generators.reference import training_columns

_LOGS = {
    telemetry.TRAIN_CSV: training_columns.TRAIN,
    telemetry.EVALUATION_CSV: training_columns.EVALUATION,
    telemetry.UPDATES_CSV: training_columns.UPDATES,
    telemetry.METER_CSV: training_columns.METER,
    telemetry.EPISODES_CSV: training_columns.EPISODES,
    telemetry.PHASES_CSV: training_columns.PHASES,
}
_REPORT_FILES = {  # Shown name to a committed file.
    "`time_to_reward.csv`": "time_to_reward/report/time_to_reward.csv",
    "sweeps": "staleness/report/staleness.csv",
    "`breakdown.csv`": "breakdown/report/breakdown.csv",
    "`throughput.csv`": "throughput/report/throughput.csv",
}
_ACTORQ_FILES = {
    "cluster": ("cluster/cluster.csv", training_columns.CLUSTER),
    "played": ("int4/returns.csv", training_columns.PLAYED),
    "soak": ("faults/soak.csv", training_columns.SOAK),
}
_BASELINE_FILES = {
    "qat_table": ("qat/table.csv", baseline_columns.QAT_TABLE),
    "findings": ("findings/findings.csv", baseline_columns.FINDINGS),
    "mixed_timing": ("mixed_precision/mixed_precision_timing.csv", baseline_columns.MIXED_TIMING),
    "mixed_returns": (
        "mixed_precision/mixed_precision_returns.csv", baseline_columns.MIXED_RETURNS
    ),
}
_HEAD = ("Column", "Unit", "Meaning")


def table_of(names: Iterable[str], columns: training_columns.Columns) -> str:
    """Returns a table of columns.

    Args:
        names: Names of the columns, in the file's order.
        columns: Their units and meanings.

    Raises:
        KeyError: A column has no meaning.
    """
    return tables.table(_HEAD, [(f"`{name}`", *columns[name]) for name in names], 3)


def header(path: pathlib.Path) -> list[str]:
    """Returns the names of a CSV file's columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


def keys_of(module: str, function: str) -> list[str]:
    """Returns the texts that are keys of dictionaries in a function's source, in its order.

    The module is not imported, as some load whole frameworks.

    Args:
        module: Path of the module, from the repository's root.
        function: Name of the function.
    """
    tree = ast.parse((tables.ROOT / module).read_text(encoding="utf-8"))
    (found,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function
    )
    rows = [node for node in ast.walk(found) if isinstance(node, ast.Dict)]
    keys = [key.value for row in rows for key in row.keys if isinstance(key, ast.Constant)]
    return [key for key in keys if isinstance(key, str)]


def log(name: str) -> str:
    """Returns the columns of a process's log, by the name of the file."""
    return table_of(telemetry.FIELDS[name], _LOGS[name])


def runs() -> str:
    """Returns the columns of an experiment's `runs.csv`."""
    folder = next((tables.ACTORQ_RESULTS / "time_to_reward" / "runs").iterdir())
    result = results.read(str(folder))
    assert result is not None
    return table_of(results.csv_row(result), training_columns.RUNS)


def script(name: str, columns: training_columns.Columns) -> str:
    """Returns the columns of the table that one of `actorQ.scripts` writes."""
    return table_of(keys_of(f"actorQ/scripts/{name}.py", "csv_rows"), columns)


def reports() -> str:
    """Returns the columns of the tables in experiments' reports."""
    files = {
        shown: header(tables.ACTORQ_RESULTS / path) for shown, path in _REPORT_FILES.items()
    }
    names = dict.fromkeys(name for columns in files.values() for name in columns)
    rows = []
    for name in names:
        having = [shown for shown, columns in files.items() if name in columns]
        shown = "all" if len(having) == len(files) else ", ".join(having)
        unit, meaning = training_columns.REPORTS[name]
        rows.append((f"`{name}`", unit, shown, meaning))
    return tables.table(("Column", "Unit", "Files", "Meaning"), rows, 4)


def qat() -> str:
    """Returns the columns that `qat.csv` has behind those of `ptq.csv`."""
    names = rows_lib.columns(qat_rows.TrainedRow)[len(rows_lib.columns()):]
    return table_of(names, baseline_columns.QAT)


def qat_table() -> str:
    """Returns the columns of QAT's `table.csv`: those of the committed file, then newer ones."""
    names = header(tables.BASELINE_RESULTS / _BASELINE_FILES["qat_table"][0])
    newer = qat_comparison.Kind._fields
    return table_of(dict.fromkeys([*names, *newer]), baseline_columns.QAT_TABLE)


def methods() -> str:
    """Returns the columns that `methods.csv` has behind those of `ptq.csv`."""
    names = rows_lib.columns(method_rows.MethodRow)[len(rows_lib.columns()):]
    return table_of(names, baseline_columns.METHODS)


def of_actorq(name: str) -> str:
    """Returns the columns of a committed file of ActorQ."""
    path, columns = _ACTORQ_FILES[name]
    return table_of(header(tables.ACTORQ_RESULTS / path), columns)


def of_baseline(name: str) -> str:
    """Returns the columns of a committed file of the baseline study."""
    path, columns = _BASELINE_FILES[name]
    return table_of(header(tables.BASELINE_RESULTS / path), columns)


def deployment() -> str:
    """Returns the columns of `deployment.csv`: those of the committed file, then newer ones."""
    names = header(tables.BASELINE_RESULTS / "deployment" / "deployment.csv")
    newer = keys_of("baseline/deploy/device_tables.py", "row")
    return table_of(dict.fromkeys([*names, *newer]), baseline_columns.DEPLOYMENT)


BLOCKS: dict[str, Callable[[], str]] = {
    "train": lambda: log(telemetry.TRAIN_CSV),
    "evaluation": lambda: log(telemetry.EVALUATION_CSV),
    "updates": lambda: log(telemetry.UPDATES_CSV),
    "meter": lambda: log(telemetry.METER_CSV),
    "episodes": lambda: log(telemetry.EPISODES_CSV),
    "phases": lambda: log(telemetry.PHASES_CSV),
    "runs": runs,
    "reports": reports,
    "cluster": lambda: of_actorq("cluster"),
    "played": lambda: of_actorq("played"),
    "soak": lambda: of_actorq("soak"),
    "speedup": lambda: script("speedup_table", training_columns.SPEEDUP),
    "breakdown": lambda: script("breakdown_table", training_columns.BREAKDOWN),
    "ptq": lambda: table_of(rows_lib.columns(), baseline_columns.PTQ),
    "methods": methods,
    "qat": qat,
    "qat_table": qat_table,
    "findings": lambda: of_baseline("findings"),
    "mixed_timing": lambda: of_baseline("mixed_timing"),
    "mixed_returns": lambda: of_baseline("mixed_returns"),
    "deployment": deployment,
}
