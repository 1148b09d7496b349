"""Runs learner, broadcaster and actors on a Ray cluster, with the flags of `run_multiprocess.sh`.

    python -m actorQ.launch_ray [--address=auto] --n_actors=16 --taskstr=... [--flag=value ...]
    python -m actorQ.launch_ray [--address=auto] --resume[=auto] --logpath=RUN [--flag=value ...]

Learner, broadcaster and actors are the processes that the launcher starts on one machine, each a
child of a Ray actor (`launch.ray.worker`). Ray places them: the learner on a machine with a GPU
where --learner_device_placement=GPU and there is one, the broadcaster beside it, actors spread with
a CPU each. Weights and transitions go through the learner's Reverb server as ever; Ray carries
none. Whatever the processes write comes into the run's folder here, so that status line, plots and
scripts find one run. Checkpoints do where the learner's machine shares that folder. When a machine
goes away, Ray starts its actors elsewhere. Imports no framework, and Ray only when it is needed.
"""

import dataclasses

from absl import flags

from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import tracking
from actorQ.experiments.run_logs import plots
from actorQ.launch import command_line
from actorQ.launch import processes
from actorQ.launch import run_folders
from actorQ.launch import status_line
from actorQ.launch.ray import cluster
from actorQ.launch.ray import run as ray_run
from actorQ.policy.native import library


def main(argv: list[str]) -> int:
    """Launches one run; see `cli.run` for errors."""
    command_line.apply_positionals(argv)
    config, changes = run_folders.config_of_flags(flags.FLAGS)
    if config.actor_device_placement == "GPU":
        raise errors.UserError(
            "--actor_device_placement=GPU is not for runs on a cluster: Ray gives each actor a CPU "
            "and no GPU. Leave it out, or use ./run_multiprocess.sh on the machine with the GPU."
        )
    if flags.FLAGS["server_address"].present or flags.FLAGS["port"].present:
        raise errors.UserError("--server_address and --port are set by this launcher.")
    if config.inference_mode == "native":
        library.load()
    tracking.require(config)
    learner_cpus = flags.FLAGS.learner_cpus
    launch = run_folders.launch_of_flags(config, flags.FLAGS)
    cluster.connect(flags.FLAGS.address, learner_cpus + config.n_actors)
    import ray

    # Actors of other machines reach the learner by the address of its machine.
    config = dataclasses.replace(
        run_folders.entered(config, flags.FLAGS), port=0, listen="all",
        learner_threads=launch.learner_threads,
    )
    run_folders.save_launch(launch, config.logpath)
    status = status_line.StatusLine(config)
    hint = "" if flags.FLAGS.address else processes.crowd_hint(config)
    if hint:
        status.say(hint)
    if changes:
        status.say(changes)
    code = cli.EXIT_ERROR
    try:
        code = ray_run.RayRun(config, learner_cpus, flags.FLAGS.placement_timeout, status).run()
    finally:
        ray.shutdown()  # It also ends a cluster of this machine alone.
        if code != 0:
            elsewhere = [f"--address={flags.FLAGS.address}"] if flags.FLAGS.address else []
            status.tell_how_to_go_on("actorQ.launch_ray", *elsewhere)
    if code == 0:
        status.report(plots.plot_run)
    return code


if __name__ == "__main__":
    config_flags.define_flags()
    run_folders.define_flags()
    cluster.define_flags()
    for module in (config_flags, run_folders, cluster):
        flags.adopt_module_key_flags(module)
    cli.run(main, takes_arguments=True, name="launch_ray")
