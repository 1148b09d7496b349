"""Makes the runs of an experiment: starts them, watches over them, keeps their results.

Layout, below the folder of the experiment:

    runs/NAME/result.json      the result; a run that has one is not made again
    runs/NAME/failure.txt      the reason why the last attempt left no result
    runs/NAME/output.txt       the output of the run
    runs/NAME/run/             its logs and checkpoints (kind training)
    report/                    tables and figures, see `reports`

Imports no framework.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import os
import resource
import shlex
import shutil
import sys
import threading
import time

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import output
from actorQ.core import provenance
from actorQ.experiments import kinds
from actorQ.experiments import plans
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.launch import processes

OUTPUT_FILENAME = "output.txt"
_POLL_S = 0.2
_STATUS_PERIOD_S = 1.0
_STATUS_PERIOD_FILE_S = 60.0  # If the output is not a terminal.
_END_S = 90.0  # Time limit for a run to end its processes.
_LATE_S = 600.0  # A run is ended so long after its limit: time to start, evaluate and save.


@dataclasses.dataclass
class _Active:
    run: specification.Run
    folder: str
    child: processes.Child
    slot: int
    share: set[int] | None  # Cores of its own; None: all.
    launched: float  # Seconds since 1970.
    began: float  # The same moment on time.monotonic's clock.
    commit: str  # Commit of the code at the launch.
    cpu_s: float  # CPU seconds of children that had ended by the launch.


class Runner:
    """Makes the runs of a plan that have no result yet."""

    def __init__(self, plan: plans.Plan, parallel: int = 1):
        """Takes the plan.

        Args:
          plan: Runs to make.
          parallel: Runs at a time, each on its own share of the cores.
        """
        self._plan = plan
        self._parallel = parallel
        self._stop = threading.Event()
        self._active: list[_Active] = []
        self._done: dict[str, results.Result] = {}
        self._failed: set[str] = set()
        self._live = sys.stdout.isatty()
        self._next_status = time.monotonic() + _STATUS_PERIOD_FILE_S * (not self._live)
        self._machine = provenance.machine()

    def go(self) -> int:
        """Makes the runs; returns the exit code. Leaves no process behind.

        Raises:
          errors.UserError: Another runner works in the folder, or it cannot be written.
        """
        plan = self._plan
        output.make_folder(os.path.join(plan.folder, plans.RUNS_FOLDER))
        with files.locked(
            plan.folder,
            f"Another runner works in {plan.folder}: wait for its end, or choose another --out.",
        ):
            self._done = plans.finished(plan)
            undo_signals = cli.on_stop_signals(self._stop.set, self._kill)
            waiting = [run for run in plan.runs if run.name not in self._done]
            self._say(
                f"{plan.experiment}, profile {plan.profile}: {len(plan.runs)} runs, "
                f"{len(self._done)} done; {self._left()}; results in {plan.folder}"
            )
            try:
                while (waiting or self._active) and not self._stop.is_set():
                    while (
                        waiting and len(self._active) < self._parallel
                        and not self._stop.is_set()
                    ):
                        self._start(waiting.pop(0))
                    self._stop.wait(_POLL_S)
                    self._look()
                    self._show()
            finally:
                _end([active.child for active in self._active])
                self._active = []
                undo_signals()
        if self._stop.is_set():
            self._say(
                f"Interrupted: {len(self._done)} of {len(plan.runs)} runs are done. The same "
                "command goes on with the others."
            )
            return cli.interrupted_code()
        return cli.EXIT_ERROR if self._failed else 0

    def _start(self, run: specification.Run) -> None:
        folder = plans.run_folder(self._plan, run)
        old = results.read(folder)
        if old is not None:
            aside = _set_aside(folder)
            self._say(
                f"{run.name}: its result is of another specification "
                f"({'; '.join(plans.changes(run, old))}); it is made again, the old one is in "
                f"{aside}"
            )
        elif os.path.isdir(folder):  # An earlier attempt was interrupted or failed.
            try:
                self._wait_for_learner(run, folder)
                if self._stop.is_set():
                    return
                with files.writing(folder):
                    shutil.rmtree(folder)
            except errors.UserError as error:
                self._failed.add(run.name)
                self._say(f"{run.name}: not started: {error}")
                return
        output.make_folder(folder)
        taken = {active.slot for active in self._active}
        slot = min(set(range(self._parallel)) - taken)
        share = plans.cores_of_slot(slot, self._parallel)
        child = processes.Child(
            run.name, plans.command(run, folder), os.path.join(folder, OUTPUT_FILENAME), share
        )
        commit, cpu_s = provenance.git_commit(), _children_cpu_s()
        launched, began = time.time(), time.monotonic()
        child.start()
        self._active.append(
            _Active(run, folder, child, slot, share, launched, began, commit, cpu_s)
        )
        number = self._plan.runs.index(run) + 1
        self._say(f"[{number}/{len(self._plan.runs)}] {run.name}: started")

    def _look(self) -> None:
        for active in list(self._active):
            code = active.child.poll()
            limit_s = kinds.get(active.run.kind).limit_s(active.run.settings)
            wall_s = time.monotonic() - active.began
            late = limit_s is not None and wall_s > limit_s + _LATE_S
            if code is None and late:
                _end([active.child])
                self._finish(active, wall_s, f"it did not end {_LATE_S:.0f} s after its time limit")
            elif code is not None:
                self._finish(active, wall_s, "" if code == 0 else _why(active.child, code))

    def _finish(self, active: _Active, wall_s: float, failure: str) -> None:
        self._active.remove(active)
        run = active.run
        measured = None
        failure = failure or _disturbance(active.child.log_path)
        completed = not failure
        if failure:
            try:
                self._wait_for_learner(run, active.folder)
            except errors.UserError as error:
                self._say(f"{run.name}: {error}")
        try:
            measured = kinds.get(run.kind).measure(
                run.settings, active.folder, active.launched, failure
            )
        except (errors.UserError, OSError) as error:
            failure = failure or str(error)
        if measured is None:
            self._fail(active, wall_s, failure, keep=completed)
            return
        plan = self._plan
        alone = self._parallel == 1
        result = results.Result(
            experiment=plan.experiment,
            profile=plan.profile,
            smoke=plan.smoke,
            **vars(run),
            command=shlex.join(plans.command(run, active.folder)),
            git_commit=active.commit,
            machine=self._machine | plans.cores_of_run(active.share, self._parallel),
            date=time.strftime(provenance.DATE_FORMAT, time.localtime(active.launched)),
            parallel=self._parallel,
            wall_s=round(wall_s, 3),
            cpu_s=round(_children_cpu_s() - active.cpu_s, 3) if alone else None,
            measured=measured,
        )
        kinds.get(run.kind).tidy(active.folder)
        try:
            results.write(result, active.folder)
        except errors.UserError as error:
            self._fail(active, wall_s, str(error), keep=completed)
            return
        self._done[run.name] = result
        self._say(f"{run.name}: {describe(result)}; left: {self._left()}")

    def _fail(self, active: _Active, wall_s: float, failure: str, keep: bool) -> None:
        """Says why a run has no result; with `keep`, the next attempt does not overwrite it."""
        run, kept = active.run, active.folder
        self._failed.add(run.name)
        with contextlib.suppress(errors.UserError):  # The failure is printed in any case.
            if keep:
                kinds.get(run.kind).tidy(active.folder)  # The disk may be full.
                kept = _set_aside(active.folder)
                output.make_folder(active.folder)
            line = " ".join(failure.split())
            output.write_text(os.path.join(active.folder, plans.FAILURE_FILENAME), f"{line}\n")
        log = os.path.join(kept, OUTPUT_FILENAME)
        took = plans.duration(wall_s)
        self._say(f"{run.name}: failed after {took}: {failure}; the log is {log}")

    def _wait_for_learner(self, run: specification.Run, folder: str) -> None:
        training.wait_for_learner(
            folder, self._stop,
            lambda: self._say(f"{run.name}: waits for its learner, which its launcher left behind"),
        )

    def _show(self) -> None:
        if time.monotonic() < self._next_status or not self._active:
            return
        self._next_status = time.monotonic() + (
            _STATUS_PERIOD_S if self._live else _STATUS_PERIOD_FILE_S
        )
        parts = [
            f"{active.run.name}  "
            + kinds.get(active.run.kind).status(
                active.run.settings, active.folder, active.launched
            )
            for active in self._active
        ]
        count = f"{len(self._done)}/{len(self._plan.runs)} done"
        line = f"{count}, left: {self._left()} | {' | '.join(parts)}"
        if self._live:
            with contextlib.suppress(OSError):  # The same reason as in `_say`.
                width = os.get_terminal_size().columns
                sys.stdout.write(f"\r\x1b[K{line[: width - 1]}")
                sys.stdout.flush()
        else:
            self._say(line)

    def _left(self) -> str:
        # Failed runs are not made again before the next call.
        runs = [run for run in self._plan.runs if run.name not in self._failed]
        spent_s = {active.run.name: time.monotonic() - active.began for active in self._active}
        return plans.time_left(runs, self._done, self._parallel, spent_s)

    def _say(self, text: str) -> None:
        start = "\r\x1b[K" if self._live else ""
        with contextlib.suppress(OSError):  # A full disk or a closed pipe must not end the runs.
            print(f"{start}{text}", flush=True)

    def _kill(self) -> None:
        for active in self._active:
            active.child.kill()


def describe(result: results.Result) -> str:
    """Returns the outcome of a run in a few words."""
    measured = result.measured
    if measured.outcome == results.REACHED:
        what = f"held {measured.target:g} from {measured.time_to_target_s:.1f} s on"
    elif measured.target is not None:
        what = f"did not hold {measured.target:g} in {measured.censored_at_s:.1f} s"
        what += " (diverged)" * (measured.outcome == results.DIVERGED)
    else:
        what = measured.outcome
    reward = measured.final_reward
    final = "" if reward is None else f", final reward {reward:.1f}"
    return f"{what}{final}, {plans.duration(result.wall_s)} in all"


def _end(children: Sequence[processes.Child]) -> None:
    """Ends runs that still go on: asks first, and kills them if they are too slow."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _END_S
    for child in children:
        child.wait(max(0.1, deadline - time.monotonic()))
        child.kill()


def _why(child: processes.Child, code: int) -> str:
    return child.error_line() or f"{processes.describe_exit(code)}{child.last_words()}"


def _disturbance(log_path: str) -> str:
    """Returns a line if a process was started again: the time that this took is not measured."""
    with contextlib.suppress(OSError), open(log_path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if processes.STARTED_AGAIN in line:
                return f"a process of it did not last: {line.strip()}"
    return ""


def _set_aside(folder: str) -> str:
    """Renames the folder of a run that is to be made again; returns its new name."""
    for number in range(1, 1000):
        aside = f"{folder}.old{number}"
        if not os.path.exists(aside):
            with files.writing(folder):
                os.rename(folder, aside)
            return aside
    raise errors.UserError(f"There are too many old runs beside {folder}: delete some.")


def _children_cpu_s() -> float:
    """Returns the CPU seconds of all descendants of this process that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
