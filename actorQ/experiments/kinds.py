"""The kinds of run: our training, and trainings of other projects' agents (peers).

Users would pick a peer in place of our training. It has the settings of our own runs as far as it
has such settings: task, networks, batch, step sizes, discount, n-step returns, replay, samples per
insert, exploration, evaluation, stop rule and time limit. It is one process that acts and learns in
turn in 32 bits, with all cores that our processes share in a run of ours. Settings that distribute
our training (broadcaster, messages, pinning, precision of inference) are no settings of a peer. The
peer `zoo` has its own tuned settings, and of ours only those that say what is measured and how.

Imports no framework.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import fractions
import math
import os
import sys
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import settings as settings_lib
from actorQ.experiments import results
from actorQ.experiments import training

PRECISION = 32  # Bits of a peer.
TRAINING = "training"
ACME = "acme"
SB3 = "sb3"
ZOO = "zoo"

# Settings that no peer reads. A run of a peer does not depend on them.
_NOT_READ = config_lib.names_of(settings_lib.Kind.DISTRIBUTED) | {"pin_cpus"}
# Settings of an agent that has tuned ones of its own: task, clock, end, evaluation and machine.
_MEASURING = (
    *training.AXES, "algorithm", "num_episodes", "stop_return", "stop_window", "stop_smoothing",
    "max_seconds", "max_episode_steps", "eval_period_s", "eval_period_steps", "final_eval_episodes",
    "log_period_s", "track_energy", "learner_threads", "learner_device_placement", "n_actors",
)
_SPAN = ("vmin", "vmax")  # Bounds that our learner alone can find.
# Relative error that a ratio may have. An exact fraction of large numbers would make an agent act
# for long with the same weights, and then learn as long from the same data.
_RATIO_ERROR = 1e-3
_MOST_UPDATES = 10_000  # Gradient steps in a row.


@dataclasses.dataclass(frozen=True)
class Peer(training.Training):
    """Runs of one program that takes the training flags and writes logs as our learner does."""

    library: str  # Name of the agents' library, for tables.
    program: str  # Module to run.
    agents: Mapping[str, str]  # Name of the library's agent for each of our algorithms.
    about: str  # Facts that a reader of results must know of these agents; sentences.
    not_read: Collection[str]  # Settings that other peers read, but not this one.
    is_tuned: bool = False  # Whether its agents come with settings of their own for each task.

    def defaults(self) -> dict[str, Any]:
        """Returns the defaults of the settings that the peer's runs have."""
        return self._own(super().defaults())

    def _own(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        names = _MEASURING if self.is_tuned else settings.keys() - _NOT_READ
        return {name: settings[name] for name in settings if name in names}

    def settle(
        self, given: Mapping[str, Any], task: str, precision: int, seed: int, smoke: bool
    ) -> dict[str, Any]:
        """Returns all flags of a run.

        Raises:
          errors.UserError: A setting is not possible, or the library has no agent for it.
        """
        if precision != PRECISION:
            raise errors.UserError(f"{self.library} computes in {PRECISION} bits only.")
        settings = super().settle(given, task, precision, seed, smoke)
        algorithm = settings["algorithm"]
        if algorithm != "auto" and algorithm not in self.agents:
            raise errors.UserError(
                f"{self.library} has no agent here for {algorithm}, and so none for {task}."
            )
        settings = self._own(settings)
        if self.is_tuned:
            return settings
        for name in _SPAN:
            if name not in self.not_read and settings[name] == settings_lib.AUTO:
                raise errors.UserError(
                    f"{self.library}'s agents cannot find --{name} themselves: give the peer a "
                    "number."
                )
        steps_per_update(config_lib.RunConfig(**settings))
        return settings

    def command(self, settings: Mapping[str, Any], folder: str) -> list[str]:
        """Returns the program's command line."""
        logs = os.path.join(folder, training.LOGS_FOLDER)
        flags = config_flags.to_flags(config_lib.RunConfig(**settings))
        return [sys.executable, "-m", self.program, f"--logpath={logs}", *flags]

    def measure(
        self, settings: Mapping[str, Any], folder: str, launched: float, failure: str
    ) -> results.Measured | None:
        """Reads the logs; see `training.Training`."""
        measured = super().measure(settings, folder, launched, failure)
        if measured is None or not self.is_tuned:
            return measured
        return dataclasses.replace(measured, data_used=None)  # No setting says its samples.

    def side_name(self, algorithm: str) -> str:
        """Returns the name of the agent for an algorithm; "" stands for no particular one."""
        if len(self.agents) == 1:
            (agent,) = self.agents.values()
        else:
            agent = self.agents.get(algorithm, "")
        return f"{self.library} {agent}".strip()

    def check_read(self, settings: Mapping[str, Any], where: str) -> None:
        """Checks settings that are meant for this peer alone: it must read them.

        Args:
          settings: by name.
          where: what messages call them.

        Raises:
          errors.UserError: there is one that it does not.
        """
        own = self.defaults().keys() - set(self.not_read)
        everything = super().defaults()
        if unread := [name for name in settings if name in everything and name not in own]:
            raise errors.UserError(
                f"{where}: {self.library}'s agents do not read {', '.join(unread)}: leave that "
                "out."
            )


def steps_per_update(config: config_lib.RunConfig) -> tuple[int, int]:
    """Returns a number of environment steps, and the gradient steps that are due after them.

    Their ratio is that of batch size to samples per insert, to a thousandth, in the smallest
    numbers. The agent takes as many samples for each insert as our learner takes at most.

    Raises:
      errors.UserError: No setting limits the samples.
    """
    samples = config.most_samples_per_insert
    if not samples:
        raise errors.UserError(
            "An agent that acts and learns in turn needs a ratio: set --samples_per_insert or "
            "--replay_table_max_times_sampled."
        )
    ratio = fractions.Fraction(config.batch_size) / fractions.Fraction(str(samples))
    for updates in range(1, _MOST_UPDATES):
        steps = round(ratio * updates)
        if abs(steps - ratio * updates) <= _RATIO_ERROR * ratio * updates:
            return steps, updates
    return 1, _MOST_UPDATES


def target_average(config: config_lib.RunConfig, period: int) -> float:
    """Returns the rate of a moving average that lags behind as much as copies do.

    Our targets are copies of the weights, made every --target_update_period P steps: they are 0 to
    P - 1 steps old, (P - 1) / 2 on average. An average that moves by a part r every d steps is
    d (1 - r) / r + (d - 1) / 2 steps old. Both ages are equal for r = 2 d / (P + d).

    Args:
      config: Configuration of the run.
      period: Gradient steps between two moves of the average, d.
    """
    return min(1.0, 2 * period / (config.target_update_period + period))


def target_interval(config: config_lib.RunConfig) -> int:
    """Returns --target_update_period in environment steps."""
    steps, updates = steps_per_update(config)
    return max(1, math.ceil(config.target_update_period * steps / updates))


PEERS = {
    ACME: Peer(
        "Acme", "actorQ.experiments.peers.acme_agent", {"d4pg": "D4PG"},
        "acme.agents.tf.d4pg.D4PG of dm-acme 0.2.2, not distributed; our policy (and how its "
        "gradients pass the tanh), Acme's critic, optimizer, replay and acting; step sizes fall as "
        "ours.",
        ("epsilon_max", "epsilon_zeta", "learning_rate", "max_abs_reward"),
    ),
    SB3: Peer(
        "SB3", "actorQ.experiments.peers.sb3_agent", {"d4pg": "TD3", "dqn": "DQN"},
        "Stable-Baselines3's TD3 and DQN, the nearest to D4PG and double DQN that it has: no "
        "distribution of returns, no inverted gradients, and replay without priorities. With "
        "--epsilon_zeta DQN explores as our actors do.",
        ("num_atoms", "vmin", "vmax", "invert_gradients"),
    ),
    ZOO: Peer(
        "SB3 zoo", "actorQ.experiments.peers.zoo_agent", {"d4pg": "SAC", "dqn": "DQN"},
        "Stable-Baselines3's SAC and DQN with the settings that rl-baselines3-zoo 2.9.2 tuned for "
        "the task. dm_control's tasks, which it does not list, take those for MuJoCo. Rewards are "
        "not clipped.",
        (), is_tuned=True,
    ),
}
KINDS: dict[str, training.Training] = {TRAINING: training.Training(), **PEERS}


def get(name: str) -> training.Training:
    """Returns a kind.

    Raises:
      errors.UserError: There is none of this name.
    """
    if name not in KINDS:
        raise errors.UserError(f"There is no kind {name!r}: choose one of {', '.join(KINDS)}.")
    return KINDS[name]
