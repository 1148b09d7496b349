"""Blocks of results/overview: the paper's claims, one by one, beside ours.

`baseline.report` computes most verdicts. The functions here add the claims that it lacks, each with
one rule, which its docstring states.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
import functools
import statistics

from actorQ.experiments import specification
from actorQ.experiments.run_logs import paper as actorq_paper
from actorQ.experiments.run_logs import times
from baseline.quantization import names
from baseline.report import actorq
from baseline.report import case_claims
from baseline.report import claims as claims_lib
from baseline.report import experiments
from baseline.report.claims import Claim
from baseline.study import paper
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from docs.generators import prose
from docs.generators import tables
from docs.generators.policies import qat_results
from docs.generators.training import energy
from docs.generators.training import reward_runs

_MAIN = experiments.MAIN
_WIDER = "wider_noise"
# Pages of the sections, with the names that tables give them.
_PAGES = {
    "ptq": "[PTQ](ptq.md)",
    "qat": "[QAT](qat.md)",
    "mixed_precision": "[Mixed precision](mixed-precision.md)",
    "deployment": "[Deployment](deployment.md)",
    "time_to_reward": "[Time to reward](time-to-reward.md)",
    "breakdown": "[An actor's time](breakdown.md)",
    "staleness": "[Staleness](staleness-and-communication.md)",
    "energy": "[Energy](energy.md)",
}
# Pages of experiments with a reward to hold; time-to-reward.md has the others.
_EXPERIMENTS = {
    "bfloat16_learner": "[Four precisions](time-to-reward-four-precisions.md)",
    "four_precisions": "[float32 learner](time-to-reward-float32-learner.md)",
    "learner_bound": "[Other libraries](time-to-reward-peers.md)",
    "time_to_reward_4096": "[3x4096](time-to-reward-4096.md)",
    "time_to_reward_six": "[Six further tasks](time-to-reward-six.md)",
    "time_to_reward_zen4": "[cartpole_balance](time-to-reward-cartpole-balance.md)",
    "wider_noise": "[cartpole_balance](time-to-reward-cartpole-balance.md)",
}
_HEAD = ("Claim", "The paper", "Ours", "Verdict", "Rule or limit", "Page")
_FP16 = "fp16"
_PULL, _DESERIALIZE, _LOAD = "pull", "deserialize", "load_state_dict"


def _table(claims: Iterable[Claim]) -> str:
    return tables.table(_HEAD, [
        [
            claim.claim, claim.published, claim.ours, energy.verdict(claim.verdict), claim.reason,
            _PAGES[claim.part],
        ]
        for claim in claims
    ], len(_HEAD))


def _page(row: experiments.Compared) -> str:
    return _EXPERIMENTS.get(row.experiment, _PAGES["time_to_reward"])


@functools.cache
def speedups() -> tuple[Claim, ...]:
    """Returns the claims on the time to the reward: those of the main experiment."""
    found = _ordered(experiments.main(energy.compared()))
    return tuple(claim for row in found for claim in _speedup(row))


def _ordered(rows: Iterable[experiments.Compared]) -> list[experiments.Compared]:
    """Returns comparisons by experiment, then in the order of the paper's tasks."""
    order = list(actorq_paper.SPEEDUPS)
    return sorted(rows, key=lambda row: (row.experiment, order.index(row.task)))


def _speedup(row: experiments.Compared) -> Iterator[Claim]:
    for claim in claims_lib.time_to_reward(row.task, row.target, row.seconds, row.seeds):
        text = f"{specification.short_task(row.task)}, `{row.experiment}`"
        reached = f"seeds that held it: {row.reached}"
        yield claim._replace(
            claim=text, reason="; ".join(part for part in (claim.reason, reached) if part)
        )


def _other_speedups() -> str:
    """Returns the same question with other settings: figures without verdicts."""
    lines = []
    for row in _ordered(experiments.variations(energy.compared())):
        for claim in _speedup(row):
            lines.append([claim.claim, claim.published, claim.ours, claim.reason, _page(row)])
    return tables.table(("Task, experiment", "The paper", "Ours", "Limits", "Page"), lines, 5)


