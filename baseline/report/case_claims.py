"""The paper's claims on its case studies and on energy, beside ours; see `claims`."""

from collections.abc import Mapping
from collections.abc import Sequence
import glob
import itertools
import os

from actorQ.experiments import specification
from actorQ.experiments.run_logs import paper as actorq_paper
from actorQ.experiments.run_logs import times
from baseline.formats import names as deploy_formats
from baseline.report import claims as claims_lib
from baseline.report import experiments
from baseline.report import result_files
from baseline.report.claims import Claim
from baseline.study import paper

# CO2 of full-precision training over that of int8 actors; abstract of the journal version.
PAPER_CO2 = (1.9, 3.76)
_MOST_LOST = 5.0  # Our aim for every policy, in points of the success rate.
# Our aims for one file of the largest policy: column, name and least ratio.
_LEAST = {"speedup": ("as fast", 3.0), "file_ratio": ("file", 3.8), "memory_ratio": ("memory", 3.8)}
_BEST = "the best runtime counts, each against its own fp32"


def deployment(folder: str) -> list[Claim]:
    """Judges speed-up, success and memory of the paper's policies; the best runtime counts.

    Success is reached where the quantized policy loses at most 5 points, fewer than the paper's
    lost. The last claim holds our own aims for the largest policy: one file has to meet them all.

    Args:
      folder: The folder with deployment.csv of `baseline.deploy_benchmark`. Only rows count that
        it sets beside the paper's: 8 bits on the navigation task.

    Raises:
      errors.UserError: The file is damaged.
    """
    path = os.path.join(folder, "deployment.csv")
    rows = result_files.read_csv(path)
    claims = []
    policies = {
        theirs: (
            "-".join(map(str, theirs.layers)),
            [row for row in rows if row.get("paper_policy") == theirs.name],
        )
        for theirs in paper.DEPLOYMENT
    }
    for theirs, (layers, found) in policies.items():
        claims.append(_trained(theirs, layers, _figures(found, "fp32_success", path)))
        claim = f"int8 is faster on a small device, {layers} policy"
        claims.append(_ratio(claim, theirs.speedup, _figures(found, "speedup", path)))
        lost = theirs.fp32_success - theirs.int8_success
        claims.append(_succeeding(layers, lost, _figures(found, "success_change", path)))
    # The paper tells the memory of its largest policy only.
    layers, found = policies[max(paper.DEPLOYMENT, key=_num_weights)]
    figures = _figures(found, "memory_ratio", path)
    claim = f"int8 takes less memory, {layers} policy"
    claims.append(_ratio(claim, paper.DEPLOYMENT_MEMORY_RATIO, figures))
    claims.append(_all_at_once(layers, found, path))
    return claims


def mixed_precision(folder: str) -> list[Claim]:
    """Judges the speed-up of half precision for the paper's three policies.

    Args:
      folder: The folder with CSV files of `baseline.mixed_precision`. Rows without `policy` (A, B
        or C) and `speedup` are not judged.

    Raises:
      errors.UserError: A file is damaged.
    """
    rows = [
        (row, path)
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.csv")))
        for row in result_files.read_csv(path)
        if row.get("policy") and row.get("speedup")
    ]
    claims = []
    for name, theirs in paper.MIXED_PRECISION.items():
        speedups = {
            _side(row): result_files.number(row, "speedup", path)
            for row, path in rows
            if row["policy"] == name and (row.get("asked") or row.get("precision")) != "fp32"
        }
        claim = f"Half precision trains DQN on Pong at the paper's speed, {theirs.name}"
        claims.append(_ratio(claim, theirs.speedup, speedups, "mixed_precision"))
    return claims


def energy(rows: Sequence[experiments.Compared]) -> list[Claim]:
    """Judges CO2 to the reward, fp32 over int8, against the lower end of the paper's range.

    Args:
      rows: The comparisons to judge: those of `experiments.main`.
    """
    low, high = PAPER_CO2
    printed = f"{low}x to {high}x"
    found = []
    for row in rows:
        if row.grams is None:
            continue
        ratio = times.speedup_between(*row.grams)
        ours = f"{ratio.text()}{'x' if ratio.bound != '?' else ''} ({row.cpu_energy})"
        theirs = actorq_paper.SPEEDUPS.get(row.task)
        task = theirs.name if theirs else specification.short_task(row.task)
        claim = f"int8 actors need less CO2 to the reward of {task}"
        limits = (claims_lib.few_seeds(row.seeds),)
        judged = claims_lib.faster("energy", claim, low, ratio, ours, limits)
        found.append(judged._replace(published=printed))
    claim = "int8 actors need less CO2 to the same reward"
    return found or [Claim("energy", claim, printed)]


