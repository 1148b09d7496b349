"""Measures how much slower quantization-aware training is than plain training, in one run.

    python -m baseline.qat_speed [ALGO ENV ...] [--out FOLDER]

For each pair (else one for each algorithm), trains four models with the zoo's tuned
hyper-parameters: plainly, watching ranges (what precedes the delay), and quantizing with frozen and
with moving ranges. They train in turns of -n steps, so that whatever else the machine does slows
all of them, and what counts is the processor's time, on one thread. Nothing is kept of the models.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import tempfile
import time
from typing import TYPE_CHECKING

from absl import flags
from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import errors
from baseline.quantization import names
from baseline.study import parallel
from baseline.train import settings as training_settings

if TYPE_CHECKING:
    from stable_baselines3.common import base_class

KINDS = PLAIN, WATCHING, FROZEN, MOVING = "plain", "watching", "frozen", "moving"
PAIRS = (
    ("a2c", "CartPole-v1"), ("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"),
    ("ddpg", "MountainCarContinuous-v0"),
)
# Of a turn: whole rollouts and trainings, a second or so.
STEPS = {"a2c": 1000, "ppo": 1024, "dqn": 1024, "ddpg": 200}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer(
        "steps", None, "Environment steps of a turn, >= 1 (else as suits the algorithm).", 1,
        short_name="n",
    )
    flags.DEFINE_integer("bits", 8, "2 to 16.", 2, 16, short_name="q")
    flags.DEFINE_integer("turns", 10, "Of each kind, >= 1.", 1)
    flags.DEFINE_string("out", None, "Folder that gets qat_speed.md and qat_speed.json.")


def measure(algo: str, env: str, steps: int, bits: int, turns: int) -> dict[str, list[float]]:
    """Returns the processor's seconds for every turn, by kind.

    Args:
      algo: algorithm.
      env: environment.
      steps: of each turn.
      bits: to quantize to.
      turns: of each kind.
    """
    with tempfile.TemporaryDirectory() as folder:
        models = {kind: _model(algo, env, folder) for kind in KINDS}
        # Random steps first, then some that ranges are taken from.
        first = max(getattr(models[PLAIN], "learning_starts", 0), steps) + steps + 1
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        callbacks = {kind: _prepare(model, kind, bits, first) for kind, model in models.items()}
        for turn in range(turns + 2):
            for kind, model in models.items():
                started = time.process_time()
                model.learn(
                    steps if turn else first, callback=callbacks[kind], reset_num_timesteps=False
                )
                if turn >= 2:  # What comes first also warms up.
                    seconds[kind].append(time.process_time() - started)
        for model in models.values():
            model.env.close()
    return seconds


def _model(algo: str, env: str, folder: str) -> "base_class.BaseAlgorithm":
    from baseline.train import experiment as zoo

    settings = training_settings.TrainSettings(algo, env)
    arguments = training_settings.to_arguments(settings, env)
    experiment = zoo.Experiment(algo, env, folder, None, 10**9, 0, {}, arguments, 0, "cpu")
    return experiment.setup_experiment()[0]


def _prepare(model: "base_class.BaseAlgorithm", kind: str, bits: int, first: int) -> list:
    from baseline.qat import callback
    from baseline.qat import model as qat_model

    class Schedule(callback.FakeQuantizationSchedule):
        """Lets the model train on after a turn."""

        def _on_training_end(self) -> None:
            pass

    if kind == PLAIN:
        return []
    settings = qat_model.QatSettings(32 if kind == WATCHING else bits, first - 1)
    if kind == MOVING:
        settings = dataclasses.replace(settings, ranges=qat_model.MOVING)
    qat_model.prepare(model, settings)
    return [Schedule()]


def cells(seconds: Mapping[str, list[float]], steps: int) -> dict[str, str]:
    """Returns for each kind its time in the plain model's, turn by turn; of plain, its speed.

    Args:
      seconds: of every turn, by kind.
      steps: of a turn.
    """
    plain = np.asarray(seconds[PLAIN])
    found = {PLAIN: f"{steps / np.median(plain):.0f} steps/s"}
    for kind, values in seconds.items():
        if kind != PLAIN:
            low, ratio, high = np.percentile(np.asarray(values) / plain, (25, 50, 75))
            found[kind] = f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
    return found


def trainable(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns pairs ALGO ENV by the names under which they are trained, once all are known to be.

    Raises:
      errors.UserError: there is no such environment, or the algorithm cannot act in it.
    """
    from baseline.tasks import environments
    from baseline.train import training

    found = [
        (names.canonical_algo(algo), environments.training_name(env)) for algo, env in pairs
    ]
    for algo, env in found:
        training.check_environment(algo, env)
    return found


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    values = flags.FLAGS
    pairs = parallel.pairs(argv[1:]) if argv[1:] else PAIRS
    for algo, _ in pairs:
        if names.canonical_algo(algo) not in STEPS:
            raise errors.UserError(f"There is no algorithm {algo!r}: {', '.join(STEPS)}.")
    cli.quiet_tensorflow()
    import torch

    from actorQ.core import output

    logging.set_verbosity(logging.WARNING)
    torch.set_num_threads(1)
    pairs = trainable(pairs)
    if values.out:
        output.make_folder(values.out)
    measured = []
    for algo, env in pairs:
        steps = values.steps or STEPS[algo]
        seconds = measure(algo, env, steps, values.bits, values.turns)
        measured.append({"algo": algo, "env": env, "steps": steps, "seconds": seconds})
    rows = []
    for one in measured:
        found = cells(one["seconds"], one["steps"])
        rows.append([f"{one['algo']} {one['env']}", *(found[kind] for kind in KINDS)])
    title = (
        f"Time of a training with {values.bits} bits in that of plain Stable-Baselines3: median "
        f"[quartiles] of {values.turns} turns, one thread"
    )
    table = output.markdown_table(["Training", *KINDS], rows)
    record = {"bits": values.bits, "turns": values.turns, "measured": measured}
    text = f"{title}\n\n{table}"
    output.write_measured("baseline.qat_speed", "qat_speed", text, record, values.out)
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="qat_speed")
