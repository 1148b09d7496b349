"""n-step transitions, how they lie in replay, and the actor's way of writing them.

A transition is (observation, action, n-step return, n-step discount, next observation). In
Reverb it is one flat float32 vector (pixels: one uint8 array beside a short float32 vector): one
column instead of five makes an insert about half as expensive, and a batch for the learner about
2.5 times cheaper (measured with reverb 0.14, walker-sized observations: 49 to 25 us an insert,
2.1 to 0.8 ms a batch of 256). The learner slices it apart again, a whole batch at a time.

Used by actors (writing) and the learner (layout); imports no framework, Reverb comes in as an
argument.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import functools
import math
import threading
import time
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ import environments
from actorQ import errors

# Transitions that are handed to Reverb together, and rows that it compresses together. Measured
# with reverb 0.14 beside 80 to 200 us of other work a step: one at a time, an insert costs 50 to
# 59 us of this process's CPU time and 57 to 65 us of the server's; like this, 10 and 10. Samples
# cost what they cost from chunks of 1; from chunks of 16, up to a third more.
_VECTOR_BLOCK = 32
_PIXEL_BLOCK = 8
_CHUNK = 4

_CHECK_PERIOD_S = 2.0


class Transition(NamedTuple):
    """An n-step transition from time t-n to t.

    Attributes:
      observation: o_{t-n}.
      action: a_{t-n}, float32 [A] or an integer.
      reward: r_{t-n+1} + g d_{t-n+1} r_{t-n+2} + ...: the n-step return, with g the discount per
        step and d the environment's own discounts.
      discount: g^{n-1} d_{t-n+1} ... d_t. The learner multiplies by g once more.
      next_observation: o_t.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any


