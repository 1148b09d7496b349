"""Sends a process's scalars to Weights & Biases, beside TensorBoard (--track=wandb).

The package wandb is optional, and is imported only where it is asked for. Each start of a process
is a run there, and all processes of a training are a group with the name of its folder. Imports no
framework.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import importlib.util
import os
import shlex
import sys
import threading
import time
from typing import Any

from absl import logging

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import provenance

WANDB = "wandb"
_PROJECT = "actorq"  # Project where WANDB_PROJECT names none.
_FINISH_S = 15.0  # Longest wait at the end for points to reach the service.
_COMPLAINT_PERIOD_S = 60.0


class Tracker:
    """A run of Weights & Biases. It never raises: a training goes on without it."""

    def __init__(self, run: Any):
        """Takes a run that `wandb.init` began."""
        self._run = run
        self._axes: set[str] = set()
        self._next_complaint = 0.0

    def write(self, log: str, step: int, scalars: Mapping[str, float]) -> None:
        """Sends one point of several scalars.

        Args:
          log: Name before the slash of all scalars; their steps are its own.
          step: Step of the point, as TensorBoard gets it. Steps may go back in a run that resumes.
          scalars: Values by their names in TensorBoard.
        """
        axis = f"{log}/step"
        with self._complaining():
            if log not in self._axes:
                self._run.define_metric(f"{log}/*", step_metric=axis)
                self._axes.add(log)
            self._run.log({**scalars, axis: step})

    def close(self) -> None:
        """Ends the run; what has not reached the service by then stays in the local files."""

        def finish() -> None:
            with self._complaining():
                self._run.finish()

        thread = threading.Thread(target=finish, daemon=True, name="wandb")
        thread.start()
        thread.join(_FINISH_S)

    @contextlib.contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # The package raises errors of many types.
            if time.monotonic() >= self._next_complaint:
                self._next_complaint = time.monotonic() + _COMPLAINT_PERIOD_S
                logging.warning(
                    "wandb takes no points (%s); the run goes on.", errors.summary(error)
                )


def require(config: config_lib.RunConfig) -> None:
    """Checks that the package is there if --track asks for it.

    Raises:
      errors.UserError: It is not; the message has the command that installs it.
    """
    if config.track == WANDB and importlib.util.find_spec(WANDB) is None:
        raise errors.UserError(
            f"--track=wandb needs a package that is not installed: {_install_command()}"
        )


def _install_command() -> str:
    constraints = os.path.join(provenance.ROOT, "constraints.txt")
    return shlex.join([sys.executable, "-m", "pip", "install", "-c", constraints, WANDB])


def start(config: config_lib.RunConfig, folder: str) -> Tracker | None:
    """Begins to track a process; returns None if --track does not ask for it.

    Args:
      config: Configuration of the run, which is sent, too.
      folder: Folder of the process's logs, which exists.

    Raises:
      errors.UserError: The package is missing or does not start. A process that was started again
        in a run under way goes on without it instead.
    """
    if config.track != WANDB:
        return None
    require(config)
    run_folder, process = os.path.split(os.path.abspath(folder))
    group = os.path.basename(run_folder)
    try:
        import wandb

        return Tracker(
            wandb.init(
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                group=group,
                job_type=process,
                name=f"{group}/{process}",
                dir=folder,
                config=dataclasses.asdict(config),
                settings=wandb.Settings(console="off", silent=True),
            )
        )
    except Exception as error:  # A missing login or connection is an error of one type or another.
        message = f"--track=wandb does not start: {errors.summary(error).rstrip('.')}."
        if config.restarts:
            logging.warning("%s The run goes on without it.", message)
            return None
        remedy = "WANDB_MODE=offline needs neither a login nor a connection."
        if isinstance(error, ImportError):  # Newer releases want another protobuf than TensorFlow.
            remedy = f"This release does not fit here; the following one does: {_install_command()}"
        raise errors.UserError(f"{message} {remedy}") from None
