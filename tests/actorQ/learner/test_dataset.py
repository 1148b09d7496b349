"""The learner's parts: dataset, monitors, and one real step of each algorithm."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

import subprocess
import sys
import threading

from acme.agents.tf.d4pg import learning as acme_d4pg
from acme.tf import networks as acme_networks
import numpy as np
import pytest
import reverb
import sonnet as snt
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from actorQ.policy import architecture as architecture_lib
from actorQ.core import config as config_lib
from actorQ.environments import suites
from actorQ.learner import dataset
from actorQ.policy import sonnet_policy
from actorQ.wire import replay
from actorQ.wire import server
from actorQ.actor import transition_writer
from actorQ.wire import connection
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
        spec = suites.make(task, 0).spec
        defaults = {
            "batch_size": 8, "min_replay_size": 10, "port": 0, "model_str": "16,16",
            "critic_str": "16,16",
        }
        self.config = config_lib.RunConfig(**{**defaults, **settings})
        layout = replay.Layout.of(spec)
        self.tables = server.make_tables(self.config, layout, self.module.PRIORITIZED)
        self.server = server.start_server(self.config, self.tables)
        address = f"localhost:{self.server.port}"
        self.connection = connection.Connection(self.config, address)
        writer = transition_writer.TransitionWriter(
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
        self.networks = self.module.make_networks(
            self.config, architecture, self.config.learner_precision
        )
        self.monitors = dataset.Monitors()
        self.fetches = dataset.LastFetches()
        self.dataset = dataset.make_dataset(self.config, address, layout)
        self.learner = self.module.make_learner(
            self.networks, self.config, self.dataset, self.connection.client, self.fetches,
            self.monitors,
        )


def repeated(rig):
    """Yields one and the same batch for ever."""
    sample = next(iter(rig.dataset.packed))
    packed = dataset.untuned(tf.data.Dataset.from_tensors(sample).repeat())
    return dataset.Batches(packed, rig.dataset.layout)


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
        expected |= {
            "policy_loss", "policy_gradient_norm", "targets_below_vmin", "targets_above_vmax"
        }
    assert set(values) == expected
    assert np.all(np.isfinite(list(values.values())))
    assert values["gradient_norm"] > 0


def test_autograph_rewrites_nothing_below_a_step(rig, monkeypatch):
    # Rewriting Sonnet, dm-tree and others took most of the time before a run's first step.
    rewritten = set()
    convert = api._convert_actual

    def noted(entity, context):
        rewritten.add(entity.__module__)
        return convert(entity, context)

    monkeypatch.setattr(api, "_convert_actual", noted)
    rig.learner.step()
    assert rewritten == {type(rig.learner).__module__}


@pytest.mark.parametrize("algorithm", sorted(TASKS))
def test_learner_steps_get_small_where_step_sizes_decay(algorithm):
    rig = Rig(algorithm, learning_rate_decay_steps=3)
    trained = [rig.networks.policy]
    if algorithm == "d4pg":
        trained.append(rig.networks.critic)
    moves = []
    for _ in range(8):
        before = [[v.numpy() for v in network.trainable_variables] for network in trained]
        rig.learner.step()
        moves.append([
            max(float(np.abs(v.numpy() - old).max())
                for v, old in zip(network.trainable_variables, values, strict=True))
            for network, values in zip(trained, before, strict=True)
        ])
    first, last = np.array(moves[0]), np.array(moves[-1])
    np.testing.assert_allclose(first, 1e-4, rtol=0.01)  # Adam's first step is its step size.
    assert np.all(last < 3e-6) and np.all(last > 0)
    rig.server.stop()


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
    for _ in range(20):
        rig.learner.step()
    rig.learner._replay_client.flush()
    samples = [next(rig.connection.client.sample("elsewhere")) for _ in range(60)]
    priorities = {sample[0].info.priority for sample in samples}
    # All items were inserted with priority 1; the learner has written TD errors since.
    assert len(priorities) > 3
    rig.server.stop()


def test_dqn_priorities_of_every_step_are_written_in_order():
    written, go = [], threading.Semaphore(0)

    class Client:
        def mutate_priorities(self, table, updates):
            assert go.acquire(timeout=30)
            written.append((table, updates))

    writer = dqn_learner.PriorityWriter(Client(), "ours")
    writer.mutate_priorities("acmes", {1: 0.1})  # This call does not wait.
    writer.mutate_priorities("acmes", {1: 0.2})
    assert not written
    go.release(3)
    writer.mutate_priorities("acmes", {2: 0.3})
    writer.flush()
    assert written == [("ours", {1: 0.1}), ("ours", {1: 0.2}), ("ours", {2: 0.3})]


def test_dqn_priorities_that_fail_are_raised_on_the_learners_thread():
    class Client:
        def mutate_priorities(self, table, updates):
            raise RuntimeError("server gone")

    writer = dqn_learner.PriorityWriter(Client(), "ours")
    writer.mutate_priorities("acmes", {1: 0.1})
    writer.flush()
    with pytest.raises(RuntimeError, match="server gone"):
        writer.mutate_priorities("acmes", {1: 0.2})


def test_dqn_n_step_returns_are_not_flattened_by_acmes_clip():
    config = config_lib.RunConfig(n_step=5, discount=0.5, max_abs_reward=2.0)
    scale = dqn_learner.return_scale(config)
    assert scale == pytest.approx(2.0 * (1 + 0.5 + 0.25 + 0.125 + 0.0625))
    rig = Rig("dqn", n_step=5)
    fixed = repeated(rig)
    plain, scaled = next(iter(fixed)), next(iter(fixed.scaled(scale)))
    np.testing.assert_allclose(scaled.data.reward, plain.data.reward.numpy() / scale, rtol=1e-6)
    ours = dqn_learner.return_scale(rig.config)
    largest = np.abs([next(rig.learner._iterator).data.reward for _ in range(30)]).max()
    assert 1.0 / ours < largest < 4.0 / ours  # The largest of 100 normal numbers.
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


@pytest.mark.parametrize("algorithm", sorted(TASKS))
def test_several_readers_share_the_samples_that_replay_admits(algorithm):
    # 100 transitions, of which the first 10 admit nothing, admit 90 samples.
    rig = Rig(algorithm, samples_per_insert=1.0)
    batches = iter(dataset.make_dataset(
        rig.config, f"localhost:{rig.server.port}", rig.dataset.layout, readers=3
    ))
    keys = set()
    for _ in range(9):  # Each of the readers may hold 7 samples of a batch that it cannot fill.
        sample = next(batches)
        assert sample.data.reward.shape == (8,)
        keys |= set(sample.info.key.numpy())
    assert rig.connection.status().transitions_sampled in range(72, 92)
    assert len(keys) > 30  # Of 72 samples from 100 transitions; no reader repeats another's.
    rig.server.stop()


def test_dataset_started_twice_gives_two_iterators():
    rig = Rig("d4pg")
    first, second = iter(rig.dataset), iter(rig.dataset)
    assert next(first).info.key.shape == next(second).info.key.shape == (8,)
    assert first is not second
    rig.server.stop()


@pytest.mark.parametrize("algorithm", sorted(TASKS))
def test_learner_state_is_float32_with_the_same_names_at_any_precision(algorithm):
    names = []
    for precision in ("float32", "bfloat16"):
        rig = Rig(algorithm, learner_precision=precision)
        names.append(set(types_of_variables(rig)))
        rig.learner.step()
        types = types_of_variables(rig)
        assert {dtype for dtype in types.values() if dtype.is_floating} == {tf.float32}
        names.append(set(types))  # A checkpoint of any step fits a new learner.
        rig.server.stop()
    assert all(each == names[0] for each in names)


def types_of_variables(rig):
    """Returns the types of the variables by their paths within the learner's checkpoint."""
    checkpoint = tf.train.Checkpoint(**rig.module.checkpointed(rig.learner, rig.networks))
    return {name: variable.dtype for name, variable in variables_of(checkpoint).items()}


