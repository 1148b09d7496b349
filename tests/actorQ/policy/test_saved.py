"""Tests `actorQ.policy.saved`."""

import errno
import json

import numpy as np
import pytest
import safetensors.numpy

from actorQ.core import errors
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import saved
from tests.actorQ import harness

ARCHITECTURE = architecture_lib.PolicyArchitecture((4,), (8, 6), 2, "tanh")
FACTS = {
    "taskstr": "gym,Pendulum-v1", "max_episode_steps": 9, "action_low": [-2.0, -1.0],
    "action_high": [2.0, 3.0], "best_return": None,
}


def make_checkpoint(seed=0, architecture=ARCHITECTURE):
    return harness.random_checkpoint(architecture, FACTS, seed)


def assert_equal_checkpoints(got, expected):
    assert got.architecture == expected.architecture
    assert got.facts == expected.facts
    assert set(got.weights) == set(expected.weights)
    for name, array in expected.weights.items():
        assert got.weights[name].dtype == np.float32
        np.testing.assert_array_equal(got.weights[name], array)


def test_save_policy_then_load_is_bit_exact(tmp_path):
    checkpoint = make_checkpoint()
    path = saved.save_policy(str(tmp_path / "new" / "folder"), checkpoint)
    assert path == str(tmp_path / "new" / "folder" / "policy.safetensors")
    assert_equal_checkpoints(saved.load_policy(path), checkpoint)
    assert_equal_checkpoints(saved.load_policy(str(tmp_path / "new/folder")), checkpoint)
    assert [entry.name for entry in (tmp_path / "new/folder").iterdir()] == ["policy.safetensors"]


def test_save_policy_transposed_views_arrive_in_order(tmp_path):
    checkpoint = make_checkpoint()
    views = {
        name: np.asfortranarray(array) for name, array in checkpoint.weights.items()
    }
    saved.save_policy(str(tmp_path), checkpoint._replace(weights=views))
    assert_equal_checkpoints(saved.load_policy(str(tmp_path)), checkpoint)


def test_save_policy_twice_keeps_the_newer(tmp_path):
    for seed in (1, 2):
        saved.save_policy(str(tmp_path), make_checkpoint(seed))
    assert_equal_checkpoints(saved.load_policy(str(tmp_path)), make_checkpoint(2))


def test_load_policy_of_a_run_last_and_best_differ(tmp_path):
    saved.save_policy(str(tmp_path / "checkpoint"), make_checkpoint(1))
    saved.save_policy(str(tmp_path / "checkpoint" / "best"), make_checkpoint(2))
    assert_equal_checkpoints(saved.load_policy(str(tmp_path)), make_checkpoint(1))
    assert_equal_checkpoints(saved.load_policy(str(tmp_path), best=True), make_checkpoint(2))


def test_load_policy_without_a_best_one_is_a_user_error(tmp_path):
    saved.save_policy(str(tmp_path / "checkpoint"), make_checkpoint(1))
    with pytest.raises(errors.UserError, match="No policy at .*best/policy.safetensors"):
        saved.load_policy(str(tmp_path), best=True)


def test_load_policy_best_of_a_file_is_a_user_error(tmp_path):
    path = saved.save_policy(str(tmp_path), make_checkpoint())
    with pytest.raises(errors.UserError, match="--best is for run folders"):
        saved.load_policy(path, best=True)


def test_load_policy_that_cannot_be_read_says_why(tmp_path, monkeypatch):
    path = saved.save_policy(str(tmp_path), make_checkpoint())
    with monkeypatch.context() as patch:
        patch.setattr(saved.os, "access", lambda *_: False)
        with pytest.raises(errors.UserError, match=f"Cannot read {path}: Permission denied"):
            saved.load_policy(path)

    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(saved.safetensors, "safe_open", fail)
    with pytest.raises(errors.UserError, match=f"Cannot read {path}: Input/output error"):
        saved.load_policy(path)


@pytest.mark.parametrize("name", ["", "none", "none/policy.safetensors"])
def test_load_policy_missing_says_where_it_looked(tmp_path, name):
    path = str(tmp_path / name)
    with pytest.raises(errors.UserError, match="checkpoint/policy.safetensors.*first checkpoint"):
        saved.load_policy(path)


def test_load_policy_cut_file_is_a_user_error_everywhere(tmp_path):
    path = tmp_path / "policy.safetensors"
    saved.save_policy(str(tmp_path), make_checkpoint())
    content = path.read_bytes()
    for end in (0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(errors.UserError, match="policy.safetensors is damaged"):
            saved.load_policy(str(path))


def test_load_policy_garbage_is_a_user_error(tmp_path):
    path = tmp_path / "policy.safetensors"
    path.write_bytes(np.random.default_rng(0).bytes(1000))
    with pytest.raises(errors.UserError, match="is damaged"):
        saved.load_policy(str(path))


GOOD = {"architecture": json.dumps(ARCHITECTURE.to_json()), "facts": "{}"}


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"architecture": GOOD["architecture"]},
        {"facts": "{}"},
        {**GOOD, "architecture": "{"},
        {**GOOD, "facts": "not json"},
        {**GOOD, "architecture": "{}"},
        {**GOOD, "architecture": "3"},
        {**GOOD, "architecture": json.dumps({**ARCHITECTURE.to_json(), "num_outputs": "two"})},
        {**GOOD, "architecture": json.dumps({**ARCHITECTURE.to_json(), "hidden_sizes": 8})},
    ],
)
def test_load_policy_foreign_safetensors_is_a_user_error(tmp_path, metadata):
    path = str(tmp_path / "policy.safetensors")
    safetensors.numpy.save_file(dict(make_checkpoint().weights), path, metadata)
    with pytest.raises(errors.UserError, match="is damaged"):
        saved.load_policy(path)


@pytest.mark.parametrize("other", [
    architecture_lib.PolicyArchitecture((4,), (8, 7), 2, "tanh"),
    architecture_lib.PolicyArchitecture((4,), (8,), 2, "tanh"),
    architecture_lib.PolicyArchitecture((84, 84, 4), (8, 6), 2, "tanh"),
])
def test_load_policy_weights_of_another_architecture_are_a_user_error(tmp_path, other):
    saved.save_policy(str(tmp_path), make_checkpoint()._replace(architecture=other))
    with pytest.raises(errors.UserError, match="does not fit its own architecture"):
        saved.load_policy(str(tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_damage(tmp_path, value):
    checkpoint = make_checkpoint()
    for name, array in checkpoint.weights.items():
        weights = {**checkpoint.weights, name: array.copy()}
        weights[name].flat[-1] = value
        path = saved.save_policy(
            str(tmp_path), saved.PolicyCheckpoint(ARCHITECTURE, weights, FACTS)
        )
        with pytest.raises(errors.UserError, match=f"is damaged: {name} has NaN or infinity"):
            saved.load_policy(path)