def failed_simulation(name: str) -> environments.TaskError:
    """Returns what says that a task gave something, or led to it, that is no number.

    Args:
      name: of it, with its article.
    """
    return environments.TaskError(
        f"a transition has {name} that is not finite as float32: the task's simulation has failed, "
        "or its rewards are too large; mend the task, or wrap it so that such an episode ends"
    )


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the parts of a transition lie in the flat vector.

    Order: observation, action, reward, discount, next observation; pixel observations lie in a
    uint8 array [2, H, W, C] of their own.
    """

    observation_shape: tuple[int, ...]
    pixels: bool
    action_size: int  # 1 for discrete actions, which are exact in float32 up to 2^24.
    discrete: bool

    @classmethod
    def of(cls, spec: environments.EnvironmentSpec) -> "Layout":
        """Returns the layout for an environment."""
        pixels = np.dtype(spec.observation_dtype) == np.uint8
        action_size = 1 if spec.discrete else spec.action_size
        return cls(tuple(spec.observation_shape), pixels, action_size, spec.discrete)

    @functools.cached_property
    def observation_size(self) -> int:
        """Float32 numbers that one observation takes in the flat vector."""
        return 0 if self.pixels else math.prod(self.observation_shape)

    @property
    def vector_size(self) -> int:
        """Length of the flat vector."""
        return 2 * self.observation_size + self.action_size + 2

    @property
    def frames_shape(self) -> tuple[int, ...]:
        """Shape of a transition's two pixel observations: [2, H, W, C]."""
        return (2, *self.observation_shape)

    def allocate(self, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns room for packed transitions.

        Returns:
          Vectors, float32 [rows, vector_size], and frames, uint8 [rows, 2, H, W, C] or None.
        """
        vectors = np.empty((rows, self.vector_size), np.float32)
        frames = np.empty((rows, *self.frames_shape), np.uint8) if self.pixels else None
        return vectors, frames

    def pack_into(
        self, transition: Transition, vector: np.ndarray, frames: np.ndarray | None
    ) -> None:
        """Copies a transition into one row of what `allocate` returned."""
        observation, action, reward, discount, next_observation = transition
        size = self.observation_size
        end = size + self.action_size
        if frames is None:
            vector[:size] = observation
            vector[end + 2 :] = next_observation
        else:
            frames[0] = observation
            frames[1] = next_observation
        vector[size:end] = action
        vector[end] = reward
        vector[end + 1] = discount

    def require_finite(self, vectors: np.ndarray) -> None:
        """Checks packed transitions, [rows, vector_size], all at once.

        Raises:
          environments.TaskError: a number is NaN or infinite, as float32.
        """
        finite = np.isfinite(vectors)
        if finite.all():
            return
        bad = ~finite[np.argmin(finite.all(axis=1))]  # Of the first such transition.
        size, end = self.observation_size, self.observation_size + self.action_size
        parts = {  # Causes before what comes of them.
            "an observation": bad[:size],
            "an action": bad[size:end],
            "a return over n steps": bad[end : end + 1],
            "a discount": bad[end + 1 : end + 2],
            "a next observation": bad[end + 2 :],
        }
        name = next(name for name, part in parts.items() if part.any())
        raise failed_simulation(name)

    def pack(self, transition: Transition) -> Any:
        """Returns what is inserted into Reverb: the vector, or (pixels, vector)."""
        vectors, frames = self.allocate(1)
        if frames is None:
            self.pack_into(transition, vectors[0], None)
            return vectors[0]
        self.pack_into(transition, vectors[0], frames[0])
        return (frames[0], vectors[0])

    def unpack(self, data: Any) -> Transition:
        """Slices a batch apart; works on numpy arrays and TensorFlow tensors alike.

        Args:
          data: float32 [B, vector_size], or (uint8 [B, 2, H, W, C], float32 [B, vector_size]).

        Returns:
          Arrays with B first; discrete actions are still float32 [B].
        """
        frames, vector = data if self.pixels else (None, data)
        size, actions = self.observation_size, self.action_size
        if self.pixels:
            observation, next_observation = frames[:, 0], frames[:, 1]
        else:
            observation, next_observation = vector[:, :size], vector[:, size + actions + 2 :]
        action = vector[:, size] if self.discrete else vector[:, size : size + actions]
        return Transition(
            observation,
            action,
            vector[:, size + actions],
            vector[:, size + actions + 1],
            next_observation,
        )


class NStepAccumulator:
    """Turns single steps into n-step transitions.

    Nothing is emitted until n steps are there; at an episode's end the windows of n-1, ..., 1
    steps that remain are emitted too, so that every environment step gives exactly one
    transition. Acme's NStepTransitionAdder writes the same ones bit for bit (float32 sums in the
    same order), and at an episode's start those of its first 1, ..., n-1 steps as well.
    """

    def __init__(self, n_step: int, discount: float):
        self._n_step = n_step
        self._discount = np.float32(discount)
        self._steps: collections.deque = collections.deque()
        self._last_observation: Any = None

    def first(self, observation: Any) -> None:
        """Starts an episode, forgetting what was left of the one before."""
        self._steps.clear()
        self._last_observation = observation

    def step(
        self, action: Any, reward: float, discount: float, observation: Any, last: bool
    ) -> list[Transition]:
        """Adds one environment step.

        Args:
          action: what was done at the observation before.
          reward: of this step.
          discount: the environment's: 0 at a terminal state, 1 elsewhere, time limits included.
          observation: that followed.
          last: whether the episode ends here.

        Returns:
          The transitions that this step completes: at most one, or all the rest when `last`.
        """
        self._steps.append(
            (self._last_observation, action, np.float32(reward), np.float32(discount))
        )
        self._last_observation = observation
        complete = []
        if len(self._steps) == self._n_step:
            complete.append(self._emit(observation))
        if last:
            while self._steps:
                complete.append(self._emit(observation))
        return complete

    def _emit(self, next_observation: Any) -> Transition:
        """Sums the window that is there, and drops its first step."""
        steps = iter(self._steps)
        observation, action, n_step_return, total_discount = next(steps)
        for _, _, reward, discount in steps:
            total_discount = total_discount * self._discount
            n_step_return = n_step_return + reward * total_discount
            total_discount = total_discount * discount
        self._steps.popleft()
        return Transition(observation, action, n_step_return, total_discount, next_observation)


class TransitionWriter:
    """Writes transitions into a Reverb table, in blocks.

    Reverb's writer has two threads in the background, which each item that is written alone wakes
    several times, in this process and in the server: most of the price of an insert. So
    transitions gather in a block here, and a whole block is handed over such that it is sent in
    one message. Rows of vectors also share chunks, the unit that Reverb compresses, sends and
    unpacks; images do not, since a sample would unpack all the images of its chunk.

    A block that is not full is sent with the first transition that comes `max_delay_s` after the
    block before: an actor slower than that sends each transition at once. A full block is
    confirmed while the next one gathers, and before that is sent; all others, with what was sent
    before, at once: the server is never further behind. Within a block, items have no order.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        layout: Layout,
        block_size: int | None = None,
        max_delay_s: float = 0.1,
        timeout_s: float = 30.0,
        check: Callable[[], Any] | None = None,
    ):
        """Opens the stream.

        Args:
          client: a reverb.Client.
          table: name of the replay table.
          layout: of the transitions.
          block_size: transitions; by default 32, or 8 with images.
          max_delay_s: see the class.
          timeout_s: longest wait for confirmation, seconds; for actors --transfer_timeout.
          check: called now and then during a long wait; raises when the server is gone.
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
        self._layout = layout
        self._vectors, self._frames = layout.allocate(block_size)
        self._block_size = block_size
        self._max_delay_s = max_delay_s
        self._timeout_s = timeout_s
        self._check = check
        self._gathered = 0
        self._sent_at = -math.inf

    def write(self, transition: Transition) -> None:
        """Inserts one transition with priority 1, now or together with later ones.

        Raises:
          environments.TaskError: of what gathered, something is not finite; none of it was sent.
          errors.LearnerGoneError: the server does not confirm in time.
          Exception: the server went away (Reverb's errors).
        """
        row, frames = self._gathered, self._frames
        self._layout.pack_into(
            transition, self._vectors[row], None if frames is None else frames[row]
        )
        self._gathered = row + 1
        if self._gathered == self._block_size:
            self._wait()  # For the block before; it had a block's time.
            self._send()
        elif time.monotonic() - self._sent_at >= self._max_delay_s:
            self.flush()

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends what has gathered and waits until all is confirmed.

        Args:
          timeout_s: longest wait, by default the writer's own.

        Raises:
          Exception: as `write`.
        """
        self._send()
        self._wait(timeout_s)

    def close(self) -> None:
        """Sends what is left and closes the stream."""
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        """Closes the stream without sending what is left; for a server that is gone.

        Reverb's writer would otherwise send it to the server that comes back.
        """
        self._gathered = 0
        # On a thread of its own: whatever state the stream is in, nobody waits for it.
        threading.Thread(target=self._writer.close, daemon=True, name="old writer").start()

    def _send(self) -> None:
        """Hands the block to Reverb's background threads; Reverb copies the rows."""
        if not self._gathered:
            return
        self._layout.require_finite(self._vectors[: self._gathered])
        last = self._gathered - 1
        rows = self._vectors
        if self._frames is not None:
            rows = list(zip(self._frames, self._vectors, strict=True))
        for row in rows[:last]:
            self._writer.append(row)
        if last:
            # Items leave in the order of this queue, and none before its chunk is complete. The
            # chunk of the row before the last is not, for now: its item, put first, holds the
            # others back until the last row comes, and then they leave in one message.
            self._create_items([-1, *range(-last, -1)])
        self._writer.append(rows[last])
        self._create_items([-1])
        self._gathered = 0
        self._sent_at = time.monotonic()

    def _create_items(self, offsets: Iterable[int]) -> None:
        """Makes items of rows, which are counted from the newest one, -1."""
        history = self._writer.history
        for offset in offsets:
            if self._layout.pixels:
                item = tuple(column[offset] for column in history)
            else:
                item = history[offset]
            self._writer.create_item(self._table, priority=1.0, trajectory=item)

    def _wait(self, timeout_s: float | None = None) -> None:
        """Waits until all that was sent is confirmed, at most `timeout_s` or the writer's own."""
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
                # An error before its time is a broken stream rather than Reverb's timeout (whose
                # type would have to be imported).
                if time.monotonic() < until:
                    raise
            if self._check is not None:
                self._check()
            # The check takes time as well, and Reverb takes a limit of 0 ms for none at all.
            if time.monotonic() >= deadline:
                raise errors.LearnerGoneError(
                    f"The learner did not confirm transitions within {timeout_s:g} s{hint or '.'}"
                )
