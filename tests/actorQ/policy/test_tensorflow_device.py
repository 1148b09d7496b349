"""XLA is told where pip put the CUDA toolkit."""

import os
import sys

import pytest

from actorQ.policy import tensorflow_device

OPTION = "--xla_gpu_cuda_data_dir"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "{option}={folder}"),
        ("--xla_dump_to=elsewhere", "--xla_dump_to=elsewhere {option}={folder}"),
        ("--xla_gpu_cuda_data_dir=/usr/local/cuda", "--xla_gpu_cuda_data_dir=/usr/local/cuda"),
    ],
)
def test_xla_is_shown_the_toolkit_that_pip_installed(given, expected, monkeypatch, tmp_path):
    folder = tmp_path / "nvidia" / "cuda_nvcc"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (tmp_path / "nvidia" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("nvidia", "nvidia.cuda_nvcc"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if given is None:
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    else:
        monkeypatch.setenv("XLA_FLAGS", given)
    tensorflow_device._show_xla_the_toolkit()
    assert os.environ["XLA_FLAGS"] == expected.format(option=OPTION, folder=folder)


def test_a_machine_without_the_toolkit_is_left_as_it_is(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(tensorflow_device.importlib.util, "find_spec", lambda name: None)
    tensorflow_device._show_xla_the_toolkit()
    assert "XLA_FLAGS" not in os.environ
