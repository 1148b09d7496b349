"""Tests `actorQ.learner.optimizers` against Sonnet's Adam and TensorFlow's clipping."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from actorQ.learner import optimizers
from actorQ.learner import step_sizes

SHAPES = [(7, 40), (40,), (40, 3), (3,)]


def variables(seed=0):
    rng = np.random.default_rng(seed)
    return [tf.Variable(rng.normal(size=shape).astype(np.float32)) for shape in SHAPES]


def gradients(step, scale=1.0):
    rng = np.random.default_rng([1, step])
    # Of very different sizes, as in a network: epsilon matters for the smallest.
    return [
        tf.constant((scale * 10.0**-(2 * i) * rng.normal(size=shape)).astype(np.float32))
        for i, shape in enumerate(SHAPES)
    ]


def assert_close(ours, theirs, **tolerance):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), **tolerance)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize(
    ("limit", "scale"),
    [(None, 1.0), (40.0, 1.0), (2.0, 1.0), (16.7, 1.0), (None, 1e-7), (40.0, 1e6)],
    ids=["no limit", "below", "clipped", "now and then", "near epsilon", "far above"],
)
def test_adam_twenty_steps_equal_sonnets_adam(limit, scale, compiled):
    ours, theirs = variables(), variables()
    fused, reference = optimizers.Adam(1e-2, limit), snt.optimizers.Adam(1e-2)

    def both(updates):
        fused.apply(updates, ours)
        if limit is not None:
            updates, _ = tf.clip_by_global_norm(updates, limit)
        reference.apply(updates, theirs)

    step = tf.function(both) if compiled else both
    for index in range(20):
        step(gradients(index, scale))
    # Every weight has gone a way of about 0.2.
    assert_close(ours, theirs, atol=2e-6)
    assert_close(fused.m, reference.m, rtol=1e-4, atol=1e-9 * scale)
    assert_close(fused.v, reference.v, rtol=1e-4, atol=1e-12 * scale)
    assert int(fused.step) == int(reference.step) == 20


def test_adam_norm_is_recorded_before_clipping():
    norm = tf.Variable(0.0)
    optimizer = optimizers.Adam(1e-2, 2.0, norm.assign)
    updates = gradients(0)
    tf.function(optimizer.apply)(updates, variables())
    expected = np.sqrt(sum(np.sum(np.square(update.numpy())) for update in updates))
    assert expected > 2.0
    np.testing.assert_allclose(norm.numpy(), expected, rtol=1e-5)


def test_adam_without_a_limit_records_the_norm_and_does_not_clip():
    norm = tf.Variable(0.0)
    ours, theirs = variables(), variables()
    optimizers.Adam(1e-2, record_norm=norm.assign).apply(gradients(0), ours)
    optimizers.Adam(1e-2).apply(gradients(0), theirs)
    assert norm.numpy() > 1.0
    assert_close(ours, theirs, rtol=0)


@pytest.mark.parametrize(
    ("updates", "decay_steps", "share"),
    [(0, 0, 1.0), (10**6, 0, 1.0), (0, 200, 1.0), (50, 200, 0.75), (198, 200, 0.01),
     (199, 200, 0.01), (10**6, 200, 0.01)],
)
def test_share_of_the_step_size_falls_linearly_to_a_hundredth(updates, decay_steps, share):
    assert step_sizes.share(updates, decay_steps) == pytest.approx(share)
    tensor = step_sizes.share(tf.constant(updates, tf.float32), decay_steps, tf.maximum)
    assert float(tensor) == pytest.approx(share)


def test_adam_with_decay_is_sonnets_adam_with_these_step_sizes_also_from_a_checkpoint(tmp_path):
    ours, theirs = variables(), variables()
    falling = tf.Variable(0.0)
    reference = snt.optimizers.Adam(falling)
    path = ""
    for part in range(2):
        fused = optimizers.Adam(1e-2, decay_steps=8)
        fused.initialize(ours)
        saved = tf.train.Checkpoint(optimizer=fused)
        if path:
            saved.restore(path).assert_existing_objects_matched()
        apply = tf.function(fused.apply)
        for index in range(6 * part, 6 * part + 6):
            falling.assign(1e-2 * max(0.01, 1.0 - index / 8))
            reference.apply(gradients(index), theirs)
            apply(gradients(index), ours)
        path = saved.save(str(tmp_path / "saved"))
    assert_close(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_adam_gradient_not_finite_shows_in_the_norm_and_in_the_weights(bad):
    norm = tf.Variable(0.0)
    parameters = variables()
    updates = gradients(0)
    updates[1] = tf.tensor_scatter_nd_update(updates[1], [[0]], [bad])
    tf.function(optimizers.Adam(1e-2, 40.0, norm.assign).apply)(updates, parameters)
    assert not np.isfinite(norm.numpy())
    assert not all(np.all(np.isfinite(parameter.numpy())) for parameter in parameters)


def test_adam_none_leaves_its_parameter_alone():
    parameters, start = variables(), variables()
    updates = [None, *gradients(0)[1:]]
    optimizers.Adam(1e-2, 40.0).apply(updates, parameters)
    assert_close(parameters[:1], start[:1], rtol=0)
    assert np.all(parameters[1].numpy() != start[1].numpy())


def test_adam_checkpoint_of_sonnets_adam_goes_on_the_same_way(tmp_path):
    ours, theirs = variables(), variables()
    reference = snt.optimizers.Adam(1e-2)
    for index in range(3):
        reference.apply(gradients(index), theirs)
    path = tf.train.Checkpoint(optimizer=reference).save(str(tmp_path / "saved"))
    for a, b in zip(ours, theirs, strict=True):
        a.assign(b)
    fused = optimizers.Adam(1e-2)
    fused.initialize(ours)
    tf.train.Checkpoint(optimizer=fused).restore(path).assert_existing_objects_matched()
    assert int(fused.step) == 3
    for index in range(3, 6):
        reference.apply(gradients(index), theirs)
        fused.apply(gradients(index), ours)
    assert_close(ours, theirs, atol=1e-6)


def test_adam_values_taken_before_an_update_stay_as_they_were():
    # The publisher reads weights without a copy while the learner goes on.
    optimizer = optimizers.Adam(1e-2, 40.0)
    parameters, start = variables(), variables()
    step = tf.function(optimizer.apply)
    taken = [np.asarray(parameter.read_value()) for parameter in parameters]
    for index in range(3):
        step(gradients(index), parameters)
    for value, before, parameter in zip(taken, start, parameters, strict=True):
        np.testing.assert_array_equal(value, before.numpy())
        assert np.all(parameter.numpy() != value)


def test_adam_initialize_twice_keeps_the_moments():
    optimizer = optimizers.Adam(1e-2)
    parameters = variables()
    optimizer.initialize(parameters)
    moments = list(optimizer.m)
    optimizer.initialize(parameters)
    assert len(optimizer.m) == len(parameters)
    assert all(a is b for a, b in zip(optimizer.m, moments, strict=True))
