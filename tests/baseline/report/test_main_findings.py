"""The five main findings: figures from the claims, bounds kept, and no words without results."""

from actorQ.experiments.run_logs import times
from baseline.report import claims
from baseline.report import experiments
from baseline.report import main_findings


def _row(task, fp32, int8, grams=None):
    return experiments.Compared(
        experiments.MAIN, "", task, 1.0, (times.Reach(fp32, 0, True), int8), 3, "", None, grams
    )


def test_findings_name_the_lowest_and_the_highest():
    grams = (times.Reach(6, 0, True), times.Reach(2, 0, True))
    rows = [
        _row("gym,Acrobot-v1", 100, times.Reach(50, 0, True), grams=grams),
        _row("gym,CartPole-v0", 100, times.Reach(25, 0, True)),
        _row("gym,MyEnv-v0", 100, times.Reach(2, 0, True)),
    ]
    sooner, cleaner = main_findings.findings([], rows)[:2]
    assert "2.00 to 4.00 times as fast" in sooner.answer and "2 of the paper's 11" in sooner.answer
    assert "3.70 to 5.41 times there" in sooner.answer
    assert "gives 3.00 times less CO2" in cleaner.answer


def test_a_bound_stays_a_bound():
    rows = [_row("gym,Acrobot-v1", 100, times.Reach(50, 0, False))]
    assert "were < 2.00 times as fast" in main_findings.findings([], rows)[0].answer


def test_findings_take_figures_from_claims():
    found = main_findings.findings([
        claims.Claim("ptq", "int8 costs A2C agents little reward (mean E)", "2.31 %",
                     "0.54 % [-0.30, 1.42], 8 agents", claims.REACHED),
        claims.Claim("ptq", "The wider the weights, the larger E, over algorithms", "holds", "9",
                     claims.OPEN),
        claims.Claim("qat", "Trained", "6 bits", "3 of 6 agents", claims.PARTLY),
        claims.Claim("deployment", "int8 is faster on a small device, 64-64-64 policy", "1.18x",
                     "TFLite 0.41x", claims.MISSED),
        claims.Claim("deployment", "int8 is faster on a small device, 4-4 policy", "9.00x",
                     "TFLite 2.00x", claims.PARTLY),
    ], [])
    answers = {finding.part: finding.answer for finding in found}
    assert answers["ptq"].endswith("in brackets: A2C 0.54 % (2.31 %).")
    assert "3 of 6 agents down to 6 bits" in answers["qat"]
    assert answers["deployment"].startswith("The 4-4 policy") and "TFLite 2.00x" in answers[
        "deployment"]


def test_findings_without_results_say_so():
    found = main_findings.findings([], [])
    assert [finding.answer for finding in found] == [claims.NONE] * 5
