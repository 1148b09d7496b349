"""The learner's process: owns the Reverb server, trains in full precision, evaluates, logs.

By hand:

    python -m actorQ.learner_main --taskstr gym,CartPole-v1 --logpath logs/mine
    python -m actorQ.learner_main --resume --logpath logs/mine
"""

from absl import flags

from actorQ.core import allocator
from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import files
from actorQ.core import lean_imports
from actorQ.wire import loopback


def main(argv: list[str]) -> int:
    """Runs one training; see `cli.run` for errors."""
    del argv
    config = config_flags.from_flags(resumable=True)
    if config.listen == "local":
        loopback.enter()
    cli.quiet_tensorflow()
    cli.use_onednn()
    allocator.keep_large_blocks()
    lean_imports.import_reverb()
    # This import is late: flags are checked, and --help answers, without seconds of imports.
    from actorQ.learner import process as learner_process

    with files.run_folder(config.logpath):
        return learner_process.LearnerProcess(config).run()


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
