"""What all tests run under."""

import signal


def pytest_configure():
    """Lets processes under test see Ctrl-C, which a shell's background jobs are told to ignore."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
