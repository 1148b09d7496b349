"""The learner's step as one program of XLA: Acme's own step defines what it learns."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

import numpy as np
import pytest
import reverb
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.learner import compiled_step
from actorQ.learner import dataset
from actorQ.learner import device
from tests.actorQ.learner import test_dataset

STEPS = 200
EACH = pytest.mark.parametrize("algorithm", sorted(test_dataset.TASKS))


class Client:
    """Keeps the priorities that a learner writes back."""

    def __init__(self):
        self.updates = []

    def mutate_priorities(self, table, updates):
        del table
        self.updates.append(updates)


def recorded(rig, steps):
    """Returns the same batches of random transitions at every call, with keys of their own."""
    rng = np.random.default_rng(0)
    batch, size = rig.config.batch_size, rig.dataset.layout.vector_size
    data = rng.standard_normal((steps, batch, size)).astype(np.float32)
    if rig.dataset.layout.discrete:
        data[..., rig.dataset.layout.observation_size] = rng.integers(2, size=(steps, batch))
    keys = np.arange(steps * batch, dtype=np.uint64).reshape(steps, batch)
    ones = np.ones((steps, batch))
    info = reverb.SampleInfo(
        keys, ones, ones.astype(np.int64), ones, ones.astype(np.int32)
    )
    packed = tf.data.Dataset.from_tensor_slices(reverb.ReplaySample(info, data))
    return dataset.Batches(dataset.untuned(packed), rig.dataset.layout)


class Learned:
    """A learner after its steps on recorded batches, compiled or as Acme has it."""

    def __init__(self, algorithm, steps_per_call=None, jit_compile=True, steps=STEPS, **settings):
        rig = test_dataset.Rig(
            algorithm, target_update_period=7, policy_learning_rate=1e-3,
            critic_learning_rate=1e-3, learning_rate=1e-3, **settings,
        )
        rig.server.stop()
        self.monitors, self.fetches = dataset.Monitors(), dataset.LastFetches()
        self.client = Client()
        batches = recorded(rig, steps).watched(self.monitors.rewards_watcher(0.99))
        self.learner = rig.module.make_learner(
            rig.networks, rig.config, batches, None, self.fetches, self.monitors
        )
        if rig.module.PRIORITIZED:
            self.learner._replay_client = self.client
        if steps_per_call:
            compiled_step.CompiledStep(self.learner, steps_per_call, jit_compile)
        self.losses = []
        for _ in range(steps // (steps_per_call or 1)):
            self.learner.step()
            self.losses.append(rig.module.losses(self.fetches.read()))
        self.variables = {
            name: variable.numpy()
            for name, variable in test_dataset.variables_of(
                tf.train.Checkpoint(**rig.module.checkpointed(self.learner, rig.networks))
            ).items()
        }


def assert_same(one, other, tolerance):
    assert one.variables.keys() == other.variables.keys()
    for name, values in one.variables.items():
        np.testing.assert_allclose(
            other.variables[name], values, rtol=tolerance, atol=tolerance, err_msg=name
        )
    for name, value in one.monitors.read().items():
        assert other.monitors.read()[name] == pytest.approx(value, rel=10 * tolerance, abs=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "settings", "tolerance"),
    [
        ("d4pg", {"invert_gradients": 0}, 1e-4),
        ("d4pg", {"invert_gradients": 1}, 1e-4),
        ("d4pg", {"learner_precision": "bfloat16"}, 0.05),
        ("dqn", {}, 1e-4),
        ("dqn", {"learner_precision": "bfloat16"}, 0.05),
    ],
)
def test_one_program_learns_what_acmes_step_learns(algorithm, settings, tolerance):
    ours, acmes = Learned(algorithm, 1, **settings), Learned(algorithm, **settings)
    for name in acmes.losses[0]:
        found, wanted = ([losses[name] for losses in side.losses] for side in (ours, acmes))
        np.testing.assert_allclose(found, wanted, rtol=10 * tolerance, atol=tolerance)
    assert_same(acmes, ours, tolerance)


@EACH
@pytest.mark.parametrize("jit_compile", [True, False])
def test_several_steps_in_a_call_are_as_many_steps(algorithm, jit_compile):
    one = Learned(algorithm, steps=40)
    several = Learned(algorithm, 4, jit_compile, steps=40)
    assert_same(one, several, 1e-4)
    assert several.learner._num_steps.numpy() == 40
    for name, value in one.losses[-1].items():  # The log has the losses of the last step.
        assert several.losses[-1][name] == pytest.approx(value, rel=1e-3, abs=1e-5)


def test_priorities_of_all_steps_in_a_call_are_written():
    one, several = Learned("dqn", steps=8), Learned("dqn", 4, steps=8)
    assert len(several.client.updates) == 2
    wanted, found = (
        {int(key): value for updates in side.client.updates for key, value in updates.items()}
        for side in (one, several)
    )
    assert wanted.keys() == found.keys() == set(range(8 * 8))
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-3, abs=1e-5)


class Failing:
    """XLA on a machine without a GPU's toolkit."""

    def __init__(self, function, jit_compile=None, **options):
        self._function = None if jit_compile else tf.function(function, **options)

    def __call__(self, *arguments):
        if self._function is None:
            raise tf.errors.InternalError(None, None, "libdevice not found\nmore")
        return self._function(*arguments)


@EACH
def test_a_step_that_xla_cannot_compile_stays_as_it_is_or_fails(algorithm, monkeypatch, caplog):
    class Fails(compiled_step.CompiledStep):
        def _make_program(self, jit_compile):
            return Failing(self._make_step, jit_compile, autograph=False)

    whole = Learned(algorithm, steps=5)
    monkeypatch.setattr(
        compiled_step, "CompiledStep",
        lambda learner, steps, jit_compile: Fails(learner, steps, jit_compile, must_compile=False),
    )
    assert_same(whole, Learned(algorithm, 1, steps=5), 1e-4)  # No batch and no step is lost.
    assert "stays TensorFlow's graph: libdevice not found" in caplog.text
    monkeypatch.setattr(compiled_step, "CompiledStep", Fails)
    with pytest.raises(tf.errors.InternalError):
        Learned(algorithm, 1, steps=1)


@pytest.mark.parametrize(
    ("asked", "gpu", "compiled"),
    [
        ("auto", True, True), ("auto", False, False), ("on", False, True), ("off", True, False),
    ],
)
def test_auto_compiles_on_a_gpu_alone(asked, gpu, compiled, monkeypatch):
    monkeypatch.setattr(device, "name", lambda: "GPU" if gpu else "CPU")
    config = config_lib.RunConfig(learner_compile=asked)
    assert device.compiles(config) == compiled
