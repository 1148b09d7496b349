"""Trains an agent with the zoo's tuned hyper-parameters, and leaves it in the zoo's layout.

    python -m baseline.train --algo ppo --env CartPole-v1
    python -m baseline.train --algo ppo --env CartPole-v1 --resume

OUT/ALGO/ENV_<n>/ENV.zip is the agent, OUT/ALGO/ENV_<n>/ENV/ has config.yml, args.yml, command.txt
and, where observations are normalised, vecnormalize.pkl.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import ctypes
import dataclasses
import os
import pathlib
import sys
import time
from typing import Any

from absl import flags
from absl import logging

from actorQ import cli
from actorQ import errors

ALGOS = ("a2c", "ppo", "dqn", "ddpg")
PROGRESS_PERIOD_S = 60.0

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """What to train.

    Attributes:
      algo: one of ALGOS.
      env: Gymnasium name.
      steps: environment steps in all; 0: as many as the tuned hyper-parameters say.
      seed: of everything random.
      folder: of all agents, in the zoo's layout.
      resume: go on with the newest unfinished run.
      save_freq: steps between checkpoints; 0: only at the end.
      eval_freq: steps between evaluations; 0: none.
      num_envs: environments at once; 0: as tuned.
      device: for the networks: "auto", "cpu" or "cuda".
      hyperparams: values that replace tuned ones.
      tensorboard: folder for curves; "": inside the run's folder.
      progress: draw a progress bar, on a terminal.
      bfloat16: compute image features in bfloat16.
    """

    algo: str
    env: str
    steps: int = 0
    seed: int = 0
    folder: str = "logs/zoo"
    resume: bool = False
    save_freq: int = 50_000
    eval_freq: int = 0
    num_envs: int = 0
    device: str = "auto"
    hyperparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tensorboard: str = ""
    progress: bool = True
    bfloat16: bool = False


def train(
    settings: TrainSettings,
    prepare: Callable[[Any], Sequence[Any]] | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> pathlib.Path:
    """Trains one agent.

    Args:
      settings: what to train.
      prepare: is given the model before training (before its weights are restored, when a run
        goes on) and returns callbacks.
      stop_requested: asked at every step; once it says yes, the run saves and ends.

    Returns:
      The path of the agent's zip.
    """
    keep_memory()
    from baseline import training_callbacks
    from baseline import training_state
    from baseline import zoo
    from stable_baselines3.common import logger as sb3_logger
    from stable_baselines3.common import utils

    utils.set_random_seed(settings.seed)
    hyperparams = dict(settings.hyperparams)
    if settings.num_envs:
        hyperparams["n_envs"] = settings.num_envs
    run_folder = None
    experiment = zoo.Experiment(
        settings.algo,
        settings.env,
        settings.folder,
        run_folder,
        settings.steps,
        settings.seed,
        hyperparams,
        dataclasses.asdict(settings),
        settings.eval_freq,
        settings.device,
    )
    model, _ = experiment.setup_experiment()
    if settings.bfloat16:
        zoo.use_bfloat16(model)
    callbacks = list(prepare(model)) if prepare is not None else []
    env_id = str(experiment.env_name)
    run_folder = experiment.save_path
    model.set_logger(
        sb3_logger.configure(
            settings.tensorboard or os.path.join(run_folder, "tensorboard"), ["tensorboard"]
        )
    )
    total = experiment.n_timesteps
    callbacks += [
        *experiment.callbacks,
        training_callbacks.Checkpoints(
            lambda: training_state.save(model, run_folder, env_id), settings.save_freq
        ),
        training_callbacks.ProgressLines(total, PROGRESS_PERIOD_S),
        training_callbacks.StopOnRequest(stop_requested),
    ]
    logging.info("Training %s on %s for %d steps in %s.", settings.algo, env_id, total, run_folder)
    start_s = time.perf_counter()
    model.learn(total - model.num_timesteps, callback=callbacks, reset_num_timesteps=False)
    path = training_state.save(model, run_folder, env_id)
    logging.info("%d steps in %.0f s.", model.num_timesteps, time.perf_counter() - start_s)
    return pathlib.Path(path)


def keep_memory() -> None:
    """Lets the C library keep what it frees: image batches are a fifth to a third faster then.

    Else every large array is given back to the system, and the next one's pages are cleared anew.
    Does nothing where the C library is not GNU's.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    m_trim_threshold, m_mmap_max = -1, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, 2**30)


def main(argv: list[str]) -> int:
    """Trains what the flags say."""
    del argv
    cli.quiet_tensorflow()
    logging.get_absl_handler().filters.clear()
    requested = []
    cli.on_stop_signals(lambda: requested.append(True))
    settings = TrainSettings(
        algo=FLAGS.algo,
        env=FLAGS.env,
        steps=FLAGS.steps,
        seed=FLAGS.seed,
        folder=FLAGS.folder,
        save_freq=FLAGS.save_freq,
        eval_freq=FLAGS.eval_freq,
        num_envs=FLAGS.num_envs,
        device=FLAGS.device,
        hyperparams=_hyperparams(FLAGS.hyperparams),
        tensorboard=FLAGS.tensorboard,
        bfloat16=FLAGS.bfloat16,
    )
    train(settings, stop_requested=lambda: bool(requested))
    return cli.EXIT_INTERRUPTED if requested else 0


def _hyperparams(texts: Sequence[str]) -> dict[str, Any]:
    import yaml

    values = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon:
            raise errors.UserError(f"--hyperparams takes name:value, got {text!r}.")
        values[name] = yaml.safe_load(value)
    return values


def define_flags() -> None:
    """Defines the command line."""
    flags.DEFINE_enum("algo", None, list(ALGOS), "Algorithm.", required=True)
    flags.DEFINE_string("env", None, "Environment, by Gymnasium's name.", required=True)
    flags.DEFINE_integer(
        "steps", 0, "Environment steps in all (0: as tuned).", short_name="n", lower_bound=0
    )
    flags.DEFINE_integer("seed", 0, "Of everything random.", lower_bound=0)
    flags.DEFINE_string("folder", "logs/zoo", "Where agents are kept, in the zoo's layout.")
    flags.DEFINE_integer("save_freq", 50_000, "Steps between checkpoints.", lower_bound=0)
    flags.DEFINE_integer("eval_freq", 0, "Steps between evaluations (0: none).", lower_bound=0)
    flags.DEFINE_integer("num_envs", 0, "Environments at once (0: as tuned).", lower_bound=0)
    flags.DEFINE_string("device", "auto", "For the networks: auto, cpu or cuda.")
    flags.DEFINE_multi_string("hyperparams", [], "name:value in place of a tuned one; repeat it.")
    flags.DEFINE_string("tensorboard", "", "Folder for curves (empty: the run's own folder).")
    flags.DEFINE_boolean("bfloat16", False, "Compute image features in bfloat16.")


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="train")
