"""Quantization-aware training as users run it: files, rows, resuming, integers."""

import dataclasses
import json
import shutil
import types
import zipfile

import numpy as np
import pytest
import safetensors.numpy
import torch

from actorQ.core import errors
from actorQ.policy import packing
from actorQ.policy import quantization
from baseline.agents import agreement
from baseline.agents import finding
from baseline.agents import integers
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.formats import quantized_agents
from baseline.qat import callback
from baseline.qat import export
from baseline.qat import model as qat_model
from baseline.qat import runs
from baseline.qat import training as qat
from baseline.quantization import names
from baseline.quantization import packed_policy
from baseline.quantization import schemes
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.train import settings as training_settings
from baseline.train import state
from baseline.train import training as train
from tests.baseline import integer_reference as reference
from tests.baseline import players
from tests.baseline import small_agents

CARTPOLE = "CartPole-v1"
OFF_POLICY = {"learning_starts": 40, "train_freq": 16, "gradient_steps": 4, "buffer_size": 1000}
RUNS = {
    "a2c": (CARTPOLE, 400, None),
    # Continuous actions, gSDE and normalized observations.
    "ppo": ("MountainCarContinuous-v0", 128, {"n_steps": 32, "batch_size": 32, "n_epochs": 2}),
    "dqn": (CARTPOLE, 300, OFF_POLICY),
    **{
        algo: ("Pendulum-v1", 200, {**OFF_POLICY, "policy_kwargs": "dict(net_arch=[16, 16])"})
        for algo in ("ddpg", "td3", "sac")
    },
}


def settings(folder, algo="a2c", **changes):
    env_id, steps, hyperparams = RUNS[algo]
    values = {
        "steps": steps, "hyperparams": hyperparams, "folder": str(folder), "device": "cpu",
        "progress": False, **changes,
    }
    return training_settings.TrainSettings(algo, env_id, **values)


def stop_after(calls):
    left = iter(range(calls))
    return lambda: next(left, None) is None


@pytest.fixture(name="spied")
def fixture_spied(monkeypatch):
    """Gives the normalized observations and actions of the model just before it is converted."""
    seen = {}
    convert = qat_model.convert

    def spy(model):
        space = model.observation_space
        space.seed(3)
        normalized = np.stack([space.sample() for _ in range(50)]).clip(-5, 5).astype(np.float32)
        seen["observations"] = normalized
        seen["actions"], _ = model.predict(normalized, deterministic=True)
        return convert(model)

    monkeypatch.setattr(callback.qat_model, "convert", spy)
    return seen


@pytest.fixture(name="agent8")
def fixture_agent8(qat8, tmp_path_factory):
    folder = shutil.copytree(qat8, tmp_path_factory.mktemp("qat") / "agents")
    return finding.load("a2c", CARTPOLE, folder)


@pytest.mark.parametrize("algo", RUNS)
def test_a_saved_agent_acts_bit_for_bit_as_in_training(tmp_path, spied, algo):
    path = qat.train(settings(tmp_path, algo), qat_model.QatSettings(3))

    agent = finding.load(algo, RUNS[algo][0], tmp_path)
    assert agent.path == path
    scheme, ranges = agent.quantization
    assert scheme == schemes.Scheme("3", schemes.WEIGHTS_AND_ACTIVATIONS)
    assert set(ranges) == {name for name, _ in agent.network.with_weights()}
    agent.normalization = None
    np.testing.assert_array_equal(agent.act(spied["observations"]), spied["actions"])
    for tensor in integers.weights(agent).values():
        assert tensor.values.max() < 8
    # SB3's own loader takes it, too.
    loaded = small_agents.ALGORITHMS[algo].load(path, device="cpu")
    for name, layer in agent.network.with_weights():
        assert torch.equal(loaded.policy.get_submodule(name).weight, layer.weight)


