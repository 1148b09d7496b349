"""The five main findings on the page's first screen, in words that the claims' figures fill."""

from collections.abc import Sequence
from typing import NamedTuple

from actorQ.experiments.run_logs import paper as actorq_paper
from actorQ.experiments.run_logs import times
from baseline.report import case_claims
from baseline.report import claims as claims_lib
from baseline.report import experiments


class Finding(NamedTuple):
    """A question of the paper, and what was measured.

    Attributes:
      part: Anchor of the section that has the details.
      question: The question.
      answer: Our figures beside the paper's.
    """

    part: str
    question: str
    answer: str


def findings(
    claims: Sequence[claims_lib.Claim], rows: Sequence[experiments.Compared]
) -> list[Finding]:
    """Returns the main findings; one without results says so.

    Args:
      claims: All claims of the page.
      rows: The comparisons that claims are judged by.
    """
    return [
        Finding("time_to_reward", "How much sooner do int8 actors learn?", _sooner(rows)),
        Finding("energy", "How much CO2 do they save?", _cleaner(rows)),
        Finding("ptq", "What does int8 cost a trained policy?", _lost(claims)),
        Finding("qat", "Does it help to train for few bits?", _trained(claims)),
        Finding("deployment", "What does int8 gain on a small device?", _deployed(claims)),
    ]


def _range(ratios: Sequence[times.Speedup]) -> str:
    ends = [find(ratios, key=lambda ratio: ratio.value).text() for find in (min, max)]
    return " to ".join(dict.fromkeys(ends))


def _sooner(rows: Sequence[experiments.Compared]) -> str:
    known = [row for row in rows if row.task in actorq_paper.SPEEDUPS]
    if not known:
        return claims_lib.NONE
    ours = _range([times.speedup_between(*row.seconds) for row in known])
    theirs = [actorq_paper.SPEEDUPS[row.task].speedup for row in known]
    return (
        f"Int8 actors were {ours} times as fast as fp32 actors on {len(known)} of the paper's"
        f" {len(actorq_paper.SPEEDUPS)} tasks. The paper has {min(theirs):.2f} to"
        f" {max(theirs):.2f} times there."
    )


def _cleaner(rows: Sequence[experiments.Compared]) -> str:
    ratios = [times.speedup_between(*row.grams) for row in rows if row.grams is not None]
    if not ratios:
        return claims_lib.NONE
    low, high = case_claims.PAPER_CO2
    return (
        f"A model of the machine's power gives {_range(ratios)} times less CO2 than with fp32"
        f" actors. The paper has {low} to {high} times."
    )


def _lost(claims: Sequence[claims_lib.Claim]) -> str:
    known = [
        claim for claim in claims if claim.part == "ptq" and "mean E" in claim.claim
        and claim.verdict != claims_lib.NONE
    ]
    if not known:
        return claims_lib.NONE
    losses = [
        f"{claim.claim.split()[2]} {claim.ours.partition(' [')[0]} ({claim.published})"
        for claim in known
    ]
    return f"These are mean losses of reward, with the paper's in brackets: {', '.join(losses)}."


def _trained(claims: Sequence[claims_lib.Claim]) -> str:
    known = [
        claim for claim in claims if claim.part == "qat" and claim.verdict != claims_lib.NONE
    ]
    if not known:
        return claims_lib.NONE
    kept = " and ".join(f"{claim.ours} down to {claim.published}" for claim in known)
    return f"The reward is kept, within 2 %, by {kept}. The paper has 5 or 6 bits for all."


def _deployed(claims: Sequence[claims_lib.Claim]) -> str:
    known = [
        claim for claim in claims if claim.part == "deployment" and " policy" in claim.claim
        and claim.claim.startswith("int8 is faster") and claim.verdict != claims_lib.NONE
    ]
    if not known:
        return claims_lib.NONE
    largest = known[-1]
    layers = largest.claim.rpartition(", ")[2]
    return (
        f"The {layers} plays so many times as fast as in fp32: {largest.ours}. The paper has"
        f" {largest.published} on a Raspberry Pi 3b."
    )
