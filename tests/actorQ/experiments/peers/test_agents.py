"""The agents themselves: what our flags become in them, and real trainings of the smallest size."""

import math
import signal
import sys
import types
from unittest import mock

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.environments import suites
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments.peers import gymnasium_task
from actorQ.experiments.peers import zoo_settings
from tests.actorQ import harness

CONTINUOUS = "dm_control,cartpole_balance"
DISCRETE = "gym,CartPole-v0"
SETTINGS = {
    "model_str": "16,8", "critic_str": "12,6", "batch_size": 16, "samples_per_insert": 4,
    "min_replay_size": 50, "max_episode_steps": 50, "policy_learning_rate": 1e-5,
    "critic_learning_rate": 3e-4, "learning_rate": 2e-4, "target_update_period": 10,
}


class Steps:
    """Stands in for a session."""

    def __init__(self, stop=None):
        self.actor_steps, self.losses, self.stop = 0, [], stop

    def acted(self):
        self.actor_steps += 1

    def learned(self, losses):
        self.losses.append((self.actor_steps, losses))
        if len(self.losses) == self.stop:
            raise StopIteration


def sb3_model(taskstr, session, **settings):
    from actorQ.experiments.peers import sb3_training

    config = config_lib.RunConfig(taskstr=taskstr, **{**SETTINGS, **settings})
    task = gymnasium_task.GymnasiumTask(suites.make(taskstr, 0, 50), 1.0)
    return sb3_training.make_model(config, task, session, "cpu")


def zoo_model(taskstr, session, tuned=None):
    from actorQ.experiments.peers import zoo_training

    config = config_lib.RunConfig(taskstr=taskstr)
    task = gymnasium_task.GymnasiumTask(suites.make(taskstr, 0, 50), math.inf)
    algorithm = "dqn" if task.is_discrete else "sac"
    tuned = tuned or zoo_settings.read(algorithm, taskstr)
    return zoo_training.make_model(config, task, session, tuned, "cpu")


def learn(model, session, explore=None):
    """Trains until the session has had enough."""
    from actorQ.experiments.peers import sb3_reporting

    with pytest.raises(StopIteration):
        model.learn(2**62, sb3_reporting.EnvironmentSteps(session, explore), log_interval=None)


def test_td3_is_what_the_flags_say():
    session = Steps(stop=4)
    model = sb3_model(CONTINUOUS, session, sigma=0.3)
    widths = [layer.out_features for layer in model.actor.mu if hasattr(layer, "out_features")]
    assert widths == [16, 8, 1]
    assert [type(layer).__name__ for layer in model.actor.mu].count("Tanh") == 3
    critic = model.critic.qf0
    assert [layer.out_features for layer in critic if hasattr(layer, "out_features")] == [12, 6, 1]
    assert [type(layer).__name__ for layer in critic].count("ELU") == 2
    assert (model.gamma, model.n_steps, model.policy_delay) == (0.99, 5, 2)
    assert model.tau == pytest.approx(4 / 12)
    assert model.action_noise._sigma.tolist() == pytest.approx([0.3])
    learn(model, session)
    # A gradient step every four environment steps, from the first behind learning_starts on.
    assert [steps for steps, _ in session.losses] == [52, 56, 60, 64]
    assert session.losses[0][1].keys() == {"loss"}
    assert session.losses[1][1].keys() == {"loss", "policy_loss"}
    rates = [o.param_groups[0]["lr"] for o in (model.actor.optimizer, model.critic.optimizer)]
    assert rates == [1e-5, 3e-4]


def test_dqn_is_what_the_flags_say():
    session = Steps(stop=8)
    model = sb3_model(
        DISCRETE, session, samples_per_insert=64, replay_table_max_times_sampled=0, epsilon_max=0.1
    )
    layers = list(model.q_net.q_net)
    assert [layer.out_features for layer in layers if hasattr(layer, "out_features")] == [16, 8, 2]
    assert [type(layer).__name__ for layer in layers].count("Tanh") == 2
    assert (model.tau, model.target_update_interval) == (1.0, 3)  # 10 learner steps: 2.5.
    learn(model, session)
    # Four gradient steps after every environment step.
    assert [steps for steps, _ in session.losses] == [51] * 4 + [52] * 4
    assert model.exploration_rate == pytest.approx(0.1)
    assert model.policy.optimizer.param_groups[0]["lr"] == 2e-4


