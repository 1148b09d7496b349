"""The actor: acting against a real server."""

import threading

from absl import logging
import numpy as np
import pytest

from actorQ import acting
from actorQ import architecture as architecture_lib
from actorQ import config as config_lib
from actorQ import conversion
from actorQ import messages
from actorQ import replay
from actorQ import wire
from tests.actorQ import harness


class Stage:
    """A real server and one real actor, in this process."""

    def __init__(self, tmp_path, **settings):
        defaults = {
            "taskstr": "gym,Pendulum-v1", "model_str": "4", "quantize": 32, "port": 0,
            "logpath": str(tmp_path), "max_episode_steps": 40, "log_period_s": 0.05,
        }
        self.config = config_lib.RunConfig(**{**defaults, **settings})
        discrete = "CartPole" in self.config.taskstr
        self.layout = replay.Layout((4 if discrete else 3,), False, 1, discrete)
        tables = wire.make_tables(self.config, self.layout, prioritized=False)
        self.server = wire.start_server(self.config, tables)
        address = f"localhost:{self.server.port}"
        self.connection = wire.Connection(self.config, address)
        self.actor = acting.ActorProcess(
            config_lib.RunConfig(**{**defaults, **settings, "server_address": address})
        )

    def publish(self, version):
        shapes = architecture_lib.PolicyArchitecture(
            self.layout.observation_shape, (4,), 2 if self.layout.discrete else 1,
            architecture_lib.Q_VALUES_HEAD if self.layout.discrete else architecture_lib.TANH_HEAD,
        ).parameter_shapes
        rng = np.random.default_rng(version)
        weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        update = conversion.to_actor_form(weights, version, self.config.quantize)
        self.connection.publish(self.config.model_table_name, messages.encode(update))

    def act(self, transitions):
        """Lets the actor act until so many transitions are in replay; returns them all."""
        if self.actor._weights.version < 0:
            self.publish(0)
            assert self.actor._first_weights()
        self.actor._stop.clear()
        writer = replay.TransitionWriter(
            self.connection.client, self.config.replay_table_name, self.layout, flush_period=1
        )
        acting_thread = threading.Thread(target=self.actor._act, args=(writer,))
        acting_thread.start()
        harness.poll(
            lambda: self.connection.status().transitions_inserted >= transitions, 60, 0.001
        )
        self.actor._stop.set()
        acting_thread.join(20)
        writer.close()
        samples = self.connection.client.sample(
            self.config.replay_table_name, 300, emit_timesteps=False
        )
        return self.layout.unpack(np.stack([np.asarray(sample.data[0]) for sample in samples]))

    def close(self):
        self.server.stop()


@pytest.fixture
def stage(tmp_path):
    stages = []

    def make(**settings):
        settings.setdefault("min_replay_size", 1)
        settings.setdefault("replay_table_max_times_sampled", 0)
        stages.append(Stage(tmp_path / str(len(stages)), **settings))
        return stages[-1]

    yield make
    for made in stages:
        made.close()


def test_actor_n_step_and_discount_flags_shape_the_transitions(stage):
    batch = stage(n_step=3, discount=0.5).act(200)
    # A time limit (every 40 steps) is not a terminal state: full windows have 0.5^2, the shorter
    # ones at an episode's end 0.5 and 1; none is 0.
    assert set(np.unique(batch.discount)) == {0.25, 0.5, 1.0}
    one_step = stage(n_step=1, discount=0.5).act(100)
    assert set(np.unique(one_step.discount)) == {1.0}


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
    # Pendulum pays down to -16 a step.
    assert stage(max_abs_reward=0.25, n_step=1).act(100).reward.min() < -0.25


def test_actor_sigma_zero_repeats_the_policy_and_sigma_spreads_actions(stage):
    quiet = stage(sigma=0.0)
    batch = quiet.act(100)
    expected = np.array([quiet.actor._infer(o[None])[0] for o in batch.observation[:20]])
    np.testing.assert_allclose(batch.action[:20], expected, atol=1e-6)
    loud = stage(sigma=2.0)
    noisy = loud.act(100)
    expected = np.array([loud.actor._infer(o[None])[0] for o in noisy.observation])
    assert np.std(noisy.action - expected) > 0.3


@pytest.mark.parametrize("period", [5, 50])
def test_actor_update_period_sets_how_often_it_looks(stage, period):
    made = stage(actor_update_period=period)
    looks = []
    update = made.actor._weights.update

    def counted():
        looks.append(made.actor._steps)
        return update()

    made.publish(0)
    made.actor._weights.update()
    made.actor._weights.update = counted
    made.act(200)
    steps = [step for step in looks if step]
    assert steps[:3] == [period, 2 * period, 3 * period]


def test_actor_long_period_pulls_nothing_in_between(stage, monkeypatch):
    monkeypatch.setattr(acting, "_HEALTH_PERIOD_S", 0.01)
    made = stage(actor_update_period=1_000_000)
    made.act(20)
    made.publish(8)
    made.act(300)
    # However often it sees to the learner's health meanwhile.
    assert made.actor._weights.version == 0


def test_actor_restarted_does_not_repeat_itself(stage):
    first, again = stage(seed=1), stage(seed=1, restarts=1)
    starts = [s.actor._environment.reset().observation for s in (first, again)]
    assert np.any(starts[0] != starts[1])


def test_actor_seed_fixes_environment_and_noise(stage):
    first, same, other = (stage(seed=s) for s in (1, 1, 2))
    starts = [s.actor._environment.reset().observation for s in (first, same, other)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert np.any(starts[0] != starts[2])
    zero = np.zeros(1, np.float32)
    noises = [s.actor._explore(zero) for s in (first, same, other)]
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
    assert type(made.actor._infer).__name__ == "TensorFlowInference"
