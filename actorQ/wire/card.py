"""The learner's card: it tells clients whose learner they see, and which of its starts.

A client compares each card with the one before. It refuses a learner of another run, and counts a
learner that was started again as lost. Imports no framework.
"""

from typing import NamedTuple
from typing import Protocol

from actorQ.core import errors

# Losses in a row before a client gives up. A restart or any success resets the count.
_MAX_LOSSES = 3


class Card(NamedTuple):
    """A learner's entry in the run table, written once for each of its starts.

    Attributes:
      run_id: Random number of the run; a learner with another one belongs to another run.
      starts: How often the learner was started in this run; 0: it shows no card yet.
      version_offset: version = batches sampled + version_offset.
      launch_id: The --launch_id of the launcher that started the learner; 0: none.
    """

    run_id: int
    starts: int
    version_offset: int
    launch_id: int = 0

    def of_the_run(self, known: "Card", address: str) -> "Card":
        """Returns this card after a check that it belongs to the run of the card before.

        Args:
          known: The card before, or NO_CARD.
          address: HOST:PORT of the learner, for the message.

        Raises:
          errors.UserError: The cards belong to two runs.
        """
        if self.run_id and known.run_id and self.run_id != known.run_id:
            raise errors.UserError(
                f"The learner at {address} is another run's: the one of this run is gone."
            )
        return self if self.starts else known._replace(starts=0)


NO_CARD = Card(0, 0, 0)


class ShowsCard(Protocol):
    """A client's connection to a learner.

    Attributes:
      address: HOST:PORT of the learner.
    """

    address: str

    def card(self) -> Card:
        """Asks who the learner is."""


class Losses:
    """Counts how often in a row a client has lost its learner."""

    def __init__(self) -> None:
        """Starts at zero losses, with no card."""
        self._card = NO_CARD
        self._in_a_row = 0

    def card(self, learner: ShowsCard) -> Card:
        """Asks who the learner is; see `Connection.card`.

        Raises:
          errors.LearnerGoneError: The learner does not answer in time.
          errors.UserError: The learner belongs to another run than the one before.
        """
        card = learner.card().of_the_run(self._card, learner.address)
        if card.starts != self._card.starts:
            self._in_a_row = 0
        self._card = card
        return card

    def note(self, reason: errors.LearnerGoneError) -> None:
        """Counts one more loss.

        Raises:
          errors.LearnerGoneError: The reason again, if there were too many losses in a row.
        """
        self._in_a_row += 1
        if self._in_a_row > _MAX_LOSSES:
            raise reason

    def clear(self) -> None:
        """Resets the count after a success."""
        self._in_a_row = 0
