"""Quantization-aware training: trains with fake-quantized weights and activations.

    python -m baseline.qat --algo a2c --env CartPole-v1 -q 4 --quant-delay 250000 -n 500000

It adds QuaRL's Algorithm 2 (arXiv:1910.01055) to `baseline.train`, whose flags it has. It watches
ranges during the first --quant-delay steps, then quantizes weights and activations of the acting
path to -q bits. The agent goes to FOLDER/BITS/ALGO/ENV_<n>. `baseline.enjoy` and others play it
from `--folder FOLDER/BITS` as it acted in training. Its evaluation is a row in FOLDER/qat.csv.
"""

from collections.abc import Callable
import dataclasses
import os
import pathlib
import time
from typing import TYPE_CHECKING

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.quantization import names as precision_lib
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.train import settings as training_settings

if TYPE_CHECKING:
    from stable_baselines3.common import base_class
    from stable_baselines3.common import callbacks

    from baseline.qat import model as qat_model

ESTIMATOR_HELP = (
    "Estimator of gradients. ste: they pass as if nothing were rounded, and ranges are seen. lsq: "
    "steps between levels are learned with the weights (LSQ, arXiv:1902.08153)."
)
DEFAULT_SEEDS = "0,2,4"
DEFAULT_EPISODES = 10


def define_flags() -> None:
    """Defines the command line: that of `baseline.train`, and how to quantize."""
    training_settings.define_flags()
    flags.DEFINE_integer(
        "bits", None, "Bits of weights and activations: 2 to 16; 32: the control, not quantized.",
        short_name="q", required=True,
    )
    flags.DEFINE_enum("estimator", qat_rows.STE, list(qat_rows.ESTIMATORS), ESTIMATOR_HELP)
    flags.FLAGS["tensorboard"].help = (
        "Folder for TensorBoard that gets BITS/ENV/ALGO_<n> (else `tensorboard` in the run's own "
        "folder)."
    )
    define_quantization_flags()


def define_quantization_flags() -> None:
    """Defines how to quantize and evaluate, whatever the width, and where everything goes."""
    flags.FLAGS.set_default("folder", qat_rows.DEFAULT_FOLDER)
    flags.FLAGS["folder"].help = (
        f"Folder that gets BITS/ALGO/ENV_<n>/ENV.zip and the rows, {qat_rows.CSV_NAME}."
    )
    flags.DEFINE_integer(
        "quant_delay", None, "Environment steps before quantization, >= 0 (else half of all)."
    )
    flags.DEFINE_enum(
        "ranges", qat_rows.FROZEN, list(qat_rows.RANGES),
        "Ranges once quantization has started. moving: ranges of activations go on widening, and "
        "ranges of weights are the current weights' own.",
    )
    flags.DEFINE_float(
        "percentile", None,
        "Central share of the numbers, in percent above 50 to 100, whose range is the first one "
        "(else ste: all numbers seen; lsq: see docs/how/learned-steps.md).",
    )
    flags.DEFINE_enum(
        "granularity", precision_lib.PAPER, list(precision_lib.GRANULARITIES),
        "Weights that share a range. paper: a linear layer's, and those of each output of a "
        "convolution. channel: those of each output of both.",
    )
    flags.DEFINE_integer(
        "input_bits", None, "Bits of observations: 2 to 16 (else 8, or -q where that is more)."
    )
    flags.DEFINE_integer("weight_bits", None, "Bits of the weights: 2 to 16 (else as -q).")
    flags.DEFINE_integer(
        "activation_bits", None,
        "Bits of the inputs of the layers behind the first, 2 to 16 (else as -q).",
    )
    flags.DEFINE_integer(
        "first_bits", None, "Bits of the first layer's weights: 2 to 16 (else as other weights)."
    )
    flags.DEFINE_integer(
        "last_bits", None,
        "Bits of the last layer's weights and of its input: 2 to 16 (else as the others).",
    )
    flags.DEFINE_boolean(
        "quantize_output", False, "Quantize the policy's output (logits, Q-values, actions), too."
    )
    flags.DEFINE_integer(
        "episodes", DEFAULT_EPISODES, "Episodes of the evaluation, for each of --seeds, >= 1.",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "seeds", DEFAULT_SEEDS, "Seeds of the evaluation's environments, each >= 0."
    )


def quantization_of_flags(bits: int, delay: int | None, estimator: str) -> "qat_model.QatSettings":
    """Returns the settings that the flags of `define_quantization_flags` ask for.

    Args:
      bits: width, as -q.
      delay: environment steps before quantization; None: half of the training.
      estimator: one of `qat_rows.ESTIMATORS`.

    Raises:
      errors.UserError: the settings make no sense.
    """
    from baseline.qat import model as qat_model

    values = flags.FLAGS
    plain = qat_model.QatSettings(
        bits, delay, values.ranges, values.quantize_output, values.input_bits
    )
    if plain.control:  # The other settings do not concern it.
        return plain
    own = ("granularity", "weight_bits", "activation_bits", "first_bits", "last_bits",
           "percentile")
    return dataclasses.replace(
        plain, estimator=estimator, **{name: getattr(values, name) for name in own}
    )


