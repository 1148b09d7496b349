"""TCP ports of this machine. Imports no framework."""

import errno
import socket

from actorQ import errors


def require_port(port: int) -> None:
    """Checks that a server can listen at a TCP port.

    Raises:
      errors.UserError: the port is in use or may not be used.
    """
    # gRPC would share the port with another server without a word (SO_REUSEPORT).
    with _any_interface_socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise errors.UserError(
                    f"Port {port} is in use: choose another with --port, or end the process that "
                    "holds it."
                ) from None
            raise errors.UserError(f"Port {port} cannot be used: {error.strerror}.") from None


def _any_interface_socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_INET6)
    except OSError:  # A system without IPv6.
        return socket.socket(socket.AF_INET)


def free_port() -> int:
    """Returns a TCP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
