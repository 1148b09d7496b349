"""Sweeps measure what is missing, whatever happened before and happens meanwhile."""

from concurrent import futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import types

from absl import flags
import psutil
import pytest

from actorQ.core import errors
from actorQ.core import output
from baseline import sweep
from baseline.agents import finding
from baseline.agents import hub
from baseline.quantization import schemes
from baseline.study import measuring
from baseline.study import measuring_flags
from baseline.study import parallel
from baseline.study import row_agents
from baseline.study import rows as rows_lib
from tests import commands
from tests.baseline import small_agents

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = ROOT / "baseline"


def bits_of(out):
    return {(row.algo, row.env, row.bits) for row in rows_lib.read(str(out / "ptq.csv"))}


@pytest.fixture(scope="module")
def mixed(zoo, tmp_path_factory):
    """Two good agents, and three that cannot be measured."""
    folder = tmp_path_factory.mktemp("mixed")
    for algo, env_id in (("ppo", "CartPole-v1"), ("a2c", "Pendulum-v1")):
        source = finding.find(algo, env_id, zoo.folder).parent
        shutil.copytree(source, folder / algo / source.name)
    (folder / "ppo/Corrupt-v1_1").mkdir()
    (folder / "ppo/Corrupt-v1_1/Corrupt-v1.zip").write_bytes(b"nonsense")
    made = small_agents.model("dqn", small_agents.vector("CartPole-v1"))
    made.policy.q_net.q_net[0].weight.data[0, 0] = float("nan")
    small_agents.save(folder, "dqn", "CartPole-v1", made)
    small_agents.save(
        folder, "ppo", "Acrobot-v1", small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    )
    return folder


def test_sweep_of_all_agents(mixed, tmp_path, run_commands):
    command = ["--all", f"--folder={mixed}", f"--out={tmp_path}", "--bits=8,3,fp16,int8",
               "--episodes=1", "--seeds=0,1"]
    (first,) = run_commands("sweep", [[*command, "--jobs=2"]])
    good = {("ppo", "CartPole-v1"), ("a2c", "Pendulum-v1")}
    everything = {(*pair, bits) for pair in good for bits in ("fp32", "8", "3", "fp16")}
    assert bits_of(tmp_path) == everything
    lines = (tmp_path / "ptq.csv").read_text().splitlines(keepends=True)
    # A row and a half are lost, as after a kill.
    (tmp_path / "ptq.csv").write_text("".join(lines[:-2]) + lines[-2][:40])
    (again,) = run_commands("sweep", [[*command, "--jobs=1"]])
    # A failed agent stops no other, and has one line.
    reasons = {
        "dqn CartPole-v1": "NaN or infinity", "ppo Corrupt-v1": "is damaged",
        "ppo Acrobot-v1": "does not fit the environment",
    }
    plot = f"Plot: {output.python()} -m baseline.collate"
    for answer in (first, again):
        assert answer.code == 1, answer
        told = [line for line in answer.err.splitlines() if line.startswith("sweep: error: ")]
        for line, (pair, reason) in zip(sorted(told), sorted(reasons.items()), strict=True):
            assert line.startswith(f"sweep: error: {pair}: ") and reason in line
        assert f"Rows: {tmp_path}/ptq.csv" in answer.out
        assert f"{plot} a2c Pendulum-v1 --results {tmp_path}/ptq.csv" in answer.out
        assert f"{plot} dqn" not in answer.out
    assert len(first.err.splitlines()) == 3
    assert "[5/5] " in first.out  # The stage of full precision.
    assert "[6/6] " in first.out and "E " in first.out
    # No existing row is measured a second time.
    assert "2 of 5 rows of fp32 are there already." in again.out
    assert "4 of 6 other rows are there already." in again.out
    assert "[2/2]" in again.out
    assert "the last line is incomplete and is cut off" in again.err
    repaired = (tmp_path / "ptq.csv").read_text().splitlines(keepends=True)
    assert len(repaired) == 1 + 8

    def key_and_returns(line):
        cells = line.split(",")
        return cells[:6], cells[-1]

    assert sorted(map(key_and_returns, repaired)) == sorted(map(key_and_returns, lines))


