"""Logs of a run: file and field names, and readers; `run_logger` writes them.

Layout of a run folder, the one place where it is written down:

    RUN/config.json                  configuration, git commit, machine
    RUN/launch.json                  flags of the launcher alone (`launch.run_folders`)
    RUN/address                      HOST:PORT of the learner's server, once it is up
    RUN/learner/train.csv            TRAIN_FIELDS, one row every log period
    RUN/learner/evaluation.csv       EVALUATION_FIELDS, one row an evaluation episode
    RUN/broadcaster/updates.csv      UPDATE_FIELDS, one row a converted model
    RUN/broadcaster/meter.csv        METER_FIELDS, one row every meter period
    RUN/actor_<i>/episodes.csv       EPISODE_FIELDS, one row an episode
    RUN/actor_<i>/phases.csv         PHASE_FIELDS, cumulative seconds, one row every log period
    RUN/<process>/events.out...      the same scalars for TensorBoard
    RUN/<process>/wandb/             the same scalars for Weights & Biases (with --track=wandb)
    RUN/<process>/emissions.csv      energy and CO2 by codecarbon (with --track_energy=1)
    RUN/stdout/<process>.log         what the process printed (when the launcher started it)
    RUN/checkpoint/                  policy.safetensors (last), best/, resume/ (`snapshots`)
    RUN/plots/                       what the launcher draws at the end of a run

Used by every process and by the scripts. Imports no framework.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import csv
import glob
import itertools
import os
import time

from actorQ.core import errors

# Every row has TIME_FIELDS first: seconds since the launch of the run, and since 1970. The time
# between the end of a run and its resumption does not count in `seconds`.
TIME_FIELDS = ("seconds", "unix_time")

TRAIN_FIELDS = TIME_FIELDS + (
    "learner_steps",  # Learner steps done.
    "learner_steps_per_s",  # Since the row before.
    "actor_steps",  # Transitions inserted into replay = environment steps of all actors.
    "actor_steps_per_s",
    "replay_size",  # Transitions in replay.
    "model_version",  # Newest weights pushed: learner steps + versions lost to crashes.
    "pushes",  # Pushes of weights that reached Reverb.
    "push_snapshot_s",  # Cumulative seconds that pushing took from the learner's thread.
    "push_insert_s",  # Cumulative seconds of copying and inserting in the background.
    "evaluation_s",  # Cumulative seconds that evaluation took from the learner's thread.
    "checkpoint_s",  # Cumulative seconds that checkpoints took from the learner's thread.
    "loss",  # D4PG: critic loss; DQN: Huber loss of scaled returns (`dqn.learner`).
    "policy_loss",  # D4PG only.
    "q_mean",  # Mean online Q-value of the batch (DQN: of the best action, unscaled).
    "gradient_norm",  # Global norm of the critic's (or Q-network's) gradient, before clipping.
    "policy_gradient_norm",  # D4PG only, before clipping.
    "reward_low",  # Lowest reward per step of all batches so far (`learner.dataset`).
    "reward_high",  # Highest reward per step of these batches.
    "targets_below_vmin",  # D4PG only: share of the targets' probability mass, each 20th step.
    "targets_above_vmax",  # D4PG only: the same at the other end of the critic's range.
)
EVALUATION_FIELDS = TIME_FIELDS + (
    "learner_steps",
    "actor_steps",
    "episode_return",
    "episode_length",
    "episode_s",  # Seconds that this episode took.
    "evaluation_s",  # As in TRAIN_FIELDS, this episode included.
    "reward_low",  # Lowest reward of the episode.
    "reward_high",  # Highest reward of the episode.
    "actions_at_bounds",  # D4PG only: share of the episode's action numbers beyond +-0.99.
)
UPDATE_FIELDS = TIME_FIELDS + (
    "model_version",
    "decode_s",
    "convert_s",  # Communication quantization and conversion to the actors' form.
    "encode_s",
    "insert_s",
    "message_bytes",  # Bytes of the message for the actors.
    "fp32_bytes",  # Bytes of the same weights in fp32.
    "refused",  # Messages of the learner that were damaged, so far.
    "meter_s",  # Cumulative CPU seconds of the meter, that of the row before included.
    "changed_share",  # Share of the weights' integers that differ from the version before.
)
# Full-precision policy against the actors' policy, on observations from replay.
METER_FIELDS = TIME_FIELDS + (
    "model_version",
    "observations",  # Observations in the comparison.
    "observation_low",  # Lowest number in them.
    "observation_high",
    "action_distance",  # D4PG: mean distance of action numbers, which lie in [-1, 1].
    "action_distance_max",  # D4PG: largest distance.
    "actions_at_bounds",  # D4PG: share of the full-precision policy's numbers beyond +-0.99.
    "quantized_actions_at_bounds",  # D4PG: the same of the actors' policy.
    "agreement",  # DQN: share of observations in which both choose the same action.
    "lost_q",  # DQN: mean full-precision Q-value that the actors' choice is below the best.
)
# Logs also have columns with the name of a layer behind these, which the first row adds.
LAYER_PREFIXES = {
    "updates.csv": ("weight_error_",),  # Relative error of the layer's weights.
    # Lowest and highest output of the layer before tanh or ReLU, in full precision.
    "meter.csv": ("activation_low_", "activation_high_"),
}
EPISODE_FIELDS = TIME_FIELDS + (
    "actor_steps",  # Environment steps of this actor.
    "episodes",
    "episode_return",
    "episode_length",
    "model_version",
    "staleness_steps",  # Age of the weights in use, see weight_client; newest value.
)
# Phases of an actor's life: the paper's (Fig. "breakdown") in its order, and those it leaves out.
PHASES = (
    "environment_s",  # Environment step and reset.
    "inference_s",  # Policy and exploration: the paper's "step" time.
    "insert_s",  # N-step sums and Reverb insert.
    # The next two are spent on a thread beside the steps, but for the first weights. They hold the
    # actor up only where that thread shares its core.
    "pull_s",  # Asking for news, and receiving the message when there is any.
    "deserialize_s",  # Message to packed weights: the paper's "deserialize".
    "load_state_dict_s",  # Packed weights into the policy: the paper's "load_state_dict".
)
# An actor times the phases, and the part of pull_s in which looks brought a message.
TIMED = (*PHASES, "transfer_s")
PHASE_FIELDS = TIME_FIELDS + (
    "actor_steps",
    "pulls",  # Weights loaded so far.
    "refused",  # Messages that were damaged or did not fit, so far.
    "model_version",
    "staleness_steps",  # Mean since the row before.
) + TIMED

TRAIN_CSV = "train.csv"
EVALUATION_CSV = "evaluation.csv"
UPDATES_CSV = "updates.csv"
METER_CSV = "meter.csv"
EPISODES_CSV = "episodes.csv"
PHASES_CSV = "phases.csv"
EMISSIONS_CSV = "emissions.csv"
ADDRESS_FILENAME = "address"
STDOUT_FOLDER = "stdout"
CHECKPOINT_FOLDER = "checkpoint"
BEST_FOLDER = "best"
RESUME_FOLDER = "resume"  # Networks, optimizers and replay, from which a run goes on.

FIELDS = {
    TRAIN_CSV: TRAIN_FIELDS,
    EVALUATION_CSV: EVALUATION_FIELDS,
    UPDATES_CSV: UPDATE_FIELDS,
    METER_CSV: METER_FIELDS,
    EPISODES_CSV: EPISODE_FIELDS,
    PHASES_CSV: PHASE_FIELDS,
}

LEARNER = "learner"
BROADCASTER = "broadcaster"


def fields_of(filename: str, row: Iterable[str]) -> list[str]:
    """Returns the columns of a new log: its fields, and those of the layers in its first row."""
    prefixes = LAYER_PREFIXES.get(filename, ())
    return [*FIELDS[filename], *(name for name in row if name.startswith(prefixes))]


def actor_name(actor_id: int) -> str:
    """Returns the name of an actor's process and log folder."""
    return f"actor_{actor_id}"


