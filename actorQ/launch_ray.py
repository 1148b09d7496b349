"""Runs learner, broadcaster and actors on a Ray cluster, with the flags of `run_multiprocess.sh`.

    python -m actorQ.launch_ray [--address=auto] --n_actors=16 --taskstr=... [--flag=value ...]

Learner, broadcaster and actors are the processes that the launcher starts on one machine, each a
child of a Ray actor (`ray_worker`). Ray places them: the learner on a machine with a GPU where
--learner_device_placement=GPU and there is one, the broadcaster beside it, actors spread with a CPU
each. Weights and transitions go through the learner's Reverb server as ever; Ray carries none. What
all processes write is mirrored into the run's folder here, so that status line, plots and scripts
find one run. When a machine goes away, Ray starts its actors elsewhere. Imports no framework, and
Ray only when it is needed.
"""

import dataclasses
import os
import socket

from absl import flags

from actorQ import launcher
from actorQ.core import cli
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.launch import run_folders
from actorQ.launch.ray import run as ray_run
from actorQ.policy.native import library

_NAME = "launch_ray"
_REACHED_S = 5.0  # Longest time until a cluster's head takes a connection.


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags that only this launcher has."""
    flags.DEFINE_string(
        "address", "",
        "Ray cluster: auto (the one that this machine belongs to), HOST:PORT of its head, or "
        "empty: a cluster of this machine alone, for this run.", flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "learner_cpus", 1,
        "CPUs that the learner asks Ray for, and its threads unless --learner_threads says "
        "otherwise.",
        lower_bound=1, flag_values=flag_values,
    )
    flags.DEFINE_float(
        "placement_timeout", 300.0,
        "Seconds to wait for the cluster to have room for a process.", lower_bound=1.0,
        flag_values=flag_values,
    )


def connect(address: str, cpus: int = 1) -> None:
    """Connects to a Ray cluster, or starts one of this machine alone.

    Args:
      address: of the cluster; empty: this machine alone.
      cpus: that the run wants; this machine alone offers as many, even where it has fewer.

    Raises:
      errors.UserError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
    except ImportError:
        raise errors.UserError(
            "Ray is not installed: run ./setup_ubuntu.sh on every machine."
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _reach(address)
        alone = {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False}
        ray.init(
            address=address or "local", log_to_driver=False, logging_level="error",
            **({} if address else alone),
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        if not address:
            raise errors.UserError(
                f"Ray does not start on this machine: {errors.summary(error)}"
            ) from None
        raise errors.UserError(
            f"No Ray cluster at {address!r}: {errors.summary(error)} Start its head with "
            "'ray start --head' first, or leave --address out for this machine alone."
        ) from None


def _reach(address: str) -> None:
    """Raises OSError or ValueError if nobody listens at HOST:PORT; passes other addresses.

    Ray itself tries for over 30 seconds, and prints lines of its own meanwhile.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        if address not in ("", "local", "auto"):
            raise ValueError("the address is auto or HOST:PORT.")
        return
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{port!r} is no port (1 to 65535).")
    socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()


def main(argv: list[str]) -> int:
    """Launches one run; see `cli.run` for errors."""
    launcher.apply_positionals(argv)
    config = config_flags.from_flags()
    if config.resume:
        raise errors.UserError(
            "--resume is not for runs on a cluster: their replay is on the learner's machine."
        )
    if config.actor_device_placement == "GPU":
        raise errors.UserError(
            "--actor_device_placement=GPU is not for runs on a cluster: Ray gives each actor a CPU "
            "and no GPU. Leave it out, or use ./run_multiprocess.sh on the machine with the GPU."
        )
    if flags.FLAGS["server_address"].present or flags.FLAGS["port"].present:
        raise errors.UserError("--server_address and --port are set by this launcher.")
    if config.inference_mode == "native":
        library.load()
    learner_cpus = flags.FLAGS.learner_cpus
    connect(flags.FLAGS.address, learner_cpus + config.n_actors)
    import ray

    config = dataclasses.replace(run_folders.new(config, flags.FLAGS), port=0)
    try:
        return ray_run.RayRun(config, learner_cpus, flags.FLAGS.placement_timeout).run()
    finally:
        ray.shutdown()  # Of this machine alone, the cluster with it.


if __name__ == "__main__":
    config_flags.define_flags()
    run_folders.define_flags()
    define_flags()
    for module in (config_flags, run_folders):
        flags.adopt_module_key_flags(module)
    cli.run(main, takes_arguments=True, name=_NAME)
