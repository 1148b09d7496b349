"""Starts learner, broadcaster and actors on this machine, watches over them, and ends them.

    ./run_multiprocess.sh --resume[=auto] --logpath=RUN [--flag=value ...]
    ./run_multiprocess.sh [LOGDIR TASK MODEL NUM_EPISODES N_ACTORS BATCH SAMPLES_PER_INSERT
                           QUANTIZE QUANTIZE_COMMUNICATION ACTOR_UPDATE_PERIOD WEIGHT_COMPRESS]
                          [--flag=value ...]

The eleven arguments are the original's, all optional. Flags go to every process. Each run gets a
folder of its own under LOGDIR and a free port. Imports no framework.
"""

import dataclasses

from absl import flags

from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import tracking
from actorQ.experiments.run_logs import plots
from actorQ.launch import command_line
from actorQ.launch import local
from actorQ.launch import run_folders
from actorQ.launch import status_line
from actorQ.policy.native import library


def main(argv: list[str]) -> int:
    """Launches one run; see `cli.run` for errors."""
    command_line.apply_positionals(argv)
    config, changes = run_folders.config_of_flags(flags.FLAGS)
    if config.inference_mode == "native":
        library.load()  # Missing kernels are told now rather than by every actor.
    tracking.require(config)
    if flags.FLAGS["server_address"].present:
        raise errors.UserError(
            "--server_address is set by the launcher. docs/guide/many-machines.md says how a run "
            "uses several machines."
        )
    launch = run_folders.launch_of_flags(config, flags.FLAGS)
    config = dataclasses.replace(
        config, port=launch.port or ports.free_port(), learner_threads=launch.learner_threads,
        listen=launch.listen,
    )
    # This comes before any start: peers would join whatever run has the port.
    ports.require_port(config.port)
    config = run_folders.entered(config, flags.FLAGS)
    run_folders.save_launch(launch, config.logpath)
    status = status_line.StatusLine(config)
    if changes:
        status.say(changes)
    code = local.run(config, launch.pin_cpus, status)
    if code == 0:
        status.report(plots.plot_run)
    return code


if __name__ == "__main__":
    config_flags.define_flags()
    command_line.define_flags()
    for module in (config_flags, command_line, run_folders):
        flags.adopt_module_key_flags(module)
    cli.run(main, takes_arguments=True, name="run_multiprocess.sh")
