"""The kind of run that is a training: `actorQ.launcher` with a folder of its own.

How time is counted. A run's clock starts when the runner launches it: start-up of all processes,
filling of replay and evaluation are in it. Evaluation happens in the learner's process, on the
thread that learns, with the full-precision policy whatever the actors' precision; while it plays,
the actors go on. With --eval_period_steps (as in the experiments here) there is one episode every
so many learner steps: runs that have learned equally long have been evaluated equally often, at
every precision, and `evaluation_to_target_s` says what it took. It delays a learner that is the
slow part by all of that, and one that waits for actors by less, since they collect data meanwhile:
what is left of its effect is against the faster actors. Evaluations of the last policy come after
the end of training and count for no time.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
import shutil
import sys
import threading
import time
from typing import Any

import numpy as np

from actorQ import config as config_lib
from actorQ import config_flags
from actorQ import energy
from actorQ import errors
from actorQ import evaluation
from actorQ import files
from actorQ import status_line
from actorQ import telemetry
from actorQ.experiments import results
from actorQ.scripts import breakdown_table
from actorQ.scripts import curves
from actorQ.scripts import staleness

LOGS_FOLDER = "run"  # The launcher's folder, in the folder of the run.
SMOKE_STEPS = 100
_LEFT_BEHIND_S = 180.0  # How long a learner whose launcher was killed may take to save and end.
_POLL_S = 0.2
_SMOKE = {  # What a run to see that it starts does less of.
    "num_episodes": SMOKE_STEPS,
    "eval_period_steps": SMOKE_STEPS // 2,
    "final_eval_episodes": 1,
    "stop_return": None,
    "max_seconds": 600.0,
}
_SMOKE_MIN_REPLAY = 1000  # Most transitions before learning starts.
_SMOKE_MIN_RATIO = 1.0  # Least samples per insert, where they are limited.
_PIN_CPUS = "pin_cpus"  # The launcher's own flag that matters for results.
# An axis of the experiment (`Run`) ...
AXES = ("taskstr", "quantize", "seed")
# ... or set by the launcher.
_PRIVATE = (
    "actor_id", "port", "server_address", "logpath", "restarts", "run_start_time", "launch_id",
    "resume",
)
_LEAST_LEARNING_S = 5.0  # Of a run that is measured.
_DIGITS = 3  # Of seconds in results: milliseconds.

_FIELDS = {
    field.name: field
    for field in dataclasses.fields(config_lib.RunConfig)
    if field.name not in _PRIVATE
}


class Training:
    """Runs whose settings are the training flags, and --pin_cpus."""

    def defaults(self) -> dict[str, Any]:
        """Returns every setting's default."""
        return {name: field.default for name, field in _FIELDS.items()} | {_PIN_CPUS: 0}

    def settle(
        self, given: Mapping[str, Any], task: str, precision: int, seed: int, smoke: bool
    ) -> dict[str, Any]:
        """Returns all flags of a run.

        Raises:
          errors.UserError: a flag is unknown or not to be set here, or its value not possible.
        """
        for name, value in given.items():
            _check(name, value)
        settings = {**self.defaults(), **given}
        settings |= {"taskstr": task, "quantize": precision, "seed": seed}
        if smoke:
            settings |= _SMOKE
            settings["min_replay_size"] = min(settings["min_replay_size"], _SMOKE_MIN_REPLAY)
            if ratio := settings["samples_per_insert"]:
                settings["samples_per_insert"] = max(ratio, _SMOKE_MIN_RATIO)
        config = _config(settings)
        # As the configuration holds them: 1 and 1.0 are one setting.
        return {name: getattr(config, name, settings[name]) for name in settings}

    def command(self, settings: Mapping[str, Any], folder: str) -> list[str]:
        """Returns the launcher's command line."""
        command = [
            sys.executable, "-m", "actorQ.launcher", f"--logdir={folder}",
            f"--run_name={LOGS_FOLDER}", *config_flags.to_flags(_config(settings)),
        ]
        return [*command, f"--{_PIN_CPUS}=1"] if settings[_PIN_CPUS] else command

    def cores(self, settings: Mapping[str, Any]) -> int:
        """Returns one core for the learner and one for each actor."""
        return 1 + settings["n_actors"]

    def limit_s(self, settings: Mapping[str, Any]) -> float | None:
        """Returns after how many seconds training ends in any case, or None."""
        return settings["max_seconds"] or None

    def status(self, settings: Mapping[str, Any], folder: str, launched: float) -> str:
        """Returns the launcher's own status line."""
        config = dataclasses.replace(
            _config(settings), logpath=os.path.join(folder, LOGS_FOLDER), run_start_time=launched
        )
        return status_line.StatusLine(config).compose()

    def measure(
        self, settings: Mapping[str, Any], folder: str, launched: float, failure: str
    ) -> results.Measured | None:
        """Reads the logs; of failures, only a diverged training is an outcome.

        Raises:
          errors.UserError: a log is missing or damaged.
        """
        diverged = errors.DIVERGED in failure
        if failure and not diverged:
            return None
        logs = os.path.join(folder, LOGS_FOLDER)
        run = curves.load_run(logs)
        config = run.config
        # Logs count from the moment at which the launcher was ready.
        delay_s = config.run_start_time - launched
        # Of a run that its time ended before the first there is none.
        evaluations = _evaluations(run, delay_s, diverged or not config.final_eval_episodes)
        train = curves.read_log(logs, telemetry.LEARNER, telemetry.TRAIN_CSV)
        if not diverged:
            _require_whole(evaluations, _last(train["learner_steps"]), config)
        finals = 0 if diverged else config.final_eval_episodes
        count = max(0, len(evaluations.returns) - finals)
        rewards = _part(evaluations, 0, count)
        since = None
        if config.stop_return is not None:
            since = evaluation.held_since(
                rewards.returns, config.stop_return, config.stop_window, config.stop_smoothing
            )
        outcome = results.TRAINED
        if config.stop_return is not None:
            outcome = results.REACHED if since is not None else results.MISSED
        reached = None if since is None else rewards.seconds[since]
        missed = config.stop_return is not None and since is None
        least_s = _least_s(rewards, config) if missed and rewards.seconds else (
            _last(train["seconds"]) + delay_s
        )
        end = least_s if missed else reached
        rates = _rates(train, config)
        if config.stop_return is None and not diverged:
            _require_learning(train, config)
        path = _parameter_path(run)
        actor = _actor_time(run, train)
        return results.Measured(
            outcome=results.DIVERGED if diverged and since is None else outcome,
            target=config.stop_return,
            time_to_target_s=reached,
            evaluation_to_target_s=None if since is None else rewards.evaluation_s[since],
            censored_at_s=round(least_s, _DIGITS) if missed else None,
            final_returns=list(evaluations.returns[count:]),
            rewards=rewards,
            evaluation_s=evaluations.evaluation_s[-1] if evaluations.evaluation_s else 0.0,
            learner_steps=_last(train["learner_steps"]),
            actor_steps=_last(train["actor_steps"]),
            learner_steps_per_s=rates[0],
            actor_steps_per_s=rates[1],
            data_used=rates[2],
            staleness_steps=path[0],
            message_bytes=path[1],
            fp32_bytes=path[2],
            energy=_energy(logs, None if end is None else launched + end),
            window=config.stop_smoothing,
            phases_us=actor[0],
            step_us=actor[1],
            steps_per_load=actor[2],
            learner_device=run.surroundings.get("learner_device"),
        )

    def tidy(self, folder: str) -> None:
        """Removes what resumes a run, hundreds of MB at 3x2048; the policies stay."""
        state = os.path.join(
            folder, LOGS_FOLDER, telemetry.CHECKPOINT_FOLDER, telemetry.RESUME_FOLDER
        )
        shutil.rmtree(state, ignore_errors=True)


