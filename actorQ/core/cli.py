"""Runs a process's main function: flags in, exit code and one-line errors out.

Used by every `*_main`; imports no framework, so that `--help` and flag errors are instant.
"""

from collections.abc import Callable
import contextlib
import logging as std_logging
import os
import queue
import signal
import sys
import threading
import time
from typing import NoReturn

from absl import app
from absl import flags
from absl import logging

from actorQ.core import errors
from actorQ.core import provenance

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # Shells report this code for a process that Ctrl-C ended.
EXIT_REQUEUE = 75  # EX_TEMPFAIL of sysexits.h: the caller is asked to try again later.
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"  # TensorFlow's own.

_ECHO_S = 5.0  # Time after a first signal in which others may tell of the same event.
_told_to_end_by = 0  # The first signal since `on_stop_signals`; 0: none came.


def run(
    main: Callable[[list[str]], int | None], takes_arguments: bool = False, name: str = ""
) -> None:
    """Parses flags, runs `main` and ends the process with its exit code.

    The process ends through `os._exit` once the streams are flushed: Reverb's and TensorFlow's
    destructors may wait for a peer that is gone, and print harmless errors at interpreter exit.

    Args:
      main: Takes the arguments left by the flags, and returns the exit code (None is 0).
      takes_arguments: Whether `main` takes such arguments.
      name: Name of the program in messages; by default the name of its file.
    """
    name = name or os.path.basename(sys.argv[0]).removesuffix(".py")

    def parse(argv: list[str]) -> list[str]:
        try:
            # The message of absl's own parser takes two lines.
            return flags.FLAGS(underscored(argv))
        except BrokenPipeError:  # `--help | head` has seen enough.
            os._exit(0)
        except SystemExit:
            # absl prints help and exits with 1, but asking for help is no failure.
            _exit(0)
        except flags.Error as error:
            errors.report(name, str(error))
            _exit(EXIT_USAGE)

    def guarded(argv: list[str]) -> None:
        _set_up_logging()
        try:
            if len(argv) > 1 and not takes_arguments:
                raise errors.UserError(
                    f"does not know what to do with {argv[1]!r}: settings are written --flag=value."
                )
            code = main(argv) or 0
        except errors.UserError as error:
            errors.report(name, str(error))
            code = EXIT_ERROR
        except KeyboardInterrupt:
            errors.report(name, "interrupted.")
            code = interrupted_code()
        except Exception as error:  # A bug of ours: we need the trace, the user needs the line.
            logging.exception("%s failed", name)
            summary = f"{type(error).__name__}: {errors.summary(error)}"
            errors.report(name, summary, kind="internal error")
            code = EXIT_ERROR
        _exit(code)

    app.run(guarded, flags_parser=parse)


def _exit(code: int) -> NoReturn:
    """Ends the process: its code tells how, even if a disk is full or nobody reads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # A closed stream is None.
            stream.flush()
    os._exit(code)


def underscored(argv: list[str]) -> list[str]:
    """Spells flags as they are defined.

    `--quant-delay=5` becomes `--quant_delay=5`, and `--no-render` becomes `--norender`. Arguments
    behind `--` are left alone.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    return [_underscored(argument) for argument in argv[:end]] + argv[end:]


def _underscored(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if not name.startswith("--"):
        return argument
    name = name[2:].replace("-", "_")
    positive = name.removeprefix("no_")
    if name in flags.FLAGS:
        return f"--{name}{equals}{value}"
    if positive != name and positive in flags.FLAGS and flags.FLAGS[positive].boolean:
        return f"--no{positive}{equals}{value}"
    return argument  # absl's message then shows the flag as it was typed.


def quiet_tensorflow() -> None:
    """Keeps TensorFlow's start-up notes off the terminal; call it before TensorFlow's import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def use_onednn() -> None:
    """Lets TensorFlow compute with oneDNN; call it before TensorFlow's import.

    By itself TensorFlow does so only where there is AVX-512 with VNNI. With AVX2 alone its own
    products are slower. Those with a transposed operand, which a learner makes many of, take up to
    three times as long.
    """
    os.environ.setdefault(ONEDNN_VARIABLE, "1")


def on_stop_signals(
    callback: Callable[[], None], before_exit: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Calls `callback` on a thread of its own at the first signal to end.

    These are SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which batch systems can send before a time
    limit. `interrupted_code` tells them apart. The main thread goes on meanwhile. A second signal
    ends the process at once, after `before_exit`: SIGINT in any case, others where they are no echo
    of the first. Echoes happen:

    - The kernel tells of a parent's death once for each of its threads.
    - A closing terminal's SIGHUP may also come from the shell.
    - `timeout` signals the process and its group.

    Returns:
      A function that restores the former handlers. `callback` must not call it.
    """
    global _told_to_end_by
    _told_to_end_by = 0
    first: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # `put` suits handlers.
    first_at: float | None = None

    def handle(signum: int, frame: object) -> None:
        del frame
        nonlocal first_at
        global _told_to_end_by
        now = time.monotonic()
        if first_at is None:
            first_at, _told_to_end_by = now, signum
            first.put(callback)
        elif signum == signal.SIGINT or now - first_at > _ECHO_S:
            before_exit()
            os._exit(128 + signum)

    before = {}
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        # An ignored signal stays ignored: nohup ignores SIGHUP.
        if signal.getsignal(signum) != signal.SIG_IGN:
            before[signum] = signal.signal(signum, handle)
    # A handler interrupts the main thread anywhere, even where it holds the lock of an event that
    # `callback` sets: a callback on the main thread would wait for itself.
    thread = threading.Thread(target=lambda: first.get()(), daemon=True, name="stop signals")
    thread.start()

    def undo() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        first.put(lambda: None)
        thread.join()  # A signal that came just before has been told.

    return undo


def interrupted_code() -> int:
    """Returns the exit code of a process that `on_stop_signals` has told to end."""
    return EXIT_REQUEUE if _told_to_end_by == signal.SIGUSR1 else EXIT_INTERRUPTED


def _set_up_logging() -> None:
    """Shows our own notes, warnings of libraries, and errors of TensorFlow."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    ours = tuple(os.path.join(provenance.ROOT, package) for package in ("actorQ", "baseline"))
    handler = logging.get_absl_handler()
    handler.addFilter(
        lambda record: record.levelno > std_logging.INFO or record.pathname.startswith(ours)
    )
    std_logging.getLogger("tensorflow").setLevel(std_logging.ERROR)
