"""Prints the README's table of flags, so that the README never drifts from the code.

By hand:

    python -m actorQ.scripts.flags_table
"""

import dataclasses

from actorQ import config as config_lib


def rows() -> list[str]:
    """Returns a Markdown row for every flag: name, default, help."""
    lines = []
    for field in dataclasses.fields(config_lib.RunConfig):
        default = {None: "none", "": "empty"}.get(field.default, f"`{field.default}`")
        lines.append(f"| `--{field.name}` | {default} | {field.metadata['help']} |")
    return lines


def main() -> None:
    """Prints the table."""
    print("| Flag | Default | Meaning |\n| --- | --- | --- |")
    print("\n".join(rows()))


if __name__ == "__main__":
    main()
