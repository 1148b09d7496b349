"""Blocks of how/ptq-methods.md: what `auto` chooses among."""

from collections.abc import Callable

from baseline.quantization import recipes


def candidates() -> str:
    """Returns the candidates as a list."""
    return "\n".join(f"- `{method}`" for method in recipes.CANDIDATES)


BLOCKS: dict[str, Callable[[], str]] = {"candidates": candidates}
