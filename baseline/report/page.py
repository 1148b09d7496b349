"""The page as a whole: introduction, summary, sections."""

import pathlib

import jinja2

from actorQ.core import provenance
from baseline.report import actorq
from baseline.report import case_claims
from baseline.report import claims as claims_lib
from baseline.report import experiments
from baseline.report import main_findings
from baseline.report import sections as sections_lib

_TITLE = "Quantized reinforcement learning: the paper's results and ours"
_RULES = {
    claims_lib.REACHED: "Our figure is as good as the paper's, or better. Where an aim of our own "
    "is named, that aim counts.",
    claims_lib.PARTLY: "There is a gain, but a smaller one, not in all cases, or of fewer "
    "repetitions than the paper's.",
    claims_lib.MISSED: "There is no gain, or a loss that is shown to be above the paper's.",
    claims_lib.OPEN: "The measurements leave it open: they are too few, or only a bound.",
}
# Names of the verdicts in the style sheet.
_CLASSES = {
    claims_lib.REACHED: "good", claims_lib.PARTLY: "part", claims_lib.MISSED: "bad",
    claims_lib.OPEN: "open", claims_lib.NONE: "open",
}
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def build(baseline_results: str, actorq_results: str, command: str) -> str:
    """Returns the page; the same files give the same page but for command, commit and date.

    Args:
      baseline_results: The folder of the baseline's results.
      actorq_results: The folder of ActorQ's results.
      command: The command that makes this page.

    Raises:
      errors.UserError: A file is damaged.
    """
    compared = experiments.compared(actorq_results)
    sections = [
        *sections_lib.baseline_sections(baseline_results),
        *actorq.sections(actorq_results, compared),
        actorq.energy(actorq_results, compared),
    ]
    claims = [
        *claims_lib.ptq(f"{baseline_results}/ptq"),
        *claims_lib.widths(f"{baseline_results}/findings"),
        *claims_lib.qat(f"{baseline_results}/qat"),
        *case_claims.mixed_precision(f"{baseline_results}/mixed_precision"),
        *case_claims.deployment(f"{baseline_results}/deployment"),
        *actorq.claims(actorq_results, compared),
        *case_claims.energy(experiments.main(compared)),
    ]
    verdicts = [claim.verdict for claim in claims]
    findings = main_findings.findings(claims, experiments.main(compared))
    facts = provenance.facts(command)
    return _TEMPLATES.get_template("page.html.j2").render(
        title=_TITLE, findings=findings, sections=sections,
        claims=claims, rules=_RULES, classes=_CLASSES,
        counts={name: verdicts.count(name) for name in _CLASSES if name in verdicts},
        command=command, commit=provenance.short(facts["git_commit"]), date=facts["date"],
    )
