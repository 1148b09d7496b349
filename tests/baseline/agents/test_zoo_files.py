"""Strangers' files are read without running anything that is in them."""

import base64
import io
import json
import pathlib
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
import yaml

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import zoo_files
from tests.baseline import small_agents


@pytest.fixture
def agent_path(zoo, tmp_path):
    """The zip of an agent that may be changed."""
    source = finding.find("a2c", "Pendulum-v1", zoo.folder)
    shutil.copytree(source.parent, tmp_path / "a2c" / source.parent.name)
    return finding.find("a2c", "Pendulum-v1", tmp_path)


def load(path):
    return finding.load("a2c", "Pendulum-v1", path.parents[2])


def refused(path, match):
    """Loads an agent that must be refused; returns the message's one line."""
    with pytest.raises(errors.UserError, match=match) as caught:
        load(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) < 600, message
    return message


def with_data(path, **entries):
    """Changes entries of the zip's JSON."""
    data = json.loads(small_agents.members(path, "data"))
    data.update(entries)
    small_agents.rewritten(path, data=json.dumps(data))
    return data


def test_read_zip_gives_what_is_plain(agent_path):
    saved = zoo_files.read_zip(agent_path)
    assert saved.version.startswith("2.")
    assert saved.data["num_timesteps"] == 0
    assert saved.policy_kwargs["net_arch"] == [16, 16]
    assert saved.state_dict["action_net.weight"].shape == (1, 16)


def test_policy_kwargs_are_resolved(zoo):
    saved = zoo_files.read_zip(finding.find("ppo", "Pendulum-v1", zoo.folder))
    assert saved.policy_kwargs["activation_fn"] is torch.nn.ReLU


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([{"pi": [8], "vf": [4]}], {"pi": [8], "vf": [4]}), ({"pi": [8]}, {"pi": [8]}),
        ([64, 64], [64, 64]), ([], []),
    ],
)
def test_net_arch_of_every_age(agent_path, stored, expected):
    with_data(agent_path, policy_kwargs={"net_arch": stored})
    assert zoo_files.read_zip(agent_path).policy_kwargs["net_arch"] == expected


def test_the_device_that_old_zips_name_is_left_out(agent_path):
    with_data(agent_path, policy_kwargs={"net_arch": [8], "device": "cuda"})
    assert zoo_files.read_zip(agent_path).policy_kwargs == {"net_arch": [8]}


def test_shared_layers_are_refused(agent_path):
    with_data(agent_path, policy_kwargs={"net_arch": [64, {"pi": [8], "vf": [4]}]})
    refused(agent_path, "layers shared by policy and value function")


def test_pickles_in_the_zips_json_are_ignored(agent_path, tmp_path):
    marker = tmp_path / "executed"
    poison = base64.b64encode(small_agents.Payload(marker).pickled()).decode()
    before = load(agent_path).act(np.ones((1, 3)))
    data = json.loads(small_agents.members(agent_path, "data"))
    entries = {
        name: {**(value if isinstance(value, dict) else {}), ":type:": "x", ":serialized:": poison}
        for name, value in data.items()
        if isinstance(value, dict) or name in ("learning_rate", "clip_range", "device")
    }
    assert {"policy_class", "observation_space", "policy_kwargs"} <= set(entries)
    with_data(agent_path, **entries)
    np.testing.assert_array_equal(load(agent_path).act(np.ones((1, 3))), before)
    assert not marker.exists()
    # The payload works: SB3's own loader runs it.
    with pytest.raises(Exception):  # noqa: B017 - whatever it makes of a closed file.
        small_agents.ALGORITHMS["a2c"].load(agent_path)
    assert marker.exists()


