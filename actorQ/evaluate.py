"""Plays a trained policy at any precision, and can film it.

    python -m actorQ.evaluate RUN --episodes 10 --quantize 8 --video out.mp4

From Python:

    from actorQ import evaluate
    policy = evaluate.load_policy("logs/my-run", quantize=8)
    action = policy(observation)  # In the environment's own units.
"""

import os

from absl import flags
from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.policy import inference
from actorQ.policy import loaded

# Public API: `evaluate.load_policy(RUN)`.
load_policy = loaded.load_policy


def define_flags() -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_integer("episodes", 10, "Episodes to play, >= 1.", lower_bound=1)
    flags.DEFINE_integer(
        "quantize", 32,
        "Precision of inference, bits: 32, 16, 8, 4 or 3 (4 and 3 need --inference_mode native "
        "or tensorflow).",
    )
    flags.DEFINE_enum(
        "inference_mode", "pytorch", list(config_lib.INFERENCE_MODES), "Inference backend."
    )
    flags.DEFINE_integer("seed", 0, "Seed of the environment, >= 0.", lower_bound=0)
    flags.DEFINE_boolean("best", False, "Take the weights with the best evaluation, not the last.")
    flags.DEFINE_string("video", "", "File for a film of the episodes, .mp4 or .gif; empty: none.")


def main(argv: list[str]) -> int:
    """Evaluates one policy; see `cli.run` for errors."""
    if len(argv) != 2:
        raise errors.UserError("takes one argument: the run folder (or a policy.safetensors).")
    values = flags.FLAGS
    cli.quiet_tensorflow()
    inference.use_one_thread(values.inference_mode)
    policy = loaded.load_policy(argv[1], values.quantize, values.best, values.inference_mode)
    try:
        played = loaded.play_episodes(policy, values.episodes, values.seed, values.video)
    except ValueError as error:  # From the video writer: an ending that it does not know.
        raise errors.UserError(str(error)) from None
    for number, episode in enumerate(played, 1):
        print(f"episode {number}: return {episode.episode_return:.1f}, {episode.length} steps")
    returns = [episode.episode_return for episode in played]
    print(
        f"{policy.checkpoint.facts['taskstr']} at {values.quantize} bits: return "
        f"{np.mean(returns):.1f} +- {np.std(returns):.1f} over {len(returns)} episodes"
    )
    if values.video:
        logging.info("Film: %s", os.path.abspath(values.video))
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="evaluate")
