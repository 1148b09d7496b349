"""Runs learner, broadcaster and actors on a Ray cluster, with the flags of `run_multiprocess.sh`.

    python -m actorQ.launch_ray [--address=auto] --n_actors=16 --taskstr=... [--flag=value ...]

Learner, broadcaster and actors are the processes that the launcher starts on one machine, each a
child of a Ray actor (`ray_worker`). Ray places them: the learner on a machine with a GPU where
--learner_device_placement=GPU and there is one, the broadcaster beside it, actors spread with a CPU
each. Weights and transitions go through the learner's Reverb server as ever; Ray carries none. What
all processes write is mirrored into the run's folder here, so that status line, plots and scripts
find one run. When a machine goes away, Ray starts its actors elsewhere. Imports no framework, and
Ray only when it is needed.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import os
import threading
import time
from typing import Any

from absl import flags

from actorQ import cli
from actorQ import config as config_lib
from actorQ import config_flags
from actorQ import errors
from actorQ import launcher
from actorQ import mirroring
from actorQ import ray_worker
from actorQ import run_folders
from actorQ import status_line
from actorQ import telemetry
from actorQ.native import library

_NAME = "launch_ray"
_POLL_S = 1.0
_ANSWER_S = 20.0  # How long a worker gets to answer before it counts as slow.
_LEARNER_END_S = 40.0
_PEERS_END_S = 20.0
_RESTARTS = 20  # By Ray, of each peer, for whatever reason.


def define_flags() -> None:
    """Defines the flags that only this launcher has."""
    flags.DEFINE_string(
        "address", "",
        "Ray cluster: auto (the one that this machine belongs to), HOST:PORT of its head, or "
        "empty: a cluster of this machine alone, for this run.",
    )
    flags.DEFINE_string("logdir", "logs", "Folder under which the run gets a folder of its own.")
    flags.DEFINE_string(
        "run_name", "", "Name of the run's folder under --logdir; empty: task, precision, time."
    )
    flags.DEFINE_integer(
        "learner_cpus", 1, "CPUs that the learner asks Ray for.", lower_bound=1
    )
    flags.DEFINE_float(
        "placement_timeout", 300.0,
        "Seconds to wait for the cluster to have room for a process.", lower_bound=1.0,
    )


class Member:
    """One process of the run, wherever it is.

    Attributes:
      name: in the logs.
      code: exit code as far as known, None while it runs.
      reason: why it ended.
      node: host name of its machine, "" before it is known.
      restarts: how often a learner was resumed on its machine.
    """

    def __init__(self, name: str, handle: Any, sink: mirroring.Sink):
        """Takes a Ray actor of `ray_worker.Worker`."""
        self.name = name
        self.handle = handle
        self._sink = sink
        self._incarnation = ""
        self._pending: Any = None
        self.lost = False
        self.code: int | None = None
        self.reason = ""
        self.node = ""
        self.restarts = 0

    def poll(self, timeout_s: float) -> bool:
        """Asks how the process does, and mirrors what it wrote.

        Args:
          timeout_s: to wait for the answer; one that is late is taken by a later call.

        Returns:
          Whether an answer came.

        Raises:
          Exception: of Ray: the worker is gone for good, or for now.
        """
        import ray

        if self._pending is None:
            marks = self._sink.acknowledged(self._incarnation)
            self._pending = self.handle.report.remote(self._incarnation, marks)
        done, _ = ray.wait([self._pending], timeout=timeout_s)
        if not done:
            return False
        reference, self._pending = self._pending, None
        report: ray_worker.Report = ray.get(reference)
        self._incarnation = report.incarnation
        self._sink.take(report.incarnation, report.replaces, report.pieces)
        self.code, self.reason = report.code, report.reason
        self.node, self.restarts = report.node, report.restarts
        return True


class Cluster:
    """The run's processes on the cluster."""

    def __init__(
        self, config: config_lib.RunConfig, learner_cpus: int, placement_timeout_s: float
    ):
        """Takes the configuration with its final folder; starts nothing."""
        self._config = config
        self._learner_cpus = learner_cpus
        self._placement_timeout_s = placement_timeout_s
        self._status = status_line.StatusLine(config)
        self._stop = threading.Event()
        self._failures: dict[str, int] = {}
        self.learner: Member | None = None
        self.peers: dict[str, Member] = {}

    def run(self) -> int:
        """Runs to the end; returns the exit code. Leaves no process behind."""
        cli.on_stop_signals(self._stop.set)
        try:
            self._start()
            code = self._watch()
        finally:
            self._end_all()
        if code == 0:
            launcher.report(self._config, self._status)
        return code

    def _start(self) -> None:
        config = self._config
        self._require_room()
        self.learner = self._learner_member()
        address = self._ask_address()
        with open(os.path.join(config.logpath, telemetry.ADDRESS_FILENAME), "w") as file:
            file.write(address)
        self._status.say(
            f"{config.taskstr}: learner at {address}, broadcaster and {config.n_actors} "
            f"actor{'s' if config.n_actors > 1 else ''} at {config.quantize} bits; logs in "
            f"{config.logpath}"
        )
        self._peer_config = dataclasses.replace(config, server_address=address)
        for name in self._peer_names():
            self.peers[name] = self._peer_member(name, again=False)

    def _peer_names(self) -> list[str]:
        actors = range(1, self._config.n_actors + 1)
        return [telemetry.BROADCASTER, *map(telemetry.actor_name, actors)]

    def _require_room(self) -> None:
        import ray

        needed = self._learner_cpus + self._config.n_actors
        deadline = time.monotonic() + self._placement_timeout_s
        while (there := ray.cluster_resources().get("CPU", 0)) < needed:
            if time.monotonic() > deadline:
                raise errors.UserError(
                    f"The cluster has {there:g} CPUs and the run wants {needed}: "
                    f"{self._learner_cpus} for the learner (--learner_cpus) and one for each of "
                    f"--n_actors={self._config.n_actors}. Add machines, or take fewer actors."
                )
            if self._stop.wait(1.0):
                raise KeyboardInterrupt

    def _learner_member(self) -> Member:
        import ray

        options: dict[str, Any] = {"num_cpus": self._learner_cpus, "max_restarts": 0}
        wants_gpu = self._config.learner_device_placement == "GPU"
        if wants_gpu and ray.cluster_resources().get("GPU", 0) >= 1:
            options["num_gpus"] = 1
        return self._member(
            telemetry.LEARNER, ray_worker.LEARNER_MODULE, self._config, options, False
        )

    def _peer_member(self, name: str, again: bool) -> Member:
        options: dict[str, Any] = {"max_restarts": _RESTARTS}
        if name == telemetry.BROADCASTER:
            # Its work is short and bound to the learner's: it needs no CPU of its own there.
            options["num_cpus"] = 0
            options["scheduling_strategy"] = self._beside_learner()
            return self._member(
                name, "actorQ.parameter_broadcaster", self._peer_config, options, again
            )
        actor_id = int(name.rpartition("_")[2])
        config = dataclasses.replace(self._peer_config, actor_id=actor_id)
        options |= {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        return self._member(name, "actorQ.actor_main", config, options, again)

    def _beside_learner(self) -> Any:
        import ray
        from ray.util import scheduling_strategies

        node_id = ray.get(self.learner.handle.node_id.remote())
        return scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=True)

    def _member(
        self, name: str, module: str, config: config_lib.RunConfig, options: dict[str, Any],
        again: bool,
    ) -> Member:
        import ray

        plain = dataclasses.replace(config, logpath=config_lib.RunConfig.logpath)
        flag_list = config_flags.to_flags(plain)
        handle = ray.remote(ray_worker.Worker).options(**options).remote(
            name, module, flag_list, "", again
        )
        return Member(name, handle, mirroring.Sink(self._config.logpath))

    def _ask_address(self) -> str:
        import ray

        reference = self.learner.handle.address.remote(self._placement_timeout_s)
        deadline = time.monotonic() + 2 * self._placement_timeout_s
        while time.monotonic() < deadline:
            done, _ = ray.wait([reference], timeout=0.5)
            if done:
                break
            if self._stop.is_set():
                raise KeyboardInterrupt
        else:
            raise errors.UserError(
                f"No machine of the cluster had room for the learner within "
                f"{2 * self._placement_timeout_s:g} s (--placement_timeout)."
            )
        address = ray.get(reference)
        if not address:
            self.learner.poll(_ANSWER_S)
            raise errors.UserError(
                f"The learner did not start: {self.learner.reason or 'its server never came up'}."
            )
        return address

    def _watch(self) -> int:
        while not self._stop.wait(_POLL_S):
            self._status.update()
            if not self._poll_learner():
                return cli.EXIT_ERROR
            if self.learner.code == 0:
                return 0
            if self.learner.code is not None:
                raise errors.UserError(f"The learner ended, {self.learner.reason}")
            for peer in list(self.peers.values()):
                self._poll_peer(peer)
        self._status.say("Interrupted: ending all processes.")
        return cli.EXIT_INTERRUPTED

    def _poll_learner(self) -> bool:
        import ray

        restarts = self.learner.restarts
        try:
            self.learner.poll(_POLL_S)
        except ray.exceptions.RayActorError as error:
            self._status.say(
                f"The learner's machine is gone, and replay with it ({errors.summary(error)}). The "
                f"newest policy is in {self._config.logpath}."
            )
            return False
        if self.learner.restarts > restarts:
            self._status.say("The learner was ended by a signal; it goes on from its checkpoint.")
        return True

    def _poll_peer(self, peer: Member) -> None:
        import ray

        try:
            answered = peer.poll(0.05)
        except ray.exceptions.ActorUnavailableError:
            self._note_lost(peer)
            return
        except ray.exceptions.RayActorError as error:
            raise errors.UserError(
                f"{peer.name} was lost {_RESTARTS} times: {errors.summary(error)}"
            ) from None
        if answered and peer.lost:
            peer.lost = False
            self._status.say(f"{peer.name} is back, on {peer.node}.")
        if answered and peer.code:
            self._restart(peer)

    def _note_lost(self, peer: Member) -> None:
        if not peer.lost:
            peer.lost = True
            self._status.say(f"{peer.name} was lost with {peer.node}; Ray starts it elsewhere.")

    def _restart(self, peer: Member) -> None:
        """Has Ray start a process again that ended.

        Raises:
          errors.UserError: it did so for the same reason again and again.
        """
        import ray

        failures = self._failures[peer.reason] = self._failures.get(peer.reason, 0) + 1
        if failures >= launcher.MAX_FAILURES:
            raise errors.UserError(
                f"{peer.name} ended {failures} times in the same way, {peer.reason}"
            )
        self._status.say(f"{peer.name} ended, {peer.reason}; it is started again.")
        ray.kill(peer.handle, no_restart=True)
        self.peers[peer.name] = self._peer_member(peer.name, again=True)

    def _end_all(self) -> None:
        """Ends all processes, politely first, and fetches the last of their logs."""
        import ray

        self._status.end()
        if self.learner is not None:
            with contextlib.suppress(Exception):
                if self.learner.code is None:
                    self.learner.handle.terminate.remote()
                self._wait_for([self.learner], _LEARNER_END_S)
        if self.learner is None or self.learner.code != 0:
            for peer in self.peers.values():
                with contextlib.suppress(Exception):
                    peer.handle.terminate.remote()
        self._wait_for(list(self.peers.values()), _PEERS_END_S)
        for member in (*self.peers.values(), *([self.learner] if self.learner else [])):
            with contextlib.suppress(Exception):
                ray.get(member.handle.close.remote(), timeout=5.0)
            with contextlib.suppress(Exception):
                ray.kill(member.handle)

    def _wait_for(self, members: Sequence[Member], limit_s: float) -> None:
        """Polls processes until they have ended and their last lines are here."""
        deadline = time.monotonic() + limit_s
        waiting = list(members)
        while waiting and time.monotonic() < deadline:
            for member in list(waiting):
                try:
                    ended = member.code is not None
                    # One answer more, after the end: its last lines.
                    if member.poll(0.5) and ended:
                        waiting.remove(member)
                except Exception:  # Its machine is gone: nothing more comes from there.
                    waiting.remove(member)


