"""A fixture for tests that write transitions to real tables."""

import pytest
import reverb


@pytest.fixture
def serve():
    """Starts servers with given tables; returns clients."""
    servers = []

    def start(*tables):
        servers.append(reverb.Server(list(tables), port=None))
        return reverb.Client(f"localhost:{servers[-1].port}")

    yield start
    for server in servers:
        server.stop()
