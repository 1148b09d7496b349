"""The command lines of methods: what they measure, leave, and say of mistakes."""

from baseline.study import method_rows
from baseline.study import rows as rows_lib

SHORT = ("--episodes=2", "--seeds=0,1", "--calibration_states=64")


def test_ptq_with_methods(zoo, tmp_path, run_commands):
    base = [f"--folder={zoo.folder}", f"--out={tmp_path}", *SHORT]
    answers = run_commands("ptq", [
        ["ppo", "CartPole-v1", "4", "--method=bias-correction,mse", *base],
        ["ppo", "CartPole-v1", "4", "--method=auto", *base],
        ["ppo", "CartPole-v1", "4", "--group_size=8", "--granularity=channel", *base],
        ["ppo", "CartPole-v1", "4", *base],
    ])
    for answer in answers:
        assert answer.code == 0, answer
    assert "(mse,bias-correction): return" in answers[0].out
    assert f"Agent: {tmp_path}/4-mse+bias-correction" in answers[0].out
    assert "auto, chosen: " in answers[1].out and "agreement" in answers[1].out
    assert f"Row:   {tmp_path}/methods.csv" in answers[2].out
    assert f"Row:   {tmp_path}/ptq.csv" in answers[3].out
    rows = rows_lib.read(str(tmp_path / "methods.csv"), method_rows.MethodRow)
    assert [(row.method, row.group_size) for row in rows] == [
        ("mse,bias-correction", 0), ("auto", 0), ("minmax", 8)
    ]
    assert all(row.states <= 64 and 0 <= row.agreement <= 1 for row in rows)
    plain = rows_lib.read(str(tmp_path / "ptq.csv"))
    assert [row.bits for row in plain] == ["fp32", "4"]
    assert all(len(row.returns) == 4 for row in [*rows, *plain])


def test_mistakes_are_one_line_each(zoo, tmp_path, run_commands):
    base = [f"--folder={zoo.folder}", f"--out={tmp_path / 'out'}", *SHORT]
    cases = {
        "names 'gptqq'": ["8", "--method=gptqq"],
        "mse and percentile each choose the range": ["8", "--method=mse,percentile"],
        "stands alone": ["8", "--method=auto,mse"],
        "not for fp16": ["fp16", "--method=mse"],
        "2 to 16 bits, not for 24 bits": ["24", "--method=gptq"],
        "add --granularity=channel": ["8", "--group_size=16"],
        "leave out --rounding": ["8", "--method=gptq", "--rounding=floor"],
    }
    answers = run_commands("ptq", [["ppo", "CartPole-v1", *case, *base] for case in cases.values()])
    for expected, answer in zip(cases, answers, strict=True):
        assert expected in answer.error("ptq"), (expected, answer)
    # This one is found once the agent is there.
    (answer,) = run_commands("ptq", [[
        "ppo", "CartPole-v1", "8", "--method=hadamard", "--scheme=weights+activations", *base
    ]])
    assert answer.code == 1
    assert answer.err.splitlines()[-1].endswith("activations need that: --scheme=weights.")


def test_all_methods_beside_each_other(zoo, tmp_path, run_commands):
    base = [
        "ppo", "CartPole-v1", f"--folder={zoo.folder}", f"--out={tmp_path}", *SHORT, "--jobs=1",
        "--bits=4", "--granularity=channel",
    ]
    (first,) = run_commands("ptq_methods", [[*base, "--methods=minmax mse"]])
    assert first.code == 0, first
    assert "[1/1] ppo CartPole-v1: 3 cells in" in first.out
    assert "## PPO, granularity channel" in first.out
    assert (tmp_path / "methods.md").read_text() in first.out
    assert (tmp_path / "methods.png").exists()
    # Cells that exist are not measured again.
    second, third, fourth = run_commands("ptq_methods", [
        [*base, "--methods=minmax mse gptq"], [f"--out={tmp_path}", "--tables"],
        [*base, "--methods=auto"],
    ])
    assert "[1/1] ppo CartPole-v1: 1 cells in" in second.out
    assert "| gptq" in third.out and "cells" not in third.out
    assert "which comes from other rows" in fourth.error("ptq_methods")
    assert not list(tmp_path.glob("4*"))  # Agents are not kept.


def test_sweeps_take_methods(zoo, tmp_path, run_commands):
    arguments = [
        "ppo", "CartPole-v1", f"--folder={zoo.folder}", f"--out={tmp_path}", *SHORT, "--jobs=1",
        "--bits=4,3", "--method=mse",
    ]
    first, second = (run_commands("sweep", [arguments])[0] for _ in range(2))
    assert first.code == 0 and f"Rows: {tmp_path}/methods.csv" in first.out, first
    assert "2 of 2 other rows are there already." in second.out
