"""The command line of the mixed-precision study: its flags, and the choice of what to measure.

It imports no framework at the top, so that flags are checked, and --help answers, at once.
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
        "env", None, f"Environment. timing and parity: an Atari game, ...NoFrameskip-v4 (else "
        f"{ATARI}); returns: any with discrete actions (else {TASK}).",
    )
    flags.DEFINE_list(
        "policy", list(paper.MIXED_PRECISION),
        "Policies of timing and parity, comma separated: A (3 convolutions of 128 filters, 128 "
        "units), B (512, 512), C (1024, 2048).",
    )
    flags.DEFINE_enum(
        "precision", precision_lib.AUTO, list(precision_lib.CHOICES),
        "Precision to compare with fp32. auto: timing takes the faster one, as baseline.train "
        "chooses it; the others take the device's half precision, or emulated bf16.",
    )
    flags.DEFINE_enum("device", "cpu", list(settings.DEVICES), "Device of the networks.")
    flags.DEFINE_list(
        "threads", ["1"],
        "Threads of torch, each >= 1, comma separated: timing measures all numbers, the others "
        "take the first.",
    )
    flags.DEFINE_integer("turns", 7, "Turns of each precision in timing, >= 1.", 1)
    flags.DEFINE_integer(
        "gradient_steps", None, "Gradient steps, >= 1. timing: in a turn, with 4 environment steps "
        "each (else 4); parity: in all (else 200).", 1,
    )
    flags.DEFINE_integer(
        "transitions", 2000,
        "Transitions of random play, >= 100, that timing and parity learn from.",
        100,
    )
    flags.DEFINE_string("train_seeds", "0,1,2", "Seeds of the trainings of returns, each >= 0.")
    flags.DEFINE_integer(
        "steps", None, "Environment steps of a training of returns (else as tuned), >= 1.", 1
    )
    flags.DEFINE_integer("episodes", 100, "Episodes that returns plays an agent for, >= 1.", 1)
    flags.DEFINE_integer(
        "seed", 0,
        f"Seed of timing and parity, and of returns' episodes, 0 to {settings.MAX_SEED}.", 0,
        settings.MAX_SEED,
    )
    flags.DEFINE_string(
        "folder", "logs/mixed_precision",
        "Folder for the agents of returns: PRECISION/seed_<n>/dqn/ENV_<n>, on a GPU below cuda.",
    )
    flags.DEFINE_string("out", None, "Folder for tables (.md, .csv), figures (.json) and plots.")


def main(argv: list[str]) -> int:
    """Runs the study's part that the command line names; see `cli.run` for errors."""
    what = argv[1] if len(argv) > 1 else TIMING
    if what not in WHAT or len(argv) > 2:
        raise errors.UserError(
            f"The study measures one of {', '.join(WHAT)}, not {' '.join(argv[1:])!r}."
        )
    values = flags.FLAGS
    policies = _policies(values.policy)
    threads = _threads(values.threads)
    cli.quiet_tensorflow()
    import torch

    # Stable-Baselines3 imports TensorFlow through TensorBoard. Only trainings need TensorBoard, and
    # nothing needs TensorFlow.
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
                values.env or ATARI, policies, precision, values.gradient_steps or 4,
                values.transitions, values.seed, device.type, threads, values.turns,
            ),
            values.out,
        )
    elif what == PARITY:
        from baseline.mixed_precision import parity
        from baseline.mixed_precision import timing

        torch.set_num_threads(threads[0])
        parity.run(
            timing.AtariSettings(
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
    """Returns the precision to compare with fp32; `timing` resolves "auto" itself."""
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
            f"--policy={','.join(names)}: the policies are {', '.join(paper.MIXED_PRECISION)}."
        )
    return chosen


def _threads(texts: list[str]) -> tuple[int, ...]:
    if not texts or not all(text.strip().isdecimal() and int(text) > 0 for text in texts):
        raise errors.UserError(
            f"--threads={','.join(texts)} is no list of numbers >= 1, such as 1,2."
        )
    return tuple(dict.fromkeys(map(int, texts)))
