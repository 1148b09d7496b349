"""Trains Stable-Baselines3's TD3 or DQN with our flags, and logs as our learner does.

By hand:

    python -m actorQ.experiments.peers.sb3_agent --taskstr gym,CartPole-v0 --logpath logs/sb3

What each flag means to the agent: `peer_sb3`.
"""

from absl import flags

from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import lean_imports
from actorQ.experiments.peers import session


def main(argv: list[str]) -> int:
    """Runs one training; see `cli.run` for errors."""
    del argv
    config = session.config_from_flags()
    # Imported late: flags are checked, and --help answers, without seconds of imports. TensorFlow
    # would come with TensorBoard, which goes on without: 2 s and 480 MB for nothing.
    with lean_imports.without("tensorflow"):
        from actorQ.experiments.peers import sb3_training

        return sb3_training.train(config)


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