@pytest.mark.parametrize("wrapped", [True, False])
def test_pickle_in_policy_pth_is_refused(agent_path, tmp_path, wrapped):
    payload = small_agents.Payload(tmp_path / "executed")
    content = small_agents.torch_bytes({"x": payload}) if wrapped else payload.pickled()
    small_agents.rewritten(agent_path, policy_pth=content)
    message = refused(agent_path, r"policy\.pth in .* not loaded")
    assert "weights_only=False" not in message
    assert not (tmp_path / "executed").exists()
    pickle.loads(payload.pickled()).close()  # The payload works.
    assert (tmp_path / "executed").exists()


def test_pickle_in_vecnormalize_is_not_run(agent_path, tmp_path):
    payload = small_agents.Payload(tmp_path / "executed")
    path = agent_path.parent / "Pendulum-v1/vecnormalize.pkl"
    path.write_bytes(payload.pickled())
    refused(agent_path, "vecnormalize.pkl holds no statistics")
    # The file is refused even where the rest of it is good.
    good = finding.find("a2c", "Pendulum-v1", agent_path.parents[2])
    assert good == agent_path
    assert not (tmp_path / "executed").exists()


def test_statistics_with_a_payload_among_them(agent_path, zoo, tmp_path):
    environment = zoo.made["a2c", "Pendulum-v1"]
    path = agent_path.parent / "Pendulum-v1/vecnormalize.pkl"
    environment.poison = small_agents.Payload(tmp_path / "executed")
    try:
        environment.save(str(path))
    finally:
        del environment.poison
    assert load(agent_path).normalization.clip == 10.0
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["config.yml", "args.yml"])
@pytest.mark.parametrize(
    "tag", ["python/object/apply:os.system", "python/object/new:os.system", "python/name:os.system"]
)
def test_yaml_that_calls_is_refused(agent_path, tmp_path, name, tag):
    marker = tmp_path / "executed"
    text = f"normalize: !!{tag} ['touch {marker}']\n"
    (agent_path.parent / "Pendulum-v1" / name).write_text(text)
    refused(agent_path, rf"Cannot read .*{name}: could not determine a constructor")
    assert not marker.exists()
    if "apply" in tag:
        yaml.unsafe_load(text)
        assert marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        "a: [", "\t", "- just\n- a list\n", "text", "a: !!python/object/apply:collections."
        "OrderedDict []", "!!python/object/apply:collections.OrderedDict [[1, 2]]", "\0", "é: \xff",
        "[" * 1200,
    ],
)
def test_damaged_yaml_is_an_error(tmp_path, text):
    path = tmp_path / "config.yml"
    path.write_text(text, "latin-1")
    with pytest.raises(errors.UserError, match=r"config\.yml") as caught:
        zoo_files.read_yaml(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "form",
    ["[{0}, {0}]", "!!python/tuple [{0}, {0}]", "{{? {0} : {0}}}", "{{<<: [{0}, {0}]}}"],
)
def test_yaml_whose_references_make_something_huge_is_an_error(tmp_path, form):
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {form.format(f'*a{n - 1} ')}" for n in range(1, 50)]
    path = tmp_path / "config.yml"
    path.write_text("\n".join(lines))
    with pytest.raises(errors.UserError, match=r"config\.yml: it has more than 100,000 entries"):
        zoo_files.read_yaml(path)


