"""Runs over slow networks: the cost and the gain of fp32, 8-bit and 4-bit messages.

    sudo .venv/bin/python -m tests.faults.network --out DIR
    sudo .venv/bin/python -m tests.faults.network --mbit 20 --seconds 60

Three hosts (`network_hosts`) have links of limited bandwidth and a delay each way (`delay_proxy`).
Learner and broadcaster are on one, and an actor is on each of the others. Actors compute in fp32 in
every run, so that only the messages differ. The study needs root, and has two parts:

- Runs of a fixed length with the papers' policy of 3x2048. They measure the seconds of a pull, the
  staleness of the weights in use, and steps per second.
- Runs with a policy of 3x256, which learns its task in a minute or two. They measure the time until
  it holds a return, also on slower links, and for several seeds.
"""

import argparse
from collections.abc import Sequence
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.core import timing
from actorQ.launch import processes
from tests.faults import network_figures as figures
from tests.faults import network_hosts

_PORT = 8000
_PROXY_PORT = 8001
_START_S = 120.0
_END_S = 60.0
_FLAGS = (
    "--taskstr=dm_control,cartpole_balance", f"--n_actors={figures.ACTORS}", "--quantize=32",
    "--inference_mode=native", "--learner_device_placement=CPU", "--vmin=0", "--vmax=100",
    "--actor_update_period=30", "--final_eval_episodes=0",
    f"--port={_PORT}", "--checkpoint_period_s=86400",
)
# The experiments have the same settings in their profile for two cores and their staleness study.
_PARTS = {
    figures.RATES: (
        "--model_str=2048,2048,2048", "--batch_size=128", "--samples_per_insert=0.25",
        "--replay_table_max_times_sampled=0", "--min_replay_size=5000",
        "--policy_learning_rate=1e-5", "--critic_learning_rate=3e-4", "--target_update_period=25",
        "--push_period_s=1", "--push_share=0.15", "--eval_period_s=0", "--eval_period_steps=0",
    ),
    figures.REWARD: (
        "--model_str=256,256,256", "--batch_size=64", "--replay_table_max_times_sampled=16",
        "--min_replay_size=2000", "--policy_learning_rate=1e-4", "--critic_learning_rate=1e-4",
        "--target_update_period=100", "--push_period_s=0.05", "--eval_period_steps=200",
        f"--stop_smoothing={figures.SMOOTHING}", "--stop_window=1",
    ),
}
_LONGEST_S = 900.0  # Longest run of the second part.