def convergence() -> Claim:
    """Judges in how many comparisons int8's final reward is not below fp32's.

    It is not below where int8's mean over the seeds is at least fp32's mean less its standard
    deviation.
    """
    pairs = [
        (rows[reward_runs.FP32].final_rewards, rows[reward_runs.INT8].final_rewards)
        for name in (_MAIN, _WIDER)
        for rows in reward_runs.rows(name).values()
    ]
    kept = sum(
        statistics.mean(int8) >= statistics.mean(fp32) - statistics.stdev(fp32)
        for fp32, int8 in pairs
    )
    for name in ("final_reward", "final_reward_2048"):
        path = tables.ACTORQ_RESULTS / name / "report" / f"{name}.csv"
        sides = {row["precision"]: row for row in tables.csv_rows(path)}
        least = float(sides["fp32"]["final_reward"]) - float(sides["fp32"]["final_reward_std"])
        pairs.append(([], []))
        kept += float(sides["int8"]["final_reward"]) >= least
    return Claim(
        "time_to_reward", "Training converges as well with int8 actors", "convergence maintained",
        f"{kept} of {len(pairs)} comparisons", claims_lib.share(kept, len(pairs)),
        "int8's final reward at least fp32's mean less its deviation",
    )


def transfers() -> list[Claim]:
    """Judges what loading weights costs an actor, by measurement (kernels and update period).

    1. Reached if int8 shortens both pull and deserialize in all measurements.
    2. Reached if load_state_dict takes longer with fp16 and with int8 than with fp32 in all that
       look for weights every 30 steps.
    """
    cells = list(_phases())
    shorter = sum(
        cell["int8"][phase] < cell["fp32"][phase]
        for _, cell in cells for phase in (_PULL, _DESERIALIZE)
    )
    often = [cell for period, cell in cells if period == "30"]
    longer = sum(
        cell[side][_LOAD] > cell["fp32"][_LOAD] for cell in often for side in (_FP16, "int8")
    )
    most = max(phases[_LOAD] for cell in often for phases in cell.values())
    return [
        Claim(
            "breakdown", "int8 actors pull and deserialize faster", "both are shorter",
            f"shorter in {shorter} of {2 * len(cells)} cases", claims_lib.share(
                shorter, 2 * len(cells)
            ), "pull and deserialize, native kernels and torch, two update periods",
        ),
        Claim(
            "breakdown", "load_state_dict takes longer with fp16 and int8 at period 30",
            "a surprise of the paper", f"at most {most:.1f} µs a step at any precision",
            claims_lib.share(longer, 2 * len(often)),
            "our actors prepare weights in a thread beside their steps, within deserialize",
        ),
    ]


def _phases() -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """Yields the update period, and the phases' times by precision, of every measurement."""
    for name in ("breakdown", "breakdown_torch"):
        rows = tables.csv_rows(tables.ACTORQ_RESULTS / name / "report" / f"{name}.csv")
        for period in dict.fromkeys(row["value"] for row in rows):
            cell: dict[str, dict[str, float]] = {}
            for row in rows:
                if row["value"] == period:
                    phases = cell.setdefault(row["precision"], {})
                    phases[row["phase"]] = float(row["us_per_step"])
            yield period, cell


def communication() -> Claim:
    """Judges at how many widths of messages the final reward is not below that of 32 bits.

    It is not below where its mean is at least that of 32 bits less its standard deviation.
    """
    path = tables.ACTORQ_RESULTS / "communication" / "report" / "communication.csv"
    rows = {int(row["value"]): row for row in tables.csv_rows(path)}
    full = rows.pop(32)
    least = float(full["final_reward"]) - float(full["final_reward_std"])
    kept = sum(float(row["final_reward"]) >= least for row in rows.values())
    narrowest = rows[min(rows)]
    part = 100 * float(narrowest["message_part_of_fp32"])
    return Claim(
        "staleness", "Weights may travel in any number of bits", "frees bandwidth",
        f"kept at {kept} of {len(rows)} widths; {min(rows)} bits: {part:.0f} % of the bytes",
        claims_lib.share(kept, len(rows)),
        "final reward at least that of 32 bits less its deviation",
    )


