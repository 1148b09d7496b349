"""Trains one agent, or several, at many widths and seeds, over all cores, and evaluates them.

    python -m baseline.qat_sweep ALGO ENV [ALGO ENV ...] [--bits 32,8,7,6,5,4,3,2]

After the trainings, each control (32 bits) is quantized without training to the same widths,
weights and activations, by `--ptq_method`. All rows go to FOLDER/qat.csv, which
`baseline.collate --qat` draws.

The same command carries on an interrupted sweep: it makes no row twice, and runs that were
interrupted go on. `qat_benchmark.sh` calls this.
"""

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.qat import training
from baseline.quantization import recipes
from baseline.study import parallel
from baseline.study import qat_rows
from baseline.train import settings as training_settings

DEFAULT_BITS = "32,8,7,6,5,4,3,2"
DEFAULT_TRAIN_SEEDS = "0,1,2"
# A well-trained policy hardly leaves the middle of its task. CartPole's ranges over 5 episodes are
# so narrow that other starts are clipped, which costs the policy a fifth of its return.
DEFAULT_CALIBRATION_EPISODES = 30


def define_flags() -> None:
    """Defines the flags of this tool."""
    training_settings.define_training_flags()
    training.define_quantization_flags()
    flags.DEFINE_string(
        "bits", DEFAULT_BITS, "Widths, comma separated: 2 to 16, and 32, the control."
    )
    flags.DEFINE_string(
        "estimator", qat_rows.STE,
        f"Estimators, comma separated: {', '.join(qat_rows.ESTIMATORS)}; see baseline.qat.",
    )
    flags.DEFINE_string(
        "train_seeds", DEFAULT_TRAIN_SEEDS, "Seeds of the trainings, each >= 0, comma separated."
    )
    flags.DEFINE_boolean("ptq", True, "Quantize the controls after their training, too.")
    flags.DEFINE_string(
        "ptq_method", recipes.MINMAX,
        "How controls are quantized then: a value of baseline.ptq's --method, such as auto.",
    )
    flags.DEFINE_integer(
        "calibration_episodes", DEFAULT_CALIBRATION_EPISODES,
        "Episodes of a control that find the ranges of its activations, >= 1.", lower_bound=1,
    )
    parallel.define_jobs()


def main(argv: list[str]) -> int:
    """Runs the sweep; see `cli.run` for errors."""
    values = flags.FLAGS
    # For absl, the zoo's `--hyperparams a:1 b:2` is `--hyperparams a:1` and the argument `b:2`.
    # No environment has a colon in its name.
    more = [word for word in argv[1:] if values.hyperparams and ":" in word]
    pairs = parallel.pairs([word for word in argv[1:] if word not in more])
    hyperparams = training_settings.parse_hyperparams([*values.hyperparams, *more])
    method = recipes.parse(values.ptq_method, "ptq_method")
    cli.quiet_tensorflow()
    with lean_imports.without("tensorflow"):  # TensorBoard would load it, but does not need it.
        from baseline.qat import sweep

    failed = sweep.run(
        sweep.jobs_of_flags(pairs, hyperparams), values.jobs,
        sweep.Ptq(values.calibration_episodes, method) if values.ptq else None,
    )
    for job, reason in failed:
        errors.report("qat_sweep", f"{job.name}: {reason}")
    return cli.EXIT_ERROR if failed else 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(training_settings)  # --help shows the key flags.
    flags.adopt_module_key_flags(training)
    flags.adopt_module_key_flags(parallel)
    cli.run(main, takes_arguments=True, name="qat_sweep")
