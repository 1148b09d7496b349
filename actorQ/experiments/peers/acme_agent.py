"""Trains Acme's own single-process D4PG with our flags, and logs as our learner does.

By hand:

    python -m actorQ.experiments.peers.acme_agent --taskstr dm_control,walker_stand \
        --logpath logs/acme

`acme_training` says what each flag means to the agent.
"""

from absl import flags

from actorQ.core import allocator
from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.experiments.peers import session


def main(argv: list[str]) -> int:
    """Runs one training; see `cli.run` for errors."""
    del argv
    config = session.config_from_flags()
    cli.quiet_tensorflow()
    cli.use_onednn()  # Our learner does so, too.
    allocator.keep_large_blocks()
    # A late import: flags are checked, and --help answers, without seconds of imports.
    from actorQ.experiments.peers import acme_training

    return acme_training.train(config)


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
