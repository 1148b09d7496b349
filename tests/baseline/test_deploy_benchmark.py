"""The table of the deployment case study, and the two commands."""

import csv
import dataclasses
import json
import pathlib
import sys

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy import saved
from baseline import deploy_benchmark
from baseline.agents import agreement
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.deploy import aarch64
from baseline.deploy import device_details
from baseline.deploy import device_files
from baseline.deploy import device_tables
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.deploy import memory
from baseline.deploy import run_policy
from baseline.formats import names
from baseline.study import paper
from baseline.tasks import navigation
from tests.baseline import small_agents
from tests.baseline.agents import test_actorq as actorq

SMALL = device_files.Settings(
    formats=("onnx", "native"), calibration_episodes=1, episodes=6, states=40, repeats=2,
    memory_turns=0,
)


@pytest.fixture(name="navigator", scope="module")
def fixture_navigator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("navigator")
    environment = small_agents.normalized(small_agents.vector(navigation.ENV_ID))
    made = small_agents.model("ppo", environment)
    return small_agents.save(
        folder, "ppo", navigation.ENV_ID, made, normalization=environment
    ).parent


@pytest.fixture(name="measured", scope="module")
def fixture_measured(navigator):
    agent = loading.load(str(navigator))
    return agent, device_files.measure(agent, SMALL)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_every_file_is_measured_over_the_same_starts(measured):
    agent, found = measured
    assert found.layers == (16, 16)
    assert set(found.files) == {
        (name, side) for name in ("onnx", "native") for side in ("fp32", "quantized")
    }
    for key, file in found.files.items():
        assert len(file.seconds) == 2 and file.median_s > 0 and file.file_bytes > 1000
        assert file.p99_s >= file.median_s > 0 and 0 < file.call_s < 1
        assert file.resident_bytes is None and file.agreements["alike"].states > 0
        assert file.agreements["alike"].alike > (0.99 if "fp32" in key else 0.7), key
    own = evaluation.evaluate(agent.make_env, agent.act, 6, 0)
    assert found.episodes["fp32"] == own
    assert {side: len(episodes) for side, episodes in found.episodes.items()} == {
        "fp32": 6, "onnx": 6, "native": 6,
    }
    assert all(episode.success is not None for episode in own)


def test_files_of_actorqs_policies_play_the_same_task(tmp_path):
    made = actorq.checkpoint(actorq.PENDULUM, (3,), 1, "tanh")
    saved.save_policy(str(tmp_path), made)
    agent = loading.load(str(tmp_path))
    found = device_files.measure(agent, dataclasses.replace(SMALL, formats=("onnx",), bits=16))
    assert {file.agreements["alike"].alike for file in found.files.values()} == {1.0}
    returns = [[each.episode_return for each in found.episodes[side]] for side in ("fp32", "onnx")]
    assert np.ptp(returns[0]) > 10  # Halved or doubled actions would not come to the same.
    np.testing.assert_allclose(*returns, rtol=0.02)


def test_memory_is_left_out_with_one_line_where_it_cannot_be_measured(monkeypatch, caplog):
    assert deploy_benchmark._memory_turns(3) == 3 and not caplog.messages
    monkeypatch.setattr(memory.psutil, "LINUX", False)
    assert deploy_benchmark._memory_turns(0) == 0 and not caplog.messages
    assert deploy_benchmark._memory_turns(3) == 0
    (line,) = caplog.messages
    assert "Memory is not measured" in line


