"""The choice of the learner's device, with GPUs that this machine need not have."""

import logging
from unittest import mock

import pytest

from actorQ import config as config_lib
from actorQ import learner_device


@pytest.fixture
def set_up(monkeypatch, caplog):
    """Sets up a learner that sees GPUs of some compute capabilities.

    Returns:
      Those that it takes, and what it says.
    """

    def call(*capabilities, placement="GPU"):
        tensorflow = mock.Mock()
        names = [f"GPU:{number}" for number in range(len(capabilities))]
        details = {
            name: {"compute_capability": capability} if capability else {}
            for name, capability in zip(names, capabilities, strict=True)
        }
        tensorflow.config.list_physical_devices.return_value = names
        tensorflow.config.experimental.get_device_details.side_effect = details.get
        monkeypatch.setattr(learner_device, "tf", tensorflow)
        with caplog.at_level(logging.INFO, logger="absl"):
            learner_device.set_up_tensorflow(
                config_lib.RunConfig(learner_device_placement=placement)
            )
        ((visible, kind), _) = tensorflow.config.set_visible_devices.call_args
        assert kind == "GPU"
        grown = tensorflow.config.experimental.set_memory_growth.call_args_list
        assert grown == [mock.call(name, True) for name in visible]
        return visible, [line for line in caplog.messages if not line.startswith("Learner: ")]

    return call


def test_gpus_with_kernels_are_taken_without_a_word(set_up):
    assert set_up((8, 9), (7, 0), None) == (["GPU:0", "GPU:1", "GPU:2"], [])


def test_gpu_is_left_alone_where_the_learner_is_to_use_the_cpu(set_up):
    assert set_up((8, 0), (12, 0), placement="CPU") == ([], [])


def test_no_gpu_is_said(set_up):
    visible, (line,) = set_up()
    assert not visible and line == "TensorFlow sees no GPU: the learner goes on with the CPU."


def test_gpus_whose_kernels_are_compiled_first_are_taken_with_one_line(set_up):
    visible, (line,) = set_up((9, 0), (9, 0))
    assert visible == ["GPU:0", "GPU:1"]
    assert "capability 9.0: at its first start there they are compiled" in line


@pytest.mark.parametrize("capability", [(10, 0), (12, 0)])
def test_gpu_that_is_too_new_is_left_for_the_cpu_with_one_line(set_up, capability):
    visible, (line,) = set_up(capability)
    assert not visible
    assert f"capability {capability[0]}.0: the learner goes on with the CPU." in line


def test_gpu_that_is_too_new_is_left_for_another(set_up):
    visible, (line,) = set_up((12, 0), (8, 6))
    assert visible == ["GPU:1"] and "goes on with another." in line
