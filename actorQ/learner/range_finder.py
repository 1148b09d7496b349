"""A learner that finds its range of returns before its first step.

Learner's process only; imports no torch.
"""

from collections.abc import Callable
import math
from typing import Any
from typing import Protocol

from absl import logging

from actorQ.core import config as config_lib
from actorQ.learner import dataset
from actorQ.learner import return_ranges

_LOOK_STEPS = 50  # Learner steps between two looks whether returns have left the range.
_MOST_AHEAD_BYTES = 2**26  # Most bytes of batches that are fetched ahead; images take many.


class Range(Protocol):
    """A range that an algorithm's learner finds; its numbers lie in variables of TensorFlow."""

    def found(self) -> dict[str, float]:
        """Returns what was found, by its names in config.json; nothing before."""

    def find(self, windows: return_ranges.Windows, task: return_ranges.Task) -> str:
        """Sets the range; returns a line that says so."""

    def follow(self, lowest: float, highest: float, task: return_ranges.Task) -> str:
        """Widens the range if returns leave it; returns a line that says so, or "".

        Args:
          lowest: Lowest n-step return of any step so far.
          highest: Highest one.
          task: Facts of the task.
        """


class RangeFinder:
    """Stands for Acme's learner, and finds the range within the first call of `step`.

    That call may wait for data, as any step. A run that is resumed after it has the range in its
    checkpoint.
    """

    def __init__(
        self,
        learner: Any,
        found_range: Range,
        config: config_lib.RunConfig,
        task: return_ranges.Task,
        note: Callable[[dict[str, float]], None],
    ):
        """Takes the parts.

        Args:
          learner: Acme's learner, whose iterator is a `dataset.BatchIterator`.
          found_range: The algorithm's range.
          config: Discount, n, and sizes of batches and replay.
          task: Facts of the task.
          note: Records what was found.
        """
        self._learner = learner
        self._batches: dataset.BatchIterator = learner._iterator
        self._extremes: dataset.Extremes = self._batches.batches.extremes
        self._range = found_range
        self._config = config
        self._task = task
        self._note = note
        self._found = False
        self._steps = 0

    def resume(self) -> None:
        """Takes up the range of a checkpoint, if it was found before."""
        found = self._range.found()
        self._found = bool(found)
        if found:
            logging.info(
                "The checkpoint has the range of returns: %s.",
                ", ".join(f"{name} {value:g}" for name, value in found.items()),
            )
            self._note(found)

    def step(self) -> None:
        """Finds the range if need be, and updates the networks."""
        if not self._found:
            windows = return_ranges.summarize(
                *self._batches.look_ahead(batches_ahead(self._config, self._batches.batches)),
                self._config,
            )
            self._tell(self._range.find(windows, self._task))
            self._found = True
        elif self._steps % _LOOK_STEPS < self._config.learner_steps_per_call:
            self._tell(self._range.follow(*self._extremes.read(), self._task))
        self._learner.step()
        self._steps += self._config.learner_steps_per_call

    def _tell(self, line: str) -> None:
        if line:
            logging.info("%s", line)
            self._note(self._range.found())


def batches_ahead(config: config_lib.RunConfig, batches: dataset.Batches) -> int:
    """Returns how many batches show the range: as many transitions as --min_replay_size.

    Fewer do where replay gives away fewer samples of its first transitions, or where batches are
    large. The learner would otherwise wait for more transitions than for its first step.
    """
    most = math.ceil(config.min_replay_size / config.batch_size)
    if ratio := config.most_samples_per_insert:
        most = min(most, int(ratio * config.min_replay_size / config.batch_size))
    layout = batches.layout
    item_bytes = 4 * layout.vector_size
    if layout.pixels:
        item_bytes += math.prod(layout.frames_shape)
    return max(1, min(most, _MOST_AHEAD_BYTES // (item_bytes * config.batch_size)))
