"""The evaluator's process: plays episodes with the learner's newest weights.

It plays in full precision, or in that of --learner_fake_quantize. The learner starts it where a
core is free (--evaluator_process). It cannot be started by hand.
"""

import os
import queue
import signal
import sys
import threading

from absl import flags

from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import errors

flags.DEFINE_integer("answers_fd", -1, "Open file to which episodes go; the learner sets it.")
flags.DEFINE_integer("environment_seed", 0, "Seed of the environment; the learner sets it.")


def main(argv: list[str]) -> int:
    """Answers requests until the learner closes its end; see `cli.run` for errors."""
    del argv
    config, own = config_flags.from_flags(), flags.FLAGS
    if own.answers_fd < 0:
        raise errors.UserError("The learner starts this program: see --evaluator_process.")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the learner, and that ends this.
    cli.quiet_tensorflow()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # The GPU is the learner's.
    # These imports are late: flags are checked, and --help answers, without seconds of imports.
    from actorQ.environments import evaluation
    from actorQ.environments import suites
    from actorQ.learner import evaluator_process
    from actorQ.policy import algorithms
    from actorQ.policy import architecture as architecture_lib
    from actorQ.policy import inference

    inference.use_one_thread(config.inference_mode)
    environment = suites.make_for(config, own.environment_seed)
    backend = inference.make_backend(
        architecture_lib.make(environment.spec, config.model_sizes), config.learner_fake_quantize,
        config.inference_mode,
    )
    module = algorithms.policy_module(algorithms.resolve(config, environment.spec))
    player = evaluation.GreedyPlayer(environment, backend, module.greedy)
    requests: queue.Queue = queue.Queue()

    def read() -> None:
        try:
            while (weights := evaluator_process.read_request(sys.stdin.buffer)) is not None:
                requests.put(weights)
        finally:  # The learner is gone, or hears nothing more: no episode is of use.
            os._exit(0)

    threading.Thread(target=read, daemon=True, name="requests").start()
    with os.fdopen(own.answers_fd, "wb") as answers:
        while True:
            inference.load_weights(backend, requests.get(), config.learner_fake_quantize)
            episode = player.play()
            assert episode is not None  # Nothing stops an episode here.
            evaluator_process.write_answer(answers, episode)


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
