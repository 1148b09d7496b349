"""Verdicts that the page of all results computes."""

import pathlib

import pytest

from actorQ.core import errors
from actorQ.core import output
from actorQ.experiments.run_logs import times
from baseline.report import case_claims
from baseline.report import claims
from baseline.study import paper
from baseline.study import rows as rows_lib
from tests.baseline import sweep_rows

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("fp32", "int8", "limits", "verdict"),
    [
        ((400, True), (100, True), (), claims.REACHED),
        ((400, True), (100, True), ("1 seed",), claims.PARTLY),
        ((200, True), (100, True), (), claims.PARTLY),
        ((100, True), (100, True), (), claims.MISSED),
        ((400, False), (100, True), (), claims.REACHED),
        ((200, False), (100, True), (), claims.PARTLY),
        ((50, False), (100, True), (), claims.OPEN),  # More than 0.5 proves nothing.
        ((400, True), (100, False), (), claims.OPEN),  # Less than 4 may be all or nothing.
        ((50, True), (100, False), (), claims.MISSED),
        ((400, False), (100, False), (), claims.OPEN),
    ],
)
def test_verdict_of_a_ratio_is_what_it_proves(fp32, int8, limits, verdict):
    reaches = (times.Reach(seconds, 0, reached) for seconds, reached in (fp32, int8))
    speedup = times.speedup_between(*reaches)
    assert claims.faster("p", "c", 3.0, speedup, "o", limits).verdict == verdict


def test_time_to_reward_of_few_seeds_or_another_reward_is_reached_in_part():
    seconds = (times.Reach(90, 0, True), times.Reach(10, 0, True))
    (claim,) = claims.time_to_reward("gym,CartPole-v0", 198.22, seconds, 3)
    assert (claim.verdict, claim.ours) == (claims.REACHED, "9.00x (90.0 s to 10.0 s)")
    (claim,) = claims.time_to_reward("gym,CartPole-v0", 195.0, seconds, 1)
    assert claim.verdict == claims.PARTLY
    assert claim.reason == "reward 195 in place of 198.22; 1 seed a side: may be luck"
    assert claims.time_to_reward("gym,Other-v0", 1.0, seconds, 3) == []
    (claim,) = claims.unmeasured(["gym,CartPole-v0"])
    assert claim.published == "1.51x to 5.41x" and "Acrobot" in claim.claim
    (claim,) = claims.unmeasured([], ["gym,CartPole-v0"])
    assert claim.reason == "measured with other settings only: Cartpole (Gym)"


def test_ptq_is_judged_by_the_interval_of_the_mean(tmp_path):
    """DQN's rows lose 60 points of 100 at 8 bits, PPO's none; one episode has no interval."""
    rows = [
        *sweep_rows.make_sweep("ppo", knee=0.0), *sweep_rows.make_sweep("dqn", knee=7.5),
        *sweep_rows.make_sweep("ppo", "Acrobot-v1", knee=0.0, rng_seed=1),
        *sweep_rows.make_sweep("a2c", episodes=1),
        *sweep_rows.make_sweep("ddpg", widths=("4",)),  # Nothing at 8 bits.
    ]
    for row in rows:
        rows_lib.append(str(tmp_path / rows_lib.CSV_NAME), row)
    found = {claim.claim.split()[2]: claim for claim in claims.ptq(str(tmp_path))}
    assert {name: claim.verdict for name, claim in found.items()} == {
        "A2C": claims.NONE, "DQN": claims.MISSED, "PPO": claims.REACHED, "DDPG": claims.NONE,
    }
    assert found["PPO"].ours.endswith("], 2 agents") and found["DQN"].ours.endswith("], 1 agents")
    assert found["DQN"].published == "8.60 %"
    assert found["DQN"].reason == "all of the interval is above it"
    assert {claim.verdict for claim in claims.ptq(str(tmp_path / "none"))} == {claims.NONE}


def test_ptq_verdicts_are_those_of_the_committed_table():
    """The page judges by the rows; the table beside them says the same mean and interval."""
    folder = ROOT / "baseline" / "results" / "ptq"
    table = (folder / "table.md").read_text()
    for claim in claims.ptq(str(folder)):
        assert claim.ours.rpartition(", ")[0] in table


def test_qat_holds_where_no_width_down_to_it_loses_more(tmp_path):
    losses = {"a": {8: 1, 7: 0, 6: -3, 5: 2.1}, "b": {8: 5, 7: 0, 6: 0, 5: 0}, "c": {8: 0, 6: 2}}
    output.write_csv(str(tmp_path / "table.csv"), [
        {"algo": "ppo", "env": env, "ranges": "frozen", "bits": bits, "error_qat": loss}
        for env, found in losses.items() for bits, loss in found.items()
    ])
    six, five = claims.qat(str(tmp_path))
    assert (six.ours, six.verdict) == ("2 of 3 agents", claims.PARTLY)
    assert (five.ours, five.verdict) == ("0 of 2 agents", claims.MISSED)
    (tmp_path / "table.csv").write_text("bits,error_qat\n8,much\n")
    with pytest.raises(errors.UserError, match="error_qat has to be a number, not 'much'"):
        claims.qat(str(tmp_path))


