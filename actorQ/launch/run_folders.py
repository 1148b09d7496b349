"""The folder of a run that the launcher starts or resumes, and its launch.json.

Imports no framework.
"""

import contextlib
import dataclasses
import json
import os
import re
import secrets
import time

from absl import flags
import pydantic

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import resuming
from actorQ.core import settings
from actorQ.core import snapshots
from actorQ.core import telemetry

LAUNCH_FILENAME = "launch.json"  # File in the run's folder.
_RESTARTS_A_LAUNCH = 1000  # Numbers of restarts that each start of the learner may use.


def define_flags() -> None:
    """Defines the flags that say where a run's folder is."""
    flags.DEFINE_string("logdir", "logs", "Folder under which the run gets a folder of its own.")
    flags.DEFINE_string(
        "run_name", "", "Name of the run's folder under --logdir; empty: task, precision, time."
    )


def make_run_folder(config: config_lib.RunConfig, logdir: str, run_name: str) -> str:
    """Makes the run's own folder under `logdir`; two launchers never get the same one.

    Raises:
      errors.UserError: The named folder exists, or it cannot be made.
    """
    task = re.sub(r"[^A-Za-z0-9]+", "-", config.taskstr).strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = run_name or f"{task}-q{config.quantize}-s{config.seed}-{stamp}"
    for attempt in range(1000):
        folder = os.path.join(logdir, name if not attempt else f"{name}-{attempt + 1}")
        try:
            os.makedirs(folder)
            os.makedirs(os.path.join(folder, telemetry.STDOUT_FOLDER))
            return folder
        except FileExistsError:
            if run_name:
                raise errors.UserError(
                    f"The run folder {folder} exists already: choose another --run_name."
                ) from None
        except OSError as error:
            raise errors.UserError(
                f"Cannot make the run folder {folder}: {error.strerror}."
            ) from None
    raise errors.UserError(f"Cannot find a free run folder under {logdir}.")


def config_of_flags(flag_values: flags.FlagValues) -> tuple[config_lib.RunConfig, str]:
    """Builds the configuration of a run that begins or goes on.

    Args:
      flag_values: The launcher's flags.

    Returns:
      The configuration, and a line that says what a run that goes on changes; "" if nothing.

    Raises:
      errors.UserError: A value is not legal, or the run cannot go on, or not with these settings.
    """
    if flag_values.resume:  # This comes before the run in the default folder is read.
        _require_named(flag_values)
    config = config_flags.from_flags(flag_values, resumable=True)
    if not config.resume:
        return config, ""
    state = snapshots.Store(config.logpath).newest().state
    resuming.check_resumed(config, state.settings)
    return config, str(resuming.changes(config, state.learner_steps))


def _require_named(flag_values: flags.FlagValues) -> None:
    elsewhere = any(flag_values[name].present for name in ("logdir", "run_name"))
    if elsewhere or not flag_values["logpath"].present:
        raise errors.UserError(
            "--resume goes on with the run whose folder --logpath names, and with no other."
        )


def entered(
    config: config_lib.RunConfig, flag_values: flags.FlagValues
) -> config_lib.RunConfig:
    """Makes the folder of a run, or makes it ready to go on, and completes the configuration.

    Args:
      config: Configuration that `config_of_flags` returned.
      flag_values: The launcher's flags.

    Raises:
      errors.UserError: The folder cannot be made, or another run is in it.
      errors.WriteError: The folder cannot be written.
    """
    if config.resume:
        return resumed(config)
    if flag_values.resume == settings.AUTO:
        _begin_in(config.logpath)
        folder = config.logpath
    elif flag_values["logpath"].present:
        raise errors.UserError(
            "--logpath is set by the launcher, unless a run is resumed (--resume); choose the "
            "folder with --logdir and --run_name."
        )
    else:
        folder = make_run_folder(config, flag_values.logdir, flag_values.run_name)
    return dataclasses.replace(
        config, logpath=folder, run_start_time=time.time(), launch_id=_launch_id()
    )


def _begin_in(folder: str) -> None:
    """Makes a folder ready for a new run; an earlier launch may have been ended at its start."""
    if os.path.exists(os.path.join(folder, telemetry.LEARNER, telemetry.TRAIN_CSV)):
        raise errors.UserError(
            f"The run in {folder} has no checkpoint to go on from: choose another --logpath."
        )
    _make_ready(folder)


