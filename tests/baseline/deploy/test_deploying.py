"""Deploy warns of files that act otherwise than their agent, and says what helps."""

import logging
import pathlib
import re
import shlex
import sys

import pytest
import torch

from actorQ.core import errors
from actorQ.policy import saved as checkpoints
from baseline.agents import agreement
from baseline.deploy import deploying
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.formats import names as deploy_formats
from tests.baseline import small_agents
from tests.baseline.agents import test_actorq as actorq

TRIED = re.compile(r"  (--format .*): ([\d.]+) %.*, \d+ bytes")


def settings(file_format="onnx", bits=8, **changes):
    scheme = deploy_formats.scheme(file_format, bits, changes.pop("scheme", None))
    return exporting.Settings(file_format, bits, scheme, calibration_episodes=2, **changes)


@pytest.fixture(name="close", scope="module")
def fixture_close(tmp_path_factory):
    """A DQN whose Q-values hardly differ, so that 8 bits cannot tell which is larger."""
    made = small_agents.model("dqn", small_agents.vector("CartPole-v1"), seed=3)
    *hidden, last = made.policy.q_net.q_net
    generator = torch.Generator().manual_seed(0)
    observations = 0.1 * torch.randn([200, 4], generator=generator)
    with torch.no_grad():
        change = 0.008 * torch.randn(last.weight.shape[1], generator=generator)
        last.weight[1] = last.weight[0] + change
        gaps = torch.nn.Sequential(*hidden)(observations) @ change
        last.bias[1] = last.bias[0] - gaps.median()  # Each action is best in half of the states.
    path = small_agents.save(tmp_path_factory.mktemp("close"), "dqn", "CartPole-v1", made)
    return str(path)


