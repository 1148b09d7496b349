"""Sets up the process and the order of all tests."""

import os
import signal
import sys

import pytest

# Otherwise every process that a test starts would compile our sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files with the slowest tests, which wait for processes and trainings. The first of two workers
# begins with FIRST, the second with SECOND.
FIRST = ("test_by_hand.py", "test_resume.py", "test_launcher.py", "test_training.py")
SECOND = ("test_qat_sweep.py", "test_sweep.py", "test_runner.py")


def pytest_configure():
    """Lets processes under test see Ctrl-C, which a shell's background jobs are told to ignore."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # By then, tests that are not selected are gone.
def pytest_collection_modifyitems(items):
    """Moves the longest files to where each of two workers begins.

    `--dist worksteal` gives each worker one half of the list. A worker that is done takes tests
    from the end of the other half. Tests there have to be short, or one worker waits.
    """
    first, second, others = (
        [item for item in items if item.path.name in FIRST],
        [item for item in items if item.path.name in SECOND],
        [item for item in items if item.path.name not in FIRST + SECOND],
    )
    between = max(0, len(items) // 2 - len(first))
    items[:] = [*first, *others[:between], *second, *others[between:]]
