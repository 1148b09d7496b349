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
EXIT_INTERRUPTED = 130  # What shells report for a process ended by Ctrl-C.
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"  # TensorFlow's own.

_ECHO_S = 5.0  # So long after a first signal another may tell of the same thing.


def run(
    main: Callable[[list[str]], int | None], takes_arguments: bool = False, name: str = ""
) -> None:
    """Parses flags, runs `main` and ends the process with its exit code.

    The process ends through `os._exit` once the streams are flushed: Reverb's and TensorFlow's
    destructors may wait for a peer that is gone, and print harmless errors at interpreter exit.

    Args:
      main: takes the arguments left by the flags, returns the exit code (None is 0).
      takes_arguments: whether `main` knows what to do with such arguments.
      name: of the program in messages; by default that of its file.
    """
    name = name or os.path.basename(sys.argv[0]).removesuffix(".py")

    def parse(argv: list[str]) -> list[str]:
        try:
            # Not absl's own parser of the same purpose, whose message takes two lines.
            return flags.FLAGS(underscored(argv))
        except BrokenPipeError:  # `--help | head` has seen enough.
            os._exit(0)
        except SystemExit:
            # absl prints help and exits with 1; who asks for help has not failed.
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
            code = EXIT_INTERRUPTED
        except Exception as error:  # A bug of ours: the trace helps us, the line helps the user.
            logging.exception("%s failed", name)
            summary = f"{type(error).__name__}: {errors.summary(error)}"
            errors.report(name, summary, kind="internal error")
            code = EXIT_ERROR
        _exit(code)

    app.run(guarded, flags_parser=parse)


def _exit(code: int) -> NoReturn:
    """Ends the process: its code tells what it did even if a disk is full or nobody reads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None where it is closed.
            stream.flush()
    os._exit(code)


def underscored(argv: list[str]) -> list[str]:
    """Spells flags as they are defined.

    `--quant-delay=5` becomes `--quant_delay=5`, and `--no-render` `--norender`. What follows `--`
    is left alone.
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
    return argument  # absl's message is to show what was typed.


def quiet_tensorflow() -> None:
    """Keeps TensorFlow's start-up notes off the terminal; to be called before it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def use_onednn() -> None:
    """Lets TensorFlow compute with oneDNN; to be called before it is imported.

    It does so by itself only where there is AVX-512 with VNNI. With AVX2 alone its own products
    are slower, those with a transposed operand, of which a learner makes many, up to three times.
    """
    os.environ.setdefault(ONEDNN_VARIABLE, "1")


def on_stop_signals(
    callback: Callable[[], None], before_exit: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Calls `callback` on a thread of its own at the first SIGINT, SIGTERM or SIGHUP.

    The main thread goes on meanwhile. A second one ends the process at once, after `before_exit`:
    Ctrl-C in any case, others where they are no echo of the first. (The kernel tells of a parent's
    death once for each of its threads, a closing terminal's HUP may also come from the shell, and
    `timeout` signals the process and its group.)

    Returns:
      What makes signals do again what they did before; not to be called from `callback`.
    """
    first = queue.SimpleQueue()  # Its `put` is made for signal handlers.
    first_at = None

    def handle(signum: int, frame: object) -> None:
        del frame
        nonlocal first_at
        now = time.monotonic()
        if first_at is None:
            first_at = now
            first.put(callback)
        elif signum == signal.SIGINT or now - first_at > _ECHO_S:
            before_exit()
            os._exit(128 + signum)

    before = {}
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What is ignored stays ignored: nohup does that with SIGHUP.
        if signal.getsignal(signum) != signal.SIG_IGN:
            before[signum] = signal.signal(signum, handle)
    # A handler interrupts the main thread anywhere, also where it holds the lock of an event that
    # `callback` sets: there it would wait for itself.
    thread = threading.Thread(target=lambda: first.get()(), daemon=True, name="stop signals")
    thread.start()

    def undo() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        first.put(lambda: None)
        thread.join()  # What came just before has been told.

    return undo


def _set_up_logging() -> None:
    """Shows our own notes; of libraries only what is a warning (of TensorFlow, an error)."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)
    ours = tuple(os.path.join(provenance.ROOT, package) for package in ("actorQ", "baseline"))
    handler = logging.get_absl_handler()
    handler.addFilter(
        lambda record: record.levelno > std_logging.INFO or record.pathname.startswith(ours)
    )
    std_logging.getLogger("tensorflow").setLevel(std_logging.ERROR)