def variables_of(checkpoint):
    """Returns the variables, with the optimizers' moments, by their paths in the checkpoint."""
    view = tf.train.Checkpoint(**dict(checkpoint._trackable_children()))
    found, waiting = {}, [("", view)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, tf.Variable):
            found[path] = node
            continue
        waiting += [(f"{path}/{name}", child) for name, child in node._trackable_children().items()]
    return found


def test_d4pg_step_is_acmes_own_with_sonnets_optimizer():
    # Acme's own parts do the same step: its clipping, its torso, Sonnet's Adam.
    rig = Rig("d4pg", policy_learning_rate=1e-2, critic_learning_rate=1e-2)
    networks = rig.networks
    stock_critic = stock_copy(networks.critic, rig.config)
    stock_target = stock_copy(networks.target_critic, rig.config)
    policy, target = (
        sonnet_policy.Policy(networks.policy.architecture) for _ in range(2)
    )
    for ours, stock in ((networks.policy, policy), (networks.target_policy, target)):
        copy_variables(ours, stock)
    data = repeated(rig)
    learner = rig.module.make_learner(
        networks, rig.config, data, None, rig.fetches, dataset.Monitors()
    )
    stock = acme_d4pg.D4PGLearner(
        policy, stock_critic, target, stock_target, rig.config.discount, 100, iter(data),
        policy_optimizer=snt.optimizers.Adam(1e-2), critic_optimizer=snt.optimizers.Adam(1e-2),
        logger=dataset.LastFetches(), checkpoint=False,
    )
    for _ in range(5):
        learner.step()
        stock.step()
    for ours, theirs in ((networks.policy, policy), (networks.critic, stock_critic)):
        for a, b in zip(ours.variables, theirs.variables, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-5, err_msg=a.name)


