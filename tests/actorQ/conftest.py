"""Fixtures for tests of real processes."""

import pytest

from tests.actorQ import harness


@pytest.fixture
def crew(tmp_path):
    """Starts processes; whatever is left of them ends with the test."""
    crew = harness.Crew(tmp_path)
    yield crew
    crew.end()