def _make_ready(folder: str) -> None:
    with files.run_folder(folder):  # A run that is alive keeps its address.
        pass
    with files.writing(folder):
        os.makedirs(os.path.join(folder, telemetry.STDOUT_FOLDER), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # This file says that the learner is up.
            os.remove(os.path.join(folder, telemetry.ADDRESS_FILENAME))


def resumed(config: config_lib.RunConfig) -> config_lib.RunConfig:
    """Makes the folder of a run ready to go on, and completes the configuration.

    Args:
      config: Configuration from the flags; flags that were not given are taken from the run.

    Raises:
      errors.UserError: Another learner trains in the folder.
      errors.WriteError: The run's folder cannot be written.
    """
    _make_ready(config.logpath)
    store = snapshots.Store(config.logpath)
    return dataclasses.replace(
        config,
        server_address="",  # A run that was started by hand may have noted its learner's address.
        run_start_time=telemetry.start_time(config.logpath, 0.0, resumed=True),
        launch_id=_launch_id(),
        # The seeds differ from all that were used before: actors must not repeat themselves.
        restarts=_RESTARTS_A_LAUNCH * snapshots.VersionRecord(store).starts,
    )


def _launch_id() -> int:
    return 1 + secrets.randbits(62)


@pydantic.dataclasses.dataclass(frozen=True, config={"strict": True, "extra": "forbid"})
class Launch:
    """Launcher-only facts, stored in RUN/launch.json, which a resumed run keeps.

    Attributes:
      port: Port of the server that was asked for; None: any free port, at each start.
      pin_cpus: Whether learner and actors have cores of their own.
      learner_threads: Number of threads that was asked for; 0: the cores that the learner has.
      listen: Who was asked to reach the learner's server; on Ray all machines do in any case.
    """

    port: int | None = None
    pin_cpus: bool = False
    learner_threads: int = 0
    listen: str = config_lib.RunConfig.listen


def launch_of_flags(config: config_lib.RunConfig, flag_values: flags.FlagValues) -> Launch:
    """Returns the facts of a launch; a resumed run keeps those that the flags do not give.

    Args:
      config: Configuration from the flags.
      flag_values: The launcher's flags.

    Raises:
      errors.UserError: The facts of the run's earlier launch cannot be read.
    """
    before = _launch_before(config) if config.resume else Launch()
    port, threads, listen = (
        flag_values[name] for name in ("port", "learner_threads", "listen")
    )
    pin_cpus = before.pin_cpus
    if "pin_cpus" in flag_values and flag_values["pin_cpus"].present:  # Ray's launcher has none.
        pin_cpus = bool(flag_values.pin_cpus)
    return Launch(
        port=(port.value or None) if port.present else before.port,
        pin_cpus=pin_cpus,
        learner_threads=flag_values.learner_threads if threads.present else before.learner_threads,
        listen=flag_values.listen if listen.present else before.listen,
    )


def save_launch(launch: Launch, logpath: str) -> None:
    """Writes the facts of a launch into the run's folder, for a later --resume.

    Raises:
      errors.WriteError: The file cannot be written.
    """
    content = json.dumps(dataclasses.asdict(launch), indent=2)
    files.write(os.path.join(logpath, LAUNCH_FILENAME), f"{content}\n")


def _launch_before(config: config_lib.RunConfig) -> Launch:
    path = os.path.join(config.logpath, LAUNCH_FILENAME)
    try:
        with open(path, encoding="utf-8") as file:
            return pydantic.TypeAdapter(Launch).validate_json(file.read())
    except FileNotFoundError:  # The run was started by hand, by Ray, or by an older version.
        return Launch(learner_threads=config.learner_threads, listen=config.listen)
    except pydantic.ValidationError as error:
        why = error.errors()[0]["msg"]
    except (OSError, UnicodeDecodeError) as error:
        why = errors.summary(error)
    raise errors.UserError(
        f"{path} cannot be read: {why}. Remove it, and give --port, --pin_cpus, "
        "--learner_threads and --listen again if the run had them."
    )
