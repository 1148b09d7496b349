"""A campaign of faults against a live run: after each, training must go on by itself.

    python -m tests.faults.campaign --rounds 100 --out DIR
    python -m tests.faults.campaign --rounds 5 --seed 3

A small run gets one fault a round, drawn at random. A process

- is killed (SIGKILL),
- is stopped for a while (SIGSTOP, SIGCONT),
- cannot write files for a while, as with a full disk, or
- is killed while its folder for logs is away, and starts again without it.

Killing the learner kills the Reverb server while actors insert and the broadcaster waits. After
every round these conditions must hold:

- Training went on within 30 s, and no process hangs or was left behind.
- Versions of weights and all counters in the logs only grow, and no log has lost its beginning.
- Items in replay are whole.

The first condition that does not hold ends the campaign with exit code 1 and leaves the run's
folder. The report tells for each kind of fault how long the run was held up.
"""

import argparse
import collections
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import resource
import shutil
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import psutil

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.core import timing
from tests.faults import checks
from tests.faults import live_run

_NAME = "faults"
_TASK = "gym,CartPole-v1"
_ACTORS = 2
_START_S = 120.0
KILL, STOP, DISK, FOLDER = "kill", "stop", "no writing", "no log folder"
KINDS = (KILL, STOP, DISK, FOLDER)
VICTIMS = (telemetry.LEARNER, telemetry.BROADCASTER, "actor", live_run.EVALUATOR)
# The evaluator's process writes no files.
PAIRS = [
    (kind, victim) for victim in VICTIMS for kind in KINDS
    if victim != live_run.EVALUATOR or kind in (KILL, STOP)
]
# The longest stop outlasts a status question, so that peers take a stopped learner for lost.
_STOPS_S = (0.5, 12.0)
_LIMIT_S = 30.0  # Longest recovery after the end of a fault.
_RATE_S = 3.0  # Quiet seconds before a fault, from which the learner's rate is taken.
_SETTLE_S = 2.0  # Longest random wait before a fault, which must not always meet the same moment.
# Networks are small, so that rounds are short. All else is as in any run.
FLAGS = (
    f"--taskstr={_TASK}", f"--n_actors={_ACTORS}", "--model_str=32,32", "--batch_size=32",
    "--min_replay_size=200", "--replay_table_max_replay_size=20000", "--num_episodes=1000000000",
    "--samples_per_insert=4", "--replay_table_max_times_sampled=0", "--eval_period_s=2",
    "--checkpoint_period_s=3", "--log_period_s=0.2", "--push_period_s=0.1",
    "--actor_update_period=50", "--connect_timeout=60", "--learner_device_placement=CPU",
    "--evaluator_process=on",
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """The fault of a round.

    Attributes:
      kind: One of `KINDS`.
      victim: Name of the process.
      seconds: Length of the fault; 0 if it is over at once.
    """

    kind: str
    victim: str
    seconds: float

    @property
    def group(self) -> str:
        """Name under which rounds are reported together."""
        return f"{self.kind} {self.victim.partition('_')[0]}"


def draw(rng: np.random.Generator, round_number: int) -> Fault:
    """Returns the fault of a round: pairs of kind and victim in turn, the rest at random."""
    kind, victim = PAIRS[round_number % len(PAIRS)]
    if victim == "actor":
        victim = telemetry.actor_name(int(rng.integers(1, _ACTORS + 1)))
    seconds = 0.0 if kind == KILL else float(rng.uniform(*_STOPS_S))
    return Fault(kind, victim, seconds)


class Campaign:
    """One run and its faults."""

    def __init__(self, folder: str, seed: int):
        """Starts the run, and waits until it trains.

        Args:
          folder: Folder for its logs.
          seed: Seed of the faults.

        Raises:
          errors.UserError: The run does not train.
        """
        self._rng = np.random.default_rng(seed)
        port = ports.free_port()
        config = config_lib.RunConfig(taskstr=_TASK, port=port)
        self._check_replay = checks.ReplayCheck(config)
        self._rounds = 0
        self._beginnings: dict[str, float] = {}
        self.run = live_run.LiveRun(folder, [*FLAGS, f"--port={port}"])
        try:
            self.run.wait_for("training", lambda: self._steps() > 50, _START_S)
        except BaseException:
            self.run.end()
            raise

    def round(self, fault: Fault | None = None) -> dict[str, Any]:
        """Makes one fault and waits until the run has recovered.

        Args:
          fault: Fault to make; by default it is drawn.

        Returns:
          The fault, and how long it held the run up.

        Raises:
          errors.UserError: The run does not go on as it should.
        """
        fault = fault or draw(self._rng, self._rounds)
        self._rounds += 1
        time.sleep(_RATE_S + self._rng.uniform(0, _SETTLE_S))
        victim = self.run.processes().get(fault.victim)
        if victim is None:
            raise errors.UserError(f"{fault.victim} was not running before the fault.")
        pids = {name: process.pid for name, process in self.run.processes().items()}
        rate, steps = self._rate(), self._steps()
        started = time.monotonic()
        self._do(fault, victim)
        over = time.monotonic()
        marks = self._marks()  # Rows from before the fault would prove nothing.
        for name in marks:
            self.run.wait_for(
                f"{name} going on after '{fault.kind}' of {fault.victim}",
                lambda name=name: self._went_on(name, marks[name]),
                max(0.1, over + _LIMIT_S - time.monotonic()),
            )
        recovered = time.monotonic()
        made = self._steps() - steps
        self._check(fault, pids)
        return {
            **dataclasses.asdict(fault), "group": fault.group, "rate": rate, "steps": made,
            "held_up_s": recovered - started, "recovery_s": recovered - over,
        }

    def end(self) -> None:
        """Ends the run, and checks its logs once more.

        Raises:
          errors.UserError: The run does not end, or a log is not whole.
        """
        self.run.end()
        checks.logs(self.run.folder)

    def _do(self, fault: Fault, victim: psutil.Process) -> None:
        if fault.kind == KILL:
            victim.kill()
            with contextlib.suppress(psutil.TimeoutExpired):
                victim.wait(5)
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            if fault.kind == STOP:
                victim.suspend()
                time.sleep(fault.seconds)
                victim.resume()
            elif fault.kind == FOLDER:
                # With a file in its place, not even root can make or open anything there.
                path = os.path.join(self.run.folder, fault.victim)
                os.rename(path, path + ".away")
                try:
                    with open(path, "w", encoding="utf-8"):
                        time.sleep(fault.seconds / 4)  # A checkpoint may be taken meanwhile.
                        victim.kill()
                        time.sleep(3 * fault.seconds / 4)  # The new start takes seconds.
                finally:
                    os.remove(path)
                    os.rename(path + ".away", path)
            else:
                _, hard = victim.rlimit(resource.RLIMIT_FSIZE)
                victim.rlimit(resource.RLIMIT_FSIZE, (0, hard))
                time.sleep(fault.seconds)
                victim.rlimit(resource.RLIMIT_FSIZE, (hard, hard))

    def _rate(self) -> float:
        """Returns learner steps per second in the last seconds of its log."""
        path = os.path.join(self.run.folder, telemetry.LEARNER, telemetry.TRAIN_CSV)
        log = telemetry.read_csv(path)
        seconds, steps = np.asarray(log["unix_time"]), np.asarray(log["learner_steps"])
        first = int(np.searchsorted(seconds, seconds[-1] - _RATE_S))
        if steps[-1] <= steps[first]:
            raise errors.UserError("The learner made no steps before the fault.")
        return (steps[-1] - steps[first]) / (seconds[-1] - seconds[first])

    def _steps(self) -> float:
        return self.run.newest(telemetry.LEARNER, telemetry.TRAIN_CSV, "learner_steps")

    def _converted(self) -> float:
        return self.run.newest(telemetry.BROADCASTER, telemetry.UPDATES_CSV, "model_version", -1)

    def _evaluated(self) -> float:
        return self.run.newest(telemetry.LEARNER, telemetry.EVALUATION_CSV, "learner_steps")

    def _marks(self) -> dict[str, tuple[float, float]]:
        """Returns the progress of every process: learner steps, version, rows of others."""
        row = self.run.last_row
        marks = {telemetry.LEARNER: (self._steps(), 0.0)}
        version = self._converted()
        marks[telemetry.BROADCASTER] = (version, 0.0)
        marks[live_run.EVALUATOR] = (self._evaluated(), 0.0)
        for actor in range(1, _ACTORS + 1):
            name = telemetry.actor_name(actor)
            newest = row(name, telemetry.PHASES_CSV)
            marks[name] = (newest.get("model_version", -1), newest.get("unix_time", 0.0))
        return marks

    def _went_on(self, name: str, mark: tuple[float, float]) -> bool:
        """Returns whether a process is beyond a mark, by further steps or newer weights."""
        if name == telemetry.LEARNER:
            return self._steps() > mark[0]
        if name == telemetry.BROADCASTER:
            return self._converted() > mark[0]
        if name == live_run.EVALUATOR:
            return self._evaluated() > mark[0]
        row = self.run.last_row(name, telemetry.PHASES_CSV)
        return row.get("model_version", -1) > mark[0] and row.get("unix_time", 0.0) > mark[1]

    def _check(self, fault: Fault, pids: Mapping[str, int]) -> None:
        try:
            now = {name: process.pid for name, process in self.run.processes().items()}
            again = sorted(
                name for name in pids
                if now.get(name, pids[name]) != pids[name]
                and not (fault.kind in (KILL, FOLDER) and name == fault.victim)
                # It ends with its learner.
                and not (
                    name == live_run.EVALUATOR and fault.victim == telemetry.LEARNER
                    and fault.kind in (KILL, FOLDER)
                )
            )
            if again:
                raise errors.UserError(f"{', '.join(again)} died, although nobody killed it.")
            orphans = self.run.orphans()
            if orphans:
                raise errors.UserError(f"Processes were left behind: {orphans}.")
            missing = {*self._marks()} - {*self.run.processes()}
            if missing:
                raise errors.UserError(f"Not running: {', '.join(sorted(missing))}.")
            self._check_replay()
            checks.logs(self.run.folder)
            self._beginnings = checks.beginnings(self.run.folder, self._beginnings)
        except errors.UserError as error:
            raise errors.UserError(f"After '{fault.kind}' of {fault.victim}: {error}") from None


def lost(rounds: Sequence[dict[str, Any]]) -> list[float]:
    """Returns the seconds of learning that each round cost.

    The rate of a few seconds varies with the machine's other work. All rounds are therefore
    compared with the median of the rates before them.

    Args:
      rounds: Rounds as `Campaign.round` returns them.
    """
    rate = statistics.median(one["rate"] for one in rounds)
    return [one["held_up_s"] - one["steps"] / rate for one in rounds]


def summary(rounds: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns a row for each kind of fault: its rounds and their lost seconds."""
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for one, lost_s in zip(rounds, lost(rounds), strict=True):
        groups[one["group"]].append({**one, "lost_s": lost_s})
    rows = []
    for group in sorted(groups):
        row = [group, str(len(groups[group]))]
        for name in ("lost_s", "held_up_s", "recovery_s"):
            values = [one[name] for one in groups[group]]
            row += [f"{statistics.median(values):.1f}", f"{max(values):.1f}"]
        rows.append(row)
    return rows


def main(argv: Sequence[str]) -> None:
    """Runs the campaign and prints the lost seconds.

    Raises:
      errors.UserError: The run did not survive.
    """
    parser = timing.parser(_NAME, "Makes faults in a live run, which must go on.", repeats=None)
    parser.add_argument(
        "--rounds", type=timing.positive, default=100, metavar="N",
        help="Number of faults, one after another (default: %(default)s).",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the faults (default: %(default)s)."
    )
    options = parser.parse_args(argv)
    folder = tempfile.mkdtemp(prefix="actorq_faults_")
    rounds: list[dict[str, Any]] = []
    campaign = Campaign(folder, options.seed)
    failure = ""
    try:
        for number in range(options.rounds):
            rounds.append(campaign.round())
            one = rounds[-1]
            timing.progress(
                f"{number + 1}/{options.rounds}  {one['group']} ({one['seconds']:.1f} s): went on "
                f"after {one['recovery_s']:.1f} s, {lost(rounds)[-1]:.1f} s lost"
            )
    except errors.UserError as error:
        failure = str(error)
    finally:
        try:
            campaign.end()
        except errors.UserError as error:
            failure = failure or str(error)
        if rounds:  # Finished rounds are kept even if the campaign failed.
            _report(rounds, options, failure)
    if failure:
        raise errors.UserError(
            f"{len(rounds)} of {options.rounds} rounds survived. {failure} Logs: {folder}"
        )
    processes_left = [p for p in psutil.process_iter(["cmdline"]) if folder in str(p.info)]
    if processes_left:
        raise errors.UserError(f"Processes were left behind: {processes_left}.")
    shutil.rmtree(folder, ignore_errors=True)


def _report(
    rounds: Sequence[dict[str, Any]], options: argparse.Namespace, failure: str
) -> None:
    timing.report(
        _NAME, f"{len(rounds)} of {options.rounds} faults survived, seed {options.seed}",
        ["fault", "rounds", "lost, median s", "most", "held up, median s", "most",
         "of that after the fault was over, median s", "most"],
        summary(rounds),
        {"seed": options.seed, "rounds": rounds, "failure": failure}, options.out,
        notes=[
            "Lost: seconds that the learner needs for the steps that it is behind when all go on, "
            "with steps undone by a crash. Its rate is the median of those before the faults. "
            "Within the variation of that rate, a fault costs nothing.",
            "Held up: from the fault until all are further than at its end: the learner by a step, "
            "broadcaster and actors by newer weights.",
            *([f"It ended early: {failure}"] if failure else []),
        ],
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
