"""Starts learner, broadcaster and actors on this machine, watches over them, and ends them.

    ./run_multiprocess.sh --resume --logpath=RUN [--flag=value ...]
    ./run_multiprocess.sh [LOGDIR TASK MODEL NUM_EPISODES N_ACTORS BATCH SAMPLES_PER_INSERT
                           QUANTIZE QUANTIZE_COMMUNICATION ACTOR_UPDATE_PERIOD WEIGHT_COMPRESS]
                          [--flag=value ...]

The eleven arguments are the original's, all optional. Flags go to every process. Each run gets a
folder of its own under LOGDIR and a free port. Imports no framework.
"""

import dataclasses
import os
import shlex
import sys
import threading
import time

from absl import flags

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import provenance
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import run_folders
from actorQ.launch import status_line
from actorQ.policy.native import library

# The original's positional arguments, in its order, as flags. LOGDIR is the parent of run folders.
POSITIONALS = (
    "logdir",
    "taskstr",
    "model_str",
    "num_episodes",
    "n_actors",
    "batch_size",
    "replay_table_max_times_sampled",
    "quantize",
    "quantize_communication",
    "actor_update_period",
    "weight_compress",
)

_POLL_S = 0.2
FOLLOWS_S = 60.0  # How long the learner may take to end after a peer that saw its announced end.
_PEERS_END_S = 10.0  # How long broadcaster and actors get after the learner's end.
_TOLD_END_S = 10.0  # And after they were told.
_LEARNER_END_S = 30.0  # How long the learner gets to save and announce after Ctrl-C ...
_LEARNER_SAVES_S = 120.0  # ... while it writes a checkpoint ...
_ANNOUNCED_S = 10.0  # ... and after that.


def define_flags() -> None:
    """Defines the flags that only the launcher has."""
    run_folders.define_flags()
    flags.DEFINE_integer(
        "pin_cpus",
        0,
        "1: give every actor a core of its own and the learner the rest (actors share cores where "
        "there are too few; the broadcaster is left free); 0: leave it to the system. For "
        "benchmarks; two pinned runs at once would share cores.",
        lower_bound=0,
        upper_bound=1,
    )


