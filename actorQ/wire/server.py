"""The run's Reverb server with all its tables; the learner's process hosts it.

Clients talk to it through `wire`. Imports Reverb and TensorFlow, no torch.
"""

import sys
from typing import Any

import reverb
from reverb.platform import checkpointers_lib
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import settings
from actorQ.wire import card
from actorQ.wire import replay


def make_tables(config: config_lib.RunConfig, layout: replay.Layout, prioritized: bool) -> list:
    """Builds every table of a run.

    Args:
      config: names and sizes.
      layout: of the transitions.
      prioritized: whether replay samples by priority (DQN) or uniformly.
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
        """One item, the newest wins."""
        return reverb.Table(
            name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), max_size=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            max_times_sampled=max_times_sampled, signature=signature,
        )

    return [
        reverb.Table(
            config.replay_table_name,
            sampler,
            reverb.selectors.Fifo(),
            max_size=config.replay_table_max_replay_size,
            rate_limiter=_replay_limiter(config),
            max_times_sampled=config.replay_table_max_times_sampled,
            signature=(frames, vector) if layout.pixels else vector,
        ),
        # Sampled once: the broadcaster never converts the same weights twice.
        mailbox(config.broadcaster_table_name, message, max_times_sampled=1),
        mailbox(config.model_table_name, message),
        mailbox(config.shutdown_table_name, tf.TensorSpec((), tf.int32)),
        mailbox(settings.RUN_TABLE, tf.TensorSpec((len(card.NO_CARD),), tf.int64)),
    ]


def _replay_limiter(config: config_lib.RunConfig) -> Any:
    """Holds sampling back, never inserts: actors are not to wait for the learner."""
    ratio = config.samples_per_insert
    if not ratio:
        return reverb.rate_limiters.MinSize(config.min_replay_size)
    # A sample is allowed while  samples <= ratio * (inserts - min_replay_size).
    return reverb.rate_limiters.RateLimiter(
        samples_per_insert=ratio,
        min_size_to_sample=config.min_replay_size,
        min_diff=ratio * config.min_replay_size,
        max_diff=sys.float_info.max,
    )


def start_server(
    config: config_lib.RunConfig,
    tables: list,
    checkpointer: checkpointers_lib.CheckpointerBase | None = None,
) -> reverb.Server:
    """Starts the server on `config.port` (0: any free port).

    Args:
      config: says the port.
      tables: of `make_tables`.
      checkpointer: writes checkpoints, and may have one to begin with (then the settings of the
        tables, and their counters, are those of the checkpoint).

    Raises:
      errors.UserError: the port is in use or may not be used, or the checkpoint is damaged.
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