@pytest.mark.parametrize("inverting", [0, 1])
def test_d4pg_actions_leave_a_bound_only_with_inverted_gradients(inverting):
    inward = []
    for bound in (20.0, -20.0):  # The derivative of tanh is 0 in float32 there.
        rig = Rig("d4pg", invert_gradients=inverting, policy_learning_rate=1e-2)
        bias = rig.networks.policy.named_variables()["head/b"]
        bias.assign([bound])
        rig.learner.step()
        inward.append(20.0 - abs(bias.numpy()[0]))
        rig.server.stop()
    # The critic knows no bounds: it wants actions away from at least one of them.
    np.testing.assert_allclose(max(inward), 1e-2 * inverting, atol=1e-4)
    assert min(inward) >= 0.0


def stock_copy(critic, config):
    """Returns Acme's own critic with the weights of ours."""
    stock = snt.Sequential([
        acme_networks.CriticMultiplexer(),
        acme_networks.LayerNormMLP(config.critic_sizes, activate_final=True),
        acme_networks.DiscreteValuedHead(config.vmin, config.vmax, config.num_atoms),
    ])
    stock(tf.zeros((1, 3)), tf.zeros((1, 1)))
    copy_variables(critic, stock)
    return stock


def copy_variables(source, destination):
    for a, b in zip(source.variables, destination.variables, strict=True):
        b.assign(a)


@pytest.mark.parametrize("algorithm", sorted(TASKS))
def test_learner_in_bfloat16_learns_like_in_float32(algorithm):
    losses = {}
    start = None
    for precision in ("float32", "bfloat16"):
        rig = Rig(
            algorithm, learner_precision=precision, model_str="64,64", critic_str="64,64",
            learning_rate=1e-3, critic_learning_rate=1e-3, target_update_period=1000, n_step=1,
            discount=0.0,  # Rewards alone are learned, so losses can fall far.
        )
        if start is None:
            start = [v.numpy() for network in rig.networks[:-1] for v in network.variables]
            batch = repeated(rig)
        for value, variable in zip(
            start, (v for network in rig.networks[:-1] for v in network.variables), strict=True
        ):
            variable.assign(value)
        learner = rig.module.make_learner(
            rig.networks, rig.config, batch, rig.connection.client, rig.fetches,
            dataset.Monitors(),
        )
        curve = []
        for _ in range(60):
            learner.step()
            curve.append(rig.module.losses(rig.fetches.read())["loss"])
        losses[precision] = np.array(curve)
        rig.server.stop()
    exact, rough = losses["float32"], losses["bfloat16"]
    assert rough[-1] < 0.8 * rough[0]
    assert not np.array_equal(exact, rough)
    np.testing.assert_allclose(rough, exact, rtol=0.05, atol=0.02 * exact[0])


