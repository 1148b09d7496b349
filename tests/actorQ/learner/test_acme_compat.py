"""Checks that Acme works with the pinned stack once actorQ.learner.acme_compat is imported."""

from actorQ.learner import acme_compat  # noqa: I001 (must come before acme)

import subprocess
import sys

from acme import specs
from acme.adders import reverb as adders
from acme.tf import networks
import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf


def run_python(code: str) -> subprocess.CompletedProcess:
    """Runs `code` in a process of its own, as only there the effects of an import show."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_compat_fresh_process_imports_agents_and_leaves_no_gym():
    result = run_python(
        "import importlib.util, sys\n"
        "from actorQ.learner import acme_compat\n"
        "acme_compat.apply()\n"
        "import acme.agents.tf.d4pg, acme.agents.tf.dqn, acme.datasets, acme.wrappers\n"
        "import tensorflow as tf\n"
        "keep = tf.function(lambda x: x + 1)\n"
        "keep(tf.constant(1))\n"
        "assert 'gym' not in sys.modules\n"
        "assert importlib.util.find_spec('gym') is None\n"
        "import torch, stable_baselines3\n"
    )
    assert result.returncode == 0, result.stderr
    assert "AtomicFunction" not in result.stderr


def test_stand_in_has_only_the_names_it_was_given():
    launchpad = sys.modules["launchpad"]
    assert launchpad.Program is object
    for name in ("__file__", "__path__", "__wrapped__"):
        with pytest.raises(AttributeError):
            getattr(launchpad, name)


def test_apply_twice_patches_once():
    writer = reverb.Client.trajectory_writer
    acme_compat.apply()
    assert reverb.Client.trajectory_writer is writer


def test_layers_of_one_shape_start_different():
    network = networks.LayerNormMLP((8, 8, 8))
    network(tf.zeros((1, 8)))
    weights = [v.numpy() for v in network.trainable_variables if v.shape == (8, 8)]
    assert len(weights) == 3
    for index, first in enumerate(weights):
        for second in weights[index + 1 :]:
            assert np.abs(first - second).max() > 1e-3


def test_initial_weights_keep_acmes_distribution():
    # Uniform with fan out has the limit sqrt(3 * 0.333 / columns) and variance 0.333 / columns.
    network = networks.LayerNormMLP((256,))
    network(tf.zeros((1, 64)))
    weights = next(v for v in network.trainable_variables if v.shape == (64, 256)).numpy()
    assert np.abs(weights).max() <= np.sqrt(3 * 0.333 / 256)
    assert weights.var() == pytest.approx(0.333 / 256, rel=0.05)


def test_adder_adds_n_step_transitions_to_a_server():
    spec = specs.EnvironmentSpec(
        observations=specs.Array((2,), np.float32),
        actions=specs.Array((1,), np.float32),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    table = reverb.Table(
        name=adders.DEFAULT_PRIORITY_TABLE,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=10,
        max_times_sampled=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=adders.NStepTransitionAdder.signature(spec),
    )
    server = reverb.Server([table], port=None)
    try:
        client = reverb.Client(f"localhost:{server.port}")
        adder = adders.NStepTransitionAdder(client, n_step=2, discount=0.5)
        adder.add_first(dm_env.restart(np.zeros(2, np.float32)))
        for step in (1, 2, 3):
            timestep = dm_env.TimeStep(
                step_type=dm_env.StepType.LAST if step == 3 else dm_env.StepType.MID,
                reward=np.float32(step),
                discount=np.float32(step != 3),
                observation=np.full(2, step, np.float32),
            )
            adder.add(np.zeros(1, np.float32), timestep)
        samples = list(client.sample(adders.DEFAULT_PRIORITY_TABLE, 4, emit_timesteps=False))
    finally:
        server.stop()
    # The windows are [0, 1], [0, 2] and [1, 3]. The end of the episode cuts [2, 3] short.
    returns = [float(sample.data[2]) for sample in samples]
    assert returns == [1.0, 1 + 0.5 * 2, 2 + 0.5 * 3, 3.0]
