import io
import json
import os
import pathlib
import pickle
import zipfile

import cloudpickle
import numpy as np
import pytest
import safetensors.torch
import torch

from actorQ.core import cli
from actorQ.core import errors
from actorQ.policy import architecture
from actorQ.policy import saved as checkpoints
from baseline.agents import weight_files
from baseline.agents import weight_readers
from tests import trained_agents

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5
BIAS = np.array([0.5, -1.0], np.float32)


class Bomb:
    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.system, (f"touch {self._path}",)


@pytest.fixture(scope="module")
def tf():
    cli.quiet_tensorflow()
    import tensorflow

    return tensorflow


def _torch_weights():
    return {"body.0.weight": torch.from_numpy(KERNEL), "body.0.bias": torch.from_numpy(BIAS)}


def _sb3_zip(path, tensors=None):
    buffer = io.BytesIO()
    torch.save(_torch_weights() if tensors is None else tensors, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {":serialized:": "gAR9lC4="}}))
        archive.writestr("policy.pth", buffer.getvalue())
    return path


def _read_error(path):
    with pytest.raises(errors.UserError) as caught:
        weight_files.read(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def _check_kernel(found, transposed=False):
    (kernel,) = found.weights().values()
    (bias,) = found.biases().values()
    np.testing.assert_array_equal(kernel, KERNEL.T if transposed else KERNEL)
    np.testing.assert_array_equal(bias, BIAS)
    assert found.channel_axis == (-1 if transposed else 0)


# Stable-Baselines3.


def test_sb3_zip_is_read_without_its_pickles(tmp_path):
    found = weight_files.read(_sb3_zip(tmp_path / "CartPole-v1.zip"))
    _check_kernel(found)
    assert found.kind == "Stable-Baselines3 agent"


@pytest.mark.skipif(not trained_agents.FOLDER.is_dir(), reason="no zoo agents here")
def test_zoo_agents_keep_their_acting_network():
    def names(agent, part="policy"):
        return list(weight_files.read(trained_agents.FOLDER / agent, part).tensors)

    assert names("dqn/CartPole-v1_1") == [
        f"q_net.q_net.{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")
    ]
    assert names("ddpg/Pendulum-v1_1") == [
        f"actor.mu.{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")
    ]
    assert names("ppo/HalfCheetah-v3_1") == [
        "mlp_extractor.policy_net.0.weight",
        "mlp_extractor.policy_net.0.bias",
        "mlp_extractor.policy_net.2.weight",
        "mlp_extractor.policy_net.2.bias",
        "action_net.weight",
        "action_net.bias",
    ]
    assert len(names("ppo/HalfCheetah-v3_1", "all")) == 13


def test_shared_features_extractor_counts_once(tmp_path):
    one = torch.ones(2, 2)
    tensors = {f"{prefix}features_extractor.cnn.0.weight": one for prefix in ("", "pi_", "vf_")} | {
        "action_net.weight": one
    }
    found = weight_files.read(_sb3_zip(tmp_path / "a.zip", tensors))
    assert list(found.tensors) == ["features_extractor.cnn.0.weight", "action_net.weight"]


def test_file_of_a_critic_alone_is_kept(tmp_path):
    torch.save({"critic.qf0.0.weight": torch.ones(2, 2)}, tmp_path / "critic.pth")
    assert list(weight_files.read(tmp_path / "critic.pth").tensors) == ["critic.qf0.0.weight"]


# torch and safetensors.


@pytest.mark.parametrize("name", ["model.pt", "model.pth"])
@pytest.mark.parametrize("new_format", [True, False])
def test_state_dict(tmp_path, name, new_format):
    path = tmp_path / name
    torch.save(_torch_weights(), path, _use_new_zipfile_serialization=new_format)
    _check_kernel(weight_files.read(path))