def apply_positionals(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Sets flags from the positional arguments.

    Args:
      argv: the arguments left by the flags, program name first.
      flag_values: where to set them.

    Raises:
      errors.UserError: too many, one that does not parse, or one given as a flag too.
    """
    arguments = argv[1:]
    if len(arguments) > len(POSITIONALS):
        raise errors.UserError(
            f"takes at most {len(POSITIONALS)} arguments "
            f"({' '.join(name.upper() for name in POSITIONALS)}), got {len(arguments)}."
        )
    for name, value in zip(POSITIONALS, arguments, strict=False):
        if flag_values[name].present:
            raise errors.UserError(f"{name} is given twice: as an argument and as --{name}.")
        try:
            flag_values[name].parse(value)
            flag_values[name].using_default_value = False
        except flags.Error as error:
            raise errors.UserError(f"argument {name.upper()}: {error}") from None


class Launcher:
    """One run on this machine."""

    def __init__(self, config: config_lib.RunConfig, pin_cpus: bool):
        """Takes the configuration with its final folder and port."""
        self._config = config
        cores = processes.plan_cores(config.n_actors) if pin_cpus else None
        if cores and not config.learner_threads:
            # A container's quota, too, may leave the learner less than it could be pinned to.
            threads = max(1, min(len(cores[0]), provenance.usable_cores() - config.n_actors))
            self._config = config = dataclasses.replace(config, learner_threads=threads)
        python_flags = config_flags.to_flags(config)
        log_folder = os.path.join(config.logpath, telemetry.STDOUT_FOLDER)

        def child(name: str, module: str, core_set: set[int] | None, *extra: str):
            command = [sys.executable, "-m", module, *python_flags, *extra]
            return processes.Child(name, command, os.path.join(log_folder, f"{name}.log"), core_set)

        self._learner = child(
            telemetry.LEARNER, processes.LEARNER_MODULE, cores[0] if cores else None
        )
        # Not pinned: its work is short, and finds the core that has least to do.
        self._peers = [child(telemetry.BROADCASTER, processes.BROADCASTER_MODULE, None)]
        for actor_id in range(1, config.n_actors + 1):
            self._peers.append(
                child(
                    telemetry.actor_name(actor_id),
                    processes.ACTOR_MODULE,
                    cores[actor_id] if cores else None,
                    f"--actor_id={actor_id}",
                )
            )
        self._log_bytes: dict[str, dict[str, int]] = {}
        self._left: dict[str, float] = {}  # When peers were seen to have ended as announced.
        self._early: set[str] = set()  # Peers that ended before the learner had begun.
        self._stop = threading.Event()
        self._store = snapshots.Store(config.logpath)
        self._status = status_line.StatusLine(config)

    def run(self) -> int:
        """Runs to the end; returns the launcher's exit code. Leaves no process behind."""
        cli.on_stop_signals(self._stop.set, self._kill)
        self._status.say(
            f"{self._config.taskstr}: learner, broadcaster and {self._config.n_actors} "
            f"actor{'s' if self._config.n_actors > 1 else ''} at {self._config.quantize} bits; "
            f"logs in {self._config.logpath}"
        )
        code = cli.EXIT_ERROR
        try:
            for process in (self._learner, *self._peers):
                process.start()
            code = self._watch()
        finally:
            self._end_all()
            if code != 0 and self._store.newest_name():
                self._status.say(
                    f"To go on:   {shlex.quote(sys.executable)} -m actorQ.launcher --resume "
                    f"--logpath={shlex.quote(self._config.logpath)}"
                )
        if code == 0:
            report(self._config, self._status)
        return code

    def _watch(self) -> int:
        while not self._stop.wait(_POLL_S):
            self._status.update()
            code = self._learner.poll()
            if code == 0:
                return 0
            if code is not None and not self._revive_learner(code):
                return cli.EXIT_ERROR
            for peer in self._peers:
                self._logs(peer)
                if peer.poll() is not None and not self._revive(peer):
                    return cli.EXIT_ERROR
        self._status.say("Interrupted: ending all processes.")
        return cli.EXIT_INTERRUPTED

    def _revive_learner(self, code: int) -> bool:
        """Starts a learner again that was ended by a signal; returns False if the run has to end.

        A learner that ends itself has its reason, which another start would find again.

        Raises:
          errors.UserError: it left a clear line.
        """
        reason = f"the learner {processes.describe_exit(code)}"
        if code > 0:
            self._give_up(self._learner, reason)
            return False
        snapshot = self._store.newest_name()
        trained = os.path.exists(
            os.path.join(self._config.logpath, telemetry.LEARNER, telemetry.TRAIN_CSV)
        )
        if not snapshot and trained:
            self._give_up(self._learner, f"{reason} and left no checkpoint to go on from")
            return False
        # A life that wrote a checkpoint has brought the run on.
        if not self._may_restart(self._learner, reason, snapshot):
            return False
        self._learner.restart(
            f"--restarts={self._config.restarts + self._learner.restarts + 1}",
            *(["--resume"] if snapshot else []),
        )
        return True

    def _may_restart(self, process: processes.Child, reason: str, progress: object) -> bool:
        if process.note_failure(progress) >= processes.MAX_FAILURES:
            self._give_up(process, f"{reason}, {processes.MAX_FAILURES} times in a row")
            return False
        self._status.say(f"{reason} ({process.last_line()}); {processes.STARTED_AGAIN}")
        return True

    def _give_up(self, process: processes.Child, reason: str) -> None:
        """Shows why a process failed: its own clear line if it left one, else its last lines.

        Raises:
          errors.UserError: it left a clear line.
        """
        self._status.end()
        line = process.error_line()
        if line:
            raise errors.UserError(f"{reason}: {line} (log: {process.log_path})")
        self._status.say(f"{reason[0].upper()}{reason[1:]}; the last lines of {process.log_path}:")
        self._status.say(process.log_tail())

    def _revive(self, peer: processes.Child) -> bool:
        """Restarts a peer that ended; returns False when the run has to end."""
        # Peers end too when the learner does, or cannot start for the same reason as it: let its
        # end be seen first.
        if not os.path.exists(os.path.join(self._config.logpath, telemetry.ADDRESS_FILENAME)):
            if peer.name not in self._early:
                self._early.add(peer.name)
                self._status.say(
                    f"{peer.name} {processes.describe_exit(peer.poll())} ({peer.last_line()}), the "
                    f"learner being still at its start: see {self._learner.log_path}"
                )
            return True
        if peer.poll() == 0:
            self._restart_if_left_behind(peer)
            return True
        if self._learner.wait(1.0) is not None or self._stop.is_set():
            return True
        reason = f"{peer.name} {processes.describe_exit(peer.poll())}"
        if not self._may_restart(peer, reason, self._logs(peer)):
            return False
        peer.restart(f"--restarts={self._config.restarts + peer.restarts + 1}")
        return True

    def _restart_if_left_behind(self, peer: processes.Child) -> None:
        """Starts a peer again that saw an announced end which did not come.

        The learner follows within seconds, unless a signal ended it on its way: then it was started
        again and may want more data.
        """
        left = self._left.setdefault(peer.name, time.monotonic())
        if time.monotonic() - left > FOLLOWS_S:
            del self._left[peer.name]
            self._status.say(
                f"{peer.name} has left, the learner has not; {processes.STARTED_AGAIN}"
            )
            peer.restart(f"--restarts={self._config.restarts + peer.restarts + 1}")

    def _logs(self, peer: processes.Child) -> dict[str, int]:
        """Returns the lengths of a peer's logs, as seen last where their folder is away."""
        lengths = telemetry.log_bytes(os.path.join(self._config.logpath, peer.name))
        self._log_bytes[peer.name] = lengths or self._log_bytes.get(peer.name, {})
        return self._log_bytes[peer.name]

    def _end_all(self) -> None:
        """Ends what this launcher started, politely first."""
        self._learner.terminate()
        self._wait_for_learner()
        deadline = time.monotonic() + _PEERS_END_S
        for peer in self._peers:
            # After an announced end they leave by themselves; else they are told.
            if self._learner.poll() != 0:
                peer.terminate()
            peer.wait(max(0.1, deadline - time.monotonic()))
        deadline = time.monotonic() + _TOLD_END_S
        for peer in self._peers:
            peer.terminate()
            peer.wait(max(0.1, deadline - time.monotonic()))
        self._kill()
        self._status.end()

    def _wait_for_learner(self) -> None:
        """Gives it time to save and announce, more of it where a checkpoint takes long."""
        if not self._learner.started:
            return
        self._learner.wait(_LEARNER_END_S)
        deadline = time.monotonic() + _LEARNER_SAVES_S
        while self._learner.wait(_ANNOUNCED_S) is None:
            if not self._store.being_written() or time.monotonic() > deadline:
                return

    def _kill(self) -> None:
        for process in (self._learner, *self._peers):
            process.kill()


def report(config: config_lib.RunConfig, status: status_line.StatusLine) -> None:
    """Tells how a training ended, makes its plots and says where everything is.

    Args:
      config: of the run, with its folder.
      status: prints.
    """
    folder = config.logpath
    returns = []
    try:
        log = os.path.join(folder, telemetry.LEARNER, telemetry.EVALUATION_CSV)
        returns = telemetry.read_csv(log)["episode_return"]
    except errors.UserError:
        pass  # Evaluation may be off.
    if returns:
        final = returns[-max(1, config.final_eval_episodes):]
        status.say(
            f"Trained: return {sum(final) / len(final):.1f} (mean of the last {len(final)} "
            "evaluation episodes, full-precision policy)."
        )
    try:
        from actorQ.experiments.run_logs import plots as run_plots

        plots = run_plots.plot_run(folder)
    except Exception as error:  # The training is done and must not look failed.
        plots = []
        status.say(f"No plots: {errors.summary(error)}")
    checkpoint = os.path.join(folder, telemetry.CHECKPOINT_FOLDER)
    python, quoted = shlex.quote(sys.executable), shlex.quote(folder)
    tensorboard = f"{python} -m tensorboard.main --logdir {quoted}"
    status.say(f"Logs:       {folder}  ({tensorboard})")
    status.say(f"Checkpoint: {checkpoint}")
    for path in plots:
        status.say(f"Plot:       {path}")
    default = config.inference_mode == config_lib.RunConfig().inference_mode
    mode = "" if default else f" --inference_mode {config.inference_mode}"
    status.say(
        f"Next:       {python} -m actorQ.evaluate {quoted} --episodes 10 --quantize "
        f"{config.quantize}{mode}"
    )


def main(argv: list[str]) -> int:
    """Launches one run; see `cli.run` for errors."""
    apply_positionals(argv)
    if flags.FLAGS.resume:  # Before anything is read of the run in the default folder.
        run_folders.require_named(flags.FLAGS)
    config = config_flags.from_flags(resumable=True)
    if config.inference_mode == "native":
        library.load()  # Where kernels are missing, better now than in every actor.
    if flags.FLAGS["server_address"].present:
        raise errors.UserError(
            "--server_address is set by the launcher; see the README for runs on several machines."
        )
    launch = run_folders.launch_of_flags(config, flags.FLAGS)
    config = dataclasses.replace(
        config, port=launch.port or ports.free_port(), learner_threads=launch.learner_threads
    )
    # Before anything starts: peers would join whatever run has the port.
    ports.require_port(config.port)
    if config.resume:
        config = run_folders.resumed(config)
    else:
        config = run_folders.new(config, flags.FLAGS)
    run_folders.save_launch(launch, config.logpath)
    return Launcher(config, launch.pin_cpus).run()


if __name__ == "__main__":
    config_flags.define_flags()
    define_flags()
    for module in (config_flags, run_folders):
        flags.adopt_module_key_flags(module)
    cli.run(main, takes_arguments=True, name="run_multiprocess.sh")