def test_dqn_explores_as_our_actors_do_if_random_actions_last(monkeypatch):
    session = Steps(stop=30)
    model = sb3_model(DISCRETE, session, epsilon_max=0.5, epsilon_zeta=1.8)
    observations = np.zeros((1, 4), np.float32)
    best = int(model.predict(observations[0], deterministic=True)[0])
    actions = [int(model.predict(observations)[0][0]) for _ in range(300)]
    others = "".join(str(int(action != best)) for action in actions)
    assert "1" * 6 in others and "101" in others
    assert model.predict(observations[0])[0].shape == ()
    begun = []
    monkeypatch.setattr(model.explore, "begin", lambda: begun.append(session.actor_steps))
    learn(model, session, model.explore)
    ends = np.flatnonzero(model.replay_buffer.dones[: model.replay_buffer.pos, 0])
    assert len(begun) >= 2 and begun == [end + 1 for end in ends]
    plain = sb3_model(DISCRETE, Steps(stop=1))
    assert plain.explore is None


@pytest.mark.parametrize("taskstr", [CONTINUOUS, DISCRETE])
def test_sb3_step_sizes_decay_with_gradient_steps(taskstr):
    session = Steps(stop=5)
    model = sb3_model(taskstr, session, learning_rate_decay_steps=8)
    learn(model, session)
    optimizers = (
        [model.policy.optimizer] if taskstr == DISCRETE
        else [model.actor.optimizer, model.critic.optimizer]
    )
    first = [2e-4] if taskstr == DISCRETE else [1e-5, 3e-4]
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    assert rates == pytest.approx([rate * 0.5 for rate in first])  # The fifth, after four.


def test_zoos_sac_is_what_its_settings_say():
    session = Steps(stop=33)
    model = zoo_model("gym,MountainCarContinuous-v0", session)
    layers = [layer.out_features for layer in model.actor.latent_pi if hasattr(layer, "weight")]
    assert layers == [64, 64] and model.use_sde
    assert (model.batch_size, model.gamma, model.tau, model.ent_coef) == (512, 0.9999, 0.01, 0.1)
    learn(model, session)
    # 32 gradient steps after every 32 environment steps.
    assert [steps for steps, _ in session.losses] == [32] * 32 + [64]
    assert session.losses[0][1].keys() == {"loss", "policy_loss"}


def test_zoos_dqn_explores_less_over_the_zoos_steps_and_goes_on():
    tuned = zoo_settings.Tuned(
        "E", 40, {"policy": "MlpPolicy", "learning_starts": 8, "train_freq": 1, "buffer_size": 100,
                  "exploration_fraction": 0.5, "exploration_final_eps": 0.04}, 1e-3,
    )
    rates = {}
    for stop in (12, 50):  # Environment steps 20 and 58 of 40.
        session = Steps(stop=stop)
        model = zoo_model(DISCRETE, session, tuned)
        learn(model, session)
        (group,) = model.policy.optimizer.param_groups
        rates[session.actor_steps] = (model.exploration_rate, group["lr"])
    assert rates[20] == pytest.approx((0.04, 5e-4), abs=1e-9)
    assert rates[58] == pytest.approx((0.04, 0.0), abs=1e-9)


@pytest.mark.parametrize("decay_steps", [0, 4])
def test_acme_step_sizes_decay_as_ours(decay_steps):
    import tensorflow as tf

    from actorQ.experiments.peers import acme_training
    from actorQ.learner import optimizers

    ours, acmes = tf.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    optimizer = optimizers.Adam(0.1, decay_steps=decay_steps)
    theirs = acme_training._FallingAdam(0.1, decay_steps)
    step = tf.function(lambda gradient: theirs.apply([gradient], [acmes]))
    for gradient in ([1.0, -1.0], [0.5, 2.0], [-1.0, 0.3], [0.2, 0.2], [3.0, -1.0], [1.0, 1.0]):
        optimizer.apply([tf.constant(gradient)], [ours])
        step(tf.constant(gradient))
        np.testing.assert_allclose(acmes.numpy(), ours.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "samples", "steps", "updates"),
    [(64, 0.25, 256, 1), (49, 1.0, 49, 1), (256, 16.0, 16, 1), (16, 16.0, 1, 1), (10, 70.0, 1, 7)],
)
def test_acme_learns_as_often_as_the_flags_say(batch, samples, steps, updates):
    from actorQ.experiments.peers import acme_training  # noqa: I001 (must come before acme)
    from acme.agents import agent as acme_agent

    config = config_lib.RunConfig(
        batch_size=batch, samples_per_insert=samples, replay_table_max_times_sampled=0
    )
    # As the constructor of Acme's agent does.
    observations_per_step = float(batch) / acme_training.samples_per_insert(config)
    made = [
        acme_agent._calculate_num_learner_steps(n, 100, observations_per_step)
        for n in range(100, 100 + 3 * steps)
    ]
    assert sum(made) == 3 * updates and made[0] == updates