def test_training_checkpoint_keeps_no_optimizer_state(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
    torch.save(saved, tmp_path / "all.pt")
    found = weight_files.read(tmp_path / "all.pt", "all")
    assert list(found.tensors) == ["model/weight", "model/bias"]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_state_dict_of_other_number_formats(tmp_path):
    tensors = {
        "half.weight": torch.tensor([[1.5]], dtype=torch.float16),
        "brain.weight": torch.tensor([[2.5]], dtype=torch.bfloat16),
        "quantized.weight": torch.quantize_per_tensor(torch.tensor([[1.0]]), 0.5, 0, torch.qint8),
        "steps": torch.tensor([3]),
    }
    torch.save(tensors, tmp_path / "a.pt")
    found = weight_files.read(tmp_path / "a.pt").tensors
    assert {name: array.item() for name, array in found.items()} == {
        "half.weight": 1.5,
        "brain.weight": 2.5,
        "quantized.weight": 1.0,
    }
    assert all(array.dtype == np.float32 for array in found.values())


def test_whole_torch_model_is_refused_without_running_it(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    assert "torch.nn.modules.linear.Linear" in _read_error(tmp_path / "model.pt")
    torch.save({"weight": Bomb(tmp_path / "ran")}, tmp_path / "bomb.pt")
    message = _read_error(tmp_path / "bomb.pt")
    assert "posix.system" in message
    assert "state_dict()" in message
    assert not (tmp_path / "ran").exists()


def test_tensor_that_claims_petabytes_is_refused(tmp_path):
    torch.save({"weight": torch.ones(1).expand(10**7, 10**8)}, tmp_path / "a.pt")
    assert "10000000 x 100000000 for weight" in _read_error(tmp_path / "a.pt")


def test_safetensors(tmp_path):
    tensors = {**_torch_weights(), "n.weight": torch.ones(1, 1, dtype=torch.bfloat16)}
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors")
    found = weight_files.read(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found.tensors["body.0.weight"], KERNEL)
    assert found.tensors["n.weight"].dtype == np.float32


# ActorQ.


def _actorq_policy(folder):
    shape = architecture.PolicyArchitecture((3,), (2,), 1, architecture.TANH_HEAD)
    weights = {
        name: np.full(size, 0.5, np.float32) for name, size in shape.parameter_shapes.items()
    }
    facts = {name: 1 for name in checkpoints.REQUIRED_FACTS}
    checkpoints.save_policy(str(folder), checkpoints.PolicyCheckpoint(shape, weights, facts))


def _learner_checkpoint(tf, folder):
    """Writes a checkpoint as the learner does."""
    networks = {}
    for name in ("policy", "target_policy", "critic"):
        module = tf.Module(name)
        module._linears = [tf.Module()]
        module._linears[0].w = tf.Variable(KERNEL.T)
        module._linears[0].b = tf.Variable(BIAS)
        networks[name] = module
    optimizer = tf.Module("optimizer")
    optimizer.m = [tf.Variable(KERNEL.T)]
    steps = tf.Variable(7)
    saved = tf.train.Checkpoint(**networks, policy_optimizer=optimizer, num_steps=steps)
    manager = tf.train.CheckpointManager(saved, str(folder), max_to_keep=2)
    manager.save(5)
    networks["policy"]._linears[0].w.assign(KERNEL.T)
    return manager.save(10)


def test_actorq_run_reads_the_policy_and_names_the_rest(tmp_path, tf):
    _actorq_policy(tmp_path / "checkpoint")
    _actorq_policy(tmp_path / "checkpoint" / "best")
    _learner_checkpoint(tf, tmp_path / "checkpoint" / "learner")
    found = weight_files.read(tmp_path)
    assert found.kind == "ActorQ policy"
    assert found.path == str(tmp_path / "checkpoint" / "policy.safetensors")
    assert list(found.tensors)[-1].startswith("head.")
    assert found.notes[0].startswith(
        "Also there: checkpoint/best/policy.safetensors, checkpoint/learner/ckpt-10"
    )


def test_learner_checkpoint_from_its_folder_prefix_or_files(tmp_path, tf):
    prefix = _learner_checkpoint(tf, tmp_path)
    for path in (tmp_path, prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001"):
        found = weight_files.read(path)
        _check_kernel(found, transposed=True)
        assert found.path == prefix
        assert list(found.tensors) == ["policy/_linears/0/b", "policy/_linears/0/w"]
    assert len(weight_files.read(prefix, "all").tensors) == 6


def test_run_without_a_policy_reads_the_learners_checkpoint(tmp_path, tf):
    _learner_checkpoint(tf, tmp_path / "checkpoint" / "learner")
    assert weight_files.read(tmp_path).kind == "TensorFlow checkpoint"


def test_checkpoint_file_that_points_elsewhere_is_not_followed(tmp_path, tf):
    prefix = _learner_checkpoint(tf, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/somewhere/else/ckpt-5"\n')
    found = weight_files.read(tmp_path)
    assert found.path == str(tmp_path / "ckpt-5")
    assert found.path != prefix


@pytest.mark.parametrize("damage", ["no data", "short data", "short index", "no index"])
def test_damaged_checkpoint(tmp_path, tf, damage):
    prefix = _learner_checkpoint(tf, tmp_path)
    index, data = pathlib.Path(f"{prefix}.index"), pathlib.Path(f"{prefix}.data-00000-of-00001")
    part = index if "index" in damage else data
    if damage.startswith("no"):
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[:20])
    message = _read_error(data if damage == "no index" else prefix)
    assert ("has no file" in message) == damage.startswith("no")
    assert ("is damaged" in message) == damage.startswith("short")


# TensorFlow's other files.


def _module(tf):
    module = tf.Module()
    module.w = tf.Variable(KERNEL.T)
    module.b = tf.Variable(BIAS)

    @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32)])
    def call(x):
        return x @ module.w + module.b

    module.call = call
    return module


