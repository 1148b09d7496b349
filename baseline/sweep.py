"""Measures many widths of one agent, or of every agent found, over all cores.

    python -m baseline.sweep ALGO ENV [ALGO ENV ...] [--bits 32,30,...,2,fp16,bf16]
    python -m baseline.sweep --all

Rows that `--out`'s ptq.csv holds already are not measured again: an interrupted sweep goes on where
it stopped. `benchmark.sh` and `all.sh` call this.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import multiprocessing
import os
import sys
from typing import Any

from absl import flags

from actorQ import cli
from actorQ import errors
from actorQ import provenance
from baseline import measuring_flags
from baseline import results

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
    pairs = _named_pairs(argv[1:])
    cli.quiet_tensorflow()
    requests = measuring_flags.requests(pairs or [("", "")], flags.FLAGS.bits.split(","))
    from baseline import agents
    from baseline import measuring

    if not pairs:
        pairs = agents.found(flags.FLAGS.folder)
        if not pairs:
            raise errors.UserError(
                f"There are no agents in {flags.FLAGS.folder}: --folder names one with ALGO/ENV_1/"
                "ENV.zip in it."
            )
        requests = measuring_flags.requests(pairs, flags.FLAGS.bits.split(","))
    requests = [
        dataclasses.replace(request, algo=results.canonical_algo(request.algo))
        for request in requests
    ]
    if flags.FLAGS.hub:
        for algo, env in pairs:
            agents.fetch(algo, env, flags.FLAGS.folder)
    # Each agent's full-precision rows first: every other row is compared with them. That also
    # finds out early which agents cannot be measured at all.
    baselines = list(dict.fromkeys(request.full_precision for request in requests))
    jobs = flags.FLAGS.jobs or provenance.usable_cores()
    failed: dict[tuple[str, str], str] = {}
    for stage in (baselines, [r for r in requests if r not in baselines]):
        existing = measuring.measured_rows(requests[0].csv_path)
        todo = [
            request for request in stage
            if request.key not in existing and (request.algo, request.env) not in failed
        ]
        if len(todo) < len(stage) and todo:
            print(f"{len(stage) - len(todo)} of {len(stage)} rows are there already.")
        failed.update(_run(todo, jobs))
    for (algo, env), reason in failed.items():
        errors.report("sweep", f"{algo} {env}: {reason}")
    print(f"Rows: {requests[0].csv_path}")
    for algo, env in dict.fromkeys((request.algo, request.env) for request in requests):
        if (algo, env) not in failed:
            print(
                f"Plot: python -m baseline.collate {algo} {env} --results {requests[0].csv_path}"
            )
    return cli.EXIT_ERROR if failed else 0


def _named_pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    if flags.FLAGS.all == bool(arguments):
        raise errors.UserError(
            "takes ALGO ENV (one or more pairs, for example ppo CartPole-v1), or --all."
        )
    if len(arguments) % 2:
        raise errors.UserError(f"takes pairs ALGO ENV: {arguments[-1]!r} has no environment.")
    return list(zip(arguments[::2], arguments[1::2], strict=True))


def _run(requests: Sequence[Any], jobs: int) -> dict[tuple[str, str], str]:
    """Measures every request; returns the reason for each pair that failed."""
    import tqdm

    failed: dict[tuple[str, str], str] = {}
    if not requests:
        return failed
    jobs = min(jobs, len(requests))
    # Spawned, since a fork would copy torch's and PyBullet's threads half-way.
    context = multiprocessing.get_context("spawn")
    # In log files the lines of the rows say how far it is.
    progress = tqdm.tqdm(
        total=len(requests), unit="row", dynamic_ncols=True, disable=not sys.stderr.isatty()
    )
    pool = futures.ProcessPoolExecutor(jobs, context, initializer=_start_worker)
    try:
        with progress:
            for number, (request, outcome) in enumerate(_outcomes(pool, _measure, requests), 1):
                if isinstance(outcome, Exception):
                    failed[request.algo, request.env] = str(outcome)
                    outcome = f"{request.algo} {request.env} {request.scheme.bits:>4}: failed"
                progress.write(f"[{number}/{len(requests)}] {outcome}")
                progress.update()
                sys.stdout.flush()
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list((pool._processes or {}).values()):
            process.terminate()
        print("Interrupted: the same command goes on from here.", file=sys.stderr)
        raise
    except futures.process.BrokenProcessPool:
        raise errors.UserError(
            "A worker process died (out of memory?): the same command goes on from here; --jobs "
            "sets how many work at once."
        ) from None
    pool.shutdown()
    return failed


def _outcomes(
    pool: futures.Executor, function: Callable[[Any], str], requests: Sequence[Any]
) -> Iterable[tuple[Any, str | Exception]]:
    """Gives each request with its result, or with the user's error, as they come."""
    waiting = {pool.submit(function, request): request for request in requests}
    for done in futures.as_completed(waiting):
        error = done.exception()
        if error is not None and not isinstance(error, errors.UserError):
            raise error
        yield waiting[done], error or done.result()


def _start_worker() -> None:
    import signal

    # Ctrl-C reaches the whole group; the parent decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
    cli.quiet_tensorflow()
    from actorQ import lean_imports

    with lean_imports.without("tensorboard"):
        from baseline import agents
    agents.set_threads()


def _measure(request: Any) -> str:
    from baseline import measuring

    return measuring.summary(measuring.measure(request))


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="sweep")
