"""Loss parity: the same gradient steps in fp32 and in half precision, on one recorded replay.

Weights, batches and the moments at which the target network is copied are the same, so that the
losses differ by what half precision rounds, and by what that leads to.
"""

from collections.abc import Mapping
import dataclasses
from typing import TYPE_CHECKING

from absl import logging
import numpy as np

from actorQ.core import output
from actorQ.experiments.run_logs import loss_parity
from baseline.quantization import names as precision_lib
from baseline.study import paper

if TYPE_CHECKING:
    from stable_baselines3.common import buffers

NAME = "mixed_precision_parity"
TARGET_PERIOD = 50  # Gradient steps; a training has 250, which would be once here.
_PROGRAM = "baseline.mixed_precision"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to compare; see the flags of `mixed_precision`.

    Attributes:
      env: Atari game.
      policies: names in `paper.MIXED_PRECISION`.
      precision: bf16 or fp16.
      gradient_steps: in all.
      transitions: of the replay.
      seed: of everything random.
      device: "cpu" or "cuda".
    """

    env: str
    policies: tuple[str, ...]
    precision: str
    gradient_steps: int
    transitions: int
    seed: int
    device: str


def run(settings: Settings, out: str | None) -> dict[str, dict[str, np.ndarray]]:
    """Compares and reports; returns losses [gradient_steps] by policy and precision.

    Raises:
      errors.UserError: the environment is no Atari game, or the folder cannot be written.
    """
    if out:
        output.make_folder(out)
    replay = record_replay(settings)
    losses: dict[str, dict[str, np.ndarray]] = {}
    for policy in settings.policies:
        losses[policy] = {}
        for precision in dict.fromkeys((precision_lib.FP32, settings.precision)):
            losses[policy][precision] = train(settings, policy, precision, replay)
            logging.info("Policy %s: losses in %s.", policy, precision)
        report(losses, settings, out)
    return losses


def record_replay(settings: Settings) -> "buffers.ReplayBuffer":
    """Returns the replay of random play; which policy does not play does not matter."""
    from baseline.mixed_precision import wide_policies

    steps = settings.transitions // wide_policies.TRAIN_FREQ * wide_policies.TRAIN_FREQ
    model = wide_policies.make(settings.env, "A", settings.seed, settings.device, steps)
    wide_policies.play(model, steps)
    return model.replay_buffer


def train(
    settings: Settings, policy: str, precision: str, replay: "buffers.ReplayBuffer"
) -> np.ndarray:
    """Returns the losses of a policy's gradient steps, float64 [gradient_steps].

    Args:
      settings: see `Settings`.
      policy: one of its policies.
      precision: fp32, bf16 or fp16.
      replay: that batches come from.
    """
    from baseline.mixed_precision import wide_policies
    from baseline.train import half_precision

    model = wide_policies.make(settings.env, policy, settings.seed, settings.device, 1)
    half_precision.apply(model, precision)
    model.replay_buffer = replay
    for step in range(settings.gradient_steps):
        if step % TARGET_PERIOD == 0:
            model.q_net_target.load_state_dict(model.q_net.state_dict())
        np.random.seed(step)  # Which chooses the batch, in SB3's buffer.
        model.train(1, model.batch_size)
    return np.array(model.losses)


def report(
    losses: Mapping[str, Mapping[str, np.ndarray]], settings: Settings, out: str | None
) -> None:
    """Prints the table; with `out` writes it (.md, .json), the losses (.csv) and a plot (.png).

    Raises:
      errors.UserError: the folder cannot be written.
    """
    rows = [
        {
            "policy": policy, "precision": precision,
            **loss_parity.row(found[precision_lib.FP32], half),
        }
        for policy, found in losses.items() for precision, half in found.items()
        if precision != precision_lib.FP32 or len(found) == 1
    ]
    text = "\n".join([
        f"Losses of {settings.gradient_steps} gradient steps of DQN on {settings.env}, from the "
        f"same weights on the same batches of {settings.transitions} recorded transitions, on "
        f"{settings.device}\n",
        output.markdown_table(
            ("policy", "precision", *loss_parity.HEADER),
            [[row["policy"], row["precision"], *loss_parity.cells(row)] for row in rows],
        ),
        f"- {loss_parity.NOTE}",
        f"- the target network is copied every {TARGET_PERIOD} gradient steps",
        "",
    ])
    record = {"settings": dataclasses.asdict(settings), "rows": rows}
    output.write_measured(_PROGRAM, NAME, text, record, out)
    if out:
        sizes = paper.MIXED_PRECISION
        titles = {
            policy: f"Policy {policy}: 3x{sizes[policy].filters} filters, "
            f"{sizes[policy].units} units"
            for policy in losses
        }
        loss_parity.write(losses, titles, out, NAME)