def test_saved_model(tmp_path, tf):
    tf.saved_model.save(_module(tf), str(tmp_path / "model"))
    for path in (tmp_path / "model", tmp_path / "model" / "saved_model.pb"):
        found = weight_files.read(path)
        _check_kernel(found, transposed=True)
        assert found.kind == "TensorFlow SavedModel"


def test_frozen_graph_and_saved_model_of_constants(tmp_path, tf):
    from tensorflow.python.framework import convert_to_constants

    concrete = _module(tf).call.get_concrete_function()
    graph = convert_to_constants.convert_variables_to_constants_v2(concrete).graph.as_graph_def()
    (tmp_path / "frozen.pb").write_bytes(graph.SerializeToString())
    _check_kernel(weight_files.read(tmp_path / "frozen.pb"), transposed=True)

    saved = tf.Module()
    saved.call = tf.function(
        lambda x: x @ tf.constant(KERNEL.T) + tf.constant(BIAS),
        input_signature=[tf.TensorSpec((None, 3), tf.float32)],
    )
    tf.saved_model.save(saved, str(tmp_path / "model"))
    for path in (tmp_path / "model" / "variables").iterdir():
        path.unlink()
    _check_kernel(weight_files.read(tmp_path / "model"), transposed=True)


def test_damaged_graph(tmp_path, tf):
    (tmp_path / "a.pb").write_bytes(b"\x0a\xff\xff\xff no graph")
    assert "is damaged" in _read_error(tmp_path / "a.pb")
    (tmp_path / "empty.pb").write_bytes(b"")
    assert "holds no weights" in _read_error(tmp_path / "empty.pb")


def test_constant_that_claims_petabytes_is_refused(tmp_path, tf):
    graph = tf.compat.v1.GraphDef()
    node = graph.node.add(op="Const", name="huge")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([1.0]))
    node.attr["value"].tensor.tensor_shape.dim[0].size = 10**15
    (tmp_path / "a.pb").write_bytes(graph.SerializeToString())
    assert "claims the shape 1000000000000000 for huge" in _read_error(tmp_path / "a.pb")


# stable-baselines 2.