@pytest.mark.parametrize(
    ("rewards", "discounts", "low", "high"),
    [
        # Windows of 5, 2 and 1 steps with one reward.
        ([-4.9009950, -1.99, -1.0], [0.99**4, 0.99, 1.0], -1.0, -1.0),
        ([0.0, 0.0], [0.99**4, 0.0], 0.0, 0.0),
        ([-4.9009950, -3.0], [0.99**4, 0.0], -1.0, -0.03),  # The second one ends the episode.
        ([0.0, 4.9009950 / 5], [0.99**4, 0.99**4], 0.0, 0.2),
    ],
)
def test_rewards_of_windows_are_recorded_per_step(rewards, discounts, low, high):
    monitors = dataset.Monitors()
    watch = tf.function(monitors.rewards_watcher(0.99))
    for pair in zip(rewards, discounts, strict=True):  # Batches of one: all of them count.
        watch(*(tf.constant([value], tf.float32) for value in pair))
    values = monitors.read()
    assert values["reward_low"] == pytest.approx(low, abs=1e-5)
    assert values["reward_high"] == pytest.approx(high, abs=1e-5)


def test_rewards_of_a_resumed_run_go_on_from_those_that_were_logged():
    monitors = dataset.Monitors()
    watch = monitors.rewards_watcher(0.99, {"reward_low": -1.0, "reward_high": 0.5})
    watch(tf.constant([0.2]), tf.constant([1.0]))
    assert monitors.read() == {"reward_low": -1.0, "reward_high": 0.5}


def test_rewards_are_recorded_inside_a_step_and_before_they_are_scaled():
    rig = Rig("dqn")
    batches = repeated(rig).scaled(2.0).watched(rig.monitors.rewards_watcher(1.0))
    rewards = next(iter(batches)).data.reward.numpy() * 2.0
    values = rig.monitors.read()
    assert values["reward_low"] == pytest.approx(rewards.min(), rel=1e-6)
    assert values["reward_high"] == pytest.approx(rewards.max(), rel=1e-6)
    rig.server.stop()


@pytest.mark.parametrize(
    ("vmin", "vmax", "below", "above"),
    [(-150.0, 150.0, 0.0, 0.0), (10.0, 20.0, 1.0, 0.0), (-20.0, -10.0, 0.0, 1.0)],
)
def test_targets_beyond_the_critics_range_are_recorded(vmin, vmax, below, above):
    # Rewards are normal, and most values of the next state shrink by 0.9 * 0.99. A batch of 8 can
    # hold rewards that are all so large that no target lies below vmin.
    rig = Rig("d4pg", vmin=vmin, vmax=vmax, batch_size=64)
    rig.learner.step()
    values = rig.monitors.read()
    assert (values["targets_below_vmin"] > 0.05) == bool(below)
    assert (values["targets_above_vmax"] > 0.05) == bool(above)
    rig.server.stop()


_TWO_DEVICES = """
import tensorflow as tf

processor = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)

from actorQ.learner import compiled_step
from actorQ.learner import dataset
from tests.actorQ.learner import test_dataset

rig = test_dataset.Rig({algorithm!r})
batches = dataset.make_dataset(
    rig.config, f"localhost:{{rig.server.port}}", rig.dataset.layout, "/CPU:1"
)
sample = next(iter(batches.packed))
assert all(part.device.endswith("CPU:1") for part in tf.nest.flatten(sample)), sample
learner = rig.module.make_learner(
    rig.networks, rig.config, batches, rig.connection.client, rig.fetches, rig.monitors
)
ahead = iter(batches).look_ahead(2)
assert [part.shape for part in ahead] == [(16,), (16,)]
compiled_step.CompiledStep(learner, steps_per_call=2, jit_compile=True)
for _ in range(3):
    learner.step()
assert int(learner._num_steps) == 6 and rig.fetches.read()
print("learned")
"""


@pytest.mark.parametrize("algorithm", sorted(TASKS))
def test_batches_lie_ready_on_the_learners_device(algorithm):
    # A second logical CPU stands for a GPU; a process has it only from its start.
    done = subprocess.run(
        [sys.executable, "-c", _TWO_DEVICES.format(algorithm=algorithm)],
        capture_output=True, text=True, timeout=180,
    )
    assert done.stdout == "learned\n", done.stderr