def deployed(path, made, folder, caplog, capsys):
    """Returns the warnings of `deploy`, and its lines."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="absl"):
        deploying.deploy(loading.load(path), shlex.quote(path), made, str(folder), checks=True)
    return caplog.messages, capsys.readouterr().out.splitlines()


def test_a_file_that_acts_otherwise_is_warned_of_with_what_helps(close, tmp_path, caplog, capsys):
    (warning,), lines = deployed(close, settings(), tmp_path / "a b", caplog, capsys)
    share = float(re.search(r"visited states: ([\d.]+) %", lines[1])[1])
    assert share < 95 and f"in {100 - share:.1f} % of the states" in warning
    tried = {match[1]: float(match[2]) for match in map(TRIED.fullmatch, lines) if match}
    # Both schemes and granularities but the file's own, then more bits.
    assert len(tried) == 4 and tried["--format onnx --bits 16 --calibration_episodes 2"] > 95
    (found,) = [line for line in lines if line.startswith("The smallest with at least 95 %")]
    program, *arguments = shlex.split(found.partition(": ")[2])
    assert (program, arguments[:3]) == (sys.executable, ["-m", "baseline.deploy", close])
    assert arguments[3:5] == ["--out", str(tmp_path / "a b")]
    assert tried[" ".join(arguments[5:])] >= 95
    assert lines[-1].startswith(f"To play it: {sys.executable} '{tmp_path}/a b/run_policy.py' ")
    # The wider file needs no warning.
    warnings, lines = deployed(close, settings(bits=16), tmp_path / "wide", caplog, capsys)
    assert not warnings and not any(map(TRIED.fullmatch, lines))


@pytest.mark.parametrize(("alike", "warns"), [(0.949, True), (0.95, False), (1.0, False)])
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_below_95_percent_deploy_warns(
    zoo, tmp_path, monkeypatch, caplog, capsys, alike, warns, algo
):
    monkeypatch.setattr(exporting, "compare", lambda *_: agreement.Agreement(100, alike, 0.1, 0.1))
    path = zoo.folder / algo / ("CartPole-v1_1" if algo == "ppo" else "Pendulum-v1_1")
    warnings, lines = deployed(str(path), settings(), tmp_path, caplog, capsys)
    assert bool(warnings) == warns
    assert any("A file of --bits 32 does" in line for line in lines) == warns


@pytest.mark.parametrize("file_format", deploy_formats.FORMATS)
def test_alternatives_are_other_files_of_the_same_or_more_bits(file_format):
    for bits in deploy_formats.WIDTHS[file_format]:
        if bits == 32:
            continue
        made = settings(file_format, bits)
        found = deploying.alternatives(made)
        assert made not in found and len(set(found)) == len(found)
        assert all(one.bits >= bits for one in found)
        for one in found:  # Every one of them exists.
            assert deploy_formats.scheme(one.format, one.bits, one.scheme) == one.scheme
        assert (found == []) == (bits == 16)


def test_auto_chooses_the_file_that_acts_most_like_the_agent(close, monkeypatch, capsys):
    agent = loading.load(close)
    shares = {("weights+activations", "paper"): 0.8, ("weights+activations", "channel"): 0.7,
              ("weights", "paper"): 0.7, ("weights", "channel"): 0.9}
    tried = []

    def export(agent, made, ranges):
        tried.append((made.scheme, made.granularity))
        return bytes(100)

    monkeypatch.setattr(exporting, "export", export)
    monkeypatch.setattr(
        exporting, "compare", lambda *_: agreement.Agreement(500, shares[tried[-1]])
    )
    chosen = deploying.choose(agent, settings(), ["paper", "channel"])
    assert (chosen.scheme, chosen.granularity) == ("weights", "channel")
    assert set(tried) == set(shares) and "90.00 %" in capsys.readouterr().out
    # A granularity that was asked for stays; of equals the first counts.
    shares["weights", "paper"] = 0.8
    chosen = deploying.choose(agent, settings(), ["paper"])
    assert (chosen.scheme, chosen.granularity) == ("weights+activations", "paper")
    assert deploying.choose(agent, settings(bits=16), ["paper"]) == settings(bits=16)
    agent.quantization = object()
    with pytest.raises(errors.UserError, match="quantized already.*leave --scheme out"):
        deploying.choose(agent, settings(), ["paper"])


@pytest.mark.parametrize(("ours", "slower"), [(12e-6, True), (10.4e-6, False), (5e-6, False)])
def test_a_slower_file_is_told(zoo, tmp_path, monkeypatch, caplog, capsys, ours, slower):
    seconds = {"own": [ours], "full": [10e-6]}
    monkeypatch.setattr(deploying.timing, "latencies", lambda *_: seconds)
    path = str(zoo.folder / "ppo" / "CartPole-v1_1")
    _, lines = deployed(path, settings(), tmp_path, caplog, capsys)
    told = [line for line in lines if line.startswith("An action takes")]
    assert bool(told) == slower
    if slower:
        assert told[0].startswith("An action takes 12.0 µs on this machine, and 10.0 µs with")
    _, lines = deployed(path, settings(bits=32), tmp_path, caplog, capsys)
    assert not any("An action takes" in line for line in lines)


@pytest.mark.parametrize(
    ("format_and_bits", "flags"),
    [
        (("onnx", 8), "--formats onnx --bits 8"),
        (("onnx", 16), "--formats onnx --bits 16 --scheme weights"),
        (("torchscript", 8), "--formats torchscript --bits 8 --scheme weights"),
    ],
)
def test_the_command_that_measures_the_return(format_and_bits, flags):
    made = exporting.Settings(*format_and_bits, deploy_formats.scheme(*format_and_bits, None))
    assert deploying.measurement("'logs/a b' --algo=ppo", made) == (
        f"{shlex.quote(sys.executable)} -m baseline.deploy_benchmark 'logs/a b' --algo=ppo {flags}"
    )


def test_the_default_folder_has_no_characters_that_shells_and_paths_split_at(
    tmp_path, monkeypatch, capsys
):
    task = "gym,gymnasium.envs.classic_control:CartPole-v1"
    checkpoints.save_policy(str(tmp_path), actorq.checkpoint(task, (4,), 2, "q_values"))
    monkeypatch.chdir(tmp_path)
    agent = loading.load(str(tmp_path))
    deploying.deploy(agent, str(tmp_path), settings(bits=32), None, checks=False)
    folder = "logs/deploy/dqn_gym-gymnasium.envs.classic_control-CartPole-v1"
    assert pathlib.Path(folder, "policy.onnx").is_file()
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"To play it: {sys.executable} {folder}/run_policy.py {folder}/policy.onnx "
        "[OBSERVATIONS.npy]"
    )


def test_command_takes_auto_and_a_zip_of_its_own(close, tmp_path, run_commands):
    out = tmp_path / "device"
    zipped = tmp_path / "my agent.zip"
    zipped.write_bytes(pathlib.Path(close).read_bytes())
    flags = ["--algo=dqn", "--env=CartPole-v1", f"--out={out}", "--calibration_episodes=1"]
    done, untold = run_commands("deploy", [
        [str(zipped), "--scheme=auto", *flags], [str(zipped), f"--out={out}"],
    ])
    assert done.code == 0 and "Chosen: --format onnx --bits 8 --scheme " in done.out
    assert f"baseline.deploy '{zipped}' --algo=dqn --env=CartPole-v1 --out {out} " in done.out
    assert (out / "policy.onnx").is_file()
    assert "Which environment is" in untold.error("deploy")