def train(
    settings: training_settings.TrainSettings,
    qat_settings: "qat_model.QatSettings",
    stop_requested: Callable[[], bool] = lambda: False,
) -> pathlib.Path | None:
    """Trains one agent.

    Args:
      settings: settings of the training; the folder gets ALGO/ENV_<n>.
      qat_settings: how to quantize.
      stop_requested: function that is called at every step; once true, the run saves and ends.

    Returns:
      The agent's zip, a plain one; None if the run was stopped before its end.

    Raises:
      errors.UserError: the settings cannot be met.
    """
    from baseline.qat import callback
    from baseline.qat import export
    from baseline.qat import model as qat_model
    from baseline.qat import runs
    from baseline.train import training

    check(settings, qat_settings)
    schedule = callback.FakeQuantizationSchedule()

    def prepare(model: "base_class.BaseAlgorithm") -> "list[callbacks.BaseCallback]":
        qat_model.prepare(model, qat_settings)
        return [schedule]

    def write_quantization(path: pathlib.Path) -> None:
        if schedule.converted is not None:
            export.write(schedule.converted, path)

    path = training.train(
        settings, prepare, stop_requested, runs.PROGRAM,
        {"quantization": qat_settings.noted}, write_quantization,
    )
    return None if schedule.converted is None else path


def of_width(
    settings: training_settings.TrainSettings, bits: int
) -> training_settings.TrainSettings:
    """Returns settings with a width's own folders, in which runs are numbered from 1."""
    curves = settings.tensorboard and os.path.join(settings.tensorboard, str(bits))
    return dataclasses.replace(
        settings, folder=os.path.join(settings.folder, str(bits)), tensorboard=curves
    )


def check(
    settings: training_settings.TrainSettings, qat_settings: "qat_model.QatSettings"
) -> None:
    """Checks that the settings of training and of quantization go together.

    Raises:
      errors.UserError: they do not go together.
    """
    if settings.eval_freq:
        raise errors.UserError(
            "--eval_freq would keep a best_model.zip with fake quantization in it, which cannot be "
            "loaded: leave --eval_freq out."
        )
    if settings.precision not in (None, precision_lib.FP32):
        raise errors.UserError(
            f"--precision {settings.precision} would round the numbers that quantization rounds: "
            "leave --precision out."
        )
    if settings.steps is not None:
        qat_settings.delay_of(settings.steps)


def evaluate(
    path: pathlib.Path, algo: str, seeds: tuple[int, ...], episodes: int
) -> qat_rows.TrainedRow:
    """Plays an agent's episodes, as it acted in training, and returns the row.

    Writes the integers beside a quantized agent, too.

    Args:
      path: path of the zip, in the zoo's layout.
      algo: its algorithm.
      seeds: seeds of the environments.
      episodes: episodes for each seed.

    Raises:
      errors.UserError: a file is missing or damaged.
    """
    from baseline.agents import finding
    from baseline.agents import integers
    from baseline.agents import zoo_files
    from baseline.qat import export
    from baseline.qat import runs
    from baseline.quantization import schemes
    from baseline.study import measuring

    env_id = zoo_files.environment_name(path.with_suffix(""))
    agent = finding.load_file(algo, env_id, path)
    scheme = schemes.Scheme(schemes.FP32)
    if agent.quantization is not None:
        scheme = agent.quantization[0]
        export.write_packed(agent)
    started = time.perf_counter()
    returns = measuring.play(agent, seeds, episodes)
    row = measuring.row_of(
        agent,
        measuring.key(algo, env_id, scheme, seeds, episodes),
        returns,
        bytes=integers.num_bytes(agent),
        seconds=time.perf_counter() - started,
    )
    return qat_rows.trained(row, **runs.training_columns(path))


def main(argv: list[str]) -> int:
    """Trains and evaluates an agent by the flags; see `cli.run` for errors."""
    settings = training_settings.from_flags(argv[1:])
    values = flags.FLAGS
    cli.quiet_tensorflow()
    with lean_imports.without("tensorflow"):  # TensorBoard would load it, but does not need it.
        from baseline.qat import runs
        from baseline.study import measuring

        qat_settings = quantization_of_flags(values.bits, values.quant_delay, values.estimator)
    seeds = measuring.parse_seeds(values.seeds)
    csv_path = os.path.join(settings.folder, qat_rows.CSV_NAME)
    # A damaged file must not cost hours of training.
    rows = rows_lib.measured_rows(csv_path, qat_rows.TrainedRow)
    settings = of_width(settings, values.bits)
    path = None
    if settings.resume:
        path = runs.trained_only(settings, qat_settings, rows.values())
    if path is not None:
        logging.info("%s is trained already and is now evaluated.", path)
    else:
        requested: list[bool] = []
        undo = cli.on_stop_signals(lambda: requested.append(True))
        path = train(settings, qat_settings, lambda: bool(requested))
        undo()  # The evaluation may be interrupted anywhere.
    if path is None:
        return cli.interrupted_code()
    row = evaluate(path, settings.algo, seeds, values.episodes)
    rows_lib.append(csv_path, row)
    print(measuring.summary(row))
    print(f"Agent: {path}")
    print(f"Row:   {csv_path}")
    return 0