def _num_weights(policy: paper.Deployment) -> int:
    return sum(inputs * outputs for inputs, outputs in itertools.pairwise(policy.layers))


def _trained(theirs: paper.Deployment, layers: str, successes: Mapping[str, float]) -> Claim:
    """Judges the policy's success before it is quantized, which is the same for all runtimes."""
    claim = f"The policy flies to its goal in fp32, {layers} policy"
    published = f"{theirs.fp32_success:g} %"
    if not successes:
        return Claim("deployment", claim, published)
    success = 100 * max(successes.values())
    kept = int(success >= theirs.fp32_success)
    return Claim("deployment", claim, published, f"{success:.1f} %", claims_lib.share(kept, 1))


def _succeeding(layers: str, lost: float, changes: Mapping[str, float]) -> Claim:
    claim = f"int8 still flies to its goal, {layers} policy"
    published = f"{lost:g} points lost; our aim: at most {_MOST_LOST:g}"
    if not changes:
        return Claim("deployment", claim, published)
    ours = ", ".join(f"{name} {100 * change:+.1f}" for name, change in changes.items())
    kept = sum(round(-100 * change, 6) <= _MOST_LOST for change in changes.values())
    return Claim(
        "deployment", claim, published, f"{ours} points", claims_lib.share(kept, len(changes))
    )


def _all_at_once(layers: str, rows: Sequence[Mapping[str, str]], path: str) -> Claim:
    """Judges the runtime that meets most of our own aims."""
    claim = f"One int8 file has all of it, {layers} policy"
    aims = ", ".join(f"{what} {least:g}x" for what, least in _LEAST.values())
    published = f"our aim: {aims}"
    if not rows:
        return Claim("deployment", claim, published)
    columns = {name: _figures(rows, name, path) for name in _LEAST}
    best, ours = 0, ""
    for runtime in _figures(rows, "speedup", path):
        values = {name: column.get(runtime) for name, column in columns.items()}
        met = sum(value is not None and value >= _LEAST[name][1] for name, value in values.items())
        if not ours or met > best:
            best = met
            ours = f"{runtime}: " + ", ".join(
                f"{_LEAST[name][0]} {value:.2f}x" for name, value in values.items()
                if value is not None
            )
    return Claim("deployment", claim, published, ours, claims_lib.share(best, len(_LEAST)))


def _ratio(
    claim: str, published: float, found: Mapping[str, float], part: str = "deployment"
) -> Claim:
    if not found:
        return Claim(part, claim, f"{published:.2f}x")
    ours = ", ".join(f"{name} {value:.2f}x" for name, value in found.items())
    best = times.Speedup(max(found.values()))
    # The paper's own figure may be a loss (0.87x): a ratio as good as that has reached it.
    judged = claims_lib.faster(part, claim, published, best, ours, ())
    return judged._replace(reason=_BEST) if part == "deployment" and len(found) > 1 else judged


def _side(row: Mapping[str, str]) -> str:
    """Returns 'bf16 on 1 thread'."""
    threads = row.get("threads")
    return row.get("precision", "") + (
        f" on {threads} thread{'s' * (threads != '1')}" if threads else ""
    )


def _figures(rows: Sequence[Mapping[str, str]], name: str, path: str) -> dict[str, float]:
    """Returns a column's numbers by runtime, without blanks.

    Where several agents have the same runtime, its name is numbered.
    """
    figures = {}
    for number, row in enumerate(rows):
        kind = row.get("format", "")
        before = sum(other.get("format", "") == kind for other in rows[:number])
        runtime = deploy_formats.RUNTIMES.get(kind, kind) + f" ({before + 1})" * bool(before)
        if row.get(name):
            figures[runtime] = result_files.number(row, name, path)
    return figures
