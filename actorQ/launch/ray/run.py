"""A run on a Ray cluster: places its processes, watches over them, and ends them.

Imports Ray when it is used, and no framework.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import os
import threading
import time
from typing import Any

from actorQ import launcher
from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line
from actorQ.launch.ray import member as ray_member
from actorQ.launch.ray import mirroring
from actorQ.launch.ray import worker

_POLL_S = 1.0
_ANSWER_S = 20.0  # How long a worker gets to answer before it counts as slow.
_GLANCE_S = 0.05  # To wait for a peer's answer; it may come in a later round.
_UNSEEN_S = 60.0  # How long the learner's machine may not answer.
_LAST_ROWS_S = 5.0  # How long a peer that ended may take to hand over what it wrote.
_LEARNER_FIRST_S = 3.0  # How long the learner gets to end with its peers.
_LEARNER_END_S = 150.0  # With its last checkpoint.
_PEERS_END_S = 20.0
_PLACED_S = 20.0  # From then on a process that never answered is taken for one without a place.


class RayRun:
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
        self._failures: dict[str, processes.Failures] = {}
        self._died: dict[str, int] = {}
        self._waiting: set[str] = set()
        self._left: dict[str, float] = {}  # When peers were seen to have ended as announced.
        self._learner_unseen_since: float | None = None
        self.learner: ray_member.Member | None = None
        self.peers: dict[str, ray_member.Member] = {}

    def run(self) -> int:
        """Runs to the end; returns the exit code. Leaves no process behind.

        Raises:
          errors.UserError: the cluster or a process failed.
        """
        import ray

        cli.on_stop_signals(self._stop.set)
        try:
            code = self._watch() if self._start() else cli.EXIT_INTERRUPTED
        except ray.exceptions.RayError as error:
            raise errors.UserError(f"Ray failed: {errors.summary(error)}") from None
        finally:
            self._end_all()
        if code == 0:
            launcher.report(self._config, self._status)
        return code

    def _start(self) -> bool:
        """Starts all processes; returns False if the run was interrupted meanwhile."""
        config = self._config
        if not self._has_room():
            return False
        self.learner = self._learner_member()
        address = self._wait_for_address()
        if not address:
            return False
        files.write(os.path.join(config.logpath, telemetry.ADDRESS_FILENAME), address)
        self._status.say(
            f"{config.taskstr}: learner at {address}, broadcaster and {config.n_actors} "
            f"actor{'s' if config.n_actors > 1 else ''} at {config.quantize} bits; logs in "
            f"{config.logpath}"
        )
        self._peer_config = dataclasses.replace(config, server_address=address)
        actors = range(1, config.n_actors + 1)
        for name in (telemetry.BROADCASTER, *map(telemetry.actor_name, actors)):
            self._failures[name] = processes.Failures()
            self.peers[name] = self._peer_member(name, again=False)
        return True

    def _has_room(self) -> bool:
        """Waits for enough CPUs, and a GPU where the learner takes one.

        Returns:
          Whether there are; False if the run was interrupted meanwhile.

        Raises:
          errors.UserError: there are not within --placement_timeout.
        """
        deadline = time.monotonic() + self._placement_timeout_s
        while problem := self._shortage():
            if time.monotonic() > deadline:
                raise errors.UserError(problem)
            if self._stop.wait(_POLL_S):
                return False
        return True

    def _shortage(self) -> str:
        """Returns what the cluster has too little of, and what to do; or ""."""
        import ray

        free = ray.available_resources()
        cpus, needed = free.get("CPU", 0), self._learner_cpus + self._config.n_actors
        if cpus < needed:
            return (
                f"The cluster has {cpus:g} free CPUs and the run wants {needed}: "
                f"{self._learner_cpus} for the learner (--learner_cpus) and one for each of "
                f"--n_actors={self._config.n_actors}. Add machines, or take fewer actors."
            )
        if self._learner_takes_gpu() and free.get("GPU", 0) < 1:
            return (
                "All GPUs of the cluster are taken, and the learner wants one: wait for what uses "
                "them, or choose --learner_device_placement=CPU."
            )
        return ""

    def _learner_takes_gpu(self) -> bool:
        """Returns whether it is to have one and the cluster has any, free or not."""
        import ray

        wants_gpu = self._config.learner_device_placement == "GPU"
        return wants_gpu and ray.cluster_resources().get("GPU", 0) >= 1

    def _learner_member(self) -> ray_member.Member:
        options: dict[str, Any] = {"num_cpus": self._learner_cpus, "max_restarts": 0}
        if self._learner_takes_gpu():
            options["num_gpus"] = 1
        config = self._config
        if not config.learner_threads:  # By default it would leave cores for actors, not here.
            config = dataclasses.replace(config, learner_threads=self._learner_cpus)
        return self._member(telemetry.LEARNER, processes.LEARNER_MODULE, config, options, False)

    def _peer_member(self, name: str, again: bool) -> ray_member.Member:
        options: dict[str, Any] = {"max_restarts": -1}
        if name == telemetry.BROADCASTER:
            # Its work is short and bound to the learner's: it needs no CPU of its own there.
            options |= {"num_cpus": 0, "scheduling_strategy": self._beside_learner()}
            return self._member(
                name, processes.BROADCASTER_MODULE, self._peer_config, options, again
            )
        actor_id = int(name.rpartition("_")[2])
        config = dataclasses.replace(self._peer_config, actor_id=actor_id)
        options |= {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        return self._member(name, processes.ACTOR_MODULE, config, options, again)

    def _beside_learner(self) -> Any:
        import ray
        from ray.util import scheduling_strategies

        node_id = ray.get(self.learner.handle.node_id.remote(), timeout=_ANSWER_S)
        return scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=True)

    def _member(
        self, name: str, module: str, config: config_lib.RunConfig, options: dict[str, Any],
        again: bool,
    ) -> ray_member.Member:
        import ray

        plain = dataclasses.replace(config, logpath=config_lib.RunConfig.logpath)
        handle = ray.remote(worker.Worker).options(**options).remote(
            name, module, config_flags.to_flags(plain), "", again
        )
        return ray_member.Member(name, handle, mirroring.Sink(self._config.logpath))

    def _wait_for_address(self) -> str:
        """Waits until the learner's server is up; returns "" if the run was interrupted meanwhile.

        Raises:
          errors.UserError: it does not come up.
        """
        import ray

        deadline = time.monotonic() + self._placement_timeout_s
        reference = None
        while not self._stop.wait(0.2):
            reference = reference or self.learner.handle.address.remote()
            if ray.wait([reference], timeout=0.5)[0]:
                address, reference = ray.get(reference), None
                if address:
                    return address
                self.learner.poll(_ANSWER_S)
                if self.learner.code is not None:
                    raise errors.UserError(f"The learner did not start: {self.learner.reason}")
            if time.monotonic() > deadline:
                raise errors.UserError(
                    "The learner was not up within --placement_timeout="
                    f"{self._placement_timeout_s:g} s: has any machine room for it?"
                )
        return ""

    def _watch(self) -> int:
        while not self._stop.wait(_POLL_S):
            self._status.update()
            self._poll_learner(_POLL_S)
            if self.learner.code == 0:
                return 0
            if self.learner.code is not None:
                raise errors.UserError(f"The learner ended: {self.learner.reason}")
            for peer in list(self.peers.values()):
                self._poll_peer(peer)
        self._status.say("Interrupted: ending all processes.")
        return cli.EXIT_INTERRUPTED

    def _poll_learner(self, timeout_s: float) -> None:
        """Asks how the learner does.

        Raises:
          errors.UserError: its machine is gone.
        """
        import ray

        restarts = self.learner.restarts
        try:
            if self.learner.poll(timeout_s):
                self._learner_unseen_since = None
        except ray.exceptions.RayActorError as error:
            unseen = self._learner_unseen_since = self._learner_unseen_since or time.monotonic()
            for_now = isinstance(error, ray.exceptions.ActorUnavailableError)
            if for_now and time.monotonic() - unseen < _UNSEEN_S:
                return
            raise errors.UserError(
                f"The learner's machine is gone, and replay with it ({errors.summary(error)}). The "
                f"newest policy is in {self._config.logpath}."
            ) from None
        if self.learner.restarts > restarts:
            self._status.say("The learner was ended by a signal; it goes on from its checkpoint.")

    def _poll_peer(self, peer: ray_member.Member) -> None:
        import ray

        try:
            answered = peer.poll(_GLANCE_S)
        except ray.exceptions.ActorUnavailableError:
            if not peer.lost:
                peer.lost = True
                self._status.say(f"{peer.name} was lost with {peer.node}; Ray starts it elsewhere.")
            return
        except ray.exceptions.RayError as error:  # It died, or could not say how it does.
            died = self._died[peer.name] = self._died.get(peer.name, 0) + 1
            if died >= processes.MAX_FAILURES:
                raise errors.UserError(
                    f"{peer.name} could not be started {died} times: {errors.summary(error)}"
                ) from None
            self._restart(peer, f"its worker died ({errors.summary(error)})")
            return
        if not answered:
            self._mention_wait(peer)
            return
        self._died[peer.name] = 0
        if peer.lost:
            peer.lost = False
            self._status.say(f"{peer.name} is back, on {peer.node}.")
        if peer.code:
            self._revive(peer)
        elif peer.code == 0:
            left = self._left.setdefault(peer.name, time.monotonic())
            if time.monotonic() - left > launcher.FOLLOWS_S:  # As the launcher does.
                del self._left[peer.name]
                self._restart(peer, "it has left, the learner has not")
        else:
            self._left.pop(peer.name, None)

    def _mention_wait(self, peer: ray_member.Member) -> None:
        """Says, once, that a process is not placed.

        Raises:
          errors.UserError: no actor is: the run would wait for nothing.
        """
        waited = time.monotonic() - peer.started > self._placement_timeout_s
        if peer.place or peer.name in self._waiting or not waited:
            return
        self._waiting.add(peer.name)
        where = f"within --placement_timeout={self._placement_timeout_s:g} s"
        if not any(other.place for other in self.peers.values() if _is_actor(other)):
            raise errors.UserError(f"No actor found room on the cluster {where}.")
        self._status.say(f"{peer.name} found no room on the cluster {where}; it goes on waiting.")

    def _revive(self, peer: ray_member.Member) -> None:
        """Starts a peer again that ended, unless the learner has ended too.

        Raises:
          errors.UserError: it did so in the same way again and again.
        """
        # Peers end too when the learner does: let its end be seen first.
        deadline = time.monotonic() + _LEARNER_FIRST_S
        while time.monotonic() < deadline and not self._stop.is_set():
            self._poll_learner(_POLL_S)
            if self.learner.code is not None:
                return
        code, reason = peer.code, peer.reason
        # Its answer that said so brought rows of its logs; only one without any is the last.
        self._wait_for([peer], _LAST_ROWS_S)
        if peer.code is None:  # Its machine went away meanwhile: Ray has started it elsewhere.
            return
        folder = os.path.join(self._config.logpath, peer.name)
        failures = self._failures[peer.name].note(
            code, telemetry.log_bytes(folder), time.monotonic() - peer.started
        )
        if failures >= processes.MAX_FAILURES:
            raise errors.UserError(
                f"{peer.name} ended {failures} times in a row in the same way: {reason}"
            )
        self._restart(peer, reason)

    def _restart(self, peer: ray_member.Member, reason: str) -> None:
        self._status.say(f"{peer.name} ended: {reason}; {processes.STARTED_AGAIN}")
        self._close(peer)
        self.peers[peer.name] = self._peer_member(peer.name, again=True)

    def _end_all(self) -> None:
        """Ends all processes, politely first, and fetches the last of their logs."""
        self._status.end()
        peers = [peer for peer in self.peers.values() if not self._drop(peer)]
        if self.learner is not None and not self._drop(self.learner):
            if self.learner.code is None:
                self._tell_to_end(self.learner)
            self._wait_for([self.learner], _LEARNER_END_S)
            if self.learner.code != 0:
                for peer in peers:
                    self._tell_to_end(peer)
            self._wait_for(peers, _PEERS_END_S)
            peers.append(self.learner)
        for member in peers:
            self._close(member)

    def _drop(self, member: ray_member.Member) -> bool:
        """Gives a process up that waits for room still; returns whether it did."""
        if member.place or time.monotonic() - member.started < _PLACED_S:
            return False
        member.drop()
        return True

    def _close(self, member: ray_member.Member) -> None:
        safe = member.close()
        if not safe:
            self._status.say(f"What {member.name} wrote last may be lost with its worker.")
        elif not member.complete and member.place:
            self._status.say(f"Not all that {member.name} wrote is here: see {member.place}.")

    def _tell_to_end(self, member: ray_member.Member) -> None:
        with contextlib.suppress(Exception):  # Its machine may be gone.
            member.handle.terminate.remote()

    def _wait_for(self, members: Sequence[ray_member.Member], limit_s: float) -> None:
        """Polls processes until they have ended and what they wrote is here."""
        deadline = time.monotonic() + limit_s
        waiting = list(members)
        while waiting and time.monotonic() < deadline:
            for member in list(waiting):
                try:
                    member.poll(0.5)
                except Exception:  # Its machine is gone: nothing more comes from there.
                    waiting.remove(member)
                    continue
                if member.complete:
                    waiting.remove(member)
            time.sleep(0.1)


def _is_actor(member: ray_member.Member) -> bool:
    return member.name != telemetry.BROADCASTER
