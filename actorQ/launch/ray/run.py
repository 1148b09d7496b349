"""A run on a Ray cluster: where its processes are placed. Imports Ray when it is used."""

from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import os
import time
from typing import Any

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import presets
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line
from actorQ.launch import supervisor
from actorQ.launch.ray import member as ray_member
from actorQ.launch.ray import worker

_POLL_S = 1.0
_ANSWER_S = 20.0  # Longest time for a worker to answer.
_LEARNER_FIRST_S = 3.0  # Time for the learner to end where a peer has ended before it.


class RayRun:
    """The run's processes on the cluster."""

    def __init__(
        self,
        config: config_lib.RunConfig,
        learner_cpus: int,
        placement_timeout_s: float,
        status: status_line.StatusLine,
    ):
        """Takes the configuration with its final folder; starts nothing."""
        self._config = config
        self._learner_cpus = learner_cpus
        self._placement_timeout_s = placement_timeout_s
        self._status = status
        self._waiting: set[str] = set()  # Processes that were said to find no room.
        self._address = ""
        # A machine that has this file, too, shares the run's folder.
        self._mark = os.path.join(os.path.abspath(config.logpath), f".launch_{config.launch_id}")
        common = status, self._mention_wait
        folder = config.logpath
        self.learner = ray_member.Learner(
            telemetry.LEARNER, folder, self._place_learner, *common
        )
        self.actors = [
            ray_member.Member(
                telemetry.actor_name(actor_id), folder,
                functools.partial(self._place_actor, actor_id), *common,
            )
            for actor_id in range(1, config.n_actors + 1)
        ]
        broadcaster = ray_member.Member(
            telemetry.BROADCASTER, folder, self._place_broadcaster, *common
        )
        self._peers = [broadcaster, *self.actors]
        self._supervisor = supervisor.Supervisor(
            config, self.learner, self._peers, self.learner, status, _POLL_S, _LEARNER_FIRST_S
        )

    def run(self) -> int:
        """Runs to the end; returns the exit code. Leaves no process behind.

        Raises:
          errors.UserError: The cluster or a process failed.
        """
        import ray

        cli.on_stop_signals(self._supervisor.stop.set)
        try:
            return self._supervisor.run(self._start)
        except ray.exceptions.RayError as error:
            raise errors.UserError(f"Ray failed: {errors.summary(error)}") from None
        finally:
            with contextlib.suppress(OSError):
                os.remove(self._mark)

    def _start(self) -> bool:
        """Starts all processes; returns False if the run was interrupted meanwhile."""
        config = self._config
        if not self._has_room():
            return False
        files.write(self._mark, "")
        self.learner.start()
        self._address = self._wait_for_address()
        if not self._address:
            return False
        files.write(os.path.join(config.logpath, telemetry.ADDRESS_FILENAME), self._address)
        if not config.resume:
            self._status.say(f"Settings of {config.taskstr}: {presets.describe(config)}.")
        self._status.say(
            f"{config.taskstr}: learner at {self._address}, broadcaster and {config.n_actors} "
            f"actor{'s' if config.n_actors > 1 else ''} at {config.quantize} bits; logs in "
            f"{config.logpath}"
        )
        if not self._learner_shares_folder():
            self._status.say(
                f"The learner's machine has no {os.path.abspath(config.logpath)}: its checkpoints "
                "stay there, and this run cannot be resumed. A --logdir on a disk that all "
                "machines share changes that."
            )
        for peer in self._peers:
            peer.start()
        return True

    def _has_room(self) -> bool:
        """Waits for CPUs, and the learner's GPU; returns False if the run was interrupted.

        Raises:
          errors.UserError: The cluster has no room within --placement_timeout.
        """
        deadline = time.monotonic() + self._placement_timeout_s
        while problem := self._shortage():
            if time.monotonic() > deadline:
                raise errors.UserError(problem)
            if self._supervisor.stop.wait(_POLL_S):
                return False
        return True

    def _shortage(self) -> str:
        """Returns a sentence on the lack of CPUs or GPUs with its remedy; "" if there is none."""
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
        """Returns whether the learner wants a GPU and the cluster has any, free or not."""
        import ray

        wants_gpu = self._config.learner_device_placement == "GPU"
        return wants_gpu and ray.cluster_resources().get("GPU", 0) >= 1

    def _place_learner(self, arguments: Sequence[str]) -> Any:
        options: dict[str, Any] = {"num_cpus": self._learner_cpus, "max_restarts": 0}
        if self._learner_takes_gpu():
            options["num_gpus"] = 1
        config = self._config
        if config.evaluator_process == "auto":  # Other machines' actors take no core from it.
            beside = "on" if self._learner_cpus > 1 else "off"
            config = dataclasses.replace(config, evaluator_process=beside)
        if not config.learner_threads:  # By default the learner would leave cores to actors.
            threads = self._learner_cpus - int(config.evaluator_process == "on")
            config = dataclasses.replace(config, learner_threads=max(1, threads))
        return self._place(telemetry.LEARNER, processes.LEARNER_MODULE, config, options, arguments)

    def _place_broadcaster(self, arguments: Sequence[str]) -> Any:
        # The broadcaster's work is short and follows the learner's: it needs no CPU of its own.
        options = {
            "max_restarts": -1, "num_cpus": 0, "scheduling_strategy": self._beside_learner()
        }
        config = dataclasses.replace(self._config, server_address=self._address)
        return self._place(
            telemetry.BROADCASTER, processes.BROADCASTER_MODULE, config, options, arguments
        )

    def _place_actor(self, actor_id: int, arguments: Sequence[str]) -> Any:
        options = {"max_restarts": -1, "num_cpus": 1, "scheduling_strategy": "SPREAD"}
        config = dataclasses.replace(
            self._config, server_address=self._address, actor_id=actor_id
        )
        name = telemetry.actor_name(actor_id)
        return self._place(name, processes.ACTOR_MODULE, config, options, arguments)

    def _beside_learner(self) -> Any:
        import ray
        from ray.util import scheduling_strategies

        node_id = ray.get(self.learner.handle.node_id.remote(), timeout=_ANSWER_S)
        return scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=True)

    def _place(
        self, name: str, module: str, config: config_lib.RunConfig, options: dict[str, Any],
        arguments: Sequence[str],
    ) -> Any:
        import ray

        plain = dataclasses.replace(config, logpath=config_lib.RunConfig.logpath)
        # Other machines do not have this one's variables.
        country = energy.country() if config.track_energy else ""
        return ray.remote(worker.Worker).options(**options).remote(
            name, module, [*config_flags.to_flags(plain), *arguments], "", country, self._mark
        )

    def _wait_for_address(self) -> str:
        """Waits until the learner's server is up; returns "" if the run was interrupted meanwhile.

        Raises:
          errors.UserError: The learner does not come up.
        """
        import ray

        deadline = time.monotonic() + self._placement_timeout_s
        reference = None
        while not self._supervisor.stop.wait(0.2):
            reference = reference or self.learner.handle.address.remote()
            if ray.wait([reference], timeout=0.5)[0]:
                address, reference = ray.get(reference), None
                if address:
                    return address
                if self.learner.poll() is not None:
                    if self._config.resume and not self._learner_shares_folder():
                        raise errors.UserError(
                            "The learner's machine does not see the checkpoint in "
                            f"{os.path.abspath(self._config.logpath)}: bring the folder to a disk "
                            "that all machines share, or use ./run_multiprocess.sh here."
                        )
                    raise errors.UserError(
                        f"The learner did not start: it {self.learner.describe_end()}"
                        f"{self.learner.last_words()}"
                    )
            if time.monotonic() > deadline:
                raise errors.UserError(
                    "The learner was not up within --placement_timeout="
                    f"{self._placement_timeout_s:g} s: has any machine room for it?"
                )
        return ""

    def _learner_shares_folder(self) -> bool:
        import ray

        return bool(ray.get(self.learner.handle.shares_folder.remote(), timeout=_ANSWER_S))

    def _mention_wait(self, member: ray_member.Member) -> None:
        """Says once that a process is not placed.

        Raises:
          errors.UserError: No actor is placed: the run would wait for nothing.
        """
        waited = member.waited_s > self._placement_timeout_s
        if member.name in self._waiting or not waited or member is self.learner:
            return
        self._waiting.add(member.name)
        where = f"within --placement_timeout={self._placement_timeout_s:g} s"
        if not any(actor.place for actor in self.actors):
            raise errors.UserError(f"No actor found room on the cluster {where}.")
        self._status.say(f"{member.name} found no room on the cluster {where}; it goes on waiting.")
