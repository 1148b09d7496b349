"""Return parity: whole trainings of DQN in fp32 and in half precision, through `baseline.train`.

Every seed is trained once in each precision, in a folder of its own, and its agent is played from
the same starts. A finished run is taken as it is, and an unfinished one goes on.
"""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import output
from actorQ.core import timing
from baseline.quantization import names as precision_lib
from baseline.train import settings as training_settings

NAME = "mixed_precision_returns"
_ALGO = "dqn"
_HEADER = ("precision", "training seed", "steps", "mean return", "std of episodes")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of trainings and episodes; see the flags of `mixed_precision`.

    Attributes:
      env: Environment.
      precision: bf16 or fp16.
      train_seeds: Seeds of the trainings.
      steps: Environment steps of each training; None: as tuned.
      episodes: Episodes that each agent is played for.
      seed: Seed of the episodes.
      folder: Folder for PRECISION/seed_<n>/dqn/ENV_<n>, below cuda on a GPU.
      device: "cpu" or "cuda".
    """

    env: str
    precision: str
    train_seeds: tuple[int, ...]
    steps: int | None
    episodes: int
    seed: int
    folder: str
    device: str


def run(settings: Settings, out: str | None) -> list[dict[str, Any]]:
    """Trains missing agents, plays all, and reports; returns the rows of `play`.

    Raises:
      errors.UserError: The environment cannot be trained on, or a folder cannot be written.
    """
    if out:
        output.make_folder(out)
    rows = []
    for train_seed in settings.train_seeds:
        for precision in dict.fromkeys((precision_lib.FP32, settings.precision)):
            path = trained(settings, precision, train_seed)
            row = play(settings, precision, train_seed, path)
            logging.info(
                "%s, seed %d: mean return %.2f.", precision, train_seed, np.mean(row["returns"])
            )
            rows.append(row)
    report(rows, settings, out)
    return rows


def trained(settings: Settings, precision: str, train_seed: int) -> pathlib.Path:
    """Returns the zip of an agent, and trains the agent first if it is missing.

    Args:
      settings: Settings of all trainings.
      precision: Precision to train in.
      train_seed: Seed of the training.

    Raises:
      errors.UserError: There is no such environment, or DQN cannot act in it.
      KeyboardInterrupt: The training was stopped and is saved: the same command goes on.
    """
    from baseline.agents import zoo_files
    from baseline.tasks import environments
    from baseline.train import experiment
    from baseline.train import state
    from baseline.train import training

    # A run is known by its place: another device needs another folder.
    device = "" if settings.device == "cpu" else settings.device
    folder = os.path.join(settings.folder, device, precision, f"seed_{train_seed}")
    env_id = environments.training_name(settings.env)
    training.check_environment(_ALGO, settings.env)  # This also registers our environments.
    wanted = settings.steps or experiment.tuned_steps(_ALGO, env_id, {})
    resume = False
    for found in state.runs(folder, _ALGO, env_id):
        if found.arguments["n_timesteps"] != wanted:
            continue
        if found.finished:
            return zoo_files.agent_zip(found.folder, env_id)
        resume = True
    to_train = training_settings.TrainSettings(
        _ALGO, settings.env, wanted, train_seed, folder, resume, device=settings.device,
        progress=False, precision=precision,
    )
    requested: list[bool] = []
    undo = cli.on_stop_signals(lambda: requested.append(True))
    try:
        path = training.train(to_train, stop_requested=lambda: bool(requested))
    finally:
        undo()
    if requested:
        raise KeyboardInterrupt
    return path


def play(
    settings: Settings, precision: str, train_seed: int, path: pathlib.Path
) -> dict[str, Any]:
    """Returns an agent's row, from episodes that are the same for all agents.

    It has `precision`, `train_seed` and `steps` of its training, its `path` and its `returns`.
    """
    from baseline.agents import evaluation
    from baseline.agents import finding
    from baseline.agents import zoo_files
    from baseline.tasks import environments

    agent = finding.load_file(_ALGO, environments.training_name(settings.env), path)
    played = evaluation.evaluate(agent.make_env, agent.act, settings.episodes, settings.seed)
    return {
        "precision": precision, "train_seed": train_seed,
        "steps": zoo_files.read_zip(path).data["num_timesteps"], "path": os.fspath(path),
        "returns": [episode.episode_return for episode in played],
    }


def report(rows: Sequence[dict[str, Any]], settings: Settings, out: str | None) -> None:
    """Prints the table; with `out` writes it (.md), its rows (.csv) and every return (.json).

    Raises:
      errors.UserError: The folder cannot be written.
    """
    table = [
        {
            **{name: row[name] for name in ("precision", "train_seed", "steps")},
            "mean": float(np.mean(row["returns"])), "std": float(np.std(row["returns"])),
        }
        for row in rows
    ]
    timing.report(
        NAME,
        f"DQN on {settings.env}: {settings.episodes} episodes of each agent, the same starts for "
        f"all, trained on {settings.device}",
        _HEADER,
        [
            [*map(str, list(row.values())[:3]), f"{row['mean']:.2f}", f"{row['std']:.2f}"]
            for row in table
        ],
        {"settings": dataclasses.asdict(settings), "rows": rows},
        out,
        notes=[
            *_means(table),
            "agents act in fp32: their files hold fp32 weights, and only args.yml tells how they "
            "were trained",
        ],
    )
    if out:
        output.write_csv(os.path.join(out, f"{NAME}.csv"), table)


def _means(table: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a line for each precision: mean and spread over its trainings."""
    lines = []
    for precision in dict.fromkeys(row["precision"] for row in table):
        means = [row["mean"] for row in table if row["precision"] == precision]
        spread = f" +- {np.std(means, ddof=1):.2f}" if len(means) > 1 else ""
        lines.append(
            f"{precision}: {np.mean(means):.2f}{spread} over {len(means)} training(s)"
        )
    return lines
