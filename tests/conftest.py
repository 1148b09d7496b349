"""What all tests run under, and in which order."""

import os
import signal
import sys

import pytest

# Else every process that a test starts would compile our sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files whose tests wait for processes and trainings, and take longest: what the first of two
# workers begins with, and the second.
FIRST = ("test_by_hand.py", "test_resume.py", "test_launcher.py", "test_training.py")
SECOND = ("test_qat_sweep.py", "test_sweep.py", "test_runner.py")


def pytest_configure():
    """Lets processes under test see Ctrl-C, which a shell's background jobs are told to ignore."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # What is not selected is gone by then.
def pytest_collection_modifyitems(items):
    """Moves the longest files to where each of two workers begins.

    `--dist worksteal` gives one the first half of the list and the other the second, and who is
    done takes from the end of the other's: there tests are to be short, or one waits for the other.
    """
    first, second, others = (
        [item for item in items if item.path.name in FIRST],
        [item for item in items if item.path.name in SECOND],
        [item for item in items if item.path.name not in FIRST + SECOND],
    )
    between = max(0, len(items) // 2 - len(first))
    items[:] = [*first, *others[:between], *second, *others[between:]]
