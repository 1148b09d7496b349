"""Measures post-training methods beside each other: every agent, width and granularity.

    python -m baseline.ptq_methods [ALGO ENV ...] [--folder F] [--out OUT] [--quick]

Without pairs it measures every agent in the folder. Each cell is written once it is done: an
interrupted run goes on where it stopped. OUT gets ptq.csv (full precision and minmax), methods.csv
(the other methods), methods.md (means of E by algorithm) and methods.png.
"""

from collections.abc import Sequence
import dataclasses
import os
import sys
from typing import TYPE_CHECKING
from typing import NamedTuple

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import output
from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import measuring_flags
from baseline.study import method_rows
from baseline.study import method_tables
from baseline.study import parallel
from baseline.study import rows as rows_lib

if TYPE_CHECKING:
    from baseline.study import measuring

_NAME = "ptq_methods"
_METHODS = (*recipes.METHODS, "mse,gptq,bias-correction", *recipes.CANDIDATES)
_QUICK_METHODS = ("minmax", "mse", "gptq,bias-correction")


class _Job(NamedTuple):
    """The cells of one agent that are lacking."""

    algo: str
    env: str
    requests: tuple["measuring.Request", ...]


def define_flags() -> None:
    """Defines the flags of this tool."""
    measuring_flags.define_folder()
    flags.DEFINE_string("out", "logs/ptq_methods", "Folder that gets rows, tables and the figure.")
    flags.DEFINE_integer("episodes", 34, "Episodes for each seed, >= 1.", lower_bound=1)
    flags.DEFINE_string("seeds", "0,2,4", "Seeds of the environments, each >= 0.")
    flags.DEFINE_list("bits", ["8", "6", "5", "4", "3", "2"], "Widths, comma separated: 2 to 16.")
    flags.DEFINE_string(
        "methods", " ".join(_METHODS),
        "Values of baseline.ptq's --method, with spaces between; auto comes from their rows.",
    )
    flags.DEFINE_multi_enum(
        "granularity", list(names.GRANULARITIES), list(names.GRANULARITIES),
        "Scales of weights; give the flag once for each.",
    )
    measuring_flags.define_calibration_states()
    flags.DEFINE_boolean(
        "quick", False,
        "Try it in minutes: 2 episodes for each seed, 8 and 4 bits, three methods, 512 states.",
    )
    flags.DEFINE_boolean("tables", False, "Make tables and the figure from the rows that exist.")
    parallel.define_jobs()


def main(argv: list[str]) -> int:
    """Measures and prints; see `cli.run` for errors."""
    values = flags.FLAGS
    pairs = parallel.pairs(argv[1:]) if len(argv) > 1 else []
    cli.quiet_tensorflow()
    failed: dict[tuple[str, str], str] = {}
    if not values.tables:
        with parallel.stopped_by_signals():
            failed = _measure_all(pairs)
    _report()
    for (algo, env), reason in failed.items():
        errors.report(_NAME, f"{algo} {env}: {reason}")
    return cli.EXIT_ERROR if failed else 0


def _measure_all(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Measures what is missing; returns the reason for each agent that failed."""
    schemes = _schemes()  # Settings that make no sense are refused before agents are looked for.
    from baseline.agents import finding
    from baseline.agents import hub
    from baseline.study import measuring
    from baseline.study import row_agents

    values = flags.FLAGS
    pairs = [(names.canonical_algo(algo), env) for algo, env in pairs] or finding.found(
        values.folder
    )
    if not pairs:
        raise errors.UserError(f"There are no agents in {values.folder}: see --folder.")
    output.make_folder(values.out)
    failed, jobs = {}, []
    for algo, env in dict.fromkeys(pairs):
        common = measuring.Request(
            algo, env, schemes[0], values.folder, values.out, measuring.parse_seeds(values.seeds),
            2 if values.quick else values.episodes,
            calibration_states=512 if values.quick else values.calibration_states,
        )
        requests = [dataclasses.replace(common, scheme=scheme) for scheme in schemes]
        try:
            if values.hub:
                hub.fetch(algo, env, values.folder)
            path = row_agents.agent_path(algo, env, values.folder)
            row_agents.check_same_agent(common, path)
        except errors.UserError as error:
            failed[algo, env] = str(error)
            continue
        lacking = tuple(one for one in requests if one.key not in one.rows())
        if lacking:
            jobs.append(_Job(algo, env, lacking))
    with parallel.workers(values.jobs) as workers:
        failed.update(
            ((job.algo, job.env), reason)
            for job, reason in parallel.run(workers, _measure_agent, jobs, _of_job, "agent")
        )
    return failed


def _schemes() -> list:
    """Returns how to quantize: every width, method and granularity, after full precision."""
    from actorQ.core import lean_imports

    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from baseline.quantization import schemes

    values = flags.FLAGS
    widths = ["8", "4"] if values.quick else values.bits
    methods = _QUICK_METHODS if values.quick else values.methods.split()
    made = [schemes.Scheme(names.FP32)]
    for granularity in dict.fromkeys(values.granularity):
        for width in dict.fromkeys(schemes.parse_bits(one) for one in widths):
            for text in methods:
                method = recipes.parse(text)
                if method == recipes.AUTO:
                    raise errors.UserError("--methods names auto, which comes from other rows.")
                recipes.check(method, width, "nearest", granularity, 0)
                made.append(schemes.Scheme(width, granularity=granularity, method=method))
    return list(dict.fromkeys(made))


def _measure_agent(job: _Job) -> str:
    """Measures the cells of one agent, which is loaded anew for each; returns a line."""
    import time

    from baseline.agents import post_training
    from baseline.study import measuring
    from baseline.study import row_agents

    with parallel.bugs_told(f"{job.algo} {job.env}"):
        started = time.perf_counter()
        first = job.requests[0]
        agent = row_agents.load_agent(job.algo, job.env, first.folder)
        states = post_training.collect(
            agent, post_training.Settings(first.calibration_states)
        )
        for request in job.requests:
            agent = row_agents.load_agent(job.algo, job.env, request.folder)
            measuring.measure(request, agent, states, save=False)
        seconds = time.perf_counter() - started
        return f"{job.algo} {job.env}: {len(job.requests)} cells in {seconds:.0f} s"


def _of_job(job: _Job) -> str:
    return f"{job.algo} {job.env}"


def _report() -> None:
    """Writes and prints the tables, and draws the figure."""
    from baseline.study import method_plots

    values = flags.FLAGS
    rows = rows_lib.read(os.path.join(values.out, rows_lib.CSV_NAME), rows_lib.Row)
    path = os.path.join(values.out, method_rows.CSV_NAME)
    of_methods = list(rows_lib.measured_rows(path, method_rows.MethodRow).values())
    found = method_tables.tables(rows, of_methods)
    if not found:
        raise errors.UserError(
            f"{values.out} has no agent with a row of full precision and a quantized one whose E "
            "has an interval: there is no mean to show."
        )
    text = method_tables.markdown(found)
    output.write_text(os.path.join(values.out, "methods.md"), text)
    sys.stdout.write(text)
    print(f"Figure: {method_plots.draw(os.path.join(values.out, 'methods.png'), found)}")


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(measuring_flags)  # --help shows the key flags.
    flags.adopt_module_key_flags(parallel)
    cli.run(main, takes_arguments=True, name=_NAME)
