"""Prints the README's tables of flags, so that the README never drifts from the code.

By hand:

    python -m actorQ.scripts.flags_table
    python -m actorQ.scripts.flags_table --experiments
    python -m actorQ.scripts.flags_table --cluster
    python -m actorQ.scripts.flags_table --ray
"""

import dataclasses
import sys

from actorQ.core import config as config_lib
from actorQ.experiments import run as experiments
from actorQ.experiments.cluster import __main__ as cluster
from actorQ.launch.ray import cluster as ray_cluster


def rows() -> list[str]:
    """Returns a Markdown row for every flag: name, default, help."""
    lines = []
    for field in dataclasses.fields(config_lib.RunConfig):
        default = {None: "none", "": "empty"}.get(field.default, f"`{field.default}`")
        lines.append(f"| `--{field.name}` | {default} | {field.metadata['help']} |")
    return lines


def ray_rows() -> list[str]:
    """Returns a Markdown row for every flag that only `launch_ray` has."""
    return experiments.flag_rows(ray_cluster.define_flags)


def main() -> None:
    """Prints one of the tables."""
    tables = {
        "--experiments": experiments.flag_rows, "--cluster": cluster.flag_rows, "--ray": ray_rows,
    }
    lines = next((tables[name] for name in sys.argv[1:] if name in tables), rows)()
    print("| Flag | Default | Meaning |\n| --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