def read_csv(path: str) -> dict[str, list[float]]:
    """Reads one log into columns; empty cells are NaN; a last row cut short is left out.

    Args:
      path: A CSV file that `RunLogger` wrote.

    Returns:
      Column name to values; all columns have the same length, at least one.

    Raises:
      errors.UserError: The file is missing, has no rows, or is no such log.
    """
    fields = FIELDS[os.path.basename(path)]
    try:
        with open(path, newline="", encoding="utf-8") as file:
            # The text behind the last newline is a row cut short, in whichever cell.
            rows = list(csv.reader(file.read().rpartition("\n")[0].splitlines()))
    except FileNotFoundError:
        raise errors.UserError(f"No log at {path}: has the run started, and is it whole?") from None
    except OSError as error:
        raise errors.UserError(f"Cannot read the log {path}: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise errors.UserError(f"The log {path} is damaged: {error}.") from None
    if not rows:
        raise errors.UserError(f"The log {path} is empty.")
    missing = [name for name in TIME_FIELDS if name not in rows[0]]
    if missing or not set(fields) & set(rows[0][len(TIME_FIELDS) :]):
        raise errors.UserError(f"{path} is not a log of this kind: its columns are {rows[0]}.")
    body = [row for row in rows[1:] if len(row) == len(rows[0])]
    if not body:
        raise errors.UserError(f"The log {path} has no rows yet.")
    try:
        columns = [[float(cell) if cell else float("nan") for cell in column]
                   for column in zip(*body, strict=True)]
    except ValueError as error:
        raise errors.UserError(f"The log {path} is damaged: {error}.") from None
    return _Columns(path, zip(rows[0], columns, strict=True))


class _Columns(dict):
    """Columns of a log; another version may have logged fewer or more."""

    def __init__(self, path: str, columns: Iterable[tuple[str, list[float]]]):
        super().__init__(columns)
        self._path = path

    def __missing__(self, name: str) -> list[float]:
        raise errors.UserError(f"The log {self._path} lacks the column {name}.")


def last_row(path: str) -> dict[str, float]:
    """Returns the newest row of a log for a live display, or {} while there is none."""
    return next(_tail(path), {})


def last_rows(path: str, count: int) -> list[dict[str, float]]:
    """Returns the newest rows of a log, oldest first.

    Args:
      path: A CSV file that `RunLogger` wrote.
      count: Most rows to return. Only the file's last 4096 bytes are read.
    """
    return list(itertools.islice(_tail(path), count))[::-1]


def first_rows(path: str, count: int) -> list[dict[str, float]]:
    """Returns the oldest rows of a log.

    Args:
      path: A CSV file that `RunLogger` wrote.
      count: Most rows to return. Only the file's first rows are read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line for line in itertools.islice(file, count + 1) if line.endswith("\n")]
    except OSError:
        return []
    header, *rows = [line.rstrip("\r\n").split(",") for line in lines] or [[]]
    return [row for row in (_row(header, cells) for cells in rows) if row]


def _tail(path: str) -> Iterator[dict[str, float]]:
    """Yields the newest rows of a log, newest first."""
    try:
        with open(path, "rb") as file:
            header = file.readline().decode().rstrip("\r\n").split(",")
            file.seek(max(len(",".join(header)) + 1, os.path.getsize(path) - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return
    # The text behind the last newline is a row still being written.
    for line in reversed(lines[:-1]):
        row = _row(header, line.rstrip("\r").split(","))
        if row:
            yield row


def _row(header: Sequence[str], cells: Sequence[str]) -> dict[str, float]:
    """Returns a row without its empty cells; {} if it is cut short or damaged."""
    if len(cells) != len(header):
        return {}
    try:
        return {n: float(c) for n, c in zip(header, cells, strict=True) if c}
    except ValueError:
        return {}


def start_time(run_folder: str, given: float, resumed: bool) -> float:
    """Returns when the clock of a run started, in seconds since 1970; 0: it starts now.

    Args:
      run_folder: Folder with the logs so far.
      given: --run_start_time; 0: the flag was not given.
      resumed: Whether the clock goes on where the logs end.
    """
    if given or not resumed:
        return given
    return time.time() - last_seconds(run_folder)


def last_seconds(run_folder: str) -> float:
    """Returns how far the clock of a run has come: the newest `seconds` in any of its logs."""
    rows = [last_row(path) for name in FIELDS for path in glob.glob(
        os.path.join(glob.escape(run_folder), "*", name)
    )]
    return max([row.get("seconds", 0.0) for row in rows], default=0.0)


def log_bytes(folder: str) -> dict[str, int]:
    """Returns the lengths of the logs of one process, name to bytes."""
    lengths = {}
    for name in FIELDS:
        with contextlib.suppress(OSError):  # The log is not there, or its disk is away.
            lengths[name] = os.path.getsize(os.path.join(folder, name))
    return lengths


def last_version(folder: str) -> int:
    """Returns the version of the newest weights in the logs of one process; -1: none."""
    names = (UPDATES_CSV, EPISODES_CSV, PHASES_CSV)
    rows = [last_row(os.path.join(folder, name)) for name in names]
    return int(max(row.get("model_version", -1.0) for row in rows))


def newest_version(run_folder: str) -> int:
    """Returns the newest version of weights in the logs of broadcaster and actors; -1: none."""
    folders = [os.path.join(run_folder, BROADCASTER), *actor_folders(run_folder)]
    return max(last_version(folder) for folder in folders)


def actor_folders(run_folder: str) -> Sequence[str]:
    """Returns the log folders of the actors of a run, by actor id."""
    if not os.path.isdir(run_folder):
        raise errors.UserError(f"{run_folder} is not a folder.")
    names = [n for n in os.listdir(run_folder) if n.startswith("actor_") and n[6:].isdecimal()]
    return [os.path.join(run_folder, n) for n in sorted(names, key=lambda n: int(n[6:]))]


def no_seconds() -> dict[str, float]:
    """Returns cumulative seconds for each of `TIMED`, before any were spent."""
    return dict.fromkeys(TIMED, 0.0)