def test_memory_and_arm_are_measured_where_they_are_asked_for(navigator, monkeypatch):
    agent = loading.load(str(navigator))
    asked = []

    def of_policy(path, empty, turns):
        asked.append((path.stat().st_size > empty.stat().st_size, turns))
        return memory.Resident(1_000_000, 2_000_000)

    monkeypatch.setattr(memory, "of_policy", of_policy)
    found = device_files.measure(
        agent,
        dataclasses.replace(
            SMALL, formats=("onnx",), memory_turns=2,
            arm=aarch64.Python((sys.executable,), {"numpy": "2"}),
        ),
    )
    assert asked == [(True, 2)] * 2
    for key, file in found.files.items():
        assert (file.resident_bytes, file.all_pages_bytes) == (1_000_000, 2_000_000)
        assert file.arm.alike.alike == 1.0, key  # The same file acts here.
        assert file.arm.largest_output < 1e-6, key
    row = device_tables.row(agent, found, "onnx", SMALL)
    states = min(40, file.agreements["alike"].states)
    assert row["int_arm_states"] == file.arm.alike.states == states
    assert "ONNX Runtime" in device_details.arm_table([row])[-1]



def test_percentiles_calls_and_all_pages_have_columns_and_a_table(measured):
    agent, found = measured
    row = device_tables.row(agent, found, "native", SMALL)
    assert row["fp32_p99_us"] >= row["fp32_us"] and row["int_p99_us"] >= row["int_us"]
    assert 0 < row["int_call_us"] < 1e4 and row["granularity"] == "channel"
    full, quantized = (file(1000, 1e-6, 2_000_000) for _ in range(2))
    full.all_pages_bytes, quantized.all_pages_bytes = 8_000_000, 2_000_000
    found = dataclasses.replace(
        figures(), files={("onnx", "fp32"): full, ("onnx", "quantized"): quantized}
    )
    row = device_tables.row(agent, found, "onnx", ONE)
    assert row["all_pages_ratio"] == 4.0
    table = device_details.calls_table([row])[-1]
    assert "int p99 us" in table and "4.00x" in table and "8000" in table


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_empty_runtimes_policy_is_tiny_and_can_be_played():
    for file_format in names.FORMATS:
        for name in ("fp32", "quantized"):
            content = device_files.empty_file(SMALL.of_file(file_format, name))
            assert len(content) < 20_000
            assert exporting.load_file(content, file_format)([0.0] * 8) in range(8)


def test_an_agent_that_is_quantized_is_refused(navigator):
    agent = loading.load(str(navigator))
    agent.quantization = ("8", None)
    with pytest.raises(errors.UserError, match="is quantized already: name the agent"):
        device_files.measure(agent, SMALL)


def file(size, seconds, memory=None, alike=1.0):
    return device_files.File(
        lambda observation: observation, bytes(size),
        {"alike": agreement.Agreement(100, alike)}, [seconds, 9 * seconds, seconds],
        resident_bytes=memory,
    )


def episodes(*successes):
    return [
        evaluation.Episode(10.0 * bool(success), 5, success) for success in successes
    ]


def figures(memory=(20_000_000, 5_000_000), successes=((1, 1, 1, 0), (1, 0, 1, 0))):
    return device_files.Measured(
        (64, 64, 64),
        {
            ("onnx", "fp32"): file(40_000, 3e-6, memory[0]),
            ("onnx", "quantized"): file(10_000, 1e-6, memory[1], 0.97),
        },
        {
            side: episodes(*(None if one is None else bool(one) for one in of))
            for side, of in zip(("fp32", "onnx"), successes, strict=True)
        },
    )


ONE = device_files.Settings(episodes=4)


