"""The layout of transitions in replay."""

import numpy as np
import pytest
import tensorflow as tf

from actorQ.environments import base
from actorQ.environments import task_errors
from actorQ.wire import replay
from tests.actorQ.transitions import PIXELS
from tests.actorQ.transitions import SPECS
from tests.actorQ.transitions import VECTOR
from tests.actorQ.transitions import assert_equal_batch
from tests.actorQ.transitions import random_transition


def test_layout_vector_order_is_as_documented():
    layout = replay.Layout.of(VECTOR)
    packed = layout.pack(
        replay.Transition(np.float32([1, 2, 3]), np.float32([4, 5]), 6.0, 7.0,
                          np.float32([8, 9, 10]))
    )
    assert packed.dtype == np.float32
    assert packed.tolist() == list(range(1, 11))
    assert layout.vector_size == 10


def test_layout_pixels_keep_their_bytes():
    layout = replay.Layout.of(PIXELS)
    transition = random_transition(PIXELS, np.random.default_rng(0))
    frames, vector = layout.pack(transition)
    assert frames.dtype == np.uint8
    assert frames.shape == (2, 6, 5, 2)
    assert vector.tolist() == [transition.action, transition.reward, transition.discount]
    assert (layout.observation_size, layout.vector_size) == (0, 3)


@pytest.mark.parametrize("name", list(SPECS))
@pytest.mark.parametrize("as_tensors", [False, True])
def test_layout_unpack_undoes_pack(name, as_tensors):
    layout = replay.Layout.of(SPECS[name])
    rng = np.random.default_rng(1)
    transitions = [random_transition(SPECS[name], rng) for _ in range(5)]
    packed = [layout.pack(transition) for transition in transitions]
    stack = tf.stack if as_tensors else np.stack
    data = tuple(map(stack, zip(*packed, strict=True))) if layout.pixels else stack(packed)
    assert_equal_batch(layout.unpack(data), transitions)


def test_layout_large_discrete_action_is_exact():
    spec = base.EnvironmentSpec((1,), np.dtype(np.float32), num_actions=2**24)
    layout = replay.Layout.of(spec)
    packed = layout.pack(
        replay.Transition(np.zeros(1), 2**24 - 1, 0.0, 0.0, np.zeros(1))
    )
    assert int(layout.unpack(packed[None]).action[0]) == 2**24 - 1


@pytest.mark.parametrize(
    ("part", "name"),
    [("observation", "an observation"), ("action", "an action"), ("reward", "a return"),
     ("discount", "a discount"), ("next_observation", "a next observation")],
)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_layout_names_the_first_part_that_is_not_finite(part, name, number):
    layout, rng = replay.Layout.of(VECTOR), np.random.default_rng(1)
    transitions = [random_transition(VECTOR, rng) for _ in range(4)]
    layout.require_finite(np.stack([layout.pack(transition) for transition in transitions]))
    for at, what in ((1, part), (3, "observation")):
        value = number * getattr(transitions[at], what)
        transitions[at] = transitions[at]._replace(**{what: value})
    with pytest.raises(task_errors.TaskError, match=f"a transition has {name}"):
        layout.require_finite(np.stack([layout.pack(transition) for transition in transitions]))
