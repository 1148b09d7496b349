"""Starts the process that plays evaluation episodes beside the learner, and talks to it.

The learner starts it, and nobody else knows it. A request is the policy's weights, in the format of
safetensors behind their length. The answer is a line of JSON. Both go through pipes. So the process
ends with the learner, whatever ends that.

Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import json
import os
import queue
import struct
import subprocess
import sys
import threading
from typing import BinaryIO

from absl import logging
import numpy as np
import safetensors.numpy

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import provenance
from actorQ.core import seeding
from actorQ.environments import evaluation

MODULE = "actorQ.evaluator_main"
_LENGTH = struct.Struct("<Q")
_MOST_FAILURES = 3  # Failures of one episode in a row.
_LOOK_S = 0.05  # Between two looks whether training has to end.
_STDERR = 2  # A library's output must not be lost, nor stand among answers.


def wanted(config: config_lib.RunConfig) -> bool:
    """Returns whether evaluation has a process, by --evaluator_process and the cores.

    With `auto` it has one where there is a core for it beside the learner's and the actors'.
    """
    if config.evaluator_process == "auto":
        return provenance.has_core_beside(config.n_actors)
    return config.evaluator_process == "on"


def read_request(stream: BinaryIO) -> dict[str, np.ndarray] | None:
    """Returns the weights of the next request; None when the learner is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    payload = stream.read(length)
    return safetensors.numpy.load(payload) if len(payload) == length else None


def write_answer(stream: BinaryIO, episode: evaluation.Episode) -> None:
    """Sends an episode to the learner."""
    stream.write(json.dumps(episode._asdict()).encode() + b"\n")
    stream.flush()


class EvaluatorProcess:
    """The learner's side. A thread talks to the process, so that no learner step waits for it."""

    def __init__(self, config: config_lib.RunConfig, learner_steps: int):
        """Starts the process.

        Args:
          config: The run's configuration.
          learner_steps: Learner steps of the run so far.
        """
        self._config = config
        self._learner_steps = learner_steps
        self._starts = 0
        self._requests: queue.Queue[bytes] = queue.Queue()
        self._answers: queue.Queue[evaluation.Episode | Exception] = queue.Queue()
        self._closed = False
        self._process, self._answer_stream = self._start()
        threading.Thread(target=self._work, daemon=True, name="evaluator").start()

    def begin(self, weights: Mapping[str, np.ndarray]) -> None:
        """Asks for an episode with these weights."""
        payload = safetensors.numpy.save(
            {name: np.ascontiguousarray(values) for name, values in weights.items()}
        )
        self._requests.put(_LENGTH.pack(len(payload)) + payload)

    def take(self, stop: Callable[[], bool], wait: bool) -> evaluation.Episode | None:
        """Returns the episode that was asked for, if it has been played.

        Args:
          stop: Ends a wait.
          wait: Whether to wait for the episode.

        Raises:
          errors.UserError: The process has failed several times.
        """
        while True:
            try:
                answer = self._answers.get(timeout=_LOOK_S) if wait else self._answers.get_nowait()
            except queue.Empty:
                if not wait or stop():
                    return None
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer

    def close(self) -> None:
        """Ends the process, which has nothing to lose."""
        self._closed = True
        self._process.kill()
        self._process.wait()

    def _start(self) -> tuple[subprocess.Popen[bytes], BinaryIO]:
        """Starts a process; returns it with the stream of its answers."""
        # Another start must not play the first start's episodes again.
        seed = seeding.derive(
            self._config.seed, "evaluation environment", self._learner_steps + self._starts
        )
        self._starts += 1
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", MODULE, *config_flags.to_flags(self._config),
                    f"--environment_seed={seed}", f"--answers_fd={writing}",
                ],
                stdin=subprocess.PIPE, stdout=_STDERR, pass_fds=[writing],
            )
        finally:
            os.close(writing)
        return process, os.fdopen(reading, "rb")

    def _work(self) -> None:
        while not self._closed:
            request = self._requests.get()
            try:
                self._answers.put(self._ask(request))
            except Exception as error:  # `take` raises it.
                self._answers.put(error)

    def _ask(self, request: bytes) -> evaluation.Episode:
        """Returns the answer to a request, of a new process if the present one fails."""
        for failures in range(1, _MOST_FAILURES + 1):
            stdin = self._process.stdin
            assert stdin is not None
            with contextlib.suppress(OSError):  # It has ended; so there is no answer either.
                stdin.write(request)
                stdin.flush()
            if line := self._answer_stream.readline():
                return evaluation.Episode(**json.loads(line))
            code = self._process.wait()
            if self._closed or failures == _MOST_FAILURES:
                break
            logging.warning(
                "The evaluator's process has ended with exit code %d: it is started again.", code
            )
            self._process, self._answer_stream = self._start()
        raise errors.UserError(
            f"The evaluator's process failed {_MOST_FAILURES} times in a row; its own lines above "
            "say why. --evaluator_process=off evaluates in the learner's process."
        )