def test_named_agents_that_are_measured_already(zoo, tmp_path, run_commands):
    for env_id, algo in (("CartPole-v1", "ppo"), ("Pendulum-v1", "a2c")):
        for bits in ("fp32", "8"):
            measuring.measure(
                measuring.Request(
                    algo, env_id, schemes.Scheme(bits), str(zoo.folder), str(tmp_path), (0,), 1
                )
            )
    (answer,) = run_commands("sweep", [
        ["ppo", "CartPole-v1", "a2c", "Pendulum-v1", "ppo2", "CartPole-v1", "--bits=8",
         "--seeds=0", "--episodes=1", f"--folder={zoo.folder}", f"--out={tmp_path}"],
    ])
    assert answer.code == 0 and answer.err == "", answer
    assert answer.out.splitlines()[:2] == [
        f"2 of 2 {what} are there already." for what in ("rows of fp32", "other rows")
    ]
    assert answer.seconds < 10  # No worker was started for it.


def test_the_plot_command_is_of_the_rows_that_were_measured(zoo, tmp_path, run_commands):
    floor = schemes.Scheme("8", granularity="channel", rounding="floor")
    measuring.measure(
        measuring.Request(
            "ppo", "CartPole-v1", floor, str(zoo.folder), str(tmp_path), (0,), 1
        )
    )
    (answer,) = run_commands("sweep", [
        ["ppo", "CartPole-v1", "--bits=8", "--granularity=channel", "--rounding=floor", "--seeds=0",
         "--episodes=1", f"--folder={zoo.folder}", f"--out={tmp_path}"],
    ])
    assert answer.out.splitlines()[-1] == (
        f"Plot: {output.python()} -m baseline.collate ppo CartPole-v1 --results "
        f"{tmp_path}/ptq.csv --granularity channel --rounding floor"
    )