@pytest.mark.parametrize("algo", RUNS)
def test_a_saved_agent_of_learned_steps_acts_bit_for_bit_as_in_training(tmp_path, spied, algo):
    asked = qat_model.QatSettings(3, estimator="lsq", granularity="channel", last_bits=6)
    path = qat.train(settings(tmp_path, algo), asked)

    agent = finding.load(algo, RUNS[algo][0], tmp_path)
    agent.normalization = None
    np.testing.assert_array_equal(agent.act(spied["observations"]), spied["actions"])
    *others, last = integers.weights(agent).values()
    assert last.bits == 6 and {tensor.bits for tensor in others} == {3}
    # SB3's own loader takes the optimizer without the steps, too.
    small_agents.ALGORITHMS[algo].load(path, device="cpu")
    row = qat.evaluate(path, algo, (0,), 1)
    how = row.bits, row.granularity, row.ranges, row.widths
    assert how == ("3", "channel", "learned", "last:6")
    found = packed_policy.read(path.parent / RUNS[algo][0] / export.PACKED_FILENAME)
    assert [tensor.bits for tensor in found.weights.values()] == [3] * len(others) + [6]


def test_a_control_leaves_a_plain_agent(tmp_path, spied):
    path = qat.train(settings(tmp_path), qat_model.QatSettings(32))

    agent = finding.load("a2c", CARTPOLE, tmp_path)
    assert agent.quantization is None
    np.testing.assert_array_equal(agent.act(spied["observations"]), spied["actions"])
    row = qat.evaluate(path, "a2c", (0,), 2)
    assert row.key[1:] == (qat_rows.CONTROL, 0, 400, None, "", None, None, "", "")
    assert (row.bits, row.bytes) == (names.FP32, 4 * (4 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2))


def test_rows_are_of_the_quantized_agent(tmp_path):
    path = qat.train(settings(tmp_path), qat_model.QatSettings(5))

    row = qat.evaluate(path, "a2c", (0, 2), 3)

    assert (row.algo, row.env, row.bits, row.scheme) == (
        "a2c", CARTPOLE, "5", schemes.WEIGHTS_AND_ACTIVATIONS
    )
    assert (row.seeds, row.episodes, row.error) == ("0,2", 6, None)
    assert row.key[1:] == (qat_rows.QAT, 0, 400, 200, "frozen", 8, None, "", "")
    assert row.run == "CartPole-v1_1"
    # 5 bits each, packed in groups of 8; a scale and a zero point for each layer; biases.
    assert row.bytes == 5 * (4 * 64 + 64 * 64 + 64 * 2) // 8 + 3 * (4 + 1) + 4 * (64 + 64 + 2)
    assert (path.parent / CARTPOLE / export.PACKED_FILENAME).stat().st_size < row.bytes + 1500


def test_agents_of_environments_with_a_namespace_are_evaluated_and_found(tmp_path, own_environment):
    untuned = settings(tmp_path, steps=60, hyperparams={"learning_rate": 0.001})
    path = qat.train(dataclasses.replace(untuned, env=own_environment), qat_model.QatSettings(4))

    assert path.name == "own-CartPole-v0.zip"
    assert qat.evaluate(path, "a2c", (0,), 1).env == own_environment
    assert finding.found(tmp_path) == [("a2c", own_environment)]
    assert loading.load(str(path)).env_id == own_environment


def test_a_stopped_run_goes_on_and_only_with_its_settings(tmp_path):
    started = qat_model.QatSettings(4, 200)
    assert qat.train(settings(tmp_path), started, stop_after(30)) is None
    with zipfile.ZipFile(next(tmp_path.rglob("CartPole-v1.zip"))) as archive:
        assert json.loads(archive.read("data"))["num_timesteps"] > 200
    with pytest.raises(errors.UserError):
        finding.load("a2c", CARTPOLE, tmp_path)
    resumed = settings(tmp_path, steps=None, hyperparams=None, resume=True)
    with pytest.raises(errors.UserError, match="started with -q 4, not 5"):
        qat.train(resumed, qat_model.QatSettings(5))
    with pytest.raises(errors.UserError, match="started with --quant-delay 200, not 300"):
        qat.train(resumed, qat_model.QatSettings(4, 300))

    path = qat.train(resumed, qat_model.QatSettings(4))

    facts = json.loads((path.parent / CARTPOLE / schemes.FILENAME).read_text())
    assert facts["training"] == {"quant_delay": 200, "ranges": "frozen"}
    assert finding.load("a2c", CARTPOLE, tmp_path).quantization[0].bits == "4"