def _least_s(rewards: results.Rewards, config: config_lib.RunConfig) -> float:
    """Returns for how long at least the target return was not held; there are evaluations.

    As a run that holds it does so from the beginning of a row of evaluations on, one that was ended
    within a row missed it up to that row.
    """
    row = evaluation.last_streak(rewards.returns, config.stop_return, config.stop_smoothing)
    return rewards.seconds[-max(1, row)]


def wait_for_learner(folder: str, stop: threading.Event, waits: Callable[[], None]) -> None:
    """Waits for a learner that its launcher left behind: it saves and announces its end.

    Until then it has the folder's files, and the machine's cores.

    Args:
      folder: of the run.
      stop: ends the wait.
      waits: called once if there is one.

    Raises:
      errors.UserError: it does not end.
    """
    path = os.path.join(folder, LOGS_FOLDER)
    deadline = time.monotonic() + _LEFT_BEHIND_S
    said = False
    while os.path.isdir(path) and not stop.is_set():
        try:
            with files.run_folder(path):
                return
        except errors.UserError:
            if time.monotonic() > deadline:
                raise
        if not said:
            waits()
            said = True
        stop.wait(_POLL_S)


def as_run(result: results.Result) -> curves.Run:
    """Returns what the analysis scripts know of a run, for a result of this kind."""
    about = curves.surroundings(
        result.machine, result.measured.learner_device, result.git_commit
    )
    config = _config(result.settings)
    return curves.Run(result.name, config, config.algorithm, about)


