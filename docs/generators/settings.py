"""The settings of the profile `laptop` beside the original's, from the experiments' files."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from actorQ.experiments import kinds
from actorQ.experiments import loading
from actorQ.experiments import specification
from docs.generators import tables

_TASKS = ("cartpole_balance", "walker_stand", "CartPole-v0", "Acrobot-v1", "MountainCar-v0")
_NONE = "-"

# The original's values are no data of ours: its flags, launcher and code are their source.
_ROWS: tuple[tuple[str, str, str, str], ...] = (
    # Words, setting, the original's D4PG, the original's DQN.
    ("Learner steps between copies to the target network", "target_update_period", "100", "100"),
    ("Discount", "discount", "0.99", "0.99 (learner 0.95)"),
    ("Steps of a return", "n_step", "5", "5"),
    ("Adam step of the critic", "critic_learning_rate", "1e-4", _NONE),
    ("Adam step of the policy or Q-network", "policy_learning_rate", "1e-4", "1e-3"),
    ("Learner steps over which step sizes fall", "learning_rate_decay_steps", "none", "none"),
    ("Batch", "batch_size", "256", "256"),
    ("Learner steps between evaluations", "eval_period_steps", "1,000", "1,000"),
    ("Epsilon of the last actor", "epsilon_max", _NONE, "0.05"),
    ("Replay starts at, transitions", "min_replay_size", "2,000", "100,000"),
    ("Replay holds, transitions", "replay_table_max_replay_size", "100,000", "200,000"),
    ("Samples per insert", "samples_per_insert", "16 (flag: 8)", "16 (flag: 8)"),
)
_OF_D4PG = frozenset({"critic_learning_rate", "invert_gradients", "vmin", "vmax"})
_OF_DQN = frozenset({"epsilon_max", "epsilon_zeta", "priority_exponent"})


def laptop() -> str:
    """Returns the table of what the profile `laptop` sets for each of the headline's tasks."""
    runs = _runs("laptop")
    head = ["Setting", "Flag", *_TASKS, "Original, D4PG", "Original, DQN"]
    rows = [
        [words, _flags(name), *(_value(run.settings, name) for run in runs), d4pg, dqn]
        for words, name, d4pg, dqn in _ROWS
    ]
    return tables.table(head, rows, text_columns=2)


def further() -> str:
    """Returns the table of further settings that the profile takes away from their defaults."""
    names = (
        "invert_gradients", "vmin", "vmax", "priority_exponent", "epsilon_zeta",
        "scale_observations", "push_period_s", "push_share", "pin_cpus", "max_seconds",
    )
    runs = _runs("laptop")
    defaults = kinds.get(runs[0].kind).defaults()
    rows = [
        [_flags(name), _text(defaults[name]), *(_value(run.settings, name) for run in runs)]
        for name in names
    ]
    return tables.table(["Flag", "Default", *_TASKS], rows)


def profiles() -> str:
    """Returns the table of the profiles' settings for cartpole_balance, side by side."""
    names = [
        "model_str", "n_actors", "batch_size", "samples_per_insert",
        "replay_table_max_times_sampled", "actor_update_period", "inference_mode",
        "learner_device_placement", "eval_period_steps", "push_period_s", "push_share",
        "replay_table_max_replay_size", "max_seconds",
    ]
    known = list(loading.load_common().profiles)
    sides = [_runs(profile)[0].settings for profile in known]
    rows = [[f"`--{name}`", *(_value(side, name) for side in sides)] for name in names]
    return tables.table(["Flag", *known], rows)


def _runs(profile: str) -> list[specification.Run]:
    """Returns one run of each task as the experiment `time_to_reward` makes it."""
    common = loading.load_common()
    experiment = loading.load("time_to_reward", common)
    return specification.expand(
        experiment, common, profile, seeds=[0], tasks=_TASKS, precisions=[8], peers=None
    )


def _flags(name: str) -> str:
    own = "`, `--learning_rate" if name == "policy_learning_rate" else ""
    return f"`--{name}{own}`"


def _value(settings: Mapping[str, Any], name: str) -> str:
    """Returns a setting's value as a cell; a dash where its algorithm has no such setting."""
    dqn = settings["algorithm"] == "dqn"
    if name in (_OF_D4PG if dqn else _OF_DQN):
        return _NONE
    if name == "policy_learning_rate" and dqn:
        name = "learning_rate"
    value = settings[name]
    return "none" if name == "learning_rate_decay_steps" and not value else _text(value)


def _text(value: Any) -> str:
    """Returns a value as a cell, for example 1e-3 or 20,000."""
    if isinstance(value, float) and 0 < value <= 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return value if isinstance(value, str) else f"{value:,}".removesuffix(".0")



BLOCKS: dict[str, Callable[[], str]] = {
    "laptop": laptop, "further": further, "profiles": profiles,
}