def test_rows_of_several_seeds_are_each_of_its_own_agent(tmp_path):
    paths = [
        qat.train(settings(tmp_path, seed=seed), qat_model.QatSettings(32)) for seed in (0, 1)
    ]

    rows = [qat.evaluate(path, "a2c", (0,), 1) for path in paths]

    assert [row.train_seed for row in rows] == [0, 1]
    assert rows[0].weight_max != rows[1].weight_max
    assert rows[0].run != rows[1].run


def test_a_run_goes_on_by_seed_and_program(tmp_path):
    for seed in (0, 1):
        qat.train(settings(tmp_path, seed=seed), qat_model.QatSettings(4), stop_after(30))

    with pytest.raises(errors.UserError, match="python -m baseline.qat --resume"):
        train.train(settings(tmp_path, steps=None, hyperparams=None, resume=True))
    resumed = settings(tmp_path, steps=None, hyperparams=None, resume=True, seed=0)
    path = qat.train(resumed, qat_model.QatSettings(4))

    assert path.parent.name == f"{CARTPOLE}_1"
    assert not [run.folder for run in state.runs(tmp_path, "a2c", CARTPOLE)
                if run.finished and run.folder != path.parent]


def test_a_run_that_ended_before_its_evaluation_gets_its_row(tmp_path, run_commands):
    path = qat.train(qat.of_width(settings(tmp_path), 4), qat_model.QatSettings(4))
    content = path.read_bytes()
    command = [
        "--algo=a2c", f"--env={CARTPOLE}", "-q", "4", "--resume", f"--folder={tmp_path}",
        "--seeds=0", "--episodes=1",
    ]
    evaluated, nothing = run_commands("qat", [command, command])

    assert evaluated.code == 0 and f"{path} is trained already" in evaluated.err, evaluated
    (row,) = rows_lib.read(str(tmp_path / qat_rows.CSV_NAME), qat_rows.TrainedRow)
    assert (row.bits, row.method, row.run) == ("4", qat_rows.QAT, path.parent.name)
    assert path.read_bytes() == content
    assert "There is no unfinished run" in nothing.error("qat")


def test_only_the_newest_of_what_is_asked_for_still_gets_its_row(tmp_path):
    made = settings(tmp_path, steps=40)
    how = qat_model.QatSettings(4, 20)
    older, newer, newest = (
        qat.train(dataclasses.replace(made, seed=seed), how) for seed in (0, 1, 1)
    )
    asked = settings(tmp_path, steps=None, hyperparams=None)
    assert runs.trained_only(asked, qat_model.QatSettings(4), ()) == newest
    assert runs.trained_only(dataclasses.replace(asked, seed=0), how, ()) == older
    for other in (
        qat_model.QatSettings(4, 10), qat_model.QatSettings(4, ranges="moving"),
        qat_model.QatSettings(4, output=True), qat_model.QatSettings(4, input_bits=4),
        qat_model.QatSettings(4, estimator="lsq"), qat_model.QatSettings(4, last_bits=8),
        qat_model.QatSettings(4, granularity="channel"), qat_model.QatSettings(4, percentile=99.0),
    ):
        assert runs.trained_only(asked, other, ()) is None
    rows = [qat.evaluate(newest, "a2c", (0,), 1)]
    assert runs.trained_only(asked, how, rows) == older  # The newer one of this seed has its row.
    # A row of another width, or of PTQ, is not this run's.
    assert runs.trained_only(asked, how, [dataclasses.replace(rows[0], bits="5")]) == newest
    assert runs.trained_only(
        asked, how, [dataclasses.replace(rows[0], method=qat_rows.PTQ)]
    ) == newest
    assert newer.parent.name == f"{CARTPOLE}_2"
    qat.train(dataclasses.replace(made, seed=5), how, stop_after(2))
    # The unfinished run goes on first, unless another seed is asked for.
    assert runs.trained_only(asked, how, ()) is None
    assert runs.trained_only(dataclasses.replace(asked, seed=0), how, ()) == older


def test_runs_of_several_widths_have_curves_of_their_own(tmp_path):
    asked = settings(tmp_path / "agents", steps=40, tensorboard=str(tmp_path / "curves"))
    for bits in (8, 4):
        qat.train(qat.of_width(asked, bits), qat_model.QatSettings(bits))
    assert sorted(
        str(path.parent.relative_to(tmp_path)) for path in (tmp_path / "curves").rglob("events*")
    ) == [f"curves/{bits}/{CARTPOLE}/a2c_1" for bits in (4, 8)]


