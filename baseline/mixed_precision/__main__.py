"""Mixed-precision training, the paper's first case study: DQN with half the bits.

    python -m baseline.mixed_precision --policy C                  # run time, fp32 against half
    python -m baseline.mixed_precision parity --policy A,B,C       # losses on one recorded replay
    python -m baseline.mixed_precision returns --env CartPole-v1   # whole trainings

Weights and their updates are fp32 (the master copy); networks compute forward and backward in half
precision through torch's autocast, see `half_precision`. `timing` (the default) and `parity` train
on an Atari game with the paper's policies; `returns` trains, through `baseline.train`, whatever DQN
has tuned settings for, and its agents are as any other's.
"""

from typing import TYPE_CHECKING

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from baseline.quantization import names as precision_lib
from baseline.study import paper
from baseline.train import settings

if TYPE_CHECKING:
    import torch

TIMING, PARITY, RETURNS = WHAT = ("timing", "parity", "returns")
ATARI, TASK = "PongNoFrameskip-v4", "CartPole-v1"


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "env", None, f"timing and parity: an Atari game, ...NoFrameskip-v4 (else {ATARI}); "
        f"returns: any with discrete actions (else {TASK}).",
    )
    flags.DEFINE_list(
        "policy", list(paper.MIXED_PRECISION),
        "Of timing and parity: A (3 convolutions of 128 filters, 128 units), B (512, 512), C "
        "(1024, 2048); comma separated.",
    )
    flags.DEFINE_enum(
        "precision", precision_lib.AUTO, list(precision_lib.CHOICES),
        "To compare with fp32. auto: of timing, the faster one, as baseline.train chooses it; else "
        "the device's half precision, or bf16, emulated.",
    )
    flags.DEFINE_enum("device", "cpu", list(settings.DEVICES), "For the networks.")
    flags.DEFINE_list(
        "threads", ["1"],
        "Of torch, each >= 1, comma separated: timing measures all, the others take the first.",
    )
    flags.DEFINE_integer("turns", 7, "Of timing, of each precision, >= 1.", 1)
    flags.DEFINE_integer(
        "gradient_steps", None, "Of timing: in a turn, with 4 environment steps each (else 4); of "
        "parity: in all (else 200); >= 1.", 1,
    )
    flags.DEFINE_integer(
        "transitions", 2000, "Played at random, that timing and parity learn from, >= 100.", 100
    )
    flags.DEFINE_string("train_seeds", "0,1,2", "Of returns: of the trainings, each >= 0.")
    flags.DEFINE_integer("steps", None, "Of returns: environment steps (else as tuned), >= 1.", 1)
    flags.DEFINE_integer("episodes", 100, "Of returns: that an agent is played for, >= 1.", 1)
    flags.DEFINE_integer(
        "seed", 0,
        f"Of timing and parity, and of returns' episodes, 0 to {settings.MAX_SEED}.", 0,
        settings.MAX_SEED,
    )
    flags.DEFINE_string(
        "folder", "logs/mixed_precision",
        "Of returns: gets PRECISION/seed_<n>/dqn/ENV_<n>, on a GPU in its folder cuda.",
    )
    flags.DEFINE_string("out", None, "Folder for tables (.md, .csv), figures (.json) and plots.")


def main(argv: list[str]) -> int:
    """Measures what is asked for; see `cli.run` for errors."""
    what = argv[1] if len(argv) > 1 else TIMING
    if what not in WHAT or len(argv) > 2:
        raise errors.UserError(f"measures one of {', '.join(WHAT)}, not {' '.join(argv[1:])!r}.")
    values = flags.FLAGS
    policies = _policies(values.policy)
    threads = _threads(values.threads)
    cli.quiet_tensorflow()
    import torch

    # Stable-Baselines3 imports TensorFlow through TensorBoard, which trainings need, but not it.
    with lean_imports.without("tensorflow" if what == RETURNS else "tensorboard"):
        from baseline.study import measuring
        from baseline.train import training

    seeds = measuring.parse_seeds(values.train_seeds, "train_seeds")
    device = torch.device(training.choose_device(values.device))
    precision = _precision(values.precision, what, device)
    if what == TIMING:
        from baseline.mixed_precision import timing

        timing.run(
            timing.Settings(
                values.env or ATARI, policies, precision, threads, values.turns,
                values.gradient_steps or 4, values.transitions, values.seed, device.type,
            ),
            values.out,
        )
    elif what == PARITY:
        from baseline.mixed_precision import parity

        torch.set_num_threads(threads[0])
        parity.run(
            parity.Settings(
                values.env or ATARI, policies, precision, values.gradient_steps or 200,
                values.transitions, values.seed, device.type,
            ),
            values.out,
        )
    else:
        from baseline.mixed_precision import returns

        torch.set_num_threads(threads[0])
        returns.run(
            returns.Settings(
                values.env or TASK, precision, seeds, values.steps, values.episodes, values.seed,
                values.folder, device.type,
            ),
            values.out,
        )
    return 0


def _precision(asked: str, what: str, device: "torch.device") -> str:
    """Returns the precision to compare with fp32; auto is for `timing` to resolve.

    A warning tells where the device emulates it.

    Raises:
      errors.UserError: the device cannot be asked for it.
    """
    from baseline.train import half_precision

    if asked == precision_lib.AUTO:
        if what == TIMING:
            return asked
        asked = half_precision.half_of(device) or precision_lib.BF16
    half_precision.check(asked, device)
    return asked


def _policies(names: list[str]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(name.strip().upper() for name in names))
    if not chosen or not set(chosen) <= set(paper.MIXED_PRECISION):
        raise errors.UserError(
            f"--policy={','.join(names)}: there are {', '.join(paper.MIXED_PRECISION)}."
        )
    return chosen


def _threads(texts: list[str]) -> tuple[int, ...]:
    if not texts or not all(text.strip().isdecimal() and int(text) > 0 for text in texts):
        raise errors.UserError(f"--threads={','.join(texts)} are not numbers >= 1, such as 1,2.")
    return tuple(dict.fromkeys(map(int, texts)))


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="mixed_precision")
