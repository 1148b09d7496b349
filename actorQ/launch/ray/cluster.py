"""Connects to a Ray cluster. Imports Ray when it is used, and no framework."""

import logging
import os
import socket

from absl import flags

from actorQ.core import errors
from actorQ.core import provenance
from actorQ.core import settings

_REACHED_S = 5.0  # Longest time until a cluster's head takes a connection.


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags that only the launcher on a cluster has."""
    flags.DEFINE_string(
        "address", "",
        "Ray cluster. auto: the cluster that this machine belongs to; HOST:PORT: the cluster with "
        "this head; empty: a cluster of this machine alone, for this run.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "learner_cpus", 1,
        "CPUs that the learner asks Ray for. It has as many threads unless --learner_threads says "
        "otherwise.",
        lower_bound=1, flag_values=flag_values,
    )
    flags.DEFINE_float(
        "placement_timeout", 300.0,
        "Seconds to wait for the cluster to have room for a process.", lower_bound=1.0,
        flag_values=flag_values,
    )


def connect(address: str, cpus: int = 1) -> None:
    """Connects to a Ray cluster, or starts a cluster of this machine alone.

    Args:
      address: Address of the cluster; empty: this machine alone.
      cpus: CPUs that the run wants. This machine alone offers as many, even where it has fewer.

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
        ray.init(
            address=address or "local", log_to_driver=False, logging_level=logging.ERROR,
            # A cluster that runs already has its CPUs and its dashboard.
            num_cpus=None if address else max(cpus, provenance.usable_cores()),
            include_dashboard=None if address else False,
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
    """Raises OSError or ValueError if nobody listens at HOST:PORT; accepts other addresses.

    Ray itself tries for over 30 seconds, and prints lines of its own meanwhile.
    """
    if address in ("", "local", "auto"):
        return
    head = address.removeprefix("ray://")
    if not settings.is_host_port(head):
        raise ValueError("the address is auto or HOST:PORT.")
    host, _, port = head.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()
