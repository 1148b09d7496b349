"""Hosts with slow links between them, on one Linux machine: network namespaces on a bridge.

Every host is a namespace with one link, whose bandwidth is limited in both directions (tbf). They
need root and iproute2, and are removed again, also after a failure.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import shutil
import subprocess
import tempfile

from actorQ.core import errors
from actorQ.core import files

_SUBNET = "10.77.{run}.{host}"
_LONGEST_QUEUE = "50ms"  # A link drops packets that would wait longer, as a switch does.


class Hosts:
    """Namespaces, numbered from 0.

    Attributes:
      count: Number of hosts.
    """

    def __init__(self, count: int, number: int):
        """Names them; `make` makes them.

        Args:
          count: Number of hosts.
          number: Number of this set of hosts, 0 to 255: several sets may exist at a time.
        """
        self.count = count
        self._number = number
        self._bridge = f"actorq{number}"

    def name(self, host: int) -> str:
        """Returns the namespace of a host."""
        return f"actorq{self._number}h{host}"

    def address(self, host: int) -> str:
        """Returns the address of a host."""
        return _SUBNET.format(run=self._number, host=host + 1)

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """Returns the command line that runs a command on a host."""
        return ["ip", "netns", "exec", self.name(host), *command]

    def make(self) -> None:
        """Makes the hosts, with links that are as fast as the machine.

        Raises:
          errors.UserError: This machine or user cannot make them.
        """
        require()
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("link", "set", self._bridge, "up")
        for host in range(self.count):
            name, link = self.name(host), self._link(host)
            _ip("netns", "add", name)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", link, "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def limit(self, mbit_s: float | None) -> None:
        """Limits the bandwidth of every host's link, each way.

        Args:
          mbit_s: Bandwidth, Mbit/s; None: no limit.
        """
        for host in range(self.count):
            inside = ("-n", self.name(host))
            for where, device in (((), self._link(host)), (inside, "eth0")):
                _tc(*where, "qdisc", "del", "dev", device, "root", check=False)
                if mbit_s is not None:
                    # The bucket holds 10 ms of traffic, and at least one large segment.
                    burst = max(int(mbit_s * 1e6 / 8 / 100), 65536)
                    _tc(
                        *where, "qdisc", "add", "dev", device, "root", "tbf",
                        "rate", f"{mbit_s:g}mbit", "burst", f"{burst}b", "latency", _LONGEST_QUEUE,
                    )

    def remove(self) -> None:
        """Removes everything that is there."""
        for host in range(self.count):
            _ip("netns", "del", self.name(host), check=False)
            _ip("link", "del", self._link(host), check=False)
        _ip("link", "del", self._bridge, check=False)

    def _link(self, host: int) -> str:
        return f"aq{self._number}h{host}"


@contextlib.contextmanager
def hosts(count: int, number: int = 0) -> Iterator[Hosts]:
    """Makes hosts for a block.

    Raises:
      errors.UserError: This machine or user cannot make them.
    """
    made = Hosts(count, number)
    require()
    lock = os.path.join(tempfile.gettempdir(), f"actorq_hosts_{number}")
    os.makedirs(lock, exist_ok=True)
    with files.locked(
        lock, "Another study has its hosts on this machine: wait until it ends."
    ):
        made.remove()  # A killed run may have left hosts.
        try:
            made.make()
            yield made
        finally:
            made.remove()


def require() -> None:
    """Checks that hosts can be made.

    Raises:
      errors.UserError: They cannot be made.
    """
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise errors.UserError(f"{missing[0]} is missing: install iproute2 (Linux only).")
    if os.geteuid() != 0:
        raise errors.UserError("Network namespaces need root: run this with sudo.")


def _ip(*arguments: str, check: bool = True) -> None:
    _run("ip", *arguments, check=check)


def _tc(*arguments: str, check: bool = True) -> None:
    _run("tc", *arguments, check=check)


def _run(*command: str, check: bool) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise errors.UserError(f"'{' '.join(command)}' failed: {done.stderr.strip()}")
