"""Settings of a resumed run: which of them may change, and their record. Imports no framework."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import settings

_NETWORKS = "the checkpoint holds networks that were made with it"
_SUMS = "replay holds sums of rewards that were made with it"
_TABLE = "the checkpoint holds the replay table with its own limits"
_NAME = "the checkpoint holds a table of that name"

# Settings that a resumed run keeps, each with the reason: what the checkpoint or the logs hold
# depends on it. All others are of `Kind.CHANGEABLE`.
KEPT = {
    "taskstr": "networks and replay are those of that task",
    "algorithm": _NETWORKS,
    "seed": "results tell runs apart by it",
    "quantize": "logs and results are those of one precision",
    "preset": "presets set the flags of new runs: give the flags themselves",
    "model_str": _NETWORKS,
    "critic_str": _NETWORKS,
    "num_atoms": _NETWORKS,
    "vmin": "the critic's weights in the checkpoint express returns in that range",
    "vmax": "the critic's weights in the checkpoint express returns in that range",
    "learner_fake_quantize": "losses and evaluations in the logs are those of one precision",
    "average_policy_steps": "the checkpoint holds the average over so many steps",
    "max_episode_steps": "the checkpoint holds returns of episodes of that length",
    "action_limit": "networks and replay hold actions of that size",
    "env_kwargs": "networks and replay are those of the task with these arguments",
    "scale_observations": "networks and replay hold observations in that scale",
    "discount": _SUMS,
    "n_step": _SUMS,
    "max_abs_reward": _SUMS,
    "learner_steps_per_call": "the steps that were made are a multiple of it",
    "replay_table_max_times_sampled": _TABLE,
    "samples_per_insert": _TABLE,
    "replay_table_max_replay_size": _TABLE,
    "min_replay_size": _TABLE,
    "priority_exponent": _TABLE,
    "broadcaster_table_name": _NAME,
    "replay_table_name": _NAME,
    "model_table_name": _NAME,
    "shutdown_table_name": _NAME,
}


@dataclasses.dataclass(frozen=True)
class Changes:
    """Settings that a run changes when it is resumed.

    Attributes:
      learner_steps: Learner steps after which it does.
      values: Name of each setting to its former and its new value.
    """

    learner_steps: int
    values: dict[str, tuple[Any, Any]]

    def __str__(self) -> str:
        """Returns a line that says so; "" if nothing changes."""
        if not self.values:
            return ""
        changed = ", ".join(
            f"--{name} from {before} to {now}" for name, (before, now) in self.values.items()
        )
        return f"Changed after {self.learner_steps} learner steps: {changed}."


def check_resumed(config: config_lib.RunConfig, recorded: Mapping[str, Any]) -> None:
    """Checks that a run can go on with other settings.

    Args:
      config: Settings from now on.
      recorded: Settings of the run so far; an older version may lack some, which then had their
        defaults.

    Raises:
      errors.UserError: It cannot; the message names the settings, and why they are kept.
    """
    now = dataclasses.asdict(config)
    before = {**dataclasses.asdict(config_lib.RunConfig()), **recorded}
    wrong = [
        f"--{name} was {before[name]}, not {now[name]} ({reason})"
        for name, reason in KEPT.items()
        if before[name] != now[name]
    ]
    if wrong:
        raise errors.UserError(
            f"A resumed run cannot change its settings: {'; '.join(wrong)}. Leave these flags out, "
            "or start a new run."
        )


def changes(config: config_lib.RunConfig, learner_steps: int) -> Changes:
    """Returns what a resumed run changes of the settings in its config.json.

    Args:
      config: Settings from now on.
      learner_steps: Learner steps after which it is resumed.

    Raises:
      errors.UserError: There is no readable configuration in its folder.
    """
    before = dataclasses.asdict(config_lib.RunConfig.load(config.logpath))
    launched = config_lib.names_of(settings.Kind.LAUNCHED)
    return Changes(
        learner_steps,
        {
            name: (before[name], value)
            for name, value in dataclasses.asdict(config).items()
            if name not in launched and value != before[name]
        },
    )


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
    say that it was resumed; an entry of the list `resumed` does. It also says which settings have
    changed there, as {name: [before, after]}.

    Args:
      config: Settings from now on.
      resumed_at: Learner steps at which the run goes on; None: the run is new.
      **facts: Machine, commit and so on.
    """
    lives = []
    if resumed_at is not None:
        record = config_lib.load_record(config.logpath)
        changed = changes(config, resumed_at).values
        config = dataclasses.replace(
            config, resume=False, restarts=record["config"].get("restarts", 0)
        )
        life = {"learner_steps": resumed_at, "changed": changed, **facts}
        lives = [*record.get("resumed", []), life]
    config.save(config.logpath, resumed=lives, **facts)
