"""The choice of the learner's device, with GPUs that this machine need not have."""

import logging
from unittest import mock

import pytest

from actorQ import config as config_lib
from actorQ import learner_device
from actorQ import tensorflow_device


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
        for module in (learner_device, tensorflow_device):
            monkeypatch.setattr(module, "tf", tensorflow)
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


def test_gpus_of_a_tensorflow_that_computes_already_stay(monkeypatch, caplog):
    tensorflow = mock.Mock()
    tensorflow.config.set_visible_devices.side_effect = RuntimeError
    monkeypatch.setattr(tensorflow_device, "tf", tensorflow)
    with caplog.at_level(logging.INFO, logger="absl"):
        tensorflow_device.choose(False, "inference")
    assert caplog.messages == [
        "TensorFlow computes already: inference has the devices that it has."
    ]


def test_gpu_that_is_too_new_is_left_for_another(set_up):
    visible, (line,) = set_up((12, 0), (8, 6))
    assert visible == ["GPU:1"] and "goes on with another." in line


@pytest.mark.parametrize(
    ("precision", "ratio", "said"),
    [
        ("float32", 2.0, None),  # Nothing is measured then.
        ("bfloat16", 0.55, None),
        ("bfloat16", 1.82, "products take 1.8 times as long"),
    ],
)
def test_warns_of_a_bfloat16_that_does_not_pay(monkeypatch, caplog, precision, ratio, said):
    measured = []
    monkeypatch.setattr(
        learner_device, "_product_time_ratio", lambda *sizes: measured.append(sizes) or ratio
    )
    config = config_lib.RunConfig(
        learner_precision=precision, batch_size=32, model_str="64,128", critic_str="512,16"
    )
    assert learner_device.warn_if_slow(config) == (said is not None)
    assert measured == ([] if precision == "float32" else [(32, 512)])
    assert (said or "") in caplog.text and bool(caplog.text) == (said is not None)


def test_product_time_ratio_is_that_of_the_shortest_after_the_first(monkeypatch):
    # In turn: both of the first round are slow, then float32's shortest is 2 and bfloat16's 3.
    durations = iter([9, 90, 2, 4, 5, 3, 2, 8, 6, 7, 4, 5])
    clock = [0.0]

    def multiply(left, right):
        clock[0] += next(durations)
        assert left.dtype == right.dtype and left.shape == (4, 8) and right.shape == (8, 8)
        return left @ right

    monkeypatch.setattr(learner_device.tf, "matmul", multiply)
    monkeypatch.setattr(learner_device.time, "perf_counter", lambda: clock[0])
    assert learner_device._product_time_ratio(4, 8) == 1.5
    assert next(durations, None) is None
