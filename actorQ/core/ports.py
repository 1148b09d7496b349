"""TCP ports of this machine. Imports no framework."""

import errno
import socket

from actorQ.core import errors


def require_port(port: int) -> None:
    """Checks that a server can listen at a TCP port.

    Raises:
      errors.UserError: The port is in use or may not be used.
    """
    # gRPC would share the port with another server and not say so (SO_REUSEPORT).
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _in_use(port) from None
        raise errors.UserError(f"Port {port} cannot be used: {error.strerror}.") from None


def claim(port: int) -> socket.socket:
    """Keeps other learners off a port, from before a server listens there until this process ends.

    gRPC lets two servers that start in the same moment share a port. The claim is a socket with a
    name of its own, which Linux gives to one process of a network namespace at a time.

    Returns:
      A socket that holds the claim until it is closed.

    Raises:
      errors.UserError: Another process has claimed the port.
    """
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0actorq-learner-port-{port}")
    except OSError:
        held.close()
        raise _in_use(port) from None
    return held


def _in_use(port: int) -> errors.UserError:
    return errors.UserError(
        f"Port {port} is in use: choose another with --port, or end the process that holds it."
    )


def free_port() -> int:
    """Returns a TCP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
