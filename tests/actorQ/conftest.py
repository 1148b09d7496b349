"""Fixtures for tests of real processes, and of a real server in this one."""

import pytest

from tests.actorQ import harness


@pytest.fixture
def crew(tmp_path):
    """Starts processes; whatever is left of them ends with the test."""
    crew = harness.Crew(tmp_path)
    yield crew
    crew.end()


@pytest.fixture
def config():
    """The flags of `connection`."""
    return harness.small_tables()


@pytest.fixture
def connection(config):
    """A connection to a server in this process, with small tables."""
    from actorQ.wire import connection as connection_lib
    from actorQ.wire import server as server_lib  # Late, as in the harness: they import Reverb.

    tables = server_lib.make_tables(config, harness.small_layout(), prioritized=True)
    server = server_lib.start_server(config, tables)
    yield connection_lib.Connection(config, f"localhost:{server.port}")
    server.stop()