def test_a_stopped_run_s_agent_says_what_it_is(tmp_path):
    qat.train(settings(tmp_path), qat_model.QatSettings(4, 10), stop_after(30))

    with pytest.raises(errors.UserError, match="has not come to its end"):
        finding.load("a2c", CARTPOLE, tmp_path)


@pytest.mark.parametrize("algo", ["dqn", "ddpg", "td3", "sac"])
@pytest.mark.parametrize("ranges", ["frozen", "moving"])
def test_runs_with_replay_buffers_go_on(tmp_path, algo, ranges):
    steps = RUNS[algo][1]
    started = qat_model.QatSettings(5, steps // 2, ranges)
    assert qat.train(settings(tmp_path, algo), started, stop_after(steps * 3 // 4)) is None

    resumed = settings(tmp_path, algo, steps=None, hyperparams=None, resume=True)
    path = qat.train(resumed, started)

    assert finding.load(algo, RUNS[algo][0], tmp_path).quantization[0].bits == "5"
    assert runs.training_columns(path)["ranges"] == ranges


@pytest.mark.parametrize("algo", ["ppo", "dqn", "td3", "sac"])
@pytest.mark.parametrize("share", [0.25, 0.75])  # The run stops before or after the delay.
def test_runs_with_learned_steps_go_on(tmp_path, algo, share):
    steps = RUNS[algo][1]
    started = qat_model.QatSettings(4, steps // 2, estimator="lsq", activation_bits=5)
    assert qat.train(settings(tmp_path, algo), started, stop_after(int(share * steps))) is None
    resumed = settings(tmp_path, algo, steps=None, hyperparams=None, resume=True)
    with pytest.raises(errors.UserError, match="with --estimator lsq, not ste"):
        qat.train(resumed, dataclasses.replace(started, estimator="ste"))

    path = qat.train(resumed, started)

    assert finding.load(algo, RUNS[algo][0], tmp_path).quantization[0].bits == "4"
    assert runs.training_columns(path)["ranges"] == "learned"


def test_a_run_goes_on_without_its_replay_buffer(tmp_path, monkeypatch):
    """Random steps fill the buffer anew; the ranges seen before are not forgotten."""
    monkeypatch.setattr(state, "MAX_REPLAY_BYTES", 100)
    started = qat_model.QatSettings(5, 200)
    assert qat.train(settings(tmp_path, "dqn"), started, stop_after(190)) is None

    resumed = settings(tmp_path, "dqn", steps=None, hyperparams=None, resume=True)
    qat.train(resumed, started)

    assert finding.load("dqn", CARTPOLE, tmp_path).quantization[0].bits == "5"


def test_a_control_goes_on_with_the_delay_it_was_given(tmp_path):
    started = qat_model.QatSettings(32, 200)
    assert qat.train(settings(tmp_path), started, stop_after(30)) is None

    path = qat.train(settings(tmp_path, steps=None, hyperparams=None, resume=True), started)

    assert runs.training_columns(path)["method"] == qat_rows.CONTROL


def test_no_checkpoint_passes_for_the_finished_agent(tmp_path, monkeypatch):
    """The process dies before it saves the agent for the last time."""
    save = state.save
    saved = []

    def die_at_the_end(model, *args):
        if model.num_timesteps >= 400:
            raise KeyboardInterrupt
        saved.append(model.num_timesteps)
        return save(model, *args)

    monkeypatch.setattr(state, "save", die_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        qat.train(settings(tmp_path, save_freq=40), qat_model.QatSettings(4, 200))
    monkeypatch.setattr(state, "save", save)
    assert saved and max(saved) < 400
    (run,) = state.runs(tmp_path, "a2c", CARTPOLE)
    assert not run.finished
    resumed = settings(tmp_path, steps=None, hyperparams=None, resume=True)
    assert qat.train(resumed, qat_model.QatSettings(4, 200)).parent == run.folder
    assert finding.load("a2c", CARTPOLE, tmp_path).quantization[0].bits == "4"


def test_a_run_stopped_before_its_delay_goes_on_watching(tmp_path):
    assert qat.train(settings(tmp_path), qat_model.QatSettings(4, 300), stop_after(10)) is None

    path = qat.train(
        settings(tmp_path, steps=None, hyperparams=None, resume=True), qat_model.QatSettings(4)
    )

    facts = json.loads((path.parent / CARTPOLE / schemes.FILENAME).read_text())
    assert facts["training"]["quant_delay"] == 300


def test_random_steps_that_are_put_off_beyond_the_delay_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "MAX_REPLAY_BYTES", 0)
    started = qat_model.QatSettings(4, 60)
    random_steps = {**OFF_POLICY, "learning_starts": 50}
    first = settings(tmp_path, "dqn", hyperparams=random_steps)
    assert qat.train(first, started, stop_after(40)) is None

    with pytest.raises(errors.UserError, match="no range is seen .* the first 91 steps are random"):
        qat.train(
            settings(tmp_path, "dqn", steps=None, hyperparams=None, resume=True), started
        )


def test_what_makes_no_sense_is_said_before_anything_is_made(tmp_path):
    for changes, qat_settings, message in (
        ({}, qat_model.QatSettings(8, 400), "none of the 400 steps"),
        ({"precision": "bf16"}, qat_model.QatSettings(8, 40), "--precision bf16"),
        ({"eval_freq": 100}, qat_model.QatSettings(8, 40), "--eval_freq"),
        # Known only once the hyper-parameters are.
        ({"steps": None, "hyperparams": {"n_timesteps": 300}}, qat_model.QatSettings(8, 300),
         "none of the 300 steps"),
    ):
        with pytest.raises(errors.UserError, match=message):
            qat.train(settings(tmp_path, **changes), qat_settings)
    assert not list(tmp_path.rglob("*.*"))
    for values in ((1,), (17,), (8, -1), (8, 0), (8, 5, "thawing"),
                   (8, 5, "frozen", False, 32), (8, 5, "frozen", False, 1)):
        with pytest.raises(errors.UserError):
            qat_model.QatSettings(*values)


def compared(agent, act, episodes, states):
    """How far a model acts as the agent does, in states that the agent visits."""
    visited = visited_states(agent, episodes, states)
    acted = exporting.acting(agent.network, agent.tap)(visited)
    return agreement.compare(acted, act(visited), agent.network.low, agent.network.high)


def visited_states(agent, episodes, states):
    """Normalized observations that the agent meets."""
    return agent.normalize(
        agreement.visited_states(agent.make_env, agent.act, episodes, 0, states)
    )


def on_onnx_runtime(agent):
    return players.onnx_player(quantized_agents.onnx_file(agent).SerializeToString())


def test_integers_run_on_an_engine_and_act_alike(agent8):
    found = compared(agent8, on_onnx_runtime(agent8), 5, 5000)

    assert found.states > 50
    assert found.holds, str(found)


def test_integers_of_continuous_actions_act_alike(tmp_path):
    for algo in ("ddpg", "ppo"):
        qat.train(settings(tmp_path, algo), qat_model.QatSettings(8))
        agent = finding.load(algo, RUNS[algo][0], tmp_path)

        found = compared(agent, on_onnx_runtime(agent), 1, 500)

        assert found.holds and found.largest < 0.02, str(found)


def test_other_widths_than_8_have_no_integer_engine(tmp_path, agent8):
    path = qat.train(settings(tmp_path), qat_model.QatSettings(6))
    agent = finding.load("a2c", CARTPOLE, tmp_path)
    with pytest.raises(errors.UserError, match="6 bits"):
        quantized_agents.onnx_file(agent)
    assert agent.path == path
    agent8.quantization = None
    assert integers.num_bytes(agent8) == 18440


def test_packed_files_hold_the_same_integers(agent8):
    path = export.write_packed(agent8)

    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        facts = {name: json.loads(text) for name, text in file.metadata().items()}
    assert facts["bits"] == 8
    assert {name: tuple(r) for name, r in facts["ranges"].items()} == agent8.quantization[1]
    assert integers.num_bytes(agent8) == sum(array.nbytes for array in arrays.values())
    for name, layer in agent8.network.with_weights():
        expected = integers.weights(agent8)[name]
        values = packing.unpack(arrays[f"{name}.weight"], 8, layer.weight.numel())
        np.testing.assert_array_equal(values.reshape(facts["shapes"][name]), expected.values)
        np.testing.assert_array_equal(arrays[f"{name}.scale"], expected.scale)
        np.testing.assert_array_equal(arrays[f"{name}.zero_point"], [expected.zero_point])
        np.testing.assert_array_equal(arrays[f"{name}.bias"], layer.bias.detach().numpy())


def test_integers_that_do_not_fit_or_are_not_told_are_an_error(tmp_path, agent8):
    agent8.save(tmp_path)
    again = finding.load("a2c", CARTPOLE, tmp_path)
    assert quantized_agents.onnx_file(again) == quantized_agents.onnx_file(agent8)
    with pytest.raises(errors.UserError, match="not trained with quantization"):
        export.training_facts(again.path)
    again.weight_ranges = None
    with pytest.raises(errors.UserError, match="does not tell its integers: agents of baseline"):
        quantized_agents.onnx_file(again)
    with torch.no_grad():
        agent8.network.with_weights()[0][1].weight[0, 0] += 0.001
    with pytest.raises(errors.UserError, match="do not fit"):
        integers.weights(agent8)


def trained_network(tmp_path, **changes):
    """A network with quantization.json beside it, of which entries may be changed."""
    network = reference.dense(sizes=(6, 5, 4))
    ranges, weight_ranges = {}, {}
    for name, module in network.with_weights():
        tensor = quantization.quantize_affine(module.weight.detach().numpy(), 8)
        with torch.no_grad():
            weight_ranges[name] = [float(module.weight.min()), float(module.weight.max())]
            module.weight.copy_(torch.from_numpy(quantization.dequantize(tensor)))
        ranges[name] = [-1.0, 1.0]
    facts = {
        "bits": "8", "ranges": ranges, "training": {"quant_delay": 1, "ranges": "frozen"},
        "weight_ranges": weight_ranges, **changes,
    }
    path = tmp_path / "A-v0.zip"
    (tmp_path / "A-v0").mkdir()
    (tmp_path / "A-v0" / schemes.FILENAME).write_text(json.dumps(facts))
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    return types.SimpleNamespace(
        path=path, network=network, quantization=(scheme, ranges),
        weight_ranges=facts["weight_ranges"],
    )


def test_integers_of_a_trained_network(tmp_path):
    agent = trained_network(tmp_path)
    assert list(integers.weights(agent)) == ["layer_0", "layer_1"]
    assert export.training_facts(agent.path)["input_bits"] == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_ranges": []}, {"weight_ranges": {"layer_0": None}},
        {"weight_ranges": {"layer_0": [10**400, 1]}}, {"weight_ranges": {"layer_0": [[0, 1], [2]]}},
        {"weight_ranges": {"layer_0": [0, 1, [8]]}}, {"weight_ranges": {"layer_0": [0, 1, 1e999]}},
        {"weight_ranges": {"layer_0": [[0] * 4, [1] * 4]}},
        {"weight_ranges": {"layer_0": [[[0] * 5], [[1] * 5]]}},
    ],
)
def test_integers_of_a_damaged_quantization_are_an_error(tmp_path, changes):
    agent = trained_network(tmp_path, **changes)
    with pytest.raises(errors.UserError, match="quantization of .* are damaged") as caught:
        integers.weights(agent)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": "fp16"}, {"bits": 1e999}, {"ranges": None}, {"ranges": []}, {"ranges": {}},
        {"ranges": {"layer_0": [0]}}, {"ranges": {"layer_0": [0, 1, "x"]}}, {"training": 3},
    ],
)
def test_training_facts_that_are_damaged_are_an_error(tmp_path, changes):
    path = trained_network(tmp_path, **changes).path
    with pytest.raises(errors.UserError, match="are damaged: train it"):
        export.training_facts(path)


@pytest.mark.slow
def test_cartpole_is_learned_with_8_bits(tmp_path):
    path = qat.train(
        training_settings.TrainSettings(
            "ppo", CARTPOLE, steps=60_000, folder=str(tmp_path), device="cpu", progress=False
        ),
        qat_model.QatSettings(8, 30_000),
    )

    row = qat.evaluate(path, "ppo", (0, 2, 4), 10)

    assert row.mean >= 475, row.returns
