"""Random transitions of several tasks, and Reverb tables to write them to."""

import numpy as np
import reverb

from actorQ.environments import base
from actorQ.wire import replay

VECTOR = base.EnvironmentSpec(
    (3,), np.dtype(np.float32), None, np.full(2, -1, np.float32), np.full(2, 1, np.float32)
)
DISCRETE = base.EnvironmentSpec((3,), np.dtype(np.float32), num_actions=4)
PIXELS = base.EnvironmentSpec((6, 5, 2), np.dtype(np.uint8), num_actions=4)
PIXELS_CONTINUOUS = base.EnvironmentSpec(
    (6, 5, 2), np.dtype(np.uint8), None, np.full(2, -1, np.float32), np.full(2, 1, np.float32)
)
SPECS = {"vector": VECTOR, "discrete": DISCRETE, "pixels": PIXELS,
         "pixels_continuous": PIXELS_CONTINUOUS}


def random_transition(spec, rng):
    """Returns a transition of a task, with random numbers in all its parts."""
    shape = spec.observation_shape
    if spec.observation_dtype == np.uint8:
        observations = rng.integers(0, 256, (2, *shape), np.uint8)
    else:
        observations = rng.normal(size=(2, *shape)).astype(np.float32)
    action = (
        int(rng.integers(spec.num_actions)) if spec.discrete
        else rng.normal(size=spec.action_size).astype(np.float32)
    )
    reward, discount = rng.normal(size=2).astype(np.float32)
    return replay.Transition(observations[0], action, reward, discount, observations[1])


def assert_equal_batch(batch, transitions):
    """Compares an unpacked batch with the transitions it was packed from, bit for bit."""
    for name in replay.Transition._fields:
        expected = np.stack([np.asarray(getattr(t, name)) for t in transitions])
        np.testing.assert_array_equal(np.asarray(getattr(batch, name)), expected)


def fifo_table(signature, name):
    """Returns a table whose samples come once each, in the order of inserts."""
    return reverb.Table(
        name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), max_size=10_000,
        max_times_sampled=1, rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature,
    )


def take(client, count, table):
    """Returns the columns of the `count` items of a table, and checks that there are no more."""
    assert client.server_info()[table].current_size == count
    return [item.data for item in client.sample(table, count, emit_timesteps=False)]
