"""An actor acts against a real server as its flags say."""

import os

from absl import logging
import numpy as np
import pytest

from actorQ import actor_main
from actorQ.actor import process as actor_process
from actorQ.core import config as config_lib
from actorQ.core import telemetry


def test_actor_n_step_and_discount_flags_shape_the_transitions(stage):
    batch = stage(n_step=3, discount=0.5).act(200)
    # A time limit (every 40 steps) is not a terminal state, so no discount is 0. Full windows have
    # 0.5^2, and the shorter ones at an episode's end have 0.5 and 1.
    assert set(np.unique(batch.discount)) == {0.25, 0.5, 1.0}
    one_step = stage(n_step=1, discount=0.5).act(100)
    assert set(np.unique(one_step.discount)) == {1.0}


@pytest.mark.parametrize(("scale", "largest"), [(0, 8.0), (1, 1.0)])
def test_actor_scales_observations_if_asked(stage, scale, largest):
    # A pendulum that hangs free turns at more than 1 rad/s, and at 8 at most.
    batch = stage(scale_observations=scale, sigma=0.0).act(300)
    turning = np.abs(batch.observation[:, 2])
    assert largest / 8 < turning.max() <= largest


def test_actor_terminal_states_have_discount_zero(stage):
    batch = stage(taskstr="gym,CartPole-v1", n_step=1, max_episode_steps=500, epsilon_max=1.0).act(
        200
    )
    assert set(np.unique(batch.discount)) == {0.0, 1.0}
    assert set(np.unique(batch.action)) == {0.0, 1.0}


def test_actor_clips_single_rewards_for_dqn_only(stage):
    # CartPole pays 1 a step: clipped to 0.25 each, two steps at discount 0.5 are 0.375.
    batch = stage(
        taskstr="gym,CartPole-v1", n_step=2, discount=0.5, max_abs_reward=0.25, epsilon_max=1.0
    ).act(100)
    assert set(np.unique(batch.reward)) == {0.25, 0.375}
    # With auto the learner finds a scale, and nothing is clipped.
    batch = stage(
        taskstr="gym,CartPole-v1", n_step=2, discount=0.5, max_abs_reward="auto", epsilon_max=1.0
    ).act(100)
    assert set(np.unique(batch.reward)) == {1.0, 1.5}
    # Pendulum pays down to -16 a step.
    assert stage(max_abs_reward=0.25, n_step=1).act(100).reward.min() < -0.25


def test_actor_sigma_zero_repeats_the_policy_and_sigma_spreads_actions(stage):
    quiet = stage(sigma=0.0)
    batch = quiet.act(100)
    expected = np.array([quiet.actor.infer(o[None])[0] for o in batch.observation[:20]])
    np.testing.assert_allclose(batch.action[:20], expected, atol=1e-6)
    loud = stage(sigma=2.0)
    noisy = loud.act(100)
    expected = np.array([loud.actor.infer(o[None])[0] for o in noisy.observation])
    assert np.std(noisy.action - expected) > 0.3


@pytest.mark.parametrize("period", [5, 50])
def test_actor_update_period_sets_how_often_it_looks(stage, period):
    made = stage(actor_update_period=period)
    looks = []
    ask = made.actor._weights.ask

    def counted():
        looks.append(made.actor.loop.steps)
        return ask()

    made.publish(0)
    assert made.actor.connect()
    made.actor._weights.ask = counted
    made.act(200)
    steps = [step for step in looks if step]
    assert steps[:3] == [period, 2 * period, 3 * period]


def test_actor_update_period_counts_the_steps_of_all_environments(stage):
    made = stage(actor_update_period=10, envs_per_actor=4)
    made.publish(0)
    assert made.actor.connect()
    looks = []
    made.actor._weights.ask = lambda: looks.append(made.actor.loop.steps)
    made.act(100)
    # The actor looks in the first turn at or after each multiple of 10.
    assert looks[:6] == [0, 12, 20, 32, 40, 52]


