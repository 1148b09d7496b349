"""Fixtures for tests of real processes."""

import signal

import pytest

from tests.actorQ import harness


def pytest_configure():
    """Lets processes under test see Ctrl-C, which a shell's background jobs are told to ignore."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def crew(tmp_path):
    """Starts processes; whatever is left of them ends with the test."""
    crew = harness.Crew(tmp_path)
    yield crew
    crew.end()
