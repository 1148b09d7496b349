"""Ranges of returns that a learner finds: before its first step, and what becomes of them."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

import logging

import numpy as np
import pytest
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.d4pg import learner as d4pg
from actorQ.learner import dataset
from actorQ.learner import range_finder
from actorQ.learner import return_ranges
from actorQ.wire import replay
from tests.actorQ.learner import test_dataset

TASK = return_ranges.Task(200, None)
AUTO = {
    "d4pg": {"vmin": "auto", "vmax": "auto"},
    "dqn": {"max_abs_reward": "auto"},
}
EACH = pytest.mark.parametrize("algorithm", sorted(AUTO))


def said(caplog):
    """Returns the range's lines of the log, without TensorFlow's and those of other threads."""
    return [record.getMessage() for record in caplog.records if record.module == "range_finder"]


class Found(test_dataset.Rig):
    """A learner on random transitions, with a range to be found."""

    def __init__(self, algorithm, **settings):
        super().__init__(algorithm, **{**AUTO[algorithm], **settings})
        self.monitors.rewards_watcher(self.config.discount)  # It is not asked: tests set both.
        self.range = self.module.make_range(
            self.config, self.networks, self.learner, self.monitors
        )
        self.noted = []
        self.finder = range_finder.RangeFinder(
            self.learner, self.range, self.config, TASK, self.noted.append
        )

    @property
    def batches(self):
        return self.learner._iterator


@EACH
def test_range_is_found_once_within_the_first_step_and_told_in_one_line(algorithm, caplog):
    rig = Found(algorithm)
    assert rig.range.found() == {}
    with caplog.at_level(logging.INFO, logger="absl"):
        for _ in range(3):
            rig.finder.step()
    (line,) = said(caplog)
    assert "transitions" in line
    found = rig.range.found()
    assert rig.noted == [found]
    if algorithm == "d4pg":
        assert found["vmin"] < 0 < found["vmax"]  # The rewards are normal numbers.
        for critic in (rig.networks.critic, rig.networks.target_critic):
            values = critic(tf.zeros((4, 3)), tf.zeros((4, 1))).values.numpy()
            np.testing.assert_allclose(
                values, np.linspace(found["vmin"], found["vmax"], 51), atol=1e-3
            )
    else:
        assert 1 < found["return_scale"] < 10
    assert np.all(np.isfinite(list(rig.module.losses(rig.fetches.read()).values())))
    rig.server.stop()


@pytest.mark.parametrize("algorithm", sorted(AUTO))
def test_there_is_nothing_to_find_where_flags_give_the_range(algorithm):
    rig = test_dataset.Rig(algorithm)
    assert rig.module.make_range(rig.config, rig.networks, rig.learner, rig.monitors) is None
    rig.server.stop()


@EACH
def test_a_range_is_in_the_checkpoint(algorithm, tmp_path, caplog):
    rig = Found(algorithm)
    rig.finder.step()
    path = tf.train.Checkpoint(**rig.module.checkpointed(rig.learner, rig.networks)).write(
        str(tmp_path / "learner")
    )
    again = Found(algorithm)
    again.finder.resume()
    assert not again.noted  # A checkpoint from before the first step has no range yet.
    tf.train.Checkpoint(**again.module.checkpointed(again.learner, again.networks)).read(
        path
    ).assert_existing_objects_matched()
    with caplog.at_level(logging.INFO, logger="absl"):
        again.finder.resume()
        again.finder.step()
    assert again.noted == [rig.range.found()] == [again.range.found()]
    assert again.batches._kept is None  # It looked at no transitions again.
    assert len(said(caplog)) == 1
    for each in (rig, again):
        each.server.stop()


def test_a_step_with_found_atoms_is_that_with_the_same_bounds_as_flags():
    fixed = test_dataset.Rig("d4pg", vmin=-2.0, vmax=3.0)
    found = Found("d4pg")
    for head in found.range._heads:
        head.atoms.assign(tf.linspace(-2.0, 3.0, 51))
    data = test_dataset.repeated(fixed)
    learners = []
    for rig in (fixed, found):
        for ours, theirs in zip(rig.networks[:-1], fixed.networks[:-1], strict=True):
            for a, b in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
                a.assign(b)
        learners.append(rig.module.make_learner(
            rig.networks, rig.config, data, None, rig.fetches, dataset.Monitors()
        ))
    for _ in range(4):
        for learner in learners:
            learner.step()
    for ours, theirs in zip(found.networks[:-1], fixed.networks[:-1], strict=True):
        for a, b in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    for rig in (fixed, found):
        rig.server.stop()


def shrink(rig, low, high):
    """Gives both critics another span, as if it had been found."""
    for head in rig.range._heads:
        head.atoms.assign(tf.linspace(low, high, 51))


def test_a_found_span_that_returns_leave_grows_while_learning(monkeypatch):
    monkeypatch.setattr(range_finder, "_LOOK_STEPS", 1)
    rig = Found("d4pg")
    rig.finder.step()
    shrink(rig, -0.2, 0.2)
    lowest, highest = rig.batches.batches.extremes.read()
    rig.finder.step()
    grown = rig.range.found()
    assert grown == rig.noted[-1]
    beyond = 1e-3 * (grown["vmax"] - grown["vmin"])  # The learner lets so much pass.
    assert grown["vmin"] - beyond <= lowest and highest <= grown["vmax"] + beyond
    for _ in range(3):
        rig.finder.step()
    assert np.all(np.isfinite(list(rig.module.losses(rig.fetches.read()).values())))
    rig.server.stop()


@pytest.mark.parametrize("upward", [True, False])
def test_a_span_that_doubles_keeps_what_the_critic_has_learned(upward):
    rig = Found("d4pg")
    rig.finder.step()
    shrink(rig, -1.0, 1.0)
    generator = tf.random.Generator.from_seed(1)
    inputs = generator.normal((40, 3)), generator.normal((40, 1))
    for critic in (rig.networks.critic, rig.networks.target_critic):
        for variable in critic.trainable_variables:  # Logits of a critic that has learned.
            if variable.shape[-1] == 51:
                variable.assign(generator.normal(variable.shape) * 2.0)
    critics = (rig.networks.critic, rig.networks.target_critic)
    before = [critic(*inputs).mean().numpy() for critic in critics]
    moments = [slot.numpy() for slot in rig.learner._critic_optimizer.m]
    line = rig.range.follow(-1.0, 1.5, TASK) if upward else rig.range.follow(-1.5, 1.0, TASK)
    assert line
    after = rig.range.found()
    assert after == ({"vmin": -1.0, "vmax": 3.0} if upward else {"vmin": -3.0, "vmax": 1.0})
    for critic, means in zip(critics, before, strict=True):
        difference = np.abs(critic(*inputs).mean().numpy() - means)
        assert np.median(difference) < 0.2  # An atom is 0.08 from the next one.
    changed = [
        not np.array_equal(slot.numpy(), moment)
        for slot, moment in zip(rig.learner._critic_optimizer.m, moments, strict=True)
    ]
    assert sum(changed) == 2  # They are those of the last layer's weights and biases.
    rig.server.stop()


def test_every_second_atom_keeps_its_number():
    values = np.arange(5.0)[None]
    for upward, expected in ((True, [0, 2, 4, 9, 9]), (False, [9, 9, 0, 2, 4])):
        wider = d4pg._every_second(values, upward, np.float64(9.0))
        np.testing.assert_array_equal(wider, [expected])


@pytest.mark.parametrize(
    ("share", "reward_high", "settings", "grows"),
    [
        (0.5, 1.0, {}, True),  # Rewards of 1 a step allow returns of 86.6.
        (0.5, 0.01, {}, False),  # The critic hopes for what no reward promises.
        (0.001, 1.0, {}, False),
        (0.5, 1.0, {"vmax": 1.0}, False),  # The flag says where the span ends.
    ],
)
def test_targets_move_an_end_as_far_as_rewards_allow(share, reward_high, settings, grows):
    rig = Found("d4pg", **settings)
    rig.finder.step()
    shrink(rig, -1.0, 1.0)
    rig.monitors.recorder("targets_above_vmax")(share)
    rig.monitors.recorder("reward_high")(reward_high)
    assert bool(rig.range.follow(-0.5, 0.5, TASK)) == grows
    rig.server.stop()


def test_a_span_that_flags_give_stays_and_the_log_has_the_share_of_targets_beyond():
    rig = test_dataset.Rig("d4pg", vmin=-0.2, vmax=0.2)
    for _ in range(41):
        rig.learner.step()
    assert rig.monitors.read()["targets_below_vmin"] > 0.05
    rig.server.stop()


def test_a_scale_that_grows_changes_no_return():
    rig = Found("dqn", average_policy_steps=50)
    rig.finder.step()
    observations = tf.random.normal((20, 4))
    before = rig.range.found()["return_scale"]
    returns = [before * network(observations).numpy() for network in rig.networks]
    adam = rig.learner._optimizer
    moments = [[moment.numpy() for moment in slots] for slots in (adam.m, adam.v)]
    assert rig.range.follow(-0.9 * before, before / 2, TASK) == ""
    line = rig.range.follow(-7.0 * before, 0.0, TASK)
    after = rig.range.found()["return_scale"]
    assert f"from {before:g} to {after:g}" in line and after >= 14 * before
    for network, expected in zip(rig.networks, returns, strict=True):
        np.testing.assert_allclose(after * network(observations).numpy(), expected, rtol=1e-4)
    # Gradients get smaller with the returns, and again with the head's weights.
    names = [variable.name for variable in rig.networks.policy.trainable_variables]
    for index, name in enumerate(names):
        factor = (before / after) ** (1 if "head" in name else 2)
        for slots, old, power in ((adam.m, moments[0], 1), (adam.v, moments[1], 2)):
            np.testing.assert_allclose(slots[index].numpy(), old[index] * factor**power, rtol=1e-4)
    assert rig.range.follow(-1e38, 0.0, TASK) and not rig.range.follow(-1e38, 0.0, TASK)
    rig.server.stop()


def test_rewards_that_leave_the_scale_make_it_grow_while_learning(monkeypatch):
    monkeypatch.setattr(range_finder, "_LOOK_STEPS", 1)
    rig = Found("dqn")
    rig.finder.step()
    rig.range._scale.assign(0.01)
    largest = max(np.abs(rig.batches.batches.extremes.read()))
    rig.finder.step()
    (_, grown) = rig.noted
    assert grown == {"return_scale": return_ranges.wider_scale(largest)}
    rig.server.stop()


def test_batches_that_were_fetched_ahead_are_learned_from_first():
    layout = replay.Layout((1,), pixels=False, action_size=1, discrete=False)
    packed = tf.data.Dataset.range(6).map(
        lambda i: test_dataset.reverb.ReplaySample((i,), tf.fill((4, 5), tf.cast(i, tf.float32)))
    )
    batches = iter(dataset.Batches(packed, layout))
    rewards, discounts = batches.look_ahead(3)
    np.testing.assert_array_equal(rewards, np.repeat([0.0, 1.0, 2.0], 4))
    np.testing.assert_array_equal(discounts, rewards)

    @tf.function
    def step():
        sample = next(batches)
        return sample.info[0], sample.data.reward[0]

    assert [tuple(map(int, step())) for _ in range(6)] == [(i, i) for i in range(6)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 8),  # 2000 transitions in batches of 256.
        ({"samples_per_insert": 0.25}, 1),  # Others would wait for transitions to come.
        ({"samples_per_insert": 0.25, "min_replay_size": 5000}, 4),
        ({"replay_table_max_times_sampled": 0}, 8),
        ({"batch_size": 4096}, 1),
    ],
)
def test_as_many_transitions_are_looked_at_as_learning_starts_with(settings, expected):
    layout = replay.Layout((3,), pixels=False, action_size=1, discrete=False)
    batches = dataset.Batches(None, layout)
    config = config_lib.RunConfig(**settings)
    assert range_finder.batches_ahead(config, batches) == expected


def test_few_batches_of_images_are_fetched_ahead():
    layout = replay.Layout((84, 84, 4), pixels=True, action_size=1, discrete=True)
    config = config_lib.RunConfig()
    assert range_finder.batches_ahead(config, dataset.Batches(None, layout)) == 4