def start(crew, folder, kind, taskstr, **settings):
    given = {
        **SETTINGS, "num_episodes": 40, "eval_period_steps": 10, "final_eval_episodes": 1,
        "log_period_s": 0.1, **settings,
    }
    settled = kinds.get(kind).settle(given, taskstr, 32, 0, False)
    process = crew.start(*kinds.get(kind).command(settled, str(folder)))
    return process, types.SimpleNamespace(
        status=lambda: kinds.get(kind).status(settled, str(folder), 0.0),
        measure=lambda failure="": kinds.get(kind).measure(settled, str(folder), 0.0, failure)
    )


def check_whole(process, run, actor_steps):
    assert process.wait(180) == 0, process.output()
    measured = run.measure()
    assert measured.outcome == results.TRAINED
    assert (measured.learner_steps, measured.actor_steps) == (40, actor_steps)
    assert len(measured.rewards.returns) == 4 and len(measured.final_returns) == 1
    assert measured.rewards.seconds == sorted(measured.rewards.seconds)
    assert "learner 40/40" in run.status()
    assert "Traceback" not in process.output()


def test_sb3_dqn_really_trains(crew, tmp_path):
    check_whole(*start(crew, tmp_path, "sb3", DISCRETE), 52 + 39 * 4)


def test_zoos_dqn_really_trains(crew, tmp_path):
    process, run = start(
        crew, tmp_path, "zoo", "gym,Acrobot-v1", eval_period_steps=0, eval_period_s=0.5
    )
    assert process.wait(180) == 0, process.output()
    measured = run.measure()
    assert (measured.learner_steps, measured.data_used) == (40, None)
    assert 40 <= measured.actor_steps <= 44 and len(measured.final_returns) == 1
    assert "the zoo's settings for Acrobot-v1" in process.output()


@pytest.mark.slow
def test_sb3_td3_really_trains(crew, tmp_path):
    process, run = start(crew, tmp_path, "sb3", CONTINUOUS, track_energy=1)
    check_whole(process, run, 52 + 39 * 4)
    assert run.measure().energy.kwh > 0


@pytest.mark.slow
def test_acme_d4pg_really_trains(crew, tmp_path):
    process, run = start(
        crew, tmp_path, "acme", CONTINUOUS, vmin=0.0, vmax=100.0, track_energy=1,
        learning_rate_decay_steps=20, invert_gradients=1,
    )
    check_whole(process, run, 50 + 39 * 4)
    assert run.measure().energy.kwh > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["acme", "sb3"])
def test_peer_ended_by_a_signal_says_so(crew, tmp_path, kind):
    process, _ = start(crew, tmp_path, kind, CONTINUOUS, num_episodes=10**7)
    log = tmp_path / "run" / "learner" / "evaluation.csv"
    harness.poll(log.exists, 120, what="the first evaluation")
    process.signal(signal.SIGTERM)
    assert process.wait(30) == 130, process.output()
    assert "Interrupted after" in process.output() and "Traceback" not in process.output()


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("acme_agent", ["--batch_size=0"], "--batch_size=0"),
        ("sb3_agent", ["more"], "does not know what to do with 'more'"),
        ("sb3_agent", ["--taskstr=gym,NoSuchTask-v0"], "has no task 'NoSuchTask-v0'"),
        ("zoo_agent", ["--quantize=8"], "--quantize=8 is not possible"),
        pytest.param(
            "acme_agent", [f"--taskstr={DISCRETE}"],
            "discrete actions: Acme D4PG takes continuous ones only", marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_input_is_one_clear_line(crew, tmp_path, program, flags, message):
    process = crew.start(
        sys.executable, "-m", f"actorQ.experiments.peers.{program}",
        f"--logpath={tmp_path}/run", *flags,
    )
    assert process.wait(120) != 0
    lines = harness.error_lines(process.output(), program)
    assert len(lines) == 1 and message in lines[0], process.output()
    assert "Traceback" not in process.output()


@pytest.mark.parametrize("capability, device", [((8, 9), "GPU"), ((12, 0), "CPU")])
def test_acme_takes_the_gpus_that_our_learner_takes(monkeypatch, capability, device):
    from actorQ.experiments.peers import acme_training
    from actorQ.learner import device as learner_device
    from actorQ.policy import tensorflow_device

    tensorflow = mock.Mock()
    tensorflow.config.list_physical_devices.return_value = ["GPU:0"]
    details = tensorflow.config.experimental.get_device_details
    details.return_value = {"compute_capability": capability}
    made_visible = tensorflow.config.set_visible_devices
    tensorflow.config.get_visible_devices.side_effect = lambda kind: made_visible.call_args[0][0]
    for module in (learner_device, tensorflow_device, acme_training):
        monkeypatch.setattr(module, "tf", tensorflow)
    config = config_lib.RunConfig(learner_device_placement="GPU")
    assert acme_training._set_up_tensorflow(config) == device
    visible = ["GPU:0"] if device == "GPU" else []
    made_visible.assert_called_once_with(visible, "GPU")
