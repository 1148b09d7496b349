"""Finds the runs of quantization-aware training in a folder: finished, evaluated, or unfinished.

`qat` and `qat_sweep` find their runs with it.
"""

from collections.abc import Collection
from collections.abc import Mapping
import pathlib
from typing import Any

from actorQ.core import errors
from baseline.agents import zoo_files
from baseline.qat import export
from baseline.qat import model as qat_model
from baseline.quantization import names
from baseline.study import qat_rows
from baseline.tasks import environments
from baseline.train import settings as training_settings
from baseline.train import state

PROGRAM = "baseline.qat"  # The name that the runs note.
_OF_THE_START = ("train_seed", "train_steps", "hyperparams")  # Columns that args.yml has.


def training_columns(path: pathlib.Path) -> dict[str, Any]:
    """Returns the columns of `qat_rows.TrainedRow` about an agent's training.

    Args:
      path: path of the agent's zip.

    Raises:
      errors.UserError: a file is missing or damaged.
    """
    arguments = zoo_files.read_yaml(path.parent / path.stem / "args.yml")
    try:
        columns = {
            "train_seed": int(arguments["seed"]), "train_steps": int(arguments["n_timesteps"]),
        }
    except (KeyError, TypeError, ValueError):
        raise errors.UserError(
            f"{path.parent} does not say how its agent was trained (args.yml): train it again."
        ) from None
    facts = export.training_facts(path)
    return columns | {
        "method": qat_rows.QAT if facts else qat_rows.CONTROL,
        "quant_delay": facts.get("quant_delay"),
        "ranges": facts.get("ranges", ""),
        "input_bits": facts.get("input_bits"),
        "output_bits": facts.get("output_bits"),
        "granularity": facts.get("granularity", names.PAPER),
        "widths": facts.get("widths", ""),
        "run": path.parent.name,
        "hyperparams": training_settings.hyperparams_text(
            arguments.get("hyperparams"), arguments.get("num_envs")
        ),
    }


def find(
    settings: training_settings.TrainSettings,
    qat_settings: qat_model.QatSettings,
    columns: Mapping[str, Any],
) -> tuple[pathlib.Path | None, bool]:
    """Looks for a run that is known in advance, to the last column of its row.

    Args:
      settings: settings with the folder of the width, and the environment's present name.
      qat_settings: settings of its quantization, as noted when it was started.
      columns: columns of its row, as `training_columns` gives them.

    Returns:
      The agent's zip if a run has finished, else None; and whether a run can go on.

    Raises:
      errors.UserError: a file is damaged.
    """
    goes_on = False
    for run in state.runs(settings.folder, settings.algo, settings.env):
        path = zoo_files.agent_zip(run.folder, settings.env)
        found = training_columns(path)
        if run.finished and all(found[name] == columns[name] for name in columns):
            return path, False
        goes_on |= (
            not run.finished
            and run.arguments.get("program") == PROGRAM
            and run.arguments.get("quantization") == qat_settings.noted
            and all(found[name] == columns[name] for name in _OF_THE_START)
        )
    return None, goes_on


def trained_only(
    settings: training_settings.TrainSettings,
    qat_settings: qat_model.QatSettings,
    rows: Collection[qat_rows.TrainedRow],
) -> pathlib.Path | None:
    """Returns the zip of the newest run that ended before its evaluation did, if none can go on.

    Only the newest run counts among those trained alike: its row takes the place of others'.

    Args:
      settings: settings of the training to look for; the folder is the width's.
      qat_settings: settings of its quantization.
      rows: rows of evaluations.

    Raises:
      errors.UserError: a file is damaged.
    """
    env_id = environments.training_name(settings.env)
    runs = [
        run for run in state.runs(settings.folder, settings.algo, env_id)
        if run.arguments.get("program") == PROGRAM and _started_as(settings, run)
    ]
    if not all(run.finished for run in runs):
        return None
    known: list[dict[str, Any]] = []
    for run in runs:
        path = zoo_files.agent_zip(run.folder, env_id)
        columns = training_columns(path)
        alike = {**columns, "run": None}
        if alike in known or not _quantized_as(qat_settings, columns):
            continue
        known.append(alike)
        evaluated = {
            "algo": settings.algo, "env": env_id, "bits": qat_settings.scheme.bits, **columns
        }
        if not any(
            all(getattr(row, name) == value for name, value in evaluated.items()) for row in rows
        ):
            return path
    return None


def _started_as(settings: training_settings.TrainSettings, run: state.Run) -> bool:
    """Returns whether a run has these settings; settings without a value fit every run."""
    try:
        training_settings.as_started(settings, run.arguments, str(run.folder))
    except errors.UserError:
        return False
    return True


def _quantized_as(qat_settings: qat_model.QatSettings, columns: Mapping[str, Any]) -> bool:
    """Returns whether a finished run, by its columns, has these settings of quantization."""
    known = qat_settings.columns
    if qat_settings.delay is not None and not qat_settings.control:
        known["quant_delay"] = qat_settings.delay
    return all(columns[name] == value for name, value in known.items())
