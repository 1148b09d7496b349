"""A run whose learner computes through the actors' quantizer: resumed, saved, and played."""

import json

import numpy as np
import pytest
import safetensors

from actorQ.core import telemetry
from actorQ.policy import loaded
from actorQ.policy import saved
from tests.actorQ import harness
from tests.actorQ.policy.native import test_kernels


@pytest.mark.parametrize(
    ("task", "bits"), [("gym,Pendulum-v1", 4), ("gym,CartPole-v0", 4), ("gym,Pendulum-v1", 3)]
)
def test_run_goes_on_and_its_policy_is_the_one_that_was_learned(crew, tmp_path, task, bits):
    import tensorflow as tf

    from actorQ.policy import sonnet_policy  # Late, as in the harness: they import TensorFlow.
    from actorQ.policy import sonnet_quantizers

    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, f"--taskstr={task}",
        f"--quantize={bits}", "--inference_mode=native", f"--learner_fake_quantize={bits}",
    )
    assert launched.wait(120) == 0, launched.output()
    assert f"evaluation episodes, int{bits} policy)" in launched.output()
    run = harness.run_folder(tmp_path / "logs")
    refused = crew.launch("--resume", f"--logpath={run}", "--learner_fake_quantize=32")
    assert refused.wait(60) != 0
    assert f"--learner_fake_quantize was {bits}, not 32" in refused.output()
    resumed = crew.launch("--resume", f"--logpath={run}", "--num_episodes=60")
    assert resumed.wait(120) == 0, resumed.output()
    train = telemetry.read_csv(str(run / telemetry.LEARNER / telemetry.TRAIN_CSV))
    assert train["learner_steps"][-1] == 60
    acting = (run / "stdout" / "actor_1.log").read_text()
    assert f"at {bits} bits" in acting and "linear_0 int4, linear_1 int4, head int8" in acting
    updates = telemetry.read_csv(str(run / telemetry.BROADCASTER / telemetry.UPDATES_CSV))
    assert updates["refused"][-1] == 0 and len(updates["message_bytes"]) > 1
    # The exported policy is float32. In the actors' precision it is what the learner's computes.
    path = run / telemetry.CHECKPOINT_FOLDER / saved.POLICY_FILENAME
    with safetensors.safe_open(path, framework="numpy") as file:
        assert json.loads(file.metadata()["facts"])["learner_fake_quantize"] == bits
    checkpoint = saved.load_policy(str(run))
    policy = sonnet_policy.Policy(
        checkpoint.architecture, quantizer=sonnet_quantizers.make(bits, "native")
    )
    policy.assign(checkpoint.weights)
    deployed = loaded.load_policy(str(run), bits, inference_mode="native")
    observations = test_kernels.make_observations(checkpoint.architecture, 30)
    acted = np.concatenate([deployed._backend(each[None]) for each in observations])
    learned = policy(tf.constant(observations)).numpy()
    np.testing.assert_allclose(learned, acted, atol=5e-3)
    assert np.median(np.abs(learned - acted)) < 2e-6
