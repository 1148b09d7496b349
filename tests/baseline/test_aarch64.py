"""What is said, and done, about the processor of small devices."""

import os
import platform
import sys

import numpy as np
import pytest

from actorQ import errors
from baseline import aarch64
from baseline import integer
from baseline import integer_runner
from tests.baseline import integer_reference as reference


@pytest.fixture(name="nothing_installed")
def fixture_nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(aarch64, "_BINFMT", tmp_path / "binfmt")
    monkeypatch.setattr(aarch64.shutil, "which", lambda name: None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def test_a_machine_without_an_emulator_says_that_nothing_was_checked(nothing_installed):
    assert "not checked. This machine (x86_64) cannot emulate it" in aarch64.situation()


def test_a_machine_that_can_emulate_says_how(nothing_installed, monkeypatch, tmp_path):
    (tmp_path / "binfmt").write_text("enabled")
    assert "can emulate it" in aarch64.situation()
    assert "--aarch64_python=COMMAND" in aarch64.situation()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "this machine is one" in aarch64.situation()


@pytest.mark.parametrize("head", ["argmax", "clip"])
def test_actions_of_another_python_are_those_of_this_one(tmp_path, head):
    network = reference.dense(head=head)
    observations = reference.observations(network, 15)
    path = tmp_path / "policy.onnx"
    path.write_bytes(integer.export(network, 32).SerializeToString())

    found = aarch64.actions([sys.executable], path, observations)

    np.testing.assert_allclose(found, integer_runner.Runner(path)(observations), atol=1e-5)


def test_what_fails_there_is_told(tmp_path):
    zeros = np.zeros((1, 6), np.float32)
    with pytest.raises(errors.UserError, match="no-such-python fails"):
        aarch64.actions([str(tmp_path / "no-such-python")], "policy.onnx", zeros)
    with pytest.raises(errors.UserError, match="cannot play policy.onnx: no onnxruntime"):
        aarch64.actions(
            [sys.executable, "-c", "raise SystemExit('no onnxruntime')"], "policy.onnx", zeros
        )
    with pytest.raises(errors.UserError, match="something else than actions"):
        aarch64.actions([sys.executable, "-c", "print('hello')"], os.devnull, zeros)
