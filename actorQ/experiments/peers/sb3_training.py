"""Stable-Baselines3's nearest agents as peers of our training: TD3 for D4PG, and DQN.

The peer of D4PG is TD3 and not DDPG. In SB3, DDPG is TD3 with its three improvements switched off,
and all that it saves is one critic. Users who want a deterministic actor-critic pick TD3: twin
critics and a delayed policy make it stronger. It is also faster, since it updates the wide policy
every second step only.

The agents take our flags as follows:
- --model_str, --critic_str: hidden layers, tanh in policy and Q-network as in ours; elu in the
  critics, as in ours behind the first layer (whose layer norm SB3's critics do not have).
- samples per insert: train_freq and gradient_steps. They have the ratio of --batch_size to the
  lower of --samples_per_insert and --replay_table_max_times_sampled.
- --target_update_period: DQN copies its target as often, counted in environment steps. TD3's
  targets are moving averages that lag as far behind as copies do (`kinds.target_average`).
- --policy_learning_rate, --critic_learning_rate: TD3 takes one step size; it is given two here.
  --learning_rate_decay_steps: counted in gradient steps, as in ours.
- --n_step: SB3's own n-step replay. --min_replay_size: learning_starts, until when it takes random
  actions. --sigma: Gaussian action noise. --epsilon_max: constant from there on, SB3's own unless
  --epsilon_zeta asks for random actions that last, which are our actors'.
- --max_abs_reward: rewards are clipped before DQN sees them, as in ours. With auto they are not,
  and SB3 has no scale of returns.
Other settings keep SB3's defaults, which are its authors' choice: policy_delay 2, target policy
noise, twin critics, initial weights, DQN's gradient norm of 10. SB3 lacks some parts of ours:
prioritized replay, double Q-learning, a distribution of returns, clipping and --invert_gradients in
D4PG.

torch computes with --learner_threads threads (0: one for each core), in acting and learning.
Imports no TensorFlow.
"""

from typing import Any

import numpy as np
from stable_baselines3 import DQN
from stable_baselines3 import TD3
from stable_baselines3.common import noise
from stable_baselines3.td3 import policies as td3_policies
import torch

from actorQ.core import config as config_lib
from actorQ.core import seeding
from actorQ.dqn import exploration as dqn_policy
from actorQ.experiments import kinds
from actorQ.experiments.peers import gymnasium_task
from actorQ.experiments.peers import sb3_reporting
from actorQ.experiments.peers import session as peer_session
from actorQ.learner import step_sizes
from actorQ.policy import algorithms

_POLICY_DELAY = 2  # TD3's default.


class _FallingSteps(sb3_reporting.Reporting):
    """Lets step sizes fall as ours do."""

    # Our actors' exploration, in place of SB3's; None: SB3's.
    explore: dqn_policy.EpsilonGreedy | None = None
    # First step sizes of the optimizers; TD3's first one is the policy's.
    first_step_sizes: tuple[float, ...]
    decay_steps: int  # See `step_sizes`.

    def _update_learning_rate(
        self, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer
    ) -> None:
        # SB3 calls this before every update, with one optimizer or several.
        several = optimizers if isinstance(optimizers, list) else [optimizers]
        share = step_sizes.share(self._n_updates, self.decay_steps)
        for optimizer, first in zip(several, self.first_step_sizes, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = first * share


class _EluCriticsPolicy(td3_policies.TD3Policy):
    """SB3's networks with another activation in the critics."""

    def make_critic(self, features_extractor: Any = None) -> Any:
        """See TD3Policy."""
        self.critic_kwargs["activation_fn"] = torch.nn.ELU
        return super().make_critic(features_extractor)


class ReportingTD3(_FallingSteps, TD3):
    """TD3 with a step size for the policy, and one for the critics."""

    loss_names = {"loss": "train/critic_loss", "policy_loss": "train/actor_loss"}


class ReportingDQN(_FallingSteps, DQN):
    """DQN."""

    loss_names = {"loss": "train/loss"}

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Returns actions for observations, one or several; see DQN."""
        if deterministic or self.explore is None:
            return super().predict(observation, state, episode_start, deterministic)
        batch, vectorized = self.policy.obs_to_tensor(observation)
        with torch.no_grad():
            values = self.q_net(batch).cpu().numpy()
        actions = np.array([self.explore(row) for row in values])
        return (actions if vectorized else actions[0]), state


def train(config: config_lib.RunConfig) -> int:
    """Trains an agent to the end; returns the process's exit code.

    Raises:
      errors.UserError: The task cannot be used, or training has diverged.
    """
    torch.set_num_threads(peer_session.threads(config))
    session = peer_session.Session(config)
    spec = session.environment.spec
    algorithm = algorithms.resolve(config, spec)
    limit = algorithms.policy_module(algorithm).reward_limit(config)
    task = gymnasium_task.GymnasiumTask(session.environment, limit)
    model = make_model(config, task, session, sb3_reporting.device(config))
    name = "DQN" if spec.discrete else "TD3"
    return sb3_reporting.run(session, model, f"SB3 {name}", name.lower(), model.explore)


def make_model(
    config: config_lib.RunConfig,
    task: gymnasium_task.GymnasiumTask,
    session: peer_session.Session,
    device: str,
) -> ReportingDQN | ReportingTD3:
    """Builds SB3's agent for a task from our flags."""
    steps, updates = kinds.steps_per_update(config)
    settings: dict[str, Any] = dict(
        env=task,
        buffer_size=config.most_transitions,
        learning_starts=max(config.min_replay_size, config.batch_size),
        batch_size=config.batch_size,
        gamma=config.discount,
        train_freq=steps,
        gradient_steps=updates,
        n_steps=config.n_step,
        seed=seeding.derive(config.seed, "learner"),
        device=device,
    )
    model: ReportingDQN | ReportingTD3
    if task.is_discrete:
        model = ReportingDQN(
            "MlpPolicy",
            learning_rate=config.learning_rate,
            tau=1.0,
            target_update_interval=kinds.target_interval(config),
            exploration_initial_eps=config.epsilon_max,
            exploration_final_eps=config.epsilon_max,
            policy_kwargs={
                "net_arch": list(config.model_sizes), "activation_fn": torch.nn.Tanh,
            },
            **settings,
        )
        model.first_step_sizes = (config.learning_rate,)
        if config.epsilon_zeta:
            rng = np.random.default_rng(seeding.derive(config.seed, "actor exploration"))
            model.explore = dqn_policy.EpsilonGreedy(config.epsilon_max, rng, config.epsilon_zeta)
    else:
        assert task.action_space.shape is not None
        size = task.action_space.shape[0]
        model = ReportingTD3(
            _EluCriticsPolicy,
            learning_rate=config.critic_learning_rate,
            tau=kinds.target_average(config, _POLICY_DELAY),
            action_noise=noise.NormalActionNoise(
                np.zeros(size, np.float32), np.full(size, config.sigma, np.float32), np.float32
            ) if config.sigma else None,
            policy_delay=_POLICY_DELAY,
            policy_kwargs={
                "net_arch": {"pi": list(config.model_sizes), "qf": list(config.critic_sizes)},
                "activation_fn": torch.nn.Tanh,
            },
            **settings,
        )
        model.first_step_sizes = (config.policy_learning_rate, config.critic_learning_rate)
    model.decay_steps = config.learning_rate_decay_steps
    model.session = session
    return model
