"""Measures many widths of one agent, or of every agent found, over all cores.

    python -m baseline.sweep ALGO ENV [ALGO ENV ...] [--bits 32,30,...,2,fp16,bf16]
    python -m baseline.sweep --all

Rows that `--out`'s ptq.csv holds already are not measured again: an interrupted sweep goes on where
it stopped. `benchmark.sh` and `all.sh` call this.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

from absl import flags
from absl import logging

from actorQ import cli
from actorQ import errors
from actorQ import provenance
from baseline import measuring_flags

_PATIENCE_S = 5.0
DEFAULT_BITS = ",".join([*(str(width) for width in range(32, 0, -2)), "fp16", "bf16"])


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define()
    flags.DEFINE_string("bits", DEFAULT_BITS, "Widths: 2 to 32, fp16, bf16; comma separated.")
    flags.DEFINE_boolean("all", False, "Every agent found in --folder instead of named ones.")
    flags.DEFINE_integer(
        "jobs", 0, "Processes at once, >= 0; 0: as many as this process may use cores.",
        lower_bound=0,
    )


def main(argv: list[str]) -> int:
    """Runs the sweep; see `cli.run` for errors."""
    values = flags.FLAGS
    pairs = _named_pairs(argv[1:])
    cli.quiet_tensorflow()
    widths = values.bits.split(",")
    # Before agents are looked for: the flags may make no sense.
    measuring_flags.requests([("", "")], widths)
    with _stopped_by_signals():
        failed = _sweep(pairs, widths)
    for (algo, env), reason in failed.items():
        errors.report("sweep", f"{algo} {env}: {reason}")
    return cli.EXIT_ERROR if failed else 0


def _sweep(
    pairs: Sequence[tuple[str, str]], widths: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Measures what is missing; returns the reason for each agent that failed."""
    from baseline import agents
    from baseline import measuring

    values = flags.FLAGS
    pairs = pairs or agents.found(values.folder)
    if not pairs:
        raise errors.UserError(
            f"There are no agents in {values.folder}: --folder names one with ALGO/ENV_1/ENV.zip "
            "in it."
        )
    try:
        os.makedirs(values.out, exist_ok=True)
    except OSError as error:
        raise errors.UserError(f"Cannot write {values.out}: {error.strerror}.") from None
    requests = measuring_flags.requests(pairs, widths)
    csv_path = requests[0].csv_path
    # Each agent's full-precision rows first: every other row is compared with them. That also
    # finds out early which agents cannot be measured at all.
    baselines = list(dict.fromkeys(request.full_precision for request in requests))
    failed = _check(baselines)
    with _workers(values.jobs or provenance.usable_cores()) as workers:
        for stage in (baselines, [request for request in requests if request not in baselines]):
            existing = measuring.measured_rows(csv_path)
            possible = [request for request in stage if (request.algo, request.env) not in failed]
            todo = [request for request in possible if request.key not in existing]
            if len(todo) < len(possible):
                print(f"{len(possible) - len(todo)} of {len(possible)} rows are there already.")
            failed.update(_run(todo, workers))
    print(f"Rows: {csv_path}")
    for algo, env in dict.fromkeys((request.algo, request.env) for request in requests):
        if (algo, env) not in failed:
            print(f"Plot: python -m baseline.collate {algo} {env} --results {csv_path}")
    return failed


