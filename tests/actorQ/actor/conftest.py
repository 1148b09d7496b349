"""Fixtures: tables with real servers, and an actor on a stage."""

import pytest
import reverb

from tests.actorQ.actor.stage import Stage


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


@pytest.fixture
def stage(tmp_path):
    stages = []

    def make(**settings):
        settings.setdefault("min_replay_size", 1)
        settings.setdefault("replay_table_max_times_sampled", 0)
        stages.append(Stage(tmp_path / str(len(stages)), **settings))
        return stages[-1]

    yield make
    for made in stages:
        made.close()
