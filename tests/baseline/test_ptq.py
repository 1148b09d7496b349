"""The command line of one row: what it prints, leaves, and says of mistakes."""

import json
import os
import subprocess
import sys

import pytest

from baseline.agents import finding
from baseline.study import rows as rows_lib
from tests import commands
from tests.baseline import small_agents

SHORT = ("--episodes=2", "--seeds=0,1")


@pytest.fixture(scope="module")
def broken(zoo, atari_zoo, tmp_path_factory):
    """A folder of agents with something wrong each."""
    folder = tmp_path_factory.mktemp("broken")
    good = finding.find("ppo", "CartPole-v1", zoo.folder)
    content = good.read_bytes()

    def add(algo, env_id, content):
        path = folder / algo / f"{env_id}_1" / f"{env_id}.zip"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return path

    add("ppo", "Empty-v1", b"")
    add("ppo", "Truncated-v1", content[: len(content) // 2])
    add("ppo", "Text-v1", b"no zip at all")
    small_agents.rewritten(add("ppo", "Weightless-v1", content), policy_pth=None)
    add("ppo", "Nowhere-v1", content)
    add("ppo", "Acrobot-v1", content)
    add("ppo", "os:CartPole-v1", content)
    add("a2c", "CartPole-v1", content)
    add("dqn", "CartPole-v1", content)
    add("ddpg", "CartPole-v1", content)
    add("ppo", "Pendulum-v1", finding.find("ddpg", "Pendulum-v1", zoo.folder).read_bytes())
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    made.policy.action_net.weight.data[0, 0] = float("nan")
    small_agents.save(folder, "ppo", "CartPole-v1", made)
    payload = small_agents.torch_bytes({"a": small_agents.Payload(folder / "executed")})
    small_agents.rewritten(add("ppo", "CartPole-v0", content), policy_pth=payload)
    (folder / "a file").write_text("")
    return folder


def test_mistakes_are_one_line_each(zoo, broken, tmp_path, run_commands):
    out = f"--out={tmp_path / 'out'}"
    bad, good = (f"--folder={folder}" for folder in (broken, zoo.folder))
    cases = {
        "There is no agent ppo Acrobot-v1": ["ppo", "Acrobot-v1", "8", good],
        "There is no folder /nowhere": ["ppo", "CartPole-v1", "8", "--folder=/nowhere"],
        "'ars' is not known": ["ars", "CartPole-v1", "8", good],
        "agent of ppo, not of a2c": ["a2c", "CartPole-v1", "8", bad],
        "agent of ppo, not of dqn": ["dqn", "CartPole-v1", "8", bad],
        "agent of ppo, not of ddpg": ["ddpg", "CartPole-v1", "8", bad],
        "agent of ddpg, not of ppo": ["ppo", "Pendulum-v1", "8", bad],
        "Empty-v1.zip is damaged": ["ppo", "Empty-v1", "8", bad],
        "Truncated-v1.zip is damaged": ["ppo", "Truncated-v1", "8", bad],
        "Text-v1.zip is damaged": ["ppo", "Text-v1", "8", bad],
        "no item named 'policy.pth'": ["ppo", "Weightless-v1", "8", bad],
        "no environment Nowhere-v1": ["ppo", "Nowhere-v1", "8", bad],
        "Acrobot-v1.zip does not fit the environment": ["ppo", "Acrobot-v1", "8", bad],
        "'os:CartPole-v1' cannot be the name": ["ppo", "os:CartPole-v1", "8", bad],
        "NaN or infinity (layer action_net)": ["ppo", "CartPole-v1", "fp32", bad],
        "holds something else than tensors (io.open)": ["ppo", "CartPole-v0", "8", bad],
        "'../CartPole-v1' cannot be": ["ppo", "../CartPole-v1", "8", good],
        "to '1' bits": ["ppo", "CartPole-v1", "1", good],
        "to '33' bits": ["ppo", "CartPole-v1", "33", good],
        "to '0' bits": ["ppo", "CartPole-v1", "0", good],
        "to '-3' bits": ["ppo", "CartPole-v1", good, "--", "-3"],
        "to 'fp8' bits": ["ppo", "CartPole-v1", "fp8", good],
        "to 'abc' bits": ["ppo", "CartPole-v1", "abc", good],
        "takes three arguments": ["ppo", "CartPole-v1", good],
        "--seeds='0,0' are not different": ["ppo", "CartPole-v1", "8", good, "--seeds=0,0"],
        "--seeds='-1' are not": ["ppo", "CartPole-v1", "8", good, "--seeds=-1"],
        "a file/x/agents.json: Not a directory": [
            "ppo", "CartPole-v1", "8", good, f"--out={broken / 'a file' / 'x'}"
        ],
        "Cannot write /proc/x": ["ppo", "CartPole-v1", "8", good, "--out=/proc/x"],
        "Cannot fetch huggingface.co/sb3/ppo-Acrobot-v1": [
            "ppo", "Acrobot-v1", "8", f"--folder={tmp_path / 'fetched'}", "--hub"
        ],
        "names an ActorQ run": ["d4pg", "dm_control,cartpole_balance", "8", "--folder=/nowhere"],
    }
    arguments = [
        case if any(part.startswith("--out=") for part in case)
        else [*case[:-2], out, *case[-2:]] if "--" in case else [*case, out]
        for case in cases.values()
    ]
    # Nobody listens there.
    answers = run_commands("ptq", arguments, HF_ENDPOINT="http://127.0.0.1:9")
    for (expected, command), answer in zip(cases.items(), answers, strict=True):
        if "--hub" in command:
            # The line before says that it goes to the network.
            answer = answer._replace(err=answer.err.partition("\n")[2])
        assert expected in answer.error("ptq"), (expected, answer)
        assert answer.seconds < 20, answer
    assert not (broken / "executed").exists()
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []
    assert not list((tmp_path / "fetched").rglob("*.zip"))


def test_wrong_flags_are_one_line(zoo, run_commands):
    good = ["ppo", "CartPole-v1", "8", f"--folder={zoo.folder}"]
    for answer in run_commands(
        "ptq", [[*good, "--episodes=0"], [*good, "--scheme=x"], [*good, "--no_such"], [*good, "-3"]]
    ):
        assert answer.code == 2
        assert answer.err.startswith("ptq: error: ") and len(answer.err.splitlines()) == 1, answer


@pytest.fixture(scope="module")
def measured(zoo, tmp_path_factory, run_commands):
    """A folder of results, and what the commands printed."""
    out = tmp_path_factory.mktemp("measured")
    base = [f"--folder={zoo.folder}", f"--out={out}", *SHORT]
    answers = run_commands("ptq", [
        ["ppo2", "CartPole-v1", "int8", *base],
        ["ppo", "CartPole-v1", "4", "--note=a note", *base],
        ["a2c", "Pendulum-v1", "8", "--scheme=weights+activations", "--rounding=floor",
         "--granularity=channel", "--calibration-episodes=1", *base],
        ["ppo", "CartPole-v1", "fp16", "--scheme=weights+activations", *base],
        ["ppo", "CartPole-v1", "fp32", "--scheme=weights+activations", *base],
    ])
    return out, answers


def test_another_calibration_is_refused(measured, zoo, run_commands):
    out, _ = measured
    base = [f"--folder={zoo.folder}", f"--out={out}", "--scheme=weights+activations"]
    for tool, arguments in (("ptq", ["8"]), ("sweep", ["--bits=8"])):
        (answer,) = run_commands(tool, [["a2c", "Pendulum-v1", *arguments, *base]])
        assert "from 1 --calibration_episodes, not 5: give another --out" in answer.error(tool)


def test_rows_and_agents_are_left(measured, zoo):
    out, answers = measured
    assert [answer.code for answer in answers] == [0] * 5, answers
    rows = rows_lib.read(str(out / "ptq.csv"))
    assert [(row.algo, row.env, row.bits, row.scheme) for row in rows] == [
        ("ppo", "CartPole-v1", "fp32", "weights"),
        ("ppo", "CartPole-v1", "8", "weights"), ("ppo", "CartPole-v1", "4", "weights"),
        ("a2c", "Pendulum-v1", "fp32", "weights"),
        ("a2c", "Pendulum-v1", "8", "weights+activations"),
        ("ppo", "CartPole-v1", "fp16", "weights+activations"),
    ]
    assert all((row.seeds, row.episodes) == ("0,1", 4) for row in rows)
    assert [row.note for row in rows] == ["", "", "a note", "", "calibrated-1", ""]
    assert (rows[4].rounding, rows[4].granularity) == ("floor", "channel")
    # fp32 was measured once, but for the last command, which asked for it.
    text = (out / "ptq.csv").read_text()
    assert text.count("ppo,CartPole-v1,fp32") == 2
    folders = {"8/ppo/CartPole-v1_1", "4/ppo/CartPole-v1_1", "fp16-activations/ppo/CartPole-v1_1",
               "8-activations-channel-floor/a2c/Pendulum-v1_1"}
    assert {str(path.parent.relative_to(out)) for path in out.rglob("*.zip")} == folders
    assert set(json.loads((out / "agents.json").read_text())) == {
        "ppo CartPole-v1", "a2c Pendulum-v1",
    }


def test_what_is_printed(measured):
    out, answers = measured
    first, *_, last = answers
    lines = first.out.splitlines()
    assert lines[0].startswith("ppo CartPole-v1    8: return ") and "(fp32 " in lines[0]
    assert lines[1:] == [f"Agent: {out}/8", f"Row:   {out}/ptq.csv"]
    assert "E " in lines[0] and "E " not in last.out.splitlines()[0]
    assert "Agent:" not in last.out
    # Its own line is there, and no line of the libraries.
    assert all("] ppo CartPole-v1 at 8 bits" in line for line in first.err.splitlines()), first
    assert len(first.err.splitlines()) == 1


def test_quantized_agents_go_through_it_again(measured, tmp_path, run_commands):
    out, _ = measured
    (again, refused) = run_commands("ptq", [
        ["a2c", "Pendulum-v1", "fp32", f"--folder={out / '8-activations-channel-floor'}",
         f"--out={tmp_path}", *SHORT],
        ["ppo", "CartPole-v1", "4", f"--folder={out / '8'}", f"--out={out}", *SHORT],
    ])
    assert again.code == 0, again
    (row,) = rows_lib.read(str(tmp_path / "ptq.csv"))
    (expected,) = rows_lib.find(rows_lib.read(str(out / "ptq.csv")), algo="a2c", bits="8")
    # Quantized activations and the statistics of observations are the same to the last digit.
    assert row.returns == expected.returns
    assert row.note == "the agent had 8 bits before (weights+activations)"
    assert "holds rows of another agent ppo CartPole-v1" in refused.error("ptq")


def test_help_is_complete(run_commands):
    (answer,) = run_commands("ptq", [["--help"]])
    assert answer.code == 0
    for flag in ("--folder", "--episodes", "--seeds", "--out", "--scheme", "--[no]hub"):
        assert flag in answer.out


def test_forked_commands_are_the_real_ones():
    answer = subprocess.run(
        [sys.executable, "-m", "baseline.ptq", "ppo"],
        capture_output=True, text=True, cwd=commands.ROOT, timeout=120, check=False,
    )
    result = commands.Result(answer.returncode, answer.stdout, answer.stderr, 0.0)
    assert "takes three arguments" in result.error("ptq")
