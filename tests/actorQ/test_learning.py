"""The learner's parts: dataset, monitors, and one real step of each algorithm."""

import numpy as np
import pytest
import reverb
import tensorflow as tf

from actorQ import architecture as architecture_lib
from actorQ import config as config_lib
from actorQ import environments
from actorQ import learning
from actorQ import replay
from actorQ import wire
from actorQ.d4pg import learner as d4pg_learner
from actorQ.dqn import learner as dqn_learner

TASKS = {
    "d4pg": (d4pg_learner, "gym,Pendulum-v1"),
    "dqn": (dqn_learner, "gym,CartPole-v1"),
}


class Rig:
    """A server with random transitions, and a learner on it."""

    def __init__(self, algorithm, **settings):
        self.module, task = TASKS[algorithm]
        spec = environments.make(task, 0).spec
        defaults = {
            "batch_size": 8, "min_replay_size": 10, "port": 0, "model_str": "16,16",
            "critic_str": "16,16",
        }
        self.config = config_lib.RunConfig(**{**defaults, **settings})
        layout = replay.Layout.of(spec)
        self.tables = wire.make_tables(self.config, layout, self.module.PRIORITIZED)
        self.server = wire.start_server(self.config, self.tables)
        address = f"localhost:{self.server.port}"
        self.connection = wire.Connection(self.config, address)
        writer = replay.TransitionWriter(
            self.connection.client, self.config.replay_table_name, layout
        )
        rng = np.random.default_rng(0)
        for _ in range(100):
            observation, following = rng.standard_normal((2, *spec.observation_shape))
            action = rng.integers(2) if spec.discrete else rng.uniform(-1, 1, spec.action_size)
            writer.write(replay.Transition(observation, action, rng.normal(), 0.9, following))
        writer.close()
        architecture = architecture_lib.make(spec, self.config.model_sizes)
        tf.random.set_seed(1)
        self.networks = self.module.make_networks(self.config, architecture)
        self.monitors = learning.Monitors()
        self.fetches = learning.LastFetches()
        self.dataset = learning.make_dataset(self.config, address, layout)
        self.learner = self.module.make_learner(
            self.networks, self.config, self.dataset, self.connection.client, self.fetches,
            self.monitors,
        )


@pytest.fixture(params=sorted(TASKS))
def rig(request):
    rig = Rig(request.param)
    yield rig
    rig.server.stop()


def test_learner_step_changes_online_weights_and_logs_finite_numbers(rig):
    before = {n: v.numpy() for n, v in rig.networks.policy.named_variables().items()}
    for _ in range(3):
        rig.learner.step()
    after = {n: v.numpy() for n, v in rig.networks.policy.named_variables().items()}
    assert all(np.any(before[name] != after[name]) for name in before if name.endswith("/w"))
    values = {**rig.module.losses(rig.fetches.read()), **rig.monitors.read()}
    expected = {"loss", "q_mean", "gradient_norm"}
    if rig.module is d4pg_learner:
        expected |= {"policy_loss", "policy_gradient_norm"}
    assert set(values) == expected
    assert np.all(np.isfinite(list(values.values())))
    assert values["gradient_norm"] > 0


def test_learner_target_networks_follow_every_period():
    rig = Rig("dqn", target_update_period=4)
    online, target = rig.networks.policy, rig.networks.target_policy

    def equal():
        pairs = zip(online.variables, target.variables, strict=True)
        return all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)

    equal_after = []
    for _ in range(6):
        rig.learner.step()
        equal_after.append(equal())
    # Acme copies after step 1, 5, ... (when the count of steps before it divides by the period).
    assert equal_after == [True, False, False, False, True, False]
    rig.server.stop()


def test_learner_state_to_checkpoint_is_complete(rig):
    rig.learner.step()
    state = rig.module.checkpointed(rig.learner, rig.networks)
    assert {"policy", "target_policy", "num_steps"} <= set(state)
    optimizers = [value for name, value in state.items() if "optimizer" in name]
    assert optimizers and all(optimizer.variables for optimizer in optimizers)
    assert int(state["num_steps"]) == 1


def test_dqn_priorities_reach_our_replay_table():
    rig = Rig("dqn", replay_table_name="elsewhere")
    for _ in range(3):
        rig.learner.step()
    samples = [next(rig.connection.client.sample("elsewhere")) for _ in range(60)]
    priorities = {sample[0].info.priority for sample in samples}
    # All were inserted with priority 1; the learner has written TD errors since.
    assert len(priorities) > 3
    rig.server.stop()


def test_dqn_n_step_returns_are_not_flattened_by_acmes_clip():
    config = config_lib.RunConfig(n_step=5, discount=0.5, max_abs_reward=2.0)
    scale = dqn_learner.return_scale(config)
    assert scale == pytest.approx(2.0 * (1 + 0.5 + 0.25 + 0.125 + 0.0625))
    rig = Rig("dqn", n_step=5)
    seen = []
    learner_dataset = rig.dataset.map(
        lambda sample: dqn_learner._scale_rewards(sample, dqn_learner.return_scale(rig.config))
    )
    for plain, scaled in ((next(iter(rig.dataset)), next(iter(learner_dataset))),):
        seen.append(np.abs(scaled.data.reward.numpy()).max())
        assert np.abs(plain.data.reward.numpy()).max() > seen[-1]
    rig.server.stop()


def test_d4pg_critic_spans_the_flags_range():
    rig = Rig("d4pg", vmin=-2.0, vmax=3.0, num_atoms=11, critic_str="8,8")
    distribution = rig.networks.critic(tf.zeros((4, 3)), tf.zeros((4, 1)))
    assert distribution.logits.shape == (4, 11)
    values = distribution.values.numpy()
    np.testing.assert_allclose([values.min(), values.max()], [-2.0, 3.0])
    rig.server.stop()


def test_equally_shaped_layers_and_networks_start_different():
    rig = Rig("d4pg")
    policy = rig.networks.policy.named_variables()
    assert not np.array_equal(policy["linear_0/w"].numpy()[:1], policy["linear_1/w"].numpy()[:1])
    target = rig.networks.target_policy.named_variables()
    assert not np.array_equal(policy["linear_1/w"].numpy(), target["linear_1/w"].numpy())
    matrices = [v.numpy() for v in rig.networks.critic.variables if v.shape == (16, 16)]
    assert len(matrices) == 1 or not np.array_equal(matrices[0], matrices[1])
    rig.server.stop()


def test_dataset_gives_batches_of_the_transitions_that_were_written():
    rig = Rig("dqn")
    sample = next(iter(rig.dataset))
    assert sample.data.observation.shape == (8, 4)
    assert sample.data.action.dtype == tf.int32
    np.testing.assert_allclose(sample.data.discount.numpy(), 0.9)
    assert isinstance(sample, reverb.ReplaySample)
    rig.server.stop()