def connect(address: str) -> None:
    """Connects to a Ray cluster, or starts one of this machine alone.

    Raises:
      errors.UserError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
    except ImportError:
        raise errors.UserError(
            "Ray is not installed: .venv/bin/pip install -r requirements-ray.txt "
            "-c constraints.txt, on every machine."
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=address or "local", log_to_driver=False, logging_level="error",
            include_dashboard=None if address else False,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise errors.UserError(
            f"No Ray cluster at {address!r}: {errors.summary(error)} Start its head with "
            "'ray start --head' first, or leave --address out for this machine alone."
        ) from None


def main(argv: list[str]) -> int:
    """Launches one run; see `cli.run` for errors."""
    launcher.apply_positionals(argv)
    config = config_flags.from_flags()
    if config.resume:
        raise errors.UserError(
            "--resume is not for runs on a cluster: their replay is on the learner's machine."
        )
    if flags.FLAGS["server_address"].present or flags.FLAGS["port"].present:
        raise errors.UserError("--server_address and --port are set by this launcher.")
    if config.inference_mode == "native":
        library.load()
    connect(flags.FLAGS.address)
    config = dataclasses.replace(run_folders.new(config, flags.FLAGS), port=0)
    return Cluster(config, flags.FLAGS.learner_cpus, flags.FLAGS.placement_timeout).run()


if __name__ == "__main__":
    config_flags.define_flags()
    define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main, takes_arguments=True, name=_NAME)
