"""Where torch computes, with GPUs that this machine need not have."""

import logging
from unittest import mock

import pytest
import torch

from actorQ.policy import torch_device


@pytest.fixture
def choose(monkeypatch, caplog):
    """Chooses with a GPU that torch sees or not, whose operations return or raise."""

    def call(sees, operation):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
        monkeypatch.setattr(torch, "ones", operation)
        with caplog.at_level(logging.INFO, logger="absl"):
            return torch_device.choose("inference"), caplog.messages

    return call


def test_gpu_that_computes_is_taken_without_a_word(choose):
    operation = mock.Mock()
    assert choose(True, operation) == ("cuda", [])
    operation.assert_called_once_with(1, device="cuda")


def test_no_gpu_is_said(choose):
    operation = mock.Mock()
    assert choose(False, operation) == (
        "cpu", ["torch sees no GPU: inference goes on with the CPU."]
    )
    operation.assert_not_called()


def test_gpu_that_is_full_is_taken_so_that_its_own_error_tells(choose):
    assert choose(True, mock.Mock(side_effect=torch.cuda.OutOfMemoryError)) == ("cuda", [])


def test_gpu_without_kernels_is_left_with_one_line(choose):
    failure = RuntimeError(
        "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors"
    )
    device, (line,) = choose(True, mock.Mock(side_effect=failure))
    assert device == "cpu" and "\n" not in line
    assert "no kernel image is available" in line
    assert line.endswith("inference goes on with the CPU.")
