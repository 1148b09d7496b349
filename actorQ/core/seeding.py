"""Derives the seed of every process and component from the run's one seed."""

import zlib

import numpy as np


def derive(seed: int, role: str, index: int = 0) -> int:
    """Returns a seed for one component: equal inputs give equal seeds, others independent ones.

    Args:
      seed: The run's --seed, >= 0.
      role: Purpose of the seed, for example "actor environment".
      index: Number of the component where there are several, for example the actor id.

    Returns:
      An integer from 0 to 2**31 - 1, the range that every library takes.
    """
    sequence = np.random.SeedSequence([seed, zlib.crc32(role.encode()), index])
    return int(sequence.generate_state(1)[0] >> 1)