class Run:
    """The processes of one run on their hosts."""

    def __init__(
        self, hosts: network_hosts.Hosts, folder: str, flags: Sequence[str], delay_ms: float
    ):
        """Takes the parts of the run; `start` starts it.

        Args:
          hosts: One host for the learner, and one for each actor.
          folder: Folder of the run.
          flags: Flags of all processes, beside those that every run has.
          delay_ms: Delay each way, milliseconds.
        """
        self._hosts = hosts
        self._delay_ms = delay_ms
        self.folder = folder
        self._flags = [
            *_FLAGS, *flags, f"--logpath={folder}", f"--run_start_time={time.time()}"
        ]
        self._started: list[subprocess.Popen] = []

    def start(self) -> None:
        """Starts learner, broadcaster, proxies and actors."""
        hosts = self._hosts
        self._start(0, "learner", processes.LEARNER_MODULE, *self._flags)
        self._start(
            0, "broadcaster", processes.BROADCASTER_MODULE, *self._flags,
            f"--server_address=localhost:{_PORT}",
        )
        target = f"{hosts.address(0)}:{_PORT}"
        for actor in range(1, figures.ACTORS + 1):
            self._start(
                actor, f"proxy_{actor}", "tests.faults.delay_proxy", str(_PROXY_PORT), target,
                f"{self._delay_ms:g}",
            )
            self._start(
                actor, f"actor_{actor}", processes.ACTOR_MODULE, *self._flags,
                f"--actor_id={actor}", f"--server_address=localhost:{_PROXY_PORT}",
            )

    def _start(self, host: int, name: str, module: str, *arguments: str) -> None:
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, f"{name}.log"), "wb") as log:
            self._started.append(subprocess.Popen(
                self._hosts.command(host, [sys.executable, "-m", module, *arguments]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            ))

    def newest(self, process: str, filename: str) -> dict[str, float]:
        """Returns the newest row of a log."""
        return telemetry.last_row(os.path.join(self.folder, process, filename))

    def wait_until_acting(self) -> None:
        """Waits until all actors act.

        Raises:
          errors.UserError: They do not start in time, or a process ended.
        """
        deadline = time.monotonic() + _START_S
        names = [telemetry.actor_name(actor) for actor in range(1, figures.ACTORS + 1)]
        while not all(self.newest(name, telemetry.PHASES_CSV) for name in names):
            self.require_life()
            if time.monotonic() > deadline:
                raise errors.UserError(f"The actors did not start; see {self.folder}.")
            time.sleep(0.2)

    @property
    def ended(self) -> bool:
        """Whether the learner has ended without failure, so that the others follow."""
        return self._started[0].poll() == 0

    def require_life(self) -> None:
        """Raises a UserError if a process has failed."""
        for process in self._started:
            if process.poll():
                raise errors.UserError(
                    f"'{' '.join(process.args[4:8])} ...' ended with code {process.returncode}; "
                    f"see {self.folder}."
                )

    def end(self) -> None:
        """Ends all processes, the learner first, which tells the others."""
        if not self._started:
            return
        learner, *others = self._started
        learner.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _END_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            learner.wait(_END_S)
        for process in others:
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def measure(
    hosts: network_hosts.Hosts,
    part: str,
    seed: int,
    mbit_s: float,
    message: str,
    options: argparse.Namespace,
) -> figures.Cell:
    """Makes one run.

    Args:
      hosts: Hosts of the run.
      part: Key of `_PARTS`.
      seed: Seed of the run.
      mbit_s: Bandwidth of the links, Mbit/s.
      message: Key of `network_figures.PRECISIONS`.
      options: Options of the command line. `seconds` counts for the first part, `steps` and
        `stop_return` for the second, and `delay_ms` for both.

    Raises:
      errors.UserError: The run does not start, a process ended, or the steps take too long.
    """
    hosts.limit(mbit_s)
    folder = tempfile.mkdtemp(prefix="actorq_network_")
    flags = [
        *_PARTS[part], f"--quantize_communication={figures.PRECISIONS[message]}", f"--seed={seed}"
    ]
    if part == figures.REWARD:
        flags += [f"--stop_return={options.stop_return}", f"--num_episodes={options.steps}"]
    else:
        flags += ["--num_episodes=1000000000"]
    run = Run(hosts, folder, flags, options.delay_ms)
    try:
        run.start()
        run.wait_until_acting()
        started = time.monotonic()
        while not _done(run, part, time.monotonic() - started, options):
            run.require_life()
            time.sleep(0.5)
    finally:
        run.end()
    cell = figures.read(folder, part, seed, mbit_s, message, options.stop_return)
    shutil.rmtree(folder, ignore_errors=True)
    return cell


def _done(run: Run, part: str, seconds: float, options: argparse.Namespace) -> bool:
    if part == figures.RATES:
        return seconds >= options.seconds
    if seconds > _LONGEST_S:
        raise errors.UserError(
            f"The run reached neither the return nor {options.steps} learner steps in "
            f"{_LONGEST_S:g} s; see {run.folder}."
        )
    return run.ended


def main(argv: Sequence[str]) -> None:
    """Runs the study and prints its tables."""
    parser = timing.parser(
        figures.NAME, "Compares messages of 32, 8 and 4 bits over slow networks.", repeats=None
    )
    parser.add_argument(
        "--repeats", type=timing.positive, default=1, metavar="N",
        help="Seeds of the first part's runs, whose medians are shown (default: %(default)s).",
    )
    parser.add_argument(
        "--mbit", type=float, nargs="*", default=[1000, 100, 20], metavar="RATE",
        help="Bandwidths of the links in the first part, Mbit/s (default: %(default)s).",
    )
    parser.add_argument(
        "--seconds", type=float, default=240.0, metavar="S",
        help="Length of the first part's runs, once their actors act (default: %(default)s).",
    )
    parser.add_argument(
        "--reward_mbit", type=float, nargs="*", default=[1000, 100, 20, 2], metavar="RATE",
        help="Bandwidths of the links in the second part, Mbit/s (default: %(default)s).",
    )
    parser.add_argument(
        "--stop_return", type=float, default=900.0, metavar="R",
        help="Return that ends the second part's runs, mean of three evaluations (default: "
             "%(default)s).",
    )
    parser.add_argument(
        "--steps", type=timing.positive, default=12000, metavar="N",
        help="Most learner steps of the second part's runs (default: %(default)s).",
    )
    parser.add_argument(
        "--seeds", type=timing.positive, default=3, metavar="N",
        help="Seeds of the second part's runs (default: %(default)s).",
    )
    parser.add_argument(
        "--delay_ms", type=float, default=5.0, metavar="MS",
        help="Delay of every link, each way (default: %(default)s).",
    )
    options = parser.parse_args(argv)
    cells: list[figures.Cell] = []
    try:
        with network_hosts.hosts(1 + figures.ACTORS) as hosts:
            for part, rates, seeds in (
                (figures.RATES, options.mbit, options.repeats),
                (figures.REWARD, options.reward_mbit, options.seeds),
            ):
                for seed in range(seeds):
                    for mbit_s in rates:
                        for message in figures.PRECISIONS:
                            timing.progress(f"{part}, {mbit_s:g} Mbit/s, {message}, seed {seed}")
                            cells.append(measure(hosts, part, seed, mbit_s, message, options))
    finally:  # Finished runs are kept even if the study failed.
        if cells:
            figures.report(cells, options)


if __name__ == "__main__":
    timing.run(figures.NAME, main)
