"""Policies in C without floats act as the integer form does, within 2 % of the actions' range."""

import re
import shutil

import numpy as np
import pytest
from torch import nn

from actorQ.core import errors
from baseline.agents import agreement
from baseline.deploy import c_player
from baseline.formats import c_integers
from baseline.formats import integer_form
from tests.baseline import integer_reference
from tests.baseline.formats import test_c_policy

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="There is no C compiler.")
SANITIZED = (*test_c_policy.STRICT, "-fsanitize=undefined", "-fno-sanitize-recover=all")


def play(tmp_path, form, observations, flags=test_c_policy.STRICT):
    """Returns outputs and actions for observations [N, ...]."""
    text = c_integers.export(form, ["A test."]).source
    assert not re.search(r"\b(float|double)\b", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    path = tmp_path / "policy.c"
    path.write_text(text)
    policy = c_player.Policy(path, flags)
    outputs = np.stack([policy(each, "output") for each in observations])
    return outputs, np.stack([policy(each) for each in observations])


@pytest.mark.parametrize("name", test_c_policy.ACTIVATIONS)
@pytest.mark.parametrize("bits", [8, 4])
def test_every_activation(tmp_path, name, bits):
    network = integer_reference.dense(test_c_policy.ACTIVATIONS[name], (6, 40, 30, 4), "clip")
    normal = test_c_policy.normalization(6)
    observations = test_c_policy.dense_observations()[:200]
    ranges = integer_reference.calibrate(network, normal(observations))
    form = integer_form.make(network, bits, ranges, "channel", normalization=normal)
    expected = integer_form.outputs(form, observations)
    outputs, actions = play(tmp_path, form, observations)
    width = network.high - network.low
    assert np.quantile(np.abs(outputs - expected) / width, 0.99) < 0.02
    found = agreement.compare(
        integer_form.actions(form, expected), actions, network.low, network.high
    )
    assert found.alike > 0.98


@pytest.mark.parametrize("head", ["argmax", "scale", "clip"])
@pytest.mark.parametrize("granularity", ["paper", "channel"])
def test_heads(tmp_path, head, granularity):
    network = integer_reference.dense(nn.Tanh, (6, 33, 17, 4), head)
    observations = test_c_policy.dense_observations()[:200]
    ranges = integer_reference.calibrate(network, observations)
    form = integer_form.make(network, 8, ranges, granularity)
    expected = integer_form.actions(form, integer_form.outputs(form, observations))
    _, actions = play(tmp_path, form, observations)
    found = agreement.compare(
        expected, actions.reshape(expected.shape), network.low, network.high
    )
    assert found.alike > 0.98


@pytest.mark.parametrize("padding", [0, 1])
def test_images(tmp_path, padding):
    network = integer_reference.images(padding=padding)
    observations = integer_reference.observations(network, 50)
    ranges = integer_reference.calibrate(network, observations)
    form = integer_form.make(network, 8, ranges, image_size=(20, 20))
    expected = integer_form.outputs(form, observations)
    outputs, _ = play(tmp_path, form, observations)
    assert np.abs(outputs - expected).max() < 0.02 * np.ptp(expected)


@pytest.mark.parametrize("name", ["tanh", "elu", "leaky"])
def test_extreme_observations_overflow_nothing(tmp_path, name):
    network = integer_reference.dense(test_c_policy.ACTIVATIONS[name], (6, 40, 30, 4), "scale")
    normal = test_c_policy.normalization(6)
    observations = test_c_policy.dense_observations()
    ranges = integer_reference.calibrate(network, normal(observations[:200]))
    form = integer_form.make(network, 8, ranges, normalization=normal)
    _, actions = play(tmp_path, form, observations, SANITIZED)
    assert np.all(actions >= network.low - 1e-4) and np.all(actions <= network.high + 1e-4)


def test_what_has_no_form_without_floats_is_refused():
    observations = np.zeros((1, 11), np.float32)
    network = test_c_policy.branched()
    ranges = integer_reference.calibrate(network, observations)
    with pytest.raises(errors.UserError, match="Layer numbers, a Part, .* --float=none out"):
        c_integers.export(integer_form.make(network, 8, ranges), [])
    with pytest.raises(errors.UserError, match="needs calibrated ranges"):
        c_integers.export(integer_form.make(network, 8, None), [])
