"""The learner's checkpoints: writes snapshots beside learning, and restores one.

The networks of a snapshot belong to one step, so the learner's thread waits while TensorFlow writes
them. A thread of its own then makes Reverb write all tables and completes the snapshot: replay is
never older than the networks. Inserts and samples wait while the server lists its items, but not
while it writes them. Learner's process only; imports no torch.
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

# TensorFlow raises one of these for a damaged file, depending on where the damage is.
_READ_ERRORS = (
    AssertionError, ValueError, LookupError, RuntimeError, OSError, tf.errors.OpError
)
_LONGEST_WAIT_S = 120.0  # Longest wait for the last checkpoint, at the end of the run.


class Checkpoints:
    """Takes snapshots of the learner and its tables.

    Attributes:
      seconds: Seconds that checkpoints took from the thread that calls `save`.
    """

    def __init__(
        self, store: snapshots.Store, client: reverb.Client, parts: Mapping[str, Any]
    ):
        """Takes the parts that snapshots are made of.

        Args:
          store: Folder of the run's snapshots.
          client: Client of the run's server, which was started with `checkpointer`.
          parts: Every stateful part of learning, by name.
        """
        self._store = store
        self._client = client
        self._tensors = tf.train.Checkpoint(**parts)
        self._writing: threading.Thread | None = None
        self.seconds = 0.0

    @property
    def writing(self) -> bool:
        """Says whether a snapshot is being written."""
        return self._writing is not None and self._writing.is_alive()

    def restore(self, snapshot: snapshots.Snapshot) -> None:
        """Takes networks, targets and optimizers from a snapshot.

        Raises:
          errors.UserError: The snapshot is damaged, or belongs to other networks.
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

        If the disk is full, this is logged, and the snapshot before stays.

        Args:
          make_state: Is called on this thread; learning may go on afterwards.
          wait: Whether to take a snapshot in any case, and to wait for it, at most 120 seconds.
        """
        started = time.perf_counter()
        try:
            if self._is_written_within(_LONGEST_WAIT_S if wait else 0.0):
                self._start(make_state)
                left_s = max(0.0, _LONGEST_WAIT_S - (time.perf_counter() - started))
                if wait and not self._is_written_within(left_s):
                    logging.warning("The last checkpoint takes too long to write; it is left.")
            elif wait:
                logging.warning("A checkpoint took too long to write: there is no newer one.")
            else:
                logging.info("The checkpoint before is still being written: none for now.")
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            self._give_up(error)
        finally:
            self.seconds += time.perf_counter() - started

    def _is_written_within(self, seconds: float) -> bool:
        """Waits until no snapshot is being written; returns whether none is."""
        if self._writing is not None:
            self._writing.join(seconds)
        return not self.writing

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
        except Exception as error:  # Reverb raises an IndexError for a full disk, for example.
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Logs why there is no new snapshot, and deletes its files."""
        logging.warning(
            "No checkpoint could be written (%s): the one before stays.", errors.summary(error)
        )
        with contextlib.suppress(OSError):  # The files would take room that others need.
            self._store.discard()


def checkpointer(
    store: snapshots.Store, snapshot: snapshots.Snapshot | None
) -> checkpointers_lib.CheckpointerBase:
    """Returns Reverb's checkpointer, which starts the server with the tables of a snapshot.

    Reverb writes to a folder that is empty when a server starts: each checkpoint is moved away as
    soon as it is complete. So Reverb never deletes a checkpoint before the next one is complete.
    """
    restored = None if snapshot is None else snapshot.replay_folder
    return checkpointers_lib.DefaultCheckpointer(
        store.reverb_folder, fallback_checkpoint_path=restored
    )