def ptq_fp16() -> Iterator[Claim]:
    """Yields the verdicts on fp16 after training, by the rule of `claims.ptq` for int8."""
    path = str(tables.BASELINE_RESULTS / "ptq" / rows_lib.CSV_NAME)
    rows: list[rows_lib.Row] = rows_lib.read(path, rows_lib.Row)
    scheme = names.SCHEMES[0]
    found = sweeps_lib.sweeps(rows, [scheme], wanted=(_FP16, "8"))
    for algo, published in paper.MEANS.items():
        members = [sweep for sweep in found if sweep.algo == algo]
        mean = sweeps_lib.mean_error(members, scheme, _FP16)
        assert mean.fixed is not None, "Every algorithm has agents."
        verdict, reason = sweeps_lib.verdict(mean.fixed, published.error_fp16)
        yield Claim(
            "ptq", f"fp16 costs {algo.upper()} agents little reward (mean E)",
            f"{published.error_fp16:.2f} %", f"{mean.fixed.text()}, {mean.agents} agents", verdict,
            reason,
        )


def qat_beside_ptq() -> Claim:
    """Judges in how many cells (agent and width) QAT's mean reward is at least PTQ's."""
    counts = qat_results.counts()
    return Claim(
        "qat", "QAT does at least as well as PTQ", "consistently",
        f"{counts.at_least} of {counts.cells} cells; shown better: {counts.qat_better} QAT, "
        f"{counts.ptq_better} PTQ",
        claims_lib.share(counts.at_least, counts.cells), "mean reward of three trainings",
    )


@functools.cache
def _actorq_claims() -> tuple[Claim, ...]:
    """Returns the report's claims on ActorQ but those on single tasks."""
    found = actorq.claims(str(tables.ACTORQ_RESULTS), energy.compared())
    return tuple(one for one in found if one.part != "time_to_reward")


@functools.cache
def _unmeasured() -> Claim:
    (claim,) = claims_lib.unmeasured(row.task for row in experiments.main(energy.compared()))
    return claim


def _of(part: str) -> list[Claim]:
    return [claim for claim in _actorq_claims() if claim.part == part]


@functools.cache
def _training() -> tuple[Claim, ...]:
    return (
        *speedups(), _unmeasured(), convergence(), *_of("breakdown"), *transfers(),
        *_of("staleness"), communication(),
    )


@functools.cache
def _energies() -> tuple[Claim, ...]:
    return tuple(case_claims.energy(experiments.main(energy.compared())))


@functools.cache
def _after_training() -> tuple[Claim, ...]:
    results = tables.BASELINE_RESULTS
    return (
        *claims_lib.ptq(str(results / "ptq")), *ptq_fp16(),
        *claims_lib.widths(str(results / "findings")), *claims_lib.qat(str(results / "qat")),
        qat_beside_ptq(),
    )


@functools.cache
def _cases() -> tuple[Claim, ...]:
    results = tables.BASELINE_RESULTS
    return (
        *case_claims.mixed_precision(str(results / "mixed_precision")),
        *case_claims.deployment(str(results / "deployment")),
    )


def counts() -> Counter[str]:
    """Returns the number of claims by verdict."""
    every = (*_training(), *_energies(), *_after_training(), *_cases())
    return Counter(claim.verdict for claim in every)


_WORDS = {
    claims_lib.REACHED: "reached",
    claims_lib.PARTLY: "reached in part",
    claims_lib.MISSED: "missed",
    claims_lib.OPEN: "open",
    claims_lib.NONE: "not measured yet",
}


@prose.wrapped
def _answer() -> str:
    found = counts()
    parts = [f"{found[verdict]} {word}" for verdict, word in _WORDS.items() if found[verdict]]
    rows = experiments.main(energy.compared())
    ours = [times.speedup_between(*row.seconds).value for row in rows]
    theirs = [actorq_paper.SPEEDUPS[row.task].speedup for row in rows]
    return (
        "**Answer.** "
        f"This page judges {sum(found.values())} claims: {reward_runs.joined(parts)}. "
        f"On five tasks int8 actors hold the reward {min(ours):.2f} to {max(ours):.2f} times "
        f"sooner, where the paper has {min(theirs):.2f} to {max(theirs):.2f}."
    )


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "training": lambda: _table(_training()),
    "other_speedups": _other_speedups,
    "energy": lambda: _table(_energies()),
    "after_training": lambda: _table(_after_training()),
    "cases": lambda: _table(_cases()),
}
