"""Measures how much slower quantization-aware training is than plain training, in one run.

    python -m baseline.qat_speed [ALGO ENV ...] [--out FOLDER]

For each pair (else one for each of the paper's algorithms), it trains four models with the zoo's
tuned hyper-parameters: plainly, watching ranges (as before the delay), and quantizing with frozen
and with moving ranges. They train in turns of -n steps on one thread. The models are not kept.
"""

from typing import Any

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from baseline.quantization import names
from baseline.study import parallel

PAIRS = (
    ("a2c", "CartPole-v1"), ("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"),
    ("ddpg", "MountainCarContinuous-v0"),
)
# Steps of a turn: whole rollouts and trainings, about a second.
STEPS = {"a2c": 1000, "ppo": 1024, "dqn": 1024, "ddpg": 200, "td3": 200, "sac": 200}


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_integer(
        "steps", None, "Environment steps of a turn, >= 1 (else as suits the algorithm).", 1,
        short_name="n",
    )
    flags.DEFINE_integer("bits", 8, "Width, 2 to 16.", 2, 16, short_name="q")
    flags.DEFINE_integer("turns", 10, "Turns of each kind, >= 1.", 1)
    flags.DEFINE_string("out", None, "Folder that gets qat_speed.md and qat_speed.json.")


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    values = flags.FLAGS
    pairs = parallel.pairs(argv[1:]) if argv[1:] else PAIRS
    for algo, _ in pairs:
        if names.canonical_algo(algo) not in STEPS:
            raise errors.UserError(f"There is no algorithm {algo!r}: {', '.join(STEPS)}.")
    cli.quiet_tensorflow()
    import torch

    from baseline.qat import speed

    logging.set_verbosity(logging.WARNING)
    torch.set_num_threads(1)
    pairs = speed.trainable(pairs)
    if values.out:
        output.make_folder(values.out)
    measured: list[dict[str, Any]] = []
    rows = []
    for algo, env in pairs:
        steps = values.steps or STEPS[algo]
        seconds = speed.measure(algo, env, steps, values.bits, values.turns)
        measured.append({"algo": algo, "env": env, "steps": steps, "seconds": seconds})
        found = speed.cells(seconds, steps)
        rows.append([f"{algo} {env}", *(found[kind] for kind in speed.KINDS)])
    title = (
        f"Time of a training with {values.bits} bits as a multiple of plain Stable-Baselines3's: "
        f"median [quartiles] of {values.turns} turns, one thread"
    )
    table = output.markdown_table(["Training", *speed.KINDS], rows)
    record = {"bits": values.bits, "turns": values.turns, "measured": measured}
    text = f"{title}\n\n{table}"
    output.write_measured("baseline.qat_speed", "qat_speed", text, record, values.out)
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="qat_speed")
