"""The learner's checkpoints: writes snapshots beside learning, and restores one.

A checkpoint holds the learner's thread up only for TensorFlow's part, which must be of one step.
Then a thread of its own has Reverb write all tables (which holds inserts and samples up while the
server lists its items, not while it writes them) and completes the snapshot: replay is never older
than the networks. Learner's process only; imports no torch.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import os
import threading
import time
from typing import Any

from absl import logging
import reverb
from reverb.platform import checkpointers_lib
import tensorflow as tf

from actorQ.core import errors
from actorQ.core import snapshots

# What TensorFlow raises for a damaged file depends on where the damage is.
_READ_ERRORS = (
    AssertionError, ValueError, LookupError, RuntimeError, OSError, tf.errors.OpError
)
_LONGEST_WAIT_S = 120.0  # For the last checkpoint, at the end of the run.


class Checkpoints:
    """Takes snapshots of the learner and its tables.

    Attributes:
      seconds: that checkpoints took from the thread that calls `save`.
    """

    def __init__(
        self, store: snapshots.Store, client: reverb.Client, parts: Mapping[str, Any]
    ):
        """Takes what snapshots are made of.

        Args:
          store: of the run's snapshots.
          client: of the run's server, which was started with `checkpointer`.
          parts: every stateful part of learning, by name.
        """
        self._store = store
        self._client = client
        self._tensors = tf.train.Checkpoint(**parts)
        self._writing: threading.Thread | None = None
        self.seconds = 0.0

    @property
    def writing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._writing is not None and self._writing.is_alive()

    def restore(self, snapshot: snapshots.Snapshot) -> None:
        """Takes networks, targets and optimizers from a snapshot.

        Raises:
          errors.UserError: it is damaged, or of other networks.
        """
        try:
            status = self._tensors.read(snapshot.learner_prefix)
            status.assert_existing_objects_matched()
            status.expect_partial()
            self.seconds = snapshot.state.checkpoint_s
        except _READ_ERRORS as error:
            raise errors.UserError(
                f"The checkpoint {snapshot.folder} is damaged, or of other networks: "
                f"{errors.summary(error)}"
            ) from None

    def save(self, make_state: Callable[[], snapshots.State], wait: bool = False) -> None:
        """Starts a snapshot, unless one is still being written.

        What the disk refuses is logged; the snapshot before then stays.

        Args:
          make_state: called on this thread, after which learning may go on.
          wait: take a snapshot in any case, and wait for it (at most 120 seconds).
        """
        started = time.perf_counter()
        try:
            if self.writing:
                if not wait:
                    logging.info("The checkpoint before is still being written: none for now.")
                    return
                self._writing.join(_LONGEST_WAIT_S)
                if self.writing:
                    logging.warning("A checkpoint took too long to write: there is no newer one.")
                    return
            self._start(make_state)
            if wait:
                self._writing.join(max(0.0, _LONGEST_WAIT_S - (time.perf_counter() - started)))
                if self.writing:
                    logging.warning("The last checkpoint takes too long to write; it is left.")
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            self._give_up(error)
        finally:
            self.seconds += time.perf_counter() - started

    def _start(self, make_state: Callable[[], snapshots.State]) -> None:
        folder = self._store.begin()
        self._tensors.write(os.path.join(folder, snapshots.LEARNER_PREFIX))
        state = make_state()
        self._writing = threading.Thread(
            target=self._complete, args=(state,), daemon=True, name="checkpoint"
        )
        self._writing.start()

    def _complete(self, state: snapshots.State) -> None:
        try:
            self._store.commit(state, self._client.checkpoint())
        except Exception as error:  # Of any type: Reverb's for a full disk is an IndexError.
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Says why there is no new snapshot, and deletes what there is of it."""
        logging.warning(
            "No checkpoint could be written (%s): the one before stays.", errors.summary(error)
        )
        with contextlib.suppress(OSError):  # The room that it took is wanted elsewhere.
            self._store.discard()


def checkpointer(
    store: snapshots.Store, snapshot: snapshots.Snapshot | None
) -> checkpointers_lib.CheckpointerBase:
    """Returns Reverb's checkpointer, which starts the server with the tables of a snapshot.

    `reverb_folder` is always empty when a server starts: it holds a checkpoint only until that is
    moved, which also keeps Reverb from deleting the one before while the new one is not complete.
    """
    restored = None if snapshot is None else snapshot.replay_folder
    return checkpointers_lib.DefaultCheckpointer(
        store.reverb_folder, fallback_checkpoint_path=restored
    )
