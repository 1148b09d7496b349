"""Does the learner learn the same in bfloat16? Losses of the same steps on one recorded replay.

    python -m actorQ.benchmarks.learner_parity --out DIR

Both algorithms run with the paper's 3x2048 policy. Random play is recorded once. Learners in
float32 and in bfloat16 then take gradient steps from the same weights on the same batches, in
processes of their own, whose peak memory is reported. `benchmarks.learner` measures their speed.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import resource
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.actor import environment_loop
from actorQ.actor import n_step_returns
from actorQ.benchmarks import learner_sides
from actorQ.benchmarks import remote
from actorQ.core import config as config_lib
from actorQ.core import telemetry
from actorQ.core import timing
from actorQ.environments import base
from actorQ.environments import suites
from actorQ.experiments.run_logs import loss_parity
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.wire import replay

_NAME = "learner_parity"
_TASKS = {"d4pg": "dm_control,cartpole_balance", "dqn": "gym,CartPole-v1"}
_PRECISIONS = ("float32", "bfloat16")
_CORES = 2
# Names of losses in tables and plot, by algorithm and name in the log.
_TITLES = {
    ("d4pg", "loss"): "D4PG, critic", ("d4pg", "policy_loss"): "D4PG, policy",
    ("dqn", "loss"): "DQN",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the comparison; see the options of the command.

    Attributes:
      steps: Gradient steps of each learner.
      transitions: Transitions of the recorded replay.
      width: Units of the policy's three hidden layers.
      batch: Transitions in one gradient step.
      seed: Seed of everything random.
    """

    steps: int = 200
    transitions: int = 10_000
    width: int = 2048
    batch: int = 256
    seed: int = 0

    def config(self, algorithm: str, precision: str) -> config_lib.RunConfig:
        """Returns the configuration of one learner."""
        return config_lib.RunConfig(
            taskstr=_TASKS[algorithm], algorithm=algorithm, learner_precision=precision,
            model_str=",".join([str(self.width)] * 3), batch_size=self.batch, seed=self.seed,
            # These are the rates of the experiments: larger ones saturate so wide a tanh policy.
            policy_learning_rate=1e-5, learning_rate=2.5e-5, vmin=0.0, vmax=100.0,
            # Targets are updated a few times in so few steps. Priorities would change the batches.
            target_update_period=50, priority_exponent=0.0, learner_device_placement="CPU",
        )


class Learned(NamedTuple):
    """Figures of a learner.

    Attributes:
      losses: float64 [steps], by the names of the learner's log.
      weights: Weights of all networks that it began with.
      peak_bytes: Peak memory of its process, TensorFlow and the batches included.
    """

    losses: Mapping[str, np.ndarray]
    weights: list[np.ndarray]
    peak_bytes: int


class _RandomActions:
    """Explores without a policy."""

    def __init__(self, spec: base.EnvironmentSpec, rng: np.random.Generator):
        self._spec, self._rng = spec, rng

    def begin(self) -> None:
        """Does nothing; see `environment_loop.Exploration`."""

    def __call__(self, output: np.ndarray) -> Any:
        if self._spec.num_actions is not None:
            return int(self._rng.integers(self._spec.num_actions))
        return self._rng.uniform(-1.0, 1.0, self._spec.action_size).astype(np.float32)


def record_replay(config: config_lib.RunConfig, transitions: int) -> np.ndarray:
    """Returns transitions of random play, packed, float32 [transitions, vector size]."""
    environment = suites.make_for(config, config.seed)
    spec = environment.spec
    explore = _RandomActions(spec, np.random.default_rng(config.seed))
    loop = environment_loop.EnvironmentLoop(
        [environment], [explore], lambda observations: np.zeros((len(observations), 1)),
        [n_step_returns.NStepAccumulator(config.n_step, config.discount)], telemetry.no_seconds(),
        algorithms.policy_module(config.algorithm).reward_limit(config),
    )
    layout = replay.Layout.of(spec)
    rows: list[np.ndarray] = []
    while len(rows) < transitions:
        loop.turn(lambda transition: rows.append(layout.pack(transition)))
    return np.stack(rows[:transitions])


