"""Tells people how a run does: a live line, and a report at the end. Imports no framework."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import shlex
import sys
import time

from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import health
from actorQ.core import precisions
from actorQ.core import resuming
from actorQ.core import snapshots
from actorQ.core import telemetry

_PERIOD_S = 1.0
_PERIOD_FILE_S = 10.0  # Period where the output is not a terminal.
_STILL_S = 10.0  # Least time without a new row after which the line says so.


class _LogWatch:
    """Sees when the run's folder takes no more files, and when the learner's log stands still.

    A process cannot tell of a full disk by a log on that disk.
    """

    def __init__(self, folder: str, patience_s: float):
        """Takes the run's folder, and the time without a new row that is no matter."""
        self._folder = folder
        self._patience_s = patience_s
        self._newest = -1.0
        self._grown_at = time.monotonic()
        self._problem = ""  # The newest one.
        self._blocked_at: float | None = None  # When it was first seen; None: it is over.
        self._blocked_s = 0.0  # Duration of all that are over.

    def look(self, row: Mapping[str, float]) -> str:
        """Returns a remark for the live line, or "".

        Args:
          row: The log's newest row; empty where there is none.
        """
        newest, now = row.get("seconds", -1.0), time.monotonic()
        if newest != self._newest:
            self._newest, self._grown_at = newest, now
        problem = files.write_problem(self._folder)
        if problem:
            self._problem = problem
            self._blocked_at = now if self._blocked_at is None else self._blocked_at
            return f"cannot write logs: {problem}"
        if self._blocked_at is not None:
            self._blocked_s += now - self._blocked_at
            self._blocked_at = None
        still_s = now - self._grown_at
        return f"no news for {still_s:.0f} s" if row and still_s >= self._patience_s else ""

    def summary(self, row: Mapping[str, float]) -> str:
        """Returns a sentence on what the logs lack at the end; "" if they lack nothing.

        Args:
          row: The log's newest row; empty where there is none.
        """
        self.look(row)
        if self._blocked_at is not None:
            return (
                f"Nothing can be written to {self._folder} ({self._problem}): rows and checkpoints "
                "may be missing."
            )
        if self._blocked_s:
            return (
                f"For {self._blocked_s:.0f} s nothing could be written to {self._folder} "
                f"({self._problem}): rows and checkpoints of that time may be missing."
            )
        return ""