def _check(requests: Iterable[Any]) -> dict[tuple[str, str], str]:
    """Fetches agents where asked to, and sees that rows which are there already are theirs."""
    from baseline import hub
    from baseline import measuring

    failed = {}
    for request in requests:
        try:
            if flags.FLAGS.hub:
                hub.fetch(request.algo, request.env, request.folder)
            path = measuring.agent_path(request.algo, request.env, request.folder)
            measuring.check_same_agent(request, path)
        except errors.UserError as error:
            failed[request.algo, request.env] = str(error)
    return failed


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end the sweep as Ctrl-C does: no worker stays behind."""

    def interrupt(signum: int, frame: Any) -> None:
        del signum, frame
        raise KeyboardInterrupt

    before = {}
    for signum in (signal.SIGTERM, signal.SIGHUP):
        # What is ignored stays ignored: nohup does that with SIGHUP.
        if signal.getsignal(signum) != signal.SIG_IGN:
            before[signum] = signal.signal(signum, interrupt)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _named_pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    if flags.FLAGS.all == bool(arguments):
        raise errors.UserError(
            "takes ALGO ENV (one or more pairs, for example ppo CartPole-v1), or --all."
        )
    if len(arguments) % 2:
        raise errors.UserError(f"takes pairs ALGO ENV: {arguments[-1]!r} has no environment.")
    return list(zip(arguments[::2], arguments[1::2], strict=True))


@contextlib.contextmanager
def _workers(jobs: int) -> Iterator[futures.Executor]:
    """Gives the processes that measure; they start when there is something to do."""
    # Spawned, since a fork would copy torch's and PyBullet's threads half-way.
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(jobs, context, initializer=_start_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        _end(pool)
        if isinstance(error, KeyboardInterrupt):
            print("Interrupted: the same command goes on from here.", file=sys.stderr)
        if isinstance(error, futures.process.BrokenProcessPool):
            raise errors.UserError(
                "A worker process died (out of memory?): the same command goes on from here; "
                "--jobs sets how many work at once."
            ) from None
        raise


def _run(requests: Sequence[Any], workers: futures.Executor) -> dict[tuple[str, str], str]:
    """Measures every request; returns the reason for each pair that failed."""
    import tqdm

    failed: dict[tuple[str, str], str] = {}
    if not requests:
        return failed
    # In log files the lines of the rows say how far it is.
    progress = tqdm.tqdm(
        total=len(requests), unit="row", dynamic_ncols=True, disable=not sys.stderr.isatty()
    )
    with progress:
        for number, (request, outcome) in enumerate(_outcomes(workers, _measure, requests), 1):
            if isinstance(outcome, Exception):
                failed[request.algo, request.env] = str(outcome)
                outcome = f"{request.algo} {request.env} {request.scheme.bits:>4}: failed"
            progress.write(f"[{number}/{len(requests)}] {outcome}")
            progress.update()
            sys.stdout.flush()
    return failed


def _end(pool: futures.ProcessPoolExecutor) -> None:
    """Ends the workers, whatever they are at: rows are written at once, agents whole."""
    workers, manager = list((pool._processes or {}).values()), pool._executor_manager_thread
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(_PATIENCE_S)
        worker.kill()
    if manager is not None:
        manager.join(_PATIENCE_S)
    gc.collect()  # Else Python's tracker of resources warns of semaphores that were left.


def _outcomes(
    pool: futures.Executor, function: Callable[[Any], str], requests: Sequence[Any]
) -> Iterable[tuple[Any, str | Exception]]:
    """Gives each request with its result, or with what it raised, as they come."""
    # The workers start here, and inherit what is ignored: Ctrl-C reaches the whole group, and this
    # process decides what happens then.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        waiting = {pool.submit(function, request): request for request in requests}
    finally:
        signal.signal(signal.SIGINT, handler)
    for done in futures.as_completed(waiting):
        error = done.exception()
        if isinstance(error, futures.process.BrokenProcessPool):
            raise error
        yield waiting[done], error or done.result()


def _start_worker() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cli.quiet_tensorflow()
    from actorQ import lean_imports

    with lean_imports.without("tensorboard"):
        from baseline import agents
    agents.set_threads()


def _end_with_parent() -> None:
    """Ends this worker when the sweep was killed outright."""
    multiprocessing.parent_process().join()
    os._exit(cli.EXIT_ERROR)


def _measure(request: Any) -> str:
    from baseline import measuring

    try:
        return measuring.summary(measuring.measure(request))
    except errors.UserError:
        raise
    except Exception as error:  # A bug of ours: it is not to stop the other agents.
        logging.exception("%s %s failed", request.algo, request.env)
        summary = f"internal error: {type(error).__name__}: {errors.summary(error)}"
        raise errors.UserError(summary) from None


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(measuring_flags)  # For --help.
    cli.run(main, takes_arguments=True, name="sweep")
