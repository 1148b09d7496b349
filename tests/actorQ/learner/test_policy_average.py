"""The average of the policy: its weights, who sees it, and its place in checkpoints."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

import numpy as np
import pytest
import tensorflow as tf

from actorQ.learner import policy_average
from tests.actorQ.learner import fakes
from tests.actorQ.learner import test_dataset
from tests.actorQ.learner import test_training

EACH = pytest.mark.parametrize("algorithm", ["d4pg", "dqn"])
PERIOD = policy_average._PERIOD


def numbers(policy):
    """Returns all weights as one vector."""
    return np.concatenate([variable.numpy().ravel() for variable in policy.variables])


@pytest.fixture(name="pair")
def _pair():
    rig = test_dataset.Rig("d4pg", average_policy_steps=100)
    rig.server.stop()
    return rig.networks.policy, rig.networks.average_policy


def learn(policy, rng):
    """Gives the policy random weights; returns them."""
    for variable in policy.variables:
        variable.assign(rng.standard_normal(variable.shape))
    return numbers(policy)


def test_it_begins_with_the_policy_as_it_is(pair):
    policy, average = pair
    assert np.any(numbers(policy) != numbers(average))
    policy_average.PolicyAverage(policy, average, 100)
    np.testing.assert_array_equal(numbers(policy), numbers(average))


def test_it_is_the_mean_of_the_first_policies_and_then_falls_behind_evenly(pair):
    policy, average = pair
    averaging = policy_average.PolicyAverage(policy, average, 100)
    rng = np.random.default_rng(0)
    seen = []
    for steps in range(1, 2 * 100 + 1):
        weights = learn(policy, rng)
        averaging.after_steps(steps, 1)
        if steps % PERIOD == 0:
            seen.append(weights)
            if steps <= 100:
                expected = np.mean(seen, axis=0)
            else:
                expected += PERIOD / 100 * (weights - expected)
        if steps >= PERIOD:
            np.testing.assert_allclose(numbers(average), expected, atol=1e-5)


def test_the_last_policy_alone_counts_where_few_steps_are_averaged(pair):
    policy, average = pair
    averaging = policy_average.PolicyAverage(policy, average, 1)
    weights = learn(policy, np.random.default_rng(0))
    averaging.after_steps(100, 100)
    np.testing.assert_allclose(numbers(average), weights, rtol=1e-6)


def test_training_updates_it_after_each_step_and_before_the_push():
    parts = fakes.make_parts()
    calls = []
    parts.average.after_steps = lambda steps, made: calls.append(("average", steps))
    parts.publisher.publish = lambda version, wait=False: calls.append(("push", version))
    training, _ = test_training.make(parts, num_episodes=2)
    training.run()
    assert calls == [("push", 0), ("average", 1), ("push", 1), ("average", 2), ("push", 2)]


@EACH
def test_it_is_in_the_checkpoint(algorithm, tmp_path):
    rig = test_dataset.Rig(algorithm, average_policy_steps=100)
    parts = rig.module.checkpointed(rig.learner, rig.networks)
    assert parts["average_policy"] is rig.networks.average_policy
    path = tf.train.Checkpoint(**parts).write(str(tmp_path / "learner"))
    again = test_dataset.Rig(algorithm, average_policy_steps=100)
    tf.train.Checkpoint(**again.module.checkpointed(again.learner, again.networks)).read(
        path
    ).assert_existing_objects_matched()
    np.testing.assert_array_equal(
        numbers(rig.networks.average_policy), numbers(again.networks.average_policy)
    )
    for each in (rig, again):
        each.server.stop()


@EACH
def test_without_one_there_is_nothing_to_save(algorithm):
    rig = test_dataset.Rig(algorithm)
    assert rig.networks.average_policy is None
    assert "average_policy" not in rig.module.checkpointed(rig.learner, rig.networks)
    rig.server.stop()
