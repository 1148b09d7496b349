"""Stand-ins for the objects that the learner's two threads work with."""

from unittest import mock

import numpy as np

from actorQ.environments import evaluation
from actorQ.learner import evaluator
from actorQ.learner import training
from actorQ.wire import connection


def status(**counters):
    """Returns a server's status with the given counters, and zero for the others."""
    names = connection.ServerStatus._fields
    return connection.ServerStatus(**{**dict.fromkeys(names, 0), "shutdown": False, **counters})


class Evaluator:
    """Plays episodes of given returns, and notes what is saved."""

    def __init__(self, returns=()):
        self.coming = list(returns)
        self.returns = []
        self.begun = None
        self.seconds = 0.0
        self.stop_rule_from = 0
        self.best_return = -np.inf
        self.stop_return = np.inf
        self.saved = []

    def begin(self, steps, actor_steps, stop):
        self.begun = None if stop() else (steps, actor_steps)

    @property
    def under_way(self):
        return self.begun is not None

    def take(self, stop, wait):
        del stop, wait
        if self.begun is None:
            return None
        self.returns.append(self.coming.pop(0))
        return evaluator.Played(evaluation.Episode(self.returns[-1], 20, 0.5), *self.begun)

    def finish(self):
        self.begun = None
        self.best_return = max(self.best_return, self.returns[-1])

    def reached_stop_return(self):
        return self.returns[-1] >= self.stop_return

    def save_policy(self, steps):
        self.saved.append(steps)


def make_parts(step=lambda: None, losses=lambda: {}, returns=()):
    """Makes the parts of a learner without networks, disk or server.

    Args:
      step: The learner's step.
      losses: Returns the newest losses.
      returns: Returns of the coming evaluation episodes.
    """
    publisher = mock.Mock(
        pushes=3, version=7, snapshot_s=0.25, insert_s=0.75, last_push=-np.inf, spec_set=[
            "publish", "pushes", "version", "snapshot_s", "insert_s", "last_push",
        ],
    )
    average = mock.Mock(spec_set=["after_steps"])
    checkpoints = mock.Mock(seconds=0.0, writing=False, spec_set=["save", "seconds", "writing"])
    logger = mock.Mock(spec_set=["write", "seconds", "lengths"])
    logger.seconds.return_value = 0.0
    logger.lengths.return_value = {"train.csv": 5}
    connected = mock.Mock(spec_set=["status"])
    connected.status.side_effect = lambda: status(transitions_inserted=100)
    return training.Parts(
        learner=mock.Mock(step=step, spec_set=["step"]),
        read_losses=losses,
        publisher=publisher,
        average=average,
        evaluator=Evaluator(returns),
        checkpoints=checkpoints,
        logger=logger,
        connection=connected,
    )
