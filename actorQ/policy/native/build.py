"""Builds the native kernels where they are missing; set-up runs it.

python -m actorQ.policy.native.build
"""

import os
import sys

from actorQ.core import errors
from actorQ.policy.native import compiling


def main() -> int:
    """Builds the library and prints its path; returns the exit code."""
    try:
        print("Native kernels:", os.path.relpath(compiling.build()))
    except errors.UserError as error:
        errors.report("actorQ.policy.native.build", str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
