"""The settings of the profile `laptop` beside the original's, from the experiments' files."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from actorQ.experiments import loading
from actorQ.experiments import specification
from docs.generators import tables

_D4PG = ("cartpole_balance", "walker_stand")
_DQN = ("CartPole-v0", "Acrobot-v1", "MountainCar-v0")

# Words and setting, with the original's value: its flags, launcher and code are the source.
_SHARED: tuple[tuple[str, str, str, str], ...] = (
    # ..., the original's D4PG, the original's DQN.
    ("Batch", "batch_size", "256", "256"),
    ("Samples per insert", "samples_per_insert", "16 (flag: 8)", "16 (flag: 8)"),
    ("Replay starts at, transitions", "min_replay_size", "2,000", "100,000"),
    ("Replay holds, transitions", "replay_table_max_replay_size", "100,000", "200,000"),
    ("Steps of a return", "n_step", "5", "5"),
    ("Discount", "discount", "0.99", "0.99 (learner 0.95)"),
    ("Learner steps between copies to the targets", "target_update_period", "100", "100"),
    ("Learner steps over which step sizes fall", "learning_rate_decay_steps", "none", "none"),
    ("Learner steps between evaluations", "eval_period_steps", "1,000", "1,000"),
    ("Longest run, s", "max_seconds", "none", "none"),
)
_OF_D4PG = (
    ("Units of the critic's layers", "critic_str", "512,512,256"),
    ("Exploration noise of a single actor", "sigma", "1"),
    ("Adam step of the critic", "critic_learning_rate", "1e-4"),
    ("Adam step of the policy", "policy_learning_rate", "1e-4"),
    ("Gradients inverted near bounds of actions", "invert_gradients", "no"),
    ("Lowest return of the critic", "vmin", "-150"),
    ("Highest return of the critic", "vmax", "150"),
)
_OF_DQN = (
    ("Adam step of the Q-network", "learning_rate", "1e-3"),
    ("Epsilon of the last actor", "epsilon_max", "0.05"),
    ("Exponent of random actions that last", "epsilon_zeta", "none"),
    ("Observations scaled to [-1, 1]", "scale_observations", "no"),
    ("Exponent of prioritized replay", "priority_exponent", "0.6, in effect 0"),
)
_YES_OR_NO = frozenset({"invert_gradients", "scale_observations"})
_NONE_IF_ZERO = frozenset({"learning_rate_decay_steps", "epsilon_zeta"})


def d4pg() -> str:
    """Returns the table of what the profile `laptop` sets for the tasks of dm_control."""
    shared = tuple((words, name, original) for words, name, original, _ in _SHARED)
    return _table(_D4PG, shared + _OF_D4PG)


def dqn() -> str:
    """Returns the table of what the profile `laptop` sets for the tasks of Gym."""
    shared = tuple((words, name, original) for words, name, _, original in _SHARED)
    return _table(_DQN, shared + _OF_DQN)


def _table(tasks: Sequence[str], lines: Sequence[tuple[str, str, str]]) -> str:
    runs = _runs("laptop", tasks)
    rows = [
        [words, f"`{name}`", *(_value(run.settings, name) for run in runs), original]
        for words, name, original in lines
    ]
    return tables.table(["Setting", "Flag", *tasks, "Original"], rows, text_columns=2)


def profiles() -> str:
    """Returns the table of the profiles' settings for cartpole_balance, side by side."""
    names = (
        "model_str", "critic_str", "n_actors", "batch_size", "samples_per_insert",
        "replay_table_max_times_sampled", "replay_table_max_replay_size", "actor_update_period",
        "inference_mode", "learner_device_placement", "pin_cpus", "eval_period_steps",
        "push_period_s", "push_share", "max_seconds",
    )
    known = list(loading.load_common().profiles)
    sides = [_runs(profile, _D4PG[:1])[0].settings for profile in known]
    rows = [[f"`{name}`", *(_value(side, name) for side in sides)] for name in names]
    return tables.table(["Flag", *known], rows)


def _runs(profile: str, tasks: Sequence[str]) -> list[specification.Run]:
    """Returns one run of each task as the experiment `time_to_reward` makes it."""
    common = loading.load_common()
    experiment = loading.load("time_to_reward", common)
    return specification.expand(
        experiment, common, profile, seeds=[0], tasks=tasks, precisions=[8], peers=None
    )


def _value(settings: Mapping[str, Any], name: str) -> str:
    """Returns a setting's value as a cell, for example 1e-3 or 20,000."""
    value = settings[name]
    if name in _YES_OR_NO:
        return "yes" if value else "no"
    if name in _NONE_IF_ZERO and not value:
        return "none"
    if isinstance(value, float) and 0 < value <= 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return value if isinstance(value, str) else f"{value:,}".removesuffix(".0")


BLOCKS: dict[str, Callable[[], str]] = {"d4pg": d4pg, "dqn": dqn, "profiles": profiles}