def _sb2_pickle(path, params):
    class Unknown:
        pass

    threshold = 3.0
    data = {"gamma": 0.99, "policy": Unknown, "lr": lambda f: f * threshold, "obs": np.ones(3)}
    path.write_bytes(cloudpickle.dumps((data, params)))


@pytest.mark.parametrize("as_list", [False, True])
def test_old_pickle(tmp_path, as_list):
    params = {"model/pi_fc0/w:0": KERNEL.T, "model/pi_fc0/b:0": BIAS}
    _sb2_pickle(tmp_path / "old.pkl", list(params.values()) if as_list else params)
    found = weight_files.read(tmp_path / "old.pkl")
    _check_kernel(found, transposed=True)
    names = ["0", "1"] if as_list else ["model/pi_fc0/w", "model/pi_fc0/b"]
    assert list(found.tensors) == names
    assert found.notes[0].startswith("Not called, though the file asks for it: cloudpickle")


def test_old_pickle_and_zip_keep_the_acting_network(tmp_path):
    params = {
        "model/c1/w:0": np.ones((8, 8, 4, 32), np.float32),
        "model/c1/b:0": np.ones((1, 32, 1, 1), np.float32),
        "model/pi/w:0": KERNEL.T,
        "model/vf_fc0/w:0": KERNEL.T,
        "model/vf/w:0": KERNEL.T,
        "model/q/w:0": KERNEL.T,
        "model/pi/logstd:0": BIAS,
    }
    _sb2_pickle(tmp_path / "old.pkl", params)
    buffer = io.BytesIO()
    np.savez(buffer, **{name.replace("/", "__"): array for name, array in params.items()})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as inner:
        for name, array in params.items():
            content = io.BytesIO()
            np.save(content, array)
            inner.writestr(name + ".npy", content.getvalue())
    with zipfile.ZipFile(tmp_path / "new.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("parameter_list", json.dumps(list(params)))
        archive.writestr("parameters", buffer.getvalue())
    for name in ("old.pkl", "new.zip"):
        found = weight_files.read(tmp_path / name)
        assert list(found.weights()) == ["model/c1/w", "model/pi/w"]
        assert list(found.biases()) == ["model/c1/b"]
        assert found.channel_axis == -1


def test_old_pickle_that_needs_its_code_is_refused_with_the_reason(tmp_path):
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps({"weights": Bomb(tmp_path / "ran")}))
    message = _read_error(tmp_path / "bad.pkl")
    assert "loading it would call posix.system, which is not done" in message
    assert not (tmp_path / "ran").exists()