def _check(name: str, value: Any) -> None:
    """Checks name and type of a setting; its range is `RunConfig`'s business."""
    if name == _PIN_CPUS:
        if type(value) is not int or value not in (0, 1):
            raise errors.UserError(f"{_PIN_CPUS}: {value!r} is not possible: choose 0 or 1.")
        return
    if name in AXES or name in _PRIVATE:
        raise errors.UserError(f"{name} cannot be a setting: the experiment or its runs decide it.")
    if name not in _FIELDS:
        raise errors.UserError(f"There is no setting {name!r}: settings are the training flags.")
    wanted = _FIELDS[name].type
    types = {int: (int,), str: (str,), float: (int, float)}.get(wanted, (int, float, type(None)))
    if type(value) not in types:
        words = {int: "a whole number", str: "a text"}.get(wanted, "a number")
        raise errors.UserError(f"{name}: {value!r} is not {words}.")


def _config(settings: Mapping[str, Any]) -> config_lib.RunConfig:
    # Results of older versions may have settings that are gone.
    values = {name: settings[name] for name in settings if name in _FIELDS}
    for name, value in values.items():
        if type(value) is int and _FIELDS[name].type is not int:
            values[name] = float(value)
    return config_lib.RunConfig(**values)


def _evaluations(run: curves.Run, delay_s: float, may_lack: bool) -> results.Rewards:
    config = run.config
    if not (config.eval_period_s or config.eval_period_steps or config.final_eval_episodes):
        return results.Rewards((), (), (), (), ())
    try:
        log = curves.read_log(run.folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
    except errors.UserError:
        if may_lack:
            return results.Rewards((), (), (), (), ())
        raise

    def seconds(column: np.ndarray) -> list[float]:
        return [round(float(x), _DIGITS) for x in column]

    return results.Rewards(
        seconds(log["seconds"] + delay_s),
        *([float(x) for x in log[name]] for name in ("learner_steps", "actor_steps")),
        [float(x) for x in log["episode_return"]],  # All of it: a stop rule goes by it.
        seconds(log["evaluation_s"]),
    )


def _require_whole(
    evaluations: results.Rewards, learner_steps: float, config: config_lib.RunConfig
) -> None:
    """Checks that no evaluation of a run that came to its end is missing in its log.

    However it ended, there was one after every --eval_period_steps learner steps, and those of the
    last policy. A process whose disk is full goes on, without the rows that it could not write.

    Args:
      evaluations: all in the log.
      learner_steps: in the last row of the other log, which may be some behind.
      config: of the run.

    Raises:
      errors.UserError: one is missing.
    """
    if not config.eval_period_steps:
        return
    made = max([learner_steps, *evaluations.learner_steps])
    expected = int(made // config.eval_period_steps) + config.final_eval_episodes
    found = len(evaluations.returns)
    if found < expected:
        raise errors.UserError(
            f"its log has {found} of {expected} evaluations: rows were lost (a full disk?)"
        )


def _require_learning(
    train: Mapping[str, np.ndarray], config: config_lib.RunConfig
) -> None:
    """Checks that a run whose time ended it, not its steps, had learned for some of that time.

    Raises:
      errors.UserError: it had hardly begun; its rates and rewards would say nothing.
    """
    steps, seconds = train["learner_steps"], train["seconds"]
    if steps[-1] >= config.num_episodes:  # Those of a smoke run may take no time at all.
        return
    before = np.flatnonzero(steps == 0)
    learned_s = seconds[-1] - (seconds[before[-1]] if len(before) else 0.0)
    if steps[-1] == 0 or learned_s < _LEAST_LEARNING_S:
        raise errors.UserError(
            f"it made {steps[-1]:g} learner steps in the last {learned_s:.0f} s of its "
            f"{config.max_seconds:g} s, too few to measure (a GPU may have compiled its kernels "
            "before, which it keeps: the same command makes the run again)"
        )


def _part(rewards: results.Rewards, start: int, end: int) -> results.Rewards:
    names = [field.name for field in dataclasses.fields(rewards)]
    return results.Rewards(*(list(getattr(rewards, name)[start:end]) for name in names))


def _rates(
    train: Mapping[str, np.ndarray], config: config_lib.RunConfig
) -> tuple[float | None, float | None, float | None]:
    """Returns learner and actor steps/s while it learned, and the part of the data it used."""
    steps = train["learner_steps"]
    rows = staleness.learning_rows(steps)
    if rows is None:
        return None, None, None
    first, last = rows
    elapsed_s = train["seconds"][last] - train["seconds"][first]
    learned = steps[last] - steps[first]
    acted = train["actor_steps"][last] - train["actor_steps"][first]
    if elapsed_s <= 0:
        return None, None, None
    ratio = config.most_samples_per_insert
    used = learned * config.batch_size / (ratio * acted) if ratio and acted else math.nan
    return _number(learned / elapsed_s), _number(acted / elapsed_s), _number(used)


def _actor_time(
    run: curves.Run, train: Mapping[str, np.ndarray]
) -> tuple[dict[str, float] | None, float | None, float | None]:
    """Returns what `Measured` says of an actor's time: phases_us, step_us and steps_per_load."""
    rows = staleness.learning_rows(train["learner_steps"])
    if rows is None:
        return None, None, None
    try:
        stretch = breakdown_table.load(run, "", *(float(train["seconds"][row]) for row in rows))
    except errors.UserError:  # No actor has a row in it.
        return None, None, None
    if not stretch.steady or not stretch.steps > 0:
        return None, None, None
    phases = {
        phase: round(stretch.us_per_step(f"{phase}_s"), _DIGITS) for phase in results.PHASES
    }
    loads = stretch.loads if stretch.loads > 0 else math.nan  # NaN: not logged.
    return phases, _number(1e6 * stretch.elapsed_s / stretch.steps), _number(stretch.steps / loads)


def _parameter_path(run: curves.Run) -> Sequence[float | None]:
    try:
        breakdown = breakdown_table.load(run, "")
    except errors.UserError:  # A short run may have no row yet.
        return None, None, None
    return (
        _number(staleness.mean_lag(run.folder)), _number(breakdown.message_bytes),
        _number(breakdown.fp32_bytes),
    )


def _energy(logs: str, target_moment: float | None) -> results.Energy | None:
    estimates = energy.read(logs)
    if not estimates:
        return None
    until = (None, None) if target_moment is None else energy.total(estimates, target_moment)
    return results.Energy(*energy.total(estimates), *until, energy.gpu_kwh(estimates))


def _last(values: np.ndarray) -> float:
    return float(values[-1])


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None