def family(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def is_worker(process):
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # Or a zombie: a short command of the sweep's own has ended.
        return False


def workers_of(pid):
    return [process for process in family(pid)[1:] if is_worker(process)]


def test_sweep_that_is_stopped_leaves_rows_and_no_process(zoo, tmp_path, run_commands):
    for way in ("SIGINT", "SIGTERM", "SIGKILL", "worker"):
        path = tmp_path / way / "ptq.csv"
        pid = run_commands.start(
            "sweep", ["a2c", "Pendulum-v1", f"--folder={zoo.folder}", f"--out={path.parent}",
                      "--episodes=30", "--seeds=0,1", "--jobs=1",
                      f"--bits={','.join(map(str, range(32, 1, -1)))}"],
        )
        commands.wait_for(lambda path=path: path.exists() and path.read_text().count("\n") >= 3)
        if way == "SIGINT":
            # Meanwhile another command adds to the same file.
            (ptq,) = run_commands(
                "ptq", [["ppo", "CartPole-v1", "8", f"--folder={zoo.folder}",
                         f"--out={tmp_path / way}", "--episodes=1", "--seeds=0"]],
            )
            assert ptq.code == 0, ptq
        everyone = family(pid)
        assert len(workers_of(pid)) == 1
        if way == "worker":
            workers_of(pid)[0].kill()
        elif way == "SIGINT":
            os.killpg(pid, signal.SIGINT)  # A terminal signals the whole group.
        else:
            os.kill(pid, getattr(signal, way))
        answer = run_commands.wait(pid)
        commands.wait_for(
            lambda everyone=everyone: all(commands.ended(process) for process in everyone), 60
        )
        rows = rows_lib.read(str(path))
        assert path.read_text().endswith("\n")
        assert 2 <= len(rows) < 31 and rows[0].bits == "fp32"
        for folder in (tmp_path / way).iterdir():
            for agent in finding.found(folder):
                finding.load(*agent, folder)  # Whole, or not there.
        assert "Traceback" not in answer.err
        if way in ("SIGINT", "SIGTERM"):
            assert answer.code == 130
            assert answer.err.splitlines() == [
                "Interrupted: the same command goes on from here.", "sweep: error: interrupted.",
            ]
        elif way == "SIGKILL":
            assert answer.code == -signal.SIGKILL
        else:
            assert answer.error("sweep").startswith("A worker process died (out of memory?): the")
    both = bits_of(tmp_path / "SIGINT")
    assert {("ppo", "CartPole-v1", "fp32"), ("ppo", "CartPole-v1", "8")} <= both
    assert {("a2c", "Pendulum-v1", "fp32"), ("a2c", "Pendulum-v1", "32")} <= both


def test_a_full_disk_under_the_output_stops_no_sweep(monkeypatch):
    pool = futures.ThreadPoolExecutor(1)
    done = []
    with open("/dev/full", "w") as full, pool:
        monkeypatch.setattr(sys, "stdout", full)
        failed = parallel.run(pool, lambda text: done.append(text) or text, "x" * 3, str, "row")
        parallel.say("y" * 10_000)
        parallel.say("z" * 10_000)
        monkeypatch.undo()
        with pytest.raises(OSError):
            full.close()
    assert (failed, done) == ([], ["x"] * 3)


def test_mistakes_are_one_line_each(zoo, mixed, tmp_path, run_commands):
    (tmp_path / "a file").write_text("")
    folder, out = f"--folder={zoo.folder}", f"--out={tmp_path / 'out'}"
    cases = {
        "takes ALGO ENV": [folder],
        "takes ALGO ENV (": ["--all", "ppo", "CartPole-v1", folder],
        "takes pairs ALGO ENV: 'dqn' has no": ["ppo", "CartPole-v1", "dqn", folder],
        "There are no agents in /nowhere": ["--all", "--folder=/nowhere", out],
        "to '1' bits": ["--all", folder, "--bits=8,1"],
        "to '' bits": ["--all", folder, "--bits=8,"],
        "to '-3' bits": ["ppo", "CartPole-v1", folder, "--bits=-3"],
        "--seeds='1,1'": ["--all", folder, "--seeds=1,1"],
        "Cannot make the folder /proc/x": ["--all", folder, "--out=/proc/x"],
        "a file/x: Not a directory": ["--all", folder, f"--out={tmp_path / 'a file' / 'x'}"],
        "ppo Nothing-v1: There is no agent": ["ppo", "Nothing-v1", folder, out],
        "ars CartPole-v1: The algorithm 'ars' is not known": ["ars", "CartPole-v1", folder, out],
        "d4pg gym,A: There is no folder": ["d4pg", "gym,A", "--folder=/nowhere", out],
    }
    answers = run_commands("sweep", list(cases.values()))
    for expected, answer in zip(cases, answers, strict=True):
        assert expected in answer.error("sweep"), answer


def test_rows_of_another_agent_are_not_taken_for_this_ones(zoo, tmp_path, run_commands):
    request = measuring.Request(
        "ppo", "CartPole-v1", schemes.Scheme("fp32"), str(zoo.folder), str(tmp_path), (0,), 1
    )
    measuring.measure(request)
    noted = json.dumps({"ppo CartPole-v1": "0123456789abcdef"})
    (tmp_path / row_agents.AGENTS_FILENAME).write_text(noted)
    (answer,) = run_commands(
        "sweep", [["ppo", "CartPole-v1", f"--folder={zoo.folder}", f"--out={tmp_path}"]]
    )
    assert "holds rows of another agent ppo CartPole-v1" in answer.error("sweep")


def test_help_is_complete(run_commands):
    (answer,) = run_commands("sweep", [["--help"]])
    assert answer.code == 0
    for flag in ("--bits", "--jobs", "--[no]all", "--folder", "--episodes"):
        assert flag in answer.out
    assert sweep.DEFAULT_BITS == "32,30,28,26,24,22,20,18,16,14,12,10,8,6,4,2,fp16,bf16"


@pytest.mark.parametrize("script", ["benchmark.sh", "all.sh"])
def test_scripts_start_the_sweep(tmp_path, script):
    arguments = ["ppo"] if script == "benchmark.sh" else ["ppo", "CartPole-v1"]
    answer = subprocess.run(
        [BASELINE / script, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("sweep: error: takes ")
    assert len(answer.stderr.splitlines()) == 1


def test_bug_is_told_as_one_and_stops_no_other_agent(monkeypatch, caplog):
    def broken(request):
        raise TypeError("two\nlines")

    monkeypatch.setattr(measuring, "measure", broken)
    request = types.SimpleNamespace(algo="ppo", env="A", scheme=schemes.Scheme("8"))
    with pytest.raises(errors.UserError, match="^internal error: TypeError: lines$"):
        sweep._measure(request)
    assert "ppo A    8 failed" in caplog.text  # The log has the trace.


def test_agents_are_fetched_where_asked_to(zoo, tmp_path, monkeypatch):
    fetched = []

    def fetch(algo, env, folder):
        fetched.append((algo, env))
        if env == "Nothing-v1":
            raise errors.UserError("no network")

    monkeypatch.setattr(hub, "fetch", fetch)
    before = set(flags.FLAGS)
    measuring_flags.define()
    try:
        flags.FLAGS(["sweep", "--hub", f"--folder={zoo.folder}", f"--out={tmp_path}"])
        pairs = [("ppo", "Nothing-v1"), ("ppo2", "CartPole-v1")]
        failed = sweep._check(measuring_flags.requests(pairs, ["fp32"]))
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
    assert fetched == [("ppo", "Nothing-v1"), ("ppo", "CartPole-v1")]
    assert failed == {("ppo", "Nothing-v1"): "no network"}
