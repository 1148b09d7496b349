"""Cards of learners: whose they are, and how often a learner may be lost."""

from unittest import mock

import pytest

from actorQ.core import errors
from actorQ.wire import card as card_lib


def test_card_of_another_run_is_refused():
    first = card_lib.NO_CARD
    known = card_lib.Card(5, 1, 0).of_the_run(first, "here:1")
    assert known.run_id == 5
    assert card_lib.Card(5, 2, 9).of_the_run(known, "here:1").version_offset == 9
    # A learner that is not ready yet may be ours.
    waiting = card_lib.NO_CARD.of_the_run(known, "here:1")
    assert (waiting.run_id, waiting.starts) == (5, 0)
    with pytest.raises(errors.UserError, match="here:1 is another run's"):
        card_lib.Card(6, 1, 0).of_the_run(waiting, "here:1")


def test_losses_count_while_the_learner_is_the_same_and_nothing_was_done():
    learner, losses = mock.Mock(address="here:1"), card_lib.Losses()
    gone = errors.LearnerGoneError("gone.")

    def lose(starts):
        learner.card.return_value = card_lib.Card(5, starts, 0)
        assert losses.card(learner).starts == starts
        losses.note(gone)

    for _ in range(3):
        lose(starts=1)
    with pytest.raises(errors.LearnerGoneError, match="gone"):
        lose(starts=1)
    for _ in range(3):
        lose(starts=2)
    losses.clear()
    for _ in range(3):
        lose(starts=2)
    learner.card.return_value = card_lib.Card(6, 1, 0)
    with pytest.raises(errors.UserError, match="another run's"):
        losses.card(learner)
