"""Tests `actorQ.core.seeding`."""

import itertools
import os
import pathlib
import subprocess
import sys

from actorQ.core import seeding

ROOT = pathlib.Path(__file__).parents[3]


def test_derive_equal_inputs_give_equal_seeds():
    assert seeding.derive(3, "actor noise", 2) == seeding.derive(3, "actor noise", 2)


def test_derive_any_input_changed_gives_another_seed():
    inputs = itertools.product(
        range(8), ("actor environment", "actor noise", "learner", "evaluation"), range(16)
    )
    seeds = [seeding.derive(*values) for values in inputs]
    # 512 draws of 31 bits collide by chance once in about 16,000 times; these do not.
    assert len(set(seeds)) == 512


def test_derive_extreme_seeds_stay_in_the_range_every_library_takes():
    for seed in (0, 1, 2**31 - 1, 2**40):
        for index in (0, 10_000):
            assert 0 <= seeding.derive(seed, "role", index) < 2**31


def test_derive_neighbouring_seeds_spread_over_the_range():
    # Uniform on [0, 2^31): the mean of 400 has a standard deviation of 0.0144 of the range.
    seeds = [seeding.derive(seed, "role") for seed in range(400)]
    assert abs(sum(seeds) / 400 / 2**31 - 0.5) < 0.06


def test_derive_other_process_with_other_hash_seed_agrees():
    code = "from actorQ.core import seeding; print(seeding.derive(5, 'actor noise', 3))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
    )
    assert result.stdout.strip() == str(seeding.derive(5, "actor noise", 3)), result.stderr
