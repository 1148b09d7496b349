"""The environment loop: N environments together act and write exactly as N loops of one."""

import threading

import dm_env
import numpy as np
import pytest

from actorQ.actor import environment_loop
from actorQ.actor import n_step_returns
from actorQ.core import telemetry
from actorQ.d4pg import exploration as policy
from actorQ.environments import base

SPEC = base.EnvironmentSpec(
    (3,), np.dtype(np.float32), None, np.full(2, -1, np.float32), np.full(2, 1, np.float32)
)


class RandomWalk:
    """A task whose observations depend on all actions so far, with episodes of random lengths."""

    def __init__(self, seed):
        self.spec = SPEC
        self._rng = np.random.default_rng(seed)
        self.resets = 0
        self.closed = False

    def close(self):
        self.closed = True
        raise OSError("its simulator has died")

    def reset(self):
        self.resets += 1
        self._left = int(self._rng.integers(1, 9))
        self._state = self._rng.standard_normal(3, np.float32)
        return dm_env.restart(self._state)

    def step(self, action):
        self._left -= 1
        self._state = np.tanh(self._state + np.float32(action.sum()))
        reward = float(self._rng.normal())
        if self._left:
            return dm_env.transition(reward, self._state, float(self._rng.random()))
        return dm_env.TimeStep(dm_env.StepType.LAST, reward, 0.0, self._state)


WEIGHTS = np.random.default_rng(5).standard_normal((3, 2)).astype(np.float32)


def infer(observations):
    """Computes every row by itself, so that the batch cannot change a bit of it."""
    return np.stack([np.tanh(row @ WEIGHTS) for row in observations])


def make_loop(seeds, reward_limit=np.inf, scale=0.3):
    return environment_loop.EnvironmentLoop(
        [RandomWalk(seed) for seed in seeds],
        [policy.GaussianExploration(scale, np.random.default_rng(100 + seed)) for seed in seeds],
        infer,
        [n_step_returns.NStepAccumulator(4, 0.9) for _ in seeds],
        telemetry.no_seconds(),
        reward_limit,
    )


def as_bytes(transition):
    return tuple(np.asarray(part).tobytes() for part in transition)


@pytest.mark.parametrize("scale", [0.3, 0.0])
def test_loop_of_many_environments_equals_as_many_loops_bit_for_bit(scale):
    turns, seeds = 200, (1, 2, 3)
    together, episodes = [], []
    loop = make_loop(seeds, scale=scale)
    for _ in range(turns):
        # It is packed at once, as the writer does it: later turns must not change it.
        episodes += loop.turn(lambda transition: together.append(as_bytes(transition)))
    assert loop.steps == 3 * turns
    apart, episodes_apart = [], []
    for seed in seeds:
        alone = make_loop([seed], scale=scale)
        for _ in range(turns):
            episodes_apart += alone.turn(lambda transition: apart.append(as_bytes(transition)))
    assert len(apart) > 500
    assert sorted(together) == sorted(apart)
    assert sorted(episodes) == sorted(episodes_apart)


def test_loop_transitions_stay_valid_in_later_turns():
    kept, packed = [], []
    loop = make_loop((1, 2), scale=0.0)

    def write(transition):
        kept.append(transition)
        packed.append(as_bytes(transition))

    for _ in range(50):
        loop.turn(write)
    assert [as_bytes(transition) for transition in kept] == packed


def test_loop_clips_rewards_in_transitions_but_not_in_episode_returns():
    clipped, plain = [], []
    limited, free = make_loop([1], reward_limit=0.0), make_loop([1])
    episodes = [limited.turn(clipped.append) for _ in range(40)]
    assert episodes == [free.turn(plain.append) for _ in range(40)]
    assert any(episodes)
    assert {float(transition.reward) for transition in clipped} == {0.0}
    assert any(transition.reward for transition in plain)


def test_loop_resets_an_environment_once_an_episode():
    loop = make_loop((1, 2, 3))
    ended = sum(len(loop.turn(lambda transition: None)) for _ in range(100))
    assert sum(lane.environment.resets for lane in loop.lanes) == ended + 3


def test_loop_tells_explorations_of_every_episode(monkeypatch):
    loop = make_loop((1, 2))
    begun = []
    for index, lane in enumerate(loop.lanes):
        monkeypatch.setattr(lane.explore, "begin", lambda index=index: begun.append(index))
    for _ in range(100):
        loop.turn(lambda transition: None)
    for index, lane in enumerate(loop.lanes):
        assert begun.count(index) == lane.environment.resets > 5


def test_loop_adds_to_the_three_phases_of_a_step():
    loop = make_loop((1, 2))
    loop.turn(lambda transition: None)
    seconds = loop._timings
    assert all(seconds[name] > 0 for name in ("inference_s", "environment_s", "insert_s"))
    assert sum(seconds.values()) == pytest.approx(
        sum(seconds[name] for name in ("inference_s", "environment_s", "insert_s"))
    )


def test_loop_closes_every_environment_whatever_becomes_of_one():
    loop = make_loop((1, 2, 3))
    loop.close()
    assert [lane.environment.closed for lane in loop.lanes] == [True] * 3


def test_an_environment_that_does_not_close_is_not_waited_for_long():
    closing, closed = threading.Event(), threading.Event()
    stuck = RandomWalk(1)
    stuck.close = lambda: closing.set() or closed.wait(60)
    base.close_all([stuck], patience_s=0.05)
    assert closing.wait(60) and not closed.is_set()
    closed.set()
