"""Settings of a resumed run: which of them may change, and their record. Imports no framework."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import settings


def check_resumed(config: config_lib.RunConfig, recorded: Mapping[str, Any]) -> None:
    """Checks that a run can go on with other settings.

    Args:
      config: Settings from now on.
      recorded: Settings of the run so far; an older version may lack some, which then had their
        defaults.

    Raises:
      errors.UserError: It cannot; the message names the settings.
    """
    now = dataclasses.asdict(config)
    before = {**dataclasses.asdict(config_lib.RunConfig()), **recorded}
    changeable = config_lib.names_of(settings.Kind.CHANGEABLE)
    wrong = [
        f"--{name} was {before[name]}, not {value}"
        for name, value in now.items()
        if name not in changeable and before[name] != value
    ]
    if wrong:
        raise errors.UserError(f"A resumed run cannot change its settings: {'; '.join(wrong)}.")


def recorded(config: config_lib.RunConfig) -> bool:
    """Returns whether config.json has been written since the launcher started this run."""
    try:
        return bool(config.launch_id) and (
            config_lib.RunConfig.load(config.logpath).launch_id == config.launch_id
        )
    except errors.UserError:
        return False


def note_facts(config: config_lib.RunConfig, **facts: Any) -> None:
    """Adds facts to config.json that were not known when the run began.

    Raises:
      errors.UserError: The record cannot be read.
      errors.WriteError: The record cannot be written.
    """
    record = {**config_lib.load_record(config.logpath), **facts}
    config_lib.write_record(config.logpath, record)


def save_config(
    config: config_lib.RunConfig, resumed_at: int | None, **facts: Any
) -> None:
    """Writes config.json into the run's folder.

    A resumed run is compared with others as if it had never ended. So its recorded settings do not
    say that it was resumed; an entry of the list `resumed` does.

    Args:
      config: Settings from now on.
      resumed_at: Learner steps at which the run goes on; None: the run is new.
      **facts: Machine, commit and so on.
    """
    lives = []
    if resumed_at is not None:
        record = config_lib.load_record(config.logpath)
        config = dataclasses.replace(
            config, resume=False, restarts=record["config"].get("restarts", 0)
        )
        lives = [*record.get("resumed", []), {"learner_steps": resumed_at, **facts}]
    config.save(config.logpath, resumed=lives, **facts)
