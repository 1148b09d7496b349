"""Learners whose policy computes through the actors' quantizer."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

import numpy as np
import pytest
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import resuming
from actorQ.learner import policy_average
from actorQ.policy import forms
from actorQ.policy import inference
from tests.actorQ.learner import test_compiled_step
from tests.actorQ.learner import test_dataset

EACH = pytest.mark.parametrize("algorithm", sorted(test_dataset.TASKS))


@EACH
@pytest.mark.parametrize("bits", [4, 3])
def test_all_policies_of_a_learner_have_the_quantizer(algorithm, bits):
    rig = test_dataset.Rig(
        algorithm, learner_fake_quantize=bits, inference_mode="native", average_policy_steps=10
    )
    rig.server.stop()
    networks = rig.networks
    for policy in (networks.policy, networks.target_policy, networks.average_policy):
        assert policy._quantizer.bits == bits
    acting = policy_average.acting(networks)
    spec_shape = acting.architecture.observation_shape
    observations = np.random.default_rng(0).normal(size=(9, *spec_shape)).astype(np.float32)
    weights = forms.from_sonnet(
        {name: variable.numpy() for name, variable in acting.named_variables().items()}
    )
    backend = inference.make_backend(acting.architecture, bits, "native")
    inference.load_weights(backend, weights, bits)
    acted = np.concatenate([backend(each[None]) for each in observations])
    np.testing.assert_allclose(acting(tf.constant(observations)).numpy(), acted, atol=2e-3)
    # Evaluations in this process play the same policy.
    one = acting.compile_for(1)
    played = np.concatenate([one(tf.constant(each[None])).numpy() for each in observations])
    np.testing.assert_allclose(played, acted, atol=2e-3)


@EACH
@pytest.mark.parametrize("compiled", [False, True])
def test_quantized_policies_learn(algorithm, compiled):
    learned = test_compiled_step.Learned(
        algorithm, steps_per_call=1 if compiled else None, steps=30, learner_fake_quantize=4,
        inference_mode="native",
    )
    assert np.isfinite([list(losses.values()) for losses in learned.losses]).all()
    norm = "policy_gradient_norm" if algorithm == "d4pg" else "gradient_norm"
    assert learned.monitors.read()[norm] > 0


def test_resumed_run_keeps_the_learners_quantizer():
    config = config_lib.RunConfig(learner_fake_quantize=8)
    resuming.check_resumed(config, {"learner_fake_quantize": 8})
    with pytest.raises(errors.UserError, match="--learner_fake_quantize was 32, not 8"):
        resuming.check_resumed(config, {})  # A run of an older version had none.


def test_quantizer_that_the_backend_lacks_is_refused_by_its_flag():
    for bits in (4, 3):
        said = f"--learner_fake_quantize={bits} needs --inference_mode.*no {bits}-bit operator"
        with pytest.raises(errors.UserError, match=said):
            config_lib.RunConfig(learner_fake_quantize=bits, inference_mode="pytorch")
    with pytest.raises(errors.UserError, match="--learner_fake_quantize=5 is not possible"):
        config_lib.RunConfig(learner_fake_quantize=5)
