"""TCP ports that a learner takes."""

import subprocess
import sys

import pytest

from actorQ.core import errors
from actorQ.core import ports


def test_port_that_another_process_has_claimed_is_refused():
    port = ports.free_port()
    program = (
        "import sys; from actorQ.core import ports; held = ports.claim(int(sys.argv[1]));"
        "print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"held\n"
        ports.require_port(port)  # Nobody listens yet.
        with pytest.raises(errors.UserError, match=f"Port {port} is in use"):
            ports.claim(port)
        ports.claim(ports.free_port()).close()
    finally:
        other.communicate()
    ports.claim(port).close()