def test_case_studies_are_judged_by_the_best_runtime(tmp_path):
    columns = (
        "paper_policy", "format", "speedup", "fp32_success", "success_change", "memory_ratio",
        "file_ratio",
    )
    rows = [
        ("Policy I", "onnx", 0.9, 0.7, -0.0501, "", 2.0),
        ("Policy I", "tflite", 1.3, 0.7, -0.05, "", 2.0),
        ("", "onnx", 9.0, 0.9, 0.0, 9.0, 9.0),  # A policy of the same layers for another task.
        # Each file lacks a figure that another has.
        ("Policy III", "onnx", 3.0, 0.8, 0.01, 3.8, 3.7),
        ("Policy III", "tflite", 2.9, 0.8, 0.01, 3.9, 3.9),
        ("Policy III", "torchscript", 2.9, 0.8, 0.01, 3.7, 3.9),
    ]
    output.write_csv(
        str(tmp_path / "deployment.csv"), [dict(zip(columns, row, strict=True)) for row in rows]
    )
    found = case_claims.deployment(str(tmp_path))
    assert [(claim.ours, claim.verdict) for claim in found] == [
        ("70.0 %", claims.REACHED),
        ("ONNX Runtime 0.90x, TFLite 1.30x", claims.REACHED),
        ("ONNX Runtime -5.0, TFLite -5.0 points", claims.PARTLY),
        ("–", claims.NONE), ("–", claims.NONE), ("–", claims.NONE),
        ("80.0 %", claims.MISSED),  # The paper: 86 %.
        ("ONNX Runtime 3.00x, TFLite 2.90x, TorchScript 2.90x", claims.PARTLY),
        ("ONNX Runtime +1.0, TFLite +1.0, TorchScript +1.0 points", claims.REACHED),
        ("ONNX Runtime 3.80x, TFLite 3.90x, TorchScript 3.70x", claims.PARTLY),
        ("ONNX Runtime: as fast 3.00x, file 3.70x, memory 3.80x", claims.PARTLY),
    ]
    assert "each against its own fp32" in found[1].reason
    assert found[2].published == "15 points lost; our aim: at most 5"
    assert found[-1].published == "our aim: as fast 3x, file 3.8x, memory 3.8x"
    columns = ("paper_policy", "format", "speedup")
    several = [("Policy I", "onnx", speedup) for speedup in (0.9, 1.2)]
    output.write_csv(
        str(tmp_path / "deployment.csv"),
        [dict(zip(columns, row, strict=True)) for row in several],
    )
    found = case_claims.deployment(str(tmp_path))
    assert found[1].ours == "ONNX Runtime 0.90x, ONNX Runtime (2) 1.20x"
    (tmp_path / "timing.csv").write_text(
        "policy,threads,precision,asked,speedup\n"
        "C,1,fp32,fp32,1\nC,1,bf16,auto,1.7\nC,2,bf16,auto,1.5\nA,1,fp32,auto,0.9\n"
    )
    found = case_claims.mixed_precision(str(tmp_path))
    assert [(claim.ours, claim.verdict) for claim in found] == [
        ("fp32 on 1 thread 0.90x", claims.REACHED), ("–", claims.NONE),
        ("bf16 on 1 thread 1.70x, bf16 on 2 threads 1.50x", claims.REACHED),
    ]


def test_memory_is_judged_by_the_largest_policy_wherever_the_paper_prints_it(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "DEPLOYMENT", paper.DEPLOYMENT[::-1])
    output.write_csv(str(tmp_path / "deployment.csv"), [
        {"paper_policy": policy, "format": "onnx", "speedup": 3.0, "memory_ratio": ratio}
        for policy, ratio in (("Policy I", 1.5), ("Policy III", 3.9))
    ])
    memory, all_at_once = case_claims.deployment(str(tmp_path))[-2:]
    assert memory.claim == "int8 takes less memory, 4096-512-1024 policy"
    assert memory.ours == "ONNX Runtime 3.90x"
    assert all_at_once.claim == "One int8 file has all of it, 4096-512-1024 policy"


def test_breakdown_and_staleness():
    phases = {"step (inference)": 3.0, "pull": 1.0}
    (claim,) = claims.breakdown({"x": phases, "y": {"step (inference)": 1.0, "pull": 3.0}})
    assert (claim.ours, claim.verdict) == ("25 % to 75 % of all phases", claims.PARTLY)
    assert claims.breakdown({})[0].verdict == claims.NONE
    (claim,) = claims.staleness({"x": {"1": 100.0, "1000": 20.0}, "y": {"1": 3.0, "9": -1.0}})
    assert (claim.ours, claim.verdict) == ("up to 5.00x", claims.REACHED)
    assert claims.staleness({"y": {"1": 3.0, "9": -1.0}})[0].verdict == claims.OPEN
