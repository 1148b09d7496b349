"""Puts rows of results together to sweeps: what one agent earned at every precision.

A file may hold several evaluations of one agent, of other seeds or numbers of episodes. A sweep
takes one of them, since only rows of equal starts can be compared.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from baseline.quantization import names
from baseline.study import rows as rows_lib
from baseline.study.rows import Row
from baseline.tasks import environments

# Loss of reward that counts as none: E, as a fraction.
TOLERATED_LOSS = 0.02


@dataclasses.dataclass(frozen=True)
class Sweep:
    """One agent's rows of equal starts.

    Attributes:
      fp32: the row at full precision.
      quantized: the other rows by scheme and precision, the widest first.
    """

    fp32: Row
    quantized: Mapping[str, Mapping[str, Row]]

    @property
    def algo(self) -> str:
        """The algorithm."""
        return self.fp32.algo

    @property
    def env(self) -> str:
        """The environment, as in the file."""
        return self.fp32.env

    @property
    def shown_env(self) -> str:
        """The environment that was played: today's name, where the agent's is of the past."""
        return shown_env(self.env)


def shown_env(env: str) -> str:
    """Returns the environment that is played for a name: its successor's, with options."""
    options = environments.successor_kwargs(env)
    marks = [name if value is True else f"{name}={value}" for name, value in options.items()]
    name = environments.successor(env)
    return f"{name} ({', '.join(marks)})" if marks else name


def sweeps(
    rows: Sequence[Row],
    schemes: Sequence[str] = names.SCHEMES,
    granularity: str = "paper",
    rounding: str = "nearest",
    wanted: Sequence[str] = (),
) -> list[Sweep]:
    """Returns a sweep for each pair of algorithm and environment, sorted.

    Of several evaluations of a pair, the one with most of the wanted precisions is taken, of
    those the one of most episodes, of those the last. Without a row of fp32 there is no sweep.

    Args:
      rows: as `rows.read` gives them.
      schemes: to take, in this order.
      granularity: of the quantized rows.
      rounding: of the quantized rows.
      wanted: precisions that matter, e.g. ("fp16", "8"); none: all count.
    """
    candidates: dict[tuple[str, str], list[tuple[tuple[int, int], Sweep]]] = {}
    for fp32 in rows_lib.find(rows, bits=names.FP32):
        evaluation = {
            name: getattr(fp32, name) for name in ("algo", "env", "seeds", "episodes")
        }
        quantized = {
            scheme: _by_bits(
                rows_lib.find(
                    rows, scheme=scheme, granularity=granularity, rounding=rounding, **evaluation
                )
            )
            for scheme in schemes
        }
        count = sum(
            not wanted or bits in wanted for found in quantized.values() for bits in found
        )
        sweep = Sweep(fp32, {scheme: found for scheme, found in quantized.items() if found})
        candidates.setdefault((fp32.algo, fp32.env), []).append(((count, fp32.episodes), sweep))
    chosen = []
    for pair in sorted(candidates):
        # `max` would keep the first of equals.
        best = max(preference for preference, _ in candidates[pair])
        chosen.append([s for preference, s in candidates[pair] if preference == best][-1])
    return chosen


def _by_bits(rows: Sequence[Row]) -> dict[str, Row]:
    found = {row.bits: row for row in rows if row.bits != names.FP32}
    return {bits: found[bits] for bits in sorted(found, key=rows_lib.width_order)}


def best_width(rows: Mapping[str, Row]) -> Row | None:
    """Returns the row of the highest mean return among integer widths; of equals the narrowest."""
    widths = [row for bits, row in rows.items() if bits.isdecimal()]
    return max(widths, key=lambda row: (row.mean, -int(row.bits)), default=None)


def fewest_bits(rows: Mapping[str, Row], tolerated_loss: float = TOLERATED_LOSS) -> Row | None:
    """Returns the sweet spot: the narrowest width that is not shown to cost reward.

    That is a width at which, as at all wider ones that were measured, the interval of E reaches
    down to the tolerated loss. It has to hold for the wider ones as well: a policy that has lost
    everything can have an interval that reaches anywhere.

    Args:
      rows: by precision, of one scheme.
      tolerated_loss: E that counts as no loss.
    """
    fewest = narrowest({bits: row.error_low for bits, row in rows.items()}, tolerated_loss)
    return None if fewest is None else rows[fewest]


def narrowest(
    losses: Mapping[str, float | None], tolerated_loss: float = TOLERATED_LOSS
) -> str | None:
    """Returns the narrowest width that, as all wider ones, loses no more than is tolerated.

    Args:
      losses: by precision, of which widths count; None: not known, and so not kept.
      tolerated_loss: that counts as no loss.
    """
    fewest = None
    for bits in sorted((bits for bits in losses if bits.isdecimal()), key=int, reverse=True):
        loss = losses[bits]
        if loss is None or loss > tolerated_loss:
            break
        fewest = bits
    return fewest
