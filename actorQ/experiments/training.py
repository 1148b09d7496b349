"""The kind of run that is a training: `actorQ.launcher` with a folder of its own.

`training_logs` reads its logs and says how time is counted. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
import shutil
import sys
import threading
import time
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import settings as settings_lib
from actorQ.core import telemetry
from actorQ.experiments import results
from actorQ.experiments import training_logs
from actorQ.experiments.run_logs import curves
from actorQ.launch import status_line

LOGS_FOLDER = "run"  # The launcher's folder within the folder of the run.
SMOKE_STEPS = 100
_LEFT_BEHIND_S = 180.0  # How long a learner whose launcher was killed may take to save and end.
_POLL_S = 0.2
_SMOKE = {  # Settings of a run that only shows that everything starts.
    "num_episodes": SMOKE_STEPS,
    "eval_period_steps": SMOKE_STEPS // 2,
    "final_eval_episodes": 1,
    "stop_return": None,
    "max_seconds": 600.0,
}
_SMOKE_MIN_REPLAY = 1000  # Most transitions before learning starts.
_SMOKE_MIN_RATIO = 1.0  # Least samples per insert, if these are limited.
_PIN_CPUS = "pin_cpus"  # The launcher's own flag that matters for results.
# An axis of the experiment (`Run`) ...
AXES = ("taskstr", "quantize", "seed")
# ... or set by the launcher.
_PRIVATE = config_lib.names_of(settings_lib.Kind.LAUNCHED)

_FIELDS = {
    field.name: field
    for field in dataclasses.fields(config_lib.RunConfig)
    if field.name not in _PRIVATE
}


class Training:
    """Runs whose settings are the training flags, and --pin_cpus."""

    def defaults(self) -> dict[str, Any]:
        """Returns every setting's default."""
        return {name: field.default for name, field in _FIELDS.items()} | {_PIN_CPUS: 0}

    def settle(
        self, given: Mapping[str, Any], task: str, precision: int, seed: int, smoke: bool
    ) -> dict[str, Any]:
        """Returns all flags of a run.

        Raises:
          errors.UserError: A flag is unknown or not to be set here, or its value is not possible.
        """
        for name, value in given.items():
            _check(name, value)
        settings = {**Training.defaults(self), **given}  # A peer has fewer.
        settings |= {"taskstr": task, "quantize": precision, "seed": seed}
        if smoke:
            settings |= _SMOKE
            settings["min_replay_size"] = min(settings["min_replay_size"], _SMOKE_MIN_REPLAY)
            if ratio := settings["samples_per_insert"]:
                settings["samples_per_insert"] = max(ratio, _SMOKE_MIN_RATIO)
        config = _config(settings)
        # The configuration turns 1 into 1.0 where a setting is a float, so that both are equal.
        return {name: getattr(config, name, settings[name]) for name in settings}

    def command(self, settings: Mapping[str, Any], folder: str) -> list[str]:
        """Returns the launcher's command line."""
        command = [
            sys.executable, "-m", "actorQ.launcher", f"--logdir={folder}",
            f"--run_name={LOGS_FOLDER}", *config_flags.to_flags(_config(settings)),
        ]
        return [*command, f"--{_PIN_CPUS}=1"] if settings[_PIN_CPUS] else command

    def cores(self, settings: Mapping[str, Any]) -> int:
        """Returns one core for the learner and one for each actor."""
        return 1 + settings["n_actors"]

    def limit_s(self, settings: Mapping[str, Any]) -> float | None:
        """Returns the time limit of training in seconds, or None."""
        return settings["max_seconds"] or None

    def status(self, settings: Mapping[str, Any], folder: str, launched: float) -> str:
        """Returns the launcher's own status line."""
        config = dataclasses.replace(
            _config(settings), logpath=os.path.join(folder, LOGS_FOLDER), run_start_time=launched
        )
        return status_line.StatusLine(config).compose()

    def measure(
        self, settings: Mapping[str, Any], folder: str, launched: float, failure: str
    ) -> results.Measured | None:
        """Reads the logs; a diverged training is the only failure that is an outcome.

        Raises:
          errors.UserError: A log is missing or damaged.
        """
        diverged = errors.DIVERGED in failure
        if failure and not diverged:
            return None
        return training_logs.measure(os.path.join(folder, LOGS_FOLDER), launched, diverged)

    def tidy(self, folder: str) -> None:
        """Removes the state to resume from, hundreds of MB at 3x2048; the policies stay."""
        state = os.path.join(
            folder, LOGS_FOLDER, telemetry.CHECKPOINT_FOLDER, telemetry.RESUME_FOLDER
        )
        shutil.rmtree(state, ignore_errors=True)


def wait_for_learner(folder: str, stop: threading.Event, waits: Callable[[], None]) -> None:
    """Waits for a learner that its launcher left behind, until it has saved and ended.

    Until then the learner uses the folder's files and the machine's cores.

    Args:
      folder: Folder of the run.
      stop: Ends the wait.
      waits: Called once if there is such a learner.

    Raises:
      errors.UserError: The learner does not end.
    """
    path = os.path.join(folder, LOGS_FOLDER)
    deadline = time.monotonic() + _LEFT_BEHIND_S
    said = False
    while os.path.isdir(path) and not stop.is_set():
        try:
            with files.run_folder(path):
                return
        except errors.UserError:
            if time.monotonic() > deadline:
                raise
        if not said:
            waits()
            said = True
        stop.wait(_POLL_S)


def as_run(result: results.Result) -> curves.Run:
    """Returns the run of a result as analysis reads it from a run folder."""
    about = curves.surroundings(
        result.machine, result.measured.learner_device, result.git_commit,
        result.measured.evaluation_process,
    )
    config = _config(result.settings)
    return curves.Run(result.name, config, config.algorithm, about)


def _check(name: str, value: Any) -> None:
    """Checks name and type of a setting; `RunConfig` checks its range."""
    if name == _PIN_CPUS:
        if type(value) is not int or value not in (0, 1):
            raise errors.UserError(f"{_PIN_CPUS}: {value!r} is not possible: choose 0 or 1.")
        return
    if name in AXES or name in _PRIVATE:
        raise errors.UserError(f"{name} cannot be a setting: the experiment or its runs decide it.")
    if name not in _FIELDS:
        raise errors.UserError(f"There is no setting {name!r}: settings are the training flags.")
    wanted: Any = _FIELDS[name].type  # A type or a union of types, as in `RunConfig`.
    if settings_lib.takes_auto(_FIELDS[name]) and value == settings_lib.AUTO:
        return
    types = {int: (int,), str: (str,), float: (int, float), float | str: (int, float)}.get(
        wanted, (int, float, type(None))
    )
    if type(value) not in types:
        words = {
            int: "a whole number", str: "a text",
            float | str: f"a number or {settings_lib.AUTO}",
        }.get(wanted, "a number")
        raise errors.UserError(f"{name}: {value!r} is not {words}.")


def _config(settings: Mapping[str, Any]) -> config_lib.RunConfig:
    # Results of older versions may have settings that no longer exist.
    values = {name: settings[name] for name in settings if name in _FIELDS}
    for name, value in values.items():
        if type(value) is int and _FIELDS[name].type is not int:
            values[name] = float(value)
    return config_lib.RunConfig(**values)
