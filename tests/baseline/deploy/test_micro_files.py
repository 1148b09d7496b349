"""Deploy's files for TensorFlow Lite Micro: when they are chosen, and how they are asked for."""

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy import saved as checkpoints
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import finding
from baseline.deploy import deploying
from baseline.deploy import device_files
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.deploy import run_policy
from baseline.formats import names
from baseline.formats import tflite_policy
from baseline.quantization import schemes
from tests.baseline import own_agents
from tests.baseline import players
from tests.baseline import small_agents
from tests.baseline.agents import test_actorq as actorq
from tests.baseline.agents import test_kinds_of_agents as kinds

MICRO, EXACT = (
    exporting.Settings("tflite", kernels=kernels, calibration_episodes=2)
    for kernels in names.KERNELS
)


def folder_of(zoo, algo, env_id):
    return str(zoo.folder / algo / f"{env_id}_1")


def states_of(agent, count=200):
    return agreement.visited_states(agent.make_env, agent.act, 3, 1, count)


def played(content, states, micro=False):
    return (players.micro_player if micro else players.tflite_player)(content)(states)


@pytest.mark.parametrize(
    ("algo", "env_id"),
    [("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("a2c", "Pendulum-v1"),
     ("ddpg", "Pendulum-v1"), ("ppo", "Pendulum-v1")],
)
def test_agents_act_much_as_before_normalization_included(zoo, algo, env_id):
    agent = loading.load(folder_of(zoo, algo, env_id))
    states = states_of(agent)
    content = exporting.export(agent, MICRO)
    for micro in (False, True):
        found = agreement.compare(
            agent.act(states), played(content, states, micro), agent.network.low,
            agent.network.high,
        )
        assert found.alike > 0.93 if found.mean is None else found.mean < 0.02, str(found)


@pytest.mark.parametrize(
    ("name", "task", "outputs", "head"),
    [("d4pg", actorq.PENDULUM, 1, "tanh"), ("dqn", actorq.CARTPOLE, 2, "q_values")],
)
def test_policies_of_actorq(tmp_path, name, task, outputs, head):
    shape = (3,) if name == "d4pg" else (4,)
    checkpoints.save_policy(str(tmp_path), actorq.checkpoint(task, shape, outputs, head))
    agent = loading.load(str(tmp_path))
    states = states_of(agent, 100)
    content = exporting.export(agent, MICRO)
    found = exporting.compare(agent, content, "tflite", states)
    assert found.alike > 0.93 if found.mean is None else found.mean < 0.03, str(found)
    both = played(content, states, micro=True), played(content, states)
    assert np.mean(np.abs(both[0] - both[1])) < 0.02


def test_images_go_in_as_their_pixels(atari_zoo):
    agent = loading.load(atari_zoo.folder / "dqn" / "BreakoutNoFrameskip-v4_1")
    rng = np.random.default_rng(0)
    states = rng.integers(0, 256, (6, 4, 84, 84)).astype(np.uint8)
    content = exporting.export(agent, MICRO)
    policy = exporting.load_file(content, "tflite")
    assert policy.dtype == np.uint8 and tuple(policy.shape) == (4, 84, 84)
    by_micro = players.loaded_by_micro(content)
    for state in states:
        outputs = policy(state, "output")
        # TFLite's fastest kernels round ties otherwise: one level of 256.
        np.testing.assert_allclose(
            outputs, by_micro(state, "output"), atol=0.02 * np.ptp(outputs)
        )
    with pytest.raises(TypeError, match="images are uint8"):
        policy(states[0] / np.float32(255))


def test_agents_of_quantization_aware_training(qat8):
    agent = finding.load("a2c", "CartPole-v1", qat8)
    how = exporting.Settings("tflite", kernels=names.MICRO)
    content = exporting.export(agent, how)
    assert players.tflite_metadata(content, names.MARK)["kernels"] == "micro"
    states = states_of(agent)
    found = agreement.compare(agent.act(states), played(content, states, micro=True))
    assert found.holds, str(found)
    # The choice stays the file that keeps the integers of the training.
    assert deploying.kernels_for(agent, how, "auto") == names.EXACT
    with pytest.raises(errors.UserError, match="quantized already.*--calibration_episodes out"):
        exporting.export(agent, MICRO)


def test_micro_is_the_choice_for_8_bits_and_layers_that_it_has(zoo, tmp_path, monkeypatch, capsys):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    for bits, expected in ((8, names.MICRO), (4, names.EXACT), (32, names.EXACT)):
        how = exporting.Settings("tflite", bits, names.scheme("tflite", bits, None))
        assert deploying.kernels_for(agent, how, "auto") == expected
    assert deploying.kernels_for(agent, EXACT, names.EXACT) == names.EXACT
    assert deploying.kernels_for(agent, exporting.Settings("onnx"), "auto") == names.EXACT
    assert not capsys.readouterr().out
    kind = own_agents.KINDS["SiLU"]
    kinds.register(monkeypatch, kind)
    small_agents.save(tmp_path, kind.algo, own_agents.ENV_ID, kinds.made(kind))
    silu = finding.load(kind.algo, own_agents.ENV_ID, tmp_path)
    assert deploying.kernels_for(silu, EXACT, "auto") == names.EXACT
    (line,) = capsys.readouterr().out.splitlines()
    assert "not for TensorFlow Lite Micro. Layer" in line and "SiLU" in line
    with pytest.raises(errors.UserError, match="SiLU.*--tflite_kernels=exact"):
        exporting.export(silu, MICRO)


def test_the_exact_form_is_what_it_was(zoo):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    ranges = calibration.ranges(agent, 2)
    scheme = schemes.Scheme("8")
    weights = {
        name: schemes.integers(name, module, scheme, 8)
        for name, module in agent.network.with_weights()
    }
    expected = tflite_policy.export(agent.network, ranges, weights)
    assert exporting.export(agent, EXACT, ranges) == expected
    assert exporting.export(agent, exporting.Settings("tflite"), ranges) == expected


def test_auto_tries_both_kernels(zoo, capsys):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    chosen = deploying.choose(agent, MICRO, ("paper", "channel"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert len(lines) == 3 and "--tflite_kernels micro --granularity channel" in lines[0]
    assert chosen.kernels in names.KERNELS
    found = deploying.alternatives(MICRO)
    assert MICRO not in found and EXACT in found
    assert "--tflite_kernels micro" in deploying.measurement("x", MICRO)
    assert "--tflite_kernels" not in deploying.measurement("x", EXACT)


def test_the_benchmark_measures_the_kernels_that_it_is_asked_for(zoo):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    settings = device_files.Settings(
        formats=("tflite",), calibration_episodes=1, episodes=2, states=30, repeats=1,
        memory_turns=0, kernels=names.MICRO,
    )
    found = device_files.measure(agent, settings)
    quantized = found.files["tflite", "quantized"]
    assert quantized.agreements["alike"].alike > 0.8
    assert players.tflite_metadata(quantized.content, names.MARK)["kernels"] == "micro"
    content = device_files.empty_file(settings.of_file("tflite", "quantized"))
    assert exporting.load_file(content, "tflite")([0.0] * 8) in range(8)


def test_commands(run_commands, zoo, tmp_path):
    agent = folder_of(zoo, "ppo", "CartPole-v1")
    made, kept, *refused = run_commands("deploy", [
        [agent, "--format=tflite", f"--out={tmp_path / 'micro'}", "--calibration_episodes=1"],
        [agent, "--format=tflite", f"--out={tmp_path / 'exact'}", "--calibration_episodes=1",
         "--tflite_kernels=exact"],
        [agent, "--format=tflite", "--bits=4", "--tflite_kernels=micro"],
        [agent, "--format=onnx", "--tflite_kernels=micro"],
    ])
    assert made.code == kept.code == 0, (made, kept)
    found = {
        name: players.tflite_metadata((tmp_path / name / "policy.tflite").read_bytes(), names.MARK)
        for name in ("micro", "exact")
    }
    assert found["micro"]["kernels"] == "micro" and "kernels" not in found["exact"]
    policy = run_policy.Policy(tmp_path / "micro" / "policy.tflite")
    assert policy(np.zeros(4)) in (0, 1)
    messages = ("--tflite_kernels=micro is for 8 bits", "is for --format=tflite, not for")
    for message, result in zip(messages, refused, strict=True):
        assert message in result.error("deploy")
