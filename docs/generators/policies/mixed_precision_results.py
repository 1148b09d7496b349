"""Blocks of results/mixed-precision.md: trainings in bf16 beside fp32."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import statistics
from typing import Any
from typing import NamedTuple

from baseline.study import intervals
from baseline.study import paper
from docs.generators import tables

_FOLDER = tables.BASELINE_RESULTS / "mixed_precision"
_LEARNER = tables.ACTORQ_RESULTS / "learner_precision" / "report" / "learner_precision.csv"


class Speedup(NamedTuple):
    """Compares DQN on Pong in bf16 and in fp32, for one of the paper's policies.

    Attributes:
      policy: "A", "B" or "C".
      speedup: fp32's run time over bf16's, median of the turns.
      low: lower quartile of the turns.
      high: upper quartile of the turns.
      gradient: the same for gradient steps alone.
      paper: the paper's, with fp16.
    """

    policy: str
    speedup: float
    low: float
    high: float
    gradient: float
    paper: float


@functools.cache
def _timing(part: str = "") -> list[dict[str, str]]:
    return tables.csv_rows(_FOLDER / part / "mixed_precision_timing.csv")


def _find(policy: str, threads: int, half: bool, part: str = "") -> dict[str, str]:
    (found,) = [
        row for row in _timing(part)
        if (row["policy"], int(row["threads"]), row["precision"] != "fp32")
        == (policy, threads, half)
    ]
    return found


@functools.cache
def speedups(threads: int, part: str = "") -> dict[str, Speedup]:
    """Returns the speed-ups by policy.

    Args:
        threads: Threads of the training, 1 or 2.
        part: "" for bf16 by request, "auto" for the default, on one thread.
    """
    found = {}
    for policy in paper.MIXED_PRECISION:
        row = _find(policy, threads, True, part)
        numbers = [
            float(row[name])
            for name in ("speedup", "speedup_low", "speedup_high", "gradient_speedup",
                         "paper_speedup")
        ]
        found[policy] = Speedup(policy, *numbers)
    return found


def _named(policy: str) -> str:
    one = paper.MIXED_PRECISION[policy]
    return f"{policy} (3x{one.filters} filters, {one.units} units)"


def answer() -> str:
    """Returns the answer of the page."""
    one = [f"{found.speedup:.2f}" for found in speedups(1).values()]
    theirs = [f"{found.paper:.2f}" for found in speedups(1).values()]
    largest = max(row["deviation_of_means"] for row in _parity()["rows"])
    return (
        f"**Answer.** On one thread bf16 trains the three policies {_and(one)} times as fast\nas "
        f"fp32 (paper, fp16: {', '.join(theirs)}). The losses follow fp32's: running means\n"
        f"deviate by at most {100 * largest:.2f} %."
    )


def _and(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def speed() -> str:
    """Returns times of gradient steps, and speed-ups of the run time."""
    rows = []
    for policy in paper.MIXED_PRECISION:
        one, two = speedups(1)[policy], speedups(2)[policy]
        auto = speedups(1, "auto")[policy]
        times = [_find(policy, 1, half)["gradient_step_ms"] for half in (False, True)]
        rows.append([
            _named(policy), *(tables.number(float(time)) for time in times),
            f"{one.gradient:.2f}", f"{one.speedup:.2f} [{one.low:.2f}, {one.high:.2f}]",
            f"{two.speedup:.2f} [{two.low:.2f}, {two.high:.2f}]", f"{auto.speedup:.2f}",
            f"{one.paper:.2f}",
        ])
    head = ["Policy", "gradient step in fp32, ms", "in bf16, ms", "speed-up of gradient steps",
            "run time: speed-up, one thread", "two threads", "with `auto`, one thread",
            "the paper's, fp16"]
    return tables.table(head, rows)


def shares() -> str:
    """Returns the share of gradient steps in the run time, and peak memory."""
    rows = []
    for policy in paper.MIXED_PRECISION:
        for threads in (1, 2):
            sides = [_find(policy, threads, half) for half in (False, True)]
            rows.append([
                _named(policy) if threads == 1 else "", str(threads),
                *(f"{100 * float(row['gradient_share']):.0f} %" for row in sides),
                *(tables.number(float(row["hours_per_million_steps"]), 1) for row in sides),
                *(tables.number(float(row["peak_bytes"]) / 1e6) for row in sides),
            ])
    head = ["Policy", "threads", "gradient steps' share, fp32", "bf16",
            "hours per million steps, fp32", "bf16", "peak memory, fp32, MB", "bf16"]
    return tables.table(head, rows)


@functools.cache
def _parity() -> Any:
    return tables.read_json(_FOLDER / "mixed_precision_parity.json")


def losses() -> str:
    """Returns how far losses in bf16 deviate from those in fp32."""
    recorded = tables.csv_rows(_FOLDER / "mixed_precision_parity.csv")
    rows = []
    for one in _parity()["rows"]:
        policy = one["policy"]
        steps = [
            float(row[f"{policy}_{precision}"])
            for row in recorded for precision in ("fp32", one["precision"])
        ]
        rows.append([
            _named(policy), f"{one['mean_fp32']:.4f}", f"{one['mean']:.4f}",
            f"{100 * one['deviation_of_means']:.2f} %", f"{100 * one['deviation']:.0f} %",
            tables.number(max(steps) / min(steps)),
        ])
    head = ["Policy", "mean loss, fp32", "bf16", "largest deviation of a running mean",
            "of a single step", "largest loss of a step over the smallest"]
    return tables.table(head, rows)


def returns() -> str:
    """Returns mean returns of whole trainings of DQN in both precisions."""
    rows = []
    for part in ("acrobot", ""):
        measured = tables.csv_rows(_FOLDER / part / "mixed_precision_returns.csv")
        env = tables.read_json(_FOLDER / part / "mixed_precision_returns.json")["settings"]["env"]
        for precision in ("fp32", "bf16"):
            of_seeds = [
                float(row["mean"]) for row in measured if row["precision"] == precision
            ]
            rows.append([
                env if precision == "fp32" else "", precision,
                tables.number(float(measured[0]["steps"])),
                ", ".join(intervals.fixed(mean, 1) for mean in of_seeds),
                f"{statistics.mean(of_seeds):.1f} ± {statistics.stdev(of_seeds):.1f}",
            ])
    head = ["Task", "precision", "steps", "mean return of seeds 0, 1, 2", "mean ± deviation"]
    return tables.table(head, rows, text_columns=2)


def learner_losses() -> str:
    """Returns how far the losses of ActorQ's learner deviate in bfloat16."""
    found: Mapping[str, Any] = tables.read_json(_FOLDER / "actorq" / "learner_parity.json")
    rows = []
    for name, one in found["losses"].items():
        memory = found["peak_bytes"][name.partition(",")[0].lower()]
        small = one["deviation_of_means"] < 1e-4
        rows.append([
            name, f"{one['mean_fp32']:.3g}", f"{one['mean']:.3g}",
            "< 0.01 %" if small else f"{100 * one['deviation_of_means']:.2f} %",
            *(tables.number(memory[precision] / 1e6) for precision in ("float32", "bfloat16")),
        ])
    head = ["Learner's loss", "mean, float32", "bfloat16", "largest deviation of a running mean",
            "peak memory, float32, MB", "bfloat16"]
    return tables.table(head, rows)


def learner_returns() -> str:
    """Returns final rewards of ActorQ's trainings in both precisions of the learner."""
    rows = [
        [
            row["value"], row["seeds"],
            f"{float(row['final_reward']):.1f} ± {float(row['final_reward_std']):.1f}",
            f"{float(row['learner_steps_per_s']):.1f}",
        ]
        for row in sorted(tables.csv_rows(_LEARNER), key=lambda row: row["value"], reverse=True)
    ]
    return tables.table(["Learner's precision", "seeds", "final reward", "learner steps/s"], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "speed": speed, "shares": shares, "losses": losses, "returns": returns,
    "learner_losses": learner_losses, "learner_returns": learner_returns,
}
