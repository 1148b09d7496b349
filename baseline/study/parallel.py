"""Runs many requests over all cores: progress, failures that stop no other, and clean ends.

`sweep` and `qat_sweep` share it. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import process as process_pool
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from typing import Any
from typing import TypeVar

from absl import flags
from absl import logging

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import provenance

PAIRS_WANTED = "takes ALGO ENV (one or more pairs, for example ppo CartPole-v1)"
PATIENCE_S = 5.0  # Time that workers have to end.

RequestT = TypeVar("RequestT")


def define_jobs() -> None:
    """Defines how many processes work at once."""
    flags.DEFINE_integer(
        "jobs", 0, "Processes at once, >= 0; 0: one for each core that this process may use.",
        lower_bound=0,
    )


def pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs ALGO ENV that a command line names.

    Raises:
      errors.UserError: there is none, or a pair is not whole.
    """
    if not arguments:
        raise errors.UserError(f"{PAIRS_WANTED}.")
    if len(arguments) % 2:
        raise errors.UserError(f"takes pairs ALGO ENV: {arguments[-1]!r} has no environment.")
    return list(zip(arguments[::2], arguments[1::2], strict=True))


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end this process as Ctrl-C does, so that no worker stays behind."""

    def interrupt(signum: int, frame: Any) -> None:
        del signum, frame
        # Either may come twice (`cli.on_stop_signals` explains why); only Ctrl-C still counts.
        for other in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {}
    for signum in (signal.SIGTERM, signal.SIGHUP):
        # An ignored signal stays ignored: nohup ignores SIGHUP.
        if signal.getsignal(signum) != signal.SIG_IGN:
            before[signum] = signal.signal(signum, interrupt)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def workers(
    jobs: int, lean: bool = True, patience_s: float = PATIENCE_S
) -> Iterator[futures.Executor]:
    """Gives processes of one thread each, which start with their first request.

    Args:
      jobs: number of processes; 0: one for each core that this process may use.
      lean: whether they load SB3 without its TensorBoard. Trainings need TensorBoard, but not the
        TensorFlow that it would load.
      patience_s: time that workers have to end after SIGTERM, if this process is interrupted.

    Raises:
      errors.UserError: a worker died.
    """
    # A fork would copy torch's and PyBullet's threads half-way.
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = futures.ProcessPoolExecutor(
        jobs or provenance.usable_cores(), context, initializer=_start_worker, initargs=(lean,)
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        end(pool, others, patience_s)
        if isinstance(error, KeyboardInterrupt):
            with contextlib.suppress(OSError):  # The terminal may be gone.
                print("Interrupted: the same command goes on from here.", file=sys.stderr)
        if isinstance(error, process_pool.BrokenProcessPool):
            raise errors.UserError(
                "A worker process died (out of memory?): the same command goes on from here; "
                "--jobs sets how many work at once."
            ) from None
        raise


def run(
    pool: futures.Executor,
    function: Callable[[RequestT], str],
    requests: Sequence[RequestT],
    name: Callable[[RequestT], str],
    unit: str,
) -> list[tuple[RequestT, str]]:
    """Does every request in the pool's workers; returns the failed ones, each with the reason.

    Prints the line that `function` returns for a request, or the `name` of a failed one. `unit` is
    the word for a request in the progress bar.
    """
    import tqdm

    failed: list[tuple[RequestT, str]] = []
    if not requests:
        return failed
    # Log files need no progress bar, since the lines are numbered.
    progress = tqdm.tqdm(
        total=len(requests), unit=unit, dynamic_ncols=True, disable=not sys.stderr.isatty()
    )
    with progress:
        for number, (request, outcome) in enumerate(_outcomes(pool, function, requests), 1):
            if isinstance(outcome, BaseException):
                failed.append((request, str(outcome)))
                outcome = f"{name(request)}: failed"
            with contextlib.suppress(OSError):  # As in `say`, work goes on.
                progress.write(f"[{number}/{len(requests)}] {outcome}")
                sys.stdout.flush()
            progress.update()
    return failed


def say(text: str) -> None:
    """Prints a line; work goes on where nobody reads it, or where a disk is full."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


@contextlib.contextmanager
def bugs_told(name: str) -> Iterator[None]:
    """Turns a bug into an error of one line, which stops no other request.

    The log gets the trace under the request's name.
    """
    try:
        yield
    except errors.UserError:
        raise
    except Exception as error:
        logging.exception("%s failed", name)
        summary = f"internal error: {type(error).__name__}: {errors.summary(error)}"
        raise errors.UserError(summary) from None


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Lets processes that start meanwhile ignore Ctrl-C and the end of a terminal.

    Both signals reach the whole group, and this process decides how the others end.
    """
    before = {  # A child inherits ignored signals.
        signum: signal.signal(signum, signal.SIG_IGN) for signum in (signal.SIGINT, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def end(
    pool: futures.Executor,
    others: Collection[multiprocessing.process.BaseProcess],
    patience_s: float = PATIENCE_S,
) -> None:
    """Ends the workers of a pool at once, which loses nothing: they write rows and agents whole.

    Children that this process had before the pool (`others`) live on. The workers have
    `patience_s` to end after SIGTERM.
    """
    # The shutdown waits until all workers are gone, so that it needs a thread of its own.
    shutdown = threading.Thread(
        target=pool.shutdown, kwargs={"cancel_futures": True}, daemon=True
    )
    shutdown.start()
    workers = [child for child in multiprocessing.active_children() if child not in others]
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(patience_s)
        worker.kill()
    shutdown.join(PATIENCE_S)
    gc.collect()  # Semaphores that stay behind make Python's resource tracker warn.


def _outcomes(
    pool: futures.Executor, function: Callable[[Any], str], requests: Sequence[Any]
) -> Iterable[tuple[Any, str | BaseException]]:
    """Gives each request with its result or its exception, as they come."""
    with starting_workers():
        waiting = {pool.submit(function, request): request for request in requests}
    for done in futures.as_completed(waiting):
        error = done.exception()
        if isinstance(error, process_pool.BrokenProcessPool):
            raise error
        yield waiting[done], error or done.result()


def _start_worker(lean: bool) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cli.quiet_tensorflow()
    from actorQ.core import lean_imports

    with lean_imports.without("tensorboard" if lean else "tensorflow"):
        from baseline.agents import finding
    finding.set_threads()


def _end_with_parent() -> None:
    """Ends this worker once its parent is gone, even if it was killed outright."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(cli.EXIT_ERROR)