def test_actor_with_several_environments_writes_a_transition_for_each_step(stage):
    made = stage(envs_per_actor=3, n_step=2, discount=0.5, max_episode_steps=20)
    batch = made.act(300)
    assert made.actor.loop.steps % 3 == 0
    written = made.connection.status().transitions_inserted
    # One transition in each environment still waits for its second step.
    assert made.actor.loop.steps - 3 <= written <= made.actor.loop.steps
    assert set(np.unique(batch.discount)) == {0.5, 1.0}
    episodes = telemetry.read_csv(str(made.folder / telemetry.EPISODES_CSV))
    assert set(episodes["episode_length"]) == {20}
    assert episodes["episodes"] == list(range(1, len(episodes["episodes"]) + 1))
    # Three episodes end in each 20th turn.
    assert episodes["actor_steps"][:4] == [60, 60, 60, 120]
    assert len(set(episodes["episode_return"][:3])) == 3


def test_actor_environments_have_seeds_of_their_own_and_the_first_that_of_a_single_one(stage):
    one, three = stage(seed=1), stage(seed=1, envs_per_actor=3)
    starts = [
        lane.environment.reset().observation
        for lane in (*one.actor.loop.lanes, *three.actor.loop.lanes)
    ]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert len({start.tobytes() for start in starts}) == 3
    zero = np.zeros(1, np.float32)
    noises = [
        float(lane.explore(zero)[0]) for lane in (*one.actor.loop.lanes, *three.actor.loop.lanes)
    ]
    assert noises[0] == noises[1]
    assert len(set(noises)) == 3


def test_actor_long_period_pulls_nothing_in_between(stage, monkeypatch):
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.01)
    made = stage(actor_update_period=1_000_000)
    made.act(20)
    made.publish(8)
    made.act(300)
    # Meanwhile it may have asked for the learner's health several times.
    assert made.actor._weights.version == 0


def test_actor_seed_fixes_environment_and_noise(stage):
    first, same, other = (stage(seed=s) for s in (1, 1, 2))
    starts = [s.actor.loop.lanes[0].environment.reset().observation for s in (first, same, other)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert np.any(starts[0] != starts[2])
    zero = np.zeros(1, np.float32)
    noises = [s.actor.loop.lanes[0].explore(zero) for s in (first, same, other)]
    assert noises[0] == noises[1] != noises[2]


def test_actor_without_gpu_says_so_and_goes_on(stage, monkeypatch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    lines = []
    monkeypatch.setattr(logging, "warning", lambda text, *_: lines.append(text))
    made = stage(actor_device_placement="GPU")
    assert any("goes on with the CPU" in line for line in lines)
    made.act(50)


def test_actor_inference_mode_tensorflow_acts(stage):
    made = stage(inference_mode="tensorflow", quantize=8)
    batch = made.act(60)
    assert np.all(np.abs(batch.action) <= 1)
    assert type(made.actor.infer).__name__ == "TensorFlowInference"


def test_actor_main_gives_torch_one_thread(monkeypatch):
    import torch

    config = config_lib.RunConfig(inference_mode="pytorch")
    before = torch.get_num_threads()
    seen = []

    class Actor:
        def __init__(self, given):
            assert given is config
            seen.append(torch.get_num_threads())

        def run(self):
            return 0

    monkeypatch.setattr(actor_main.config_flags, "from_flags", lambda: config)
    monkeypatch.setattr(actor_main.allocator, "keep_large_blocks", lambda: None)
    monkeypatch.setattr(actor_process, "ActorProcess", Actor)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # `main` sets it too; this undoes that.
    torch.set_num_threads(3)
    try:
        assert actor_main.main([]) == 0
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


@pytest.mark.parametrize(("mode", "threads"), [("tensorflow", "1"), ("native", None)])
def test_actor_gives_its_own_tensorflow_one_thread(monkeypatch, mode, threads):
    config = config_lib.RunConfig(inference_mode=mode)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    seen = []

    class Actor:
        def __init__(self, given):
            assert given is config
            seen.extend(os.environ.get(name) for name in names)

        def run(self):
            return 0

    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in names})
    monkeypatch.setattr(actor_main.config_flags, "from_flags", lambda: config)
    monkeypatch.setattr(actor_main.allocator, "keep_large_blocks", lambda: None)
    monkeypatch.setattr(actor_process, "ActorProcess", Actor)
    assert actor_main.main([]) == 0
    assert seen == [threads, threads]
