"""Measures how much slower quantization-aware training is than plain training.

Models of each kind train in turns, so that other load of the machine slows all of them. The figures
are the processor's time on one thread. `baseline.qat_speed` is the command.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import tempfile
import time

import numpy as np
from stable_baselines3.common import base_class

from baseline.qat import callback
from baseline.qat import model as qat_model
from baseline.quantization import names
from baseline.tasks import environments
from baseline.train import experiment as zoo_experiment
from baseline.train import settings as training_settings
from baseline.train import training

KINDS = PLAIN, WATCHING, FROZEN, MOVING = "plain", "watching", "frozen", "moving"

def measure(algo: str, env: str, steps: int, bits: int, turns: int) -> dict[str, list[float]]:
    """Returns the processor's seconds for every turn, by kind.

    Args:
      algo: algorithm.
      env: environment.
      steps: environment steps of each turn.
      bits: width to quantize to.
      turns: number of turns of each kind.
    """
    with tempfile.TemporaryDirectory() as folder:
        models = {kind: _model(algo, env, folder) for kind in KINDS}
        # The first turn makes the random steps, and steps that ranges are taken from.
        first = max(getattr(models[PLAIN], "learning_starts", 0), steps) + steps + 1
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        callbacks = {kind: _prepare(model, kind, bits, first) for kind, model in models.items()}
        for turn in range(turns + 2):
            for kind, model in models.items():
                started = time.process_time()
                model.learn(
                    steps if turn else first, callback=callbacks[kind], reset_num_timesteps=False
                )
                if turn >= 2:  # The first turns also warm up.
                    seconds[kind].append(time.process_time() - started)
        for model in models.values():
            if model.env is not None:
                model.env.close()
    return seconds


class _EndlessSchedule(callback.FakeQuantizationSchedule):
    """Lets the model train on after a turn."""

    def _on_training_end(self) -> None:
        pass


def _model(algo: str, env: str, folder: str) -> base_class.BaseAlgorithm:
    settings = training_settings.TrainSettings(algo, env)
    arguments = training_settings.to_arguments(settings, env)
    experiment = zoo_experiment.Experiment(
        algo, env, folder, None, 10**9, 0, {}, arguments, 0, "cpu"
    )
    return experiment.setup_experiment()[0]


def _prepare(
    model: base_class.BaseAlgorithm, kind: str, bits: int, first: int
) -> _EndlessSchedule | None:
    """Returns the callback of a kind, if it has one; the first turn has `first` steps."""
    if kind == PLAIN:
        return None
    settings = qat_model.QatSettings(32 if kind == WATCHING else bits, first - 1)
    if kind == MOVING:
        settings = dataclasses.replace(settings, ranges=qat_model.MOVING)
    qat_model.prepare(model, settings)
    return _EndlessSchedule()


def cells(seconds: Mapping[str, list[float]], steps: int) -> dict[str, str]:
    """Returns each kind's time as a multiple of the plain model's, and the plain model's speed.

    Args:
      seconds: seconds of every turn, by kind.
      steps: environment steps of a turn.
    """
    plain = np.asarray(seconds[PLAIN])
    found = {PLAIN: f"{steps / np.median(plain):.0f} steps/s"}
    for kind, values in seconds.items():
        if kind != PLAIN:
            low, ratio, high = np.percentile(np.asarray(values) / plain, (25, 50, 75))
            found[kind] = f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
    return found


def trainable(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns pairs ALGO ENV by the names under which they are trained.

    Raises:
      errors.UserError: there is no such environment, or the algorithm cannot act in it.
    """
    found = [
        (names.canonical_algo(algo), environments.training_name(env)) for algo, env in pairs
    ]
    for algo, env in found:
        training.check_environment(algo, env)
    return found
