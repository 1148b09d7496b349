"""The kinds of runs that experiments can be made of; each is a module that knows its command.

A new kind (a benchmark, someone else's agent) is one module with a `Kind` in it and a line here; it
gives the same `results.Measured`, with None for what it has not got. Imports no framework.
"""

from collections.abc import Mapping
from typing import Any
from typing import Protocol

from actorQ.core import errors
from actorQ.experiments import results
from actorQ.experiments import training
from actorQ.experiments.peers import kinds


class Kind(Protocol):
    """What the runner has to know about runs of one kind."""

    def defaults(self) -> dict[str, Any]:
        """Returns every setting's default."""

    def settle(
        self, given: Mapping[str, Any], task: str, precision: int, seed: int, smoke: bool
    ) -> dict[str, Any]:
        """Returns the complete settings of a run: all that its results depend on.

        Raises:
          errors.UserError: a setting is unknown, or its value not possible.
        """

    def command(self, settings: Mapping[str, Any], folder: str) -> list[str]:
        """Returns program and arguments; the run keeps its files below `folder`."""

    def cores(self, settings: Mapping[str, Any]) -> int:
        """Returns how many cores a run keeps busy."""

    def limit_s(self, settings: Mapping[str, Any]) -> float | None:
        """Returns after how many seconds a run ends in any case, or None."""

    def status(self, settings: Mapping[str, Any], folder: str, launched: float) -> str:
        """Returns how far a run is that was launched at a time (since 1970), in a few words."""

    def measure(
        self, settings: Mapping[str, Any], folder: str, launched: float, failure: str
    ) -> results.Measured | None:
        """Reads what a run that has ended has left.

        Args:
          settings: of the run.
          folder: of the run.
          launched: when, seconds since 1970.
          failure: the line with which it failed, or "".

        Returns:
          What was measured, or None where this failure is no outcome: the run is to be repeated.

        Raises:
          errors.UserError: a log is missing or damaged.
        """

    def tidy(self, folder: str) -> None:
        """Removes what nobody needs of a run that has its result: there may be hundreds."""


TRAINING = "training"
KINDS: dict[str, Kind] = {TRAINING: training.Training(), **kinds.PEERS}


def get(name: str) -> Kind:
    """Returns a kind.

    Raises:
      errors.UserError: there is none of this name.
    """
    if name not in KINDS:
        raise errors.UserError(f"There is no kind {name!r}: choose one of {', '.join(KINDS)}.")
    return KINDS[name]
