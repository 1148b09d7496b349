"""The integer forms of agents that were trained with quantization, beside each other."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from actorQ.core import errors
from baseline.agents import agreement
from baseline.agents import finding
from baseline.agents import integers
from baseline.deploy import exporting
from baseline.deploy import integer_forms
from baseline.deploy import integer_tables
from baseline.deploy import measuring
from baseline.deploy import run_policy
from baseline.formats import integer_form
from baseline.formats import quantized_agents
from baseline.qat import export as qat_export
from baseline.qat import model as qat_model
from baseline.qat import training
from baseline.quantization import acting_path
from tests.baseline import players
from tests.baseline.qat import test_training

CARTPOLE = test_training.CARTPOLE


def trained(folder, algo, **kwargs):
    training.train(test_training.settings(folder, algo), qat_model.QatSettings(**kwargs))
    return finding.load(algo, test_training.RUNS[algo][0], folder)


@pytest.fixture(name="folder8", scope="module")
def fixture_folder8(qat8, tmp_path_factory):
    return shutil.copytree(qat8, tmp_path_factory.mktemp("qat") / "agents")


@pytest.fixture(name="agent8")
def fixture_agent8(folder8):
    return finding.load("a2c", CARTPOLE, folder8)


def measure(agent, episodes=1, states=50, repeats=1):
    settings = measuring.Settings(episodes=episodes, states=states, repeats=repeats)
    return integer_forms.measure_trained(agent, settings)


def compared(agent, episodes, states):
    act = players.tflite_player(quantized_agents.tflite_file(agent))
    return test_training.compared(agent, act, episodes, states)


def test_tflite_acts_as_a_trained_agent_does(agent8):
    found = compared(agent8, 5, 5000)

    assert found.states > 50
    assert found.holds, str(found)


@pytest.mark.parametrize("algo", ["ddpg", "ppo"])
def test_tflite_acts_as_agents_of_continuous_actions_do(tmp_path, algo):
    found = compared(trained(tmp_path, algo, bits=8), 1, 500)

    assert found.holds and found.largest < 0.02, str(found)


def test_tflite_takes_narrow_integers_and_quantized_outputs(tmp_path):
    agent = trained(tmp_path, "a2c", bits=3, output=True)
    assert agent.quantization[1][acting_path.OUTPUT][2:] == ()
    visited = test_training.visited_states(agent, 3, 5000)

    made = players.tflite_player(quantized_agents.tflite_file(agent))

    expected = acting_path.forward(agent.network, visited, agent.tap).numpy()
    assert len(np.unique(made.output(visited))) <= 8
    # Sums that differ in their last digit may round to two sides of a level's edge.
    assert np.mean(np.abs(made.output(visited) - expected) < 1e-5) > 0.99


@pytest.mark.parametrize("algo", ["ppo", "dqn", "td3", "sac"])
def test_integer_files_of_learned_steps_act_as_their_agent(tmp_path, algo):
    """Ranges in the files are those that were learned; 8 bits have an ONNX file as well."""
    agent = trained(tmp_path, algo, bits=8, estimator="lsq", granularity="channel")
    found = measure(agent)
    assert list(found.forms) == [integer_forms.FAKE, integer_forms.ONNX, integer_forms.TFLITE]
    assert not found.failing, found.forms
    metadata = players.tflite_player(quantized_agents.tflite_file(agent)).metadata
    assert {name: tuple(ends) for name, ends in metadata["ranges"].items()} == agent.quantization[1]


def test_layers_of_other_bits_have_the_forms_that_can_hold_them(tmp_path):
    agent = trained(tmp_path, "sac", bits=3, estimator="lsq", first_bits=8, last_bits=6)
    found = measure(agent)
    assert list(found.forms) == [integer_forms.FAKE, integer_forms.TFLITE]
    assert not found.failing, found.forms
    wide = trained(tmp_path / "wide", "a2c", bits=8, last_bits=9)
    assert not measure(wide).forms
    last = wide.network.with_weights()[-1][0]
    with pytest.raises(errors.UserError, match=f"weights of {last} have 9 bits, but ONNX Runtime"):
        quantized_agents.onnx_file(wide)
    with pytest.raises(errors.UserError, match="no TFLite form of 9 bits, which the weights of"):
        quantized_agents.tflite_file(wide)


@pytest.mark.parametrize("algo", ["td3", "sac"])
@pytest.mark.parametrize("how", [{}, {"estimator": "lsq", "last_bits": 8}])
def test_a_device_s_c_file_acts_as_its_agent_at_few_bits(tmp_path, algo, how):
    agent = trained(tmp_path, algo, bits=4, **how)
    form = integer_form.make(
        agent.network, 4, integers.ranges_with_bits(agent),
        weights=integers.weights(agent),
    )
    visited = test_training.visited_states(agent, 1, 60)
    acted = integer_form.actions(form, integer_form.outputs(form, visited))
    found = agreement.compare(
        exporting.acting(agent.network, agent.tap)(visited), acted, agent.network.low,
        agent.network.high,
    )
    assert found.holds, str(found)


def test_tflite_normalizes_itself_if_asked(tmp_path):
    agent = trained(tmp_path, "ppo", bits=8)
    assert agent.normalization is not None
    raw = agreement.visited_states(agent.make_env, agent.act, 1, 0, 300)

    inside = players.tflite_player(quantized_agents.tflite_file(agent, normalizes=True))

    np.testing.assert_allclose(inside(raw), agent.act(raw), atol=0.04)
    assert np.mean(np.abs(inside(raw) - agent.act(raw)) < 1e-5) > 0.95


def test_inputs_of_more_bits_are_refused_not_cut(tmp_path):
    agent = trained(tmp_path, "a2c", bits=8, input_bits=16)
    first, _ = agent.network.with_weights()[0]
    assert agent.quantization[1][first][2] == 16
    with pytest.raises(errors.UserError, match=f"input of {first} has 16 bits, but ONNX Runtime"):
        quantized_agents.onnx_file(agent)
    with pytest.raises(errors.UserError, match="no TFLite form of 16 bits, which the input of"):
        quantized_agents.tflite_file(agent)


def test_an_output_of_other_bits_is_refused_not_cut(agent8):
    scheme, ranges = agent8.quantization
    agent8.quantization = scheme, {**ranges, acting_path.OUTPUT: (-1.0, 1.0, 4)}
    with pytest.raises(errors.UserError, match="the output has 4 bits, but ONNX Runtime"):
        quantized_agents.onnx_file(agent8)
    quantized_agents.tflite_file(agent8)
    agent8.quantization = scheme, {**ranges, acting_path.OUTPUT: (-1.0, 1.0, 8)}
    quantized_agents.onnx_file(agent8)


def test_wide_or_rounded_down_agents_have_no_such_form(tmp_path, agent8):
    with pytest.raises(errors.UserError, match="no TFLite form of 9 bits"):
        quantized_agents.tflite_file(trained(tmp_path, "a2c", bits=9))
    scheme, ranges = agent8.quantization
    agent8.quantization = dataclasses.replace(scheme, rounding="floor"), ranges
    for export in (quantized_agents.onnx_file, quantized_agents.tflite_file):
        with pytest.raises(errors.UserError, match="rounds down"):
            export(agent8)


def test_all_forms_are_measured_side_by_side(agent8):
    found = measure(agent8, 3, 5000, 2)

    assert list(found.forms) == [integer_forms.FAKE, integer_forms.ONNX, integer_forms.TFLITE]
    assert not found.forms[integer_forms.FAKE].agreements
    first = np.mean(found.forms[integer_forms.FAKE].returns)
    for name, filename in (
        (integer_forms.ONNX, qat_export.ONNX_FILENAME),
        (integer_forms.TFLITE, qat_export.TFLITE_FILENAME),
    ):
        form = found.forms[name]
        alike = form.agreements["agreement"]
        assert alike.holds and alike.states == found.states
        assert np.mean(form.returns) == pytest.approx(first, rel=0.2)
        assert len(form.seconds) == 2
        assert (agent8.path.parent / CARTPOLE / filename).stat().st_size == form.file_bytes
    assert not found.failing
    text = integer_tables.trained_text(found)
    assert f"{found.packed_bytes} bytes" in text and "alike in 100.00 %" in text


def test_inputs_of_fewer_bits_leave_the_tflite_form_alone(tmp_path):
    found = measure(trained(tmp_path, "a2c", bits=8, input_bits=6))
    assert list(found.forms) == [integer_forms.FAKE, integer_forms.TFLITE]


@pytest.mark.usefixtures("no_tensorflow")
def test_without_tensorflow_the_other_form_is_measured_and_that_is_said(
    agent8, tmp_path, caplog
):
    (agent8.path.parent / CARTPOLE / qat_export.TFLITE_FILENAME).unlink(missing_ok=True)
    found = measure(agent8)
    assert list(found.forms) == [integer_forms.FAKE, integer_forms.ONNX]
    assert "Only the ONNX file is written and measured: TFLite files need Tens" in caplog.text
    assert not (agent8.path.parent / CARTPOLE / qat_export.TFLITE_FILENAME).exists()
    narrow = trained(tmp_path, "a2c", bits=8, input_bits=6)  # This agent has no other form.
    with pytest.raises(errors.UserError, match="TFLite files need TensorFlow, which is not inst"):
        measure(narrow)


def test_forms_that_act_otherwise_are_named(agent8, monkeypatch):
    made = run_policy._tflite

    def others(path):
        shape, dtype, call = made(path)
        return shape, dtype, lambda x, name: 1 - call(x, name)

    monkeypatch.setattr(run_policy, "_tflite", others)
    assert measure(agent8).failing == [integer_forms.TFLITE]


def test_a_file_that_cannot_be_written_is_told(tmp_path, agent8):
    folder = agent8.path.parent / CARTPOLE
    (folder / f"{qat_export.TFLITE_FILENAME}.tmp").mkdir()
    with pytest.raises(errors.UserError, match="Cannot write .*policy.tflite"):
        measure(agent8)
    (folder / f"{qat_export.TFLITE_FILENAME}.tmp").rmdir()


def run(run_commands, *arguments):
    # It has a process of its own, since the program keeps to one core.
    (result,) = run_commands("qat_integer", [["--algo=a2c", f"--env={CARTPOLE}", *arguments]])
    assert result.code == 0, result
    return result


def test_command_writes_files_and_figures(folder8, tmp_path, run_commands):
    folder = shutil.copytree(folder8, tmp_path / "agents")
    out = tmp_path / "new" / "figures.json"

    result = run(
        run_commands, f"--folder={folder}", "--episodes=2", "--states=100", f"--out={out}"
    )

    assert [line.rpartition(": ")[2] for line in result.err.splitlines()] == [
        f"{name} plays 2 episodes"
        for name in (integer_forms.FAKE, integer_forms.ONNX, integer_forms.TFLITE)
    ]
    figures = json.loads(out.read_text())
    assert figures["bits"] == 8 and figures["algo"] == "a2c" and figures["env"] == CARTPOLE
    assert "--episodes=2" in figures["command"] and figures["git_commit"]
    assert figures["settings"]["states"] == 100
    assert set(figures["forms"]) == {integer_forms.FAKE, integer_forms.ONNX, integer_forms.TFLITE}
    form = figures["forms"][integer_forms.TFLITE]
    assert form["agreement"]["holds"] and form["agreement"]["alike"] >= 0.99
    assert len(form["returns"]) == 2 and len(form["seconds"]) == measuring.Settings().repeats
    written = next(folder.rglob(qat_export.TFLITE_FILENAME))
    assert written.stat().st_size == form["file_bytes"]
    assert players.tflite_player(written.read_bytes()).metadata["head"] == "argmax"


@pytest.mark.parametrize("bits", [{"bits": 12}, {"bits": 4, "input_bits": 12}])
def test_command_tells_only_the_size_of_wide_integers(tmp_path, run_commands, bits):
    agent = trained(tmp_path, "a2c", **bits)
    out = tmp_path / "figures.json"

    result = run(run_commands, f"--folder={tmp_path}", f"--out={out}")

    assert f"Parameters, packed: {integers.num_bytes(agent)} bytes" in result.out
    assert json.loads(out.read_text())["forms"] == {}
    assert not list(tmp_path.rglob("policy.*"))
