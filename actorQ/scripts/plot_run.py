"""Draws a run's learning curve, throughput and quantization into RUN/plots.

python -m actorQ.scripts.plot_run RUN
"""

import argparse
from collections.abc import Sequence
import sys

from actorQ.core import output
from actorQ.experiments.run_logs import plots

_NAME = "plot_run"


def main(arguments: Sequence[str]) -> None:
    """Draws and prints the paths."""
    parser = argparse.ArgumentParser(
        f"python -m actorQ.scripts.{_NAME}",
        description="Draws a run's learning curve, throughput and quantization into RUN/plots.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder")
    for path in plots.plot_run(parser.parse_args(arguments).run):
        sys.stdout.write(path + "\n")


if __name__ == "__main__":
    output.run_script(_NAME, main)
