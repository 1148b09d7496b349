"""An actor's process: acts in the environment with quantized weights.

By hand:

    python -m actorQ.actor_main --actor_id 1 --n_actors 4 --quantize 8
"""

import os

from absl import flags

from actorQ.actor import priority
from actorQ.core import allocator
from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import lean_imports


def main(argv: list[str]) -> int:
    """Runs one actor; see `cli.run` for errors."""
    del argv
    config = config_flags.from_flags()
    cli.quiet_tensorflow()
    allocator.keep_large_blocks()
    if config.actors_yield:
        priority.yield_cores()
    if config.actor_device_placement == "CPU":
        # TensorFlow, of inference or of an environment, must not take the learner's GPU.
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if config.inference_mode != "tensorflow":
        lean_imports.import_reverb_client()
    # These imports are late: flags are checked, and --help answers, without seconds of imports.
    from actorQ.policy import inference

    inference.use_one_thread(config.inference_mode)
    from actorQ.actor import process as actor_process

    return actor_process.ActorProcess(config).run()


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
