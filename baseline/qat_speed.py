"""Measures how much slower quantization-aware training is than plain training, in one run.

    python -m baseline.qat_speed --algo a2c --env CartPole-v1 -n 1000

Trains four models with the zoo's tuned hyper-parameters: plainly, watching ranges (what precedes
the delay), and quantizing with frozen and with moving ranges. They train in turns of -n steps, so
that whatever else the machine does slows all of them, and what counts is the processor's time, on
one thread. Nothing is kept.
"""

from collections.abc import Mapping
import dataclasses
import tempfile
import time
from typing import TYPE_CHECKING

from absl import flags
from absl import logging
import numpy as np

from actorQ import cli
from baseline import training_settings

if TYPE_CHECKING:
    from stable_baselines3.common import base_class

KINDS = PLAIN, WATCHING, FROZEN, MOVING = "plain", "watching", "frozen", "moving"


def define_flags() -> None:
    """Defines the command line."""
    flags.DEFINE_enum("algo", "a2c", list(training_settings.ALGOS), "Algorithm.")
    flags.DEFINE_string("env", "CartPole-v1", "Environment.")
    flags.DEFINE_integer("steps", 1000, "Environment steps of a turn.", 1, short_name="n")
    flags.DEFINE_integer("bits", 8, "2 to 16.", 2, 16, short_name="q")
    flags.DEFINE_integer("turns", 10, "Of each kind.", 1)


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
        first = max(getattr(models[PLAIN], "learning_starts", 0), steps) + steps
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
    from baseline import zoo

    settings = training_settings.TrainSettings(algo, env)
    arguments = training_settings.to_arguments(settings, env)
    experiment = zoo.Experiment(algo, env, folder, None, 10**9, 0, {}, arguments, 0, "cpu")
    return experiment.setup_experiment()[0]


def _prepare(model: "base_class.BaseAlgorithm", kind: str, bits: int, first: int) -> list:
    from baseline import qat_callback
    from baseline import qat_model

    class Schedule(qat_callback.FakeQuantizationSchedule):
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


def lines(seconds: Mapping[str, list[float]], steps: int) -> list[str]:
    """Returns a line for each kind: its speed, and its times in the plain model's."""
    plain = np.asarray(seconds[PLAIN])
    found = []
    for kind, values in seconds.items():
        low, ratio, high = np.percentile(np.asarray(values) / plain, (25, 50, 75))
        found.append(
            f"{kind:9}{steps / np.median(values):7.0f} steps/s, {ratio:.2f} x plain's time "
            f"(quartiles {low:.2f}, {high:.2f})"
        )
    return found


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    del argv
    values = flags.FLAGS
    cli.quiet_tensorflow()
    import torch

    logging.set_verbosity(logging.WARNING)
    torch.set_num_threads(1)
    seconds = measure(values.algo, values.env, values.steps, values.bits, values.turns)
    print(f"{values.algo} {values.env}, {values.bits} bits, turns of {values.steps} steps:")
    for line in lines(seconds, values.steps):
        print(line)
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="qat_speed")