def test_rows_have_medians_ratios_and_the_papers_figures(measured):
    agent, _ = measured
    row = device_tables.row(agent, figures(), "onnx", ONE)
    assert row["fp32_us"] == pytest.approx(3.0) and row["speedup"] == pytest.approx(3.0)
    assert row["fp32_success"] == 0.75 and row["int_success"] == 0.5
    assert row["success_change"] == -0.25 and row["return_change"] is None
    assert row["success_change_low"] <= -0.25 <= row["success_change_high"] <= 0.0
    assert row["file_ratio"] == 4.0 and row["memory_ratio"] == 4.0 and row["alike"] == 0.97
    assert row["paper_policy"] == "Policy I" and row["paper_int8_success"] == 0.45
    assert row["scheme"] == "weights+activations"
    assert row["fp32_p99_us"] is None and row["int_call_us"] is None  # They were not measured.
    assert row["all_pages_ratio"] is None


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_arm_cannot_play_is_told_and_costs_no_other_figure(navigator):
    agent = loading.load(str(navigator))
    arm = aarch64.Python((sys.executable, "-c", "raise SystemExit('crash')"), {})
    settings = dataclasses.replace(SMALL, formats=("onnx",), states=5, arm=arm)
    found = device_files.measure(agent, settings)
    row = device_tables.row(agent, found, "onnx", settings)
    assert row["fp32_arm_alike"] is None and "crash" in row["int_arm_failure"]
    assert row["speedup"] > 0
    assert "FAILS: " in device_details.arm_table([row])[-1]


def test_the_papers_figures_stand_beside_its_task_and_width_alone(measured):
    agent, _ = measured
    other = dataclasses.replace(agent, env_id="CartPole-v1")
    assert device_tables.row(other, figures(), "onnx", ONE)["paper_policy"] is None
    narrow = dataclasses.replace(ONE, bits=4)
    assert device_tables.row(agent, figures(), "onnx", narrow)["paper_policy"] is None


def test_bars_of_agents_with_the_same_layers_have_different_names(measured):
    agent, _ = measured
    first, second = (
        {**device_tables.row(agent, figures(), "onnx", ONE), "speedup": speedup}
        for speedup in (1.0, 2.0)
    )
    labels = [device_tables._label(each, [first, second]) for each in (first, second)]
    assert len(set(labels)) == 2 and all(navigation.ENV_ID in label for label in labels)
    assert device_tables._label(first, [first]) == "64-64-64, onnx"


def test_rows_of_little_memory_and_without_success_say_so(measured):
    agent, _ = measured
    found = figures(memory=(90_000, 40_000), successes=((None, None), (None, None)))
    row = device_tables.row(agent, found, "onnx", ONE)
    assert row["memory_ratio"] is None and row["fp32_memory_bytes"] == 90_000
    assert row["fp32_success"] is None and row["success_change"] is None
    assert "return 0.00" in device_tables._cells(row)


def test_where_there_is_no_success_returns_have_the_interval(measured):
    agent, _ = measured
    found = figures()
    for side, returns in (("fp32", (1.0, 2.0, 3.0)), ("onnx", (1.0, 1.0, 3.0))):
        found.episodes[side] = [evaluation.Episode(earned, 5, None) for earned in returns]
    row = device_tables.row(agent, found, "onnx", ONE)
    assert row["return_change"] == pytest.approx(-1 / 3)
    assert (row["return_change_low"], row["return_change_high"]) == (-1.0, 0.0)
    assert row["success_change"] is row["success_change_low"] is None
    assert "-0.33 [-1.00, +0.00]" in device_tables._cells(row)
    found.episodes = {side: episodes[:1] for side, episodes in found.episodes.items()}
    row = device_tables.row(agent, found, "onnx", ONE)
    assert row["return_change_low"] is None and "+0.00" in device_tables._cells(row)


def test_tables_and_files_have_the_command_and_both_sides(measured, tmp_path, capsys):
    agent, _ = measured
    device_tables.report([(agent, figures())], ONE, str(tmp_path / "out"))
    text = capsys.readouterr().out
    assert (tmp_path / "out" / "deployment.md").read_text().startswith(text)
    for words in ("64-64-64", "3.00x", "75.0 %", "-25.0 [", "Policy I", "1.18x", "aarch64:"):
        assert words in text, words
    assert "Policy II" not in text
    assert (tmp_path / "out" / "deployment.png").stat().st_size > 5000
    record = json.loads((tmp_path / "out" / "deployment.json").read_text())
    assert {"command", "machine", "git_commit", "settings", "agents"} <= set(record)
    assert record["agents"][0]["episodes"]["onnx"]["successes"] == [1, 0, 1, 0]
    with open(tmp_path / "out" / "deployment.csv", encoding="utf-8") as content:
        row, = csv.DictReader(content)
    assert float(row["speedup"]) == pytest.approx(3.0) and row["commit"]
    assert float(row["paper_fp32_success"]) == paper.DEPLOYMENT[0].fp32_success / 100


