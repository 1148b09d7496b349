"""The command line: dry runs, bad input, and one real experiment of the smallest size."""

import re
import subprocess
import sys

import pytest

from actorQ.experiments import run
from docs.generators.reference import flags as flag_tables
from tests.actorQ import harness

# Everything real: launcher, learner, broadcaster, actor, Reverb.
TINY = """
title: Tiny
report: time_to_reward
precisions: [32, 8]
seeds: [0]
settings: {batch_size: 16, min_replay_size: 100, max_episode_steps: 50, log_period_s: 0.2,
           eval_period_steps: 50, track_energy: 1}
tasks:
  gym,CartPole-v0: {stop_return: 198.22}
peers: {sb3: {}}
profiles:
  laptop:
    settings: {model_str: '16,16', critic_str: '16,16', push_period_s: 0.05}
"""


def command(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "actorQ.experiments.run", *arguments], capture_output=True,
        text=True, timeout=120, cwd=harness.REPOSITORY, **kwargs,
    )


def test_dry_run_prints_runs_commands_and_time_and_makes_nothing(tmp_path):
    out = tmp_path / "out"
    done = command(
        "time_to_reward", "--dry-run", "--tasks=dm_control,cartpole_balance,CartPole-v0",
        "--seeds=0,1", "--precisions=fp32,8", "--peers=none", f"--out={out}",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Time to reward: 8 runs, 0 done, 1 at a time; results in {out}"
    assert lines[1].startswith("Profile laptop: 2 cores")
    runs = [line for line in lines if line.startswith("[")]
    assert runs[0] == "[1/8] cartpole_balance-fp32-s0: to do, at most 40 min"
    assert [line.split()[1] for line in runs] == [
        f"{task}-{bits}-s{seed}:"
        for seed, order in ((0, ("fp32", "int8")), (1, ("int8", "fp32")))
        for task in ("cartpole_balance", "CartPole-v0")
        for bits in order
    ]
    commands = [line for line in lines if "actorQ.launcher" in line]
    assert len(commands) == 8
    assert f"--logdir={out}/runs/cartpole_balance-fp32-s0 --run_name=run" in commands[0]
    assert "--quantize=32" in commands[0] and "--stop_return=941.22" in commands[0]
    assert re.fullmatch(r"Expected time: at most \d+ h \d\d min\.", lines[-1])
    assert not out.exists()


def test_dry_run_command_is_one_that_the_launcher_takes(tmp_path):
    done = command("staleness", "--dry-run", f"--out={tmp_path}")
    line = next(line for line in done.stdout.splitlines() if "actorQ.launcher" in line)
    # With a folder that cannot be made, the launcher reads all flags and then says so.
    (tmp_path / "file").write_text("")
    line = re.sub(r"--logdir=\S+", f"--logdir={tmp_path / 'file'}", line)
    launched = subprocess.run(
        line.split(), capture_output=True, text=True, timeout=60, cwd=harness.REPOSITORY
    )
    assert "error: Cannot make the run folder" in launched.stderr


def test_dry_run_of_tuned_settings_names_the_preset(run_experiments, tmp_path):
    (done,) = run_experiments(
        "driver", [["tasks", "--dry_run", "--tasks=Pendulum-v1", "--seeds=1", f"--out={tmp_path}"]]
    )
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[1] == "Preset auto: it stands in the place of the profile's settings."
    (run_line,) = (line for line in lines if line.startswith("["))
    assert run_line == "[1/1] Pendulum-v1-int8-s1: to do, at most 16 min"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "takes one argument, the experiment: bfloat16_learner, breakdown, breakdown_torch"),
        (["a", "b"], "takes one argument"),
        (["nothing"], "There is no experiment 'nothing'"),
        (["staleness", "--profile=phone"], "--profile=phone is not possible"),
        (["staleness", "--precisions=12"], "'12' is not a precision"),
        (["staleness", "--precisions=int9"], "'int9' is not a precision"),
        (["staleness", "--seeds=0,-1"], "'-1' is not a whole number"),
        (["staleness", "--tasks=pong"], "no task 'pong'"),
        (["staleness", "--parallel=-1"], "parallel"),
        (["staleness", "--report", "--out=/nowhere"], "There is no result in /nowhere"),
    ],
)
def test_bad_input_is_one_clear_line(run_experiments, arguments, message):
    (done,) = run_experiments("driver", [arguments])
    assert done.code != 0
    lines = harness.error_lines(done.err, run.NAME)
    assert len(lines) == 1 and message in lines[0], done
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_smoke_of_a_real_experiment(crew, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    started = crew.start(
        sys.executable, "-m", "actorQ.experiments.run", str(tmp_path / "tiny.yaml"), "--smoke",
        f"--out={tmp_path / 'out'}",
    )
    assert started.wait(240) == 0, started.output()
    started.descendants()
    assert not harness.alive(started.family.values())
    for bits in ("fp32", "int8"):
        # Of the table: there may have been a status line before.
        row = re.search(rf"(?m)^\| CartPole-v0-{bits}-s0 .*", started.output())
        assert row and "| trained |" in row.group(), started.output()
        assert re.search(r"\| +100 \|", row.group())
        logs = tmp_path / "out" / "runs" / f"CartPole-v0-{bits}-s0"
        assert (logs / "run" / "checkpoint" / "policy.safetensors").exists()
        text = (logs / "result.json").read_text()
        assert '"kwh": ' in text and '"message_bytes": ' in text
    row = re.search(r"(?m)^\| CartPole-v0-sb3-s0 .*", started.output())
    assert row and "| trained |" in row.group() and re.search(r"\| +100 \|", row.group())


def test_flag_rows_have_a_help_each():
    rows = flag_tables.BLOCKS["experiments"]().splitlines()[2:]
    assert len(rows) == 11
    assert all(re.fullmatch(r"\| `--\w+` \| [^|]+ \| [^|]{20,} \|", row) for row in rows)
