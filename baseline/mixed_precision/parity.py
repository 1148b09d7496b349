"""Loss parity: the same gradient steps in fp32 and in half precision, on one recorded replay.

Weights, batches and the moments at which the target network is copied are the same. Losses differ
only by the roundings of half precision, and by their consequences.
"""

from collections.abc import Mapping
import dataclasses
from typing import TYPE_CHECKING

from absl import logging
import numpy as np

from actorQ.core import output
from actorQ.core import timing
from actorQ.experiments.run_logs import loss_parity
from baseline.mixed_precision import timing as timing_lib
from baseline.quantization import names as precision_lib
from baseline.study import paper

if TYPE_CHECKING:
    from stable_baselines3.common import buffers

NAME = "mixed_precision_parity"
TARGET_PERIOD = 50  # Gradient steps. A training has 250, which would mean one copy here.


def run(settings: timing_lib.AtariSettings, out: str | None) -> dict[str, dict[str, np.ndarray]]:
    """Compares and reports; returns losses [gradient_steps] by policy and precision.

    Raises:
      errors.UserError: The environment is no Atari game, or the folder cannot be written.
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


def record_replay(settings: timing_lib.AtariSettings) -> "buffers.ReplayBuffer":
    """Returns the replay of random play; the smallest policy will do, since no network plays."""
    from baseline.mixed_precision import wide_policies

    steps = settings.transitions // wide_policies.TRAIN_FREQ * wide_policies.TRAIN_FREQ
    model = wide_policies.make(settings.env, "A", settings.seed, settings.device, steps)
    wide_policies.play(model, steps)
    assert model.replay_buffer is not None  # DQN has one from its start.
    return model.replay_buffer


def train(
    settings: timing_lib.AtariSettings, policy: str, precision: str, replay: "buffers.ReplayBuffer"
) -> np.ndarray:
    """Returns the losses of a policy's gradient steps, float64 [gradient_steps].

    Args:
      settings: timing_lib.AtariSettings of the comparison.
      policy: One of its policies.
      precision: fp32, bf16 or fp16.
      replay: Replay that batches come from.
    """
    from baseline.mixed_precision import wide_policies
    from baseline.train import half_precision

    model = wide_policies.make(settings.env, policy, settings.seed, settings.device, 1)
    half_precision.apply(model, precision)
    model.replay_buffer = replay
    for step in range(settings.gradient_steps):
        if step % TARGET_PERIOD == 0:
            model.q_net_target.load_state_dict(model.q_net.state_dict())
        np.random.seed(step)  # SB3's buffer chooses the batch by numpy's generator.
        model.train(1, model.batch_size)
    return np.array(model.losses)


def report(
    losses: Mapping[str, Mapping[str, np.ndarray]],
    settings: timing_lib.AtariSettings,
    out: str | None,
) -> None:
    """Prints the table; with `out` writes it (.md, .json), the losses (.csv) and a plot (.png).

    Raises:
      errors.UserError: The folder cannot be written.
    """
    compared = [
        (policy, precision, loss_parity.row(found[precision_lib.FP32], half))
        for policy, found in losses.items() for precision, half in found.items()
        if precision != precision_lib.FP32 or len(found) == 1
    ]
    timing.report(
        NAME,
        f"Losses of {settings.gradient_steps} gradient steps of DQN on {settings.env}, from the "
        f"same weights on the same batches of {settings.transitions} recorded transitions, on "
        f"{settings.device}",
        ("policy", "precision", *loss_parity.HEADER),
        [[policy, precision, *loss_parity.cells(row)] for policy, precision, row in compared],
        {
            "settings": dataclasses.asdict(settings),
            "rows": [
                {"policy": policy, "precision": precision, **row}
                for policy, precision, row in compared
            ],
        },
        out,
        notes=[
            loss_parity.NOTE, f"the target network is copied every {TARGET_PERIOD} gradient steps"
        ],
    )
    if out:
        titles = {
            policy: f"Policy {policy}: 3x{size.filters} filters, {size.units} units"
            for policy, size in paper.MIXED_PRECISION.items()
        }
        loss_parity.write(losses, titles, out, NAME)
