"""Who reaches the learner's server: a real server, asked at two addresses of this machine."""

import os
import socket
import subprocess
import sys

import pytest

from actorQ.core import ports
from actorQ.core import provenance
from actorQ.wire import loopback
from tests.actorQ import harness

OTHER_LOOPBACK = "127.0.0.2"  # Another address of this machine, which needs no network.

SERVER = """
import sys
from actorQ.core import errors
from actorQ.wire import loopback

def fail():
    raise errors.UserError("No C compiler.")

if sys.argv[1] == "broken":
    loopback.build = fail
if sys.argv[1] != "all":
    loopback.enter()
import os, reverb
table = reverb.Table.queue("queue", 1)
server = reverb.Server([table], int(sys.argv[2]))
print(loopback.active(), os.environ.get("LD_PRELOAD"), sys.argv[1:], flush=True)
sys.stdin.read()
"""


def listens(host, port):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        return client.connect_ex((host, port)) == 0


@pytest.fixture
def serve(tmp_path):
    """Starts a server as the learner does; returns its port and its first line."""
    started = []

    def start(listen, **environment):
        script = tmp_path / "server.py"
        script.write_text(SERVER)
        port = ports.free_port()
        started.append(subprocess.Popen(
            [sys.executable, str(script), listen, str(port), "a b"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": provenance.ROOT, **environment},
        ))
        return port, started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.communicate("")


def test_only_loopback_reaches_a_local_server(serve):
    port, line = serve("local")
    # Children of the learner get the user's own surroundings, and arguments are as they were.
    assert line == f"True None ['local', '{port}', 'a b']"
    assert listens("127.0.0.1", port)
    assert not listens(OTHER_LOOPBACK, port)
    for address in _own_addresses():
        assert not listens(address, port)


def test_everybody_reaches_a_server_that_listens_to_all(serve):
    port, line = serve("all")
    assert line.startswith("False None")
    assert listens("127.0.0.1", port) and listens(OTHER_LOOPBACK, port)


def test_a_users_own_library_is_preloaded_as_well(serve):
    _, line = serve("local", LD_PRELOAD=loopback.build())
    assert line.startswith(f"True {loopback.build()}")


def test_without_a_compiler_the_server_starts_and_the_note_says_that_it_is_open(
    serve, monkeypatch
):
    port, line = serve("broken")
    assert line.startswith("False None") and listens(OTHER_LOOPBACK, port)
    assert not loopback.active()  # Neither is this process.
    assert "reach port 7, without a password: closing it needs a C compiler" in loopback.note(
        7, False
    )
    assert "(--listen=all)" in loopback.note(7, True)
    monkeypatch.setattr(loopback, "active", lambda: True)
    assert loopback.note(7, False) == ""


def _own_addresses():
    """Returns addresses of this machine in networks, if it is in one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if probe.connect_ex(("192.0.2.1", 9)):
            return []
        return [probe.getsockname()[0]]


def test_learner_serves_its_own_machine(tmp_path):
    port = ports.free_port()
    crew = harness.Crew(tmp_path)
    try:
        crew.module(
            "learner_main", "--taskstr=gym,Pendulum-v1", "--model_str=8,8",
            "--critic_str=8,8", f"--port={port}", f"--logpath={tmp_path / 'run'}",
        )
        harness.poll(lambda: listens("127.0.0.1", port), 90)
        assert not listens(OTHER_LOOPBACK, port)
    finally:
        crew.end()
