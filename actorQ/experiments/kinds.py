"""The kinds of runs that experiments can be made of; each is a module that knows its command.

A new kind, such as a benchmark, is one module with a `Kind` in it and a line here. It gives the
same `results.Measured`, with None for figures that it has not got. Imports no framework.
"""

from collections.abc import Mapping
from typing import Any
from typing import Protocol

from actorQ.core import errors
from actorQ.experiments import results
from actorQ.experiments import training
from actorQ.experiments.peers import kinds


class Kind(Protocol):
    """Everything that the runner knows about runs of one kind."""

    def defaults(self) -> dict[str, Any]:
        """Returns every setting's default."""

    def settle(
        self, given: Mapping[str, Any], task: str, precision: int, seed: int, smoke: bool
    ) -> dict[str, Any]:
        """Returns the complete settings of a run: all that its results depend on.

        Raises:
          errors.UserError: A setting is unknown, or its value is not possible.
        """

    def command(self, settings: Mapping[str, Any], folder: str) -> list[str]:
        """Returns program and arguments of a run that keeps its files below `folder`."""

    def cores(self, settings: Mapping[str, Any]) -> int:
        """Returns how many cores a run keeps busy."""

    def limit_s(self, settings: Mapping[str, Any]) -> float | None:
        """Returns after how many seconds a run ends in any case, or None."""

    def status(self, settings: Mapping[str, Any], folder: str, launched: float) -> str:
        """Returns how far a run is, in a few words; `launched` is in seconds since 1970."""

    def measure(
        self, settings: Mapping[str, Any], folder: str, launched: float, failure: str
    ) -> results.Measured | None:
        """Reads the logs of a run that has ended.

        Args:
          settings: Settings of the run.
          folder: Folder of the run.
          launched: Moment of the launch, seconds since 1970.
          failure: The line with which the run failed, or "".

        Returns:
          The measurement, or None if the failure is no outcome and the run is to be repeated.

        Raises:
          errors.UserError: A log is missing or damaged.
        """

    def tidy(self, folder: str) -> None:
        """Removes large files that nobody needs once a run has its result."""


TRAINING = "training"
KINDS: dict[str, Kind] = {TRAINING: training.Training(), **kinds.PEERS}


def get(name: str) -> Kind:
    """Returns a kind.

    Raises:
      errors.UserError: There is none of this name.
    """
    if name not in KINDS:
        raise errors.UserError(f"There is no kind {name!r}: choose one of {', '.join(KINDS)}.")
    return KINDS[name]
