"""What the launcher is told that a run's configuration does not tell. Imports no framework."""

import dataclasses
import json
import os

from absl import flags

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import files

FILENAME = "launch.json"  # In the run's folder.


@dataclasses.dataclass(frozen=True)
class Launch:
    """What the launcher is told and a resumed run keeps, where its configuration does not tell.

    Attributes:
      port: the server's, if one was asked for; None: any that is free, which may be another when
        the run is resumed, as nothing outside the run is to know it.
      pin_cpus: whether learner and actors have cores of their own.
      learner_threads: asked for; 0: as many as the cores that the learner has this time.
    """

    port: int | None = None
    pin_cpus: bool = False
    learner_threads: int = 0


def of_flags(config: config_lib.RunConfig, flag_values: flags.FlagValues) -> Launch:
    """Returns what the flags say of a launch; of a run that goes on, else what it was told before.

    Args:
      config: of the flags.
      flag_values: the launcher's flags.

    Raises:
      errors.UserError: what the run was told before cannot be read.
    """
    before = _before(config) if config.resume else Launch()
    port, pin_cpus, threads = (
        flag_values[name] for name in ("port", "pin_cpus", "learner_threads")
    )
    return Launch(
        port=(port.value or None) if port.present else before.port,
        pin_cpus=bool(pin_cpus.value) if pin_cpus.present else before.pin_cpus,
        learner_threads=threads.value if threads.present else before.learner_threads,
    )


def save(launch: Launch, logpath: str) -> None:
    """Writes what `of_flags` is to know when the run in `logpath` is resumed.

    Raises:
      errors.WriteError: it cannot be written.
    """
    content = json.dumps(dataclasses.asdict(launch), indent=2)
    files.write(os.path.join(logpath, FILENAME), f"{content}\n")


def _before(config: config_lib.RunConfig) -> Launch:
    path = os.path.join(config.logpath, FILENAME)
    try:
        with open(path, encoding="utf-8") as file:
            launch = Launch(**json.load(file))
    except FileNotFoundError:  # It was started by hand, by Ray, or by an older version.
        return Launch(learner_threads=config.learner_threads)
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(path, errors.summary(error)) from None
    types = (int, type(None)), (bool,), (int,)
    if any(type(v) not in t for v, t in zip(dataclasses.astuple(launch), types, strict=True)):
        raise _unreadable(path, f"{launch} is not possible")
    return launch


def _unreadable(path: str, why: str) -> errors.UserError:
    return errors.UserError(
        f"{path} cannot be read: {why}. Remove it, and give --port, --pin_cpus and "
        "--learner_threads again if the run had them."
    )
