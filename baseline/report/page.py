"""The page as a whole: introduction, summary, sections."""

from collections.abc import Sequence

from actorQ.core import provenance
from baseline.report import actorq
from baseline.report import case_claims
from baseline.report import claims as report_claims
from baseline.report import experiments
from baseline.report import markup
from baseline.report import sections as report_parts
from baseline.report import style

_TITLE = "Quantized reinforcement learning: the paper's results and ours"
_SOURCE = "https://arxiv.org/abs/1910.01055"
_COLOURS = {
    report_claims.REACHED: "good", report_claims.PARTLY: "part", report_claims.MISSED: "bad",
    report_claims.OPEN: "open", report_claims.NONE: "open",
}
_COLUMNS = ("Claim of the paper", "Paper", "Ours", "Verdict")
_TERMS = (
    ("fp32, fp16, bf16", "Numbers as computers usually hold them, with 32 or 16 bits each."),
    ("int8, int4, 2 bits", "Whole numbers of so many bits, with one scale for many of them: 256, "
     "16 or 4 different values. An int8 network takes a quarter of the memory of fp32."),
    ("Return, reward", "What an agent earns in an episode; higher is better, also where all are "
     "negative."),
    ("E", "The share of the reward that quantization costs: (fp32 - quantized) / |fp32|. 0 % is "
     "no loss, below zero a gain. In brackets: where it lies with 95 % confidence."),
    ("PTQ, QAT", "Quantized after training, or trained for it (quantization-aware)."),
    ("Speed-up", "Time with fp32 over time with the other precision: 2x is half the time. "
     "\"> 2\" is a bound: fp32 had not finished when its time was up."),
    ("Actor, learner", "ActorQ trains with processes that play (actors) and one that learns. Only "
     "the actors' copy of the policy is quantized."),
    ("Seed", "A repetition with other random numbers. One seed proves little: trainings differ "
     "by luck alone."),
)
_RULES = {
    report_claims.REACHED: "our figure is as good as the paper's (or as our own aim, where one "
    "is named) or better",
    report_claims.PARTLY: "there is a gain, but a smaller one, not in all cases, or of fewer "
    "repetitions than the paper's",
    report_claims.MISSED: "there is no gain, or a loss above the paper's",
    report_claims.OPEN: "what was measured leaves it open",
}


def build(baseline_results: str, actorq_results: str, command: str) -> str:
    """Returns the page; the same files give the same page but for command, commit and date.

    Args:
      baseline_results: folder of the baseline's results.
      actorq_results: folder of ActorQ's results.
      command: that this page is made with.

    Raises:
      errors.UserError: a file is damaged.
    """
    compared = experiments.compared(actorq_results)
    sections = [
        part(baseline_results)
        for part in (
            report_parts.ptq, report_parts.qat, report_parts.mixed_precision,
            report_parts.deployment,
        )
    ]
    sections += actorq.sections(actorq_results)
    sections.append(actorq.energy(actorq_results, compared))
    claims = _claims(baseline_results, actorq_results, compared)
    return _page(sections, claims, command)


def _claims(
    baseline_results: str,
    actorq_results: str,
    compared: Sequence[experiments.Compared],
) -> list[report_claims.Claim]:
    def folder(name: str) -> str:
        return f"{baseline_results}/{name}"

    return [
        *report_claims.ptq(folder("ptq")),
        *report_claims.widths(folder("findings")),
        *report_claims.qat(folder("qat")),
        *case_claims.mixed_precision(folder("mixed_precision")),
        *case_claims.deployment(folder("deployment")),
        *actorq.claims(actorq_results, compared),
        *case_claims.energy(compared),
    ]


def _page(
    sections: Sequence[report_parts.Section],
    claims: Sequence[report_claims.Claim],
    command: str,
) -> str:
    links = [("summary", "Summary"), ("reading", "How to read the tables")]
    links += [(one.anchor, one.title) for one in sections]
    items = "".join(f'<li><a href="#{anchor}">{markup.escape(t)}</a></li>\n' for anchor, t in links)
    bodies = "".join(
        f'<section id="{one.anchor}">\n<h2>{markup.escape(one.title)}</h2>\n{one.body}</section>\n'
        for one in sections
    )
    facts = provenance.facts(command)
    footer = (
        f"<p>Made by <code>{markup.escape(command)}</code>, commit "
        f"{markup.escape(provenance.short(facts['git_commit']))}, "
        f"{markup.escape(facts['date'])}. One file: it loads nothing and runs nothing.</p>\n"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup.escape(_TITLE)}</title>\n"
        # No request for an icon either.
        '<link rel="icon" href="data:,">\n'
        f"<style>\n{style.CSS}\n</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{markup.escape(_TITLE)}</h1>\n{_introduction()}</header>\n"
        f'<nav aria-label="Sections">\n<ul>\n{items}</ul>\n</nav>\n<main>\n'
        f'<section id="summary">\n<h2>Summary</h2>\n{_summary(claims)}</section>\n'
        f'<section id="reading">\n<h2>How to read the tables</h2>\n{_terms()}</section>\n'
        f"{bodies}</main>\n<footer>\n{footer}</footer>\n</body>\n</html>\n"
    )


def _terms() -> str:
    terms = "".join(
        f"<dt>{markup.escape(name)}</dt><dd>{markup.escape(text)}</dd>\n" for name, text in _TERMS
    )
    return f"<dl>\n{terms}</dl>\n"


def _introduction() -> str:
    return (
        '<p class="lead">What happens to a reinforcement-learning agent when the numbers in its '
        "neural network are rounded to a few bits? How much reward does it lose, and how much "
        "time, memory and energy does it save? The paper "
        f'<a href="{_SOURCE}">Quantized Reinforcement Learning (QuaRL, ActorQ)</a> answers that; '
        "this page sets its figures beside those of an independent re-implementation.</p>\n"
        "<p>Quantization stores each number with fewer bits. Networks get smaller and faster; "
        "what they compute gets a little wrong. Whether an agent still plays well can only be "
        "measured: that is what the tables below are about.</p>\n"
    )


def _summary(claims: Sequence[report_claims.Claim]) -> str:
    counts = {
        verdict: sum(claim.verdict == verdict for claim in claims) for verdict in _COLOURS
    }
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    rules = "; ".join(f"“{verdict}”: {rule}" for verdict, rule in _RULES.items())
    rows = "".join(_summary_row(claim) for claim in claims)
    header = "".join(f'<th scope="col">{markup.escape(name)}</th>' for name in _COLUMNS)
    return (
        f"<p>Of {len(claims)} claims: {markup.escape(told)}. Each verdict is computed from the "
        f"files behind this page: {markup.escape(rules)}. (E is the share of the reward that is "
        'lost; <a href="#reading">all terms</a>.)</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Summary">'
        f'<table class="summary">\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody>\n'
        "</table></div>\n"
    )


def _summary_row(claim: report_claims.Claim) -> str:
    reason = f'<br><span class="why">{markup.escape(claim.reason)}</span>' if claim.reason else ""
    return (
        f'<tr><td><a href="#{claim.part}">{markup.escape(claim.claim)}</a></td>'
        f'<td data-name="Paper">{markup.escape(claim.published)}</td>'
        f'<td data-name="Ours">{markup.escape(claim.ours)}</td>'
        f'<td><span class="verdict {_COLOURS[claim.verdict]}">{markup.escape(claim.verdict)}'
        f"</span>{reason}</td></tr>\n"
    )
