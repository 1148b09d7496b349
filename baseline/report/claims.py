"""Sets the paper's claims beside our measurements, with a computed verdict.

A verdict is no opinion: every function reads committed figures and applies one rule, which its
docstring states. Imports no framework but matplotlib.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import NamedTuple

from actorQ.experiments.run_logs import paper as actorq_paper
from actorQ.experiments.run_logs import times
from baseline.quantization import names
from baseline.report import result_files
from baseline.study import paper
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from baseline.study import width_relation

REACHED, MISSED, OPEN = sweeps_lib.REACHED, sweeps_lib.MISSED, sweeps_lib.OPEN
PARTLY, NONE = "in part", "no results yet"
_ENOUGH_SEEDS = 3  # The paper averages as many runs.
_SCHEME, _INT8 = names.SCHEMES[0], "8"
_COMPARED = ("fp16", _INT8)  # The precisions of the paper's tables.
_QAT_WIDTHS = (6, 5)  # "QAT holds reward down to 5 or 6 bits".
_STALENESS = 5.0  # "Up to 5x in final reward".
_NOTICEABLE = 1.1


class Claim(NamedTuple):
    """A row of the summary.

    Attributes:
      part: Anchor of the section that has the details.
      claim: The paper's claim in words.
      published: The paper's figure.
      ours: Our own figure.
      verdict: REACHED, PARTLY, MISSED, OPEN or NONE.
      reason: The reason of the verdict, or its limits; may be empty.
    """

    part: str
    claim: str
    published: str
    ours: str = "–"
    verdict: str = NONE
    reason: str = ""


def ptq(folder: str) -> list[Claim]:
    """Judges the mean E of int8 of each algorithm by `sweeps.verdict`.

    Args:
      folder: The folder with the rows of `baseline.ptq`.

    Raises:
      errors.UserError: The file is damaged.
    """
    path = os.path.join(folder, rows_lib.CSV_NAME)
    rows: list[rows_lib.Row] = rows_lib.read(path, rows_lib.Row) if os.path.exists(path) else []
    sweeps = sweeps_lib.sweeps(rows, [_SCHEME], wanted=_COMPARED)
    claims = []
    for algo, published in paper.MEANS.items():
        claim = f"int8 costs {algo.upper()} agents little reward (mean E)"
        theirs = f"{published.error_int8:.2f} %"
        members = [sweep for sweep in sweeps if sweep.algo == algo]
        mean = sweeps_lib.mean_error(members, _SCHEME, _INT8)
        if mean.fixed is None:
            claims.append(Claim("ptq", claim, theirs))
            continue
        verdict, reason = sweeps_lib.verdict(mean.fixed, published.error_int8)
        ours = f"{mean.fixed.text()}, {mean.agents} agents"
        claims.append(Claim("ptq", claim, theirs, ours, verdict, reason))
    return claims


def widths(folder: str) -> list[Claim]:
    """Judges by the permutation test of `width_relation` whether wider weights lose more.

    Args:
      folder: The folder with findings.csv of `baseline.findings`.

    Raises:
      errors.UserError: The file is damaged.
    """
    path = os.path.join(folder, "findings.csv")
    if not os.path.exists(path):
        return []
    points = [
        width_relation.Point(
            row["algo"], row["env"],
            *(result_files.number(row, name, path) for name in ("width", "error", "low", "high")),
        )
        for row in result_files.read_csv(path)
    ]
    claims = []
    for over in (width_relation.ENVIRONMENTS, width_relation.ALGORITHMS):
        relation = width_relation.relation(points, over)
        holds = relation.p_wider <= width_relation.SIGNIFICANCE
        pairs = relation.agreeing + relation.opposing
        opposite = relation.p_narrower <= width_relation.SIGNIFICANCE
        verdict = OPEN if not pairs else REACHED if holds else MISSED if opposite else OPEN
        claims.append(
            Claim(
                "ptq", f"The wider the weights, the larger E, over {over}", "holds (3 agents each)",
                f"{relation.agreeing} of {pairs} pairs (p = {relation.p_wider:.3f})", verdict,
                "" if holds or opposite else "chance explains as much",
            )
        )
    return claims


def qat(folder: str) -> list[Claim]:
    """Judges how many agents QAT costs at most 2 % at every width down to 6, and to 5 bits.

    Args:
      folder: The folder with table.csv of `baseline.collate --qat`.

    Raises:
      errors.UserError: The file is damaged.
    """
    path = os.path.join(folder, "table.csv")
    agents: dict[tuple[str, ...], dict[int, float]] = {}
    for row in result_files.read_csv(path):
        if row.get("error_qat"):
            key = tuple(row.get(name, "") for name in ("algo", "env", "ranges"))
            bits = int(result_files.number(row, "bits", path))
            agents.setdefault(key, {})[bits] = result_files.number(row, "error_qat", path)
    claims = []
    for width in _QAT_WIDTHS:
        claim = f"Trained for it (QAT), policies keep their reward down to {width} bits"
        measured = [errors for errors in agents.values() if width in errors]
        if not measured:
            claims.append(Claim("qat", claim, f"{width} bits"))
            continue
        holding = sum(
            all(loss <= 100 * sweeps_lib.TOLERATED_LOSS for bits, loss in errors.items()
                if bits >= width)
            for errors in measured
        )
        claims.append(
            Claim(
                "qat", claim, f"{width} bits", f"{holding} of {len(measured)} agents",
                share(holding, len(measured)),
                f"E at most {100 * sweeps_lib.TOLERATED_LOSS:g} % at every width from there up",
            )
        )
    return claims


def faster(
    part: str,
    claim: str,
    published: float,
    speedup: times.Speedup,
    ours: str,
    limits: Sequence[str],
) -> Claim:
    """Judges a ratio.

    1. At the paper's figure or above: reached, or reached in part if there are limits.
    2. Above 1: reached in part.
    3. Else: not reached. A bound counts for what it proves: "> 0.9" leaves everything open.

    Args:
      part: See `Claim`.
      claim: See `Claim`.
      published: The paper's ratio.
      speedup: Our ratio.
      ours: Our ratio in words.
      limits: Limits of our measurement in words; empty ones do not count.
    """
    value, bound = speedup.value, speedup.bound
    limits = [limit for limit in limits if limit]
    if bound == "?" or value != value or (bound == "<" and value > 1):
        verdict = OPEN
    elif value >= published:
        verdict = PARTLY if limits else REACHED
    elif value > 1:
        verdict = PARTLY
    else:
        verdict = OPEN if bound == ">" else MISSED
    return Claim(part, claim, f"{published:.2f}x", ours, verdict, "; ".join(limits))


def few_seeds(seeds: int) -> str:
    """Returns the limit that too few seeds put on a verdict; "" if there are enough."""
    if seeds >= _ENOUGH_SEEDS:
        return ""
    return f"{seeds} seed{'s' * (seeds != 1)} a side: may be luck"


def unmeasured(tasks: Iterable[str], varied: Iterable[str] = ()) -> list[Claim]:
    """Returns one row for all tasks of the paper's table that were not measured here.

    Args:
      tasks: The tasks of the main experiment.
      varied: The tasks that were measured with other settings.
    """
    known, elsewhere = set(tasks), set(varied)
    lacking = [theirs for task, theirs in actorq_paper.SPEEDUPS.items() if task not in known]
    if not lacking:
        return []
    low, high = min(one.speedup for one in lacking), max(one.speedup for one in lacking)
    tasks_lacking = ", ".join(one.name for one in lacking)
    others = [
        theirs.name for task, theirs in actorq_paper.SPEEDUPS.items() if task in elsewhere - known
    ]
    return [
        Claim(
            "time_to_reward", f"int8 actors reach the reward sooner: {tasks_lacking}",
            f"{low:.2f}x to {high:.2f}x" if low != high else f"{low:.2f}x",
            reason=f"measured with other settings only: {', '.join(others)}" if others else "",
        )
    ]


def time_to_reward(
    task: str,
    target: float,
    seconds: tuple[times.Reach, times.Reach],
    seeds: int,
) -> list[Claim]:
    """Judges the time of int8 actors to a reward against that of fp32 actors.

    Args:
      task: 'suite,name'; a task that the paper does not have gives no claim.
      target: Return to reach.
      seconds: Times of fp32 and int8.
      seeds: Number of seeds of each side.
    """
    theirs = actorq_paper.SPEEDUPS.get(task)
    if theirs is None:
        return []
    speedup = times.speedup_between(*seconds)
    limits = [few_seeds(seeds)]
    # The paper prints two decimals; a target of 941 for its 941.22 is the same task.
    if abs(target - theirs.reward) > 0.005 * abs(theirs.reward):
        limits.insert(0, f"reward {target:g} in place of {theirs.reward:g}")
    words = f"{speedup.text()}{'x' if speedup.bound != '?' else ''}"
    ours = f"{words} ({seconds[0].text()} s to {seconds[1].text()} s)"
    return [
        faster(
            "time_to_reward", f"int8 actors reach the reward of {theirs.name} sooner",
            theirs.speedup, speedup, ours, limits,
        )
    ]


def breakdown(cells: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    """Judges whether inference is the largest phase of every fp32 actor's step.

    Args:
      cells: Microseconds of a step by phase, for each measurement of fp32.
    """
    claim = "Inference takes most of an fp32 actor's time"
    shares = {
        name: phases["step (inference)"] / sum(phases.values())
        for name, phases in cells.items()
        if "step (inference)" in phases and sum(phases.values()) > 0
    }
    if not shares:
        return [Claim("breakdown", claim, "the largest phase")]
    largest = sum(
        max(cells[name].values()) == cells[name]["step (inference)"] for name in shares
    )
    low, high = (f"{100 * end:.0f} %" for end in (min(shares.values()), max(shares.values())))
    return [
        Claim(
            "breakdown", claim, "the largest phase",
            f"{low if low == high else f'{low} to {high}'} of all phases",
            share(largest, len(shares)),
            f"the largest in {largest} of {len(shares)} measurements",
        )
    ]


def staleness(rewards: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    """Judges the best final reward over the worst: reached at 5, reached in part above 1.1.

    Args:
      rewards: Median final reward by update period, for each task and precision.
    """
    claim = "How stale the actors' weights are decides the final reward"
    ratios = [
        max(found.values()) / min(found.values())
        for found in rewards.values()
        if len(found) > 1 and min(found.values()) > 0
    ]
    if not ratios:
        return [Claim("staleness", claim, "up to 5x", verdict=OPEN if rewards else NONE)]
    best = max(ratios)
    verdict = REACHED if best >= _STALENESS else PARTLY if best > _NOTICEABLE else MISSED
    return [Claim("staleness", claim, "up to 5x", f"up to {best:.2f}x", verdict)]


def share(count: int, total: int) -> str:
    """Returns the verdict of a claim that holds in so many cases."""
    return REACHED if count == total else PARTLY if count else MISSED