def test_yaml_that_holds_itself_is_an_error(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text("a: &a [*a, 1]")
    with pytest.raises(errors.UserError, match="more than 100,000 entries"):
        zoo_files.read_yaml(path)


def test_yaml_of_the_zoo(tmp_path):
    path = tmp_path / "config.yml"
    assert zoo_files.read_yaml(path) == {}
    path.write_text("")
    assert zoo_files.read_yaml(path) == {}
    path.write_text(
        "!!python/object/apply:collections.OrderedDict\n- - - env_wrapper\n    - - a.B:\n"
        "          shape: !!python/tuple [1, 2]\n  - - n_envs\n    - 8\n"
    )
    expected = {"env_wrapper": [{"a.B": {"shape": (1, 2)}}], "n_envs": 8}
    assert zoo_files.read_yaml(path) == expected


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("os.system", "os.system, which is not of a library that is trusted"),
        ("builtins.eval", "builtins.eval, which is not of a library that is trusted"),
        ("torch.hub.load", "torch.hub.load, which is not of"),
        ("torch.nn.modules.activation.torch", "torch, which is no part of a policy"),
        ("torch.optim.sgd.sgd", "which is no part of a policy"),
        ("stable_baselines3.common.torch_layers.create_mlp", "which is no part of a policy"),
        ("stable_baselines3.common.torch_layers.Nothing", "there is none"),
        ("torch.optim.nothing.Nothing", "there is none"),
        ("torch.optim..os", "there is none"),
    ],
)
@pytest.mark.parametrize("argument", ["activation_fn", "nested"])
def test_policy_kwargs_that_name_something_else_are_refused(agent_path, name, match, argument):
    value = f"<class '{name}'>"
    kwargs = {argument: value if argument != "nested" else {"deep": {"deeper": value}}}
    with_data(agent_path, policy_kwargs=kwargs)
    refused(agent_path, match)


@pytest.mark.parametrize("kwargs", [[1], "text", {"net_arch": "wide"}, {"net_arch": [-1]}])
def test_policy_kwargs_of_no_sense_are_an_error(agent_path, kwargs):
    with_data(agent_path, policy_kwargs=kwargs)
    refused(agent_path, "policy")


def test_damaged_zips_are_an_error(agent_path, tmp_path):
    content = agent_path.read_bytes()
    for damaged, match in (
        (b"", "damaged"), (b"PK", "damaged"), (content[: len(content) // 2], "damaged"),
        (b"nonsense" * 100, "damaged"),
        (content[:200] + b"\0" * 3000 + content[3200:], "damaged|holds something else"),
    ):
        agent_path.write_bytes(damaged)
        refused(agent_path, match)


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({"policy_pth": None}, "no agent of Stable-Baselines3: There is no item named 'policy.pth"),
        ({"data": None}, "no agent of Stable-Baselines3: There is no item named 'data'"),
        ({"data": b"{"}, "damaged"), ({"data": b"[]"}, "no agent"), ({"data": b"3"}, "no agent"),
        ({"data": b"[" * 100_000}, "damaged"), ({"data": b"\xff\xfe"}, "damaged"),
        ({"policy_pth": b""}, "damaged|something else"),
        ({"policy_pth": b"PK\3\4 not a zip"}, "damaged"),
        ({"policy_pth": small_agents.torch_bytes([1, 2])}, "no agent"),
        ({"policy_pth": small_agents.torch_bytes({"a": 1})}, "something else than tensors"),
    ],
)
def test_zips_of_something_else_are_an_error(agent_path, members, match):
    small_agents.rewritten(agent_path, **members)
    refused(agent_path, match)


