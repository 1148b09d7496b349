"""The run's Reverb server with all its tables; the learner's process hosts it.

Clients talk to it through `connection`. Imports Reverb and TensorFlow, no torch.
"""

import math
import sys
from typing import Any

import reverb
from reverb.platform import checkpointers_lib
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import provenance
from actorQ.core import settings
from actorQ.wire import card
from actorQ.wire import replay

_ITEM_BYTES = 1000  # Memory that Reverb takes for each item besides its numbers.
_OBSERVATIONS = 1_024  # Transitions for the meter: the newest of each 32, or 8 with images.
_MEMORY_SHARE = 0.25  # Part of the machine's memory for replay, if no size is asked for.


def make_tables(
    config: config_lib.RunConfig, layout: replay.Layout, prioritized: bool
) -> list[reverb.Table]:
    """Builds every table of a run.

    Args:
      config: Names and sizes of the tables.
      layout: Layout of the transitions.
      prioritized: Whether replay samples by priority (DQN) or uniformly.
    """
    vector = tf.TensorSpec((layout.vector_size,), tf.float32)
    frames = tf.TensorSpec((2, *layout.observation_shape), tf.uint8)
    message = (tf.TensorSpec((None,), tf.uint8), tf.TensorSpec((None,), tf.uint8))
    sampler = (
        reverb.selectors.Prioritized(config.priority_exponent)
        if prioritized and config.priority_exponent > 0
        else reverb.selectors.Uniform()
    )

    def mailbox(name: str, signature: Any, max_times_sampled: int = 0) -> reverb.Table:
        """Builds a table for one item, which a newer one replaces."""
        return reverb.Table(
            name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), max_size=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            max_times_sampled=max_times_sampled, signature=signature,
        )

    transition = (frames, vector) if layout.pixels else vector
    return [
        reverb.Table(
            config.replay_table_name,
            sampler,
            reverb.selectors.Fifo(),
            max_size=replay_capacity(config, layout),
            rate_limiter=_replay_limiter(config),
            max_times_sampled=config.replay_table_max_times_sampled,
            signature=transition,
        ),
        # Reverb stores a transition once for both tables. Samples of this one count for nothing.
        reverb.Table(
            settings.OBSERVATION_TABLE, reverb.selectors.Uniform(), reverb.selectors.Fifo(),
            max_size=_OBSERVATIONS, rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=transition,
        ),
        # Weights are sampled once: the broadcaster never converts the same ones twice.
        mailbox(config.broadcaster_table_name, message, max_times_sampled=1),
        mailbox(config.model_table_name, message),
        mailbox(config.shutdown_table_name, tf.TensorSpec((), tf.int32)),
        mailbox(settings.RUN_TABLE, tf.TensorSpec((len(card.NO_CARD),), tf.int64)),
    ]


def replay_capacity(config: config_lib.RunConfig, layout: replay.Layout) -> int:
    """Returns the largest number of transitions in replay."""
    if config.replay_table_max_replay_size:
        return config.replay_table_max_replay_size
    item_bytes = _ITEM_BYTES + 4 * layout.vector_size
    if layout.pixels:
        item_bytes += math.prod(layout.frames_shape)
    fitting = int(_MEMORY_SHARE * provenance.memory_bytes() / item_bytes)
    least = max(config.min_replay_size, config.batch_size)
    return max(least, min(config.most_transitions, fitting))


def _replay_limiter(config: config_lib.RunConfig) -> Any:
    """Returns a limiter that holds back samples but no inserts: actors wait for nobody."""
    ratio = config.samples_per_insert
    if not ratio:
        return reverb.rate_limiters.MinSize(config.min_replay_size)
    # Reverb allows a sample while  samples <= ratio * (inserts - min_replay_size).
    return reverb.rate_limiters.RateLimiter(
        samples_per_insert=ratio,
        min_size_to_sample=config.min_replay_size,
        min_diff=ratio * config.min_replay_size,
        max_diff=sys.float_info.max,
    )


def start_server(
    config: config_lib.RunConfig,
    tables: list[reverb.Table],
    checkpointer: checkpointers_lib.CheckpointerBase | None = None,
) -> reverb.Server:
    """Starts the server on `config.port` (0: any free port).

    Args:
      config: The port.
      tables: The tables that `make_tables` built.
      checkpointer: Writes checkpoints. If it holds one to start from, the tables' settings and
        counters are those of the checkpoint.

    Raises:
      errors.UserError: The port is in use or may not be used, or the checkpoint is damaged.
    """
    if config.port:
        ports.require_port(config.port)
    try:
        return reverb.Server(tables, config.port or None, checkpointer)
    except (RuntimeError, ValueError) as error:
        restored = getattr(checkpointer, "fallback_checkpoint_path", None)
        source = f" with the tables in {restored}, which may be damaged" if restored else ""
        raise errors.UserError(
            f"The Reverb server cannot start on port {config.port}{source}: {error}."
        ) from None
