"""A stand-in for the actor loop of the original ActorQ, to measure ours against.

It was written from a description of that loop's steps, not from the original's code:

- The environment is wrapped by Acme's wrappers, and the observation goes through TensorFlow.
- The policy is quantized per tensor by torch's dynamic quantization, and noise is added.
- Acme's n-step adder writes to a table of five columns.
- Every 30 steps a pickled state_dict is pulled, whether it is new or not.

It flatters the original, where the observation took 892 us and the fp32 policy 1270 us: here the
observation takes an eighth of the policy's time. The module imports Acme, hence all frameworks.
"""

from actorQ.learner import acme_compat  # noqa: F401, I001 (acme cannot be imported before it)

import pickle
import time
import types
from typing import Any
import warnings

from acme import specs
from acme import wrappers
from acme.adders import reverb as adders
from acme.tf import utils as tf2_utils
import dm_env
import numpy as np
import reverb
import torch

from actorQ.environments import suites
from actorQ.benchmarks import remote
from actorQ.core import config as config_lib

_MODEL_TABLE = "model"
_PHASES = ("environment_s", "conversion_s", "inference_s", "insert_s", "pull_s")


class OriginalActor:
    """One actor with a replay and a model table in a server at `config.address`.

    Attributes:
      loop: Number of steps so far, as `loop.steps`, where the product has it.
      timings: Seconds of each phase so far, by name.
    """

    def __init__(self, config: config_lib.RunConfig, pulls: bool):
        """Builds environment, policy and adder, and publishes the policy's own weights.

        Args:
          config: Configuration of a run, with the address of a server from `start_server`.
          pulls: Whether weights are pulled every `actor_update_period` steps.
        """
        torch.set_num_threads(1)
        self._config = config
        self._pulls = pulls
        self._environment = make_environment(config.taskstr)
        spec = specs.make_environment_spec(self._environment)
        self._discrete = isinstance(spec.actions, specs.DiscreteArray)
        inputs = int(np.prod(spec.observations.shape))
        outputs = spec.actions.num_values if self._discrete else int(np.prod(spec.actions.shape))
        self._policy = _quantize(
            _make_policy(inputs, config.model_sizes, outputs, not self._discrete), config.quantize
        )
        self._client = reverb.Client(config.address)
        self._adder = adders.NStepTransitionAdder(
            self._client, n_step=config.n_step, discount=config.discount
        )
        blob = np.frombuffer(pickle.dumps(self._policy.state_dict()), np.uint8)
        self._client.insert([blob], {_MODEL_TABLE: 1.0})
        self._rng = np.random.default_rng(0)
        self._timestep = dm_env.TimeStep(dm_env.StepType.LAST, None, None, None)
        self.loop = types.SimpleNamespace(steps=0)
        self.timings = dict.fromkeys(_PHASES, 0.0)

    def act(self, seconds: float) -> None:
        """Acts for `seconds`."""
        clock, timings = time.perf_counter, self.timings
        until = clock() + seconds
        while clock() < until:
            if self._timestep.last():
                self._reset()
            started = clock()
            if self._pulls and self.loop.steps % self._config.actor_update_period == 0:
                self._pull()
            pulled = clock()
            batch = tf2_utils.add_batch_dim(self._timestep.observation)
            observation = torch.from_numpy(tf2_utils.batch_concat(batch).numpy())
            converted = clock()
            action = self._choose(observation)
            inferred = clock()
            self._timestep = self._environment.step(action)
            stepped = clock()
            self._adder.add(action, self._timestep)
            timings["pull_s"] += pulled - started
            timings["conversion_s"] += converted - pulled
            timings["inference_s"] += inferred - converted
            timings["environment_s"] += stepped - inferred
            timings["insert_s"] += clock() - stepped
            self.loop.steps += 1

    def _reset(self) -> None:
        started = time.perf_counter()
        self._timestep = self._environment.reset()
        reset = time.perf_counter()
        self._adder.add_first(self._timestep)
        self.timings["environment_s"] += reset - started
        self.timings["insert_s"] += time.perf_counter() - reset

    def _choose(self, observation: torch.Tensor) -> Any:
        with torch.no_grad():
            output = self._policy(observation)
            if not self._discrete:
                noisy = output + self._config.sigma * torch.randn(output.shape)
                return noisy.clamp(-1.0, 1.0)[0].numpy()
            if self._rng.random() < self._config.epsilon_max:
                return np.int32(self._rng.integers(output.shape[1]))
            return np.int32(output.argmax(dim=1)[0].item())

    def _pull(self) -> None:
        sample = next(self._client.sample(_MODEL_TABLE, 1))
        blob = np.asarray(sample[0].data[0] if isinstance(sample, list) else sample.data[0])
        self._policy.load_state_dict(pickle.loads(blob.tobytes()))


def make_environment(taskstr: str) -> dm_env.Environment:
    """Builds a task behind Acme's wrappers, with flat observations."""
    suite, task = suites.parse_taskstr(taskstr)
    if suite == "dm_control":
        from dm_control import suite as control_suite

        names = {f"{domain}_{name}": (domain, name) for domain, name in control_suite.ALL_TASKS}
        raw = control_suite.load(*names[task], task_kwargs={"random": 0})
        canonical = wrappers.CanonicalSpecWrapper(raw, clip=True)
        return wrappers.SinglePrecisionWrapper(_Flat(canonical))
    return wrappers.SinglePrecisionWrapper(suites.make(taskstr, 0))


class _Flat(wrappers.EnvironmentWrapper):
    """Joins the entries of dm_control's observations, so that replay has five columns."""

    def reset(self) -> dm_env.TimeStep:
        """See dm_env."""
        return self._join(self._environment.reset())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """See dm_env."""
        return self._join(self._environment.step(action))

    def observation_spec(self) -> specs.Array:
        """See dm_env."""
        entries = self._environment.observation_spec().values()
        return specs.Array((sum(int(np.prod(entry.shape)) for entry in entries),), np.float64)

    def _join(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        parts = [np.ravel(part) for part in timestep.observation.values()]
        return timestep._replace(observation=np.concatenate(parts))


def _make_policy(
    inputs: int, sizes: tuple[int, ...], outputs: int, tanh: bool
) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for size in sizes:
        layers += [torch.nn.Linear(inputs, size), torch.nn.Tanh()]
        inputs = size
    layers.append(torch.nn.Linear(inputs, outputs))
    if tanh:
        layers.append(torch.nn.Tanh())
    return torch.nn.Sequential(*layers).eval()


def _quantize(policy: torch.nn.Module, bits: int) -> torch.nn.Module:
    if bits == 32:
        return policy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that this moves to torchao.
        return torch.ao.quantization.quantize_dynamic(
            policy, {torch.nn.Linear}, dtype={16: torch.float16, 8: torch.qint8}[bits]
        )


def start_server(taskstr: str) -> int:
    """Starts a server with the stand-in's tables for replay and model; returns its port."""
    spec = specs.make_environment_spec(make_environment(taskstr))
    replay = reverb.Table(
        adders.DEFAULT_PRIORITY_TABLE, reverb.selectors.Uniform(), reverb.selectors.Fifo(),
        max_size=20_000, rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=adders.NStepTransitionAdder.signature(spec),
    )
    model = reverb.Table(
        _MODEL_TABLE, reverb.selectors.Fifo(), reverb.selectors.Fifo(), max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    return remote.keep_server(reverb.Server([replay, model], port=None))