def test_damaged_old_pickle(tmp_path):
    _sb2_pickle(tmp_path / "old.pkl", {"w": KERNEL})
    content = (tmp_path / "old.pkl").read_bytes()
    (tmp_path / "old.pkl").write_bytes(content[: len(content) // 2])
    assert "a damaged one" in _read_error(tmp_path / "old.pkl")


# Folders and mistakes.


def test_folder_prefers_the_agent_of_its_name(tmp_path):
    folder = tmp_path / "CartPole-v1_2"
    for name in ("a_checkpoint.zip", "best_model.zip", "CartPole-v1.zip"):
        _sb3_zip(folder / name)
    (folder / "CartPole-v1").mkdir()
    (folder / "CartPole-v1" / "vecnormalize.pkl").write_bytes(b"")
    found = weight_files.read(folder)
    assert found.path == str(folder / "CartPole-v1.zip")
    assert found.notes == ("Also there: best_model.zip, a_checkpoint.zip.",)


def test_missing_empty_and_unknown(tmp_path):
    assert _read_error(tmp_path / "none") == f"There is no {tmp_path / 'none'}."
    assert "holds no weights" in _read_error(tmp_path)
    (tmp_path / "model.h5").write_bytes(b"\x89HDF")
    assert "of no kind that is read here" in _read_error(tmp_path / "model.h5")
    with zipfile.ZipFile(tmp_path / "letters.zip", "w") as archive:
        archive.writestr("a.txt", "hello")
    assert "but of no agent" in _read_error(tmp_path / "letters.zip")


@pytest.mark.parametrize("name", ["a.zip", "a.pt", "a.pth", "a.safetensors", "a.pkl", "a.pb"])
@pytest.mark.parametrize("content", [b"", b"version https://git-lfs", b"PK\x03\x04", b"\x80\x04"])
def test_garbage_is_one_line_for_every_kind(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert _read_error(tmp_path / name)


def test_truncated_zip_and_state_dict(tmp_path):
    path = _sb3_zip(tmp_path / "a.zip")
    content = path.read_bytes()
    for size in (len(content) // 3, len(content) - 10):
        path.write_bytes(content[:size])
        assert "is damaged" in _read_error(path)
    buffer = io.BytesIO()
    torch.save(_torch_weights(), buffer)
    for name, part in {"b.pt": buffer.getvalue()[:-100], "c.pt": buffer.getvalue()[:200]}.items():
        (tmp_path / name).write_bytes(part)
        assert "is damaged" in _read_error(tmp_path / name)


@pytest.mark.usefixtures("no_tensorflow")
def test_without_tensorflow_its_files_are_refused_with_one_line(tmp_path):
    (tmp_path / "a.pb").write_bytes(b"")
    assert "graphs need TensorFlow, which is not installed" in _read_error(tmp_path / "a.pb")
    for name in ("b.index", "b.data-00000-of-00001"):
        (tmp_path / name).write_bytes(b"")
    assert "checkpoints need TensorFlow, which is not in" in _read_error(tmp_path / "b.index")


def test_zip_member_that_claims_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(weight_readers, "MAX_NUMBERS", 100)
    assert "claims" in _read_error(_sb3_zip(tmp_path / "a.zip"))


def _with_deflated(content, name, size):
    """Adds members to a zip that take next to no room in it."""
    buffer = io.BytesIO(content)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        array = io.BytesIO()
        np.save(array, np.zeros(size, np.float32))
        archive.writestr(name, array.getvalue())
    return buffer.getvalue()


def test_zips_in_zips_that_unpack_to_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(weight_readers, "MAX_NUMBERS", 10_000)
    path = _sb3_zip(tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        policy = archive.read("policy.pth")
    (tmp_path / "b.pt").write_bytes(_with_deflated(policy, "archive/data/99", 20_000))
    assert "bytes for its tensors: not read" in _read_error(tmp_path / "b.pt")
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "b.pt", "policy.pth")
    assert "bytes for its tensors: not read" in _read_error(path)
    with zipfile.ZipFile(tmp_path / "sb2.zip", "w") as archive:
        archive.writestr("parameter_list", "[]")
        archive.writestr("parameters", _with_deflated(b"", "w.npy", 20_000))
    assert "bytes for parameters: not read" in _read_error(tmp_path / "sb2.zip")


def test_arrays_count_before_they_are_copied_and_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(weight_readers, "MAX_NUMBERS", 10_000)
    _sb2_pickle(tmp_path / "large.pkl", {"w": np.zeros((101, 100))})
    assert "claims the shape 101 x 100 for w" in _read_error(tmp_path / "large.pkl")
    # 40 tiny ones are more than 10,000 numbers: names and headers take room, too.
    _sb2_pickle(tmp_path / "often.pkl", [np.zeros(1)] * 40)
    assert "larger than the 10,000 numbers" in _read_error(tmp_path / "often.pkl")
    _sb2_pickle(tmp_path / "shared.pkl", {name: KERNEL for name in ("model/vf/w", "model/pi/w")})
    assert list(weight_files.read(tmp_path / "shared.pkl").tensors) == ["model/pi/w"]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensor_that_claims_petabytes_is_refused():
    one = torch.quantize_per_tensor(torch.ones(1), 0.5, 0, torch.qint8)
    with pytest.raises(errors.UserError, match="10000000 x 100000000 for weight"):
        weight_readers._from_torch(pathlib.Path("a.pt"), [("weight", one.expand(10**7, 10**8))])
