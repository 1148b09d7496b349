"""Trains Stable-Baselines3's TD3 or DQN with our flags, and logs as our learner does.

By hand:

    python -m actorQ.experiments.peers.sb3_agent --taskstr gym,CartPole-v0 --logpath logs/sb3

`sb3_training` says what each flag means to the agent.
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
        from actorQ.experiments.peers import sb3_training

        return sb3_training.train(config)


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
