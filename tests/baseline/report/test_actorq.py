"""Claims on ActorQ from its published tables."""

import pytest

from actorQ.core import errors
from baseline.report import actorq as report_actorq
from baseline.report import claims


def test_one_seed_that_forgot_does_not_decide_the_claim_on_staleness(tmp_path):
    report = tmp_path / "staleness" / "report"
    report.mkdir(parents=True)
    rows = ["10,a,int8,990,990.00;991.00;989.00", "100,a,int8,810,430.00;1000.00;999.00"]
    (report / "staleness.csv").write_text("\n".join(
        ["value,task,precision,final_reward,final_reward_by_seed", *rows, "300,a,int8,,"]
    ))
    (claim,) = [
        claim for claim in report_actorq.claims(str(tmp_path), []) if claim.part == "staleness"
    ]
    assert (claim.ours, claim.verdict) == ("up to 1.01x", claims.MISSED)
    (report / "staleness.csv").write_text(
        "value,task,precision,final_reward_by_seed\n1,a,int8,1;x\n"
    )
    with pytest.raises(errors.UserError, match="final_reward_by_seed has to be a number, not 'x'"):
        report_actorq.claims(str(tmp_path), [])