def test_deploy_writes_a_file_and_its_runner(run_commands, navigator, tmp_path):
    done, = run_commands("deploy", [[navigator, "--out", tmp_path / "d"]])
    assert done.code == 0, done
    assert "Acts as" in done.out and "8 bits" in done.out
    policy = run_policy.Policy(tmp_path / "d" / "policy.onnx")
    assert policy.shape == [21]
    assert (tmp_path / "d" / "run_policy.py").read_text() == pathlib.Path(
        run_policy.__file__
    ).read_text()
    assert finding.found(navigator.parents[1]) == [("ppo", navigation.ENV_ID)]


def test_deploy_writes_native_files_with_all_that_a_board_needs(run_commands, navigator, tmp_path):
    cases = [
        [navigator, "--format=native", f"--bits={bits}", "--out", tmp_path / str(bits)]
        for bits in (8, 4)
    ]
    for done, bits in zip(run_commands("deploy", cases), (8, 4), strict=True):
        assert done.code == 0, done
        assert "Acts as" in done.out and "--granularity" not in done.out
        folder = tmp_path / str(bits)
        assert f"{folder}/run_native.py {folder}/policy.native" in done.out
        assert {path.name for path in folder.iterdir()} == {
            "build_native.sh", "policy.native", "policy_native.c", "run_native.py"
        }


def test_deploy_tells_what_users_get_wrong_in_one_line(run_commands, navigator, tmp_path):
    cases = [
        ([], "takes one argument"),
        ([tmp_path / "x"], "There is no agent at"),
        ([navigator, "--format=native", "--bits=7"], "no native file of 7 bits"),
        ([navigator, "--bits=5"], "no onnx file of 5 bits. Possible are onnx: 32, 16, 8, 4"),
        ([navigator, "--format=torchscript", "--scheme=weights+activations"], "--format=onnx or"),
    ]
    results = run_commands("deploy", [arguments for arguments, _ in cases])
    for (_, message), result in zip(cases, results, strict=True):
        assert message in result.error("deploy")


def test_benchmark_tells_what_users_get_wrong_in_one_line(run_commands):
    cases = [
        ([], "takes agents' zips or folders"),
        (["agent", "--formats=onnx,jpeg"], "known are onnx, tflite, torchscript, native"),
        (["agent", "--bits=32"], "is what the quantized files are compared with"),
        (["agent", "--bits=4", "--formats=onnx,torchscript"], "no torchscript file of 4 bits"),
        (["agent", "--formats=tflite", "--scheme=weights"], "--format=onnx or torchscript"),
        (["agent", "--aarch64_python='python"], "--aarch64_python='python: No closing quotation"),
        (["agent", "--aarch64_python=echo"], "echo is no Python"),
    ]
    results = run_commands("deploy_benchmark", [arguments for arguments, _ in cases])
    for (_, message), result in zip(cases, results, strict=True):
        assert message in result.error("deploy_benchmark")


def test_benchmark_prints_its_table(run_commands, navigator, tmp_path):
    # It has a process of its own, since the benchmark keeps to one core.
    (done,) = run_commands("deploy_benchmark", [
        [navigator, "--episodes=3", "--states=20", "--repeats=1", "--memory_turns=0",
         "--calibration_episodes=1", f"--out={tmp_path}"],
    ])
    assert done.code == 0, done
    assert "| 16-16 " in done.out and "ONNX Runtime" in done.out
    record = json.loads((tmp_path / "deployment.json").read_text())
    assert record["command"].startswith("python -m baseline.deploy_benchmark")
