"""Acme's own single-process D4PG (`acme.agents.tf.d4pg.D4PG`) as a peer of our training.

Acme's parts are the agent, which acts and learns in turn, and its learner, Adam, replay (a Reverb
server in this process), n-step adder, dataset, acting in TensorFlow and clipping of gradients. The
critic is that of Acme's examples: `LayerNormMLP` and a head of --num_atoms.

Our parts are the policy (Acme's example has elu where ours has tanh), the environment, and
everything that `session` does.

Flags:
- The lower of --samples_per_insert and --replay_table_max_times_sampled is the agent's own
  samples_per_insert. It rounds that to whole environment steps for a gradient step, or to whole
  gradient steps for an environment step.
- --sigma is the noise of the one actor, as with --n_actors=1.
- --learning_rate_decay_steps and --invert_gradients act as in our learner; Acme's lacks both.
- TensorFlow computes with --learner_threads threads (0: one for each core), in acting and learning.
"""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from acme import specs
from acme import wrappers
from acme.agents.tf import d4pg
from acme.tf import networks as acme_networks
import numpy as np
import sonnet as snt
import tensorflow as tf

from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.learner import device as learner_device
from actorQ.policy import sonnet_policy as networks_lib
from actorQ.core import seeding
from actorQ.learner import step_sizes
from actorQ.policy import tensorflow_device
from actorQ.experiments.peers import session as peer_session
from actorQ.experiments import kinds

NAME = "Acme D4PG"
_LITTLE = 1e-9


class _LearnerSteps:
    """A logger that Acme's learner calls once after every gradient step."""

    def __init__(self, session: peer_session.Session):
        self._session = session

    def write(self, data: Mapping[str, Any]) -> None:
        """Takes the losses of a step."""
        self._session.learned(
            {"loss": float(data["critic_loss"]), "policy_loss": float(data["policy_loss"])}
        )

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def train(config: config_lib.RunConfig) -> int:
    """Trains the agent to the end; returns the process's exit code.

    Raises:
      errors.UserError: The task cannot be used, or training has diverged.
    """
    session = peer_session.Session(config)
    spec = session.environment.spec
    if spec.discrete:
        raise errors.UserError(
            f"{config.taskstr} has discrete actions: {NAME} takes continuous ones only."
        )
    algorithm = algorithms.resolve(config, spec)
    device = _set_up_tensorflow(config)
    policy = networks_lib.Policy(
        architecture_lib.make(spec, config.model_sizes),
        invert_gradients=bool(config.invert_gradients),
    )
    # Acme's losses need rewards and discounts in float32.
    environment = wrappers.SinglePrecisionWrapper(session.environment)
    agent = make_agent(config, environment, policy, session)
    act_tensor = policy.compile_for(1)

    def run() -> None:
        while True:
            timestep = environment.reset()
            agent.observe_first(timestep)
            while not timestep.last():
                action = agent.select_action(timestep.observation)
                timestep = environment.step(action)
                agent.observe(action, next_timestep=timestep)
                session.acted()
                agent.update()

    return session.run(
        peer_session.Agent(
            NAME, algorithm, device, run,
            act=lambda observation: act_tensor(observation[None])[0].numpy(),
            is_finite=lambda: all(
                bool(np.all(np.isfinite(variable.numpy()))) for variable in policy.variables
            ),
            replay_capacity=config.most_transitions,
        )
    )


def make_agent(
    config: config_lib.RunConfig,
    environment: wrappers.SinglePrecisionWrapper,
    policy: networks_lib.Policy,
    session: peer_session.Session,
) -> d4pg.D4PG:
    """Builds Acme's agent from our flags."""
    critic = snt.Sequential([
        acme_networks.CriticMultiplexer(),
        acme_networks.LayerNormMLP(config.critic_sizes, activate_final=True),
        acme_networks.DiscreteValuedHead(config.vmin, config.vmax, config.num_atoms),
    ])
    decay_steps = config.learning_rate_decay_steps
    return d4pg.D4PG(
        environment_spec=specs.make_environment_spec(environment),
        policy_network=policy,
        critic_network=critic,
        discount=config.discount,
        batch_size=config.batch_size,
        target_update_period=config.target_update_period,
        policy_optimizer=_FallingAdam(config.policy_learning_rate, decay_steps),
        critic_optimizer=_FallingAdam(config.critic_learning_rate, decay_steps),
        min_replay_size=config.min_replay_size,
        max_replay_size=config.most_transitions,
        samples_per_insert=samples_per_insert(config),
        n_step=config.n_step,
        sigma=config.sigma,
        logger=_LearnerSteps(session),
        checkpoint=False,
    )


class _FallingAdam(snt.optimizers.Adam):
    """Sonnet's Adam with the falling step size of our optimizers."""

    def __init__(self, learning_rate: float, decay_steps: int):
        super().__init__(tf.Variable(learning_rate, trainable=False), name="adam")
        self._first_learning_rate = learning_rate
        self._decay_steps = decay_steps

    def apply(
        self, updates: Sequence[tf.Tensor | None], parameters: Sequence[tf.Variable]
    ) -> None:
        """Updates the parameters."""
        self.learning_rate.assign(
            self._first_learning_rate
            * step_sizes.share(tf.cast(self.step, tf.float32), self._decay_steps, tf.maximum)
        )
        super().apply(updates, parameters)


def samples_per_insert(config: config_lib.RunConfig) -> float:
    """Returns the agent's samples_per_insert that gives our ratio of acting to learning."""
    steps, updates = kinds.steps_per_update(config)
    samples = config.batch_size * updates / steps
    # The agent divides the batch size by it and truncates the quotient, which has rounding errors.
    # A tiny shift to the right side keeps 49 environment steps from becoming 48.
    return samples * (1 - _LITTLE if steps > updates else 1 + _LITTLE)


def _set_up_tensorflow(config: config_lib.RunConfig) -> str:
    """Chooses device, threads and seed, before any tensor exists; returns the device's name."""
    tensorflow_device.choose(config.learner_device_placement == "GPU", "the learner")
    threads = peer_session.threads(config)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))
    tf.random.set_seed(seeding.derive(config.seed, "learner"))
    return learner_device.name()
