"""Rows as a sweep would measure them, for the tests of tables and plots."""

import numpy as np

from baseline.study import rows as rows_lib

WEIGHTS = {
    "weight_min": -1.5, "weight_max": 2.25, "weight_range": 3.75, "weight_width": 0.4,
    "bytes": 18_000, "seconds": 1.25, "commit": "abc",
}
WIDTHS = tuple(str(width) for width in range(32, 0, -2))


def make_sweep(
    algo="ppo",
    env="CartPole-v1",
    widths=("fp16", "bf16", *WIDTHS),
    scheme="weights",
    reward=100.0,
    noise=20.0,
    episodes=30,
    seeds="0,2,4",
    knee=5.0,
    note="",
    rng_seed=0,
    **key,
):
    """Returns rows whose loss grows as 2^(knee - bits), up to all of the reward.

    The first is fp32's.
    """
    rng = np.random.default_rng([rng_seed, episodes])
    starts = reward + noise * rng.normal(size=episodes)
    base = rows_lib.Key(
        algo, env, "fp32", "weights", "paper", "nearest", seeds, episodes
    )
    fp32 = rows_lib.measured(base, starts, note=note, **WEIGHTS)
    rows = [fp32]
    for bits in widths:
        width = {"fp16": 11, "bf16": 8}.get(bits) or float(bits)
        loss = min(2.0 ** (2 * (knee - width)), 1.0)
        returns = starts - abs(reward) * loss + 0.01 * noise * rng.normal(size=episodes)
        row_key = base._replace(bits=bits, scheme=scheme, **key)
        rows.append(
            rows_lib.measured(
                row_key, returns, starts,
                **{**WEIGHTS, "bytes": int(WEIGHTS["bytes"] * min(width, 16) / 32)},
            )
        )
    return rows
