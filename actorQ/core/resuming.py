"""Settings of a run that is resumed: which may change, and the record. Imports no framework."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import errors

# All others say what is learned, from which data, or how it lies in replay and on the wire.
CHANGEABLE = frozenset("""
    num_episodes stop_return stop_window stop_smoothing max_seconds
    inference_mode n_actors actor_id envs_per_actor actor_update_period sigma epsilon_max
    epsilon_zeta actor_device_placement learner_device_placement learner_threads
    port server_address connect_timeout transfer_timeout push_period_s push_share push_precision
    eval_period_s eval_period_steps final_eval_episodes checkpoint_period_s log_period_s logpath
    track_energy restarts data_timeout run_start_time launch_id resume
""".split())


def check(config: config_lib.RunConfig, settings: Mapping[str, Any]) -> None:
    """Checks that a run can go on with other settings.

    Args:
      config: the settings now.
      settings: the run's so far; one that its version did not have was at its default.

    Raises:
      errors.UserError: it cannot; the message names the settings.
    """
    now = dataclasses.asdict(config)
    before = {**dataclasses.asdict(config_lib.RunConfig()), **settings}
    wrong = [
        f"--{name} was {before[name]}, not {value}"
        for name, value in now.items()
        if name not in CHANGEABLE and before[name] != value
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


def save_config(
    config: config_lib.RunConfig, resumed_at: int | None, **facts: Any
) -> None:
    """Writes config.json into the run's folder.

    Of a run that is resumed, its settings do not say so: it is compared with others as if it had
    never ended. An entry of the list `resumed` does.

    Args:
      config: the settings now.
      resumed_at: learner steps at which the run goes on; None: it is new.
      **facts: machine, commit and so on.
    """
    lives = []
    if resumed_at is not None:
        record = config_lib.load_record(config.logpath)
        config = dataclasses.replace(
            config, resume=False, restarts=record["config"].get("restarts", 0)
        )
        lives = [*record.get("resumed", []), {"learner_steps": resumed_at, **facts}]
    config.save(config.logpath, resumed=lives, **facts)
