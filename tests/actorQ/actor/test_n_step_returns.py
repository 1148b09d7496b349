"""n-step sums against Acme's adder, and by hand."""

import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from actorQ.learner import acme_compat  # isort: skip  # noqa: F401  (must come before acme)
from acme import specs
from acme.adders import reverb as adders
import dm_env
import numpy as np
import pytest

from actorQ.actor import n_step_returns
from actorQ.wire import replay
from tests.actorQ import transitions as transitions_lib

TABLE = adders.DEFAULT_PRIORITY_TABLE


def random_episode(rng, length, end_discount):
    """Returns observations o_0 ... o_T and steps (action, reward, discount), all float32."""
    observations = rng.normal(size=(length + 1, 3)).astype(np.float32)
    discounts = np.ones(length, np.float32)
    if rng.random() < 0.5:  # Some environments have discounts of their own.
        discounts = rng.uniform(0.5, 1.0, length).astype(np.float32)
    discounts[-1] = end_discount
    actions = rng.normal(size=(length, 2)).astype(np.float32)
    rewards = (10 * rng.normal(size=length)).astype(np.float32)
    return observations, actions, rewards, discounts


def accumulate(accumulator, episode):
    """Feeds an episode; returns, for each step, the transitions that it completed."""
    observations, actions, rewards, discounts = episode
    accumulator.first(observations[0])
    return [
        accumulator.step(
            actions[t], float(rewards[t]), float(discounts[t]), observations[t + 1],
            t == len(rewards) - 1,
        )
        for t in range(len(rewards))
    ]


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_n_step_accumulator_equals_acmes_adder_bit_for_bit(serve, n_step):
    spec = specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32),
        actions=specs.Array((2,), np.float32),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    client = serve(
        transitions_lib.fifo_table(adders.NStepTransitionAdder.signature(spec), TABLE)
    )
    adder = adders.NStepTransitionAdder(client, n_step=n_step, discount=0.97)
    accumulator = n_step_returns.NStepAccumulator(n_step, 0.97)
    rng = np.random.default_rng(n_step)
    for length, end_discount in itertools.product((1, 2, 3, 4, 5, 6, 7, 23), (0.0, 1.0)):
        observations, actions, rewards, discounts = episode = random_episode(
            rng, length, end_discount
        )
        ours = sum(accumulate(accumulator, episode), [])
        assert len(ours) == length  # Each environment step gives exactly one transition.
        adder.add_first(dm_env.restart(observations[0]))
        for t in range(length):
            kind = dm_env.StepType.LAST if t == length - 1 else dm_env.StepType.MID
            adder.add(
                actions[t], dm_env.TimeStep(kind, rewards[t], discounts[t], observations[t + 1])
            )
        # At the start of an episode, Acme also emits the shorter windows [0, 1], [0, 2], ... Ours
        # emits one window for each first step, of full length.
        beginning = min(n_step, length) - 1
        theirs = transitions_lib.take(client, length + beginning, TABLE)
        for data, transition in zip(theirs[beginning:], ours, strict=True):
            for name, got, by_acme in zip(replay.Transition._fields, transition, data, strict=True):
                assert np.asarray(got).dtype == by_acme.dtype == np.float32
                assert np.asarray(got).tobytes() == by_acme.tobytes(), (name, length)


def test_n_step_accumulator_hand_computed_returns():
    accumulator = n_step_returns.NStepAccumulator(3, 0.5)
    rewards, length = [1.0, 2.0, 4.0, 8.0, 16.0], 5
    observations = [np.float32([t]) for t in range(length + 1)]
    accumulator.first(observations[0])
    complete = [
        accumulator.step(t, rewards[t], 0.0 if t == 4 else 1.0, observations[t + 1], t == 4)
        for t in range(length)
    ]
    assert [len(transitions) for transitions in complete] == [0, 0, 1, 1, 3]
    table = [
        (float(t.observation[0]), t.action, float(t.reward), float(t.discount),
         float(t.next_observation[0]))
        for transitions in complete for t in transitions
    ]
    assert table == [
        (0.0, 0, 1 + 2 / 2 + 4 / 4, 0.25, 3.0),
        (1.0, 1, 2 + 4 / 2 + 8 / 4, 0.25, 4.0),
        (2.0, 2, 4 + 8 / 2 + 16 / 4, 0.0, 5.0),
        (3.0, 3, 8 + 16 / 2, 0.0, 5.0),
        (4.0, 4, 16.0, 0.0, 5.0),
    ]


def test_n_step_accumulator_time_limit_keeps_the_discount():
    accumulator = n_step_returns.NStepAccumulator(3, 0.5)
    accumulator.first(np.zeros(1))
    accumulator.step(0, 1.0, 1.0, np.zeros(1), False)
    rest = accumulator.step(0, 1.0, 1.0, np.zeros(1), True)
    # Windows of 2 and 1 steps have the discount g^(n-1), never 0.
    assert [float(t.discount) for t in rest] == [0.5, 1.0]
    assert [float(t.reward) for t in rest] == [1.5, 1.0]


def test_n_step_accumulator_environments_discount_weighs_later_rewards():
    accumulator = n_step_returns.NStepAccumulator(2, 0.5)
    accumulator.first(np.zeros(1))
    accumulator.step(0, 1.0, 0.25, np.zeros(1), False)
    (transition,) = accumulator.step(0, 8.0, 0.5, np.zeros(1), False)
    assert float(transition.reward) == 1 + 0.5 * 0.25 * 8
    assert float(transition.discount) == 0.5 * 0.25 * 0.5


def test_n_step_accumulator_first_forgets_an_unfinished_episode():
    accumulator = n_step_returns.NStepAccumulator(2, 1.0)
    accumulator.first(np.float32([1]))
    accumulator.step(0, 100.0, 1.0, np.float32([2]), False)
    accumulator.first(np.float32([7]))
    assert accumulator.step(0, 1.0, 1.0, np.float32([8]), False) == []
    (transition,) = accumulator.step(0, 2.0, 1.0, np.float32([9]), False)
    assert (transition.observation[0], transition.reward) == (7.0, 3.0)
