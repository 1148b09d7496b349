"""Measures many widths of one agent, or of every agent found, over all cores.

    python -m baseline.sweep ALGO ENV [ALGO ENV ...] [--bits 32,30,...,2,fp16,bf16]
    python -m baseline.sweep --all

It measures no row twice that the ptq.csv of `--out` holds: an interrupted sweep goes on where it
stopped. `benchmark.sh` and `all.sh` call this.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import shlex
from typing import TYPE_CHECKING

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from baseline.study import measuring_flags
from baseline.study import parallel
from baseline.study import rows as rows_lib

if TYPE_CHECKING:
    from baseline.study import measuring

DEFAULT_BITS = ",".join([*(str(width) for width in range(32, 0, -2)), "fp16", "bf16"])


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define()
    flags.DEFINE_string("bits", DEFAULT_BITS, "Widths, comma separated: 2 to 32, fp16, bf16.")
    flags.DEFINE_boolean("all", False, "Measure every agent in --folder instead of named ones.")
    parallel.define_jobs()


def main(argv: list[str]) -> int:
    """Runs the sweep; see `cli.run` for errors."""
    values = flags.FLAGS
    pairs = _named_pairs(argv[1:])
    cli.quiet_tensorflow()
    widths = values.bits.split(",")
    # Flags that make no sense are refused before agents are looked for.
    measuring_flags.requests([("", "")], widths)
    with parallel.stopped_by_signals():
        failed = _sweep(pairs, widths)
    for (algo, env), reason in failed.items():
        errors.report("sweep", f"{algo} {env}: {reason}")
    return cli.EXIT_ERROR if failed else 0


def _sweep(
    pairs: Sequence[tuple[str, str]], widths: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Measures what is missing; returns the reason for each agent that failed."""
    from baseline.agents import finding
    from baseline.study import measuring

    values = flags.FLAGS
    pairs = pairs or finding.found(values.folder)
    if not pairs:
        raise errors.UserError(
            f"There are no agents in {values.folder}: --folder names a folder with "
            "ALGO/ENV_1/ENV.zip in it."
        )
    output.make_folder(values.out)
    requests = measuring_flags.requests(pairs, widths)
    # Full precision may have a file of its own.
    quantized = next((one for one in requests if one.scheme.calibrates), requests[0])
    csv_path = quantized.csv_path
    measuring.check_same_calibration(requests, quantized.rows().values())
    # Each agent's full-precision rows come first, since every other row is compared with them. That
    # also finds early the agents that cannot be measured at all.
    baselines = list(dict.fromkeys(request.full_precision for request in requests))
    failed = _check(baselines)
    with parallel.workers(values.jobs) as workers:
        others = [request for request in requests if request not in baselines]
        for stage, what in ((baselines, "rows of fp32"), (others, "other rows")):
            existing = stage[0].rows() if stage else {}
            possible = [request for request in stage if (request.algo, request.env) not in failed]
            todo = [request for request in possible if request.key not in existing]
            if len(todo) < len(possible):
                parallel.say(
                    f"{len(possible) - len(todo)} of {len(possible)} {what} are there already."
                )
            failed.update(
                ((request.algo, request.env), reason)
                for request, reason in parallel.run(workers, _measure, todo, _name, "row")
            )
    parallel.say(f"Rows: {csv_path}")
    if quantized.scheme.calibrates:  # Figures of these rows are those of `ptq_methods`.
        return failed
    # The printed commands draw the rows of this sweep.
    quantizer = rows_lib.as_flags(granularity=values.granularity, rounding=values.rounding)
    for algo, env in dict.fromkeys((request.algo, request.env) for request in requests):
        if (algo, env) not in failed:
            parallel.say(
                f"Plot: {output.python()} -m baseline.collate {algo} {env} --results "
                f"{shlex.quote(csv_path)}{quantizer}"
            )
    return failed


def _check(requests: "Iterable[measuring.Request]") -> dict[tuple[str, str], str]:
    """Fetches agents if asked to; returns the reason for each whose rows are another agent's."""
    from baseline.agents import hub
    from baseline.study import row_agents

    failed = {}
    for request in requests:
        try:
            if flags.FLAGS.hub:
                hub.fetch(request.algo, request.env, request.folder)
            path = row_agents.agent_path(request.algo, request.env, request.folder)
            row_agents.check_same_agent(request, path)
        except errors.UserError as error:
            failed[request.algo, request.env] = str(error)
    return failed


def _named_pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    if flags.FLAGS.all == bool(arguments):
        raise errors.UserError(f"{parallel.PAIRS_WANTED}, or --all.")
    return parallel.pairs(arguments) if arguments else []


def _measure(request: "measuring.Request") -> str:
    from baseline.study import measuring

    with parallel.bugs_told(_name(request)):
        return measuring.summary(measuring.measure(request))


def _name(request: "measuring.Request") -> str:
    return f"{request.algo} {request.env} {request.scheme.bits:>4}"


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(measuring_flags)  # --help shows the key flags.
    flags.adopt_module_key_flags(parallel)
    cli.run(main, takes_arguments=True, name="sweep")
