"""Files for devices: every kind of agent, every format, and a player that needs no more."""

import ast
import copy
import functools
import json
import logging
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from torch import nn

from actorQ import evaluate
from actorQ.core import errors
from actorQ.core import lean_imports
from actorQ.policy import saved as checkpoints
from baseline.agents import actorq as actorq_agents
from baseline.agents import agreement
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.agents import integers
from baseline.agents import post_training
from baseline.deploy import device_files
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.deploy import memory
from baseline.deploy import players
from baseline.deploy import run_policy
from baseline.formats import names as deploy_formats
from baseline.qat import model as qat_model
from baseline.qat import training
from baseline.quantization import acting_path
from baseline.quantization import schemes
from tests.baseline import small_agents
from tests.baseline.agents import test_actorq as actorq
from tests.baseline.qat import test_training

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
# Processes start slowly where the cores are busy.
LIMIT_S = 120
AGENTS = [
    ("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("ddpg", "Pendulum-v1"),
    ("a2c", "Pendulum-v1"),
]
RUNTIMES = {
    "onnx": "onnxruntime", "tflite": "tensorflow", "torchscript": "torch", "native": "ctypes",
}


def settings(file_format="onnx", bits=8, **changes):
    scheme = deploy_formats.scheme(file_format, bits, changes.pop("scheme", None))
    return exporting.Settings(file_format, bits, scheme, calibration_episodes=2, **changes)


def folder_of(zoo, algo, env_id):
    return zoo.folder / algo / f"{env_id}_1"


def checked(agent, content, made):
    return exporting.compare(
        agent, content, made.format, exporting.visited(agent, made.seed + 1)
    )


def states_of(agent, count=100):
    return agreement.visited_states(agent.make_env, agent.act, 2, 1, count)


def act(content, file_format, states):
    return exporting.one_by_one(exporting.load_file(content, file_format))(states)


@pytest.mark.parametrize("file_format", deploy_formats.FORMATS)
@pytest.mark.parametrize(("algo", "env_id"), AGENTS)
def test_fp32_files_act_as_agents_of_stable_baselines_do(zoo, algo, env_id, file_format):
    agent = loading.load(folder_of(zoo, algo, env_id))
    assert (agent.algo, agent.env_id) == (algo, env_id)
    states = states_of(agent)
    content = exporting.export(agent, settings(file_format, 32))
    found = act(content, file_format, states)
    np.testing.assert_allclose(found, agent.act(states), atol=1e-4)
    assert found.dtype == agent.act(states).dtype


@pytest.mark.parametrize("file_format", deploy_formats.FORMATS)
@pytest.mark.parametrize(("algo", "env_id"), [("ppo", "CartPole-v1"), ("a2c", "Pendulum-v1")])
def test_8_bit_files_act_much_as_agents_do_normalization_included(
    zoo, algo, env_id, file_format
):
    agent = loading.load(folder_of(zoo, algo, env_id))
    assert (agent.normalization is not None) == (algo == "a2c")
    content = exporting.export(agent, settings(file_format))
    found = checked(agent, content, settings(file_format))
    assert found.states >= 20
    assert found.alike > 0.9 if found.mean is None else found.mean < 0.05, str(found)


@pytest.mark.parametrize("file_format", deploy_formats.FORMATS)
@pytest.mark.parametrize("bits", [32, 8])
def test_files_of_actorqs_policies_scale_observations_as_training_did(tmp_path, file_format, bits):
    saved = actorq.checkpoint(actorq.PENDULUM, (3,), 1, "tanh", **actorq.SCALED)
    checkpoints.save_policy(str(tmp_path), saved)
    agent = loading.load(tmp_path)
    states = states_of(agent)
    found = act(exporting.export(agent, settings(file_format, bits)), file_format, states)
    expected = agent.act(states)
    np.testing.assert_allclose(found / 2, expected, atol=1e-5 if bits == 32 else 0.05)
    agent.normalization = None
    assert np.abs(agent.act(states) - expected).max() > 0.1


def test_a_file_holds_what_post_training_quantization_computes(zoo):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    states = states_of(agent)
    ranges = {
        name: (-9.0, 9.0) for name, _ in agent.network.with_weights()
    }
    files = {
        name: act(exporting.export(agent, settings(name), ranges), name, states)
        for name in ("onnx", "tflite")
    }
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    schemes.quantize_weights(agent.network, scheme)
    agent.note_quantization(scheme, ranges)
    for name, found in files.items():
        assert (found == agent.act(states)).mean() > 0.98, name


@pytest.mark.parametrize("algo", ["td3", "sac"])
def test_agents_of_algorithms_that_are_not_the_papers_are_exported(tmp_path, algo):
    made = small_agents.model(algo, small_agents.vector("Pendulum-v1"))
    path = small_agents.save(tmp_path, algo, "Pendulum-v1", made)
    agent = loading.load(str(path))
    for file_format in deploy_formats.FORMATS:
        how = settings(file_format)
        assert checked(agent, exporting.export(agent, how), how).mean < 0.02, file_format


def test_narrow_widths_and_ranges_of_every_call_have_files(zoo):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    for file_format, bits, scheme in (
        ("onnx", 4, None), ("onnx", 16, None), ("onnx", 8, "weights"), ("tflite", 3, None),
    ):
        made = settings(file_format, bits, scheme=scheme, granularity="channel")
        assert made.calibrates == (scheme is None and bits <= 8)
        found = checked(agent, exporting.export(agent, made), made)
        assert found.alike > (0.95 if bits >= 8 else 0.6), (made, str(found))


def test_agents_of_images_keep_their_pixels(atari_zoo, tmp_path):
    path = atari_zoo.folder / "dqn" / "BreakoutNoFrameskip-v4_1"
    agent = loading.load(path)
    rng = np.random.default_rng(0)
    states = rng.integers(0, 256, (4, 4, 84, 84)).astype(np.uint8)
    ranges = {name: (0.0, 2.0) for name, _ in agent.network.with_weights()}
    for file_format in deploy_formats.FORMATS:
        content = exporting.export(agent, settings(file_format), ranges)
        if file_format == "onnx":
            # A device knows the images' size from the file alone.
            path = exporting.write(content, file_format, str(tmp_path))
            assert memory.in_fresh_process(path).own > 0
        policy = exporting.load_file(content, file_format)
        assert exporting.one_by_one(policy)(states).shape == (4,)
        if file_format == "c":  # Its player is for checks alone.
            continue
        assert policy.dtype == np.uint8 and tuple(policy.shape) == (4, 84, 84)
        with pytest.raises(TypeError, match="images are uint8"):
            policy(states[0] / np.float32(255))  # They would all be black.
    with pytest.raises(errors.UserError, match=r"cnn.0, a Conv2d, has no TFLite form of 32 bits"):
        exporting.export(agent, settings("tflite", 32))


@pytest.mark.parametrize(
    ("name", "task", "outputs", "head"),
    [("d4pg", actorq.PENDULUM, 1, "tanh"), ("dqn", actorq.CARTPOLE, 2, "q_values")],
)
def test_checkpoints_of_actorq_are_exported_too(tmp_path, name, task, outputs, head):
    shape = (3,) if name == "d4pg" else (4,)
    checkpoints.save_policy(
        str(tmp_path / "checkpoint"), actorq.checkpoint(task, shape, outputs, head)
    )
    agent = loading.load(str(tmp_path))
    assert agent.algo == name
    states = states_of(agent)
    policy = evaluate.load_policy(str(tmp_path), inference_mode="native")
    own = evaluation.evaluate(agent.make_env, agent.act, 2, 0)
    for file_format in deploy_formats.FORMATS:
        how = settings(file_format, 32)
        content = exporting.export(agent, how)
        np.testing.assert_allclose(
            act(content, file_format, states), [policy(state) for state in states], atol=1e-4
        )
        assert checked(agent, content, how).alike == 1.0
        act_one_by_one = exporting.one_by_one(exporting.load_file(content, file_format))
        in_task = actorq_agents.act_in_task(agent, act_one_by_one)
        played = evaluation.evaluate(agent.make_env, in_task, 2, 0)
        np.testing.assert_allclose(
            [episode.episode_return for episode in played],
            [episode.episode_return for episode in own], rtol=1e-3,
        )


def test_actions_that_do_not_begin_at_0_are_refused(tmp_path):
    checkpoints.save_policy(
        str(tmp_path), actorq.checkpoint(actorq.CARTPOLE, (4,), 2, "q_values", action_start=5)
    )
    agent = loading.load(str(tmp_path))
    for file_format in deploy_formats.FORMATS:
        with pytest.raises(errors.UserError, match="begin at 5, and those of a file at 0"):
            exporting.export(agent, settings(file_format))
    with pytest.raises(errors.UserError, match="begin at 5"):  # Nothing is measured before.
        device_files.check(agent)


def test_agents_of_quantization_aware_training_keep_their_integers(tmp_path):
    training.train(
        test_training.settings(tmp_path, "a2c", steps=300), qat_model.QatSettings(bits=8, delay=150)
    )
    agent = finding.load("a2c", test_training.CARTPOLE, tmp_path)
    for file_format in ("onnx", "tflite"):
        how = exporting.Settings(file_format)
        assert checked(agent, exporting.export(agent, how), how).holds
    with pytest.raises(errors.UserError, match="has 8 bits: --format=onnx --bits=8 or --f"):
        exporting.export(agent, settings("tflite", 4))
    for bits, able in (("12", "deploy has no file of so"), ("6", "--format=tflite --bits=6.")):
        wide = copy.copy(agent)
        wide.quantization = schemes.Scheme(bits), agent.quantization[1]
        with pytest.raises(errors.UserError, match=f"has {bits} bits: {able}"):
            exporting.export(wide, settings("onnx", 8))
    for file_format in ("torchscript", "native"):
        with pytest.raises(errors.UserError, match="no place for: --format=onnx, --format=tf"):
            exporting.export(agent, settings(file_format))
    for changes, flags in (
        ({"scheme": "weights"}, "--scheme"), ({"granularity": "channel"}, "--granularity"),
        ({"granularity": "channel", "calibration_episodes": 9},
         "--granularity and --calibration_episodes"),
    ):
        with pytest.raises(errors.UserError, match=f"quantized already, .* leave {flags} out"):
            exporting.export(agent, exporting.Settings(**changes))


def test_an_agent_that_was_quantized_after_training_is_refused(zoo, tmp_path):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    scheme = schemes.Scheme("8")
    schemes.quantize_weights(agent.network, scheme)
    agent.note_quantization(scheme, None)
    saved = loading.load(agent.save(tmp_path))
    # No other flag would help.
    for how in (exporting.Settings(), settings("torchscript"), settings("tflite", 4)):
        with pytest.raises(errors.UserError, match="was quantized after training: name the agent"):
            exporting.export(saved, how)


@pytest.mark.parametrize(
    ("algo", "env_id", "method", "changes"),
    [
        ("dqn", "CartPole-v1", "mse,gptq,bias-correction", {}),
        ("a2c", "Pendulum-v1", "bias-correction,action", {"granularity": "channel"}),
        ("ddpg", "Pendulum-v1", "smooth,bias-correction",
         {"scheme": schemes.WEIGHTS_AND_ACTIVATIONS}),
    ],
)
@pytest.mark.parametrize("bits", [8, 4])
def test_agents_that_a_method_quantized_keep_their_integers(
    zoo, tmp_path, algo, env_id, method, changes, bits
):
    agent = by_method(loading.load(folder_of(zoo, algo, env_id)), method, bits, **changes)
    again = loading.load(agent.save(tmp_path))
    assert {tensor.bits for tensor in integers.weights(again).values()} == {bits}
    for file_format in ("onnx", "tflite", "c"):
        made = exporting.Settings(file_format, bits)
        if file_format == "onnx" and bits == 4:
            with pytest.raises(errors.UserError, match="4 bits, but ONNX Runtime computes with 8"):
                exporting.export(again, made)
            continue
        found = checked(again, exporting.export(again, made), made)
        assert found.alike > 0.95, (file_format, str(found))


def test_a_policy_of_actorq_that_a_method_quantized_acts_in_its_task(tmp_path):
    saved = actorq.checkpoint(actorq.PENDULUM, (3,), 1, "tanh", **actorq.SCALED)
    checkpoints.save_policy(str(tmp_path / "full"), saved)
    agent = by_method(loading.load(tmp_path / "full"), "gptq", 8)
    again = loading.load(agent.save(tmp_path).parent)
    states = states_of(again)
    for file_format in ("onnx", "tflite", "c"):
        found = act(exporting.export(again, exporting.Settings(file_format)), file_format, states)
        np.testing.assert_allclose(found / 2, again.act(states), atol=0.05)


def by_method(agent, method, bits, **changes):
    how = post_training.Settings(states=200, range_episodes=2)
    scheme = schemes.Scheme(str(bits), method=method, **changes)
    post_training.quantize(agent, scheme, how, post_training.collect(agent, how))
    return agent


@pytest.mark.parametrize(
    ("method", "changes", "why"),
    [
        ("hadamard,action", {}, "its inputs change their basis, which no file does.* another --me"),
        ("gptq", {"group_size": 3, "granularity": "channel"}, "a scale for every 3 inputs"),
    ],
)
def test_integers_that_no_file_has_are_refused(zoo, tmp_path, method, changes, why):
    agent = by_method(loading.load(folder_of(zoo, "ppo", "CartPole-v1")), method, 8, **changes)
    with pytest.raises(errors.UserError, match=why):
        exporting.export(loading.load(agent.save(tmp_path)), exporting.Settings())


def test_an_agent_whose_training_was_stopped_is_loaded_with_a_warning(tmp_path, caplog):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    made.num_timesteps = 99
    path = small_agents.save(
        tmp_path, "ppo", "CartPole-v1", made,
        args={"program": "baseline.train", "n_timesteps": 100},
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        loading.load(str(path))
    (line,) = caplog.messages
    assert line.startswith(f"The training of {path} has not come to its end")


@pytest.mark.parametrize("file_format", deploy_formats.FORMATS)
def test_an_unknown_layer_is_named(zoo, file_format):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    name, _ = agent.network.layers[2]
    layers = (*agent.network.layers[:2], (name, nn.Softsign()), *agent.network.layers[3:])
    agent.network = agent.network._replace(layers=layers)
    with pytest.raises(errors.UserError, match=f"Layer {name}, (a )?Softsign"):
        exporting.export(agent, settings(file_format))


@pytest.mark.parametrize("where", ["zip", "folder", "plain"])
def test_agents_are_found_by_their_zip_or_folder(zoo, tmp_path, where):
    source = folder_of(zoo, "ppo", "CartPole-v1")
    path = {"zip": source / "CartPole-v1.zip", "folder": source}.get(where)
    if path is None:  # It was copied out of the zoo's layout, with its settings.
        path = shutil.copytree(source, tmp_path / "CartPole-v1")
    agent = loading.load(str(path))
    assert (agent.algo, agent.env_id) == ("ppo", "CartPole-v1")


def test_the_best_agent_of_a_training_has_the_statistics_beside_it(tmp_path):
    early, late = (
        small_agents.normalized(small_agents.vector("Pendulum-v1"), steps) for steps in (50, 200)
    )
    made = small_agents.model("a2c", early, seed=1)
    last = small_agents.save(
        tmp_path, "a2c", "Pendulum-v1", small_agents.model("a2c", late), normalization=late
    )
    best = last.with_name("best_model.zip")
    made.save(best)
    statistics = best.with_name("vecnormalize.pkl")
    early.save(str(statistics))

    agent = loading.load(str(best))

    assert (agent.algo, agent.env_id, agent.path) == ("a2c", "Pendulum-v1", best)
    np.testing.assert_array_equal(agent.normalization.mean, early.obs_rms.mean)
    predict = functools.partial(made.predict, deterministic=True)
    for raw, normal in small_agents.states(early, lambda states: predict(states)[0], 20):
        np.testing.assert_array_equal(agent.act(raw), predict(normal)[0])
    # rl_zoo3 keeps the best agent's statistics where the last one's are else.
    statistics.unlink()
    found = loading.load(str(best)).normalization
    np.testing.assert_array_equal(found.mean, late.obs_rms.mean)
    (last.parent / "Pendulum-v1" / "args.yml").unlink()
    assert loading.load(str(best)).algo == "a2c"


def test_what_is_no_agent_is_told(zoo, tmp_path):
    with pytest.raises(errors.UserError, match="no agent at .*nowhere: there is no such file"):
        loading.load(str(tmp_path / "nowhere"))
    with pytest.raises(errors.UserError, match="neither an agent's zip .* nor an ActorQ run"):
        loading.load(str(tmp_path))
    shutil.copy(folder_of(zoo, "ppo", "CartPole-v1") / "CartPole-v1.zip", tmp_path / "x.zip")
    with pytest.raises(errors.UserError, match="Which environment is .*x.zip of?.*--env="):
        loading.load(str(tmp_path / "x.zip"))
    with pytest.raises(errors.UserError, match="Which algorithm is .*x.zip of?.*--algo="):
        loading.load(str(tmp_path / "x.zip"), env_id="CartPole-v1")
    # The zoo's file names an algorithm of another library.
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "args.yml").write_text("algo: nonesuch\nenv: CartPole-v1\n")
    with pytest.raises(errors.UserError, match="Which environment is"):
        loading.load(str(tmp_path / "x.zip"))
    (tmp_path / "x").rename(tmp_path / "CartPole-v1")
    with pytest.raises(errors.UserError, match="algorithm 'nonesuch' is not known"):
        loading.load(str(tmp_path / "x.zip"))


@pytest.mark.parametrize("name", ["my_agent", "best_model", "ppo_final.v2"])
def test_a_zip_in_a_folder_of_its_own_is_told_by_flags(zoo, tmp_path, name):
    source = folder_of(zoo, "ppo", "CartPole-v1") / "CartPole-v1.zip"
    path = tmp_path / f"{name}.zip"
    shutil.copy(source, path)
    agent = loading.load(str(path), "ppo", "CartPole-v1")
    assert (agent.algo, agent.env_id, agent.path) == ("ppo", "CartPole-v1", path)
    states = states_of(agent)
    np.testing.assert_array_equal(agent.act(states), loading.load(str(source)).act(states))
    with pytest.raises(errors.UserError, match="is an agent of ppo, not of a2c"):
        loading.load(str(path), "a2c", "CartPole-v1")
    # As on the zoo's hub, settings may lie beside the zip.
    (tmp_path / "args.yml").write_text("algo: ppo\nenv: CartPole-v1\n")
    assert loading.load(str(path)).env_id == "CartPole-v1"
    assert loading.load(str(path), "ppo2").algo == "ppo"
    with pytest.raises(errors.UserError, match="are for zips of Stable-Baselines3"):
        loading.load(str(tmp_path), "ppo")


def test_statistics_beside_a_zip_of_its_own_are_used(tmp_path):
    early = small_agents.normalized(small_agents.vector("Pendulum-v1"), 50)
    made = small_agents.model("a2c", early)
    for name, beside in (
        ("my_agent", "vecnormalize.pkl"), ("hub", "vec_normalize.pkl"),
        ("rl_model_50_steps", "rl_model_vecnormalize_50_steps.pkl"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        made.save(folder / f"{name}.zip")
        early.save(str(folder / beside))
        agent = loading.load(str(folder / f"{name}.zip"), "a2c", "Pendulum-v1")
        np.testing.assert_array_equal(agent.normalization.mean, early.obs_rms.mean)


def test_the_runner_is_small_and_imports_nothing_of_ours():
    source = pathlib.Path(run_policy.__file__).read_text()
    lines = len(source.splitlines())
    pages = pathlib.Path(exporting.__file__).parents[2] / "docs"
    guide = (pages / "guide" / "deploy-to-a-device.md").read_text(encoding="utf-8")
    assert lines <= 155 and f"`run_policy.py` ({lines} lines)" in guide
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert names - set(sys.stdlib_module_names) == {"numpy", "onnxruntime", "torch"}


@pytest.mark.parametrize("name", ["nowhere.onnx", "policy.zip", "damaged.onnx"])
def test_the_runner_says_in_a_line_what_it_cannot_play(tmp_path, name):
    for made in ("policy.zip", "damaged.onnx"):
        (tmp_path / made).write_bytes(b"x")
    result = subprocess.run(
        [sys.executable, run_policy.__file__, str(tmp_path / name)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"run_policy: error: {tmp_path / name} (.onnx")
    assert "Traceback" not in result.stderr


def test_the_runner_says_which_observations_it_cannot_read(tmp_path):
    (tmp_path / "damaged.npy").write_bytes(b"x")
    for name, why in (("nowhere.npy", "No such file"), ("damaged.npy", "pickled data")):
        result = subprocess.run(
            [sys.executable, run_policy.__file__, "policy.onnx", str(tmp_path / name)],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )
        assert result.returncode == 1
        (line,) = result.stderr.splitlines()
        start = f"run_policy: error: Cannot read observations from {tmp_path / name}: "
        assert line.startswith(start) and why in line and "policy.onnx" not in line


@pytest.mark.parametrize("file_format", [name for name in deploy_formats.FORMATS if name != "c"])
def test_a_process_with_the_runtime_alone_plays_the_file(zoo, tmp_path, file_format):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    content = exporting.export(agent, settings(file_format))
    path = exporting.write(content, file_format, str(tmp_path / "device"))
    runner = pathlib.Path(players.of_format(file_format).__file__).name
    states = states_of(agent, 20)
    np.save(tmp_path / "states.npy", states)
    # It runs the player, then tells what was imported.
    program = (
        "import json, runpy, sys; sys.argv = sys.argv[1:]\n"
        # TensorFlow imports these if they are there; a device has tflite_runtime.
        f"sys.modules.update(dict.fromkeys({lean_imports.OPTIONAL}))\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, runner, path.name, str(tmp_path / "states.npy")],
        capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=path.parent,
    )
    assert result.returncode == 0, result.stderr
    *lines, modules = result.stdout.splitlines()
    np.testing.assert_array_equal(
        [int(line) for line in lines], act(content, file_format, states)
    )
    imported = set(json.loads(modules))
    assert RUNTIMES[file_format] in imported
    others = {*RUNTIMES.values()} - {RUNTIMES[file_format], "ctypes"}
    assert not imported & {*others, "baseline", "actorQ", "stable_baselines3", "gymnasium"}
    assert "us" in result.stderr.splitlines()[-1]


def test_a_file_that_cannot_be_written_is_told(zoo, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="Cannot write .*file"):
        exporting.write(b"", "onnx", str(tmp_path / "file"))


def test_the_agents_own_network_stays_as_it_is(zoo):
    agent = loading.load(folder_of(zoo, "ppo", "CartPole-v1"))
    states = states_of(agent, 30)
    before = acting_path.forward(agent.network, states).numpy()
    for file_format in deploy_formats.FORMATS:
        exporting.export(agent, settings(file_format))
    np.testing.assert_array_equal(acting_path.forward(agent.network, states).numpy(), before)
