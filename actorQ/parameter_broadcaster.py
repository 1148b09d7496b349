"""The broadcaster's process: turns the learner's weights into the actors' form.

By hand:

    python -m actorQ.parameter_broadcaster --quantize 8 --server_address localhost:8181
"""

from absl import flags

from actorQ.core import allocator
from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import lean_imports


def main(argv: list[str]) -> int:
    """Runs the broadcaster; see `cli.run` for errors."""
    del argv
    config = config_flags.from_flags()
    cli.quiet_tensorflow()
    allocator.keep_large_blocks()
    lean_imports.import_reverb_client()
    # Imported late: flags are checked, and --help answers, without seconds of imports.
    from actorQ.wire import broadcaster

    return broadcaster.Broadcaster(config).run()


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
