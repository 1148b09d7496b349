"""Trains SB3's SAC or DQN with the tuned settings of its zoo, and logs as our learner does.

By hand:

    python -m actorQ.experiments.peers.zoo_agent --taskstr gym,CartPole-v1 --logpath logs/zoo

`zoo_training` says which flags the agent reads.
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
    # A late import: flags are checked, and --help answers, without seconds of imports. TensorBoard
    # would bring TensorFlow, which it does not need: 2 s and 480 MB.
    with lean_imports.without("tensorflow"):
        from actorQ.experiments.peers import zoo_training

        return zoo_training.train(config)


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
