"""Prints the resident bytes of a process that has loaded a policy's file and played it.

    python -m baseline.deploy.resident_memory policy.onnx

It prints two numbers, those of `memory.Resident`. `memory` runs it, and subtracts the bytes that
the runtime takes with next to nothing to play.
"""

import os
import sys

import numpy as np

from baseline.deploy import memory
from baseline.deploy import players

_CALLS = 20


def main() -> None:
    """Plays the file that the command line names."""
    policy = players.load(os.path.abspath(sys.argv[1]))
    observation = np.zeros(tuple(policy.shape), policy.dtype)
    for _ in range(_CALLS):
        policy(observation)
    print(*memory.resident(sys.argv[1]))


if __name__ == "__main__":
    main()