class StatusLine:
    """Shows one live line on a terminal, and a line now and then elsewhere."""

    def __init__(self, config: config_lib.RunConfig):
        """Shows nothing yet.

        Args:
          config: Configuration of the run, with its folder and start.
        """
        self._config = config
        self._live = sys.stdout.isatty()
        self._next = 0.0
        self._told_notes = False
        self._health = health.Watch(config)
        self._logs = _LogWatch(config.logpath, max(_STILL_S, 3 * config.log_period_s))
        learner = os.path.join(config.logpath, telemetry.LEARNER)
        self._train = os.path.join(learner, telemetry.TRAIN_CSV)
        self._evaluation = os.path.join(learner, telemetry.EVALUATION_CSV)
        broadcaster = os.path.join(config.logpath, telemetry.BROADCASTER)
        self._updates = os.path.join(broadcaster, telemetry.UPDATES_CSV)
        self._meter = os.path.join(broadcaster, telemetry.METER_CSV)

    def update(self) -> None:
        """Refreshes the line if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (_PERIOD_S if self._live else _PERIOD_FILE_S)
        self._tell_notes()
        line = self.compose()
        with contextlib.suppress(OSError):  # A full disk or a closed pipe must not end a training.
            if self._live:
                width = os.get_terminal_size().columns
                sys.stdout.write(f"\r\x1b[K{line[: width - 1]}")
                sys.stdout.flush()
            else:
                print(line, flush=True)

    def _tell_notes(self) -> None:
        """Says once what the learner has noted on the task and the server."""
        config = self._config
        if self._told_notes or not resuming.recorded(config):
            return
        self._told_notes = True
        with contextlib.suppress(errors.UserError):
            for note in config_lib.load_record(config.logpath).get("notes", ()):
                self.say(note)

    def compose(self) -> str:
        """Returns the line.

        Its parts are time, last return, remark, steps and rates, replay, model version, and what
        quantization does to the policy.
        """
        elapsed = time.time() - self._config.run_start_time
        clock = f"{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}"
        row = telemetry.last_row(self._train)
        trouble = self._logs.look(row)
        if not row:
            return f"{clock}  starting ..." + (f"  ({trouble})" if trouble else "")
        evaluation = telemetry.last_row(self._evaluation)
        remarks = [trouble] if trouble else [one.short for one in self._health.look().remarks]
        # The most wanted parts come first: a narrow terminal cuts the end.
        parts = [
            clock,
            f"return {evaluation['episode_return']:.1f}" if evaluation else "return -",
            *(f"({remark})" for remark in remarks[:1]),
            f"learner {row['learner_steps']:.0f}/{self._config.num_episodes} "
            f"({row['learner_steps_per_s']:.0f}/s)",
            f"actors {row['actor_steps']:.0f} ({row['actor_steps_per_s']:.0f}/s)",
            f"replay {row['replay_size']:.0f}",
            f"model v{row['model_version']:.0f}",
            *self._quantization(),
        ]
        return "  ".join(parts)

    def _quantization(self) -> list[str]:
        """Returns the part of the line on the newest figures of the meter, if there are any."""
        weights, policy = telemetry.last_row(self._updates), telemetry.last_row(self._meter)
        figures = []
        if "changed_share" in weights:
            figures.append(f"{100 * weights['changed_share']:.3g} % changed")
        if "action_distance" in policy:
            figures.append(f"actions {policy['action_distance']:.2g} off")
        elif "agreement" in policy:
            figures.append(f"{100 * policy['agreement']:.3g} % same actions")
        precision = precisions.NAMES[self._config.quantize]
        return [f"{precision}: {', '.join(figures)}"] if figures else []

    def say(self, text: str) -> None:
        """Prints a lasting line."""
        self.end()
        with contextlib.suppress(OSError):
            print(text, flush=True)

    def end(self) -> None:
        """Leaves the live line."""
        if self._live:
            with contextlib.suppress(OSError):
                sys.stdout.write("\r\x1b[K")
                sys.stdout.flush()

    def tell_missing_logs(self) -> None:
        """Says at the end of a run, however it came, which time its logs lack."""
        missing = self._logs.summary(telemetry.last_row(self._train))
        if missing:
            self.say(f"Hint:       {missing}")

    def _tell_energy(self) -> None:
        with contextlib.suppress(errors.UserError):  # A full disk may have damaged the figures.
            estimates = energy.read(self._config.logpath)
            if estimates:
                self.say(f"Energy:     {energy.describe(estimates)}")

    def tell_how_to_go_on(self, *command: str) -> None:
        """Says how a run that ended early goes on, if it has a checkpoint.

        Args:
          *command: The launcher's module, and flags besides those that are said in any case.
        """
        folder = self._config.logpath
        if snapshots.Store(folder).newest_name():
            words = [sys.executable, "-m", *command, "--resume", f"--logpath={folder}"]
            self.say(f"To go on:   {shlex.join(words)}")

    def report(self, draw_plots: Callable[[str], Sequence[str]]) -> None:
        """Tells how a training ended, makes its plots, and says where everything is.

        Args:
          draw_plots: Draws plots of the run in a folder, and returns their paths.
        """
        config, folder = self._config, self._config.logpath
        returns = []
        with contextlib.suppress(errors.UserError):  # Evaluation may be off.
            returns = telemetry.read_csv(self._evaluation)["episode_return"]
        findings = self._health.look(final=True)
        if findings.not_learned:
            self.say(findings.not_learned)
            if not findings.remarks:
                self.say("Hint:       docs/start/troubleshooting.md says what helps.")
        elif returns:
            final = returns[-max(1, config.final_eval_episodes):]
            bits = config.learner_fake_quantize
            played = "full-precision" if bits == 32 else precisions.NAMES[bits]
            verdict = "Too short to tell" if findings.too_short else "Trained"
            self.say(
                f"{verdict}: return {sum(final) / len(final):.1f} (mean of the last {len(final)} "
                f"evaluation episodes, {played} policy)."
            )
        for remark in findings.remarks:
            self.say(f"Hint:       {remark.sentence}")
        self._tell_energy()
        plots: Sequence[str] = []
        try:
            plots = draw_plots(folder)
        except Exception as error:  # The training is done and must not look failed.
            self.say(f"No plots: {errors.summary(error)}")
        python, quoted = shlex.quote(sys.executable), shlex.quote(folder)
        self.say(f"Logs:       {folder}  ({python} -m tensorboard.main --logdir {quoted})")
        self.say(f"Checkpoint: {os.path.join(folder, telemetry.CHECKPOINT_FOLDER)}")
        for path in plots:
            self.say(f"Plot:       {path}")
        default = config.inference_mode == config_lib.RunConfig.inference_mode
        mode = "" if default else f" --inference_mode {config.inference_mode}"
        self.say(
            f"Next:       {python} -m actorQ.evaluate {quoted} --episodes 10 --quantize "
            f"{config.quantize}{mode}"
        )
