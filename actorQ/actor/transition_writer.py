"""Writes an actor's transitions into replay, in blocks.

Imports no framework; Reverb's client comes in as an argument.
"""

from collections.abc import Callable
from collections.abc import Iterable
import math
import threading
import time
from typing import Any

import numpy as np

from actorQ.core import errors
from actorQ.wire import replay

# Blocks are transitions handed to Reverb together, chunks are rows that it compresses together.
# CPU time of an insert with reverb 0.14, beside 80 to 200 us of other work in a step:
# - One at a time: 50 to 59 us in this process, 57 to 65 us in the server.
# - In these blocks and chunks: 10 us in each.
# Samples are as cheap from these chunks as from chunks of 1. Chunks of 16 make them up to a third
# more expensive.
_VECTOR_BLOCK = 32
_PIXEL_BLOCK = 8
_CHUNK = 4

_CHECK_PERIOD_S = 2.0


class TransitionWriter:
    """Writes transitions into a Reverb table, in blocks.

    Most of the price of an insert is waking threads: an item that is written alone wakes several,
    here and in the server. So transitions gather in a block, and a whole block leaves in one
    message. Rows of vectors also share chunks, the unit that Reverb compresses, sends and unpacks.
    Images do not share chunks, since a sample would unpack all the images of its chunk.

    When blocks are sent and confirmed:
    - A full block is sent at once. It is confirmed while the next one gathers.
    - A block that is not full is sent with the first transition that comes `max_delay_s` after the
      block before. It is confirmed at once. So a slow actor sends each transition at once.
    The server is never more than one block behind. Within a block, items have no order.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        layout: replay.Layout,
        block_size: int | None = None,
        max_delay_s: float = 0.1,
        timeout_s: float = 30.0,
        check: Callable[[], Any] | None = None,
        thinned_table: str = "",
    ):
        """Opens the stream.

        Args:
          client: A reverb.Client.
          table: Name of the replay table.
          layout: Layout of the transitions.
          block_size: Transitions in a block; by default 32, or 8 with images.
          max_delay_s: See the class.
          timeout_s: Longest wait for confirmation.
          check: Is called now and then during a long wait; raises when the server is gone.
          thinned_table: Name of a table that gets the last transition of each block, too; "": none.
        """
        if block_size is None:
            block_size = _PIXEL_BLOCK if layout.pixels else _VECTOR_BLOCK
        self._writer = client.trajectory_writer(num_keep_alive_refs=block_size)
        chunk = min(block_size, _CHUNK)
        chunks = {(0,): 1, (1,): chunk} if layout.pixels else {(): chunk}
        for path, length in chunks.items():
            self._writer.configure(
                path, num_keep_alive_refs=block_size, max_chunk_length=length
            )
        self._table = table
        self._thinned_table = thinned_table
        self._layout = layout
        self._vectors, self._frames = layout.allocate(block_size)
        self._block_size = block_size
        self._max_delay_s = max_delay_s
        self._timeout_s = timeout_s
        self._check = check
        self._gathered = 0
        self._sent_at = -math.inf

    def write(self, transition: replay.Transition) -> None:
        """Inserts one transition with priority 1, now or together with later ones.

        Raises:
          environments.TaskError: A number in the block is not finite; none of the block was sent.
          errors.LearnerGoneError: The server does not confirm in time.
          Exception: The server went away; Reverb raises various types.
        """
        row, frames = self._gathered, self._frames
        self._layout.pack_into(
            transition, self._vectors[row], None if frames is None else frames[row]
        )
        self._gathered = row + 1
        if self._gathered == self._block_size:
            self._wait()  # The block before had the time of a block to be confirmed.
            self._send()
        elif time.monotonic() - self._sent_at >= self._max_delay_s:
            self.flush()

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends the gathered transitions, and waits until all are confirmed.

        Args:
          timeout_s: Longest wait, by default the writer's own.

        Raises:
          Exception: The same as `write`.
        """
        self._send()
        self._wait(timeout_s)

    def close(self) -> None:
        """Sends the gathered transitions and closes the stream."""
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        """Closes the stream to a server that is gone, without sending the gathered transitions.

        Reverb's writer would otherwise send them to the server that comes back.
        """
        self._gathered = 0
        # A thread of its own closes the stream: nobody waits for it, whatever its state.
        threading.Thread(target=self._writer.close, daemon=True, name="old writer").start()

    def _send(self) -> None:
        """Hands the block to Reverb's background threads; Reverb copies the rows."""
        if not self._gathered:
            return
        self._layout.require_finite(self._vectors[: self._gathered])
        last = self._gathered - 1
        rows: np.ndarray | list[tuple[np.ndarray, np.ndarray]] = self._vectors
        if self._frames is not None:
            rows = list(zip(self._frames, self._vectors, strict=True))
        for row in rows[:last]:
            self._writer.append(row)
        if last:
            # Items leave in the order of this queue, and none before its chunk is complete. The
            # chunk of the row before the last is not complete yet. Its item, put first, holds the
            # others back until the last row comes; then all leave in one message.
            self._create_items([-1, *range(-last, -1)])
        self._writer.append(rows[last])
        self._create_items([-1])
        if self._thinned_table:
            self._writer.create_item(self._thinned_table, priority=1.0, trajectory=self._item(-1))
        self._gathered = 0
        self._sent_at = time.monotonic()

    def _create_items(self, offsets: Iterable[int]) -> None:
        """Makes items of rows; offsets count from the newest row, -1."""
        for offset in offsets:
            self._writer.create_item(self._table, priority=1.0, trajectory=self._item(offset))

    def _item(self, offset: int) -> Any:
        """Returns Reverb's reference to a row, counted from the newest, -1."""
        history = self._writer.history
        if self._layout.pixels:
            return tuple(column[offset] for column in history)
        return history[offset]

    def _wait(self, timeout_s: float | None = None) -> None:
        """Waits until everything sent is confirmed, at most `timeout_s` or the writer's own."""
        hint = ""
        if timeout_s is None:
            timeout_s, hint = self._timeout_s, ": is the link too slow? (See --transfer_timeout.)"
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            until = min(deadline, now + _CHECK_PERIOD_S)
            try:
                self._writer.flush(0, max(1, math.ceil(1000 * (until - now))))
                return
            except Exception:
                # An error before the time limit comes from a broken stream. Reverb's time-out is
                # told by the clock, as its type would have to be imported.
                if time.monotonic() < until:
                    raise
            if self._check is not None:
                self._check()
            # The check takes time as well, and a limit of 0 ms would mean none to Reverb.
            if time.monotonic() >= deadline:
                raise errors.LearnerGoneError(
                    f"The learner did not confirm transitions within {timeout_s:g} s{hint or '.'}"
                )