def test_zip_that_unpacks_to_too_much_is_an_error(agent_path, monkeypatch):
    whole = {name: small_agents.members(agent_path, name) for name in ("data", "policy.pth")}
    small_agents.rewritten(agent_path, data=b" " * (zoo_files.MAX_DATA_BYTES + 1))
    refused(agent_path, "claims 16,777,217 bytes for data: not read")
    small_agents.rewritten(
        agent_path, data=whole["data"], _stable_baselines3_version=b"2" * 2000
    )
    refused(agent_path, "claims 2,000 bytes for _stable_baselines3_version")
    # Policy.pth is a zip, too.
    inner = io.BytesIO(whole["policy.pth"])
    with zipfile.ZipFile(inner, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/99", bytes(2 << 20))
    monkeypatch.setattr(zoo_files, "MAX_BYTES", 1 << 20)
    assert len(inner.getvalue()) < 1 << 20
    small_agents.rewritten(
        agent_path, policy_pth=inner.getvalue(), _stable_baselines3_version=b"2"
    )
    refused(agent_path, r"claims 2,\d+,\d+ bytes for policy.pth")


def test_policy_kwargs_that_are_nested_deeply_are_an_error(agent_path):
    nested = {}
    for _ in range(600):
        nested = {"x": nested}
    with_data(agent_path, policy_kwargs=nested)
    refused(agent_path, "nested too deeply")


def test_directory_instead_of_a_zip_is_an_error(tmp_path):
    with pytest.raises(errors.UserError, match="Cannot read"):
        zoo_files.read_zip(tmp_path)


def normalization_file(path, **changes):
    """Writes a pickle like VecNormalize's, with attributes changed."""
    environment = small_agents.normalized(small_agents.vector("Pendulum-v1"), 20)
    for name, value in changes.items():
        part = environment.obs_rms if hasattr(environment.obs_rms, name) else environment
        setattr(part, name, value)
    environment.save(str(path))
    return environment


def test_read_normalization_is_what_sb3_saved(tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    assert zoo_files.read_normalization(path) is None
    environment = normalization_file(path, clip_obs=5.0)
    found = zoo_files.read_normalization(path)
    np.testing.assert_array_equal(found.mean, environment.obs_rms.mean)
    np.testing.assert_array_equal(found.variance, environment.obs_rms.var)
    assert found.num_observations == environment.obs_rms.count
    assert (found.clip, found.epsilon) == (5.0, 1e-8)
    normalization_file(path, clip_obs=float("inf"))  # Nothing is clipped.
    unclipped = zoo_files.read_normalization(path)
    assert unclipped(np.full((1, 3), 1e9)).min() > 1e6
    normalization_file(path, norm_obs=False)
    assert zoo_files.read_normalization(path) is None


def doubled(times):
    """A list of 2^times numbers that takes no room."""
    part = [1.0]
    for _ in range(times):
        part = [part, part]
    return part


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": np.ones(2)}, {"var": -np.ones(3)}, {"mean": np.full(3, np.nan)},
        {"var": np.full(3, np.inf)}, {"epsilon": float("nan")}, {"clip_obs": "wide"},
        {"obs_rms": {"a": 1}}, {"mean": [0.0, 0.0, 0.0]}, {"var": doubled(40)},
        {"mean": np.array(["a", "b", "c"], object)}, {"count": 10**400}, {"clip_obs": 10**400},
        {"clip_obs": 0.0}, {"clip_obs": -1.0}, {"clip_obs": float("nan")},
    ],
)
def test_statistics_of_no_sense_are_an_error(tmp_path, changes):
    path = tmp_path / "vecnormalize.pkl"
    normalization_file(path, **changes)
    with pytest.raises(errors.UserError, match="statistics"):
        zoo_files.read_normalization(path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"nonsense", pickle.dumps(3)])
def test_damaged_statistics_are_an_error(tmp_path, content):
    path = pathlib.Path(tmp_path, "vecnormalize.pkl")
    path.write_bytes(content)
    with pytest.raises(errors.UserError, match=r"vecnormalize\.pkl"):
        zoo_files.read_normalization(path)


def test_names_of_files(tmp_path):
    assert zoo_files.file_name("ALE/Pong-v5") == "ALE-Pong-v5"
    assert zoo_files.environment_name(tmp_path / "ALE-Pong-v5") == "ALE/Pong-v5"
    assert zoo_files.environment_name(tmp_path / "CartPole-v1") == "CartPole-v1"


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ("env: own/Grid-World-v0", "own/Grid-World-v0"),
        ("env: own-Grid-World-v0", "own-Grid-World-v0"),
        # Files of something else, or damaged ones, tell nothing.
        ("env: other/Grid-World-v0", "own-Grid-World-v0"), ("env: [own]", "own-Grid-World-v0"),
        ("algo: ppo", "own-Grid-World-v0"), ("[", "own-Grid-World-v0"),
    ],
)
def test_a_dash_in_a_name_stands_for_what_args_yml_says(tmp_path, noted, expected):
    settings = tmp_path / "own-Grid-World-v0"
    settings.mkdir()
    (settings / "args.yml").write_text(noted)
    assert zoo_files.environment_name(settings) == expected
