"""Tests what is told of the processors of small devices, and files played on them."""

import os
import pathlib
import platform
import subprocess
import sys

import numpy as np
import pytest

from actorQ.core import errors
from baseline.deploy import aarch64
from baseline.deploy import exporting
from baseline.formats import names
from baseline.formats import onnx_policy
from baseline.quantization import acting_path
from tests.baseline import integer_reference as reference


def test_without_an_arm_nothing_is_claimed_and_the_way_to_one_is_told(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert "not checked, this machine is x86_64" in aarch64.situation()
    assert "aarch64_setup.sh" in aarch64.situation()
    assert "--aarch64_python=COMMAND" in aarch64.situation()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "this machine is one" in aarch64.situation()


def test_only_a_python_on_arm_is_one(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("#!/bin/sh\necho '[\"riscv64\", {}]'\n")
    elsewhere.chmod(0o755)
    with pytest.raises(errors.UserError, match="runs on riscv64, not on a 64-bit"):
        aarch64.probe([str(elsewhere)])
    monkeypatch.setattr(aarch64, "_PROBE_LIMIT_S", 0.2)
    with pytest.raises(errors.UserError, match="sh cannot be asked for its processor: over 0 s"):
        aarch64.probe(["sh", "-c", "sleep 20"])
    monkeypatch.undo()
    with pytest.raises(errors.UserError, match="is no Python"):
        aarch64.probe(["echo"])
    with pytest.raises(errors.UserError, match="cannot be asked for its processor: no message"):
        aarch64.probe(["false"])
    claims = tmp_path / "python"
    machine = platform.machine()
    claims.write_text(f"#!/bin/sh\n'{sys.executable}' \"$@\" | sed 's/{machine}/aarch64/'\n")
    claims.chmod(0o755)
    found = aarch64.probe([str(claims)])
    assert found.command == (str(claims),)
    assert found.versions["numpy"] == np.__version__ and "onnxruntime" in found.versions


@pytest.mark.parametrize("head", ["argmax", "clip"])
def test_outputs_of_another_python_are_those_of_this_one(tmp_path, head):
    network = reference.dense(head=head)
    observations = reference.observations(network, 15)
    path = tmp_path / "policy.onnx"
    path.write_bytes(onnx_policy.export(network, 32).SerializeToString())

    outputs = acting_path.forward(network, observations).numpy()
    expected = {"output": outputs, "action": acting_path.to_actions(network, outputs)}
    for name in expected:
        found = aarch64.play([sys.executable], path, observations, name)
        assert found.shape == expected[name].shape
        np.testing.assert_allclose(found, expected[name], atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or platform.freedesktop_os_release().get("VERSION_ID") != "12",
    reason="the packages of Debian 12 are needed",
)
def test_files_act_under_the_emulated_arm_builds_as_here(tmp_path):
    root = pathlib.Path(__file__).parents[3]
    subprocess.run([root / "baseline" / "aarch64_setup.sh", tmp_path], check=True, timeout=900)
    network = reference.dense(head="clip")
    observations = reference.observations(network, 10)
    ranges = reference.calibrate(network, observations)
    for file_format, bits in (
        ("onnx", 32), ("onnx", 8), ("tflite", 32), ("tflite", 8), ("torchscript", 32),
        ("torchscript", 8),
    ):
        settings = exporting.Settings(file_format, bits)
        content = exporting.export_network(
            network, settings, ranges if settings.calibrates else None
        )
        path = tmp_path / f"policy{names.ENDINGS[file_format]}"
        path.write_bytes(content)
        arm = aarch64.probe([str(tmp_path / "python")])
        for name in ("action", "output"):
            there = aarch64.play(arm.command, path, observations, name)
            here = aarch64.play([sys.executable], path, observations, name)
            # Integers are the same, but for a rounding that falls to the other side.
            np.testing.assert_allclose(there, here, atol=1e-5 if bits == 32 else 0.02)


def test_what_fails_there_is_told(tmp_path):
    zeros = np.zeros((1, 6), np.float32)
    with pytest.raises(errors.UserError, match="no-such-python fails"):
        aarch64.play([str(tmp_path / "no-such-python")], "policy.onnx", zeros, "action")
    with pytest.raises(errors.UserError, match="cannot play policy.onnx: no onnxruntime"):
        aarch64.play(
            [sys.executable, "-c", "raise SystemExit('no onnxruntime')"], "policy.onnx", zeros,
            "action",
        )
    with pytest.raises(errors.UserError, match="something else than numbers"):
        aarch64.play([sys.executable, "-c", "print('hello')"], os.devnull, zeros, "output")