def learn(
    config: config_lib.RunConfig, weights: list[np.ndarray] | None, batches: np.ndarray
) -> Learned:
    """Takes one gradient step for each batch, in a process that does nothing else.

    Args:
      config: Configuration of the learner.
      weights: Weights of all networks to begin with. None takes random ones, by the seed.
      batches: Packed transitions, float32 [steps, B, vector size].
    """
    spec = suites.make_for(config, config.seed).spec
    import reverb
    import tensorflow as tf

    from actorQ.learner import dataset as learning

    tf.random.set_seed(config.seed)
    module = algorithms.learner_module(config.algorithm)
    networks = module.make_networks(
        config, architecture_lib.make(spec, config.model_sizes), config.learner_precision
    )
    variables = [variable for network in networks if network for variable in network.variables]
    if weights is None:
        weights = [np.array(variable.numpy()) for variable in variables]
    for variable, value in zip(variables, weights, strict=True):
        variable.assign(value)
    shape, ones = batches.shape[:2], np.ones(batches.shape[:2])
    information = reverb.SampleInfo(
        np.zeros(shape, np.uint64), ones, ones.astype(np.int64), ones, ones.astype(np.int32)
    )
    samples = reverb.ReplaySample(information, batches)
    dataset = learning.untuned(tf.data.Dataset.from_tensor_slices(samples))
    fetches = learning.LastFetches()
    learner = module.make_learner(
        networks, config, learning.Batches(dataset, replay.Layout.of(spec)), None, fetches,
        learning.Monitors(),
    )
    losses: dict[str, list[float]] = {}
    for _ in batches:
        learner.step()
        for name, value in module.losses(fetches.read()).items():
            losses.setdefault(name, []).append(value)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Learned({name: np.array(values) for name, values in losses.items()}, weights, peak)


def compare(settings: Settings, algorithm: str, cores: list[int]) -> dict[str, Learned]:
    """Returns the figures of an algorithm's learners, by precision, float32 first."""
    rows = record_replay(settings.config(algorithm, _PRECISIONS[0]), settings.transitions)
    rng = np.random.default_rng(settings.seed)
    batches = rows[rng.integers(len(rows), size=(settings.steps, settings.batch))]
    learned: dict[str, Learned] = {}
    weights = None
    for precision in _PRECISIONS:
        timing.progress(f"{_NAME}: {algorithm}, {precision}")
        with remote.remotes([cores[-1]]) as (process,):
            process.call(learner_sides.set_up, cores, len(cores))
            config = settings.config(algorithm, precision)
            learned[precision] = process.call(learn, config, weights, batches)
        weights = learned[precision].weights
    return learned


def main(arguments: Sequence[str]) -> None:
    """Compares the losses and prints the tables."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=None)
    for name, help_text in (
        ("steps", "Gradient steps of each learner"),
        ("transitions", "Transitions of the recorded replay"),
        ("width", "Units of the policy's three hidden layers"),
        ("batch", "Transitions in one gradient step"),
    ):
        parser.add_argument(
            f"--{name}", type=timing.positive, default=getattr(Settings, name), metavar="N",
            help=f"{help_text} (default: %(default)s).",
        )
    options = parser.parse_args(arguments)
    cores = timing.pin(_CORES)
    settings = Settings(options.steps, options.transitions, options.width, options.batch)
    learned = {name: compare(settings, name, cores) for name in _TASKS}
    full, half = _PRECISIONS
    losses = {
        title: {precision: learned[algorithm][precision].losses[name] for precision in _PRECISIONS}
        for (algorithm, name), title in _TITLES.items()
    }
    numbers = {title: loss_parity.row(found[full], found[half]) for title, found in losses.items()}
    peaks = {
        algorithm: {precision: found[precision].peak_bytes for precision in _PRECISIONS}
        for algorithm, found in learned.items()
    }
    timing.report(
        _NAME,
        f"Losses of {settings.steps} learner steps in float32 and bfloat16, 3x{settings.width}, "
        f"batch {settings.batch}, from the same weights on the same batches of "
        f"{settings.transitions} recorded transitions",
        ["learner", *loss_parity.HEADER],
        [[title, *loss_parity.cells(found)] for title, found in numbers.items()],
        {"settings": dataclasses.asdict(settings), "losses": numbers, "peak_bytes": peaks},
        options.out,
        notes=[
            f"half: bfloat16 matrix products; {loss_parity.NOTE}",
            "recorded: random play of " + ", ".join(_TASKS.values()),
            "memory: peak of the process, with TensorFlow, all batches, and master weights, "
            "optimizer state and targets in float32",
        ],
        more=[(
            "Peak memory, MB", ["learner", *_PRECISIONS],
            [
                [name.upper(), *(f"{found[precision] / 1e6:.0f}" for precision in _PRECISIONS)]
                for name, found in peaks.items()
            ],
        )],
    )
    if options.out:
        loss_parity.write(losses, {title: title for title in losses}, options.out, _NAME)


if __name__ == "__main__":
    timing.run(_NAME, main)
