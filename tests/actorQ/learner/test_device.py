"""Choice of the learner's device, with GPUs that this machine need not have."""

import logging
from unittest import mock

import pytest
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.learner import device
from actorQ.policy import sonnet_layers
from actorQ.policy import tensorflow_device


@pytest.fixture
def set_up(monkeypatch, caplog):
    """Sets up a learner that sees GPUs of some compute capabilities.

    Returns:
      The devices that it uses, and the lines that it logs.
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
        for module in (device, tensorflow_device):
            monkeypatch.setattr(module, "tf", tensorflow)
        with caplog.at_level(logging.INFO, logger="absl"):
            device.set_up_tensorflow(
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
    assert "capability 9.0: its first start there compiles them" in line


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
        "TensorFlow has begun to compute: inference keeps its present devices."
    ]


def test_gpu_that_is_too_new_is_left_for_another(set_up):
    visible, (line,) = set_up((12, 0), (8, 6))
    assert visible == ["GPU:1"] and "goes on with another." in line


@pytest.mark.parametrize(
    ("asked", "widest", "ratio", "chosen", "said"),
    [
        ("float32", 512, None, sonnet_layers.FLOAT32, None),  # No product is timed.
        ("float32", 1024, 0.95, sonnet_layers.FLOAT32,
         "0.95 times as long with padded weights: they are not padded"),
        ("float32", 2048, 0.5, sonnet_layers.FLOAT32_PADDED,
         "0.50 times as long with padded weights: they are padded"),
        ("bfloat16", 512, 0.55, sonnet_layers.BFLOAT16, None),
        ("bfloat16", 512, 1.82, sonnet_layers.BFLOAT16, "products take 1.8 times as long"),
    ],
)
def test_products_are_chosen_by_measuring_where_there_is_a_choice(
    monkeypatch, caplog, asked, widest, ratio, chosen, said
):
    measured = []
    monkeypatch.setattr(
        device, "_time_ratio", lambda *arguments: measured.append(arguments) or ratio
    )
    config = config_lib.RunConfig(
        learner_precision=asked, batch_size=32, model_str="64,128", critic_str=f"{widest},16"
    )
    with caplog.at_level(logging.INFO, logger="absl"):
        assert device.choose_products(config) == chosen
    other = sonnet_layers.FLOAT32_PADDED if asked == "float32" else sonnet_layers.BFLOAT16
    assert measured == ([] if ratio is None else [(32, widest, other)])
    assert (said or "") in caplog.text and bool(caplog.text) == (said is not None)


def test_products_on_a_gpu_are_not_padded(monkeypatch):
    monkeypatch.setattr(device, "name", lambda: "GPU")
    monkeypatch.delattr(device, "_time_ratio")
    config = config_lib.RunConfig(model_str="2048")
    assert device.choose_products(config) == sonnet_layers.FLOAT32


@pytest.mark.parametrize("precision", [sonnet_layers.FLOAT32_PADDED, sonnet_layers.BFLOAT16])
def test_time_ratio_is_that_of_the_shortest_after_the_first(monkeypatch, precision):
    # The kinds alternate. Both are slow in the first round; then the shortest are 2 and 3.
    durations = iter([9, 90, 2, 4, 5, 3, 2, 8, 6, 7, 4, 5])
    kinds = []
    clock = [0.0]

    def multiply(left, right):
        clock[0] += next(durations)
        kinds.append((left.dtype, right.shape[1]))
        assert left.dtype == right.dtype and left.shape == (4, 8) and right.shape[0] == 8
        return left @ right

    monkeypatch.setattr(tf, "matmul", multiply)
    monkeypatch.setattr(device.time, "perf_counter", lambda: clock[0])
    assert device._time_ratio(4, 8, precision) == 1.5
    assert next(durations, None) is None
    other = (tf.bfloat16, 8) if precision == sonnet_layers.BFLOAT16 else (tf.float32, 24)
    assert kinds == [(tf.float32, 8), other] * 6
